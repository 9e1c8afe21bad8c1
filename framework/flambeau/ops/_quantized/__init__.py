"""What quantized tensors are made of: `arrays` has their kind of array, `rules` gives operations their kernels for it."""
