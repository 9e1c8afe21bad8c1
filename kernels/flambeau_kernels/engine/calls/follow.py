"""The builtin that follows a recorded program: the next operation is the one that came there last time, on the same operands.

A recorder of the framework keeps a `path`, a list of what `PATH` names. Its first item is a node, a list whose first item says what came
next the last time, a tuple of what `LIKELY` names, or None. ``follow(path, op, *args)`` compares operation and arguments with that by
identity, and numbers, sequences and slices by value. If they are the same, and elements lie where they have to, it makes the pending
result, a weak reference to which goes to the list `made`, moves the path on, and returns the result. Else it returns None, having done
nothing. ``follow_here(path, op, *args)`` is that in the path's own thread alone, and while its recorder is the last of those in force
there, and no modes are; so operations may ask it before they look at anything else.

``alike(pattern, args)`` compares arguments alone, constants and inputs that look as `NEW` says, and returns True or None.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from flambeau_kernels import hot_calls
from flambeau_kernels.engine.builtins import fastcall, launchers, pyabi
from flambeau_kernels.engine.builtins.make_objects import ObjectCode
from flambeau_kernels.engine.machine_code import llvm

# `token` is the item of the list `cell` while what decides over all results is as it was. Paths begin at the node `root`. `calls` is the
# object of the path's thread that says who is in force in it; see `who_is_in_force`.
PATH = ("node", "recorder", "made", "inputs", "counts", "class", "subclass", "token", "cell", "root", "calls")
# The pattern has `PER_ARGUMENT` items for each argument. The first two are None and a constant, True and the number of a pending result,
# False and that of an input, or a class, list or tuple, and the pattern of what such a sequence holds. Of an input that is new there they
# are a tuple of what `NEW` names, and its number, which says in which order new inputs are listed; `counts` gets how often it was written.
# The third is None, or for an input whose elements decide whether the operation fails, what `WITHIN` names.
PER_ARGUMENT = 3
NEW = ("lengths", "dtype", "recorded")               # shape and strides as bytes; whether the slot `node` is filled
WITHIN = ("bounds", "dtype")                         # the least element that may be there, how many from it on, and bytes of one, as bytes
MOST_NEW = 32                                         # inputs of one call
# `number` and `look` go with the recorder into the slot `grad` of a pending result. For several results both are tuples, and
# `several` is called with the tuple of them. `before` is None or a list of references to nothing, for values on the way to the result.
LIKELY = ("op", "pattern", "number", "look", "node", "several", "before")


class Stacks(NamedTuple):
    """The class of `calls`, and its slots: the number of the thread, and what is in force there, tuples of recorders and of modes."""

    cls: type
    thread: str
    interpreters: str
    modes: str


_stacks: Stacks | None = None


def who_is_in_force(stacks: Stacks) -> None:
    """Say where `calls` has that."""
    global _stacks
    _stacks = stacks


@functools.cache
def builtin() -> Callable[..., Any] | None:
    """The builtin; None where native code cannot read this interpreter's objects, or no class has been named yet."""
    if not launchers.available()[0] or hot_calls.objects is None or _stacks is None:
        return None
    return _builtins()["follow"]


def builtin_here() -> Callable[..., Any] | None:
    """``follow_here``; None where there is none."""
    return None if builtin() is None else _builtins()["follow_here"]


def alike() -> Callable[..., Any] | None:
    """The builtin that compares arguments; None where there is none."""
    return None if builtin() is None else _builtins()["alike"]


@functools.cache
def _builtins() -> dict[str, Callable[..., Any]]:
    assert _stacks is not None
    shared = (fastcall._none, _same, _looks, _elements, _within, _is_in, _compare, _take, _pend, _step, _is_here, _alike)
    text = "".join([*[write() for write in shared], _follow("follow", False), _follow("follow_here", True)])
    names = ("follow", "follow_here", "alike")
    code = llvm.compile_symbols(text, tuple([f"fb_{name}" for name in names]), llvm.PLAIN)
    return pyabi.new_builtins({name: code[f"fb_{name}"] for name in names}, pyabi.object_table(hot_calls.objects))


