"""Builtins that make and read objects of one class with slots, which hold an array and what is known of it.

The framework says which class that is (`hot_calls.of_class`), and which of its slots are meant; nothing here knows what
they are for. These builtins have a table of their own, `pyabi.object_table`.
"""
from __future__ import annotations

from typing import NamedTuple

from flambeau_kernels import hot_calls
from flambeau_kernels.engine.builtins import pyabi
from flambeau_kernels.engine.builtins.fastcall import C_ORDER, Code, Module
from flambeau_kernels.engine.builtins.shapes import MOST_BYTES, copy, dimension, integer, loop, put, require_type, room, view_in


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
    code.return_null_if_null(made, record)
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
    origin = _origin(code, source, base)
    listed = code.is_slot(registered, "True")
    _require_room_for_one(code, origin.record, listed)

    made = code.new()
    code.hold(code.place(made, "array"), array)
    _fill(code, made, origin, op, rest, made)
    _register(code, origin.record, made, listed, undo=made)
    code.do(f"ret ptr {made}")
    module.functions.append(code.text())


def view_by(module: Module, name: str, builtin: str, arguments: int) -> None:
    """Add the builtin ``(source, *arguments, op, recorded) -> object``: the view whose array the builtin of that name makes.

    That takes an array and as many `arguments`, a tuple of which the link has, and is in this module. Else as `view_of`; but the node
    is True where the source has one. If operations are `recorded`, the storage knows of all views except of sources whose node says
    that they are `unlisted`.
    """
    code = ObjectCode(f"ptr @fb_{name}(ptr %self, ptr %args, i64 %nargs)")
    base, given = code.let("alloca ptr"), code.let(f"alloca [{arguments + 1} x ptr]")
    source, *rest, op, recorded = code.start(arguments + 3)
    code.require_object(source)
    array, node = (code.let(f"load ptr, ptr {code.place(source, slot)}") for slot in ("array", "node"))
    for item in (array, node):
        code.require(code.let(f"icmp ne ptr {item}, null"))
    require_type(code, array, "ndarray")
    origin = _origin(code, source, base)
    listed = code.let(f"and i1 {code.is_slot(recorded, 'True')}, {code.let(f'xor i1 {_is_unlisted(code, node)}, true')}")
    _require_room_for_one(code, origin.record, listed)
    for k, item in enumerate((array, *rest)):
        code.do(f"store ptr {item}, ptr {code.let(f'getelementptr ptr, ptr {given}, i64 {k}')}")
    seen = code.let(f"call ptr @fb_{builtin}(ptr %self, ptr {given}, i64 {arguments + 1})")
    code.return_null_if_null(seen)
    code.branch(code.is_slot(seen, "None"), "unseen", "seen")
    code.label("unseen")
    code.do(f"ret ptr {seen}")
    code.label("seen")
    code.branch(code.let(f"icmp eq i64 {code.let(f'call i64 @count(ptr {seen})')}, 0"), "empty", "filled")
    code.label("empty")
    code.do(f"call void {code.slot('decref')}(ptr {seen})", "br label %refuse")
    code.label("filled")

    made = code.let(f"call ptr {code.slot('new_object')}(ptr {code.slot('class')}, i64 0)")
    code.return_null_if_null(made, seen)
    code.do(f"store ptr {seen}, ptr {code.place(made, 'array')}")
    kept = code.let(f"call ptr {code.slot('new_tuple')}(i64 {arguments})")
    code.return_null_if_null(kept, made)
    for k, item in enumerate(rest):
        code.hold(code.let(f"getelementptr i8, ptr {kept}, i64 {pyabi.TUPLE_ITEMS + 8 * k}"), item)
    _fill(code, made, origin, op, kept, made, kept)
    code.do(f"call void {code.slot('decref')}(ptr {kept})")
    code.branch(code.is_slot(node, "None"), "plain", "noded")
    code.label("noded")
    code.hold(code.place(made, "node"), code.slot("True"))
    code.do(f"call void {code.slot('decref')}(ptr {code.slot('None')})", "br label %plain")
    code.label("plain")
    _register(code, origin.record, made, listed, undo=made)
    code.do(f"ret ptr {made}")
    module.functions.append(code.text())


