"""Programs that define operators: each takes the library, PyTorch or Flambeau, and gives what both must give.

Annotations are evaluated, as `custom_op` reads them, so this module has no postponed ones.
"""

import warnings
from typing import Any

import numpy as np


def failure(run: Any) -> str:
    """The type and the first line of what `run` raises."""
    try:
        run()
    except Exception as error:  # of every type: that is the result
        first = str(error).strip().split("\n")[0]
        return f"{type(error).__name__}: {first}"
    return "nothing raised"


def numpy_ops(torch: Any, name: str) -> Any:
    """``x * y`` by numpy, with its derivative, fake kernel and rule for batches."""

    @torch.library.custom_op(f"{name}::mul", mutates_args=())
    def mul(x: torch.Tensor, y: float, power: int = 1) -> torch.Tensor:
        return torch.from_numpy(np.asarray((x.numpy() * y) ** power))

    @mul.register_fake
    def _(x, y, power=1):
        return torch.empty_like(x)

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.y, ctx.power = inputs[1:]

    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.power * (x * ctx.y) ** (ctx.power - 1) * ctx.y, None, None

    mul.register_autograd(backward, setup_context=setup_context)

    @mul.register_vmap
    def _(info, in_dims, x, y, power=1):
        return mul(x, y, power), in_dims[0]

    return mul


def calls(torch):
    mul = numpy_ops(torch, "calls")
    x = torch.arange(3.0)
    packet, overload = torch.ops.calls.mul, torch.ops.calls.mul.default
    return (mul(x, 2.0), mul(x, 2), mul(x, y=3.0, power=2), packet(x, 2.0), overload(x, 2.0, power=3), repr(mul), repr(packet),
            repr(overload), str(overload._schema), overload.name(), packet.overloads(), str(overload.tags))  # fmt: skip


def derivatives(torch):
    mul = numpy_ops(torch, "derivatives")
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    y = mul(x, 3.0, 3)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    return y, first, second, y.grad_fn.name(), torch.autograd.gradcheck(lambda v: mul(v, 2.0, 2), (x,))


def batches(torch):
    mul = numpy_ops(torch, "batches")
    x = torch.arange(6.0).reshape(2, 3)
    return (torch.vmap(lambda v: mul(v, 2.0))(x), torch.vmap(lambda v: mul(v, 2.0), 1, 1)(x),
            torch.vmap(torch.vmap(lambda v: mul(v, 2.0)))(x))  # fmt: skip


