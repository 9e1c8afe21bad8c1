"""Decompositions as operators, which give what PyTorch's kernels give beside the result, and the gradients of distances."""

from __future__ import annotations

from .._results import return_type
from .._spec import composite, gradients_of
from .distance import cdist, pdist
from .lu import lu_factor_ex
from .matrix import det, slogdet
from .solve import solve_ex
from .spectral import Eigh, Svd, eigh, eigvals, eigvalsh, svd, svdvals

__all__: list[str] = []

_Det = return_type("_linalg_det", ("result", "LU", "pivots"))
_SlogDet = return_type("_linalg_slogdet", ("sign", "logabsdet", "LU", "pivots"))
_Solution = return_type("_linalg_solve_ex", ("result", "LU", "pivots", "info"))


@composite(surface=0, reads_parts=True, samples="x(4, 3); x(3, 4), False, False", costly=True)
def _linalg_svd(A, full_matrices=False, compute_uv=True, *, driver=None):
    """``(U, S, Vh)`` of `linalg.svd`; U and Vh have no elements unless `compute_uv`."""
    if compute_uv:
        return svd(A, full_matrices, driver=driver)
    return Svd((A.new_empty(0), svdvals(A, driver=driver), A.new_empty(0)))


@composite(surface=0, reads_parts=True, samples="sym(3), 'L', False", costly=True)
def _linalg_eigh(A, UPLO="L", compute_v=True):
    """``(eigenvalues, eigenvectors)`` of `linalg.eigh`; the vectors have no elements unless `compute_v`."""
    return eigh(A, UPLO) if compute_v else Eigh((eigvalsh(A, UPLO), A.new_empty(0)))


@composite(surface=0, reads_parts=True, samples="sq(3)", costly=True)
def _linalg_eigvals(self):
    """`linalg.eigvals`."""
    return eigvals(self)


@composite(surface=0, samples="sq(3)", costly=True)
def _linalg_det(A):
    """``(result, LU, pivots)``: `linalg.det`, and what `linalg.lu_factor` gives, which has no gradient here."""
    return _Det((det(A), *lu_factor_ex(A.detach())[:2]))


@composite(surface=0, samples="sq(3)", costly=True)
def _linalg_slogdet(A):
    """``(sign, logabsdet, LU, pivots)``: `linalg.slogdet`, and what `linalg.lu_factor` gives, which has no gradient here."""
    return _SlogDet((*slogdet(A), *lu_factor_ex(A.detach())[:2]))


@composite(surface=0, reads_parts=True, samples="sq(3), x(3, 2); sq(3), x(3)", costly=True)
def _linalg_solve_ex(A, B, *, left=True, check_errors=False):
    """``(result, LU, pivots, info)``: `linalg.solve_ex`, and what `linalg.lu_factor` gives, which has no gradient here."""
    result, info = solve_ex(A, B, left=left, check_errors=check_errors)
    return _Solution((result, *lu_factor_ex(A.detach())[:2], info))


@composite(surface=0, reads_parts=True, samples="x(3, 2), x(3, 4), x(2, 4), 2.0, fb.ones(3, 2, dtype=real)")
def _cdist_backward(grad, x1, x2, p, cdist):
    """The gradient of `cdist` by `x1`, by its rule: the distances `cdist` are found again."""
    return gradients_of(lambda x: distances(x, x2, p), grad, (x1,), (True,))[0]


@composite(surface=0, reads_parts=True, samples="x(6), x(4, 3), 2.0, fb.ones(6, dtype=real)")
def _pdist_backward(grad, self, p, pdist):
    """The gradient of `nn.functional.pdist` by its input `self`, by its rule: the distances `pdist` are found again."""
    return gradients_of(lambda x: distances_within(x, p), grad, (self,), (True,))[0]


distances, distances_within = cdist, pdist            # whose names are parameters above
