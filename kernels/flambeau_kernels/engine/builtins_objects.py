"""Builtins that make and read objects of one class with slots, which hold an array and what is known of it.

The framework says which class that is (`hot_calls.of_class`), and which of its slots are meant; nothing here knows what
they are for. These builtins have a table of their own, `pyabi.object_table`.
"""
from __future__ import annotations

from flambeau_kernels.engine import pyabi
from flambeau_kernels.engine.builtins_shapes import MOST_BYTES
from flambeau_kernels.engine.fastcall import C_ORDER, Code, Module

MOST_VIEWS = 32                                       # of one storage; the caller looks after more of them


class ObjectCode(Code):
    """A builtin with the longer table."""

    def slot(self, name: str) -> str:
        at = self.let(f"getelementptr ptr, ptr %table, i64 {(*pyabi.SLOTS, *pyabi.OBJECT_SLOTS).index(name)}")
        return self.let(f"load ptr, ptr {at}")

    def start(self, arguments: int) -> list[str]:
        self.do(f"%table.at = getelementptr i8, ptr %self, i64 {pyabi.DATA}", "%table = load ptr, ptr %table.at")
        self.require(self.let(f"icmp eq i64 %nargs, {arguments}"))
        return [self.element("%args", k, "ptr") for k in range(arguments)]

    def place(self, item: str, name: str) -> str:
        """Where the slot `name` of the object `item` is."""
        return self.let(f"getelementptr i8, ptr {item}, i64 {self.let(f'ptrtoint ptr {self.slot(name)} to i64')}")

    def hold(self, at: str, value: str) -> None:
        """Store a new reference to `value`."""
        self.do(f"call void {self.slot('incref')}(ptr {value})", f"store ptr {value}, ptr {at}")

    def new(self) -> str:
        """A new object of the class; its slots are empty."""
        made = self.let(f"call ptr {self.slot('new_object')}(ptr {self.slot('class')}, i64 0)")
        self.return_null_if_null(made)
        return made

    def require_object(self, item: str) -> None:
        """`item` must be an object of the class, or of a subclass."""
        kind = self.field(item, pyabi.TYPE, "ptr")
        known, other = self.fresh("known"), self.fresh("other")
        self.branch(self.let(f"icmp eq ptr {kind}, {self.slot('class')}"), known, other)
        self.label(other)
        below = self.let(f"call i32 {self.slot('is_subclass')}(ptr {kind}, ptr {self.slot('class')})")
        self.require(self.let(f"icmp ne i32 {below}, 0"))
        self.do(f"br label %{known}")
        self.label(known)

    def is_slot(self, item: str, name: str) -> str:
        return self.let(f"icmp eq ptr {item}, {self.slot(name)}")


def over(module: Module, name: str) -> None:
    """Add the builtin ``(array) -> object``: a new one with a record of its own, and neither node nor link nor grad."""
    code = ObjectCode(f"ptr @fb_{name}(ptr %self, ptr %args, i64 %nargs)")
    (array,) = code.start(1)
    code.require(code.let(f"icmp eq ptr {code.field(array, pyabi.TYPE, 'ptr')}, {code.slot('ndarray')}"))
    record = code.let(f"call ptr {code.slot('new_list')}(i64 4)")
    code.return_null_if_null(record)
    items = code.field(record, pyabi.LIST_ITEMS, "ptr")
    for k, value in enumerate(("zero", "zero", "None", "None")):
        code.hold(code.let(f"getelementptr ptr, ptr {items}, i64 {k}"), code.slot(value))
    made = code.let(f"call ptr {code.slot('new_object')}(ptr {code.slot('class')}, i64 0)")
    code.return_null_if_null(made, undo=record)
    code.do(f"store ptr {record}, ptr {code.place(made, 'record')}")
    code.hold(code.place(made, "array"), array)
    for empty in ("node", "link", "grad"):
        code.hold(code.place(made, empty), code.slot("None"))
    code.do(f"ret ptr {made}")
    module.functions.append(code.text())