def _follow(name: str, looks: bool) -> str:
    """The builtin of that name, which `looks` whether it is asked in the path's own thread, and its recorder is the last in force there."""
    code = ObjectCode(f"ptr @fb_{name}(ptr %self, ptr %args, i64 %nargs)")
    maker = code.let("alloca ptr")
    code.do(f"%table.at = getelementptr i8, ptr %self, i64 {pyabi.DATA}", "%table = load ptr, ptr %table.at")
    code.require(code.let("icmp sge i64 %nargs, 2"))
    path, op = (code.element("%args", k, "ptr") for k in range(2))
    require_type(code, path, "list")
    code.require(code.let(f"icmp eq i64 {code.field(path, pyabi.LENGTH, 'i64')}, {len(PATH)}"))
    items = code.field(path, pyabi.LIST_ITEMS, "ptr")
    if looks:
        code.require(code.let(f"call i1 @is_here(ptr %table, ptr {items})"))
    given, count = code.let("getelementptr ptr, ptr %args, i64 2"), code.let("sub i64 %nargs, 2")
    # Objects are made here, and the garbage collector could run anything meanwhile, which moves the path or changes arguments.
    ran = code.let(f"call i32 {code.slot('collector_off')}()")
    code.do(f"store ptr null, ptr {maker}")
    made = code.let(f"call ptr @step(ptr %table, ptr {items}, ptr {op}, ptr {given}, i64 {count}, ptr {maker})")
    code.branch(code.let(f"icmp ne i32 {ran}, 0"), "again", "stays")
    code.label("again")
    code.let(f"call i32 {code.slot('collector_on')}()")
    code.do("br label %stays")
    code.label("stays")
    by = code.let(f"load ptr, ptr {maker}")
    code.branch(code.let(f"icmp eq ptr {by}, null"), "single", "several")
    code.label("single")
    code.do(f"ret ptr {made}")
    code.label("several")
    answer = code.let(f"call ptr {code.slot('call')}(ptr {by}, ptr {made})")
    _let_go(code, made, by)
    code.do(f"ret ptr {answer}")
    return code.text()


def _is_here() -> str:
    """Whether this is the thread of the path with these `items`, its recorder the last in force in it, and no mode is."""
    assert _stacks is not None
    code = ObjectCode("internal i1 @is_here(ptr %table, ptr %items)")
    overflow = code.let("alloca i32")
    recorder, calls = (code.element("%items", PATH.index(name), "ptr") for name in ("recorder", "calls"))
    thread, stack, modes = (code.field(calls, pyabi.slot_offset(_stacks.cls, name), "ptr") for name in _stacks[1:])
    for item in (thread, stack, modes):
        _need(code, code.let(f"icmp ne ptr {item}, null"))
    own = code.let(f"call i64 {code.slot('int_value')}(ptr {thread}, ptr {overflow})")
    now = code.let(f"call i64 {code.slot('thread_number')}()")
    _need(code, code.let(f"icmp eq i64 {own}, {now}"))
    for item in (stack, modes):
        _need(code, code.let(f"icmp eq ptr {code.field(item, pyabi.TYPE, 'ptr')}, {code.slot('tuple')}"))
    _need(code, code.let(f"icmp eq i64 {code.field(modes, pyabi.LENGTH, 'i64')}, 0"))
    depth = code.field(stack, pyabi.LENGTH, "i64")
    _need(code, code.let(f"icmp sgt i64 {depth}, 0"))
    last = code.element(place_in(code, stack, pyabi.TUPLE_ITEMS), code.let(f"sub i64 {depth}, 1"), "ptr")
    code.do(f"ret i1 {code.let(f'icmp eq ptr {last}, {recorder}')}")
    code.label("no")
    code.do("ret i1 false")
    return code.text()


def _step() -> str:
    """The pending result of `op` on the `n` arguments at `given`, for the path with these `items`; None, having done nothing; or an error.

    Of several results it is a tuple, and `maker` gets a new reference to what is to be called with that.
    """
    code = ObjectCode("internal ptr @step(ptr %table, ptr %items, ptr %op, ptr %given, i64 %n, ptr %maker)")
    news, fresh = code.let(f"alloca [{MOST_NEW} x ptr]"), code.let("alloca i64")
    node, recorder, inputs, counts, cls, subclass, token, cell, listed = (
        code.element("%items", PATH.index(name), "ptr")
        for name in ("node", "recorder", "inputs", "counts", "class", "subclass", "token", "cell", "made"))
    code.require(code.let(f"icmp eq ptr {first_of_list(code, cell)}, {token}"))
    likely = first_of_list(code, node)
    require_type(code, likely, "tuple")
    expected, pattern, number, look, onward, kind, before = (tuple_item(code, likely, k) for k in range(len(LIKELY)))
    code.require(code.let(f"icmp eq ptr {expected}, %op"))
    code.do(f"store [{MOST_NEW} x ptr] zeroinitializer, ptr {news}", f"store i64 0, ptr {fresh}")
    code.require(code.let(
        f"call i1 @compare(ptr %table, ptr %given, i64 %n, ptr {pattern}, ptr {recorder}, ptr {inputs}, ptr {cls}, ptr {subclass}, "
        f"ptr {news}, ptr {fresh}, ptr %given, i64 0)"))
    missing = code.let(f"call i1 @is_in(ptr %table, ptr {news}, i64 {code.let(f'load i64, ptr {fresh}')}, ptr null)")
    code.require(code.let(f"xor i1 {missing}, true"))
    code.branch(code.let(f"icmp eq ptr {code.field(look, pyabi.TYPE, 'ptr')}, {code.slot('tuple')}"), "several", "single")

    code.label("single")
    made = _new_pending(code, recorder, number, look, cls)
    reference = code.let(f"call ptr {code.slot('new_reference')}(ptr {made}, ptr null)")
    code.return_null_if_null(reference, made)
    _list_before(code, listed, before, "", reference, made)
    status = code.let(f"call i32 {code.slot('append')}(ptr {listed}, ptr {reference})")
    _require_listed(code, status, "", reference, made)
    _move_on(code, "%items", news, fresh, inputs, counts, node, onward)
    code.do(f"ret ptr {made}")

    code.label("several")
    references = code.let(f"call ptr {code.slot('new_list')}(i64 {code.field(look, pyabi.LENGTH, 'i64')})")
    code.return_null_if_null(references)
    together = code.let(f"call ptr @pend(ptr %table, ptr {recorder}, ptr {number}, ptr {look}, ptr {cls}, ptr {references})")
    code.return_null_if_null(together, references)
    _list_before(code, listed, before, "all.", together, references)
    status = _extend(code, listed, references)
    _require_listed(code, status, "all.", references, together)
    _move_on(code, "%items", news, fresh, inputs, counts, node, onward)
    code.hold("%maker", kind)
    code.do(f"ret ptr {together}")
    return code.text()


