"""Making tensors, and converting them to other dtypes, devices and memory layouts."""
