"""Conformance with PyTorch's own databases of operators, modules and optimizers, which are installed with PyTorch.

    python tests/conformance/against_torch.py ops [--only REGEX] [--all]       # 3 samples of each dtype, or all of them
    python tests/conformance/against_torch.py modules
    python tests/conformance/against_torch.py optim
    python tests/conformance/against_torch.py recorded                         # samples of operators, run from recordings by make_fx
    python tests/conformance/against_torch.py all --jobs 2 --json FILE

Every sample is run by both, and results, gradients, gradients of gradients and forward derivatives are compared in shape, dtype and
value. What PyTorch itself refuses is passed over. Prints each subject with a failure, and a last line for each database: how many
subjects pass wholly, and how many checks. A name that Flambeau lacks fails, as one check. The exit status is 0 whatever is found:
`ratchet.py` judges.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "framework"), str(ROOT / "kernels"), str(Path(__file__).parent)]

import torch  # noqa: E402
from crossing import Absent, counterpart, difference, ours, seed, tensors  # noqa: E402

import flambeau as fb  # noqa: E402

DTYPES = ("float32", "float64", "complex64", "complex128", "bfloat16", "int64", "bool", "uint8")
DERIVED = ("float64", "complex128")
SAMPLES = 3

Check = tuple[str, str]  # what was checked, and what is wrong: empty if nothing is


def refused(error: Exception) -> str:
    """An error of ours in one line."""
    return f"{type(error).__name__}: {error}".partition("\n")[0][:160]


def attempt(run: Callable[[], Any], theirs: Any, values: bool = True, factor: float = 1.0) -> str:
    """What differs between what our `run` gives and PyTorch's result `theirs`; the error if there is one."""
    try:
        return difference(run(), theirs, values, factor)
    except Exception as error:  # any error where PyTorch has a result is the finding
        return refused(error)


# -- operators --------------------------------------------------------------------------------------------------------------


def ops() -> dict[str, Any]:
    """Names of the database of operators -> entries."""
    from torch.testing._internal.common_methods_invocations import op_db

    found = {}
    for entry in op_db:
        name = f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else entry.name
        if not name.startswith("_refs") and type(entry.op).__name__ != "_JittedFunction":
            found[name] = entry
    return found


def check_op(entry: Any, limit: int | None) -> Iterator[Check]:
    """The checks of one operator."""
    try:
        function = counterpart(entry.op)
    except Absent as error:
        yield "name", str(error)
        return
    for name in DTYPES:
        dtype = getattr(torch, name)
        if dtype not in entry.dtypes:
            continue
        derived = name in DERIVED and entry.supports_autograd
        try:
            seed()
            samples = list(entry.sample_inputs("cpu", dtype, requires_grad=derived))
        except Exception:  # PyTorch cannot make its own samples here
            continue
        for i, sample in enumerate(samples[:limit]):
            for what, wrong in check_sample(entry, function, sample, derived):
                yield f"{name}/{what}/{i}", wrong


def check_recorded(entry: Any, limit: int | None) -> Iterator[Check]:
    """Whether samples that Flambeau runs give the same, to the bit, from their recordings by `make_fx`."""
    from flambeau.fx.experimental.proxy_tensor import make_fx
    from flambeau.utils import _pytree as pytree

    try:
        function = counterpart(entry.op)
    except Absent:                                    # which is a failure of the operators
        return
    # Some entries set the seed themselves, which is no part of a recording.
    if torch.float32 not in entry.dtypes or "wrapper_set_seed" in getattr(getattr(entry.op, "__code__", None), "co_names", ()):
        return
    seed()
    for i, sample in enumerate(list(entry.sample_inputs("cpu", torch.float32))[:limit]):
        given = Given(sample)
        flat, spec = pytree.tree_flatten(((given.input, *given.args), given.kwargs))
        places = [at for at, x in enumerate(flat) if isinstance(x, fb.Tensor)]

        def program(*now: Any, flat: Any = flat, spec: Any = spec, places: Any = places) -> Any:
            whole = [*flat]
            for at, x in zip(places, now, strict=True):
                whole[at] = x
            args, kwargs = pytree.tree_unflatten(whole, spec)
            return function(*args, **kwargs)

        def drawn(run: Any, flat: Any = flat, places: Any = places) -> Any:
            fb.manual_seed(0)
            return run(*[flat[at].clone() for at in places])

        try:
            expected = drawn(program)
        except Exception:  # a failure of the operators
            continue
        try:
            found = drawn(make_fx(program)(*[flat[at].clone() for at in places]))
        except Exception as error:  # what it is, is the finding
            yield f"recorded/{i}", refused(error)
            continue
        # Recordings give sizes as tuples, as PyTorch's do.
        expected = pytree.tree_map(lambda x: tuple(x) if isinstance(x, fb.Size) else x, expected)
        a, b = pytree.tree_leaves(found), pytree.tree_leaves(expected)
        if entry.name.removeprefix("new_").startswith("empty"):  # whose elements are what was in that memory
            a, b = ([(x.shape, x.dtype, x.stride()) for x in leaves] for leaves in (a, b))
        same = len(a) == len(b) and all(_same_bits(x, y) for x, y in zip(a, b, strict=True))
        yield f"recorded/{i}", "" if same else "other results than without a recording"


