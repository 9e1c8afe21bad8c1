"""The builtin that computes what is pending on a path which was followed, see `follow`, where that is known to be launches alone.

The third item of a path's node is what is READY there, or None: which values are asked for, by a byte for each, a builtin that gives
their arrays for those of the inputs, or None having done nothing, and an object that stands for the two. ``settle(path)`` sees whether
just these values are still referred to and no input has been written to, calls the builtin, and makes the pending results objects of
the class, each with its array and a record of its own. Then the path begins anew, and the object is returned; or None, and then nothing
has been done.
"""
from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from flambeau_kernels import hot_calls
from flambeau_kernels.engine.builtins import fastcall, launchers, pyabi
from flambeau_kernels.engine.builtins.make_objects import ObjectCode
from flambeau_kernels.engine.calls.follow import PATH, first_of_list, place_in, require_type, tuple_item
from flambeau_kernels.engine.machine_code import llvm

READY = ("asked", "run", "program")
MOST = 64                                             # inputs, and results that are asked for


@functools.cache
def builtin() -> Callable[..., Any] | None:
    """The builtin; None where native code cannot read this interpreter's objects, or no class has been named yet."""
    if not launchers.available()[0] or hot_calls.objects is None:
        return None
    code = llvm.compile_symbols(_text(), ("fb_settle",), llvm.PLAIN)
    return pyabi.new_builtins({"settle": code["fb_settle"]}, pyabi.object_table(hot_calls.objects))["settle"]