def _extend(code: ObjectCode, listed: str, more: str) -> str:
    """Put what the list `more` has behind the items of `listed`. What says of an error."""
    length = code.field(listed, pyabi.LENGTH, "i64")
    return code.let(f"call i32 {code.slot('set_items')}(ptr {listed}, i64 {length}, i64 {length}, ptr {more})")


def _list_before(code: ObjectCode, listed: str, before: str, prefix: str, *undo: str) -> None:
    """List what stands for the values on the way to a result. After an error the references `undo` are given back."""
    code.branch(code.is_slot(before, "None"), f"{prefix}direct", f"{prefix}by.others")
    code.label(f"{prefix}by.others")
    status = _extend(code, listed, before)
    code.branch(code.let(f"icmp eq i32 {status}, 0"), f"{prefix}direct", f"{prefix}undone")
    code.label(f"{prefix}undone")
    _let_go(code, *undo)
    code.do("ret ptr null")
    code.label(f"{prefix}direct")


def _new_pending(code: ObjectCode, recorder: str, number: str, look: str, cls: str, *undo: str) -> str:
    """A new pending result. Where there is none the references `undo` are given back."""
    pending = code.let(f"call ptr {code.slot('new_tuple')}(i64 3)")
    code.return_null_if_null(pending, *undo)
    for k, value in enumerate((recorder, number, look)):
        code.hold(code.let(f"getelementptr i8, ptr {pending}, i64 {pyabi.TUPLE_ITEMS + 8 * k}"), value)
    made = code.let(f"call ptr {code.slot('new_object')}(ptr {cls}, i64 0)")
    code.return_null_if_null(made, pending, *undo)
    code.do(f"store ptr {pending}, ptr {code.place(made, 'grad')}")
    return made


def _let_go(code: ObjectCode, *references: str) -> None:
    for item in references:
        code.do(f"call void {code.slot('decref')}(ptr {item})")


def _require_listed(code: ObjectCode, status: str, prefix: str, listed: str, *undo: str) -> None:
    """Give back `listed`, which the path's list holds now; after an error, which `status` says, the references `undo` as well."""
    _let_go(code, listed)
    code.branch(code.let(f"icmp eq i32 {status}, 0"), f"{prefix}listed", f"{prefix}unlisted")
    code.label(f"{prefix}unlisted")
    _let_go(code, *undo)
    code.do("ret ptr null")
    code.label(f"{prefix}listed")


def _move_on(code: ObjectCode, items: str, news: str, fresh: str, inputs: str, counts: str, node: str, onward: str) -> None:
    """List the new inputs, and let the path's node, which was `node`, be `onward`."""
    record = code.let(f"ptrtoint ptr {code.slot('record')} to i64")
    count = code.let(f"load i64, ptr {fresh}")
    code.do(f"call void @take(ptr %table, ptr {news}, i64 {count}, ptr {inputs}, ptr {counts}, i64 {record})")
    code.hold(items, onward)
    _let_go(code, node)


