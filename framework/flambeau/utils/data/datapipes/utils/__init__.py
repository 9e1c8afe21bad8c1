"""What stages need: decoders of files."""
