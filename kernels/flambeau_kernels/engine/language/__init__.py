"""Kernels written as Python functions: the words they use, beside those of `flambeau_kernels.vocabulary`.

A kernel is a plain function over pointers and numbers, decorated with `kernel`. It is never run by Python: its
syntax tree is lowered to LLVM IR (`lower.py`) once for each combination of argument types, compiled, kept in
the cache on disk and called through a native builtin (`call.py`). The language is the part of Python that has
one meaning in machine code:

- arguments: numpy arrays arrive as pointers to their first element, ``int`` as int64, ``float`` as float64;
  keyword arguments are constants of the compilation (kinds, sizes, flags, functions);
- ``p[i]`` loads and ``p[i] = x`` stores element `i`; ``p + n`` is the pointer `n` elements on. Half types are
  widened to float32 when loaded and rounded to nearest even when stored, bool is a truth value;
- a variable keeps the kind of its first value; a Python float alone is float64, an int is int64. Names in
  capitals, and functions, kinds, strings and tuples, are constants: nothing of them is left at run time;
- ``if`` on a constant keeps one branch; ``for x in unroll(range(4))`` repeats its body, ``for i in range(n)``
  loops, and ``for i in independent(range(n))`` promises that no step reads what another one writes; ``for i in
  brief(range(n))`` promises the same of a loop that takes little of the time, and makes a third of the code
  (``brief(range(n), 4)`` with four vectors side by side); ``for i in rolled(range(n))`` keeps LLVM from repeating or
  vectorising a body that is long enough already; ``for i in
  repeated(range(n), 4)`` has four copies of a body that is short;
- functions are called by inlining them; ``return`` stands at their end. ``outlined(f)(p, n)`` compiles `f` once for
  the kinds and constants it is given, as a function of its own without a result, whose pointers lead to different
  memory where it writes. ``run(address, chunk, arguments)`` calls another kernel, which is an object of its own.
  ``//`` and ``%`` are for non-negative integers;
- functions of `math` are the C library's in float64, to the last bit; elementary functions that vectorise are words; a
  `Formula` is called on numbers like a word;
- vectors (`load`, `broadcast`, `vector`) of integers have ``+ - * & | ^ << >>``, `minimum`, `maximum` and `abs`, those of floats
  ``+ - * /`` and what is one instruction; kinds convert them. `dot_bfloat16`, `dot_int8`, `dot_int16` are the processor's instructions
  where it has them (AVX512_BF16, AVX512_VNNI, AVX_VNNI), and elsewhere some instructions with the same bits;
- ``with flags("reassoc"):`` lets LLVM reorder the sums written inside, so that it can vectorise them.

The first parameter of a kernel is the number of its chunk. Chunks run on the threads of the pool in any
order, so how work is cut must depend on its shape alone.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from numpy import ndarray

import flambeau_kernels
from flambeau_kernels.scalar.symbols import BOOL, F32, F64, INT, UINT, Kind

__all__ = [
    "outlined", "bitcast", "bool8", "brief", "broadcast", "dot_bfloat16", "dot_int8", "dot_int16", "flags", "float32", "float64",
    "independent", "int16", "int32", "int64", "int8", "kernel", "lane_sum", "lanes", "load", "local", "multiply_add", "pointer",
    "prefetch", "repeated", "rolled", "run", "shuffle", "store", "uint16", "uint32", "uint64", "uint8", "unroll", "vector",
    "widened", "Kernel",
]  # fmt: skip

# Any: kernels call them, to convert.
bool8: Any = BOOL
float32: Any = F32
float64: Any = F64
int8: Any = INT[8]
int16: Any = INT[16]
int32: Any = INT[32]
int64: Any = INT[64]
uint8: Any = UINT[8]
uint16: Any = UINT[16]
uint32: Any = UINT[32]
uint64: Any = UINT[64]


class Construct:
    """A name that only means something inside a kernel."""

    __slots__ = ("doc", "name")

    def __init__(self, name: str, doc: str):
        self.name, self.doc = name, doc

    def __call__(self, *args: object) -> Any:
        raise TypeError(f"{self.name} is a word of the kernel language; it can only be used inside a @kernel")

    def __repr__(self) -> str:
        return f"<construct {self.name}>"


unroll: Any = Construct("unroll", "``for i in unroll(range(4))``: the body once for each constant.")
independent: Any = Construct("independent", "A loop whose steps LLVM may run in any order or together.")
brief: Any = Construct("brief", "An independent loop of little work: its body is compiled once, and masked in the last vector.")
rolled: Any = Construct("rolled", "A loop whose body LLVM neither repeats nor vectorises.")
repeated: Any = Construct("repeated", "``repeated(range(n), 4)``: a loop with four copies of its body, for short ones.")
outlined: Any = Construct("outlined", "``outlined(f)(...)``: `f` as a function of its own, compiled once, rather than inlined.")
flags: Any = Construct("flags", "``with flags('reassoc', 'contract')``: LLVM's fast-math flags inside.")
local: Any = Construct("local", "``local(kind, count)``: uninitialised memory of this call, a constant count.")
load: Any = Construct("load", "``load(p, i, lanes)``: a vector of consecutive elements; ``load(p, i, lanes, n)`` reads only "
                              "the first `n` and has zeros in the other lanes, or a number given after `n`.")
store: Any = Construct("store", "``store(p, i, v)``: a vector to consecutive elements; ``store(p, i, v, n)`` writes the first `n`.")
shuffle: Any = Construct("shuffle", "``shuffle(a, b, (0, 8, 1, 9))``: lanes of two vectors, those of `b` counted on from `a`'s.")
multiply_add: Any = Construct("multiply_add", "``multiply_add(a, b, c)``: ``a * b + c`` of vectors, by one instruction where the "
                              "processor has it. Others round twice, where `fma`, which rounds once, calls the C library.")
broadcast: Any = Construct("broadcast", "``broadcast(x, lanes)``: a vector with `x` in every lane.")
vector: Any = Construct("vector", "``vector(kind, lanes)``: the kind of a vector.")
lanes: Any = Construct("lanes", "``lanes(kind)``: how many fit into the machine's widest register.")
dot_bfloat16: Any = Construct("dot_bfloat16", "``dot_bfloat16(a, b, c)``: `c`, float32, and the products of pairs of bfloat16, two to a "
                              "lane of int32: the second of a pair is added first. Subnormal numbers may be taken for 0.")
dot_int8: Any = Construct("dot_int8", "``dot_int8(a, b, c)``: `c`, int32, and the products of four uint8 in a lane of `a` with the four "
                          "int8 in one of `b`, both int32; exact, and wraps around as integers do.")
dot_int16: Any = Construct("dot_int16", "``dot_int16(a, b, c)``: `c`, int32, and the products of two int16 in a lane of `a` with the two "
                           "in one of `b`, both int32; exact, and wraps around as integers do.")
lane_sum: Any = Construct("lane_sum", "The sum of a vector's lanes, added in pairs.")
widened: Any = Construct("widened", "``widened(p)``: the kind an element of `p` has once loaded.")
pointer: Any = Construct("pointer", "``pointer(address, kind)``: the pointer an int64 holds.")
bitcast: Any = Construct("bitcast", "``bitcast(x, kind)``: the same bits read as `kind`.")
run: Any = Construct("run", "``run(address, chunk, arguments)``: a chunk of the kernel whose code is at an address "
                     "(`Kernel.address`); its arguments lie in slots of eight bytes.")
prefetch: Any = Construct("prefetch", "``prefetch(p)``: ask for the cache line of `p`.")


class OnlyRead(str):
    """The dtype of a `parameter` whose elements the kernel may not store to: equal to that dtype's name."""

    __slots__ = ("parameter",)

    def __new__(cls, dtype: str, parameter: str) -> OnlyRead:
        made = super().__new__(cls, dtype)
        made.parameter = parameter
        return made