def _text() -> str:
    code = ObjectCode("ptr @fb_settle(ptr %self, ptr %args, i64 %nargs)")
    arrays, objects, records = (code.let(f"alloca [{MOST} x ptr]") for _ in range(3))
    (path,) = code.start(1)
    require_type(code, path, "list")
    code.require(code.let(f"icmp eq i64 {code.field(path, pyabi.LENGTH, 'i64')}, {len(PATH)}"))
    items = code.field(path, pyabi.LIST_ITEMS, "ptr")
    node, recorder, made, inputs, counts, cls, token, cell, root = (
        code.element(items, PATH.index(name), "ptr")
        for name in ("node", "recorder", "made", "inputs", "counts", "class", "token", "cell", "root"))
    code.require(code.let(f"icmp eq ptr {first_of_list(code, cell)}, {token}"))
    ready = code.element(code.field(node, pyabi.LIST_ITEMS, "ptr"), 2, "ptr")
    require_type(code, ready, "tuple")
    asked, run, program = (tuple_item(code, ready, READY.index(name)) for name in READY)
    n, m = (code.field(x, pyabi.LENGTH, "i64") for x in (made, inputs))
    code.require(code.let(f"icmp eq i64 {code.field(asked, pyabi.LENGTH, 'i64')}, {n}"))
    code.require(code.let(f"icmp eq i64 {code.field(counts, pyabi.LENGTH, 'i64')}, {m}"))
    code.require(code.let(f"icmp ule i64 {m}, {MOST}"))
    array_at, record_at, grad_at = (code.let(f"ptrtoint ptr {code.slot(name)} to i64") for name in ("array", "record", "grad"))
    read, written = (code.field(x, pyabi.LIST_ITEMS, "ptr") for x in (inputs, counts))
    code.require(code.let(
        f"call i1 @unwritten(ptr %table, ptr {read}, ptr {written}, i64 {m}, ptr {arrays}, i64 {array_at}, i64 {record_at})"))
    listed, bytes_at = code.field(made, pyabi.LIST_ITEMS, "ptr"), place_in(code, asked, pyabi.BYTES_ITEMS)
    count = code.let(f"call i64 @pending(ptr %table, ptr {listed}, ptr {bytes_at}, i64 {n}, ptr {objects}, ptr {recorder}, ptr {cls}, "
                     f"i64 {grad_at})")
    code.require(code.let(f"icmp sge i64 {count}, 0"))

    # Other threads may run while kernels do, and give inputs other arrays, and the garbage collector when objects are made: what is
    # needed is held.
    needed = (ready, node, made, inputs, counts, root)
    _count_references(code, "incref", needed, (objects, count), (arrays, m))
    found = code.let(f"call ptr {code.slot('vectorcall')}(ptr {run}, ptr {arrays}, i64 {m}, ptr null)")
    code.branch(code.let(f"icmp eq ptr {found}, null"), "failed", "ran")
    code.label("ran")
    code.branch(code.let(f"icmp eq ptr {code.field(found, pyabi.TYPE, 'ptr')}, {code.slot('tuple')}"), "several", "nothing")
    code.label("several")
    code.branch(code.let(f"icmp eq i64 {code.field(found, pyabi.LENGTH, 'i64')}, {count}"), "fits", "nothing")
    code.label("fits")
    kept = code.let(f"call i64 @new_records(ptr %table, ptr {records}, i64 {count})")
    code.branch(code.let(f"icmp eq i64 {kept}, {count}"), "look", "no.records")
    code.label("look")
    now = code.field(path, pyabi.LIST_ITEMS, "ptr")
    code.branch(_is_as_before(code, now, node, made, n, objects, count, cls), "begin.anew", "no.records")
    code.label("begin.anew")
    code.hold(code.let(f"getelementptr ptr, ptr {now}, i64 {PATH.index('node')}"), root)
    code.do(f"call void {code.slot('decref')}(ptr {node})")
    given = place_in(code, found, pyabi.TUPLE_ITEMS)
    became = code.let(f"call i1 @become(ptr %table, ptr {objects}, ptr {given}, ptr {records}, i64 {count})")
    for item in (counts, made, inputs):               # letting go of inputs may run anything, so they come last
        code.let(f"call i32 {code.slot('set_items')}(ptr {item}, i64 0, i64 {code.field(item, pyabi.LENGTH, 'i64')}, ptr null)")
    code.branch(became, "became", "unbecome")
    code.label("became")
    code.do(f"call void {code.slot('incref')}(ptr {program})", "br label %drop.found")
    code.label("unbecome")
    code.do("br label %drop.found")
    code.label("no.records")
    code.do(f"call void @each(ptr {code.slot('decref')}, ptr {records}, i64 {kept})")
    short = code.let(f"icmp slt i64 {kept}, {count}")
    code.do("br label %drop.found")
    code.label("nothing")
    code.do("br label %drop.found")
    code.label("drop.found")
    what = code.let(f"phi ptr [{program}, %became], [null, %unbecome], [null, %no.records], [null, %nothing]")
    wrong = code.let(f"phi i1 [false, %became], [true, %unbecome], [{short}, %no.records], [false, %nothing]")
    code.do(f"call void {code.slot('decref')}(ptr {found})", "br label %drop")
    code.label("failed")
    code.do("br label %drop")
    code.label("drop")
    answer = code.let(f"phi ptr [{what}, %drop.found], [null, %failed]")
    error = code.let(f"phi i1 [{wrong}, %drop.found], [true, %failed]")
    _count_references(code, "decref", needed, (objects, count), (arrays, m))
    done = code.let(f"icmp ne ptr {answer}, null")
    code.branch(code.let(f"or i1 {done}, {error}"), "answer", "refuse")
    code.label("answer")
    code.do(f"ret ptr {answer}")
    return "".join([fastcall._none(), _unwritten(), _pending(), _each(), _new_records(), _are_of(), _become(), code.text()])


def _is_as_before(code: ObjectCode, path: str, node: str, made: str, n: str, objects: str, count: str, cls: str) -> str:
    """Whether the items `path` still have the node and the `n` results made that they had, and all objects are pending."""
    stays = code.let(f"icmp eq ptr {code.element(path, PATH.index('node'), 'ptr')}, {node}")
    as_many = code.let(f"icmp eq i64 {code.field(made, pyabi.LENGTH, 'i64')}, {n}")
    own = code.let(f"icmp eq ptr {code.element(path, PATH.index('made'), 'ptr')}, {made}")
    still = code.let(f"call i1 @are_of(ptr {objects}, i64 {count}, ptr {cls})")
    return code.let(f"and i1 {code.let(f'and i1 {stays}, {as_many}')}, {code.let(f'and i1 {own}, {still}')}")