def _same_bits(x: Any, y: Any) -> bool:
    if not isinstance(x, fb.Tensor):
        return type(x) is type(y) and (x == y or x != x)
    if x.layout is not fb.strided:
        return x.layout is y.layout and _same_bits(x.to_dense(), y.to_dense())
    if x.shape != y.shape or x.dtype is not y.dtype:
        return False
    a, b = (t.detach().contiguous().reshape(-1).view(fb.uint8).numpy() for t in (x, y))
    return a.tobytes() == b.tobytes()


# Their indices of equal values, and their vectors, may be others; what the samples make of a result can be compared.
BY_VALUES = {"sort", "argsort", "topk", "kthvalue", "msort", "mode", "median", "nanmedian"}
BY_TRANSFORM = {"linalg.eig", "linalg.eigh", "linalg.svd", "svd", "svd_lowrank", "pca_lowrank"}


def _call(function: Any, sample: Any) -> Any:
    return function(sample.input, *sample.args, **sample.kwargs)


def _told(entry: Any, sample: Any, result: Any, given: Any) -> Any:
    """What is compared of a result of `entry`."""
    if entry.name in BY_TRANSFORM:
        process = sample.output_process_fn_grad
        return (process if isinstance(tensors(result)[0], torch.Tensor) else counterpart(process))(result)
    if entry.name == "argsort" and result.ndim:
        dim = given.args[0] if given.args else given.kwargs.get("dim", -1)
        return given.input.gather(dim, result)
    if entry.name in BY_VALUES and isinstance(result, tuple):
        return result[0]
    return result


class Given:
    """Our arguments of a sample."""

    def __init__(self, sample: Any) -> None:
        self.input, self.args, self.kwargs = ours(sample.input), ours(sample.args), ours(sample.kwargs)


def check_sample(entry: Any, function: Any, sample: Any, derived: bool) -> Iterator[Check]:
    """The checks of one sample: the function, its forms and its derivatives."""
    given = Given(sample)
    with torch.no_grad():
        try:
            seed()
            copy = Copied(sample)
            plain = _call(entry.op, copy)
            theirs = _told(entry, sample, plain, copy)
            seed(1)
            drawn = difference_of_theirs(_call(entry.op, Copied(sample)), plain)
        except Exception:  # what PyTorch refuses is no check
            return
    drawn = drawn or "wrapper_set_seed" in getattr(getattr(entry.op, "__code__", None), "co_names", ())
    values = not drawn and "empty" not in entry.name and entry.name not in ("resize_", "resize_as_")

    def with_no_grad(f: Any) -> Any:
        seed()
        with fb.no_grad():
            return f()

    def called(f: Any) -> Any:
        return _told(entry, sample, _call(f, fresh := Given(sample)), fresh)

    yield "function", attempt(lambda: with_no_grad(lambda: called(function)), theirs, values)
    method = entry.method_variant
    if method is not None and isinstance(sample.input, torch.Tensor):
        yield "method", attempt(lambda: with_no_grad(lambda: called(counterpart(method))), theirs, values)
    inplace = entry.inplace_variant
    if inplace is not None and isinstance(sample.input, torch.Tensor) and not sample.broadcasts_input:
        with torch.no_grad(), contextlib.suppress(Exception):  # what PyTorch refuses is no check
            seed()
            stored = _call(inplace, Copied(sample))
            yield "in place", attempt(lambda: with_no_grad(lambda: called(counterpart(inplace))), stored, values)
    if entry.supports_out and isinstance(theirs, torch.Tensor) and not isinstance(theirs, tuple):
        def into() -> Any:
            out = fb.empty_like(ours(theirs))
            fresh = Given(sample)
            fresh.kwargs["out"] = out
            result = _call(function, fresh)
            return result if result is out else None

        with torch.no_grad(), contextlib.suppress(Exception):  # what PyTorch refuses is no check
            seed()
            copy = Copied(sample)
            copy.kwargs["out"] = torch.empty_like(theirs)
            _call(entry.op, copy)
            yield "out", attempt(lambda: with_no_grad(into), theirs, values)
    if derived and values:
        yield from check_derivatives(entry, function, sample, given)