def _is_unlisted(code: ObjectCode, node: str) -> str:
    """Whether the storage does not know of the views of an object that has this `node`."""
    code.do("br label %unlisted.start")
    code.label("unlisted.start")
    kind = code.field(node, pyabi.TYPE, "ptr")
    code.branch(code.let(f"icmp eq ptr {kind}, {code.slot('unlisted_class')}"), "unlisted.look", "unlisted.known")
    code.label("unlisted.look")
    value = code.let(f"load ptr, ptr {code.place(node, 'unlisted_slot')}")
    same = code.let(f"icmp eq ptr {value}, {code.slot('unlisted_value')}")
    code.do("br label %unlisted.known")
    code.label("unlisted.known")
    return code.let(f"phi i1 [false, %unlisted.start], [{same}, %unlisted.look]")


class _Origin(NamedTuple):
    """What views of an object have of it: the record of its storage, its link, and the object that is the base."""

    record: str
    link: str
    base: str


def _origin(code: ObjectCode, source: str, base: str) -> _Origin:
    """Of the object `source`; `base` is memory for a pointer."""
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
    return _Origin(record, before, code.let(f"load ptr, ptr {base}"))


def _require_room(code: ObjectCode, record: str, registered: str, count: str) -> None:
    """The storage must not have so many views that the caller looks whether they are still there, if it is to know of `count` more.

    `registered` is an i1, here and below.
    """
    views = code.element(code.field(record, pyabi.LIST_ITEMS, "ptr"), 3, "ptr")
    listed = code.let(f"xor i1 {code.is_slot(views, 'None')}, true")
    code.branch(code.let(f"and i1 {registered}, {listed}"), "list", "ready")
    code.label("list")
    code.require(code.let(f"icmp eq ptr {code.field(views, pyabi.TYPE, 'ptr')}, {code.slot('list')}"))
    after = code.let(f"add i64 {code.field(views, pyabi.LENGTH, 'i64')}, {count}")
    code.require(code.let(f"icmp ule i64 {after}, {hot_calls.MOST_VIEWS}"))
    code.do("br label %ready")
    code.label("ready")


def _require_room_for_one(code: ObjectCode, record: str, registered: str) -> None:
    """As `_require_room`, for one view more, which may take the place of one that is gone."""
    views = code.element(code.field(record, pyabi.LIST_ITEMS, "ptr"), 3, "ptr")
    listed = code.let(f"xor i1 {code.is_slot(views, 'None')}, true")
    code.branch(code.let(f"and i1 {registered}, {listed}"), "list", "ready")
    code.label("list")
    code.require(code.let(f"icmp eq ptr {code.field(views, pyabi.TYPE, 'ptr')}, {code.slot('list')}"))
    code.branch(code.let(f"icmp ult i64 {code.field(views, pyabi.LENGTH, 'i64')}, {hot_calls.MOST_VIEWS}"), "ready", "full")
    code.label("full")
    code.require(code.let(f"icmp ne ptr {_free_place(code, views)}, null"))
    code.do("br label %ready")
    code.label("ready")


