"""Files of tensors, below `serialization`: zip archives, pickles read as data and written, and the storages in them."""