class Copied:
    """PyTorch's own arguments of a sample, which a call may write to."""

    def __init__(self, sample: Any) -> None:
        from torch.utils._pytree import tree_map

        def copy(x: Any) -> Any:
            return x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x

        first = getattr(sample, "input", None)        # which arguments of modules have not
        self.input, self.args, self.kwargs = (tree_map(copy, x) for x in (first, sample.args, dict(sample.kwargs)))


def difference_of_theirs(a: Any, b: Any) -> bool:
    """Whether two results of PyTorch differ, as those of random operators do."""
    return any(
        x.shape != y.shape or x.numel() and x.dtype == y.dtype and not torch.equal(torch.nan_to_num(x), torch.nan_to_num(y))
        for x, y in zip(tensors(a), tensors(b), strict=False)
        if x.layout is torch.strided
    )


def _leaves(given: Any) -> list[Any]:
    return [t for t in tensors([given.input, given.args, given.kwargs]) if t.requires_grad]


def _outputs(result: Any) -> list[Any]:
    return [t for t in tensors(result) if t.requires_grad and (t.is_floating_point() or t.is_complex())]


def _cotangents(lib: Any, outputs: list[Any], sign: int = 1) -> list[Any]:
    """The same gradients for the results of either library: of small whole numbers."""
    made = []
    for t in outputs:
        line = lib.arange(t.numel(), dtype=lib.float64) % 7 - 3
        made.append((sign * line).reshape(t.shape).to(t.dtype))
    return made


def first_gradients(lib: Any, op: Any, given: Any, again: bool) -> tuple[list[Any], list[Any]]:
    """The leaves of a call and their gradients; with `again` these can be differentiated."""
    seed()
    outputs = _outputs(op(given.input, given.args, given.kwargs))
    leaves = _leaves(given)
    found = lib.autograd.grad(outputs, leaves, _cotangents(lib, outputs), create_graph=again, allow_unused=True)
    return leaves, list(found)


class Subject:
    """A function as PyTorch differentiates it: with arguments brought into its domain, and what the sample makes of its result."""

    def __init__(self, function: Any, wrapper: Any, transform: Any) -> None:
        self.plain, self.wrapper, self.transform = function, wrapper, transform

    def __call__(self, first: Any, args: Any, kwargs: Any) -> Any:
        return self.transform(self.wrapper(self.plain, first, *args, **kwargs))


def check_derivatives(entry: Any, function: Any, sample: Any, given: Any) -> Iterator[Check]:
    """Gradients, their gradients, and forward derivatives."""
    before, after = entry.gradcheck_wrapper, sample.output_process_fn_grad
    theirs, mine = Subject(entry.op, before, after), Subject(function, counterpart(before), counterpart(after))
    try:
        expected = first_gradients(torch, theirs, Copied(sample), False)[1]
    except Exception:  # what PyTorch refuses is no check
        return
    yield "gradient", attempt(lambda: first_gradients(fb, mine, given, False)[1], expected, factor=10)

    def second(lib: Any, op: Any, arguments: Any) -> list[Any]:
        leaves, found = first_gradients(lib, op, arguments, True)
        slopes = [g for g in found if g is not None and g.requires_grad]
        if not slopes:
            return [None for _ in leaves]
        return list(lib.autograd.grad(slopes, leaves, _cotangents(lib, slopes, -1), allow_unused=True))

    if entry.supports_gradgrad:
        with contextlib.suppress(Exception):  # what PyTorch refuses is no check
            expected = second(torch, theirs, Copied(sample))
            yield "second gradient", attempt(lambda: second(fb, mine, Given(sample)), expected, factor=100)

    def forward(lib: Any, op: Any, arguments: Any) -> list[Any]:
        seed()
        ad = lib.autograd.forward_ad

        def dual(x: Any) -> Any:
            if isinstance(x, lib.Tensor) and x.requires_grad:
                plain = x.detach()
                return ad.make_dual(plain, _cotangents(lib, [plain])[0])
            if isinstance(x, (list, tuple)):
                return type(x)([dual(y) for y in x])
            return {key: dual(y) for key, y in x.items()} if isinstance(x, dict) else x

        with ad.dual_level():
            result = op(dual(arguments.input), dual(arguments.args), dual(arguments.kwargs))
            return [ad.unpack_dual(t).tangent for t in tensors(result) if t.is_floating_point() or t.is_complex()]

    if entry.supports_forward_ad:
        with contextlib.suppress(Exception):  # what PyTorch refuses is no check
            expected = forward(torch, theirs, Copied(sample))
            yield "forward derivative", attempt(lambda: forward(fb, mine, Given(sample)), expected, factor=10)


