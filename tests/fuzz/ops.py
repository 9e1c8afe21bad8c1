"""Random calls of every op with Flambeau and PyTorch: values, dtypes, layouts, sizes, indices and junk.

    python tests/fuzz/ops.py --calls 200000                      # ends with status 1 and the programs if anything fails
    FLAMBEAU_BACKEND=numpy python tests/fuzz/ops.py --calls 200000
    python tests/fuzz/ops.py --calls 5000 --only 'conv2d|fold' --seed 3 --notes

What counts as a failure is said in `arena.py`. Calls begin with arguments that fit (`recipes.py`, or by the names of parameters)
and are changed from call to call; changes that PyTorch answers are kept and changed further. Where the results of a call can be
differentiated, gradients are taken. The guard around arrays is on, so that writes beside them end the process.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":                            # as a script it finds this checkout by itself
    sys.path[:0] = [str(ROOT / folder) for folder in ("tests", "framework", "kernels")]

from fuzz import arena, values
from fuzz.recipes import RECIPES
from fuzz.values import DTYPES, Draw

CALLS = 40                                            # of a unit: one op, and what is learned about it
# What would change this process, wait, or is another library's business.
LEFT_OUT = re.compile(
    r"save|load|manual_seed|seed|initial_seed|[gs]et_.*(threads|default|precision|state|enabled|printoptions|flush).*|compile|.*deterministic.*"
    r"|from_file|share_memory_?|pin_memory|cuda|ipu|xpu|mtia|hpu|register_hook|register_post.*|__.*|_foreach.*|to_mkldnn|sparse_.*|to_sparse.*|storage"
    r"|untyped_storage|.*_$(?<=__)|retain_grad|backward|numpy|data_ptr|apply_|map_|map2_|module_load|from_dlpack|to_dlpack|dist|result_type"
    r"|empty.*|new_empty.*|resize_as_|Tensor|is_shared|is_pinned|requires_grad_|unsafe_.*|get_device|frombuffer|asarray|rand.*|normal.*|bernoulli.*"
    r"|lu_unpack"                                     # PyTorch ends the process for pivots with more dimensions than the matrices
    r"|poisson.*|multinomial|.*dropout.*|rrelu.*|.*gumbel.*|exponential_|geometric_|cauchy_|log_normal_|uniform_|random_|binomial|svd_lowrank|pca_lowrank|lobpcg"
)
# Ops whose values are drawn, or whatever was in memory.
_RANDOM = re.compile(
    r"rand.*|normal.*|bernoulli.*|poisson.*|multinomial|.*dropout.*|rrelu.*|.*gumbel.*|binomial|.*_lowrank|empty.*|new_empty.*"
    r"|(exponential|geometric|cauchy|log_normal|uniform|random)_|fractional_max_pool.*|standard_gamma"
)


class Target(NamedTuple):
    """A function or a method that both libraries have."""

    key: str                                          # the op's public name, or Tensor.name
    path: str                                         # how a program calls it
    params: tuple[str, ...]
    defaults: dict[str, Any]
    is_method: bool
    spread: bool                                      # whether its first parameter takes several arguments
    outs: bool                                        # whether it has ``out=``


def targets(ours: Any, theirs: Any) -> list[Target]:
    """Everything to call, in the order of names."""
    from flambeau.ops import _derive

    _derive.load_all()
    found: dict[str, Target] = {}
    for namespace in ("", "nn.functional", "linalg", "fft", "special"):
        names = {*_derive.function_names(namespace), *(_derive.plain_functions() if not namespace else ())}
        prefix = f"{namespace}." if namespace else ""
        for name in sorted(names):
            path = f"torch.{prefix}{name}"
            _add(found, ours, theirs, f"{prefix}{name}", path, False)
    for name in sorted(dir(ours.Tensor)):
        _add(found, ours, theirs, f"Tensor.{name}", f"torch.Tensor.{name}", True)
    for name in ("__getitem__", "__setitem__"):
        params = ("self", "key") + ("value",) * (name == "__setitem__")
        found[f"Tensor.{name}"] = Target(f"Tensor.{name}", f"torch.Tensor.{name}", params, {}, True, False, False)
    return list(found.values())


def _add(found: dict[str, Target], ours: Any, theirs: Any, key: str, path: str, is_method: bool) -> None:
    name = key.rpartition(".")[2]
    if (LEFT_OUT.fullmatch(name) and not _RANDOM.fullmatch(name)) or name[0] == "_":
        return
    try:
        mine, other = (functools.reduce(getattr, path.split(".")[1:], lib) for lib in (ours, theirs))
        signature = inspect.signature(mine)
    except (AttributeError, TypeError, ValueError):
        return
    if not callable(mine) or not callable(other) or isinstance(mine, type):
        return
    params = list(signature.parameters.values())
    spread = any(p.kind is p.VAR_POSITIONAL for p in params)
    kept = [p for p in params if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name != "out" and p.name[0] != "_"]
    defaults = {p.name: p.default for p in kept if p.default is not p.empty}
    found[key] = Target(key, path, tuple(p.name for p in kept), defaults, is_method, spread, "out" in signature.parameters)


# -- arguments by the names of parameters ----------------------------------------------------------------------------------

def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TENSORS = _names("""
    input other self tensor tensor1 tensor2 source src values mask condition target weight mat mat1 mat2 vec vec1 vec2 x y x1 x2 a b A B
    end exponent grad value min max min_val max_val real imag abs angle batch1 batch2 sorted_sequence boundaries
