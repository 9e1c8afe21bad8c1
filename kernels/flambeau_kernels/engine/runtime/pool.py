"""The one thread pool: native workers that claim chunks, used by every kernel that splits its work.

The pool is written in LLVM IR because a region must start in about a microsecond. Workers are raw pthreads
that never touch Python: they spin briefly, then sleep on a futex. A caller posts a region (function, data,
number of chunks) and works on it itself; it never waits for a worker that has not claimed a chunk. Each thread
begins with its own stretch of the chunks, the same in every region, so that what it wrote is in its own cache
for the next one; what others have left it takes afterwards. When the pool is busy, with another thread's region
or because a chunk opened one of its own, the caller runs its chunks alone.

Results must not depend on the number of threads. So how work is cut into chunks is a function of its shape alone, except
where every result is computed in the same order whatever the cut is; such plans are dropped when the number changes
(`when_threads_change`). Linux on x86-64 and aarch64; elsewhere regions run in the caller.
"""
from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
from collections.abc import Callable

from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.engine.runtime.never_freed import never_freed

_MACHINE = platform.machine().lower()
# Number of the futex system call, and the instruction that tells the core it is spinning.
_FUTEX = {"x86_64": 202, "amd64": 202, "aarch64": 98, "arm64": 98}
_X86_PAUSE, _ARM_YIELD = "@llvm.x86.sse2.pause()", "@llvm.aarch64.hint(i32 1)"
_PAUSE = {"x86_64": _X86_PAUSE, "amd64": _X86_PAUSE, "aarch64": _ARM_YIELD, "arm64": _ARM_YIELD}

# Byte offsets in the pool's record; what different threads write often lies on different cache lines.
GENERATION, SLEEPERS, STARTED, THREADS, DONE, LOCK = 0, 4, 8, 12, 64, 128
FUNCTION, DATA, CHUNKS, SPIN, ASKED, PARTS = 192, 200, 208, 216, 224, 232
CLAIM = 256                                           # one line for each part of the chunks
MOST_PARTS = 16
SIZE = CLAIM + 64 * MOST_PARTS

# Rounds of the pause instruction before a worker sleeps: about 30 microseconds, the cost of waking it.
SPIN_ROUNDS = 2000


def supported() -> bool:
    """Whether regions can use more than the calling thread on this platform."""
    return sys.platform == "linux" and _MACHINE in _FUTEX and llvm.available() is None


def set_num_threads(number: int) -> None:
    """Use at most `number` threads, the caller included, from the next region on.

    Raises: TypeError if `number` is not an int; RuntimeError if it is not positive.
    """
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"set_num_threads: expected an int, got {type(number).__name__}")
    if number < 1:
        raise RuntimeError(f"set_num_threads: expected a positive number of threads, got {number}")
    _settings.threads = number
    if _settings.record is not None:
        _field(ctypes.c_int32, THREADS).value = number
    for forget in _settings.followers:
        forget()


def when_threads_change(forget: Callable[[], object]) -> None:
    """Call `forget` whenever the number of threads was set; adding it again changes nothing."""
    if forget not in _settings.followers:
        _settings.followers.append(forget)


def get_num_threads() -> int:
    """The number of threads a region may use: `set_num_threads`, FLAMBEAU_NUM_THREADS, or the cores of this process."""
    return _settings.threads


def entry() -> tuple[int, int]:
    """Addresses for other native code: the pool's record, and ``i64 parallel(ptr record, ptr fn, ptr data, i64 n)``.

`fn` is ``void fn(i64 chunk, ptr data)``. Where the platform has no pool, `parallel` runs the chunks in the caller.
    """
    return record(), compiled()["parallel"]


def parallel(function: int, data: int, chunks: int) -> None:
    """Run the native ``void function(i64 chunk, ptr data)`` for every chunk; the GIL is released meanwhile.
    """
    _caller()(record(), function, data, chunks)


def record() -> int:
    """Address of the pool's record, made on first use and kept for the life of the process."""
    if _settings.record is None:
        raw = never_freed(ctypes.create_string_buffer(SIZE + 64))
        _settings.memory, _settings.record = raw, (ctypes.addressof(raw) + 63) // 64 * 64
        _reset()
    return _settings.record


