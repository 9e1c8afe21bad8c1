"""LLVM IR text to machine code in this process: optimise, emit, cache, load. The only module that uses llvmlite.

`compile_ir(text, symbol)` is the whole interface. The text is a complete module without target lines; the
key of the on-disk cache is a digest of that text and of everything that decides the code made from it (LLVM's
version, the CPU and its features). Loading a cached object takes 0.2 ms and runs no compiler; on x86-64 under Linux it needs
nothing of LLVM.
"""
from __future__ import annotations

import functools
import hashlib
import itertools
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable
from types import FunctionType
from typing import NamedTuple

from flambeau_kernels import engines
from flambeau_kernels.engine.machine_code import elf, loader, processors, soft_halves, soft_vectors, targets
from flambeau_kernels.engine.machine_code.cache import ObjectCache, default_folder
from flambeau_kernels.engine.machine_code.targets import Target
from flambeau_kernels.engine.runtime.never_freed import never_freed

# Part of every key: raise it when the pass pipeline below changes.
PIPELINE = "5"
# Levels of optimisation: text that is written as it shall run; functions of the kernel language whose loops are written in
# vectors; loops that LLVM vectorises; these repeated as well.
WRITTEN, PLAIN, LOOPS, EVERYTHING = range(4)

# What PLAIN does to texts without loops to vectorise or repeat. LLVM's own first level takes twice as long to the same code, but
# that it also takes out of loops what is the same in every step (a number that is broadcast, say).
_VECTOR_PASSES = ("always_inliner", "sroa", "ipsccp", "instruction_combine", "new_gvn", "simplify_cfg", "loop_rotate",
                  "instruction_combine", "new_gvn", "loop_rotate", "simplify_cfg", "instruction_combine")
_LOOP_MARKS = ('!"llvm.loop.vectorize.enable", i1 true', '!"llvm.loop.unroll.count"')

_lock = threading.RLock()                             # renewed in forked children, see the end
_addresses: dict[tuple[str, str], int] = {}
_disk: ObjectCache | None = None
_numbers = itertools.count()
counts = {"compiled": 0, "loaded": 0}                 # for the warm-up command and the tests
_refused: dict[str, str] = {}                         # what LLVM said of texts that it made no code of
_STRICT = os.environ.get("FLAMBEAU_STRICT", "").strip() not in ("", "0")
_WITHOUT = "FLAMBEAU_BACKEND=numba and FLAMBEAU_BACKEND=numpy do without LLVM's code"
SELF_TEST = "self_test"                               # what the name of the kernel begins with that is no program's


class Compiled(NamedTuple):
    """What making one object took: seconds of a processor for the lowering to text, optimisation and code generation.

    Found where `watch` is set: `scalar`, how many loops that were to be vectors are none, about which LLVM prints a warning; and
    `instructions`, of LLVM's after optimisation, a thousand of which take about 100 milliseconds in all.
    """

    name: str
    writing: float
    optimising: float
    emitting: float
    text_bytes: int
    object_bytes: int
    scalar: int = 0
    instructions: int = 0


watch = False                                         # set by `bench/compile_times.py`: to look at what is optimised takes milliseconds
compiled: list[Compiled] = []                         # in this process, in order; see `bench/compile_times.py`


class Unavailable(RuntimeError):
    """LLVM cannot be used in this process; the message says why. Callers go on with the numpy tier."""


class BrokenKernel(AssertionError):
    """As `engines.Refused`, with FLAMBEAU_STRICT=1: no other way is taken."""


def available() -> str | None:
    """None when kernels can be compiled here, else the reason why not."""
    try:
        return machine().lost or _failure()
    except Unavailable as error:
        return str(error)