def view_of(module: Module, name: str) -> None:
    """Add the builtin ``(source, array, op, rest, registered) -> object``: a new one with the record of `source`, and no node.

    Its link is ``(base, op, rest, link of the source)``, where a source without a link is the base itself. If `registered` is
    True the record's fourth item, a list or None, gets a weak reference to it. Arrays without elements are left to the caller.
    """
    code = ObjectCode(f"ptr @fb_{name}(ptr %self, ptr %args, i64 %nargs)")
    base = code.let("alloca ptr")
    source, array, op, rest, registered = code.start(5)
    code.require_object(source)
    _require_elements(code, array)
    record, before = (code.let(f"load ptr, ptr {code.place(source, slot)}") for slot in ("record", "link"))
    for item in (record, before):
        code.require(code.let(f"icmp ne ptr {item}, null"))
    code.require(code.let(f"icmp eq ptr {code.field(record, pyabi.TYPE, 'ptr')}, {code.slot('list')}"))
    code.require(code.let(f"icmp uge i64 {code.field(record, pyabi.LENGTH, 'i64')}, 4"))
    code.do(f"store ptr {source}, ptr {base}")
    code.branch(code.is_slot(before, "None"), "based", "further")
    code.label("further")
    code.require(code.let(f"icmp eq ptr {code.field(before, pyabi.TYPE, 'ptr')}, {code.slot('tuple')}"))
    code.require(code.let(f"icmp eq i64 {code.field(before, pyabi.LENGTH, 'i64')}, 4"))
    code.do(f"store ptr {code.field(before, pyabi.TUPLE_ITEMS, 'ptr')}, ptr {base}", "br label %based")
    code.label("based")
    wanted = code.is_slot(registered, "True")
    views = code.element(code.field(record, pyabi.LIST_ITEMS, "ptr"), 3, "ptr")
    listed = code.let(f"xor i1 {code.is_slot(views, 'None')}, true")
    code.branch(code.let(f"and i1 {wanted}, {listed}"), "list", "ready")
    code.label("list")
    code.require(code.let(f"icmp eq ptr {code.field(views, pyabi.TYPE, 'ptr')}, {code.slot('list')}"))
    code.require(code.let(f"icmp ult i64 {code.field(views, pyabi.LENGTH, 'i64')}, {MOST_VIEWS}"))
    code.do("br label %ready")
    code.label("ready")

    made = code.new()
    code.hold(code.place(made, "array"), array)
    code.hold(code.place(made, "record"), record)
    for empty in ("node", "grad"):
        code.hold(code.place(made, empty), code.slot("None"))
    link = code.let(f"call ptr {code.slot('new_tuple')}(i64 4)")
    code.return_null_if_null(link, undo=made)
    for k, value in enumerate((code.let(f"load ptr, ptr {base}"), op, rest, before)):
        code.hold(code.let(f"getelementptr i8, ptr {link}, i64 {pyabi.TUPLE_ITEMS + 8 * k}"), value)
    code.do(f"store ptr {link}, ptr {code.place(made, 'link')}")
    code.branch(wanted, "register", "made")
    code.label("register")
    reference = code.let(f"call ptr {code.slot('new_reference')}(ptr {made}, ptr null)")
    code.return_null_if_null(reference, undo=made)
    # Making it may have run the garbage collector, and that anything.
    place = code.let(f"getelementptr ptr, ptr {code.field(record, pyabi.LIST_ITEMS, 'ptr')}, i64 3")
    now = code.let(f"load ptr, ptr {place}")
    code.branch(code.is_slot(now, "None"), "start", "append")
    code.label("start")
    fresh = code.let(f"call ptr {code.slot('new_list')}(i64 1)")
    code.return_null_if_null(fresh, undo=made)
    code.do(f"store ptr {reference}, ptr {code.field(fresh, pyabi.LIST_ITEMS, 'ptr')}", f"store ptr {fresh}, ptr {place}",
            f"call void {code.slot('decref')}(ptr {code.slot('None')})", "br label %made")
    code.label("append")
    status = code.let(f"call i32 {code.slot('append')}(ptr {now}, ptr {reference})")
    code.do(f"call void {code.slot('decref')}(ptr {reference})")
    code.branch(code.let(f"icmp eq i32 {status}, 0"), "made", "unlisted")
    code.label("unlisted")
    code.do(f"call void {code.slot('decref')}(ptr {made})", "ret ptr null")
    code.label("made")
    code.do(f"ret ptr {made}")
    module.functions.append(code.text())


