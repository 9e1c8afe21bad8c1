"""Words of PyTorch's errors and warnings that programs look for. Ours may say more around them."""

from __future__ import annotations

import ast
import warnings
from typing import Any

import pytest

import flambeau as fb

F = fb.nn.functional

# A program, and below it the type of its error and what PyTorch 2.13 says in the first line.
REFUSED = r"""
fb.linalg.inv(fb.zeros(2, 2))
    LinAlgError: linalg.inv: The diagonal element 1 is zero, the inversion could not be completed because the input matrix is
fb.linalg.inv(fb.zeros(3, 2, 2))
    LinAlgError: linalg.inv: (Batch element 0): The diagonal element 1 is zero, the inversion could not be completed because the
fb.cholesky_inverse(fb.zeros(2, 2))
    LinAlgError: cholesky_inverse: The diagonal element 1 is zero, the inversion could not be completed because the input matrix is
fb.cholesky_inverse(fb.zeros(3, 2, 2))
    LinAlgError: cholesky_inverse: (Batch element 0): The diagonal element 1 is zero, the inversion could not be completed because the
F.embedding_bag(fb.tensor([0, 1]), fb.ones(3, 2, dtype=fb.int64), fb.tensor([0]))
    RuntimeError: Expected tensor for argument #1 'weight' to have one of the following scalar types: Half, BFloat16, Float, Double; but
F.embedding_bag(fb.tensor([0, 1]), fb.ones(3), fb.tensor([0]))
    ValueError: weight has to be a 2D Tensor, but got Tensor of dimension 1
fb.ones(3).index_add(0, fb.tensor([5]), fb.ones(1))
    IndexError: index 5 is out of bounds
fb.ones(3, 2).index_add(0, fb.tensor([5]), fb.ones(1, 2))
    RuntimeError: index 5 is out of bounds
fb.ones(3, 2).index_reduce(0, fb.tensor([5]), fb.ones(1, 2), "amax")
    IndexError: index 5 is out of bounds
fb.linalg.cholesky(fb.zeros(2, 2))
    LinAlgError: linalg.cholesky: The factorization could not be completed because the input is not positive-definite (the leading
fb.linalg.cholesky(-fb.eye(2).expand(3, 2, 2))
    LinAlgError: linalg.cholesky: (Batch element 0): The factorization could not be completed because the input is not
fb.linalg.solve(fb.zeros(2, 2), fb.ones(2))
    LinAlgError: torch.linalg.solve: The solver failed because the input matrix is singular.
fb.linalg.solve(fb.zeros(3, 2, 2), fb.ones(3, 2, 1))
    LinAlgError: torch.linalg.solve: (Batch element 0): The solver failed because the input matrix is singular.
fb.linalg.eig(fb.full((2, 2), float('nan')))
    RuntimeError: torch.linalg.eig: input tensor should not contain infs or NaNs.
fb.linalg.svd(fb.full((2, 2), float('nan')))
    LinAlgError: linalg.svd: The algorithm failed to converge because the input matrix contained non-finite values.
F.conv2d(fb.ones(2, 4, 4), fb.ones(3, 3, 2, 2))
    RuntimeError: Given groups=1, weight of size [3, 3, 2, 2], expected input[1, 2, 4, 4] to have 3 channels, but got 2 channels instead
F.conv_transpose2d(fb.ones(1, 2, 3, 3), fb.ones(3, 2, 2, 2))
    RuntimeError: Given transposed=1, weight of size [3, 2, 2, 2], expected input[1, 2, 3, 3] to have 3 channels, but got 2 channels
F.conv2d(fb.ones(1, 2, 3, 3), fb.ones(4, 2, 2, 2), fb.ones(3))
    RuntimeError: Given weight of size [4, 2, 2, 2], expected bias to be 1-dimensional with 4 elements, but got bias of size [3] instead
F.conv2d(fb.ones(1, 2, 3, 1), fb.ones(3, 2, 2, 2), dilation=3, padding=1)
    RuntimeError: Calculated padded input size per channel: (5 x 3). Kernel size: (4 x 4). Kernel size can't be greater than actual input
F.conv_transpose2d(fb.ones(1, 2, 1, 1), fb.ones(2, 3, 1, 1), padding=1)
    RuntimeError: Given input size per channel: (1 x 1). Calculated output size per channel: (-1 x -1). Output size is too small
F.max_pool2d(fb.ones(3, 2, 1, 4), 2)
    RuntimeError: Given input size: (2x1x4). Calculated output size: (2x0x2). Output size is too small
F.pad(fb.ones(2), (1,))
    RuntimeError: Padding length must be divisible by 2
F.pad(fb.ones(2), (1, 1, 1, 1))
    RuntimeError: Padding length should be less than or equal to two times the input dimension but got padding length 4 and input of
F.softmax(fb.ones(2, dtype=fb.int64), 0)
    NotImplementedError: not implemented for
F.batch_norm(fb.ones(2, 3), fb.ones(2), fb.ones(2))
    RuntimeError: running_mean should contain 3 elements not 2
F.glu(fb.ones(3))
    RuntimeError: Halving dimension must be even, but dimension 0 is size 3
F.binary_cross_entropy_with_logits(fb.ones(2), fb.ones(3))
    ValueError: Target size (torch.Size([3])) must be the same as input size (torch.Size([2]))
fb.nn.LSTM(2, 3)(fb.ones(2, 2, 3))
    RuntimeError: input.size(-1) must be equal to input_size. Expected 2, got 3
fb.nn.RNNCell(2, 3)(fb.ones(2, 4))
    RuntimeError: input has inconsistent input_size: got 4 expected 2
fb.nn.GRUCell(2, 3)(fb.ones(2, 2), fb.ones(3, 3))
    RuntimeError: Input batch size 2 doesn't match hidden0 batch size 3
fb.nn.GRUCell(2, 3)(fb.ones(2, 2), fb.ones(2, 4))
    RuntimeError: hidden0 has inconsistent hidden_size: got 4, expected 3
fb.nn.GRUCell(2, 3)(fb.ones(2, 2, 2))
    ValueError: GRUCell: Expected input to be 1D or 2D, got 3D instead
fb.nn.utils.rnn.pack_padded_sequence(fb.ones(3, 2), fb.tensor([2, 3]))
    RuntimeError: `lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass `enforce_sorted=False`
fb.nn.utils.rnn.pack_padded_sequence(fb.ones(3, 2), fb.tensor([0, 3]), enforce_sorted=False)
    RuntimeError: Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0
fb.nn.utils.rnn.pack_padded_sequence(fb.ones(3, 2), fb.tensor([2, 2, 2]))
    RuntimeError: Expected `len(lengths)` to be equal to batch_size, but got 3 (batch_size=2)
fb.optim.SGD([], lr=1)
    ValueError: optimizer got an empty parameter list
fb.linalg.eigh(fb.full((3, 3), float('nan')))
    LinAlgError: linalg.eigh: The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated
fb.linalg.eigvalsh(fb.full((2, 3, 3), float('nan')))
    LinAlgError: (Batch element 0): The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated
fb.nn.functional.linear(fb.ones(2, 2, 3), fb.ones(4, 5))
    RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 5x4)
fb.nn.Linear(3, 4)(fb.ones(5))
    RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x5 and 3x4)
fb.nn.functional.linear(fb.ones(2, 3), fb.ones(5))
    RuntimeError: size mismatch, got input (2), mat (2x3), vec (5)
fb.nn.functional.linear(fb.ones(2, 3), fb.ones(4, 3), fb.ones(5))
    RuntimeError: The expanded size of the tensor (4) must match the existing size (5) at non-singleton dimension 1.
fb.nn.init.xavier_uniform_(fb.nn.LazyLinear(3).weight)
    ValueError: Attempted to use an uninitialized parameter in
fb.nn.parameter.UninitializedParameter().view(2)
    ValueError: Attempted to use an uninitialized parameter in
fb.linalg.lstsq(fb.ones(2, 2), fb.ones(3, 2))
    RuntimeError: torch.linalg.lstsq: input.size(-2) should match other.size(-2)
fb.linalg.lu_factor(fb.zeros(2, 2))
    RuntimeError: torch.linalg.lu_factor: U[1,1] is zero and using it on lu_solve would result in a division by zero. If you still
fb.linalg.lu_factor(fb.zeros(3, 2, 2))
    RuntimeError: torch.linalg.lu_factor: (Batch element 0): U[1,1] is zero and using it on lu_solve would result in a division by
fb.linalg.lu(fb.ones(2))
    RuntimeError: linalg.lu: Expected tensor with 2 or more dimensions. Got size: [2] instead
fb.fft.fftfreq(-1)
    RuntimeError: Trying to create tensor with negative dimension -1: [-1]
fb.empty_strided((2**62,), (2**62,))
    RuntimeError: Storage size calculation overflowed with sizes=[4611686018427387904] and strides=[4611686018427387904]
fb.nn.Conv2d(1, 1, 1, stide=2)
    TypeError: Conv2d.__init__() got an unexpected keyword argument 'stide'
fb.nn.LazyConvTranspose1d(1, 1, stide=2)
    TypeError: LazyConvTranspose1d.__init__() got an unexpected keyword argument 'stide'
fb.nn.BatchNorm2d()
    TypeError: BatchNorm2d.__init__() missing 1 required positional argument: 'num_features'
fb.nn.MaxPool2d(2, size=3)
    TypeError: MaxPool2d.__init__() got an unexpected keyword argument 'size'
fb.linalg.inv(fb.ones(2))
    RuntimeError: linalg.inv: The input tensor A must have at least 2 dimensions.
fb.linalg.inv(fb.ones(2, 3))
    RuntimeError: linalg.inv: A must be batches of square matrices, but they are 2 by 3 matrices
fb.linalg.qr(fb.ones(2, 2), mode='x')
    RuntimeError: qr received unrecognized mode 'x' but expected one of 'reduced' (default), 'r', or 'complete'
fb.linalg.matrix_norm(fb.ones(2, 2), 'x')
    RuntimeError: linalg.matrix_norm: Order x not supported.
fb.linalg.matrix_norm(fb.ones(2, 2), 3)
    RuntimeError: linalg.matrix_norm: Order 3 not supported.
fb.linalg.norm(fb.ones(2, 2, 2), 'nuc')
    RuntimeError: linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got 3D.
fb.linalg.vector_norm(fb.ones(2, dtype=fb.int64))
    RuntimeError: linalg.vector_norm: Expected a floating point or complex tensor as input. Got Long
fb.linalg.cross(fb.ones(2), fb.ones(2))
    RuntimeError: linalg.cross: inputs dimension -1 must have length 3. Got 2 and 2
fb.linalg.cross(fb.ones(3), fb.ones(3, 3, 3))
    RuntimeError: linalg.cross: inputs must have the same number of dimensions.
fb.linalg.multi_dot([fb.ones(2)])
    RuntimeError: multi_dot(): expected at least 2 tensors but got 1
fb.linalg.multi_dot([fb.ones(2, 2), fb.ones(3, 3)])
    RuntimeError: multi_dot(): tensors 0 and 1 with shapes [2, 2] and [3, 3] cannot be multiplied
fb.linalg.tensorinv(fb.ones(2, 3), ind=1)
    RuntimeError: Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got 3 != 2
fb.linalg.tensorinv(fb.ones(2, 3), ind=0)
    RuntimeError: Expected a strictly positive integer for 'ind', but got 0
fb.linalg.tensorsolve(fb.ones(2, 3), fb.ones(2))
    RuntimeError: Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), but got 3
fb.linalg.solve_triangular(fb.ones(2, 2), fb.ones(3, 2), upper=True)
    RuntimeError: linalg.solve_triangular: Incompatible shapes of A and B for the equation AX = B (2x2 and 3x2)
fb.linalg.vander(fb.ones(()))
    RuntimeError: N must be greater than 1.
fb.linalg.householder_product(fb.ones(2, 3), fb.ones(3))
    RuntimeError: torch.linalg.householder_product: input.shape[-2] must be greater than or equal to input.shape[-1]
fb.linalg.cond(fb.ones(2, 3), p=1)
    RuntimeError: linalg.cond(ord=1): A must be batches of square matrices, but they are 2 by 3 matrices
fb.linalg.cond(fb.ones(2, 2), p='x')
    RuntimeError: linalg.cond got an invalid norm type: x
fb.linalg.pinv(fb.ones(2))
    RuntimeError: linalg.pinv(Float{[2]}): expected a tensor with 2 or more dimensions of float, double, cfloat or cdouble types
fb.linalg.inv(fb.ones(2, 2, dtype=fb.half))
    RuntimeError: linalg.inv: Low precision dtypes not supported. Got Half
fb.cholesky_solve(fb.ones(2), fb.ones(2, 2))
    RuntimeError: b should have at least 2 dimensions, but has 1 dimensions instead
fb.lu_solve(fb.ones(2), fb.ones(2, 2), fb.ones(2, dtype=fb.int32))
    RuntimeError: linalg.lu_solve: The input tensor B must have at least 2 dimensions.
fb.triangular_solve(fb.ones(2), fb.ones(2, 2))
    RuntimeError: torch.triangular_solve: Expected b to have at least 2 dimensions, but it has 1 dimensions instead
fb.geqrf(fb.ones(2))
    RuntimeError: torch.geqrf: input must have at least 2 dimensions.
fb.ones(2).mT
    RuntimeError: tensor.mT is only supported on matrices or batches of matrices. Got 1-D tensor.
fb.ones(2).mH
    RuntimeError: tensor.mH is only supported on matrices or batches of matrices. Got 1-D tensor.
fb.ones(2).H
    RuntimeError: tensor.H is only supported on matrices (2-D tensors). Got 1-D tensor.
fb.ones(2, 2, 2).H
    RuntimeError: tensor.H is only supported on matrices (2-D tensors). Got 3-D tensor. For batches of matrices, consider using
fb.ones(2).adjoint()
    RuntimeError: tensor.adjoint() is only supported on matrices or batches of matrices. Got 1-D tensor.
fb.t(fb.ones(2, 2, 2))
    RuntimeError: t() expects a tensor with <= 2 dimensions, but self is 3D
fb.ones(3).expand(2)
    RuntimeError: The expanded size of the tensor (2) must match the existing size (3) at non-singleton dimension 0. Target sizes:
fb.ones(3).expand(())
    RuntimeError: expand(torch.FloatTensor{[3]}, size=[]): the number of sizes provided (0) must be greater or equal to the number of
fb.ones(3).expand(-1, 3)
    RuntimeError: The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension 0
fb.ones(3).expand(3, -2)
    RuntimeError: The expanded size of the tensor (-2) must match the existing size (3) at non-singleton dimension 1. Target sizes:
x = fb.ones(3, 3); x[fb.tensor([0, 1])] = fb.ones(2); x
    RuntimeError: shape mismatch: value tensor of shape [2] cannot be broadcast to indexing result of shape [2, 3]
fb.ones(3).copy_(fb.ones(2))
    RuntimeError: The size of tensor a (3) must match the size of tensor b (2) at non-singleton dimension 0
fb.diff(fb.ones(()))
    RuntimeError: diff expects input to be at least one-dimensional
fb.diff(fb.ones(3), n=-1)
    RuntimeError: order must be non-negative but got -1
fb.diff(fb.ones(3), prepend=fb.ones(2, 2))
    RuntimeError: diff expects prepend or append to be the same dimension as input
fb.diff(fb.ones(3, 2), prepend=fb.ones(2, 3))
    RuntimeError: diff expects the shape of tensor to prepend or append to match that of input except along the differencing
fb.diff(fb.ones(3), dim=2)
    IndexError: Dimension out of range (expected to be in range of [-1, 0], but got 2)
fb.nonzero(fb.ones(3), out=fb.ones(3))
    RuntimeError: nonzero: Expected out tensor to have scalar type Long but got scalar typeFloat
fb.all(fb.ones(3), out=fb.ones(()))
    RuntimeError: all only supports bool tensor for result, got: Float
fb.ones(3).index_fill(0, fb.tensor([0]), fb.ones(2))
    RuntimeError: index_fill_ only supports a 0-dimensional value tensor, but got tensor with 1 dimension(s).
fb.ones(3).index_fill(0, fb.tensor([0.]), 1)
    IndexError: index_fill_(): Expected dtype int64 for index.
fb.ones(3).index_fill(0, fb.tensor([5]), 1)
    IndexError: index 5 is out of bounds for dimension 0 with size 3
fb.ones(3).index_fill(0, fb.tensor([[0]]), 1)
    RuntimeError: Index has to be a vector/scalar
fb.ones(3).index_fill_(0, fb.tensor([0]), 1j)
    RuntimeError: index_fill_(): Converting complex Scalar to non-complex type is not supported
F.embedding_bag(fb.tensor([0, 1]), fb.ones(2, 2))
    ValueError: offsets has to be a 1D Tensor but got None
F.embedding_bag(fb.tensor([0, 1]), fb.ones(2, 2), fb.tensor([1]))
    RuntimeError: offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got 1
F.embedding_bag(fb.tensor([0, 1]), fb.ones(2, 2), fb.tensor([0, 5]))
    RuntimeError: offsets[-1] can not be greater than input's length 2 but got offsets[-1] of 5
F.embedding_bag(fb.tensor([0, 5]), fb.ones(2, 2), fb.tensor([0]))
    RuntimeError: Index 1 of input takes value 5 which is not in the valid range [0, 2)
F.embedding_bag(fb.tensor([0, -1]), fb.ones(2, 2), fb.tensor([0]))
    RuntimeError: Index 1 of input takes value -1 which is not in the valid range [0, 2)
F.embedding_bag(fb.tensor([0, 1]), fb.ones(2, 2), fb.tensor([0]), mode='x')
    ValueError: mode has to be one of sum, mean or max
F.embedding_bag(fb.tensor([0, 1]), fb.ones(2, 2), fb.tensor([0]), mode='sum', per_sample_weights=fb.ones(3))
    ValueError: embedding_bag: If per_sample_weights (torch.Size([3])) is not None, then it must have the same shape as the input
F.embedding_bag(fb.tensor([0, 1]), fb.ones(2, 2), fb.tensor([[0]]))
    ValueError: offsets has to be a 1D Tensor
F.embedding_bag(fb.tensor([0, 1]), fb.ones(2, 2), fb.tensor([0]), padding_idx=5)
    RuntimeError: padding_idx must be within the number of embeddings, -2 through 1, but got 5
F.embedding_bag(fb.tensor([0, 1]), fb.ones(2, 2), fb.tensor([0]), mode='max', sparse=True)
    ValueError: max mode does not support sparse weights
F.embedding(fb.tensor([5]), fb.ones(2, 2))
    IndexError: index out of range in self
F.embedding(fb.tensor([0]), fb.ones(2))
    RuntimeError: 'weight' must be 2-D
m = fb.nn.LazyLinear(3); m.share_memory()
    RuntimeError: Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters before
m = fb.nn.LazyConv2d(3, 3); m(fb.ones(2))
    RuntimeError: Expected 3D (unbatched) or 4D (batched) input to LazyConv2d, but got input of size: torch.Size([2])
fb.ones(3).copy_(fb.ones(2, 3))
    RuntimeError: output with shape [3] doesn't match the broadcast shape [2, 3]
fb.broadcast_shapes((3,), (2,))
    RuntimeError: Attempting to broadcast a dimension of length 2 at -1! Mismatching argument at index 1 had (2,); but expected shape
fb.ones(3).masked_scatter(fb.ones(3) > 0, fb.ones(2))
    RuntimeError: Number of elements of source < number of ones in mask
fb.ones(3, dtype=fb.int32).add_(1.5)
    RuntimeError: result type Float can't be cast to the desired output type Int
fb.ones(3, dtype=fb.bool).add_(1)
    RuntimeError: result type Long can't be cast to the desired output type Bool
fb.add(fb.ones(3), fb.ones(3), alpha=1j)
    RuntimeError: For non-complex input tensors, argument alpha must not be a complex number.
fb.add(fb.ones(3, dtype=fb.int32), fb.ones(3, dtype=fb.int32), alpha=1.5)
    RuntimeError: For integral input tensors, argument alpha must not be a floating point number.
fb.sub(fb.ones(3, dtype=fb.bool), fb.ones(3, dtype=fb.bool))
    RuntimeError: Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator
-fb.ones(3, dtype=fb.bool)
    RuntimeError: Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the `~` or
fb.ones(3, dtype=fb.bool) - 1
    RuntimeError: Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the `~`
fb.ones(3) @ fb.ones(2)
    RuntimeError: inconsistent tensor size, expected tensor [3] and src [2] to have the same number of elements, but got 3 and 2
fb.ones(3, 3) @ fb.ones(2)
    RuntimeError: size mismatch, got input (3), mat (3x3), vec (2)
fb.ones(3) @ fb.ones(2, 2)
    RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x3 and 2x2)
fb.ones(2, 3, 3) @ fb.ones(2, 2, 3)
    RuntimeError: Expected size for first two dimensions of batch2 tensor to be: [2, 3] but got: [2, 2].
fb.mm(fb.ones(2), fb.ones(2, 3))
    RuntimeError: self must be a matrix
fb.bmm(fb.ones(3, 3), fb.ones(3, 3))
    RuntimeError: batch1 must be a 3D tensor
fb.dot(fb.ones(3, 3), fb.ones(2))
    RuntimeError: 1D tensors expected, but got 2D and 1D tensors
fb.dot(fb.ones(3), fb.ones(3, dtype=fb.float64))
    RuntimeError: dot : expected both vectors to have same dtype, but found Float and Double
fb.cat([fb.ones(2, 2), fb.ones(3, 3)])
    RuntimeError: Sizes of tensors must match except in dimension 0. Expected size 2 but got size 3 for tensor number 1 in the list.
fb.cat([fb.ones(2, 2), fb.ones(3)])
    RuntimeError: Tensors must have same number of dimensions: got 2 and 1
fb.cat([])
    ValueError: torch.cat(): expected a non-empty list of Tensors
fb.stack([fb.ones(2), fb.ones(3)])
    RuntimeError: stack expects each tensor to be equal size, but got [2] at entry 0 and [3] at entry 1
fb.stack([])
    RuntimeError: stack expects a non-empty TensorList
fb.ones(2, 3).view(5)
    RuntimeError: shape '[5]' is invalid for input of size 6
fb.ones(2, 3).view(-1, -1)
    RuntimeError: only one dimension can be inferred
fb.ones(2, 3).view(-1, 4)
    RuntimeError: shape '[-1, 4]' is invalid for input of size 6
fb.ones(2, 3).t().view(6)
    RuntimeError: view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous
fb.ones(2, 0).view(-1, 0)
    RuntimeError: cannot reshape tensor of 0 elements into shape [-1, 0] because the unspecified dimension size -1 can be any value
fb.ones(2, 3).view(-2, 3)
    RuntimeError: invalid shape dimension -2 at index 0 of shape [-2, 3]
fb.ones(2, 3)[0, 0, 0]
    IndexError: too many indices for tensor of dimension 2
fb.ones(2, 3)[fb.tensor([0.5])]
    IndexError: tensors used as indices must be long, int, byte or bool tensors
fb.ones(2, 3)[::-1]
    ValueError: step must be greater than zero
fb.ones(2, 3)[fb.ones(3) > 0]
    IndexError: The shape of the mask [3] at index 0 does not match the shape of the indexed tensor [2, 3] at index 0
fb.ones(2, 3)[fb.tensor([0, 1]), fb.tensor([0, 1, 2])]
    IndexError: shape mismatch: indexing tensors could not be broadcast together with shapes [2], [3]
fb.ones(2, 3).sum((0, 0))
    RuntimeError: dim 0 appears multiple times in the list of dims
fb.ones(0).max()
    RuntimeError: max(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim'
fb.ones(0).argmax()
    IndexError: argmax(): Expected reduction dim to be specified for input.numel() == 0.
fb.ones(0, 2).max(0)
    IndexError: max(): Expected reduction dim 0 to have non-zero size.
fb.ones(2, 3).mean(dtype=fb.int32)
    RuntimeError: mean(): could not infer output dtype. Optional dtype must be either a floating point or complex dtype. Got: Int
fb.ones(2, 3, dtype=fb.int64).mean()
    RuntimeError: mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: Long
fb.ones(2, 3).permute(0, 0)
    RuntimeError: permute(): duplicate dims are not allowed.
fb.ones(2, 3).roll((1, 2), 0)
    RuntimeError: shifts and dimensions must align. shifts: 2, dims:1
fb.ones(2, 3).rot90(1, (0,))
    RuntimeError: expected total rotation dims == 2, but got dims = 1
fb.ones(2, 3).rot90(1, (0, 0))
    RuntimeError: expected rotation dims to be different, but got dim0 = 0 and dim1 = 0
fb.ones(2, 3).gather(0, fb.ones(2, 3))
    RuntimeError: gather(): Expected dtype int32/int64 for index
fb.ones(2, 3).gather(0, fb.tensor([[5]]))
    RuntimeError: index 5 is out of bounds for dimension 0 with size 2
fb.ones(2, 3).gather(0, fb.zeros(2, 5, dtype=fb.int64))
    RuntimeError: Size does not match at dimension 1 expected index [2, 5] to be no larger than self [2, 3] apart from dimension 0
fb.ones(2, 3).scatter(0, fb.zeros(2, 5, dtype=fb.int64), 1)
    RuntimeError: Expected index [2, 5] to be no larger than self [2, 3] apart from dimension 0
fb.ones(2, 3).scatter(0, fb.zeros(2, 3, dtype=fb.int64), fb.ones(1, 1))
    RuntimeError: Expected index [2, 3] to be no larger than self [2, 3] apart from dimension 0 and to be no larger size than src [1,
fb.ones(2, 3).index_select(0, fb.tensor([0.5]))
    RuntimeError: index_select(): Expected dtype int32 or int64 for index
fb.ones(2, 3).index_select(0, fb.tensor([[0]]))
    IndexError: index_select(): Index is supposed to be a vector
fb.ones(2, 3).index_add(0, fb.tensor([0]), fb.ones(3, 3))
    RuntimeError: index_add_(): Number of indices (1) should be equal to source.size(dim): (3), for dim: 0
fb.ones(2, 3).index_copy(0, fb.tensor([0]), fb.ones(3, 3))
    IndexError: index_copy_(): Number of indices (1) should be equal to source.size(dim) (3)
fb.ones(2, 3).take(fb.tensor([0.5]))
    RuntimeError: take(): Expected a long tensor for index, but got Float
fb.ones(2, 3).put_(fb.tensor([1]), fb.ones(2))
    IndexError: put_(): Expected source and index to have the same number of elements, but got source.numel() = 2, index.numel() = 1
fb.ones(2, 3).narrow(0, 1, 5)
    RuntimeError: start (1) + length (5) exceeds dimension size (2).
fb.ones(2, 3).select(0, 5)
    IndexError: select(): index 5 out of range for tensor of size [2, 3] at dimension 0
fb.ones(2, 3).split([1, 2])
    RuntimeError: split_with_sizes expects split_sizes to sum exactly to 2 (input tensor's size at dimension 0), but got
fb.ones(2, 3).chunk(0)
    RuntimeError: chunk expects `chunks` to be greater than 0, got: 0
fb.ones(2, 3).unfold(0, 5, 1)
    RuntimeError: maximum size for tensor at dimension 0 is 2 but size is 5
fb.ones(2, 3).repeat(2)
    RuntimeError: Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor
fb.ones(2, 3).item()
    RuntimeError: a Tensor with 6 elements cannot be converted to Scalar
int(fb.ones(2, 3))
    ValueError: only one element tensors can be converted to Python scalars
bool(fb.ones(2, 3))
    RuntimeError: Boolean value of Tensor with more than one value is ambiguous
fb.tensor([['a']])
    ValueError: too many dimensions 'str'
fb.tensor([300], dtype=fb.uint8)
    RuntimeError: value cannot be converted to type uint8 without overflow
fb.arange(0, 5, 0)
    RuntimeError: step must be nonzero
fb.arange(5, 0, 1)
    RuntimeError: upper bound and lower bound inconsistent with step sign
fb.linspace(0, 1, -1)
    RuntimeError: number of steps must be non-negative
fb.eye(-1)
    RuntimeError: n must be greater or equal to 0, got -1
fb.randint(5, 2, (3,))
    RuntimeError: random_ expects 'from' to be less than 'to', but got from=5 >= to=2
fb.ones(3).normal_(0, -1)
    RuntimeError: normal expects std >= 0.0, but found std -1
fb.ones(3).uniform_(1, 0)
    RuntimeError: uniform_ expects to return a [from, to) range, but found from=1 > to=0
fb.ones(3).bernoulli_(2)
    RuntimeError: bernoulli_ expects p to be in [0, 1], but got p=2
fb.multinomial(fb.zeros(3), 1)
    RuntimeError: invalid multinomial distribution (sum of probabilities <= 0)
fb.multinomial(fb.ones(3), 5)
    RuntimeError: cannot sample n_sample > prob_dist.size(-1) samples without replacement
fb.multinomial(-fb.ones(3), 1)
    RuntimeError: probability tensor contains either `inf`, `nan` or element < 0
fb.ones(3).exponential_(-1)
    RuntimeError: exponential_ expects lambda > 0.0, but found lambda=-1
fb.ones(3).cauchy_(0, -1)
    RuntimeError: cauchy_ expects sigma > 0.0, but found sigma=-1
fb.poisson(-fb.ones(3))
    RuntimeError: invalid Poisson rate, expected rate to be non-negative
fb.ones(3).masked_fill(fb.tensor([1, 0, 1], dtype=fb.uint8), 0)
    RuntimeError: masked_fill_ only supports boolean masks, but got mask with dtype unsigned char
fb.ones(3).masked_select(fb.tensor([1, 0, 1], dtype=fb.uint8))
    RuntimeError: masked_select: expected BoolTensor for mask
fb.ones(3).masked_scatter(fb.tensor([1, 0, 1], dtype=fb.uint8), fb.ones(3))
    RuntimeError: masked_scatter_ only supports boolean masks, but got mask with dtype Byte
fb.where(fb.tensor([1, 0, 1]), fb.ones(3), fb.zeros(3))
    RuntimeError: where expected condition to be a boolean tensor, but got a tensor with dtype Long
F.binary_cross_entropy(fb.ones(2), fb.ones(2, 1))
    ValueError: Using a target size (torch.Size([2, 1])) that is different to the input size (torch.Size([2])) is deprecated. Please
""".strip().split("\n")


