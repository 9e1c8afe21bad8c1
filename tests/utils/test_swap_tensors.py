"""`swap_tensors`, and modules that swap or overwrite parameters when they are converted."""

from __future__ import annotations

import itertools

import pytest

import flambeau as fb
from comparing import described

PROGRAMS = {
    "data and attributes": "a, b = torch.ones(2), torch.zeros(3, dtype=torch.int64); a.note = 3; i = id(a);"
    "torch.utils.swap_tensors(a, b); (a, b, id(a) == i, hasattr(a, 'note'), b.note)",
    "classes": "p, t = torch.nn.Parameter(torch.ones(2)), torch.zeros(3); torch.utils.swap_tensors(p, t);"
    "(type(p).__name__, type(t).__name__, p, t)",
    "gradients": "a, b = torch.ones(2, requires_grad=True), torch.zeros(2); a.grad = torch.full((2,), 5.0);"
    "torch.utils.swap_tensors(a, b); (a.grad, b.grad, a, b)",
    "history": "x = torch.ones(2, requires_grad=True); y, z = x * 3, torch.zeros(2); torch.utils.swap_tensors(y, z);"
    "z.sum().backward(); (x.grad, y, z)",
    "hooks": "a, b = torch.ones(2, requires_grad=True), torch.zeros(2, requires_grad=True); h = a.register_hook(lambda g: g * 5);"
    "torch.utils.swap_tensors(a, b); a.sum().backward(); b.sum().backward(); (a.grad, b.grad)",
    "slots": "S = type('S', (torch.Tensor,), {'__slots__': ('z',)}); torch.utils.swap_tensors(S(torch.ones(1)), torch.zeros(1))",
}


@pytest.mark.oracle
@pytest.mark.parametrize("name", PROGRAMS)
def test_tensors_are_swapped_as_in_pytorch(name, oracle):
    from comparing import outcome

    ours, theirs = outcome(fb, PROGRAMS[name]), outcome(oracle, PROGRAMS[name])

    assert ours == theirs


def test_the_base_of_a_recorded_view_cannot_be_swapped():
    x = fb.ones(4, requires_grad=True) * 1
    part = x[:2]
    with pytest.raises(RuntimeError, match="t1 because it has views"):
        fb.utils.swap_tensors(x, fb.zeros(1))
    with pytest.raises(TypeError, match="t2 must be a Tensor, but got int"):
        fb.utils.swap_tensors(x, 3)

    assert part.tolist() == [1, 1]


def conversions(lib):
    """What is new and what the same object after conversions and loading."""
    found = []
    module = lib.nn.Linear(2, 2)
    old, kept = module.weight, [id(p) for p in module.parameters()]
    old.grad = lib.ones(2, 2)
    grad = old.grad
    module.double()
    found.append((module.weight is old, old.dtype, module.weight.grad.dtype, module.weight.grad is grad))
    module.to("meta")
    found.append(([id(p) for p in module.parameters()] == kept, module.weight.device.type, module.weight.grad.device.type))
    module, other = lib.nn.Linear(2, 2), lib.nn.Linear(2, 2)
    module.bias.requires_grad_(False)
    for assign in (False, True):
        old, place = module.weight, module.weight.data_ptr()
        module.load_state_dict(other.state_dict(), assign=assign)
        found.append((module.weight is old, module.weight.data_ptr() == place, module.weight.data_ptr() == other.weight.data_ptr(),
                      type(module.weight).__name__, module.bias.requires_grad, bool((module.weight == other.weight).all())))  # fmt: skip
    module = lib.nn.Linear(2, 2).double()
    module.load_state_dict(other.state_dict())
    found.append(module.weight.dtype)
    return found


@pytest.mark.oracle
@pytest.mark.parametrize(("overwrite", "swap"), [*itertools.product((False, True), repeat=2)])
def test_modules_convert_and_load_parameters_as_in_pytorch(overwrite, swap, oracle):
    results = []
    for lib in (fb, oracle):
        lib.__future__.set_overwrite_module_params_on_conversion(overwrite)
        lib.__future__.set_swap_module_params_on_conversion(swap)
        try:
            results.append(described(lib, conversions(lib)))
            assert lib.__future__.get_overwrite_module_params_on_conversion() is overwrite
            assert lib.__future__.get_swap_module_params_on_conversion() is swap
        finally:
            lib.__future__.set_overwrite_module_params_on_conversion(False)
            lib.__future__.set_swap_module_params_on_conversion(False)

    assert results[0] == results[1]


def test_a_parameter_that_cannot_be_swapped_is_named():
    module = fb.nn.Linear(2, 2)
    module.weight.requires_grad_(False)
    part = module.weight[0]
    fb.__future__.set_swap_module_params_on_conversion(True)
    try:
        with pytest.raises(RuntimeError, match=r"Couldn't swap Linear\.weight"):
            module.double()
    finally:
        fb.__future__.set_swap_module_params_on_conversion(False)

    assert part.dtype == module.weight.dtype == fb.float32
