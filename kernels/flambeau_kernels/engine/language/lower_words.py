"""The words of the kernel language that are more than an operator: one method ``call_*`` for each (see `lower.py`)."""
from __future__ import annotations

import math
from typing import Any

from flambeau_kernels.engine.language import VectorKind, pieces, vector_kind
from flambeau_kernels.engine.language.lower_code import HALVES, PTR, Pointer, say
from flambeau_kernels.engine.language.lower_values import Values
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.scalar import symbols as sy
from flambeau_kernels.scalar.symbols import BOOL, F64, INT, Kind, Symbol

# The instruction that multiplies int16 and adds neighbours' products, by the bits of a vector, and what a processor has it with.
_PAIRS_OF_INT16 = {
    128: (None, "@llvm.x86.sse2.pmadd.wd"), 256: ("avx2", "@llvm.x86.avx2.pmadd.wd"), 512: ("avx512bw", "@llvm.x86.avx512.pmaddw.d.512"),
}
_C_FUNCTIONS = frozenset(("cos", "exp", "lgamma", "log", "log1p", "pow", "sin", "tan"))


class Words(Values):
    """Words for vectors, memory of a call, and functions of `math`."""

    def call_math(self, name: str, args: list[Any]) -> Any:
        """Functions of the `math` module are the C library's, in float64, to the last bit."""
        if not any(isinstance(a, Symbol) for a in args):
            return getattr(math, name)(*args)
        values = [self.number(a).to(F64) for a in args]
        exact = {"sqrt": sy.sqrt, "floor": sy.floor, "ceil": sy.ceil}.get(name)
        if exact is not None:
            return exact(values[0])
        if name not in _C_FUNCTIONS:
            self.refuse(f"math.{name} is not among {', '.join(sorted(_C_FUNCTIONS))}, sqrt, floor and ceil")
        self.code.calls += 1
        self.code.needs.add(f"declare double @{name}({', '.join(['double'] * len(values))})")
        return self.code.instruction(F64, f"call double @{name}({', '.join(f'double {v.name}' for v in values)}) nobuiltin")

    def call_local(self, kind: Kind | str, count: int) -> Pointer:
        dtype: str | Kind = kind if isinstance(kind, (VectorKind, str)) else kind.name
        probe = Pointer(Symbol(self.code, "", PTR), dtype)
        return Pointer(Symbol(self.code, self.code.slot(probe.llvm, count), PTR), dtype)

    def call_pointer(self, address: Symbol, kind: Kind | str) -> Pointer:
        name = kind.name if isinstance(kind, Kind) and not isinstance(kind, VectorKind) else kind
        return Pointer(self.code.emit(PTR, f"inttoptr i64 {self.index(address).name} to ptr"), name)

    def call_run(self, address: Symbol, chunk: Any, arguments: Pointer) -> None:
        code = self.code.emit(PTR, f"inttoptr i64 {self.index(address).name} to ptr")
        self.code.effect(f"call void {code.name}(i64 {self.index(chunk).name}, ptr {arguments.address.name})")
        self.code.calls += 1

    def call_bitcast(self, value: Any, kind: Kind) -> Any:
        if isinstance(value, Pointer):
            return Pointer(value.address, kind if isinstance(kind, (VectorKind, str)) else kind.name)
        return self.code.emit(kind, f"bitcast {value.kind.llvm} {value.name} to {kind.llvm}")

    def call_prefetch(self, place: Pointer) -> None:
        self.code.needs.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.code.effect(f"call void @llvm.prefetch.p0(ptr {place.address.name}, i32 0, i32 3, i32 1)")

    def call_vector(self, kind: Kind, count: int) -> VectorKind:
        return vector_kind(kind, count)

    def call_lanes(self, kind: Kind) -> int:
        return self.register_bits // kind.bits

    def call_widened(self, place: Pointer) -> Kind:
        return place.kind

    def call_broadcast(self, value: Any, count: int) -> Symbol:
        one = value if isinstance(value, Symbol) else self.number(value)
        kind = vector_kind(one.kind, count)
        assert isinstance(kind, VectorKind)
        return self.splat(one, kind)

    def call_load(self, place: Pointer, index: Any, count: int, first: Any = None, other: Any = None) -> Symbol:
        """`count` consecutive elements, or the `first` of them beside `other` (0); half types come as float32."""
        address = self.offset(place, index)
        raw_kind = vector_kind(Kind("raw", place.llvm, 0, "i"), count)
        if first is None:
            text = f"load {raw_kind.llvm}, ptr {address.name}, align 1{self.code.group}"
            return self.widened(self.code.instruction(raw_kind, text), place, count)
        if self.has_masks(place) or isinstance(first, int):
            name = f"@llvm.masked.load.v{count}{suffix(place.llvm)}.p0"
            mask = self.first_lanes(first, count)
            self.code.needs.add(f"declare {raw_kind.llvm} {name}(ptr, i32, {mask.kind.llvm}, {raw_kind.llvm})")
            text = (f"call {raw_kind.llvm} {name}(ptr {address.name}, i32 1, {mask.kind.llvm} {mask.name}, "
                    f"{raw_kind.llvm} zeroinitializer)")
            raw = self.code.instruction(raw_kind, text)
        else:
            raw = self.load_pieces(place, address, raw_kind, count, first)
        value = self.widened(raw, place, count)
        return value if other is None else self.vector_word("where", [self.first_lanes(first, count), value, other])

    def load_pieces(self, place: Pointer, address: Symbol, kind: Any, count: int, first: Symbol) -> Symbol:
        """The `first` elements by a function, where they are not all."""
        code = self.code
        name, body = pieces.loading(place.llvm, count)
        code.needs.add(body)
        some = f"call {kind.llvm} {name}(ptr {address.name}, i64 {self.index(first).name})"
        if not code.has_jumps:
            return code.instruction(kind, some)
        whole, part, after, loaded = code.fresh("whole"), code.fresh("part"), code.fresh("loaded"), code.slot(kind.llvm)
        code.branch(f"i1 {self.truth(first >= count).name}, label %{whole}, label %{part}")
        for label, text in ((whole, f"load {kind.llvm}, ptr {address.name}, align 1{code.group}"), (part, some)):
            code.label(label)
            code.effect(f"store {kind.llvm} {code.instruction(kind, text).name}, ptr {loaded}")
            code.branch(f"label %{after}")
        code.label(after)
        return code.instruction(kind, f"load {kind.llvm}, ptr {loaded}")

    def widened(self, raw: Symbol, place: Pointer, count: int) -> Symbol:
        """Elements of `place` as they lie in memory, as vectors of the kind that is computed in."""
        raw_kind: Any = raw.kind
        kind = vector_kind(place.kind, count)
        if place.dtype == "float16":
            return self.code.emit(kind, f"fpext {raw_kind.llvm} {raw.name} to {kind.llvm}")
        if place.dtype == "bfloat16":
            integers = vector_kind(INT[32], count)
            wide = self.code.emit(integers, f"zext {raw_kind.llvm} {raw.name} to {integers.llvm}")
            sixteen = "<" + ", ".join(["i32 16"] * count) + ">"
            moved = self.code.emit(integers, f"shl {integers.llvm} {wide.name}, {sixteen}")
            return self.code.emit(kind, f"bitcast {integers.llvm} {moved.name} to {kind.llvm}")
        return Symbol(self.code, raw.name, kind)

    def has_masks(self, place: Pointer) -> bool:
        """Whether the processor reads and writes the first elements of a vector by one instruction."""
        return self.register_bits == 512 or self.register_bits == 256 and place.llvm in ("float", "double", "i32", "i64")

    def first_lanes(self, first: Any, count: int) -> Symbol:
        """Truth values that say which of `count` lanes are among the `first`."""
        kind = vector_kind(INT[32], count)
        numbers = "<" + ", ".join(f"i32 {k}" for k in range(count)) + ">"
        limit = self.splat(self.constant(first, INT[32]) if isinstance(first, int) else first.to(INT[32]), kind)
        return self.code.emit(vector_kind(BOOL, count), f"icmp sgt {kind.llvm} {limit.name}, {numbers}")

    def call_shuffle(self, a: Symbol, b: Symbol, lanes: Any) -> Symbol:
        if not isinstance(a.kind, VectorKind) or a.kind != b.kind:
            self.refuse(f"shuffle takes two vectors of one kind, got {say(a)} and {say(b)}")
        chosen = ", ".join(f"i32 {k}" for k in lanes)
        return self.code.emit(vector_kind(a.kind.of, len(lanes)), f"shufflevector {a.kind.llvm} {a.name}, {b.kind.llvm} "
                              f"{b.name}, <{len(lanes)} x i32> <{chosen}>")

    def call_store(self, place: Pointer, index: Any, value: Symbol, first: Any = None) -> None:
        """Consecutive elements, or the `first` of them; half types are rounded."""
        if not isinstance(value, Symbol) or not isinstance(value.kind, VectorKind):
            self.refuse(f"store takes a vector, got {say(value)}")
        if value.kind.of != place.kind or place.dtype == "bool":
            self.refuse(f"a vector of {value.kind.of.name} cannot be stored to {place.dtype}")
        self.check_written(place)
        count = value.kind.count
        if place.dtype in HALVES:
            value = self.halved(value, place, count)
        address = self.offset(place, index)
        if first is None:
            self.store_vector(address, value)
        elif self.register_bits == 512 or isinstance(first, int) or not self.code.has_jumps:
            self.store_first(place, address, value, first)
        else:
            # Without AVX-512 some processors take a dozen times as long for a masked store, and others have none.
            code = self.code
            integers, part, after = code.fresh("whole"), code.fresh("part"), code.fresh("stored")
            code.branch(f"i1 {self.truth(first >= count).name}, label %{integers}, label %{part}")
            code.label(integers)
            self.store_vector(address, value)
            code.branch(f"label %{after}")
            code.label(part)
            self.store_first(place, address, value, first)
            code.branch(f"label %{after}")
            code.label(after)

    def store_vector(self, address: Symbol, value: Symbol) -> None:
        self.code.effect(f"store {value.kind.llvm} {value.name}, ptr {address.name}, align 1{self.code.group}")

    def store_first(self, place: Pointer, address: Symbol, value: Any, first: Any) -> None:
        count = value.kind.count
        if not self.has_masks(place) and not isinstance(first, int):
            name, body = pieces.storing(place.llvm, count)
            self.code.needs.add(body)
            arguments = f"ptr {address.name}, i64 {self.index(first).name}, {value.kind.llvm} {value.name}"
            self.code.effect(f"call void {name}({arguments})")
            return
        mask = self.first_lanes(first, count)
        name = f"@llvm.masked.store.v{count}{suffix(place.llvm)}.p0"
        self.code.needs.add(f"declare void {name}({value.kind.llvm}, ptr, i32, {mask.kind.llvm})")
        self.code.effect(f"call void {name}({value.kind.llvm} {value.name}, ptr {address.name}, i32 1, {mask.kind.llvm} {mask.name})")

    def halved(self, value: Symbol, place: Pointer, count: int) -> Symbol:
        """A vector of `count` float32 as the elements of `place`, rounded to nearest even."""
        code = self.code
        half = vector_kind(Kind("raw", place.llvm, 16, "i"), count)
        if place.dtype == "float16":
            return code.emit(half, f"fptrunc {value.kind.llvm} {value.name} to {half.llvm}")
        integers = vector_kind(INT[32], count)

        def step(operation: str, a: Symbol, b: Symbol | int) -> Symbol:
            other = self.constant(b, integers) if isinstance(b, int) else b
            return code.emit(integers, f"{operation} {integers.llvm} {a.name}, {other.name}")

        bits = code.emit(integers, f"bitcast {value.kind.llvm} {value.name} to {integers.llvm}")
        upper = step("lshr", bits, 16)
        rounded = step("lshr", step("add", bits, step("add", step("and", upper, 1), 0x7FFF)), 16)
        # Rounding could carry a nan's payload away; bfloat16's quiet nan keeps the sign.
        nan = code.emit(vector_kind(BOOL, count), f"fcmp uno {value.kind.llvm} {value.name}, {value.name}")
        chosen = code.emit(integers, f"select {nan.kind.llvm} {nan.name}, {integers.llvm} {step('or', upper, 0x7FC0).name}, "
                           f"{integers.llvm} {rounded.name}")
        return code.emit(half, f"trunc {integers.llvm} {chosen.name} to {half.llvm}")

    def call_multiply_add(self, a: Any, b: Any, total: Any) -> Symbol:
        if not any(isinstance(v, Symbol) and isinstance(v.kind, VectorKind) and v.kind.family == "f" for v in (a, b, total)):
            self.refuse(f"multiply_add takes vectors of floats, got {say(a)}, {say(b)}, {say(total)}")
        values = self.as_vectors(a, b, total)
        kind: Any = values[0].kind
        name = f"@llvm.fmuladd.v{kind.count}f{kind.bits}"
        self.code.needs.add(f"declare {kind.llvm} {name}({', '.join([kind.llvm] * 3)})")
        return self.code.emit(kind, f"call {kind.llvm} {name}({', '.join(f'{kind.llvm} {v.name}' for v in values)})")

    def call_dot_bfloat16(self, a: Symbol, b: Symbol, total: Symbol) -> Symbol:
        kind, count, code = total.kind, self.dot_lanes("dot_bfloat16", a, b, total, "float32"), self.code
        width = self.of_processor(count, "avx512bf16", "avx512bf16")
        if width:
            halves = f"<{2 * count} x bfloat>"
            pairs = [code.emit(Kind("raw", halves, 16, "f"), f"bitcast {v.kind.llvm} {v.name} to {halves}") for v in (a, b)]
            name = f"@llvm.x86.avx512bf16.dpbf16ps.{width}"
            code.needs.add(f"declare {kind.llvm} {name}({kind.llvm}, {halves}, {halves})")
            return code.emit(kind, f"call {kind.llvm} {name}({kind.llvm} {total.name}, {halves} {pairs[0].name}, {halves} {pairs[1].name})")
        # Products of two bfloat16 are exact in float32, so it makes no difference whether they are fused with the sum.
        integers = vector_kind(INT[32], count)
        for operation, other in (("and", -65536), ("shl", 16)):
            parts = [code.emit(integers, f"{operation} {integers.llvm} {v.name}, {self.constant(other, integers).name}") for v in (a, b)]
            x, y = (code.emit(kind, f"bitcast {integers.llvm} {part.name} to {kind.llvm}") for part in parts)
            total = self.call_multiply_add(x, y, total)
        return total

    def call_dot_int8(self, a: Symbol, b: Symbol, total: Symbol) -> Symbol:
        kind, count, code = total.kind, self.dot_lanes("dot_int8", a, b, total, "int32"), self.code
        width = self.of_processor(count, "avx512vnni", "avxvnni")
        if width:
            bytes_ = f"<{4 * count} x i8>"
            fours = [code.emit(Kind("raw", bytes_, 8, "i"), f"bitcast {kind.llvm} {v.name} to {bytes_}") for v in (a, b)]
            name = f"@llvm.x86.avx512.vpdpbusd.{width}"
            code.needs.add(f"declare {kind.llvm} {name}({kind.llvm}, {bytes_}, {bytes_})")
            return code.emit(kind, f"call {kind.llvm} {name}({kind.llvm} {total.name}, {bytes_} {fours[0].name}, {bytes_} {fours[1].name})")

        def step(operation: str, v: Symbol, by: Symbol | int) -> Symbol:
            other = self.constant(by, kind) if isinstance(by, int) else by
            return code.emit(kind, f"{operation} {kind.llvm} {v.name}, {other.name}")

        for place in range(0, 32, 8):
            x = step("and", step("lshr", a, place), 255)
            y = step("ashr", step("shl", b, 24 - place), 24)
            total = step("add", total, step("mul", x, y))
        return total

    def call_dot_int16(self, a: Symbol, b: Symbol, total: Symbol) -> Symbol:
        kind, count, code = total.kind, self.dot_lanes("dot_int16", a, b, total, "int32"), self.code
        machine = llvm.machine()
        name = _PAIRS_OF_INT16.get(32 * count) if machine.triple.startswith("x86_64") else None
        if name is not None and (name[0] is None or f"+{name[0]}" in machine.features.split(",")):
            words = f"<{2 * count} x i16>"
            pairs = [code.emit(Kind("raw", words, 16, "i"), f"bitcast {kind.llvm} {v.name} to {words}") for v in (a, b)]
            code.needs.add(f"declare {kind.llvm} {name[1]}({words}, {words})")
            both = code.emit(kind, f"call {kind.llvm} {name[1]}({words} {pairs[0].name}, {words} {pairs[1].name})")
            return code.emit(kind, f"add {kind.llvm} {total.name}, {both.name}")

        def step(operation: str, v: Symbol, by: Symbol | int) -> Symbol:
            other = self.constant(by, kind) if isinstance(by, int) else by
            return code.emit(kind, f"{operation} {kind.llvm} {v.name}, {other.name}")

        for place in (16, 0):
            x, y = (step("ashr", step("shl", v, place), 16) for v in (a, b))
            total = step("add", total, step("mul", x, y))
        return total

    def dot_lanes(self, word: str, a: Any, b: Any, total: Any, kind: str) -> int:
        """Lanes of the operands of a dot product."""
        vectors = all(isinstance(v, Symbol) and isinstance(v.kind, VectorKind) for v in (a, b, total))
        if not vectors or a.kind != b.kind or a.kind.of is not INT[32] or total.kind.of.name != kind or a.kind.count != total.kind.count:
            self.refuse(f"{word} takes two vectors of int32 and one of {kind} of as many lanes, got {say(a)}, {say(b)}, {say(total)}")
        return a.kind.count

    def of_processor(self, count: int, wide: str, narrow: str) -> int:
        """The bits of the processor's own dot products of `count` lanes, which it has with `wide` or, below 512, `narrow`; else 0."""
        features, bits = llvm.machine().features.split(","), 32 * count
        if bits not in (128, 256, 512):
            return 0
        short = f"+{wide}" in features and "+avx512vl" in features or f"+{narrow}" in features and narrow != wide
        return bits if (f"+{wide}" in features if bits == 512 else short) else 0

    def call_lane_sum(self, value: Symbol) -> Symbol:
        kind = value.kind
        assert isinstance(kind, VectorKind)
        count, code = kind.count, self.code
        while count > 1:                              # fold the upper half onto the lower one
            count //= 2
            mask = ", ".join(f"i32 {count + k}" for k in range(count))
            low = ", ".join(f"i32 {k}" for k in range(count))
            half = vector_kind(kind.of, count)
            text = "shufflevector {0} {1}, {0} poison, <{2} x i32> <{3}>"
            upper = code.emit(half, text.format(value.kind.llvm, value.name, count, mask))
            lower = code.emit(half, text.format(value.kind.llvm, value.name, count, low))
            value = code.emit(half, f"{'fadd' if kind.family == 'f' else 'add'} {half.llvm} {lower.name}, {upper.name}")
        return code.emit(kind.of, f"extractelement {value.kind.llvm} {value.name}, i64 0")


def suffix(name: str) -> str:
    """How the names of overloaded intrinsics spell an LLVM type."""
    return {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16"}.get(name, name)