def _require_elements(code: ObjectCode, array: str) -> None:
    """No dimension of `array` may be 0, if it is an array of numpy's."""
    code.branch(code.let(f"icmp eq ptr {code.field(array, pyabi.TYPE, 'ptr')}, {code.slot('ndarray')}"), "shaped", "filled")
    code.label("shaped")
    ndim = code.let(f"sext i32 {code.field(array, pyabi.NDIM, 'i32')} to i64")
    lengths = code.field(array, pyabi.SHAPE, "ptr")
    code.do("br label %length")
    code.label("length")
    code.do("%d = phi i64 [0, %shaped], [%d.next, %long]")
    code.branch(code.let(f"icmp slt i64 %d, {ndim}"), "look", "filled")
    code.label("look")
    code.require(code.let(f"icmp ne i64 {code.element(lengths, '%d', 'i64')}, 0"))
    code.do("br label %long")
    code.label("long")
    code.do("%d.next = add nuw nsw i64 %d, 1", "br label %length, !llvm.loop !0")
    code.label("filled")


def sizes_of(module: Module, name: str) -> None:
    """Add the builtin ``(object) -> sizes``: the shape of its array, as a tuple of the class for sizes.

    What it was not made for, `other_sizes` answers.
    """
    code = ObjectCode(f"ptr @fb_{name}(ptr %self, ptr %args, i64 %nargs)")
    (item,) = code.start(1)
    kind = code.field(item, pyabi.TYPE, "ptr")
    code.branch(code.let(f"icmp eq ptr {kind}, {code.slot('class')}"), "own", "other")
    code.label("own")
    array = code.let(f"load ptr, ptr {code.place(item, 'array')}")
    code.branch(code.let(f"icmp eq ptr {array}, null"), "other", "filled")
    code.label("filled")
    code.branch(code.let(f"icmp eq ptr {code.field(array, pyabi.TYPE, 'ptr')}, {code.slot('ndarray')}"), "array", "other")
    code.label("other")
    answer = code.let(f"call ptr {code.slot('call')}(ptr {code.slot('other_sizes')}, ptr {item})")
    code.do(f"ret ptr {answer}")
    code.label("array")
    ndim = code.let(f"sext i32 {code.field(array, pyabi.NDIM, 'i32')} to i64")
    made = code.let(f"call ptr {code.slot('new_object')}(ptr {code.slot('sizes')}, i64 {ndim})")
    code.return_null_if_null(made)
    lengths = code.field(array, pyabi.SHAPE, "ptr")
    code.do("br label %start")
    code.label("start")
    code.do("br label %dimension")
    code.label("dimension")
    code.do("%i = phi i64 [0, %start], [%next, %stored]")
    code.branch(code.let(f"icmp slt i64 %i, {ndim}"), "body", "done")
    code.label("body")
    size = code.let(f"call ptr {code.slot('new_int')}(i64 {code.element(lengths, '%i', 'i64')})")
    code.branch(code.let(f"icmp eq ptr {size}, null"), "failed", "stored")
    code.label("failed")
    code.do(f"call void {code.slot('decref')}(ptr {made})", "ret ptr null")
    code.label("stored")
    first = code.let(f"getelementptr i8, ptr {made}, i64 {pyabi.TUPLE_ITEMS}")
    code.do(f"store ptr {size}, ptr {code.let(f'getelementptr ptr, ptr {first}, i64 %i')}", "%next = add nuw nsw i64 %i, 1",
            "br label %dimension, !llvm.loop !0")
    code.label("done")
    code.do(f"ret ptr {made}")
    module.functions.append(code.text())