@functools.cache
def _failure() -> str | None:
    """What the self-test says, where numba cannot take over."""
    from flambeau_kernels.engine.machine_code import self_test

    problem = self_test.problem()
    if problem is None:
        return None
    without_numba = self_test.problem_of_numba()
    if without_numba is not None:
        problem = f"{problem}; {without_numba}"
        _warn_once(f"{problem}; kernels of numpy run instead, which are slower")
        return problem
    _warn_once(f"{problem}; numba compiles kernels instead, which takes seconds for each of them, and they are slower")
    engines.take_over(problem)
    return None


@functools.cache
def numba_stands_in() -> bool:
    """Whether numba can compile what LLVM refused."""
    from flambeau_kernels.engine.machine_code import self_test

    return self_test.problem_of_numba() is None


def compile_ir(text: str, symbol: str, level: int = EVERYTHING) -> int:
    """The address of function `symbol` of the LLVM module `text`, compiled or read from the cache.

Thread-safe. The code stays loaded for the life of the process. External functions are looked up in the process.
    Raises: Unavailable without llvmlite; RuntimeError, with LLVM's words, for a text that is not a valid module.
    """
    return compile_symbols(text, (symbol,), level)[symbol]


def compile_symbols(text: str, symbols: tuple[str, ...], level: int = EVERYTHING) -> dict[str, int]:
    """Addresses of several functions of one module; otherwise as `compile_ir`.
    """
    with _lock:
        if any((text, s) not in _addresses for s in symbols):
            loaded = _load_or_compile(f"{level}\n{text}", lambda: text, symbols, level)
            _addresses.update({(text, s): address for s, address in loaded.items()})
        return {s: _addresses[text, s] for s in symbols}


def compile_lazily(facts: str, text: Callable[[], str], symbol: str, level: int = EVERYTHING) -> int:
    """As `compile_ir`, for a module that is only written (`text()`) when the cache has no object for `facts`.

    `facts` must change whenever the text would.
    """
    with _lock:
        if (facts, symbol) not in _addresses:
            _addresses[facts, symbol] = _load_or_compile(f"{level}\n{facts}", text, (symbol,), level)[symbol]
        return _addresses[facts, symbol]


def is_cached(facts: str, level: int = EVERYTHING) -> bool:
    """Whether `compile_lazily` would find an object for `facts` on disk."""
    return disk().get(_key(f"{level}\n{facts}")) is not None


def _key(facts: str) -> str:
    return hashlib.sha256(f"{machine().fingerprint}\n{facts}".encode()).hexdigest()


def _load_or_compile(facts: str, text: Callable[[], str], symbols: tuple[str, ...], level: int) -> dict[str, int]:
    """Addresses of `symbols`, of the object that the cache has for `facts`, or of one compiled from `text()`."""
    key = _key(facts)
    body = disk().get(key)
    loaded = None if body is None else _load_from_disk(body, symbols)
    if loaded is None:
        body = _compile(text, symbols[0], level)
        disk().put(key, body)
        loaded = _load(body, symbols)
    return loaded


def _compile(text: Callable[[], str], name: str, level: int) -> bytes:
    start = time.thread_time()
    written = text()
    writing = time.thread_time() - start
    body = emitted(name, written, level, functools.partial(_record, name, writing, len(written)))
    counts["compiled"] += 1
    return body


def emitted(name: str, text: str, level: int = EVERYTHING, record: Callable[[float, float, int, str], None] | None = None) -> bytes:
    """The object file that LLVM makes of the kernel `name`.

    Raises: Refused, with LLVM's words, each time that it is asked for such a text, of which the program is warned the first time.
    """
    if text not in _refused:
        try:
            return machine().emit_object(text, level, record)
        except Unavailable:
            raise
        # Nothing but calls of llvmlite, which fail by LLVM's words, or as another version may lack a function.
        except Exception as error:
            why = f"{name}: LLVM makes no code of this kernel: {error}".rstrip()
            if _STRICT:
                raise BrokenKernel(why) from error
            _refused[text] = why
            if not name.startswith(SELF_TEST):        # which says itself what follows from that
                warnings.warn(f"{why}; a slower way is taken where there is one: {_WITHOUT}", UserWarning, stacklevel=2)
    raise engines.Refused(_refused[text] if name.startswith(SELF_TEST) else f"{_refused[text]}; {_WITHOUT}")