""")
_FLAGS = _names("keepdim upper left hermitian ceil_mode training inplace largest sorted descending stable right full sym periodic")
_COUNTS = _names("n k N M steps diagonal decimals groups start length num")


def by_name(d: Draw, name: str, default: Any, shape: tuple[int, ...], dtype: str) -> str:
    """The text of an argument for a parameter that is called `name`."""
    ndim = max(len(shape), 1)
    if isinstance(default, bool) or name in _FLAGS:
        return str(d.chance(0.5))
    if name in ("dim", "dim0", "dim1", "dim2", "start_dim", "end_dim", "dimension", "axis", "dims"):
        several = name == "dims" or d.chance(0.15)
        one = d.randrange(-ndim, ndim)
        return repr(tuple(d.sample(range(ndim), d.randrange(ndim + 1)))) if several else str(one)
    if name in ("index", "indices", "ind"):
        return d.ints(0, max(*shape, 1, 1), shape or (2,))
    if name in ("mask", "condition"):
        return d.ints(0, 2, d.near(shape), "bool")
    if name == "dtype":
        return f"torch.{d.choice(DTYPES)}"
    if name == "device":
        return d.choice(("None", "'cpu'", "'meta'"))
    if name in ("size", "sizes", "shape", "s", "reps", "repeats", "dims_"):
        return repr(tuple(d.choice((0, 1, 2, 3)) for _ in range(d.randrange(4))))
    if name == "reduction":
        return d.choice(("'mean'", "'sum'", "'none'"))
    if name in ("p", "ord", "norm_type", "q", "margin", "alpha", "beta", "scale", "delta", "lambd", "threshold", "eps", "momentum"):
        return d.choice(("0", "1", "2", "0.5", "-1", "3.5", "float('inf')"))
    if name in ("other", "value", "min", "max", "exponent", "end", "weight", "fill_value") and d.chance(0.3):
        return d.choice(("0", "1", "2", "-1.5", "2.5", "True", "1j"))
    if isinstance(default, int):
        return d.choice((str(default), "0", "1", "2", "-1", "3"))
    if isinstance(default, float):
        return d.choice((str(default), "0.0", "0.5", "2", "-1.0")).replace("inf", "float('inf')").replace("nan", "float('nan')")
    if isinstance(default, str):
        return d.choice((repr(default), repr(default), "'x'"))
    if name in ("generator", "memory_format", "layout", "names", "device"):
        return "None"
    if name in _COUNTS or len(name) == 1 and name not in _TENSORS:
        return d.choice(("0", "1", "2", "3", "-1", "5"))
    return d.tensor(d.near(shape), dtype if d.chance(0.85) else d.dtype())


def _drawn(d: Draw, target: Target) -> dict[str, str]:
    """Arguments by name, for an op without a recipe."""
    shape, dtype = d.shape(), d.dtype()
    call: dict[str, str] = {}
    for name in target.params:
        if name not in target.defaults or d.chance(0.3):
            call[name] = by_name(d, name, target.defaults.get(name), shape, dtype)
    if target.spread and not call:
        call["*operands"] = ", ".join(d.tensor(d.near(shape), dtype) for _ in range(d.randrange(3)))
    return call


def _fitting(d: Draw, target: Target) -> dict[str, str]:
    """Arguments that mostly fit together."""
    bare = target.key.removeprefix("Tensor.")
    draw = RECIPES.get(target.key) or RECIPES.get(bare) or RECIPES.get(bare.removesuffix("_"))
    if draw is None or d.chance(0.03):
        return _drawn(d, target)
    call, made, left = draw(d), {}, list(target.params)
    for name, text in call.items():
        if name not in target.params and name[0] != "*":
            # A recipe serves ops whose parameters have other names.
            name = next((p for p in left if p not in call and p not in made), name)
        made[name] = text
    return made


_NUMBER = re.compile(r"(?<![\w.'])-?\d+(?![\w.'])")


def changed(d: Draw, target: Target, call: dict[str, str]) -> dict[str, str]:
    """`call` with another argument or two."""
    made = dict(call)
    for _ in range(d.choice((1, 1, 1, 2))):
        names = [n for n in target.params if n in made or d.chance(0.3)] or list(made)
        if not names:
            return made
        name = d.choice(names)
        text = made.get(name, "")
        if target.is_method and name == target.params[0] and not text.startswith(("rand(", "ints(")):
            continue                                  # nobody has methods of what is no tensor
        roll = d.random()
        if roll < 0.3 and text.startswith(("rand(", "ints(")):
            made[name] = _turned(d, text)
        elif roll < 0.45 and _NUMBER.search(text) and "<<" not in text and not text.startswith(("rand", "ints")):
            made[name] = _renumbered(d, text)
        elif roll < 0.55 and name in made and name in target.defaults:
            del made[name]
        elif roll < 0.8:
            made[name] = by_name(d, name, target.defaults.get(name), d.shape(), d.dtype())
        elif not (target.is_method and name == target.params[0]):
            made[name] = d.junk()
    return made


def _turned(d: Draw, text: str) -> str:
    """A tensor's text with another dtype, layout, kind of values, or size in one dimension."""
    roll, plain = d.random(), text.endswith(")") and text.count("(") == 2
    if roll < 0.25:
        return re.sub(rf"'({'|'.join(DTYPES)})'", repr(d.choice(DTYPES)), text, count=1)
    if roll < 0.45:
        return f"{text[:-1]}, layout={d.choice(values.LAYOUTS)!r})" if plain and "layout" not in text else text
    if roll < 0.65 and plain and text.startswith("rand") and "special" not in text:
        return f"{text[:-1]}, special={d.choice(values.SPECIALS)!r})"
    found = re.search(r"\(\(?([\d, ]*)\)", text)
    if found is None:
        return text
    sizes = [int(n) for n in found[1].split(",") if n.strip()]
    if sizes and d.chance(0.8):
        sizes[d.randrange(len(sizes))] = d.choice((0, 1, 2, 3, 5))
    elif d.chance(0.5):
        sizes = sizes[1:]
    else:
        sizes = [*sizes, 2]
    return text[: found.start(1)] + repr(tuple(sizes))[1:-1] + text[found.end(1) :]