class Kernel:
    """A kernel function and its compiled forms, by argument types and constants."""

    __slots__ = ("_forms", "aliased", "function", "in_vectors", "name", "thorough", "written", "__weakref__")

    def __init__(self, function: Callable[..., None], aliased: bool, in_vectors: bool = False, thorough: bool = False,
                 written: frozenset[str] | None = None):
        self.written = written                        # parameters whose elements it may store to; None: all
        self.function: Any = function
        self.name: str = self.function.__name__
        self.aliased, self.in_vectors, self.thorough = aliased, in_vectors, thorough
        self._forms: dict[tuple[Any, ...], Callable[..., None]] = {}
        _kernels.add(self)

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"

    def run(self, chunks: int, *args: Any, release: bool = False, **constants: Any) -> None:
        """Run chunks ``0 ... chunks - 1`` on the pool and wait for them.

        Args:
            args: numpy arrays (the caller guarantees that shapes, strides and writeability are what the
                kernel expects), ints and floats.
            release: give up the GIL even for a single chunk; for several it always is.
        Raises: `llvm.Unavailable` where nothing can be compiled.
        """
        types = tuple([a.dtype if a.__class__ is ndarray else a.__class__ for a in args])
        key = (types, *constants.items()) if constants else types
        form = self._forms.get(key)
        if form is None:                              # or an array of a class of its own
            form = self.form(tuple([getattr(a, "dtype", a.__class__) for a in args]), constants)
        form(chunks, release, *args)

    def form(self, types: tuple[Any, ...], constants: dict[str, Any]) -> Callable[..., None]:
        """What `run` calls for arguments of `types` (dtypes, ``int`` and ``float``): ``form(chunks, release, *args)``.

        For callers that keep it with other things they know of a shape, and so look nothing up in a call.
        """
        key = (types, *constants.items()) if constants else types
        found = self._forms.get(key)
        if found is None:
            from flambeau_kernels.engine.launching import call

            found = self._forms[key] = call.form(self, types, constants)
        return found

    def address(self, types: tuple[Any, ...], constants: dict[str, Any]) -> int:
        """Where the code for arguments of `types` is, as `form` takes them: for kernels that `run` it.

        What several kernels do alike is so compiled once for all of them. The code lives as long as the process.
        """
        from flambeau_kernels.engine.launching import call

        return call.address(self, call.named(self, types, constants), constants)


