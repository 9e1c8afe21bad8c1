"""Arrays moved, joined, padded and laid out in another order."""
