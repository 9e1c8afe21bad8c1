"""What may still change: recording programs op by op."""
