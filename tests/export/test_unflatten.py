"""Exported programs as modules: their hierarchy, state, calls, and PyTorch's graphs."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest

import flambeau as fb
from flambeau.export import export, load, save, unflatten
from flambeau.export.unflatten import FlatArgsAdapter, InterpreterModuleDispatcher


def models(lib: Any) -> dict[str, Any]:
    """Modules over the library `lib`, with inputs."""

    class Half(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = lib.nn.Linear(3, 3)
            self.register_buffer("scale", lib.ones(3))

        def forward(self, x, *, plus=None):
            made = self.lin(x) * self.scale
            return (made if plus is None else made + plus), x + 1

    class Twice(lib.nn.Module):
        """Calls one part twice with other uses of its results, another twice alike, and has a parameter of its own."""

        def __init__(self):
            super().__init__()
            self.a, self.b = Half(), lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.ReLU())
            self.p = lib.nn.Parameter(lib.ones(3))

        def forward(self, x):
            y, z = self.a(x)
            y = y + self.p
            w, _ = self.a(y)
            return self.b(w) + self.b(z).sum()

    class Listed(lib.nn.Module):
        """Parts in a list, which is not called; keywords, and a result that is a dict."""

        def __init__(self):
            super().__init__()
            self.parts = lib.nn.ModuleList([Half(), Half()])

        def forward(self, x, y):
            for part in self.parts:
                x, _ = part(x, plus=y)
            return {"x": x, "y": [y]}

    class Borrowed(lib.nn.Module):
        """A part reads what another one owns."""

        def __init__(self):
            super().__init__()
            self.table, self.out = lib.nn.Linear(3, 3), lib.nn.Linear(3, 3, bias=False)
            self.out.weight = self.table.weight

        def forward(self, x):
            return self.out(self.table(x))

    return {"twice": (Twice(), 1), "listed": (Listed(), 2), "borrowed": (Borrowed(), 1)}


def numbers(found: Any) -> Any:
    return [n for x in fb.utils._pytree.tree_leaves(found) for n in x.flatten().tolist()]


@pytest.mark.parametrize("decomposed", [False, True], ids=["exported", "decomposed"])
@pytest.mark.parametrize("name", ["twice", "listed", "borrowed"])
def test_it_gives_what_the_module_gives_from_parts_of_its_own(name, decomposed):
    net, count = models(fb)[name]
    inputs = tuple(fb.randn(2, 3) for _ in range(count))
    program = export(net, inputs)
    made = unflatten(program.run_decompositions() if decomposed else program)

    assert numbers(made(*inputs)) == pytest.approx(numbers(net(*inputs)))
    assert type(made(*inputs)) is type(net(*inputs))
    with fb.no_grad():
        next(net.parameters()).add_(1)
    assert not fb.equal(next(made.parameters()), next(net.parameters()))


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_names_of_parts_and_state_are_pytorchs(oracle):
    net = models(fb)["twice"][0]
    made = unflatten(export(net, (fb.ones(2, 3),)))
    theirs = oracle.export.unflatten(oracle.export.export(models(oracle)["twice"][0], (oracle.ones(2, 3),)))

    assert sorted(made.state_dict()) == sorted(theirs.state_dict())
    assert [str(n.target) for n in made.graph.nodes if n.op == "call_module"] == [
        str(n.target) for n in theirs.graph.nodes if n.op == "call_module"
    ]
    assert repr(made) == repr(theirs)


@pytest.mark.parametrize("from_file", [False, True], ids=["exported", "loaded"])
def test_with_a_kept_signature_another_module_takes_the_place_of_a_part(from_file):
    net, _ = models(fb)["twice"]
    x = fb.randn(2, 3)
    program = export(net, (x,), preserve_module_call_signature=("a",))
    if from_file:
        file = io.BytesIO()
        save(program, file)
        file.seek(0)
        program = load(file)
    made = unflatten(program)

    assert isinstance(made.a, InterpreterModuleDispatcher)
    assert fb.equal(made(x), net(x))
    assert fb.equal(made(x), net(x))
    other = copy.deepcopy(net.a)
    fb.nn.init.zeros_(other.lin.weight)
    made.a = net.a = other
    assert fb.equal(made(x), net(x))


def test_kept_signatures_have_keywords_and_structures():
    net, _ = models(fb)["listed"]
    inputs = fb.randn(2, 3), fb.randn(2, 3)
    made = unflatten(export(net, inputs, preserve_module_call_signature=("parts.1",)))

    assert numbers(made(*inputs)) == numbers(net(*inputs))
    first, second = made.get_submodule("parts.1")(inputs[0], plus=inputs[1])
    assert numbers([first, second]) == numbers(net.parts[1](inputs[0], plus=inputs[1]))


@pytest.mark.parametrize("decomposed", [False, True], ids=["exported", "decomposed"])
def test_running_statistics_are_written(decomposed):
    net = fb.nn.Sequential(fb.nn.BatchNorm1d(3), fb.nn.Linear(3, 2))
    x = fb.randn(4, 3)
    program = export(net, (x,))
    made = unflatten(program.run_decompositions() if decomposed else program)
    made(x)
    net(x)

    assert made.state_dict()["0.running_mean"].tolist() == pytest.approx(net[0].running_mean.tolist())


def test_inputs_of_another_structure_are_adapted_or_refused():
    net, _ = models(fb)["listed"]
    x, y = fb.randn(2, 3), fb.randn(2, 3)

    class Swapped(FlatArgsAdapter):
        def adapt(self, target_spec, input_spec, input_args, metadata=None, obj=None):
            return list(reversed(input_args))

    made = unflatten(export(net, (x, y)), Swapped())
    assert numbers(made(y, y=x)) == numbers(net(x, y))
    with pytest.raises(ValueError, match="input tree spec"):
        unflatten(export(net, (x, y)))(x)
    with pytest.raises(AssertionError, match="Guard failed"):
        made(x, fb.ones(5, 3))


def test_mistakes_say_what_was_expected():
    net = fb.nn.Linear(2, 2)
    with pytest.raises(TypeError, match="ExportedProgram, not Linear"):
        unflatten(net)
    with pytest.raises(AttributeError, match="'missing', which is no submodule"):
        export(net, (fb.ones(1, 2),), preserve_module_call_signature=("missing",))
