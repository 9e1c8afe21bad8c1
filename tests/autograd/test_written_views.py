"""Writes through views: gradients find the place where the view lay, whatever has become of shapes and strides since."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fb
from comparing import disagreements

START = "a = (torch.arange(12, dtype=torch.float64) + 1).reshape(3, 4).requires_grad_(); b = a * 1; "


def agree(oracle: Any, programs: str) -> None:
    lines = [START + line.strip() for line in programs.splitlines() if line.strip()]
    assert not disagreements(oracle, "\n".join(lines))


def test_a_write_through_as_strided_is_found_in_a_gradient_that_arrives_transposed(oracle: Any) -> None:
    agree(oracle, """
        b.as_strided((2,), (1,)).zero_(); (b.t().contiguous() ** 2).sum().backward(); a.grad.tolist()
        b.as_strided((2, 2), (1, 5), 2).mul_(3); (b.t().contiguous() ** 2).sum().backward(); a.grad.tolist()
        v = b.t()[1:].as_strided((2,), (3,)); v.neg_(); (b.t().contiguous() ** 3).sum().backward(); a.grad.tolist()
    """)


@pytest.mark.parametrize("view", ["view(-1)[:5]", "flatten()[3:]", "unflatten(1, (2, 2))[:, 1]", "reshape(2, 6)[1]", "view(2, 2, 3)[0].t()",
                                  "ravel()[::5]", "T.T.view(12)[1:3]", "view(3, 2, 2).movedim(0, 2)[0]", "unfold(1, 2, 2)[0]",
                                  "diagonal(1)"])  # fmt: skip
def test_a_write_through_a_view_is_found_in_a_gradient_that_arrives_transposed(oracle: Any, view: str) -> None:
    agree(oracle, f"""
        b.{view}.zero_(); (b.t().contiguous() ** 2).sum().backward(); a.grad.tolist()
        v = b.{view}; v.mul_(-3); (b.t().contiguous() ** 2).sum().backward(); a.grad.tolist(), v.detach()
        v = b.{view}; v.neg_(); g = torch.autograd.grad(b.T.clone().pow(2).sum(), a, create_graph=True)[0]; (g*g).sum().backward(); a.grad
    """)


@pytest.mark.parametrize("change", ["t_()", "transpose_(0, 1)", "swapaxes_(0, 1)", "swapdims_(1, 0)", "unsqueeze_(1)", "squeeze_()",
                                    "as_strided_((2, 2), (1, 4), 1)", "unsqueeze_(0).squeeze_(0)"])  # fmt: skip
def test_a_change_of_geometry_in_place_keeps_the_history_of_views_and_bases(oracle: Any, change: str) -> None:
    agree(oracle, f"""
        t = b[:]; t.{change}; t[0].neg_(); (b**3).sum().backward(); a.grad.tolist(), t.shape, t.stride()
        t = b[:]; t.{change}; t.mul_(-3); ((b**3).sum() + (t**2).sum()).backward(); a.grad.tolist()
        t = b[1:]; t.{change}; (t * torch.arange(t.numel()).reshape(t.shape)).sum().backward(); a.grad.tolist()
        t = b[:, 1:]; b.{change}; t[0].neg_(); ((b**3).sum() + (t**2).sum()).backward(); a.grad.tolist(), b.shape, b._version, t._version
        t = b[:, 1:]; b.{change}; b[0].mul_(3); ((b**3).sum() + (t**2).sum()).backward(); a.grad.tolist()
        t = b.t(); t.{change}; u = b[0]; u.mul_(2); t.mul_(-3); ((b**3).sum() + (t**2).sum() + u.sum()).backward(); a.grad.tolist()
    """)


def test_pieces_of_complex_numbers_are_written_through(oracle: Any) -> None:
    start = "c = torch.complex(b, -b); "
    agree(oracle, "\n".join(start + line for line in (
        "c.real.mul_(2); c.imag[0].mul_(-3); torch.view_as_real(c.t().clone()).pow(3).sum().backward(); a.grad.tolist()",
        "r = torch.view_as_real(c); r[..., 1].zero_(); (r**2).sum().backward(); a.grad.tolist()",
        "v = c.t().imag; c.mul_(1j); (v**2).sum().backward(); a.grad.tolist()",
        "z = torch.view_as_complex(b.view(3, 2, 2)); z[1].mul_(1 - 2j); (b.t().contiguous()**2).sum().backward(); a.grad.tolist()",
    )))  # fmt: skip


def test_hooks_of_a_base_see_what_comes_through_views_that_were_made_before_a_change_of_geometry() -> None:
    seen = []
    a = fb.ones(2, 3, requires_grad=True)
    b = a * 1
    view = b[0]
    b.t_()
    b.register_hook(lambda grad: seen.append(grad.tolist()))
    view.sum().backward()

    assert seen == [[[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]]


def test_reading_a_view_again_after_a_write_can_go_backward_twice() -> None:
    a = fb.ones(3, requires_grad=True)
    b = a * 1
    view = b[:2]
    b.add_(1)
    total = view.sum()
    total.backward(retain_graph=True)
    total.backward()

    assert a.grad.tolist() == [2.0, 2.0, 0.0]


def test_a_view_that_is_taken_without_recording_changes_geometry_without_losing_its_base() -> None:
    a = fb.ones(4, requires_grad=True)
    with fb.no_grad():
        view = a.as_strided((2,), (2,))
        view.mul_(3)

    assert a.tolist() == [3.0, 1.0, 3.0, 1.0]


# -- retain_grad -----------------------------------------------------------------------------------------------------------


def test_retained_gradients_are_those_of_the_values_after_the_last_write(oracle: Any) -> None:
    agree(oracle, """
        b.retain_grad(); b.mul_(2); (b**2).sum().backward(); b.grad.tolist()
        b.retain_grad(); b[:1].mul_(2); (b**2).sum().backward(); b.grad.tolist()
        v = b[:2]; v.retain_grad(); v.mul_(2); (v**2).sum().backward(); v.grad.tolist()
        v = b[:2]; b.retain_grad(); v.retain_grad(); v.mul_(2); ((v**2).sum() + b.sum()).backward(); v.grad.tolist(), b.grad.tolist()
        b.retain_grad(); b.t_(); (b**2).sum().backward(); b.grad.tolist()
        v = b[:2]; v.retain_grad(); v.t_(); (v**2).sum().backward(); v.grad.tolist()
    """)


def test_a_retained_view_follows_its_base_when_it_is_read_again(oracle: Any) -> None:
    agree(oracle, """
        v = b[:2]; v.retain_grad(); b.mul_(2); (v**2).sum().backward(); v.grad.tolist()
        v = b[:2]; v.retain_grad(); u = v * 5; b.mul_(2); ((v * 3).sum() + u.sum()).backward(); v.grad.tolist()
        v = b[:2]; v.retain_grad(); u = v * 5; b.mul_(2); (b.sum() + u.sum()).backward(); v.grad.tolist()
        v = b[:2]; v.retain_grad(); u = v * 5; b.mul_(2); w = v * 7; (b.sum() + u.sum()).backward(); v.grad is None
        v = b[:2]; v.retain_grad(); u = v * 5; b.mul_(2); v.grad_fn; (b.sum() + u.sum()).backward(); v.grad is None
        v = b[:2]; v.retain_grad(); u = v * 5; v.mul_(2); (b.sum() + u.sum()).backward(); v.grad is None
        v = b[:2]; v.retain_grad(); u = v * 5; b.mul_(2); b.add_(1); b.mul_(v.sum()); (b.sum() + u.sum()).backward(); v.grad.tolist()
    """)


def test_retained_gradients_of_results_of_one_operation_are_counted_once(oracle: Any) -> None:
    agree(oracle, """
        v, m = torch.var_mean(b, 1); v.retain_grad(); m.retain_grad(); (v * m).sum().backward(); v.grad.tolist(), m.grad.tolist()
        v, m = torch.var_mean(b, 1); v.retain_grad(); v.mul_(2); (v * m).sum().backward(); v.grad.tolist()
        v, i = b.max(1); v.retain_grad(); (v + v * v).sum().backward(); v.grad.tolist()
    """)


def test_hooks_registered_before_a_write_see_the_gradient_of_the_values_before_it(oracle: Any) -> None:
    agree(oracle, """
        o = []; h = b.register_hook(lambda g: o.append(g.tolist())); b.mul_(2); (b**2).sum().backward(); o
        o = []; v = b[:2]; h = v.register_hook(lambda g: o.append(g.tolist())); u = v * 5; b.mul_(2); (v * 3 + u).sum().backward(); o
        o = []; v = b[:2]; h = v.register_hook(lambda g: o.append(g.tolist())); b.mul_(2); (v * 3).sum().backward(); o
    """)


def test_several_views_made_without_recording_take_part_in_one_backward(oracle: Any) -> None:
    agree(oracle, """
        o = torch.no_grad(); o.__enter__(); t = a.t(); u = a[0]; o.__exit__(0, 0, 0); (t.sum() + u.sum() + a.sum()).backward(); a.grad
        o = torch.no_grad(); o.__enter__(); t = b.t(); o.__exit__(0, 0, 0); b.detach_(); t.requires_grad
    """)


def test_pieces_of_tensor_split_are_written_with_history(oracle: Any) -> None:
    agree(oracle, """
        t = b.tensor_split(2, 1)[1]; t.mul_(3); (b**2).sum().backward(); a.grad
        t = b.hsplit(2)[0]; t.neg_(); (b**3).sum().backward(); a.grad
        t = b.split(2)[0]; t.neg_()
    """)


def test_set_takes_the_history_with_it(oracle: Any) -> None:
    agree(oracle, """
        b.set_(torch.ones(3, dtype=torch.float64)); b.requires_grad, b.is_leaf, b._version
        b.set_(torch.ones(3, dtype=torch.float64)); b.sum().backward()
        c = torch.ones(2, dtype=torch.float64); c.set_(b); c.requires_grad, c._version, b._version
        a.set_(torch.ones(3, dtype=torch.float64))
        a[0].set_(torch.ones(3, dtype=torch.float64))
        v = b[0]; v.set_(torch.ones(3, dtype=torch.float64)); b.sum().backward()
        c = torch.ones(3); c.set_(c.untyped_storage(), 1, (2,), (1,)); c, c._version, c.storage_offset()
        o = torch.no_grad(); o.__enter__(); r = a.set_(torch.ones(2, dtype=torch.float64)); o.__exit__(0, 0, 0); a, a._version
    """)


def test_assigned_data_leaves_the_count_of_writes_alone(oracle: Any) -> None:
    agree(oracle, """
        c = b.detach().clone(); c.mul_(2); c.data = torch.ones(2, dtype=torch.float64); c._version
        c = b.detach().clone(); d = torch.ones(2, dtype=torch.float64); c.data = d; c.mul_(3); d, c._version, d._version
    """)


@pytest.mark.parametrize("write", ["lerp_", "addcdiv_", "mul_", "clamp_"])
def test_a_write_to_a_view_goes_round_hooks_that_were_registered_on_the_view(oracle: Any, write: str) -> None:
    seen = []
    for lib in (oracle, fb):
        a = lib.arange(1.0, 5.0, requires_grad=True)
        base, log = a * 0.5, []
        view = base[1:3]
        view.register_hook(lambda grad, log=log: log.append(grad.tolist()))
        other = a[:2]
        {"lerp_": lambda v, o: v.lerp_(o, 0.5), "addcdiv_": lambda v, o: v.addcdiv_(o, o), "mul_": lambda v, o: v.mul_(o),
         "clamp_": lambda v, o: v.clamp_(0.1, 3.0)}[write](view, other)  # fmt: skip
        (base * 3).sum().backward()
        seen.append((log, [round(x, 5) for x in a.grad.tolist()]))

    assert seen[1] == seen[0]


@pytest.mark.parametrize("write", ["div_", "add_", "lerp_"])
def test_a_recorded_write_refuses_a_part_of_itself_as_an_unrecorded_one(oracle: Any, write: str) -> None:
    for lib in (oracle, fb):
        for requires_grad in (False, True):
            x = lib.ones(4, requires_grad=requires_grad) * 2
            with pytest.raises(RuntimeError, match="single memory"):
                getattr(x, write)(x[2], *([0.5] if write == "lerp_" else []))
            assert x.tolist() == [2.0] * 4


def test_a_view_as_complex_numbers_begins_with_a_whole_one(oracle: Any) -> None:
    for lib in (oracle, fb):
        with pytest.raises(RuntimeError, match="storage_offset divisible by 2"):
            lib.view_as_complex(lib.zeros(3, 4)[1, 1:3])


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_a_comparison_in_place_with_what_requires_grad_has_a_history_and_gradients_of_zero(name: str, oracle: Any) -> None:
    start = "x = torch.ones(3); y = torch.ones(3).requires_grad_(); z = torch.ones(3).requires_grad_(); "
    programs = f"""
    x.{name}_(y); x.requires_grad, x.grad_fn.name(), type(x.grad_fn).__name__, len(x.grad_fn.next_functions)
    x.{name}_(y); x.sum().backward(); y.grad.tolist()
    x.{name}_(torch.ones(1).requires_grad_()); x.requires_grad
    w = z * 1; w.{name}_(2.0); w.sum().backward(); w.grad_fn.name(), len(w.grad_fn.next_functions), z.grad.tolist()
    w = z * 1; w.{name}_(y); w.sum().backward(); w.grad_fn.name(), y.grad.tolist(), z.grad.tolist()
    v = x[:2]; v.{name}_(y[:2]); x.sum().backward(); x.grad_fn.name(), y.grad.tolist()
    i = torch.ones(3, dtype=torch.int64); i.{name}_(y); i.requires_grad, i.tolist()
    exec("with torch.no_grad(): x.{name}_(y)"); x.requires_grad
    w = x.{name}(y); w.requires_grad
    z.{name}_(1.0)
    torch.{name}(x, y, out=x)
    """
    lines = [start + line.strip() for line in programs.splitlines() if line.strip()]

    assert not disagreements(oracle, "\n".join(lines))