def _load_from_disk(body: bytes, symbols: tuple[str, ...]) -> dict[str, int] | None:
    """As `_load`, but None for what is no object with these symbols, whatever its header said."""
    try:
        return _load(body, symbols)
    except RuntimeError:
        return None


def _record(
    name: str, writing: float, text_bytes: int, optimising: float, emitting: float, object_bytes: int, optimised: str
) -> None:
    instructions = sum(line.startswith("  ") for line in optimised.splitlines())
    compiled.append(Compiled(name, writing, optimising, emitting, text_bytes, object_bytes, _loops_refused(optimised), instructions))


def is_shown(name: str) -> bool:
    """Whether FLAMBEAU_SHOW_KERNELS names the kernel `name` (names by commas, or ``all``)."""
    wanted = os.environ.get("FLAMBEAU_SHOW_KERNELS", "")
    return wanted in ("all", "1") or name in wanted.split(",")


def show(name: str, function: FunctionType, text: str, level: int = EVERYTHING) -> None:
    """Print to stderr what the kernel `name` is made of: its Python source, LLVM IR and assembly."""
    import inspect  # which is slow to import

    try:
        source = inspect.getsource(function)
    except OSError:                                   # made at run time
        source = f"{function.__name__}: no source\n"
    quoted = "".join(f"; {line}\n" for line in source.splitlines())
    print(f"; kernel {name}\n{quoted}\n{text}\n; assembly\n{machine().emit_assembly(text, level)}", file=sys.stderr)


def disk() -> ObjectCache:
    """The process's object cache, in the folder named by the environment at the first compiled launch."""
    global _disk
    if _disk is None:
        _disk = ObjectCache(default_folder())
        if _disk.why_unsafe is not None:
            warnings.warn(f"compiled kernels are kept in memory only: {_disk.why_unsafe}; or name another folder by FLAMBEAU_CACHE",
                          UserWarning, stacklevel=2)  # RuntimeWarnings of our own modules are numpy's, which are muted
    return _disk


def machine() -> Machine:
    """What kernels are compiled for: this computer, or the processor that FLAMBEAU_CPU names.

    Raises: Unavailable when there is no working llvmlite; ValueError if FLAMBEAU_CPU names no processor; RuntimeError if it names
    one whose code cannot run here.
    """
    found = _machine_or_reason()
    if isinstance(found, Unavailable):
        raise found
    return found


def in_use() -> bool:
    """Whether this process has looked for kernels or a compiler already; a compiler takes 0.1 s and 50 MB."""
    return _machine_or_reason.cache_info().currsize > 0


@functools.cache
def _machine_or_reason() -> Machine | Unavailable:
    # A failed import is remembered too: trying again on every launch would cost more than the launch.
    try:
        return new_machine()
    except Unavailable as error:
        return error


def new_machine() -> Machine:
    """What the environment asks for; otherwise as `machine`."""
    cpu = processors.chosen()
    kept = targets.key(cpu)
    raw = None if kept is None else disk().get(kept)
    known = None if raw is None else Target.unpacked(raw)
    made = Machine(cpu=cpu, known=known)
    if known is None and kept is not None:
        disk().put(kept, made.target.packed())
    if made.missing:
        raise RuntimeError(f"FLAMBEAU_CPU={made.cpu}: this processor, {made.host}, cannot run such code, as it has no "
                           f"{', '.join(made.missing)}. Name one whose code it can run, or none; to look at assembly for another, "
                           f"ask flambeau_kernels.engine.machine_code.llvm.Machine(cpu={made.cpu!r}).emit_assembly(text)")
    return made