def _free_place(code: ObjectCode, views: str) -> str:
    """Where in the list `views` one of the last two weak references is to what is gone; else null.

    So a program that makes one view after the other, and keeps none or the newest alone, has a list that stays short.
    """
    n, items = code.field(views, pyabi.LENGTH, "i64"), code.field(views, pyabi.LIST_ITEMS, "ptr")
    found, known = [], code.fresh("free.known")
    for back in (1, 2):
        there, mine, look, next_one = (code.fresh(f"free.{what}") for what in ("there", "mine", "look", "next"))
        code.branch(code.let(f"icmp uge i64 {n}, {back}"), there, next_one)
        code.label(there)
        place = code.let(f"getelementptr ptr, ptr {items}, i64 {code.let(f'sub i64 {n}, {back}')}")
        reference = code.let(f"load ptr, ptr {place}")
        kind = code.field(reference, pyabi.TYPE, "ptr")
        code.branch(code.let(f"icmp eq ptr {kind}, {code.slot('reference')}"), look, next_one)
        code.label(look)
        code.branch(code.is_slot(code.field(reference, pyabi.REFERENT, "ptr"), "None"), mine, next_one)
        code.label(mine)
        code.do(f"br label %{known}")
        found.append(f"[{place}, %{mine}]")
        code.label(next_one)
    nowhere = code.fresh("free.nowhere")
    code.do(f"br label %{nowhere}")
    code.label(nowhere)
    code.do(f"br label %{known}")
    code.label(known)
    return code.let(f"phi ptr {', '.join(found)}, [null, %{nowhere}]")


def _fill(code: ObjectCode, made: str, origin: _Origin, op: str, rest: str, *undo: str) -> None:
    """Store in the new object `made`, which has its array, what else a view has."""
    code.hold(code.place(made, "record"), origin.record)
    for empty in ("node", "grad"):
        code.hold(code.place(made, empty), code.slot("None"))
    link = code.let(f"call ptr {code.slot('new_tuple')}(i64 4)")
    code.return_null_if_null(link, *undo)
    for k, value in enumerate((origin.base, op, rest, origin.link)):
        code.hold(code.let(f"getelementptr i8, ptr {link}, i64 {pyabi.TUPLE_ITEMS + 8 * k}"), value)
    code.do(f"store ptr {link}, ptr {code.place(made, 'link')}")


def _register(code: ObjectCode, record: str, made: str, registered: str, undo: str) -> None:
    """Let the record know of the view `made`, by a weak reference, if it is to be `registered`."""
    code.branch(registered, "register", "made")
    code.label("register")
    reference = code.let(f"call ptr {code.slot('new_reference')}(ptr {made}, ptr null)")
    code.return_null_if_null(reference, undo)
    # Making it may have run the garbage collector, and that anything.
    place = code.let(f"getelementptr ptr, ptr {code.field(record, pyabi.LIST_ITEMS, 'ptr')}, i64 3")
    now = code.let(f"load ptr, ptr {place}")
    code.branch(code.is_slot(now, "None"), "start", "append")
    code.label("start")
    fresh = code.let(f"call ptr {code.slot('new_list')}(i64 1)")
    code.return_null_if_null(fresh, undo)
    code.do(f"store ptr {reference}, ptr {code.field(fresh, pyabi.LIST_ITEMS, 'ptr')}", f"store ptr {fresh}, ptr {place}",
            f"call void {code.slot('decref')}(ptr {code.slot('None')})", "br label %made")
    code.label("append")
    free = _free_place(code, now)
    code.branch(code.let(f"icmp eq ptr {free}, null"), "further.one", "replace")
    code.label("replace")
    gone = code.let(f"load ptr, ptr {free}")
    code.do(f"store ptr {reference}, ptr {free}", f"call void {code.slot('decref')}(ptr {gone})", "br label %made")
    code.label("further.one")
    status = code.let(f"call i32 {code.slot('append')}(ptr {now}, ptr {reference})")
    code.do(f"call void {code.slot('decref')}(ptr {reference})")
    code.branch(code.let(f"icmp eq i32 {status}, 0"), "made", "unlisted")
    code.label("unlisted")
    code.do(f"call void {code.slot('decref')}(ptr {undo})", "ret ptr null")
    code.label("made")