def _compare() -> str:
    """Whether `n` items are what `pattern` says.

    `news` gets what is a new input, at the number of it, and `fresh` counts these. Before these items came the first `n.outer` at `outer`.
    """
    given = ("ptr %table, ptr %items, i64 %n, ptr %pattern, ptr %recorder, ptr %inputs, ptr %cls, ptr %subclass, ptr %news, ptr %fresh, "
             "ptr %outer, i64 %n.outer")
    code = ObjectCode(f"internal i1 @compare({given})")
    overflow = code.let("alloca i32")
    expected = code.let(f"mul i64 %n, {PER_ARGUMENT}")
    code.branch(code.let(f"icmp eq i64 {code.field('%pattern', pyabi.LENGTH, 'i64')}, {expected}"), "start", "no")
    code.label("start")
    code.do("br label %head")
    code.label("head")
    code.do("%k = phi i64 [0, %start], [%k.next, %next]", "%k.more = icmp slt i64 %k, %n")
    code.branch("%k.more", "each", "yes")
    code.label("each")
    argument = code.element("%items", "%k", "ptr")
    kind, reference, within = _pattern_of(code, "%pattern", "%k")
    code.branch(code.is_slot(kind, "None"), "constant", "tensor")
    code.label("constant")
    code.branch(code.let(f"call i1 @equal(ptr %table, ptr {argument}, ptr {reference})"), "next", "no")
    code.label("tensor")
    code.branch(code.is_slot(kind, "True"), "pending", "there")

    code.label("pending")
    _need(code, code.let(f"icmp eq ptr {code.field(argument, pyabi.TYPE, 'ptr')}, %cls"))
    pending = code.let(f"load ptr, ptr {code.place(argument, 'grad')}")
    _need(code, code.let(f"icmp ne ptr {pending}, null"))
    _need(code, code.let(f"icmp eq ptr {code.field(pending, pyabi.TYPE, 'ptr')}, {code.slot('tuple')}"))
    _need(code, code.let(f"icmp eq ptr {tuple_item(code, pending, 0)}, %recorder"))
    code.branch(code.let(f"icmp eq ptr {tuple_item(code, pending, 1)}, {reference}"), "next", "no")

    code.label("there")
    sequences = [code.is_slot(kind, name) for name in ("list", "tuple")]
    code.branch(code.let(f"or i1 {sequences[0]}, {sequences[1]}"), "sequence", "input")
    code.label("sequence")
    _need(code, code.let(f"icmp eq ptr {code.field(argument, pyabi.TYPE, 'ptr')}, {kind}"))
    own, listed = place_in(code, argument, pyabi.TUPLE_ITEMS), code.field(argument, pyabi.LIST_ITEMS, "ptr")
    inner = code.let(f"select i1 {sequences[0]}, ptr {listed}, ptr {own}")
    length = code.field(argument, pyabi.LENGTH, "i64")
    code.branch(code.let(
        f"call i1 @compare(ptr %table, ptr {inner}, i64 {length}, ptr {reference}, ptr %recorder, ptr %inputs, ptr %cls, ptr %subclass, "
        f"ptr %news, ptr %fresh, ptr %items, i64 %k)"), "next", "no")

    code.label("input")
    at = code.let(f"call i64 {code.slot('int_value')}(ptr {reference}, ptr {overflow})")
    count = code.field("%inputs", pyabi.LENGTH, "i64")
    code.branch(code.let(f"icmp eq ptr {code.field(kind, pyabi.TYPE, 'ptr')}, {code.slot('tuple')}"), "new", "known")
    code.label("known")
    code.branch(code.let(f"icmp ult i64 {at}, {count}"), "before", "again")
    code.label("before")
    known = code.element(code.field("%inputs", pyabi.LIST_ITEMS, "ptr"), at, "ptr")
    code.branch(code.let(f"icmp eq ptr {known}, {argument}"), "bounded", "no")
    code.label("again")                               # it was new in this call
    place = _new_place(code, at, count)
    code.branch(code.let(f"icmp eq ptr {code.let(f'load ptr, ptr {place}')}, {argument}"), "bounded", "no")
    code.label("new")
    place = _new_place(code, at, count)
    cls = code.field(argument, pyabi.TYPE, "ptr")
    is_class, is_subclass = (code.let(f"icmp eq ptr {cls}, {one}") for one in (code.slot("class"), "%subclass"))
    _need(code, code.let(f"or i1 {is_class}, {is_subclass}"))
    array, node, record = (code.let(f"load ptr, ptr {code.place(argument, name)}") for name in ("array", "node", "record"))
    for item in (array, node, record):                # slots that were never filled are read elsewhere
        _need(code, code.let(f"icmp ne ptr {item}, null"))
    _need(code, code.let(f"icmp eq ptr {code.field(record, pyabi.TYPE, 'ptr')}, {code.slot('list')}"))
    _need(code, code.let(f"call i1 @looks(ptr %table, ptr {array}, ptr {node}, ptr {kind})"))
    for items, n in ((code.field("%inputs", pyabi.LIST_ITEMS, "ptr"), count), ("%items", "%k"), ("%outer", "%n.outer")):
        _need(code, code.let(f"xor i1 {code.let(f'call i1 @is_in(ptr %table, ptr {items}, i64 {n}, ptr {argument})')}, true"))
    code.do(f"store ptr {argument}, ptr {place}")
    before = code.let("load i64, ptr %fresh")
    code.do(f"store i64 {code.let(f'add i64 {before}, 1')}, ptr %fresh", "br label %bounded")

    code.label("bounded")
    code.branch(code.is_slot(within, "None"), "next", "elements")
    code.label("elements")
    bounded = code.let(f"load ptr, ptr {code.place(argument, 'array')}")
    code.branch(code.let(f"call i1 @within(ptr %table, ptr {bounded}, ptr {within})"), "next", "no")
    code.label("next")
    code.do("%k.next = add i64 %k, 1", "br label %head")
    code.label("yes")
    code.do("ret i1 true")
    code.label("no")
    code.do("ret i1 false")
    return code.text()