class Machine:
    """A target to compile for: this computer by default, or a named triple, cpu and features to look at its assembly.

    LLVM's library is there from the first compilation on, or at once where nobody has `known` of the target.

    Attributes:
        host_features: which of LLVM's features the processor at hand has.
        missing: features that code for `cpu`, a name of `processors.py`, may use and the processor at hand has not.
        lost: why LLVM could not be loaded when a kernel that the cache lacks was to be compiled; None as long as that has not happened.
    """

    lost: str | None = None

    def __init__(self, triple: str | None = None, cpu: str | None = None, features: str | None = None, known: Target | None = None):
        self.target = target = known or self._asked_of_llvm(triple, cpu, features)
        self.triple, self.cpu, self.features, self.host = target.triple, target.cpu, target.features, target.host
        self.host_features = {feature[1:]: feature.startswith("+") for feature in target.host_features.split(",")}
        named = cpu is not None and features is None
        self.missing = processors.missing(processors.features_of(self.cpu), self.host_features) if named else []
        # AVX-512 multiplies by powers of two in one instruction.
        self.scales = "+avx512f" in self.features
        # Of the widest vector register.
        self.register_bits = 512 if self.scales else 256 if "+avx2" in self.features else 128
        self.registers = 32 if self.scales or self.triple.startswith(("aarch64", "arm64")) else 16
        self.fingerprint = "|".join((PIPELINE, target.compiler, self.triple, self.cpu, self.features))
        # Of objects whose parts can be looked at; 0 where they cannot.
        self._elf = elf.MACHINES.get(self.triple.partition("-")[0], 0) if "linux" in self.triple else 0
        # One for each level, which is that of code generation too.
        self._target_machine = functools.cache(lambda level: self._new_target_machine(opt=max(level, 1)))

    def _asked_of_llvm(self, triple: str | None, cpu: str | None, features: str | None) -> Target:
        llvm = self._llvm
        host, of_host = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
        if features is None:
            features = of_host if cpu is None else ",".join(f"+{feature}" for feature in processors.features_of(cpu))
        if triple is None:
            triple = llvm.get_process_triple()
        else:
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
        made = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu or host, features=features, opt=LOOPS, jit=True)
        return Target(triple, cpu or host, features, host, of_host, str(made.target_data), str(llvm.llvm_version_info))

    @functools.cached_property
    def _llvm(self):
        try:
            return _llvmlite()
        except Unavailable as error:
            self.lost = str(error)
            raise

    def _new_target_machine(self, opt: int):
        target = self._llvm.Target.from_triple(self.triple)
        return target.create_target_machine(cpu=self.cpu, features=self.features, opt=opt, jit=True)

    @functools.cached_property
    def jit(self):
        # The JIT takes possession of its target machine, so it gets one of its own.
        return never_freed(self._llvm.create_lljit_compiler(self._new_target_machine(opt=3)))

    def emit_object(self, text: str, level: int = EVERYTHING, record: Callable[[float, float, int, str], None] | None = None) -> bytes:
        """Object file for `text`, optimised at a level.

        WRITTEN only brings variables into registers. PLAIN vectorises and repeats no loops but those that ask for it;
        LOOPS vectorises. Loops that are repeated everywhere, and copied for each outcome of a condition inside, make
        code two or three times as long and as slow to compile: EVERYTHING is for texts of a line or two, and where it
        was found to pay.

        `record` is told the seconds of optimisation and of code generation, the size of the object, and if `watch` the optimised text.
        """
        target = self._target_machine(level)
        start = time.thread_time()
        module = self._optimised(text, target, level)
        between = time.thread_time()
        body = target.emit_object(module)
        if record is not None:
            record(between - start, time.thread_time() - between, len(body), str(module) if watch else "")
        return body

    def emit_assembly(self, text: str, level: int = EVERYTHING) -> str:
        target = self._target_machine(level)
        return target.emit_assembly(self._optimised(text, target, level))

    def _optimised(self, text: str, target, level: int):
        llvm = self._llvm
        module = llvm.parse_assembly(
            f'target triple = "{self.triple}"\ntarget datalayout = "{self.target.layout}"\n{text}')
        module.verify()
        options = llvm.create_pipeline_tuning_options(speed_level=level)
        options.loop_vectorization = level >= LOOPS
        options.loop_unrolling = level == EVERYTHING
        options.slp_vectorization = False
        builder = llvm.create_pass_builder(target, options)
        passes = builder.getModulePassManager()
        if level == WRITTEN:
            passes = llvm.create_new_module_pass_manager()
            passes.add_sroa_pass()
            passes.add_simplify_cfg_pass()
        elif level == PLAIN and not any(mark in text for mark in _LOOP_MARKS):
            passes = llvm.create_new_module_pass_manager()
            for name in _VECTOR_PASSES:
                getattr(passes, f"add_{name}_pass")()
        passes.run(module, builder)
        if not self.triple.startswith("x86_64") or "+f16c" in self.features or " x half> " not in (text := str(module)):
            return module
        return llvm.parse_assembly(soft_vectors.with_functions(text))

    def load(self, body: bytes, symbols: tuple[str, ...]) -> dict[str, int]:
        """Link `body` into the process, where its code stays; the addresses of its `symbols`.

        Raises: RuntimeError for what is no object with these symbols, where that can be seen: everywhere but in the instructions.
        """
        parts = elf.read(body, self._elf) if self._elf else None
        elsewhere: dict[str, int] = {}
        if any(symbol not in symbols and symbol.encode() in body for symbol in soft_halves.SYMBOLS):
            elsewhere = compile_symbols(soft_halves.TEXT, soft_halves.SYMBOLS, WRITTEN)
        if parts is not None and self._elf == elf.X86_64:
            return loader.load(parts, symbols, elsewhere)
        library = self._llvm.JITLibraryBuilder().add_object_img(body).add_current_process()
        for symbol in symbols:
            library.export_symbol(symbol)
        for foreign, address in elsewhere.items():
            library.import_symbol(foreign, address)
        # The name of a library whose loading failed is spent too.
        made = never_freed(library.link(self.jit, f"flambeau{next(_numbers)}"))
        return {symbol: made[symbol] for symbol in symbols}