def alone() -> int:
    """Address of the record of a pool of one thread, for plans too small to share: regions run in the caller."""
    if _settings.alone is None:
        _settings.alone = never_freed(ctypes.create_string_buffer(SIZE))
    return ctypes.addressof(_settings.alone)


class _Settings:
    def __init__(self) -> None:
        self.threads = _initial_threads()
        self.memory: object = None
        self.followers: list[Callable[[], object]] = []
        self.record: int | None = None
        self.alone: ctypes.Array[ctypes.c_char] | None = None


def _initial_threads() -> int:
    asked = os.environ.get("FLAMBEAU_NUM_THREADS", "").strip()
    if asked:
        if not asked.isdigit() or int(asked) < 1:
            raise ValueError(f"FLAMBEAU_NUM_THREADS: expected a positive whole number, got {asked!r}")
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _field(kind: type, offset: int):
    return kind.from_address(record() + offset)


def _reset() -> None:
    """An idle pool without workers: the first region starts them. Threads do not survive a fork, so children do this."""
    if _settings.record is not None:
        ctypes.memset(_settings.record, 0, SIZE)
        _field(ctypes.c_int32, THREADS).value = _settings.threads if supported() else 1
        _field(ctypes.c_int64, SPIN).value = SPIN_ROUNDS
        _field(ctypes.c_int64, PARTS).value = 1


@functools.cache
def compiled() -> dict[str, int]:
    """Addresses of this module's functions, by name. Raises: as `llvm.compile_symbols`."""
    return llvm.compile_symbols(_text(), ("parallel",), llvm.WRITTEN)


@functools.cache
def _caller():
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
                            ctypes.c_int64)(
        compiled()["parallel"])


def _text() -> str:
    if sys.platform != "linux" or _MACHINE not in _FUTEX:
        return _SERIAL + _ALONE
    pause = _PAUSE[_MACHINE]
    declaration = f"declare void {pause.replace('i32 1', 'i32')}\n"
    return declaration + _SERIAL + _POOL.replace("FUTEX_CALL", str(_FUTEX[_MACHINE])).replace("PAUSE", pause)


_SERIAL = """
define internal void @serial(ptr %fn, ptr %data, i64 %n) {
entry:
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %step, label %done
step:
  %i = phi i64 [0, %entry], [%next, %step]
  call void %fn(i64 %i, ptr %data)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %step, label %done
done:
  ret void
}
"""

_ALONE = """
define i64 @parallel(ptr %pool, ptr %fn, ptr %data, i64 %n) {
  call void @serial(ptr %fn, ptr %data, i64 %n)
  ret i64 %n
}
"""

