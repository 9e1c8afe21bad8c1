"""Operations are counted as PyTorch counts them, by module and operator."""

from __future__ import annotations

import importlib

import pytest

import flambeau as fb
from flambeau._ops import ops
from flambeau.utils.flop_counter import FlopCounterMode, flop_registry, register_flop_formula


def network(lib):
    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = lib.nn.Sequential(lib.nn.Conv2d(3, 4, 3, stride=2), lib.nn.ReLU(), lib.nn.ConvTranspose2d(4, 2, 3))
            self.linear = lib.nn.Linear(98, 5)
            self.last = lib.nn.Linear(5, 2, bias=False)

        def forward(self, x):
            return self.last(self.linear(self.body(x).flatten(1)))

    return Net()


def counted(lib, program, **options):
    mode = importlib.import_module(f"{lib.__name__}.utils.flop_counter").FlopCounterMode(display=False, **options)
    with mode:
        program()
    by_name = {name: {str(op): n for op, n in counts.items()} for name, counts in mode.get_flop_counts().items()}
    return mode.get_total_flops(), by_name, mode.get_table(), mode.get_table(1), mode.get_table(9)


@pytest.mark.parametrize("with_input", [False, True])
def test_modules_forward_and_backward_are_pytorchs(oracle, with_input):
    found = []
    for lib in (fb, oracle):
        model, x = network(lib), lib.ones(2, 3, 11, 11, requires_grad=with_input)
        found.append(counted(lib, lambda model=model, x=x: model(x).sum().backward()))
    assert found[0] == found[1]


@pytest.mark.parametrize("rows", [1, 49, 50, 499, 500, 4999, 5000, 12345, 500_000])
def test_tables_are_pytorchs(oracle, rows):
    tables = [counted(lib, lambda lib=lib: lib.ones(rows, 1) @ lib.ones(1, 1))[2] for lib in (fb, oracle)]
    assert tables[0] == tables[1]


def test_products_of_all_kinds_are_pytorchs(oracle):
    programs = {
        "mm": lambda T: T.ones(2, 3) @ T.ones(3, 4), "vectors": lambda T: T.ones(2, 3) @ T.ones(3),
        "batches": lambda T: T.ones(2, 5, 2, 3) @ T.ones(2, 5, 3, 4), "folded": lambda T: T.ones(5, 2, 3) @ T.ones(3, 4),
        "grouped": lambda T: T.nn.Conv1d(3, 6, 3, groups=3, dilation=2)(T.ones(2, 3, 10)),
        "linear": lambda T: T.nn.functional.linear(T.ones(2, 5, 3), T.ones(4, 3), T.ones(4)),
    }  # fmt: skip
    for name, program in programs.items():
        found = [counted(lib, lambda lib=lib, program=program: program(lib))[:2] for lib in (fb, oracle)]
        assert found[0] == found[1], name


def test_attention_counts_both_products():
    q = fb.ones(1, 2, 4, 8)
    total = counted(fb, lambda: fb.nn.functional.scaled_dot_product_attention(q, q, q))[0]
    assert total == 2 * (2 * 2 * 4 * 4 * 8)


def test_formulas_may_be_given():
    with FlopCounterMode(display=False, custom_mapping={ops.aten.mm: lambda a, b, out_shape=None: a[0]}) as mode:
        fb.ones(7, 3) @ fb.ones(3, 4)
    assert mode.get_total_flops() == 7
    with pytest.raises(RuntimeError, match="duplicate registrations"):
        register_flop_formula(ops.aten.mm)(lambda *args, **kwargs: 0)
    with pytest.raises(ValueError, match="OpOverloadPacket"):
        register_flop_formula(fb.mm)(lambda *args, **kwargs: 0)
    assert ops.aten.mm in flop_registry


def test_the_table_is_printed_at_the_end(capsys):
    with FlopCounterMode():
        fb.nn.Linear(3, 4)(fb.ones(2, 3))
    assert "aten.addmm" in capsys.readouterr().out