def _loops_refused(optimised: str) -> int:
    """How many loops of a module still ask to be made vectors, once that has been tried."""
    marks = re.findall(r'^(!\d+) = !\{!"llvm.loop.vectorize.enable", i1 true\}', optimised, re.MULTILINE)
    return sum(len(re.findall(rf"^!\d+ = distinct .*{mark}\b", optimised, re.MULTILINE)) for mark in marks)


def _load(body: bytes, symbols: tuple[str, ...]) -> dict[str, int]:
    addresses = machine().load(body, symbols)
    counts["loaded"] += 1
    return addresses


def _llvmlite():
    try:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    # A broken install fails in many ways: ImportError, OSError, RuntimeError.
    except Exception as error:
        why = f"llvmlite does not work here: {type(error).__name__}: {error}"
        if not isinstance(error, ModuleNotFoundError) or error.name != "llvmlite":
            _warn_once(f"{why}{_shadowing(error)}; kernels of numpy run instead, which are slower")
        raise Unavailable(why) from error
    return llvm


@functools.cache
def _warn_once(why: str) -> None:
    warnings.warn(why, UserWarning, stacklevel=2)


def _shadowing(error: BaseException) -> str:
    """Which file of the program was imported in the place of a module of Python's own, if that is where `error` comes from."""
    import sysconfig
    import traceback

    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)] + [frame for frame, _ in traceback.walk_stack(None)]
    of_python = {os.path.realpath(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib")}
    for frame in frames:
        name, file = frame.f_globals.get("__name__", ""), frame.f_code.co_filename
        if name in sys.stdlib_module_names and os.path.dirname(os.path.realpath(file)) not in of_python and os.path.isfile(file):
            return f". {file} was imported as Python's own module {name!r}, which it hides; give it another name"
    return ""


def _renew_lock() -> None:
    # Another thread of the parent may have held the lock at the fork; here nobody would release it.
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