def _new_place(code: ObjectCode, at: str, count: str) -> str:
    """Where the new input of the number `at` is noted, before which there are `count`."""
    place = code.let(f"sub i64 {at}, {count}")
    _need(code, code.let(f"icmp ult i64 {place}, {MOST_NEW}"))
    return code.let(f"getelementptr ptr, ptr %news, i64 {place}")


def _need(code: ObjectCode, condition: str) -> None:
    """Go on if the condition holds, else to the label ``no``."""
    onward = code.fresh("ok")
    code.branch(condition, onward, "no")
    code.label(onward)


def _pattern_of(code: ObjectCode, pattern: str, index: str) -> tuple[str, ...]:
    """What a pattern says of the argument with that index."""
    first, items = code.let(f"mul i64 {index}, {PER_ARGUMENT}"), place_in(code, pattern, pyabi.TUPLE_ITEMS)
    return tuple(code.element(items, code.let(f"add i64 {first}, {k}"), "ptr") for k in range(PER_ARGUMENT))


def _elements() -> str:
    """The number of elements of an array."""
    code = ObjectCode("internal i64 @elements(ptr %array)")
    ndim = code.let(f"sext i32 {code.field('%array', pyabi.NDIM, 'i32')} to i64")
    shape = code.field("%array", pyabi.SHAPE, "ptr")
    code.do("br label %head")
    code.label("head")
    code.do("%d = phi i64 [0, %entry], [%d.next, %each]", "%n = phi i64 [1, %entry], [%product, %each]", f"%more = icmp slt i64 %d, {ndim}")
    code.branch("%more", "each", "done")
    code.label("each")
    code.do(f"%product = mul i64 %n, {code.element(shape, '%d', 'i64')}", "%d.next = add i64 %d, 1", "br label %head")
    code.label("done")
    code.do("ret i64 %n")
    return code.text()


def _within() -> str:
    """Whether all elements of an array of integers lie where `within`, a tuple of what `WITHIN` names, says."""
    code = ObjectCode("internal i1 @within(ptr %table, ptr %array, ptr %within)")
    bounds, dtype = (tuple_item(code, "%within", k) for k in range(len(WITHIN)))
    low, span, size = (code.element(place_in(code, bounds, pyabi.BYTES_ITEMS), k, "i64") for k in range(3))
    _need(code, code.let("icmp ne ptr %array, null"))
    _need(code, code.let(f"icmp eq ptr {code.field('%array', pyabi.TYPE, 'ptr')}, {code.slot('ndarray')}"))
    _need(code, code.let(f"icmp eq ptr {code.field('%array', pyabi.DTYPE, 'ptr')}, {dtype}"))
    flags = code.let(f"and i32 {code.field('%array', pyabi.FLAGS, 'i32')}, {fastcall.C_ORDER}")
    _need(code, code.let(f"icmp eq i32 {flags}, {fastcall.C_ORDER}"))
    n, data = code.let("call i64 @elements(ptr %array)"), code.field("%array", pyabi.DATA, "ptr")
    code.branch(code.let(f"icmp eq i64 {size}, 8"), "long", "int")
    for name, kind in (("long", "i64"), ("int", "i32")):
        code.label(name)
        code.do(f"br label %{name}.head")
        code.label(f"{name}.head")
        code.do(f"%{name}.i = phi i64 [0, %{name}], [%{name}.next, %{name}.each]",
                f"%{name}.outside = phi i1 [false, %{name}], [%{name}.or, %{name}.each]", f"%{name}.more = icmp slt i64 %{name}.i, {n}")
        code.branch(f"%{name}.more", f"{name}.each", f"{name}.done")
        code.label(f"{name}.each")
        element = code.element(data, f"%{name}.i", kind)
        element = element if kind == "i64" else code.let(f"sext i32 {element} to i64")
        beyond = code.let(f"icmp uge i64 {code.let(f'sub i64 {element}, {low}')}, {span}")
        code.do(f"%{name}.or = or i1 %{name}.outside, {beyond}", f"%{name}.next = add i64 %{name}.i, 1", f"br label %{name}.head")
        code.label(f"{name}.done")
        code.branch(f"%{name}.outside", "no", "yes")
    code.label("yes")
    code.do("ret i1 true")
    code.label("no")
    code.do("ret i1 false")
    return code.text()


