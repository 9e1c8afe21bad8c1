"""Programs of the pages on extending: stand-ins for tensors, subclasses, modes, and Functions inside transforms."""

from typing import Any

import numpy as np

from library.programs import failure


def diagonals(torch: Any) -> Any:
    """A stand-in that is a multiple of the identity, with a table of the functions that it knows."""
    known = {}

    class Diagonal:
        def __init__(self, size, value):
            self.size, self.value = size, value

        def dense(self):
            return self.value * torch.eye(self.size)

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func not in known or not all(issubclass(t, (torch.Tensor, Diagonal)) for t in types):
                return NotImplemented
            return known[func](*args, **(kwargs or {}))

    def add(input, other):
        if isinstance(input, Diagonal) and isinstance(other, Diagonal):
            return ("diagonal", input.size, input.value + other.value)
        return torch.add(*[x.dense() if isinstance(x, Diagonal) else x for x in (input, other)])

    known[torch.add] = add
    known[torch.trace] = lambda input: float(input.size * input.value)
    d, t = Diagonal(2, 2), torch.tensor([[1, 1], [1, 1]])
    refused = (lambda: torch.mul(d, 3), lambda: torch.stack([t, d]), lambda: torch.add(d, d, alpha=2), lambda: torch.trace(d, 0))
    return (torch.trace(Diagonal(5, 2)), torch.add(d, d), torch.add(d, t), torch.add(t, d),
            [failure(run).split(":")[0] for run in refused])  # fmt: skip


def labelled(torch: Any) -> Any:
    """A stand-in that holds a tensor and hands a label on."""

    class Labelled:
        def __init__(self, data, label):
            self.data, self.label = torch.as_tensor(data), label

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            label = next(a.label for a in args if isinstance(a, Labelled))
            return cls(func(*[getattr(a, "data", a) if isinstance(a, Labelled) else a for a in args], **(kwargs or {})), label)

    x, t = Labelled([[1, 2], [3, 4]], "mine"), torch.tensor([[1, 2], [1, 2]])
    found = torch.add(t, x), torch.mul(x, t), torch.nn.functional.relu(torch.sub(x, 2)), torch.sum(x, dim=0)
    return [(f.data, f.label) for f in found]


def several_classes(torch: Any) -> Any:
    """Who is asked, in which order."""
    asked = []

    def stand_in(name, base, answer):
        def handler(cls, func, types, args=(), kwargs=None):
            asked.append((cls.__name__, [t.__name__ for t in types]))
            return answer

        return type(name, (base,), {"__torch_function__": classmethod(handler)})

    a = stand_in("A", object, NotImplemented)
    b = stand_in("B", a, NotImplemented)
    d = stand_in("D", object, "D")
    return torch.add(a(), d()), torch.cat([a(), b(), d()]), failure(lambda: torch.add(a(), b())).split(":")[0], asked


def subclasses(torch: Any) -> Any:
    """Classes of results."""

    class Sub(torch.Tensor):
        pass

    class Deeper(Sub):
        pass

    class Other(torch.Tensor):
        pass

    class Counting(torch.Tensor):
        seen = 0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            Counting.seen += 1
            return super().__torch_function__(func, types, args, kwargs or {})

    t = torch.tensor([1])
    made = torch.add(Sub([0]), Sub([1])), torch.add(Sub([0]), t), torch.add(Sub([0]), Deeper([1])), Sub([1, 2])[0], torch.mean(Sub([1.0]))
    x = torch.ones(2).as_subclass(Counting)
    names = [type(m).__name__ for m in (*made, (x * 2).sum())]
    return names, failure(lambda: torch.add(Sub([0]), Other([1]))).split(":")[0], Counting.seen


def modes_inside_each_other(torch: Any) -> Any:
    """Which mode sees which call."""
    seen = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append((self.name, torch.overrides.resolve_name(func)))
            if self.name == "inner" and func is torch.Tensor.mul:
                return torch.add(args[0], 100)
            return func(*args, **(kwargs or {}))

    x = torch.ones(1)
    with Mode("outer"), Mode("inner"):
        result = x * 2
        torch.rand(2)
    return result, seen


def sorting(torch: Any) -> Any:
    """Functions by numpy with rules for batches, inside transforms."""
    Function = torch.autograd.Function

    class Sort(Function):
        @staticmethod
        def forward(x, dim):
            order = np.argsort(x.numpy(), axis=dim)
            return torch.tensor(np.take_along_axis(x.numpy(), order, dim)), torch.tensor(order), torch.tensor(np.argsort(order, axis=dim))

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.mark_non_differentiable(*output[1:])
            ctx.save_for_backward(*output[1:])
            ctx.dim = inputs[1]

        @staticmethod
        def backward(ctx, grad, *_):
            order, back = ctx.saved_tensors
            return Take.apply(grad, back, order, ctx.dim), None

        @staticmethod
        def vmap(info, in_dims, x, dim):
            return Sort.apply(x.movedim(in_dims[0], 0), dim % (x.dim() - 1) + 1), (0, 0, 0)

    class Take(Function):
        @staticmethod
        def forward(x, order, back, dim):
            return torch.tensor(np.take_along_axis(x.numpy(), order.numpy(), dim))

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs[1:3])
            ctx.dim = inputs[3]

        @staticmethod
        def backward(ctx, grad):
            order, back = ctx.saved_tensors
            return Take.apply(grad, back, order, ctx.dim), None, None, None

        @staticmethod
        def vmap(info, in_dims, x, order, back, dim):
            def whole(t, d):
                return t.expand(info.batch_size, *t.shape) if d is None else t.movedim(d, 0)

            parts = [whole(t, d) for t, d in zip((x, order, back), in_dims)]  # noqa: B905  # the fourth is no tensor
            return Take.apply(*parts, dim % (parts[0].dim() - 1) + 1), 0

    def f(x):
        return Sort.apply(x, -1)[0]

    x, w = torch.tensor([[3.0, 1.0, 2.0], [5.0, 9.0, 4.0]]), torch.arange(3.0)
    g = torch.func.grad(lambda v: (f(v) * w).sum())
    return (torch.vmap(f)(x), torch.vmap(f, 1)(x), g(x), torch.vmap(g)(x), torch.func.jacrev(f)(x[0]),
            torch.vmap(torch.func.jacrev(f))(x).contiguous(), torch.func.grad(lambda v: (g(v[0]) * v[1]).sum())(x))  # fmt: skip


def cubes(torch: Any) -> Any:
    """A Function whose rule for batches is made, with derivatives in both directions."""

    class Cube(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x**3, 3 * x**2

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0], output[1])
            ctx.save_for_forward(inputs[0], output[1])

        @staticmethod
        def backward(ctx, grad, grad_slope):
            x, slope = ctx.saved_tensors
            return grad * slope + grad_slope * 6 * x

        @staticmethod
        def jvp(ctx, tangent):
            x, slope = ctx.saved_tensors
            return tangent * slope, 6 * x * tangent

    def f(x):
        return Cube.apply(x)[0]

    x, grad = torch.tensor([1.0, 2.0, 3.0]), torch.func.grad
    return (grad(grad(f))(x[1]), torch.vmap(f)(x), torch.vmap(grad(f))(x), torch.func.jvp(f, (x,), (torch.ones(3),)),
            torch.func.jacfwd(f)(x), torch.func.jacrev(f)(x), torch.vmap(grad(grad(f)))(x))  # fmt: skip


PROGRAMS = [diagonals, labelled, several_classes, subclasses, modes_inside_each_other, sorting, cubes]