# The chunks are cut into as many parts as there are threads. Each thread begins with a part of its own, the same one in
# every region: what it wrote in one region is in its own cache in the next, and it reads memory in one direction. Then it
# helps with the others. A part's claim word is generation << 32 | next chunk. A worker reads it, then the region's fields,
# then advances it with compare-and-swap: success proves that the fields belonged to that generation, because a new region
# closes all words before it writes the fields.
_POOL = f"""
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @llvm.smin.i32(i32, i32)

; Runs chunks until none is left to claim, part number `first` before the others.
define internal void @claim_chunks(ptr %pool, i64 %generation, i64 %first) {{
entry:
  %fnp = getelementptr i8, ptr %pool, i64 {FUNCTION}
  %datap = getelementptr i8, ptr %pool, i64 {DATA}
  %chunksp = getelementptr i8, ptr %pool, i64 {CHUNKS}
  %partsp = getelementptr i8, ptr %pool, i64 {PARTS}
  %donep = getelementptr i8, ptr %pool, i64 {DONE}
  br label %part
part:
  %k = phi i64 [0, %entry], [%knext, %following]
  %parts = load atomic i64, ptr %partsp acquire, align 8
  %shifted = add i64 %first, %k
  %p = urem i64 %shifted, %parts
  %away = shl i64 %p, 6
  %wordp = getelementptr i8, ptr %pool, i64 %away
  %claimp = getelementptr i8, ptr %wordp, i64 {CLAIM}
  br label %look
look:
  %word = load atomic i64, ptr %claimp acquire, align 8
  %seen = lshr i64 %word, 32
  %ours = icmp eq i64 %seen, %generation
  br i1 %ours, label %read, label %out
read:
  %fn = load atomic ptr, ptr %fnp acquire, align 8
  %data = load atomic ptr, ptr %datap acquire, align 8
  %n = load atomic i64, ptr %chunksp acquire, align 8
  %now = load atomic i64, ptr %partsp acquire, align 8
  %p1 = add i64 %p, 1
  %scaled = mul i64 %n, %p1
  %end = udiv i64 %scaled, %now
  %i = and i64 %word, 4294967295
  %left = icmp slt i64 %i, %end
  br i1 %left, label %claim, label %following
claim:
  %advanced = add i64 %word, 1
  %swap = cmpxchg ptr %claimp, i64 %word, i64 %advanced acq_rel acquire
  %won = extractvalue {{i64, i1}} %swap, 1
  br i1 %won, label %run, label %look
run:
  call void %fn(i64 %i, ptr %data)
  %before = atomicrmw add ptr %donep, i64 1 acq_rel
  br label %look
following:
  %knext = add i64 %k, 1
  %more = icmp slt i64 %knext, %parts
  br i1 %more, label %part, label %out
out:
  ret void
}}

define internal ptr @worker(ptr %pool) {{
entry:
  %generationp = getelementptr i8, ptr %pool, i64 {GENERATION}
  %sleepersp = getelementptr i8, ptr %pool, i64 {SLEEPERS}
  %threadsp = getelementptr i8, ptr %pool, i64 {THREADS}
  %startedp = getelementptr i8, ptr %pool, i64 {STARTED}
  %spinp = getelementptr i8, ptr %pool, i64 {SPIN}
  %spins = load i64, ptr %spinp
  %me = atomicrmw add ptr %startedp, i32 1 seq_cst
  br label %wait
wait:
  %last = phi i32 [0, %entry], [%now, %work], [%now, %posted], [%last, %sleep]
  br label %spin
spin:
  %k = phi i64 [0, %wait], [%knext, %again]
  %now = load atomic i32, ptr %generationp acquire, align 4
  %new = icmp ne i32 %now, %last
  br i1 %new, label %posted, label %again
again:
  call void PAUSE
  %knext = add i64 %k, 1
  %on = icmp slt i64 %knext, %spins
  br i1 %on, label %spin, label %sleep
sleep:
  %s0 = atomicrmw add ptr %sleepersp, i32 1 seq_cst
  %woken = call i64 (i64, ...) @syscall(i64 FUTEX_CALL, ptr %generationp, i32 128, i32 %last, ptr null)
  %s1 = atomicrmw sub ptr %sleepersp, i32 1 seq_cst
  br label %wait
posted:
  %threads = load atomic i32, ptr %threadsp monotonic, align 4
  %workers = sub i32 %threads, 1
  %wanted = icmp slt i32 %me, %workers
  br i1 %wanted, label %work, label %wait
work:
  %generation = zext i32 %now to i64
  %slot = add i32 %me, 1
  %first = zext i32 %slot to i64
  call void @claim_chunks(ptr %pool, i64 %generation, i64 %first)
  br label %wait
}}

; Starts the missing workers; the caller holds the lock.
define internal void @start_workers(ptr %pool, i32 %workers) {{
entry:
  %askedp = getelementptr i8, ptr %pool, i64 {ASKED}
  %thread = alloca i64
  br label %check
check:
  %asked = load i32, ptr %askedp
  %enough = icmp sge i32 %asked, %workers
  br i1 %enough, label %done, label %start
start:
  %failed = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr %pool)
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %done, label %count
count:
  %id = load i64, ptr %thread
  %d = call i32 @pthread_detach(i64 %id)
  %more = add i32 %asked, 1
  store i32 %more, ptr %askedp
  br label %check
done:
  ret void
}}

define i64 @parallel(ptr %pool, ptr %fn, ptr %data, i64 %n) {{
entry:
  %threadsp = getelementptr i8, ptr %pool, i64 {THREADS}
  %threads = load atomic i32, ptr %threadsp monotonic, align 4
  %workers = sub i32 %threads, 1
  %several = icmp sgt i32 %workers, 0
  %split = icmp sgt i64 %n, 1
  %useful = and i1 %several, %split
  br i1 %useful, label %try, label %alone
try:
  %lockp = getelementptr i8, ptr %pool, i64 {LOCK}
  %swap = cmpxchg ptr %lockp, i64 0, i64 1 acquire monotonic
  %ours = extractvalue {{i64, i1}} %swap, 1
  br i1 %ours, label %post, label %alone
alone:
  call void @serial(ptr %fn, ptr %data, i64 %n)
  ret i64 %n
post:
  call void @start_workers(ptr %pool, i32 %workers)
  %fnp = getelementptr i8, ptr %pool, i64 {FUNCTION}
  %datap = getelementptr i8, ptr %pool, i64 {DATA}
  %chunksp = getelementptr i8, ptr %pool, i64 {CHUNKS}
  %donep = getelementptr i8, ptr %pool, i64 {DONE}
  %generationp = getelementptr i8, ptr %pool, i64 {GENERATION}
  %sleepersp = getelementptr i8, ptr %pool, i64 {SLEEPERS}
  %partsp = getelementptr i8, ptr %pool, i64 {PARTS}
  %old = load atomic i32, ptr %generationp monotonic, align 4
  %new = add i32 %old, 1
  %generation = zext i32 %new to i64
  %word = shl i64 %generation, 32
  %closed = or i64 %word, 4294967295
  %few = call i32 @llvm.smin.i32(i32 %threads, i32 {MOST_PARTS})
  %parts = zext i32 %few to i64
  %before = load atomic i64, ptr %partsp monotonic, align 8
  br label %closing
closing:
  ; Those of the region before, of which there may have been more than now.
  %c = phi i64 [0, %post], [%cnext, %closing]
  %c.away = shl i64 %c, 6
  %c.word = getelementptr i8, ptr %pool, i64 %c.away
  %c.claim = getelementptr i8, ptr %c.word, i64 {CLAIM}
  store atomic i64 %closed, ptr %c.claim release, align 8
  %cnext = add i64 %c, 1
  %c.more = icmp slt i64 %cnext, %before
  br i1 %c.more, label %closing, label %fields
fields:
  store atomic ptr %fn, ptr %fnp release, align 8
  store atomic ptr %data, ptr %datap release, align 8
  store atomic i64 %n, ptr %chunksp release, align 8
  store atomic i64 %parts, ptr %partsp release, align 8
  store atomic i64 0, ptr %donep release, align 8
  br label %opening
opening:
  %o = phi i64 [0, %fields], [%onext, %opening]
  %o.away = shl i64 %o, 6
  %o.word = getelementptr i8, ptr %pool, i64 %o.away
  %o.claim = getelementptr i8, ptr %o.word, i64 {CLAIM}
  %o.scaled = mul i64 %n, %o
  %o.start = udiv i64 %o.scaled, %parts
  %o.open = or i64 %word, %o.start
  store atomic i64 %o.open, ptr %o.claim release, align 8
  %onext = add i64 %o, 1
  %o.more = icmp slt i64 %onext, %parts
  br i1 %o.more, label %opening, label %opened
opened:
  store atomic i32 %new, ptr %generationp seq_cst, align 4
  fence seq_cst
  %asleep = load atomic i32, ptr %sleepersp seq_cst, align 4
  %any = icmp sgt i32 %asleep, 0
  br i1 %any, label %wake, label %work
wake:
  %w = call i64 (i64, ...) @syscall(i64 FUTEX_CALL, ptr %generationp, i32 129, i32 %workers)
  br label %work
work:
  call void @claim_chunks(ptr %pool, i64 %generation, i64 0)
  br label %finish
finish:
  %k = phi i32 [0, %work], [%knext, %pause], [0, %yield]
  %done = load atomic i64, ptr %donep acquire, align 8
  %all = icmp eq i64 %done, %n
  br i1 %all, label %release, label %pause
pause:
  call void PAUSE
  %knext = add i32 %k, 1
  %long = icmp sgt i32 %knext, 1000
  br i1 %long, label %yield, label %finish
yield:
  ; A worker that lost its core in the middle of a chunk needs ours to finish.
  %y = call i32 @sched_yield()
  br label %finish
release:
  store atomic i64 0, ptr %lockp release, align 8
  ret i64 %n
}}
"""

_settings = _Settings()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset)