def _renumbered(d: Draw, text: str) -> str:
    """`text` with one of its numbers another one."""
    places = list(_NUMBER.finditer(text))
    place = d.choice(places)
    return f"{text[: place.start()]}({d.size()}){text[place.end() :]}"


def program(d: Draw, target: Target, call: dict[str, str]) -> str:
    """A call as text, and its gradients; now and then indices are overwritten in between."""
    lines, given, leaves, keep = [], [], [], True
    tampers, integers = d.chance(0.06), []
    for name, text in call.items():
        if name[0] == "*":
            given.append(text)
            continue
        if "grad=True" in text and text.startswith("rand("):
            letter = "abcdefgh"[len(leaves)] if len(leaves) < 8 else "h"
            lines.append(f"{letter} = {text}")
            leaves.append(letter)
            text = letter
        elif tampers and text.startswith(("ints(", "(ints(", "[ints(")):
            integers.append(f"i{len(integers)}")
            lines.append(f"{integers[-1]} = {text}")
            text = integers[-1]
        in_order = name in target.params and target.params.index(name) == len(given) and keep
        keep = keep and in_order
        given.append(text if in_order else f"{name}={text}")
    if target.outs and d.chance(0.05):
        given.append(f"out={d.tensor(d.shape(), d.dtype(), special=0)}.detach()")
    inner = ", ".join(given)
    ends = "".join(f", {x}" for x in leaves)
    if tampers:
        lines[:0] = ["alone()"]
        lines += [f"made = {target.path}({inner})", f"tamper({d.randrange(1000)}, made{''.join(f', {x}' for x in integers)})"]
        lines.append(f"result = backward(made{ends})")
    else:
        lines.append(f"result = backward({target.path}({inner}){ends})")
    return "\n".join(lines)


def source(every: list[Target], seed: int) -> arena.Source:
    """Programs of each unit: one op, beginning with arguments that fit and keeping changes that PyTorch answers."""
    target_of = arena.spread(every, seed)

    def programs(unit: int) -> Generator[str, tuple[arena.Outcome, arena.Outcome], None]:
        target = target_of(unit)
        d = Draw(f"{seed} {unit} {target.key}")
        known: list[dict[str, str]] = []
        is_random = bool(_RANDOM.fullmatch(target.key.rpartition(".")[2]))
        for _ in range(CALLS):
            if not known or d.chance(0.3):
                call = _fitting(d, target)
                call = changed(d, target, call) if d.chance(0.4) else call
            else:
                call = changed(d, target, d.choice(known))
            text = program(d, target, call)
            if is_random:                             # other numbers on the two sides, perhaps: only that both answer is compared
                text = text.replace("result = ", "made = ")
            ours, theirs = yield text
            if theirs.error is None and ours.error is None and len(known) < 30:
                known.append(call)

    return programs


def main() -> int:
    parser = arena.parser(__doc__ or "")
    parser.add_argument("--calls", type=int, default=20_000)
    options = parser.parse_args()
    libs = arena.libraries()
    every = [t for t in targets(*libs) if re.search(options.only, t.key)]
    units = range(max(1, options.calls // CALLS))
    report = arena.run(
        units, source(every, options.seed), libs, tuple(values.scope(lib) for lib in libs), options.jobs, options.limit,
        arena.shown(options.notes),
    )  # fmt: skip
    print(f"{len(every)} names, {report.summary()}")
    return 1 if report.failures() else 0


if __name__ == "__main__":
    sys.exit(main())
