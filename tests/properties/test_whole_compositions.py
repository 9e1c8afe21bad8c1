"""What dispatch modes see as one operator where a history is recorded: the backward pass reads its arguments and results alone."""

from __future__ import annotations

import os
import warnings

import pytest

import flambeau as fb

from ..test_capture import Recording, place
from .cases import Case, cases, tensors_in

COMPOSITIONS = [case for case in cases() if case.op.kind == "composite" and not case.op.name.endswith("_")]
IN_PARTS = {case.op.qualified: case.op for case in COMPOSITIONS if case.op.reads_parts is True}


def run_again(case: Case) -> tuple[list[str], int, bool] | None:
    """The operators seen forward; how many tensors were read that no operator made; whether a run of what was seen has the same bits.

    None where no gradient is to be had.
    """
    sample = case.sample()
    tensors = [t.detach().requires_grad_() for t in sample.tensors]
    sample = sample.with_tensors(tensors)
    state = {place(x): x.detach().clone() for x in tensors_in([*sample.args, *sample.kwargs.values()])}
    with warnings.catch_warnings(), Recording() as recording:
        warnings.simplefilter("ignore")               # deprecated names
        made = [x for x in tensors_in(case.call(sample)) if x.requires_grad]
    if not made or not tensors:
        return None
    seen = [str(call[0]) for call in recording.calls]
    gradients = [fb.randn_like(x.detach()) for x in made]
    state |= {place(x): x.clone() for x in gradients}
    try:
        with recording:
            found = fb.autograd.grad(made, tensors, gradients, allow_unused=True)
    except NotImplementedError as error:
        if "derivative" not in str(error):
            raise
        return None
    fb.manual_seed(0)                                 # as `call` does
    unknown = recording.replay(state)
    return seen, unknown, all(fb.equal(state[place(x)].nan_to_num(), x.nan_to_num()) for x in found if x is not None)


@pytest.mark.parametrize("case", COMPOSITIONS, ids=lambda case: case.name)
def test_the_backward_pass_of_what_is_seen_whole_reads_arguments_and_results_alone(case: Case) -> None:
    # `eig` has gradients of some functions of its result alone, and `fill_diagonal_` stores in a leaf.
    if case.op.reads_parts is True or case.op.qualified in ("linalg.eig", "Tensor.fill_diagonal"):
        pytest.skip("seen in parts, or without a gradient here")
    found = run_again(case)
    if found is None or len(found[0]) != 1:
        pytest.skip("taken apart, or without a derivative")
    assert found[1:] == (0, True), f"{found[0][0]}: declare reads_parts=True"


@pytest.mark.skipif(os.environ.get("FLAMBEAU_BACKEND") == "numpy", reason="what kernels compute at once is made of parts here")
@pytest.mark.parametrize("name", IN_PARTS)
def test_what_is_seen_in_parts_could_not_be_seen_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IN_PARTS[name], "reads_parts", False)
    found = [run_again(case) for case in COMPOSITIONS if case.op.qualified == name]
    assert any(x is not None and x[1:] != (0, True) for x in found), "its rules read arguments and results alone"
