"""Elements in order: sorting, ranks, the largest few, counts and places in sorted rows."""