# -- modules ----------------------------------------------------------------------------------------------------------------


def modules() -> dict[str, Any]:
    """Names of the database of modules -> entries."""
    from torch.testing._internal.common_modules import module_db

    return {entry.name: entry for entry in module_db if not entry.module_cls.__module__.startswith("torch.ao")}


def check_module(entry: Any, limit: int | None) -> Iterator[Check]:
    """The checks of one class of modules, in training and in evaluation: results, gradients, buffers."""
    try:
        cls = counterpart(entry.module_cls)
    except Absent as error:
        yield "name", str(error)
        return
    for training in (True, False):
        seed()
        inputs = entry.module_inputs_func(
            entry, device="cpu", dtype=torch.float64, requires_grad=True, training=training
        )
        for i, given in enumerate(inputs[:limit]):
            way = f"{'training' if training else 'evaluation'}/{i}"
            if given.forward_input is None:
                continue
            yield from ((f"{what}/{way}", wrong) for what, wrong in check_module_input(entry, cls, given, training))


def check_module_input(entry: Any, cls: Any, given: Any, training: bool) -> Iterator[Check]:
    """The checks of one module."""
    made, call = given.constructor_input, Copied(given.forward_input)
    try:
        theirs = entry.module_cls(*made.args, **made.kwargs).double().train(training)
        arguments, named, options = ours(call.args), ours(call.kwargs), (ours(made.args), ours(made.kwargs))
        seed()
        result = theirs(*call.args, **call.kwargs)
    except Exception:  # what PyTorch refuses is no check
        return
    try:
        mine = cls(*options[0], **options[1]).double().train(training)
        if entry.is_lazy:
            seed()
            mine(*arguments, **named)
        mine.load_state_dict({name: ours(t) for name, t in theirs.state_dict().items()})
        # The state is that after PyTorch's call: both run once more.
        seed()
        result = theirs(*call.args, **call.kwargs)
        seed()
        got = mine(*arguments, **named)
    except Exception as error:  # any error where PyTorch has a result is the finding
        yield "result", refused(error)
        return
    drawn = training and "Dropout" in entry.name or "Fractional" in entry.name or "RReLU" in entry.name
    yield "result", difference(got, result, not drawn, 10)
    outputs, reached = _outputs(result), _outputs(got)
    if outputs and not drawn:
        def gradients(lib: Any, module: Any, outputs: list[Any], given: Any) -> list[Any]:
            leaves = [*module.parameters(), *(t for t in tensors(given) if t.requires_grad)]
            return list(lib.autograd.grad(outputs, leaves, _cotangents(lib, outputs), allow_unused=True))

        with contextlib.suppress(RuntimeError):  # what PyTorch refuses is no check
            expected = gradients(torch, theirs, outputs, [call.args, call.kwargs])
            yield "gradients", attempt(lambda: gradients(fb, mine, reached, [arguments, named]), expected, factor=10)
    yield "state", attempt(lambda: list(mine.state_dict().values()), list(theirs.state_dict().values()), not drawn, 10)


# -- optimizers -------------------------------------------------------------------------------------------------------------


def optimizers() -> dict[str, Any]:
    """Names of the database of optimizers -> entries."""
    from torch.testing._internal.common_optimizers import optim_db

    return {entry.optim_cls.__name__: entry for entry in optim_db}


def check_optimizer(entry: Any, limit: int | None) -> Iterator[Check]:
    """Five steps with each set of options, in each of the forms that the optimizer has."""
    try:
        cls = counterpart(entry.optim_cls)
    except Absent as error:
        yield "name", str(error)
        return
    for given in entry.optim_inputs_func("cpu"):
        for form in ("", *entry.supported_impls):
            options = {**given.kwargs, **({form: True} if form in ("foreach", "fused", "capturable", "differentiable") else {})}
            way = f"{given.desc}/{form or 'default'}"
            try:
                expected = trained(torch, entry.optim_cls, options, entry)
            except Exception:  # what PyTorch refuses is no check
                continue
            yield way, attempt(lambda options=options: trained(fb, cls, ours(options), entry), expected, factor=10)