def store_in(module: Module, name: str) -> None:
    """Add the builtin ``(target, source, *operands) -> True``: the elements of `source` are those of `target` as well now.

    Both are objects of the class, without a node, of arrays in C order of one dtype and shape, and a link of the target's leads to an
    object without a node. Operands are numbers, None, or objects whose arrays, in C or Fortran order, have no memory of the target's.
    """
    code = ObjectCode(f"ptr @fb_{name}(ptr %self, ptr %args, i64 %nargs)")
    code.do(f"%table.at = getelementptr i8, ptr %self, i64 {pyabi.DATA}", "%table = load ptr, ptr %table.at")
    code.require(code.let("icmp uge i64 %nargs, 2"))
    target, source = (code.element("%args", k, "ptr") for k in (0, 1))
    to, made = _array_of(code, target, C_ORDER | pyabi.WRITEABLE), _array_of(code, source, C_ORDER)
    for item in (target, source):
        code.require(code.is_slot(code.let(f"load ptr, ptr {code.place(item, 'node')}"), "None"))
    link = code.let(f"load ptr, ptr {code.place(target, 'link')}")
    code.require(code.let(f"icmp ne ptr {link}, null"))
    code.branch(code.is_slot(link, "None"), "unlinked", "linked")
    code.label("linked")
    code.require(code.let(f"icmp eq ptr {code.field(link, pyabi.TYPE, 'ptr')}, {code.slot('tuple')}"))
    code.require(code.let(f"icmp eq i64 {code.field(link, pyabi.LENGTH, 'i64')}, 4"))
    base = code.field(link, pyabi.TUPLE_ITEMS, "ptr")
    code.require_object(base)
    code.require(code.is_slot(code.let(f"load ptr, ptr {code.place(base, 'node')}"), "None"))
    code.do("br label %unlinked")
    code.label("unlinked")
    dtype = code.field(to, pyabi.DTYPE, "ptr")
    code.require(code.let(f"icmp eq ptr {dtype}, {code.field(made, pyabi.DTYPE, 'ptr')}"))
    code.require(code.let(f"call i1 @same_shape(ptr {to}, ptr {made})"))
    size = _bytes_of(code, to)
    code.require(code.let(f"icmp ule i64 {size}, {MOST_BYTES}"))
    begin = code.let(f"ptrtoint ptr {code.field(to, pyabi.DATA, 'ptr')} to i64")
    end = code.let(f"add i64 {begin}, {size}")

    code.do("br label %start")
    code.label("start")
    code.do("br label %next")
    code.label("next")
    code.do("%k = phi i64 [2, %start], [%k.next, %apart]")
    code.branch(code.let("icmp ult i64 %k, %nargs"), "operand", "store")
    code.label("operand")
    item = code.element("%args", "%k", "ptr")
    kind = code.field(item, pyabi.TYPE, "ptr")
    plain = code.is_slot(item, "None")
    for number in ("float", "int"):
        plain = code.let(f"or i1 {plain}, {code.let(f'icmp eq ptr {kind}, {code.slot(number)}')}")
    code.branch(plain, "apart", "object")
    code.label("object")
    array = _array_of(code, item, pyabi.ALIGNED)
    either = code.let(f"and i32 {code.field(array, pyabi.FLAGS, 'i32')}, {pyabi.C_CONTIGUOUS | pyabi.F_CONTIGUOUS}")
    code.require(code.let(f"icmp ne i32 {either}, 0"))
    first = code.let(f"ptrtoint ptr {code.field(array, pyabi.DATA, 'ptr')} to i64")
    last = code.let(f"add i64 {first}, {_bytes_of(code, array)}")
    before, after = code.let(f"icmp ule i64 {end}, {first}"), code.let(f"icmp ule i64 {last}, {begin}")
    code.require(code.let(f"or i1 {before}, {after}"))
    code.do("br label %apart")
    code.label("apart")
    code.do("%k.next = add nuw nsw i64 %k, 1", "br label %next, !llvm.loop !0")
    code.label("store")
    code.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {code.field(to, pyabi.DATA, 'ptr')}, ptr {code.field(made, pyabi.DATA, 'ptr')}, "
            f"i64 {size}, i1 false)", f"call void {code.slot('incref')}(ptr {code.slot('True')})", f"ret ptr {code.slot('True')}")
    module.functions.append(code.text())


def _array_of(code: ObjectCode, item: str, flags: int) -> str:
    """The array of `item`, which must be an object of the class, and the array one of numpy's with these flags."""
    code.require(code.let(f"icmp eq ptr {code.field(item, pyabi.TYPE, 'ptr')}, {code.slot('class')}"))
    array = code.let(f"load ptr, ptr {code.place(item, 'array')}")
    code.require(code.let(f"icmp ne ptr {array}, null"))
    code.require(code.let(f"icmp eq ptr {code.field(array, pyabi.TYPE, 'ptr')}, {code.slot('ndarray')}"))
    has = code.let(f"and i32 {code.field(array, pyabi.FLAGS, 'i32')}, {flags}")
    code.require(code.let(f"icmp eq i32 {has}, {flags}"))
    return array


def _bytes_of(code: ObjectCode, array: str) -> str:
    """The bytes of the elements of `array`."""
    count = code.let(f"call i64 @count(ptr {array})")
    return code.let(f"mul i64 {count}, {code.field(code.field(array, pyabi.DTYPE, 'ptr'), pyabi.ITEM_SIZE, 'i64')}")