def _alike() -> str:
    code = ObjectCode("ptr @fb_alike(ptr %self, ptr %args, i64 %nargs)")
    pattern, given = code.start(2)
    for item in (pattern, given):
        require_type(code, item, "tuple")
    count = code.field(given, pyabi.LENGTH, "i64")
    code.require(code.let(f"icmp eq i64 {code.field(pattern, pyabi.LENGTH, 'i64')}, {code.let(f'mul i64 {count}, {PER_ARGUMENT}')}"))
    code.do("br label %start")
    code.label("start")
    code.do("br label %argument")
    code.label("argument")
    code.do("%k = phi i64 [0, %start], [%k.next, %same]", f"%k.more = icmp slt i64 %k, {count}")
    code.branch("%k.more", "look", "compared")
    code.label("look")
    argument = code.element(place_in(code, given, pyabi.TUPLE_ITEMS), "%k", "ptr")
    kind, reference, _ = _pattern_of(code, pattern, "%k")
    code.do("%k.next = add i64 %k, 1")
    code.branch(code.is_slot(kind, "None"), "constant", "tensor")
    code.label("constant")
    code.branch(code.let(f"call i1 @equal(ptr %table, ptr {argument}, ptr {reference})"), "same", "refuse")
    code.label("tensor")
    code.require(code.let(f"icmp eq ptr {code.field(argument, pyabi.TYPE, 'ptr')}, {code.slot('class')}"))
    array, node = (code.let(f"load ptr, ptr {code.place(argument, name)}") for name in ("array", "node"))
    for item in (array, node):
        code.require(code.let(f"icmp ne ptr {item}, null"))
    code.branch(code.let(f"call i1 @looks(ptr %table, ptr {array}, ptr {node}, ptr {kind})"), "same", "refuse")
    code.label("same")
    code.do("br label %argument")
    code.label("compared")
    code.do(f"call void {code.slot('incref')}(ptr {code.slot('True')})", f"ret ptr {code.slot('True')}")
    return code.text()


def _same() -> str:
    """Whether two constants are one, or equal floats, ints, or lists, tuples or slices of such."""
    code = ObjectCode("internal i1 @equal(ptr %table, ptr %a, ptr %b)")
    overflows = [code.let("alloca i32") for _ in range(2)]
    code.branch(code.let("icmp eq ptr %a, %b"), "yes", "other")
    code.label("yes")
    code.do("ret i1 true")
    code.label("other")
    kind = code.field("%a", pyabi.TYPE, "ptr")
    code.branch(code.let(f"icmp eq ptr {kind}, {code.field('%b', pyabi.TYPE, 'ptr')}"), "alike", "no")
    code.label("no")
    code.do("ret i1 false")
    code.label("alike")
    code.branch(code.let(f"icmp eq ptr {kind}, {code.slot('int')}"), "whole", "not.whole")
    code.label("whole")
    values = [code.let(f"call i64 {code.slot('int_value')}(ptr {x}, ptr {at})") for x, at in zip(("%a", "%b"), overflows, strict=True)]
    over = code.let(f"or i32 {code.let(f'load i32, ptr {overflows[0]}')}, {code.let(f'load i32, ptr {overflows[1]}')}")
    fits = code.let(f"icmp eq i32 {over}, 0")
    code.do(f"ret i1 {code.let(f'and i1 {fits}, {code.let(_equal(values))}')}")
    code.label("not.whole")
    code.branch(code.let(f"icmp eq ptr {kind}, {code.slot('float')}"), "real", "not.real")
    code.label("real")
    bits = [code.field(x, pyabi.FLOAT_VALUE, "i64") for x in ("%a", "%b")]
    code.do(f"ret i1 {code.let(_equal(bits))}")
    code.label("not.real")
    lengths = [code.field(x, pyabi.LENGTH, "i64") for x in ("%a", "%b")]
    code.branch(code.let(f"icmp eq ptr {kind}, {code.slot('tuple')}"), "tuple", "not.tuple")
    code.label("tuple")
    tuples = [place_in(code, x, pyabi.TUPLE_ITEMS) for x in ("%a", "%b")]
    code.do("br label %sequence")
    code.label("not.tuple")
    code.branch(code.let(f"icmp eq ptr {kind}, {code.slot('list')}"), "list", "not.list")
    code.label("not.list")
    code.branch(code.let(f"icmp eq ptr {kind}, {code.slot('slice')}"), "slice", "no")
    code.label("slice")
    bounds = [[code.field(x, offset, "ptr") for x in ("%a", "%b")] for offset in (pyabi.START, pyabi.STOP, pyabi.STEP)]
    alike = [code.let(f"call i1 @equal(ptr %table, ptr {a}, ptr {b})") for a, b in bounds]
    first_two = code.let(f"and i1 {alike[0]}, {alike[1]}")
    code.do(f"ret i1 {code.let(f'and i1 {first_two}, {alike[2]}')}")
    code.label("list")
    lists = [code.field(x, pyabi.LIST_ITEMS, "ptr") for x in ("%a", "%b")]
    code.do("br label %sequence")
    code.label("sequence")
    code.do(f"%at.a = phi ptr [{tuples[0]}, %tuple], [{lists[0]}, %list]", f"%at.b = phi ptr [{tuples[1]}, %tuple], [{lists[1]}, %list]")
    code.branch(code.let(_equal(lengths)), "begin", "no")
    code.label("begin")
    code.do("br label %item")
    code.label("item")
    code.do("%i = phi i64 [0, %begin], [%i.next, %next]", f"%i.more = icmp slt i64 %i, {lengths[0]}")
    code.branch("%i.more", "each", "yes")
    code.label("each")
    items = [code.element(at, "%i", "ptr") for at in ("%at.a", "%at.b")]
    code.branch(code.let(f"call i1 @equal(ptr %table, ptr {items[0]}, ptr {items[1]})"), "next", "no")
    code.label("next")
    code.do("%i.next = add i64 %i, 1", "br label %item")
    return code.text()