def batches_without_rule(torch):
    @torch.library.custom_op("unruled::outer", mutates_args=())
    def outer(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.outer(x, y), x + 1

    x, y = torch.arange(6.0).reshape(2, 3), torch.arange(2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.vmap(outer, (0, None))(x, y), torch.vmap(outer, (1, None))(x, y)


def meta(torch):
    mul = numpy_ops(torch, "meta_of")
    return mul(torch.empty(2, 3, device="meta"), 2.0)


def factories(torch):
    @torch.library.custom_op("factories::ones", mutates_args=(), device_types="cpu")
    def ones(device: torch.device, n: int = 2) -> torch.Tensor:
        return torch.ones(n)

    def without_device():
        torch.library.custom_op("factories::bad", lambda: torch.ones(3), mutates_args=(), device_types="cpu", schema="() -> Tensor")

    return ones("cpu"), ones(torch.device("cpu"), 3), failure(lambda: ones("cuda")), failure(without_device)


def writes(torch):
    @torch.library.custom_op("writes::scale", mutates_args={"x"})
    def scale(x: torch.Tensor, by: float) -> None:
        x.mul_(by)

    @torch.library.custom_op("writes::all", mutates_args="unknown")
    def everything(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        np.multiply(x.numpy(), 2, out=x.numpy())
        return x + y

    x = torch.ones(2)
    before = x._version
    result = scale(x, 3.0)
    moved = x._version > before
    other = torch.ones(2, device="meta")
    return (result, x, moved, everything(x, torch.ones(2)), x, scale(other, 2.0), str(torch.ops.writes.scale.default._schema),
            str(torch.ops.writes.all.default._schema))  # fmt: skip


def a_write_is_seen_by_backward(torch):
    @torch.library.custom_op("seen::zero", mutates_args={"x"})
    def zero(x: torch.Tensor) -> None:
        np.multiply(x.numpy(), 0, out=x.numpy())

    w = torch.ones(2, requires_grad=True)
    x = torch.ones(2)
    y = (w * x).sum()
    zero(x)
    return failure(lambda: y.backward()).split(":")[0]


def lists(torch):
    @torch.library.custom_op("lists::shift", mutates_args=())
    def shift(x: torch.Tensor, rest: list[torch.Tensor], sizes: list[int]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        return x * 2, [r * n for r, n in zip(rest, sizes)]  # noqa: B905  # as long as each other

    seen = []

    def setup_context(ctx, inputs, output):
        ctx.sizes = inputs[2]
        seen.append((type(inputs[1]).__name__, len(output[1])))

    def backward(ctx, grad, grads):
        return grad * 2, [g * n for g, n in zip(grads, ctx.sizes)], None  # noqa: B905

    shift.register_autograd(backward, setup_context=setup_context)
    a, b, c = (torch.ones(2, requires_grad=True) for _ in range(3))
    first, rest = shift(a, [b, c], (3, 4))
    grads = torch.autograd.grad(rest[1].sum() + first.sum(), (a, b, c))
    return first, rest, grads, seen


def backward_of_other_structure(torch):
    @torch.library.custom_op("structure::two", mutates_args=())
    def two(x: torch.Tensor, rest: list[torch.Tensor]) -> torch.Tensor:
        return x * 2

    two.register_autograd(lambda ctx, grad: (grad, grad))
    x = torch.ones(2, requires_grad=True)
    said = failure(lambda: two(x, [x]).sum().backward())
    return said.split(" Got")[0]


def numbers_among_results(torch):
    @torch.library.custom_op("results::count", mutates_args=())
    def count(x: torch.Tensor) -> tuple[torch.Tensor, int, float]:
        return x * 2, x.numel(), 0.5

    count.register_autograd(lambda ctx, grad, *none: (grad * len(none), none)[0])
    x = torch.ones(3, requires_grad=True)
    y, n, half = count(x)
    return n, half, torch.autograd.grad(y.sum(), x)


def no_formula(torch):
    @torch.library.custom_op("formula::none", mutates_args=())
    def none(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    y = none(torch.ones(2, requires_grad=True))
    return y.requires_grad, failure(lambda: y.sum().backward())


def no_fake(torch):
    @torch.library.custom_op("fake::none", mutates_args=())
    def nothing(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    return failure(lambda: nothing(torch.ones(2, device="meta"))), failure(lambda: torch.ops.fake.none(torch.ones(1, device="meta")))


def by_keyword_alone(torch):
    @torch.library.custom_op("keyword::mul", mutates_args=())
    def mul(x: torch.Tensor, *, by: float = 2.0) -> torch.Tensor:
        return x * by

    def setup_context(ctx, inputs, keyword_only_inputs, output):
        ctx.by = keyword_only_inputs["by"]

    torch.library.register_autograd("keyword::mul", lambda ctx, grad: grad * ctx.by, setup_context=setup_context)
    x = torch.ones(2, requires_grad=True)

    def tensor_by_keyword():
        torch.library.custom_op("keyword::bad", lambda x: x, mutates_args=(), schema="(*, Tensor x) -> Tensor")

    return mul(x), torch.autograd.grad(mul(x, by=5.0).sum(), x), failure(tensor_by_keyword), failure(lambda: mul(x, 3.0))


def autocast(torch):
    @torch.library.custom_op("cast::add", mutates_args=())
    def add(x: torch.Tensor, y: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        assert n.dtype == torch.int64
        return x + y

    torch.library.register_autocast("cast::add", "cpu", torch.bfloat16)
    x, n = torch.ones(2), torch.ones(2, dtype=torch.int64)
    wide = x.double()
    with torch.autocast("cpu", dtype=torch.float16):
        inside = add(x, x, n), add(wide, wide, n), torch.ops.cast.add(x, wide, n)
    return add(x, x, n), inside


def kernels_of_devices(torch):
    @torch.library.custom_op("kernels::where", mutates_args=())
    def where(x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(1)

    given = [where(torch.ones(1))]
    where.register_kernel("cpu")(lambda x: torch.ones(1))
    given.append(where(torch.ones(1)))
    with where.set_kernel_enabled("cpu", enabled=False):
        given.append(where(torch.ones(1)))
    given.append(where(torch.ones(1)))

    @torch.library.custom_op("kernels::cuda", mutates_args=(), device_types="cuda")
    def on_cuda(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    return given, failure(lambda: on_cuda(torch.ones(1)))[:80]


def defined_again(torch):
    @torch.library.custom_op("again::f", mutates_args=())
    def first(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    before = torch.ops.again.f(torch.ones(1))

    @torch.library.custom_op("again::f", mutates_args=())
    def second(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y + 1

    return before, torch.ops.again.f(torch.ones(1), torch.ones(1))


def arguments_refused(torch):
    mul = numpy_ops(torch, "refused")
    x = torch.ones(2)
    return [failure(run) for run in (
        lambda: mul(x), lambda: mul(3, 2.0), lambda: mul(x, "a"), lambda: mul(x, 2.0, 2.5), lambda: mul(x, 2.0, 2, 3),
        lambda: mul(x, 2.0, q=2), lambda: mul(x, 2.0, x=x), lambda: torch.ops.refused.mul(x), lambda: torch.ops.refused.mul.no_such,
        lambda: torch.ops.refused.no_such, lambda: mul([x], 1.0),
    )]  # fmt: skip


def results_refused(torch):
    def op(name, function, returns):
        return torch.library.custom_op(f"bad_results::{name}", function, mutates_args=(), schema=f"(Tensor x) -> {returns}")

    x = torch.ones(2)
    found = []
    for at, (function, returns) in enumerate((
        (lambda x: x, "Tensor"), (lambda x: x[:1], "Tensor"), (lambda x: (x + 1,) * 2, "(Tensor, Tensor)"), (lambda x: 3, "Tensor"),
        (lambda x: x + 1, "(Tensor, Tensor)"), (lambda x: 3, "()"), (lambda x: [x], "Tensor[]"),
    )):  # fmt: skip
        made = op(f"f{at}", function, returns)
        found.append(failure(lambda made=made: made(x)).split(":")[0])
    return found, op("none", lambda x: None, "Tensor")(x), op("list", lambda x: (x + 1, x + 2), "Tensor[]")(x)


def definitions_refused(torch):
    def define(schema, mutates_args=()):
        return lambda: torch.library.custom_op("bad_definitions::f", lambda x: x, mutates_args=mutates_args, schema=schema)

    cases = (
        define("(Tensor(a!) x) -> ()"), define("(Tensor x) -> ()", {"x"}),
        lambda: torch.library.custom_op("nowhere", lambda x: x, mutates_args=(), schema="(Tensor x) -> Tensor"),
        lambda: torch.library.custom_op("a::b", lambda x: x, mutates_args=()),
        lambda: torch.library.custom_op("a::b", lambda x: x, mutates_args=(), device_types="tpu", schema="(Tensor x) -> Tensor"),
        define("(Tensr x) -> Tensor"), define("(Tensor x -> Tensor"), define("Tensor x"), define("(Tensor) -> ()"),
    )  # fmt: skip
    return [failure(case).split(":")[0] for case in cases]


def function_modes_and_classes(torch):
    mul = numpy_ops(torch, "functions")
    seen = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append((str(func), type(func).__name__, [type(a).__name__ for a in args], kwargs))
            return func(*args, **(kwargs or {}))

    class Like:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return str(func), [t.__name__ for t in types], kwargs

    class Sub(torch.Tensor):
        pass

    x = torch.ones(2)
    with Mode():
        mul(x, 2.0)
        torch.ops.functions.mul(x, y=2.0)
    return seen, mul(Like(), 2.0), torch.ops.functions.mul(Like(), y=2.0), type(mul(x.as_subclass(Sub), 2.0)).__name__


def dispatch_modes(torch):
    mul = numpy_ops(torch, "modes")
    seen = []
    from importlib import import_module

    base = import_module(f"{torch.__name__}.utils._python_dispatch").TorchDispatchMode

    class Mode(base):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if "modes" in str(func):
                seen.append((str(func), args[1:], kwargs))
            return func(*args, **(kwargs or {}))

    class Derived(Mode):
        pass

    @torch.library.register_torch_dispatch("modes::mul", Derived)
    def _(mode, func, types, args, kwargs):
        seen.append((type(mode).__name__, str(func), args[1:], kwargs))
        return args[0] + 100

    x = torch.ones(2, requires_grad=True)
    with Mode():
        first = mul(x, 2.0), mul(x, power=2, y=3.0), mul(x, 2.0, 1)
        grad = torch.autograd.grad(first[1].sum(), x)
    with Derived():
        second = mul(x.detach(), 2.0)
    return first, grad, second, seen


def libraries(torch):
    lib = torch.library.Library("libraries", "DEF")
    schemas = ("f(Tensor x) -> Tensor", "f.two(Tensor x, Tensor y) -> Tensor", "g(Tensor x, int n=2) -> Tensor")
    names = [lib.define(schema) for schema in schemas]
    lib.impl("f", lambda x: x + 1, "CPU")
    lib.impl("f.two", lambda x, y: x * y, "CompositeExplicitAutograd")
    lib.impl(torch.ops.libraries.g.default, lambda x, n=2: x * n)
    x = torch.full((2,), 3.0, requires_grad=True)
    g = torch.ops.libraries.g(x)
    return (names, torch.ops.libraries.f(x.detach()), torch.ops.libraries.f(x.detach(), x.detach()), torch.ops.libraries.f.overloads(), g,
            torch.autograd.grad(g.sum(), x), torch.ops.libraries.g(torch.ones(1, device="meta"), n=3), repr(lib),
            failure(lambda: torch.ops.libraries.f(x, x, x)))  # fmt: skip


def libraries_refuse(torch):
    lib, impl = torch.library.Library("refusing", "DEF"), torch.library.Library("refusing", "IMPL")
    lib.define("f(Tensor x) -> Tensor")
    cases = (
        lambda: torch.library.Library("refusing", "DEF"), lambda: torch.library.Library("x", "NONE"),
        lambda: lib.define("f(Tensor x) -> Tensor"),
        lambda: impl.define("h(Tensor x) -> Tensor"), lambda: lib.define("h(Tensor x) -> Tensor", "SOMETHING"),
        lambda: lib.impl("f", lambda x: x, "FPU"), lambda: lib.impl("f", 3, "CPU"), lambda: lib.impl("other::f", lambda x: x, "CPU"),
        lambda: lib.fallback(lambda op, *a: a, "CPU"), lambda: torch.ops.refusing.f(torch.ones(1)),
        lambda: torch.library.define("f", "() -> ()"), lambda: torch.library.define("a::b", "b() -> ()"),
        lambda: torch.library.define(3, "()"),
        lambda: torch.library.impl("a::b", "tpu", lambda: 1), lambda: torch.library.register_kernel(3, "cpu", abs),
        lambda: torch.library.register_autograd(3, abs), lambda: torch.library.register_fake("zz", abs),
        lambda: torch.library.register_vmap(3, abs), lambda: torch.library.register_autocast("refusing::f", "tpu", torch.float16),
        torch.library.fallthrough_kernel,
    )  # fmt: skip
    return [failure(case).split(":")[0] for case in cases]


def lives_of_libraries(torch):
    lib = torch.library.Library("mortal", "FRAGMENT")
    torch.library.define("mortal::f", "(Tensor x) -> Tensor", lib=lib)
    torch.library.impl("mortal::f", "cpu", lambda x: x + 1, lib=lib)
    there = torch.ops.mortal.f(torch.ones(1))
    mortal = torch.ops.mortal
    lib._destroy()
    return there, failure(lambda: mortal.f)


def kernels_above_the_backend(torch):
    lib = torch.library.Library("layers", "DEF")
    lib.define("f(Tensor x) -> Tensor")
    lib.define("h(Tensor x) -> Tensor")
    lib.impl("f", lambda x: x + 1, "CPU")
    lib.impl("f", lambda x: x.new_empty(5), "Meta")
    lib.impl("f", lambda x: x * 40, "Autograd")
    lib.impl("h", torch.library.fallthrough_kernel, "CPU")
    lib.impl("h", lambda keyset, x: x * 7, "CompositeExplicitAutograd", with_keyset=True)
    x = torch.ones(2, requires_grad=True)
    return torch.ops.layers.f(x), torch.ops.layers.f(x.detach()), torch.ops.layers.h(x.detach())


def rules_of_libraries(torch):
    torch.library.define("ruled::f", "(Tensor x, float by) -> Tensor")
    torch.library.impl("ruled::f", ("cpu", "cuda"), lambda x, by: torch.from_numpy(np.asarray(x.detach().numpy() * by)))
    fake = torch.library.register_fake("ruled::f", lambda x, by: x.new_empty(x.shape))
    torch.library.register_autograd(
        "ruled::f", lambda ctx, grad: (grad * ctx.by, None), setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1])
    )
    torch.library.register_vmap("ruled::f", lambda info, dims, x, by: (torch.ops.ruled.f(x, by) + info.batch_size, dims[0]))
    x = torch.ones(2, requires_grad=True)
    refused = []
    for at, schema in enumerate(("(Tensor(a!) x) -> ()", "(Tensor(a) x) -> Tensor(a)", "(*, Tensor x) -> Tensor")):
        torch.library.define(f"ruled::g{at}", schema)
        refused.append(failure(lambda at=at: torch.library.register_autograd(f"ruled::g{at}", lambda ctx, grad: grad)))
    f = torch.ops.ruled.f
    return (callable(fake), f(x, 2.0), torch.autograd.grad(f(x, 2.0).sum(), x), f(torch.ones(3, device="meta"), 2.0),
            torch.vmap(lambda v: f(v, 2.0))(torch.ones(4)), refused)  # fmt: skip


def kernels_before_definitions(torch):
    torch.library.impl("early::f", "cpu", lambda x: x + 5)
    torch.library.register_fake("early::f", lambda x: x.new_empty(7))
    torch.library.define("early::f", "(Tensor x) -> Tensor")
    return torch.ops.early.f(torch.ones(1)), torch.ops.early.f(torch.ones(1, device="meta"))


def traced(torch):
    from importlib import import_module

    mul = numpy_ops(torch, "traced")
    make_fx = import_module(f"{torch.__name__}.fx.experimental.proxy_tensor").make_fx
    x = torch.arange(3.0)
    recorded = make_fx(lambda x: mul(x, 2.0))(x)
    symbolic = import_module(f"{torch.__name__}.fx").symbolic_trace(lambda x: mul(x, 2.0))
    targets = [[str(n.target) for n in gm.graph.nodes if n.op == "call_function"] for gm in (recorded, symbolic)]
    return recorded(x + 1), symbolic(x + 1), targets, "torch.ops.traced.mul.default(" in recorded.code


def seen_through(torch):
    @torch.library.triton_op("through::f", mutates_args=())
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.abs() * 2

    return f(torch.ones(2)), failure(lambda: torch.library.wrap_triton(3)) != "nothing raised"


def checks(torch):
    mul = numpy_ops(torch, "checked")
    x = torch.ones(3, requires_grad=True)

    @torch.library.custom_op("checked::writes", mutates_args=())
    def writes(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x.clone()

    @torch.library.custom_op("checked::shape", mutates_args=())
    def shape(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    shape.register_fake(lambda x: x.new_empty(5))

    @torch.library.custom_op("checked::dtype", mutates_args=())
    def other_dtype(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    other_dtype.register_fake(lambda x: torch.empty_like(x, dtype=torch.float64))

    @torch.library.custom_op("checked::strides", mutates_args=())
    def strides(x: torch.Tensor) -> torch.Tensor:
        return torch.ones(3, 2).t()

    strides.register_fake(lambda x: x.new_empty(2, 3))
    lib = torch.library.Library("checked", "FRAGMENT")
    lib.define("view(Tensor x) -> Tensor")
    lib.impl("view", lambda x: x[:], "CPU")
    lib.define("plain(Tensor x) -> Tensor")
    lib.impl("plain", lambda x: x + 1, "CPU")

    def said(op, args, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = torch.library.opcheck(op, args, raise_exception=False, **options)
        return {k: v if isinstance(v, str) else str(v).split(".")[0] if k == "test_schema" else type(v).__name__ for k, v in found.items()}

    d = x.detach()
    only = ("test_schema", "test_autograd_registration")
    return (
        said(mul, (x, 2.0)), said(mul, (d,), kwargs={"y": 2.0}), said(writes, (d.clone(),), test_utils=only),
        failure(lambda: torch.library.opcheck(shape, (d,))),
        failure(lambda: torch.library.opcheck(other_dtype, (d,), test_utils="test_faketensor")),
        failure(lambda: torch.library.opcheck(strides, (d,), test_utils="test_faketensor")),
        said(torch.ops.checked.view.default, (d,), test_utils="test_schema"),
        said(torch.ops.checked.plain.default, (x,), test_utils="test_autograd_registration"),
        failure(lambda: torch.library.opcheck(mul, (d, 2.0), test_utils="no_test")),
        failure(lambda: torch.library.opcheck(3, (d,))).split(":")[0],
    )  # fmt: skip


PROGRAMS = [
    calls, derivatives, batches, batches_without_rule, meta, factories, writes, a_write_is_seen_by_backward, lists,
    backward_of_other_structure, numbers_among_results, no_formula, no_fake, by_keyword_alone, autocast, kernels_of_devices, defined_again,
    arguments_refused, results_refused, definitions_refused, function_modes_and_classes, dispatch_modes, libraries, libraries_refuse,
    lives_of_libraries, kernels_above_the_backend, rules_of_libraries, kernels_before_definitions, traced, seen_through, checks,
]  # fmt: skip