def _count_references(code: ObjectCode, how: str, items: tuple[str, ...], *lists: tuple[str, str]) -> None:
    """Hold or let go of objects, and of those in memory of which each list names a place and a number; `how` is a slot."""
    for item in items:
        code.do(f"call void {code.slot(how)}(ptr {item})")
    for place, number in lists:
        code.do(f"call void @each(ptr {code.slot(how)}, ptr {place}, i64 {number})")


def _unwritten() -> str:
    """Whether the records of the `m` inputs have the counts that they had, the same objects; their arrays go to `arrays`."""
    code = ObjectCode("internal i1 @unwritten(ptr %table, ptr %inputs, ptr %counts, i64 %m, ptr %arrays, i64 %array.at, i64 %record.at)")
    with _counted(code, "%m"):
        item, count = (code.element(x, "%i", "ptr") for x in ("%inputs", "%counts"))
        places = [code.let(f"getelementptr i8, ptr {item}, i64 {at}") for at in ("%array.at", "%record.at")]
        array, record = (code.let(f"load ptr, ptr {place}") for place in places)
        for one in (array, record):
            _go_on_if(code, f"icmp ne ptr {one}, null", "no")
        _go_on_if(code, f"icmp eq ptr {code.field(record, pyabi.TYPE, 'ptr')}, {code.slot('list')}", "no")
        _go_on_if(code, f"icmp eq ptr {first_of_list(code, record)}, {count}", "no")
        code.do(f"store ptr {array}, ptr {code.let('getelementptr ptr, ptr %arrays, i64 %i')}")
    code.do("ret i1 true")
    code.label("no")
    code.do("ret i1 false")
    return code.text()


def _pending() -> str:
    """How many of the `n` values that `made` refers to are pending; they go to `objects`. -1 if they are not those `asked` for."""
    given = "ptr %table, ptr %made, ptr %asked, i64 %n, ptr %objects, ptr %recorder, ptr %cls, i64 %grad.at"
    code = ObjectCode(f"internal i64 @pending({given})")
    overflow, found = code.let("alloca i32"), code.let("alloca i64")
    code.do(f"store i64 0, ptr {found}")
    with _counted(code, "%n"):
        is_asked = code.let(f"icmp ne i8 {code.element('%asked', '%i', 'i8')}, 0")
        item = code.field(code.element("%made", "%i", "ptr"), pyabi.REFERENT, "ptr")
        _go_on_if(code, f"icmp ne ptr {item}, {code.slot('None')}", "gone")
        _go_on_if(code, f"icmp eq ptr {code.field(item, pyabi.TYPE, 'ptr')}, %cls", "gone")
        pending = code.let(f"load ptr, ptr {code.let(f'getelementptr i8, ptr {item}, i64 %grad.at')}")
        _go_on_if(code, f"icmp ne ptr {pending}, null", "gone")
        _go_on_if(code, f"icmp eq ptr {code.field(pending, pyabi.TYPE, 'ptr')}, {code.slot('tuple')}", "gone")
        _go_on_if(code, f"icmp eq ptr {tuple_item(code, pending, 0)}, %recorder", "gone")
        number = code.let(f"call i64 {code.slot('int_value')}(ptr {tuple_item(code, pending, 1)}, ptr {overflow})")
        _go_on_if(code, f"icmp eq i64 {number}, %i", "gone")
        _go_on_if(code, f"and i1 {is_asked}, true", "no")
        at = code.let(f"load i64, ptr {found}")
        _go_on_if(code, f"icmp ult i64 {at}, {MOST}", "no")
        code.do(f"store ptr {item}, ptr {code.let(f'getelementptr ptr, ptr %objects, i64 {at}')}",
                f"store i64 {code.let(f'add i64 {at}, 1')}, ptr {found}", "br label %look")
        code.label("gone")
        code.branch(is_asked, "no", "look")
        code.label("look")
    code.do(f"ret i64 {code.let(f'load i64, ptr {found}')}")
    code.label("no")
    code.do("ret i64 -1")
    return code.text()


