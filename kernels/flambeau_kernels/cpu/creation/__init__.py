"""New arrays of one number, and of numbers counted up."""