def trained(lib: Any, cls: Any, options: dict[str, Any], entry: Any) -> list[Any]:
    """Parameters after five steps of an optimizer."""
    sparse = entry.only_supports_sparse_grads
    start = [lib.arange(12, dtype=lib.float64).reshape(3, 4) / 5 - 1, lib.arange(3, dtype=lib.float64) + 0.5]
    parameters = [lib.nn.Parameter(p.clone()) for p in start[: 1 if cls.__name__ == "Muon" else 2]]
    optimizer = cls(parameters, **options)
    target = lib.ones(3, dtype=lib.float64)

    def closure() -> Any:
        optimizer.zero_grad()
        value = ((parameters[0].sum(1) * (parameters[1] if len(parameters) > 1 else 1.0) - target) ** 2).mean()
        value.backward()
        if sparse:
            for p in parameters:
                p.grad = p.grad.to_sparse()
        return value

    for _ in range(5):
        if entry.step_requires_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    return [p.detach() for p in parameters]


# -- the command ------------------------------------------------------------------------------------------------------------

DATABASES = {"ops": (ops, check_op), "modules": (modules, check_module), "optim": (optimizers, check_optimizer)}
DATABASES |= {"recorded": (ops, check_recorded)}


def run(database: str, names: list[str], limit: int | None) -> dict[str, list[Check]]:
    """Subject -> its checks."""
    entries, check = DATABASES[database]
    known = entries()
    found: dict[str, list[Check]] = {}
    for name in names:
        checks: list[Check] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                checks.extend(check(known[name], limit))
            except Exception as error:  # one subject must not end the run; it is told
                checks.append(("the check itself", refused(error)))
        found[name] = checks
    return found


def spread(database: str, names: list[str], limit: int | None, jobs: int) -> dict[str, list[Check]]:
    """`run` in several processes; what ends one of them is a failure of its subject."""
    found: dict[str, list[Check]] = {}
    parts = [names[i::jobs] for i in range(jobs)]
    with tempfile.TemporaryDirectory() as folder:
        while any(parts):
            begun = []
            for i, part in enumerate(parts):
                if part:
                    given, made = Path(folder) / f"{i}.in", Path(folder) / f"{i}.out"
                    given.write_text(json.dumps([database, part, limit]), encoding="utf-8")
                    made.write_text("", encoding="utf-8")
                    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
                    process = subprocess.Popen([sys.executable, __file__, "--part", str(given), str(made)], env=environment)
                    begun.append((i, process, made))
            for i, process, made in begun:
                status = process.wait()
                done = dict(json.loads(line) for line in made.read_text(encoding="utf-8").splitlines())
                found.update(done)
                rest = [name for name in parts[i] if name not in done]
                if rest:
                    found[rest[0]] = [("the process", f"ended with status {status}")]
                parts[i] = rest[1:]
    return {name: found[name] for name in names}


def work(given: str, made: str) -> None:
    """Run a part, a line of JSON a subject."""
    database, names, limit = json.loads(Path(given).read_text(encoding="utf-8"))
    torch.set_num_threads(1)
    with Path(made).open("a", encoding="utf-8") as file:
        for name in names:
            file.write(json.dumps([name, run(database, [name], limit)[name]]) + "\n")
            file.flush()


def main() -> int:
    """Run the command line."""
    if sys.argv[1:2] == ["--part"]:
        work(*sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(description="Conformance with PyTorch's databases.")
    parser.add_argument("what", choices=[*DATABASES, "all"])
    parser.add_argument("--only", default="", help="regular expression of subjects")
    parser.add_argument("--all", action="store_true", help="every sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="write all checks to this file")
    parser.add_argument("--verbose", action="store_true", help="every failure, not the first of each subject")
    given = parser.parse_args()
    report = {}
    for database in ("ops", "modules", "optim") if given.what == "all" else [given.what]:
        names = [name for name in DATABASES[database][0]() if re.search(given.only, name)]
        found = report[database] = spread(database, names, None if given.all else SAMPLES, given.jobs)
        for name, checks in found.items():
            failures = [check for check in checks if check[1]]
            for what, wrong in failures if given.verbose else failures[:1]:
                print(f"{name}: {what}: {wrong}" + (f"  (and {len(failures) - 1} more)" if len(failures) > 1 and not given.verbose else ""))
        whole = sum(bool(checks) and not any(wrong for _, wrong in checks) for checks in found.values())
        passed = sum(not wrong for checks in found.values() for _, wrong in checks)
        total = sum(map(len, found.values()))
        print(f"{database} {whole}/{sum(map(bool, found.values()))} {passed}/{total} checks")
    if given.json:
        given.json.write_text(json.dumps(report, indent=0), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