def words(text: str) -> str:
    return " ".join(text.split())


def ran(program: str) -> Any:
    """The value of the last line of `program`."""
    scope: dict[str, Any] = {"fb": fb, "F": F}
    *body, last = ast.parse(program).body
    exec(compile(ast.Module(body, []), "<program>", "exec"), scope)
    if not isinstance(last, ast.Expr):
        return exec(compile(ast.Module([last], []), "<program>", "exec"), scope)
    return eval(compile(ast.Expression(last.value), "<program>", "eval"), scope)


@pytest.mark.filterwarnings("ignore:torch.*is deprecated")
@pytest.mark.parametrize(("program", "error"), list(zip(REFUSED[::2], REFUSED[1::2], strict=True)))
def test_an_error_has_the_words_that_programs_look_for(program: str, error: str) -> None:
    kind, _, said = error.strip().partition(": ")

    with pytest.raises((RuntimeError, TypeError, ValueError, IndexError)) as caught:
        ran(program)

    assert type(caught.value).__name__ == kind
    assert said in words(str(caught.value))


ONCE = [
    (lambda: fb.ones(3).T, "The use of `x.T` on tensors of dimension other than 2"),
    (lambda: fb.ones(()).mT, "Tensor.mT is deprecated on 0-D tensors"),
    (lambda: fb.ones(()).H, "Tensor.H is deprecated on 0-D tensors"),
    (lambda: fb.cholesky(fb.eye(2)), "torch.cholesky is deprecated in favor of torch.linalg.cholesky"),
    (lambda: fb.qr(fb.eye(2)), "torch.qr is deprecated in favor of torch.linalg.qr"),
    (lambda: fb.lu(fb.eye(2)), "torch.lu is deprecated in favor of torch.linalg.lu_factor"),
    (lambda: fb.chain_matmul(fb.eye(2), fb.eye(2)), "torch.chain_matmul is deprecated"),
    (lambda: fb.cross(fb.eye(3), fb.eye(3)), "Using torch.cross without specifying the dim arg is deprecated"),
    (lambda: fb.meshgrid(fb.ones(2), fb.ones(2)), "it will be required to pass the indexing argument"),
    (lambda: fb.stft(fb.ones(32), 8, return_complex=True), "A window was not provided"),
    (lambda: fb.where(fb.ones(2, dtype=fb.uint8), fb.ones(2), 0.0), "where received a uint8 condition tensor"),
    (lambda: fb.set_default_tensor_type("torch.FloatTensor"), "torch.set_default_tensor_type() is deprecated"),
]
ALWAYS = [
    (lambda: fb.ones(3)[fb.tensor([1, 0, 1], dtype=fb.uint8)], "indexing with dtype torch.uint8 is now deprecated"),
    (lambda: fb.ones(1).std(), "std(): degrees of freedom is <= 0"),
    (lambda: fb.ones(5, 1).var(1), "var(): degrees of freedom is <= 0"),
    (lambda: fb.std_mean(fb.ones(2, 0), 0), "std_mean(): degrees of freedom is <= 0"),
    (lambda: F.upsample(fb.ones(1, 1, 2, 2), scale_factor=2), "`nn.functional.upsample` is deprecated"),
    (lambda: F.grid_sample(fb.ones(1, 1, 2, 2), fb.zeros(1, 2, 2, 2)), "Default grid_sample and affine_grid behavior has changed"),
    (lambda: F.affine_grid(fb.ones(1, 2, 3), (1, 1, 2, 2)), "Default grid_sample and affine_grid behavior has changed"),
    (lambda: F.mse_loss(fb.ones(2), fb.ones(2, 1)), "Using a target size (torch.Size([2, 1])) that is different"),
    (lambda: fb.autograd.Variable(fb.ones(2), volatile=True), "volatile was removed and now has no effect"),
    (lambda: fb.ones(2).random_(0, 2**40), "to - 1 is out of bounds [-(2^24), 2^24]"),
]