def views_of(module: Module, name: str) -> None:
    """Add the builtin ``(source, dim, sizes, ops, rest, registered) -> tuple of objects``: views of all parts of `source` along `dim`.

    `sizes` are the lengths of the parts, a tuple, or None for parts without that dimension. None of them is 0, and they add up to its
    length. `ops` is a list with an op for each part, or one op for all; `rest` a tuple for all parts, or a list of one for each. All
    else is as for `view_of`.
    """
    code = ObjectCode(f"ptr @fb_{name}(ptr %self, ptr %args, i64 %nargs)")
    base, overflow = code.let("alloca ptr"), code.let("alloca i32")
    count, total, place = (code.let("alloca i64") for _ in range(3))
    shape, strides = room(code, 2)
    source, dim, sizes, ops, rest, registered = code.start(6)
    code.require_object(source)
    array = code.let(f"load ptr, ptr {code.place(source, 'array')}")
    code.require(code.let(f"icmp ne ptr {array}, null"))
    require_type(code, array, "ndarray")
    require_type(code, dim, "int")
    code.require(code.let(f"icmp ne i64 {code.let(f'call i64 @count(ptr {array})')}, 0"))
    ndim = code.let(f"sext i32 {code.field(array, pyabi.NDIM, 'i32')} to i64")
    d = dimension(code, integer(code, dim, overflow), ndim)
    lengths, steps = code.field(array, pyabi.SHAPE, "ptr"), code.field(array, pyabi.STRIDES, "ptr")
    length, step = code.element(lengths, d, "i64"), code.element(steps, d, "i64")
    sized = code.let(f"xor i1 {code.is_slot(sizes, 'None')}, true")
    n = _count_parts(code, sized, sizes, length, count, total, overflow)
    own_op, own_rest = (_is_list_of(code, item, n, what) for item, what in ((ops, "ops"), (rest, "rests")))
    origin = _origin(code, source, base)
    listed = code.is_slot(registered, "True")
    _require_room(code, origin.record, listed, n)
    dims = _shape_parts(code, sized, d, ndim, (lengths, steps), (shape, strides))
    dtype, data = code.field(array, pyabi.DTYPE, "ptr"), code.field(array, pyabi.DATA, "ptr")
    writeable = code.let(f"and i32 {code.field(array, pyabi.FLAGS, 'i32')}, {pyabi.WRITEABLE}")

    code.do(f"store i64 0, ptr {place}")
    made = code.let(f"call ptr {code.slot('new_tuple')}(i64 {n})")
    code.return_null_if_null(made)
    i, done = loop(code, "part", n)
    at = code.let(f"load i64, ptr {place}")
    begin = code.let(f"getelementptr i8, ptr {data}, i64 {code.let(f'mul i64 {at}, {step}')}")
    code.branch(sized, "shorter", "without")
    code.label("shorter")
    own = code.let(f"call i64 {code.slot('int_value')}(ptr {_item(code, sizes, i)}, ptr {overflow})")
    put(code, shape, d, own)
    put(code, strides, d, step)
    code.do(f"store i64 {code.let(f'add i64 {at}, {own}')}, ptr {place}", "br label %shaped")
    code.label("without")
    code.do(f"store i64 {code.let(f'add i64 {at}, 1')}, ptr {place}", "br label %shaped")
    code.label("shaped")
    view = view_in(code, array, dtype, dims, shape, strides, begin, writeable, undo=made)
    held = code.let(f"call ptr {code.slot('new_object')}(ptr {code.slot('class')}, i64 0)")
    code.return_null_if_null(held, view, made)
    code.do(f"store ptr {view}, ptr {code.place(held, 'array')}")
    into = code.let(f"getelementptr i8, ptr {made}, i64 {pyabi.TUPLE_ITEMS}")
    code.do(f"store ptr {held}, ptr {code.let(f'getelementptr ptr, ptr {into}, i64 {i}')}")
    op = _own_or_common(code, ops, own_op, i, "op")
    arguments = _own_or_common(code, rest, own_rest, i, "rest")
    _fill(code, held, origin, op, arguments, made)
    _register(code, origin.record, held, listed, undo=made)
    done()
    code.do(f"ret ptr {made}")
    module.functions.append(code.text())


