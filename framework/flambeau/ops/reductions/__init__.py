"""Operations along dimensions: reductions, scans, orders, counts and comparisons of whole tensors."""