@pytest.mark.parametrize(("call", "said", "times"), [(*c, 1) for c in ONCE] + [(*c, 2) for c in ALWAYS])
def test_a_warning_is_given_as_often_as_in_pytorch(call: Any, said: str, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flambeau._warn._given", set())

    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        call()
        call()

    assert [said in words(str(w.message)) for w in given] == [True] * times
    assert {w.filename for w in given} == {__file__}


# -- signatures of old -------------------------------------------------------------------------------------------------------

M, V, B = fb.arange(4.0).view(2, 2), fb.tensor([3.0, 5.0]), fb.arange(8.0).view(2, 2, 2)
OLDER = [
    (lambda: fb.add(V, 2, V), lambda: V + 2 * V),
    (lambda: V.clone().add_(2, V), lambda: V + 2 * V),
    (lambda: fb.add(V, 2, V, out=fb.empty(2)), lambda: V + 2 * V),
    (lambda: V.sub(3, V), lambda: V - 3 * V),
    (lambda: fb.addcmul(V, 3, V, V), lambda: V + 3 * V * V),
    (lambda: V.clone().addcdiv_(3, V, V), lambda: V + 3),
    (lambda: fb.addmm(2, M, 3, M, M), lambda: 2 * M + 3 * M @ M),
    (lambda: fb.addmm(2, M, M, M), lambda: 2 * M + M @ M),
    (lambda: M.addmm(2, 3, M, M), lambda: 2 * M + 3 * M @ M),
    (lambda: M.clone().addmm_(2, M, M), lambda: 2 * M + M @ M),
    (lambda: fb.addmv(2, V, 3, M, V), lambda: 2 * V + 3 * M @ V),
    (lambda: M.addr(2, 3, V, V), lambda: 2 * M + 3 * V[:, None] * V),
    (lambda: fb.baddbmm(2, B, 3, B, B), lambda: 2 * B + 3 * B @ B),
    (lambda: M.addbmm(2, 3, B, B), lambda: 2 * M + 3 * (B @ B).sum(0)),
]


@pytest.mark.parametrize(("older", "now"), OLDER)
def test_a_scalar_before_the_tensors_it_scales_is_taken_and_warned_about_once(older: Any, now: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("flambeau._warn._given", set())

    with pytest.warns(UserWarning, match="This overload of .* is deprecated"):
        made = older()

    assert made.tolist() == now().tolist()
    older()  # a second warning would be an error


def test_arguments_that_fit_no_signature_are_refused() -> None:
    for call in (lambda: fb.add(V, V, V), lambda: fb.addmm(M, M, M, M), lambda: V.addcmul(V, V, 3), lambda: V.add_(V, V)):
        with pytest.raises(TypeError, match="positional arguments"):
            call()


# Programs look for these at the beginning of a message.
BEGINNINGS = """
torch.ones(2, 3).expand(4, 3)
torch.ones(2, 3).expand(3)
torch.ones(2, 3).expand(-1, -1, -1, 3)
torch.linalg.inv(torch.zeros(2, 2, 2))
torch.linalg.cholesky(-torch.eye(2).expand(2, 2, 2))
torch.linalg.solve(torch.zeros(2, 2, 2), torch.ones(2, 2))
torch.diff(torch.ones(3), n=-1)
torch.diff(torch.tensor(1.0))
torch.ones(2).index_fill_(0, torch.tensor([5]), 1)
torch.nn.functional.embedding_bag(torch.tensor([0]), torch.ones(2, 2))
torch.nn.functional.embedding_bag(torch.tensor([[0]]), torch.ones(2, 2), torch.tensor([0]))
torch.nn.functional.embedding_bag(torch.tensor([0]), torch.ones(2, 2), torch.tensor([1]))
torch.nn.functional.embedding_bag(torch.tensor([5]), torch.ones(2, 2), torch.tensor([0]))
torch.ones(2).H
torch.ones(2).mT
torch.ones(2).adjoint()
torch.nonzero(torch.ones(2), out=torch.ones(2))
torch.all(torch.ones(2), out=torch.ones(2))
""".strip().splitlines()


@pytest.mark.parametrize("program", BEGINNINGS)
def test_messages_that_programs_look_for_begin_as_pytorchs(oracle, program):
    with pytest.raises(Exception) as theirs:  # noqa: PT011  # of any class: ours is asked for the same
        eval(program, {"torch": oracle})
    with pytest.raises(Exception) as ours:  # noqa: PT011
        eval(program, {"torch": fb})

    assert f"{ours.value}".startswith(f"{theirs.value}"[:45])
