"""Images resampled, and looked up at points."""
