"""From an exported program to a model of ONNX."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import flambeau as fb

from ..export.graph_signature import ConstantArgument, InputKind, OutputKind
from ..tensor import Tensor
from ._complex import Complex, is_concerned, packed, translated, unpacked
from ._control_flow import CONTROL_FLOW
from ._graph import Graph, Value, array_of, onnx_type
from ._translate import TRANSLATORS
from .errors import OnnxExporterError, UnsupportedOperatorError

__all__ = ["Conversion"]

_SIZES = {  # on sizes and numbers, in Python
    "add": "Add", "sub": "Sub", "mul": "Mul", "pow": "Pow", "mod": "Mod", "eq": "Equal", "lt": "Less", "le": "LessOrEqual",
    "gt": "Greater", "ge": "GreaterOrEqual", "sym_max": "Max", "sym_min": "Min",
}  # fmt: skip


class Conversion:
    """One model being written.

    Args:
        program: what `flambeau.export` gives.
        opset: the version of ONNX's operators.
        input_names, output_names: of the model's inputs and outputs, in order, as far as given.
        labels: names of open dimensions, by input (its place among the program's inputs that are Tensors) and dimension.
        custom: translations by operator that come before those built in.
        with_weights: whether the values of parameters and buffers are part of the model.
    """

    def __init__(
        self, program: Any, opset: int, input_names: Any, output_names: Any, labels: dict[tuple[int, int], str],
        custom: dict[str, Callable[..., Any]], with_weights: bool,
    ) -> None:  # fmt: skip
        self.program, self.labels, self.custom, self.with_weights = program, labels, custom, with_weights
        self.input_names, self.output_names = list(input_names or ()), list(output_names or ())
        paths = [s.target for s in program.graph_signature.input_specs if s.target]
        named = [*self.input_names, *self.output_names]
        both = {*self.input_names} & {*self.output_names}
        for names, what in ((self.input_names, "input_names"), (self.output_names, "output_names")):
            doubled = sorted({n for n in names if names.count(n) > 1 or n in both or n in paths})
            if doubled:
                raise OnnxExporterError(f"onnx.export: {what} has {doubled[0]!r}, which is the name of something else too")
        holders = [node.name for node in program.graph.nodes if node.op == "placeholder"]
        self.graph = Graph(opset, [*named, *paths, *holders])
        self.taken = {*named, *paths}                 # names that no input has by itself
        self.env: dict[Any, Any] = {}
        self.specs = iter(program.graph_signature.input_specs)
        self.leaves = 0                               # how many inputs of the program have been met
        self.parents: dict[Any, Any] = {}             # by node: the node whose elements it shows
        self.inputs: list[Any] = []                   # of the model
        self.fed: list[int] = []                      # places of the inputs among the leaves of the program's
        self.open: dict[str, str] = {}                # the name of a symbol
        self.parameters: list[str] = []               # weights that are the program's
        self.modules: list[Any] = [program.graph_module]  # whose graphs are being written, the innermost last
        self.where = ""                               # the operator being translated and the module it is in, for messages
        self.line = ""                                # of the program, that it comes from
        self.within: list[str] = []                   # operators being decomposed

    def model(self, optimize: bool, weights_as_inputs: bool) -> Any:
        """The model. Raises: UnsupportedOperatorError for operators that have no translation."""
        from ._tidy import read_by, tidied

        for node in self.program.graph.nodes:
            self._node(node)
        g = self.graph
        names = [x.name for x in self.outputs]
        nodes = tidied(g.nodes, names, optimize)
        used = {name for node in nodes for name in read_by(node)} | set(names)
        helper = g.onnx.helper
        weights, missing = [], []
        for name, value in g.weights.items():
            if name not in used:
                continue
            array = array_of(value) if isinstance(value, Tensor) else value
            kind = onnx_type(value.dtype if isinstance(value, Tensor) else _dtype_of(array))
            if not self.with_weights and name in self.parameters:
                missing.append(helper.make_tensor_value_info(name, kind, array.shape))
                continue
            tensor = g.onnx.TensorProto(data_type=kind, dims=array.shape, name=name)
            tensor.raw_data = np.ascontiguousarray(array).tobytes()
            weights.append(tensor)
            if weights_as_inputs:
                missing.append(helper.make_tensor_value_info(name, kind, array.shape))
        graph = helper.make_graph(nodes, "main_graph", [*self.inputs, *missing], [self._info(x) for x in self.outputs], weights)
        opsets = [helper.make_opsetid("", g.opset), *(helper.make_opsetid(d, v) for d, v in g.domains.items())]
        made = helper.make_model(graph, opset_imports=opsets, functions=g.functions, producer_name="flambeau")
        made.producer_version = fb.__version__
        made.ir_version = min(made.ir_version, 10)    # what runtimes of the last years read
        return made

    # -- nodes

    def _node(self, node: Any) -> None:
        if node.op == "placeholder":
            self._placeholder(node)
        elif node.op == "output":
            self._outputs(node)
        elif node.op == "call_function":
            self._call(node)
        elif node.op == "get_attr":                   # a graph of the program's, or a constant of one
            value = self.modules[-1]
            for part in node.target.split("."):
                value = getattr(value, part)
            self.env[node] = self._constant(value) if isinstance(value, Tensor) else value
        else:
            raise UnsupportedOperatorError(f"onnx.export: {node.format_node()} cannot be translated")

    def _constant(self, value: Tensor) -> Any:
        if value.dtype.is_complex:
            return unpacked(self.graph, self.graph.const(fb.view_as_real(value)))
        return self.graph.const(value)

    def _run(self, module: Any, values: Sequence[Value]) -> list[Value]:
        """Write the nodes of a graph within the program on `values`: what it gives."""
        given = iter(values)
        self.modules.append(module)
        results: list[Any] = []
        for node in module.graph.nodes:
            if node.op == "placeholder":
                self.env[node] = next(given)
            elif node.op == "output":
                results = [x if isinstance(x, Value) else self.graph.const(x) for x in self._argument(node.args[0])]
            else:
                self._node(node)
        self.modules.pop()
        return results

    def _placeholder(self, node: Any) -> None:
        spec = next(self.specs)
        if spec.kind is InputKind.USER_INPUT:
            self.leaves += 1
        if isinstance(spec.arg, ConstantArgument):
            self.env[node] = spec.arg.value
            return
        fake = node.meta["val"]
        if spec.kind is not InputKind.USER_INPUT:
            value = self.program._value_of(spec)
            real = fb.view_as_real(value.detach()) if value.dtype.is_complex else value
            self.graph.weights[spec.target] = real
            self.parameters.append(spec.target)
            made = Value(spec.target, real.dtype, tuple(real.shape))
            self.env[node] = made if real is value else unpacked(self.graph, made)
            return
        place = len(self.inputs)
        name = self.input_names[place] if place < len(self.input_names) else self._free_name(node.name)
        pairs = (2,) if fake.dtype.is_complex else ()
        kind = fake.dtype.to_real() if pairs else fake.dtype
        value = Value(name, kind, (*fake.shape, *pairs))
        self.env[node] = unpacked(self.graph, value) if pairs else value
        dims = []
        for d, n in enumerate(fake.shape):
            if isinstance(n, int):
                dims.append(n)
                continue
            label = self.labels.get((place, d))
            symbol = str(n.node.expr)
            if label is not None and symbol.isidentifier():
                self.open.setdefault(symbol, label)
            dims.append(label or self._size_by_name(n))
        self.inputs.append(self.graph.onnx.helper.make_tensor_value_info(name, onnx_type(kind), [*dims, *pairs]))
        self.fed.append(self.leaves - 1)

    def _free_name(self, name: str) -> str:
        return self.graph.fresh(name) if name in self.taken else name

    def _size_by_name(self, n: Any) -> str:
        """An open size as text, by the names of its symbols."""
        import sympy

        expr = n.node.expr
        named = {s: sympy.Symbol(self.open[str(s)], integer=True) for s in expr.free_symbols if str(s) in self.open}
        return str(expr.subs(named, simultaneous=True))

    def _info(self, x: Value) -> Any:
        sizes = None if x.shape is None else [n if isinstance(n, (int, str)) else self._size_by_name(n) for n in x.shape]
        return self.graph.onnx.helper.make_tensor_value_info(x.name, onnx_type(x.dtype), sizes)

    def _outputs(self, node: Any) -> None:
        specs = self.program.graph_signature.output_specs
        results = [r for r, s in zip(node.args[0], specs, strict=True) if s.kind is OutputKind.USER_OUTPUT]
        found = [self.env[r] if hasattr(r, "graph") else r for r in results]
        kept = [(r, x) for r, x in zip(results, found, strict=True) if x is not None]
        if len(self.input_names) > len(self.inputs) or len(self.output_names) > len(kept):
            raise OnnxExporterError(
                f"onnx.export: the program has {len(self.inputs)} inputs and {len(kept)} outputs, "
                f"given are {len(self.input_names)} input_names and {len(self.output_names)} output_names"
            )
        self.outputs: list[Value] = []
        taken = {x.name for x in self.inputs} | set(self.graph.weights)
        self.where = "output"
        for i, (r, x) in enumerate(kept):
            if isinstance(x, str):
                raise OnnxExporterError(f"onnx.export: output {i} is the text {x!r}, which ONNX has no place for")
            if isinstance(x, Complex):
                x = packed(self.graph, x)
            if not isinstance(x, Value):
                x = self.graph.const(x, fb.int64 if type(x) is int else None)
            given = self.output_names[i] if i < len(self.output_names) else getattr(r, "name", f"output_{i}")
            if given not in self.output_names:
                given = given if given not in taken and given not in self.graph.names else self.graph.fresh(given)
            taken.add(given)
            self.graph.names.add(given)
            # A node of its own gives the output its name; tidying names the value itself where that can be.
            made = self.graph.op("Identity", x)
            self.graph.nodes[-1].output[0] = given
            self.outputs.append(Value(given, made.dtype, x.shape))

    def _argument(self, x: Any) -> Any:
        if hasattr(x, "graph") and hasattr(x, "op"):
            return self.env[x]
        if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
            return [self._argument(each) for each in x]
        return x

    def _call(self, node: Any) -> None:
        name = str(node.target)
        if node.target is operator.getitem:
            of, at = node.args
            if of in self.env:
                self.env[node] = self.env[of][at]
                self.parents[node] = of
            return
        self.where, self.line = self._place(node)
        self.graph.doc = f"{self.where}{self.line}"
        args = [self._argument(x) for x in node.args]
        kwargs = {key: self._argument(x) for key, x in node.kwargs.items()}
        if node.target in CONTROL_FLOW:
            made = CONTROL_FLOW[node.target](self.graph, self._run, *args, **kwargs)
            self.env[node] = self._as_program(made, self._gives(node))
            return
        if name in ("aten.sym_size.int", "aten.sym_numel.default") or not hasattr(node.target, "_schema"):
            self.env[node] = self._size(node, name, args)
            return
        written = self._written_name(name)
        if written is not None:
            value = self._translated(node, written, args, kwargs)
            self._write(node, value)
            return
        self.env[node] = self._translated(node, name, args, kwargs)
        if name in _VIEWS and hasattr(node.args[0], "op"):
            self.parents[node] = node.args[0]

    def _place(self, node: Any) -> tuple[str, str]:
        """Where in the program `node` is, for messages: its module, and its line."""
        trace = (node.stack_trace or "").strip().splitlines()
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        parts = [str(node.target)]
        if stack and stack[-1][0]:
            kind = stack[-1][1]
            parts.append(f"in {stack[-1][0]} ({kind if isinstance(kind, str) else kind.__name__})")
        line = next((f"\n  {line.strip()}" for line in reversed(trace) if line.strip().startswith("File")), "")
        return " ".join(parts), line

    def _written_name(self, name: str) -> str | None:
        """The operator that gives what the operator `name`, one that writes to its first argument, writes."""
        namespace, base, overload = (*name.split("."), "")[:3]
        if namespace != "aten" or not base.endswith("_") or base.endswith("__"):
            return None
        return f"{namespace}.{base[:-1]}.{overload}"

    def _translated(self, node: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        g = self.graph
        g.out = out = self._gives(node)
        if out is None and name in ("aten.lift_fresh_copy.default", "aten.lift_fresh.default"):
            return args[0]
        translator = self.custom.get(name) or self.custom.get(name.rpartition(".")[0]) or TRANSLATORS.get(name)
        # A translation of the program's own takes complex values as they are.
        concerned = is_concerned(args, kwargs, out) and name not in self.custom
        if translator is None and not concerned:
            return self._decomposed(node, name, args, kwargs)
        try:
            made = translated(g, name, args, kwargs) if concerned or translator is None else translator(g, *args, **kwargs)
            if made is NotImplemented:
                return self._decomposed(node, name, args, kwargs)
        except OnnxExporterError as error:
            raise type(error)(f"onnx.export: {self.where}: {error}{self.line}") from None
        except TypeError as error:
            raise UnsupportedOperatorError(
                f"onnx.export: {self.where} cannot be translated with these arguments: {error}{self.line}"
            ) from error
        return self._as_program(made, out)

    def _gives(self, node: Any) -> Any:
        """What `node` gives in the program: a fake Tensor, or for several results a list with those that are read."""
        if "val" in node.meta:
            return node.meta["val"]
        reads = {user.args[1]: user.meta.get("val") for user in node.users if user.target is operator.getitem}
        return [reads.get(i) for i in range(max(reads, default=-1) + 1)] if reads else None

    def _as_program(self, made: Any, out: Any) -> Any:
        """Results with the sizes and dtypes that they have in the program."""
        if isinstance(made, (list, tuple)) and not isinstance(made, Value):
            outs = [*(out if isinstance(out, (list, tuple)) else ()), *[None] * len(made)]
            return tuple(self._as_program(x, fake) for x, fake in zip(made, outs, strict=False))
        if isinstance(made, Complex):
            return made.with_shape(tuple(out.shape)) if isinstance(out, Tensor) else made
        if isinstance(made, Value) and isinstance(out, Tensor):
            return self.graph.cast(made, out.dtype)._replace(shape=tuple(out.shape))
        return made

    def _decomposed(self, node: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """`node` by the operators that it is made of. Raises: UnsupportedOperatorError if there are none."""
        from .._decomp.table import core_aten_decompositions
        from ..func import functionalize
        from ..fx.experimental import proxy_tensor
        from ..fx.node import map_arg

        if name != str(node.target) or name in self.within or not name.startswith("aten."):
            raise self._unsupported(name)
        parts = list(node.all_input_nodes)

        def run(*given: Any) -> Any:
            at = dict(zip(parts, given, strict=True))
            return node.target(*map_arg(node.args, at.__getitem__), **map_arg(node.kwargs, at.__getitem__))

        table = {op: fn for op, fn in core_aten_decompositions().items() if str(op) not in TRANSLATORS}
        fakes = tuple(part.meta["val"].clone() for part in parts)  # each with memory of its own, as in functions without writes
        try:
            with fb.no_grad():
                gm = proxy_tensor.record_symbolically(functionalize(run), fakes, table, None, True)
        except (NotImplementedError, TypeError) as error:
            raise self._unsupported(name) from error
        named = [str(made.target) for made in gm.graph.nodes if made.op == "call_function"]
        if any(target.startswith("prims.") and target not in TRANSLATORS for target in named):
            raise self._unsupported(name)
        self.within.append(name)
        holders = iter(parts)
        result: Any = None
        for made in gm.graph.nodes:
            if made.op == "placeholder":
                self.env[made] = self.env[next(holders)]
            elif made.op == "output":
                result = self._argument(made.args[0])
            elif made.op == "get_attr":
                self.env[made] = self._constant(getattr(gm, made.target))
            else:
                made.meta["nn_module_stack"], made.stack_trace = node.meta.get("nn_module_stack"), node.stack_trace
                self._call(made)
        self.within.pop()
        return tuple(result) if isinstance(result, list) else result

    def _unsupported(self, name: str) -> UnsupportedOperatorError:
        return UnsupportedOperatorError(
            f"onnx.export: {self.where} has no translation to ONNX; give one by custom_translation_table or "
            f"torch.onnx.register_custom_op_symbolic({name.rpartition('.')[0].replace('.', '::')!r}, ...){self.line}"
        )

    # -- sizes

    def _size(self, node: Any, name: str, args: list[Any]) -> Any:
        g = self.graph
        if name == "aten.sym_size.int":
            return g.size(args[0], args[1])
        if name == "aten.sym_numel.default":
            return g.op("Size", args[0], dtype=fb.int64, shape=())
        if not any(isinstance(x, Value) for x in args):
            return node.target(*args)
        word = getattr(node.target, "__name__", name)
        integers = all(isinstance(x, int) or (isinstance(x, Value) and not x.dtype.is_floating_point) for x in args)
        widest = fb.int64 if integers else fb.float64
        given = [g.like(x, widest) for x in args]
        if word in _SIZES:
            compares = word in ("eq", "lt", "le", "gt", "ge")
            return g.op(_SIZES[word], *given, dtype=fb.bool if compares else widest, shape=())
        if word == "floordiv":
            if widest is fb.float64:
                return g.op("Floor", g.op("Div", *given), shape=())
            return g.op("Div", g.op("Sub", given[0], g.op("Mod", *given)), given[1], shape=())
        if word == "truediv":
            return g.op("Div", *(g.cast(x, fb.float64) for x in given), shape=())
        if word == "neg":
            return g.op("Neg", *given, shape=())
        if word in ("sym_float", "float"):
            return g.cast(given[0], fb.float64)
        if word in ("trunc", "sym_int", "int"):
            return g.cast(given[0], fb.int64)
        if word in ("floor", "ceil"):
            return g.cast(g.op(word.title(), given[0]), fb.int64)._replace(shape=())
        raise self._unsupported(word)

    # -- writes

    def _write(self, node: Any, value: Value) -> None:
        """The first argument of `node` is `value` from now on, and so are its elements in what it shows and what shows it."""
        target = node.args[0]
        self.env[node] = value
        self.parents[node] = target
        path = [node]
        n = node
        while n in self.parents:
            parent = self.parents[n]
            self.env[parent] = self._under(n, parent, self.env[n])
            path.append(parent)
            n = parent
        root = n
        for other in list(self.parents):
            if other not in path and self._root(other) is root:
                self.env[other] = self._again(other)

    def _root(self, node: Any) -> Any:
        while node in self.parents:
            node = self.parents[node]
        return node

    def _again(self, node: Any) -> Any:
        """A view computed anew from what it shows."""
        if node.target is operator.getitem:
            return self.env[node.args[0]][node.args[1]]
        if str(node.target) not in _VIEWS:            # the result of a write is what it wrote to
            return self.env[node.args[0]]
        return self._translated(node, str(node.target), [self._argument(x) for x in node.args],
                                {key: self._argument(x) for key, x in node.kwargs.items()})  # fmt: skip

    def _under(self, view: Any, parent: Any, value: Any) -> Any:
        """`parent` with the elements that `view` shows being `value`."""
        g, name = self.graph, str(view.target)
        if name not in _VIEWS and view.target is not operator.getitem:
            return value
        if view.target is operator.getitem:
            parts = list(self.env[parent])
            parts[view.args[1]] = value
            return tuple(parts)
        x = self.env[view.args[0]]
        args = [self._argument(each) for each in view.args[1:]]
        if name in ("aten.unbind.int", "aten.split.Tensor", "aten.split_with_sizes.default", "aten.chunk.default"):
            dim = view.kwargs.get("dim", args[-1] if len(args) == 2 or (name == "aten.unbind.int" and args) else 0)
            parts = value if name != "aten.unbind.int" else [g.unsqueeze(part, dim) for part in value]
            made = g.op("Concat", *parts, axis=dim)
        elif name in ("aten.select.int", "aten.slice.Tensor"):
            made = TRANSLATORS[name.split(".")[0] + "." + name.split(".")[1] + "_scatter.default"](g, x, value, *args)
        elif name in ("aten.transpose.int", "aten.t.default"):
            made = TRANSLATORS[name](g, value, *args)
        elif name == "aten.permute.default":
            order = [d % x.ndim for d in args[0]]
            made = g.transpose(value, [order.index(d) for d in range(x.ndim)])
        elif name in ("aten.expand.default", "aten.expand_as.default", "aten.diagonal.default"):
            raise UnsupportedOperatorError(f"onnx.export: a write through {name} cannot be translated: write to a copy, by clone()")
        else:
            made = g.op("Reshape", value, g.shape_of(x))
        return made._replace(dtype=x.dtype, shape=x.shape)


_VIEWS = {  # that a write goes through
    f"aten.{name}"
    for name in (
        "alias.default", "chunk.default", "detach.default", "diagonal.default", "expand.default", "expand_as.default",
        "flatten.using_ints", "permute.default", "reshape.default", "select.int", "slice.Tensor", "split.Tensor",
        "split_with_sizes.default", "squeeze.default", "squeeze.dim", "squeeze.dims", "t.default", "transpose.int",
        "unbind.int", "unflatten.int", "unsqueeze.default", "view.default", "view_as.default",
    )
}  # fmt: skip


def _dtype_of(array: np.ndarray) -> Any:
    name = str(array.dtype)
    return getattr(fb, name) if hasattr(fb, name) else fb.as_tensor(array).dtype