def _count_parts(code: ObjectCode, sized: str, sizes: str, length: str, count: str, total: str, overflow: str) -> str:
    """How many parts a dimension of some length is divided into. If there are `sizes`, they must add up to it."""
    code.do(f"store i64 0, ptr {total}")
    code.branch(sized, "sized", "each")
    code.label("sized")
    require_type(code, sizes, "tuple")
    given = code.field(sizes, pyabi.LENGTH, "i64")
    code.require(code.let(f"icmp ule i64 {given}, {hot_calls.MOST_VIEWS}"))
    k, done = loop(code, "size", given)
    item = _item(code, sizes, k)
    require_type(code, item, "int")
    size = integer(code, item, overflow)
    code.require(code.let(f"icmp ult i64 {code.let(f'sub i64 {size}, 1')}, {length}"))
    before = code.let(f"load i64, ptr {total}")
    code.do(f"store i64 {code.let(f'add i64 {before}, {size}')}, ptr {total}")
    done()
    code.require(code.let(f"icmp eq i64 {code.let(f'load i64, ptr {total}')}, {length}"))
    code.do(f"store i64 {given}, ptr {count}", "br label %counted")
    code.label("each")
    code.do(f"store i64 {length}, ptr {count}", "br label %counted")
    code.label("counted")
    n = code.let(f"load i64, ptr {count}")
    code.require(code.let(f"icmp ule i64 {n}, {hot_calls.MOST_VIEWS}"))
    return n


def _shape_parts(code: ObjectCode, sized: str, d: str, ndim: str, wholes: tuple[str, str], parts: tuple[str, str]) -> str:
    """Give parts the shape and the strides of the whole, but for dimension `d`, which is left open if they are `sized`, else missing.

    Returns: how many dimensions a part has.
    """
    behind = code.let(f"add i64 {d}, 1")
    onward = code.let(f"select i1 {sized}, i64 {behind}, i64 {d}")
    bytes_before, bytes_behind = code.let(f"mul i64 {d}, 8"), code.let(f"mul i64 {code.let(f'sub i64 {ndim}, {behind}')}, 8")
    for whole, part in zip(wholes, parts, strict=True):
        copy(code, part, whole, bytes_before)
        copy(code, code.let(f"getelementptr i64, ptr {part}, i64 {onward}"),
             code.let(f"getelementptr i64, ptr {whole}, i64 {behind}"), bytes_behind)
    fewer = code.let(f"sub i64 {ndim}, 1")
    return code.let(f"trunc i64 {code.let(f'select i1 {sized}, i64 {ndim}, i64 {fewer}')} to i32")


def _item(code: ObjectCode, items: str, index: str) -> str:
    """Item `index` of a tuple."""
    return code.element(code.let(f"getelementptr i8, ptr {items}, i64 {pyabi.TUPLE_ITEMS}"), index, "ptr")


def _is_list_of(code: ObjectCode, items: str, count: str, what: str) -> str:
    """Whether `items` is a list, which must have `count` items at least."""
    found = code.let(f"icmp eq ptr {code.field(items, pyabi.TYPE, 'ptr')}, {code.slot('list')}")
    code.branch(found, f"{what}.list", f"{what}.known")
    code.label(f"{what}.list")
    code.require(code.let(f"icmp uge i64 {code.field(items, pyabi.LENGTH, 'i64')}, {count}"))
    code.do(f"br label %{what}.known")
    code.label(f"{what}.known")
    return found


def _own_or_common(code: ObjectCode, items: str, is_list: str, index: str, what: str) -> str:
    """Item `index` of `items`, or that itself if it is no list."""
    code.branch(is_list, f"{what}.own", f"{what}.common")
    code.label(f"{what}.own")
    item = code.element(code.field(items, pyabi.LIST_ITEMS, "ptr"), index, "ptr")
    code.do(f"br label %{what}.chosen")
    code.label(f"{what}.common")
    code.do(f"br label %{what}.chosen")
    code.label(f"{what}.chosen")
    return code.let(f"phi ptr [{item}, %{what}.own], [{items}, %{what}.common]")


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
