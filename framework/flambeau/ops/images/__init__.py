"""Images: resampling, sampling at grids, rearrangement of pixels."""