def _equal(values: list[str]) -> str:
    return f"icmp eq i64 {values[0]}, {values[1]}"


def _looks() -> str:
    """Whether an array is as a tuple of what `NEW` names says, with or without a node."""
    code = ObjectCode("internal i1 @looks(ptr %table, ptr %array, ptr %node, ptr %looks)")
    lengths, dtype, recorded = (tuple_item(code, "%looks", k) for k in range(len(NEW)))
    code.branch(code.let(f"icmp eq ptr {code.field('%array', pyabi.TYPE, 'ptr')}, {code.slot('ndarray')}"), "strided", "no")
    code.label("strided")
    is_dtype = code.let(f"icmp eq ptr {code.field('%array', pyabi.DTYPE, 'ptr')}, {dtype}")
    has_node = code.let(f"xor i1 {code.is_slot('%node', 'None')}, true")
    as_recorded = code.let(f"icmp eq i1 {has_node}, {code.is_slot(recorded, 'True')}")
    ndim = code.let(f"sext i32 {code.field('%array', pyabi.NDIM, 'i32')} to i64")
    bytes_of = code.let(f"mul i64 {ndim}, 16")
    as_long = code.let(f"icmp eq i64 {code.field(lengths, pyabi.LENGTH, 'i64')}, {bytes_of}")
    alike = code.let(f"and i1 {code.let(f'and i1 {is_dtype}, {as_recorded}')}, {as_long}")
    code.branch(alike, "sizes", "no")
    code.label("sizes")
    known = place_in(code, lengths, pyabi.BYTES_ITEMS)
    shape, strides = (code.field("%array", offset, "ptr") for offset in (pyabi.SHAPE, pyabi.STRIDES))
    code.do("br label %dim")
    code.label("dim")
    code.do("%d = phi i64 [0, %sizes], [%d.next, %next]", f"%d.more = icmp slt i64 %d, {ndim}")
    code.branch("%d.more", "each", "yes")
    code.label("each")
    as_wide = code.let(_equal([code.element(shape, "%d", "i64"), code.element(known, "%d", "i64")]))
    at = code.let(f"add i64 %d, {ndim}")
    as_far = code.let(_equal([code.element(strides, "%d", "i64"), code.element(known, at, "i64")]))
    code.branch(code.let(f"and i1 {as_wide}, {as_far}"), "next", "no")
    code.label("next")
    code.do("%d.next = add i64 %d, 1", "br label %dim")
    code.label("yes")
    code.do("ret i1 true")
    code.label("no")
    code.do("ret i1 false")
    return code.text()