_kernels: weakref.WeakSet[Kernel] = weakref.WeakSet()


def _forget() -> None:
    for one in list(_kernels):
        one._forms.clear()


flambeau_kernels.plans_kept_elsewhere.append(_forget)     # another engine compiles them anew


def kernel(function: Callable[..., None] | None = None, *, aliased: bool = False, in_vectors: bool = False,
           thorough: bool = False) -> Any:
    """Make `function` a `Kernel`.

    Args:
        aliased: its arrays may share memory, which costs optimisation.
        in_vectors: its loops are written in vectors, so that a few passes of optimisation do, in half the time. Numbers that
            are used with vectors in a loop are best broadcast before it, which these passes do not do.
        thorough: LLVM may repeat its loops and copy them for each outcome of a condition inside, which can make
            short loops faster and doubles the time of compilation.
    """
    if function is None:
        return lambda f: Kernel(f, aliased, in_vectors, thorough)
    return Kernel(function, aliased, in_vectors, thorough)


def vector_kind(kind: Kind, count: int) -> VectorKind:
    """The kind of a vector of `count` lanes."""
    return VectorKind(f"{kind.name}x{count}", f"<{count} x {kind.llvm}>", kind.bits, kind.family, kind, count)


class VectorKind(Kind):
    """A machine vector: `of` is the kind of a lane, `count` how many there are."""

    __slots__ = ("count", "of")

    def __init__(self, name: str, llvm: str, bits: int, family: str, of: Kind, count: int):
        super().__init__(name, llvm, bits, family)
        object.__setattr__(self, "of", of)
        object.__setattr__(self, "count", count)

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VectorKind) and other.name == self.name