def _each() -> str:
    """Call a function of one object on `n` of them."""
    code = ObjectCode("internal void @each(ptr %function, ptr %items, i64 %n)")
    with _counted(code, "%n"):
        code.do(f"call void %function(ptr {code.element('%items', '%i', 'ptr')})")
    code.do("ret void")
    return code.text()


def _new_records() -> str:
    """Store `n` new records; how many there are, which is less after an error."""
    code = ObjectCode("internal i64 @new_records(ptr %table, ptr %records, i64 %n)")
    with _counted(code, "%n"):
        record = code.let(f"call ptr {code.slot('new_list')}(i64 4)")
        _go_on_if(code, f"icmp ne ptr {record}, null", "no")
        items = code.field(record, pyabi.LIST_ITEMS, "ptr")
        for k, value in enumerate(("zero", "zero", "None", "None")):
            code.hold(code.let(f"getelementptr ptr, ptr {items}, i64 {k}"), code.slot(value))
        code.do(f"store ptr {record}, ptr {code.let('getelementptr ptr, ptr %records, i64 %i')}")
    code.do("ret i64 %n")
    code.label("no")
    code.do("ret i64 %i")
    return code.text()


def _are_of() -> str:
    """Whether `n` objects are of a class."""
    code = ObjectCode("internal i1 @are_of(ptr %objects, i64 %n, ptr %cls)")
    with _counted(code, "%n"):
        _go_on_if(code, f"icmp eq ptr {code.field(code.element('%objects', '%i', 'ptr'), pyabi.TYPE, 'ptr')}, %cls", "no")
    code.do("ret i1 true")
    code.label("no")
    code.do("ret i1 false")
    return code.text()


def _become() -> str:
    """Let `n` pending objects have arrays and records, which are taken over, and be of the class. False after an error."""
    code = ObjectCode("internal i1 @become(ptr %table, ptr %objects, ptr %arrays, ptr %records, i64 %n)")
    with _counted(code, "%n"):
        made, array, record = (code.element(x, "%i", "ptr") for x in ("%objects", "%arrays", "%records"))
        code.hold(code.place(made, "array"), array)
        code.do(f"store ptr {record}, ptr {code.place(made, 'record')}")
        for empty in ("node", "link"):
            code.hold(code.place(made, empty), code.slot("None"))
        pending = code.let(f"load ptr, ptr {code.place(made, 'grad')}")
        code.hold(code.place(made, "grad"), code.slot("None"))
        code.do(f"call void {code.slot('decref')}(ptr {pending})")
        status = code.let(f"call i32 {code.slot('set_attribute')}(ptr {made}, ptr {code.slot('its_class')}, ptr {code.slot('class')})")
        _go_on_if(code, f"icmp eq i32 {status}, 0", "no")
    code.do("ret i1 true")
    code.label("no")
    code.do("ret i1 false")
    return code.text()


@contextlib.contextmanager
def _counted(code: ObjectCode, n: str) -> Iterator[None]:
    """A loop in which ``%i`` goes from 0 to `n`; it is the only one of its function."""
    index = code.let("alloca i64")
    code.do(f"store i64 0, ptr {index}", "br label %head")
    code.label("head")
    code.do(f"%i = load i64, ptr {index}")
    code.branch(code.let(f"icmp slt i64 %i, {n}"), "each", "done")
    code.label("each")
    yield
    code.do(f"store i64 {code.let('add i64 %i, 1')}, ptr {index}", "br label %head")
    code.label("done")


def _go_on_if(code: ObjectCode, condition: str, otherwise: str) -> None:
    """Go on if the condition, an instruction, holds, and to the label `otherwise` if it does not."""
    onward = code.fresh("ok")
    code.branch(code.let(condition), onward, otherwise)
    code.label(onward)