def _pend() -> str:
    """A tuple of pending results, references to which go to the list `references`, which has room for them."""
    code = ObjectCode("internal ptr @pend(ptr %table, ptr %recorder, ptr %numbers, ptr %looks, ptr %cls, ptr %references)")
    n = code.field("%looks", pyabi.LENGTH, "i64")
    together = code.let(f"call ptr {code.slot('new_tuple')}(i64 {n})")
    code.return_null_if_null(together)
    code.do("br label %start")
    code.label("start")
    code.do("br label %head")
    code.label("head")
    code.do("%i = phi i64 [0, %start], [%i.next, %listed]", f"%i.more = icmp slt i64 %i, {n}")
    code.branch("%i.more", "each", "done")
    code.label("each")
    number, look = (code.element(place_in(code, x, pyabi.TUPLE_ITEMS), "%i", "ptr") for x in ("%numbers", "%looks"))
    made = _new_pending(code, "%recorder", number, look, "%cls", together)
    code.do(f"store ptr {made}, ptr {code.let(f'getelementptr ptr, ptr {place_in(code, together, pyabi.TUPLE_ITEMS)}, i64 %i')}")
    reference = code.let(f"call ptr {code.slot('new_reference')}(ptr {made}, ptr null)")
    code.return_null_if_null(reference, together)
    listed = code.field("%references", pyabi.LIST_ITEMS, "ptr")
    code.do(f"store ptr {reference}, ptr {code.let(f'getelementptr ptr, ptr {listed}, i64 %i')}")
    code.do("%i.next = add i64 %i, 1", "br label %listed")
    code.label("listed")
    code.do("br label %head")
    code.label("done")
    code.do(f"ret ptr {together}")
    return code.text()


def _is_in() -> str:
    """Whether an object is among the first `n` at `items`, or in a list or tuple there."""
    code = ObjectCode("internal i1 @is_in(ptr %table, ptr %items, i64 %n, ptr %item)")
    code.do("br label %head")
    code.label("head")
    code.do("%i = phi i64 [0, %entry], [%i.next, %next]", "%i.more = icmp slt i64 %i, %n")
    code.branch("%i.more", "each", "no")
    code.label("each")
    one = code.element("%items", "%i", "ptr")
    code.branch(code.let(f"icmp eq ptr {one}, %item"), "yes", "other")
    code.label("other")
    kind = code.field(one, pyabi.TYPE, "ptr")
    is_list, is_tuple = (code.let(f"icmp eq ptr {kind}, {code.slot(name)}") for name in ("list", "tuple"))
    code.branch(code.let(f"or i1 {is_list}, {is_tuple}"), "sequence", "next")
    code.label("sequence")
    own, listed = place_in(code, one, pyabi.TUPLE_ITEMS), code.field(one, pyabi.LIST_ITEMS, "ptr")
    inner, length = code.let(f"select i1 {is_list}, ptr {listed}, ptr {own}"), code.field(one, pyabi.LENGTH, "i64")
    code.branch(code.let(f"call i1 @is_in(ptr %table, ptr {inner}, i64 {length}, ptr %item)"), "yes", "next")
    code.label("next")
    code.do("%i.next = add i64 %i, 1", "br label %head")
    code.label("yes")
    code.do("ret i1 true")
    code.label("no")
    code.do("ret i1 false")
    return code.text()


def _take() -> str:
    """List the `n` new inputs, and how often each was written: the first item of its record."""
    code = ObjectCode("internal void @take(ptr %table, ptr %news, i64 %n, ptr %inputs, ptr %counts, i64 %record.offset)")
    code.do("br label %head")
    code.label("head")
    code.do("%i = phi i64 [0, %entry], [%i.next, %each]", "%i.more = icmp slt i64 %i, %n")
    code.branch("%i.more", "each", "done")
    code.label("each")
    one = code.element("%news", "%i", "ptr")
    record = code.let(f"load ptr, ptr {code.let(f'getelementptr i8, ptr {one}, i64 %record.offset')}")
    code.do(f"%a = call i32 {code.slot('append')}(ptr %inputs, ptr {one})",
            f"%b = call i32 {code.slot('append')}(ptr %counts, ptr {first_of_list(code, record)})",
            "%i.next = add i64 %i, 1", "br label %head")
    code.label("done")
    code.do("ret void")
    return code.text()


def require_type(code: ObjectCode, item: str, name: str) -> None:
    code.require(code.let(f"icmp eq ptr {code.field(item, pyabi.TYPE, 'ptr')}, {code.slot(name)}"))


def place_in(code: ObjectCode, item: str, offset: int) -> str:
    return code.let(f"getelementptr i8, ptr {item}, i64 {offset}")


def first_of_list(code: ObjectCode, item: str) -> str:
    return code.element(code.field(item, pyabi.LIST_ITEMS, "ptr"), 0, "ptr")


def tuple_item(code: ObjectCode, item: str, k: int) -> str:
    return code.field(item, pyabi.TUPLE_ITEMS + 8 * k, "ptr")
