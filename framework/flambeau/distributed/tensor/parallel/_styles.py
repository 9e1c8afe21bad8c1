"""How modules are spread: styles, and `parallelize_module`, which applies them by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fnmatch import fnmatch
from functools import partial
from typing import Any

import flambeau as fb

from ...._warn import warn
from ....nn import Module, Parameter
from .._dtensor import DTensor, _mesh, distribute_module, distribute_tensor
from ..placement_types import Placement, Replicate, Shard

__all__ = [
    "ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput", "RowwiseParallel",
    "SequenceParallel", "parallelize_module",
]  # fmt: skip


class ParallelStyle(ABC):
    """How a module is spread; the base of the styles, and of a program's own."""

    src_data_rank: int | None = 0

    @abstractmethod
    def _apply(self, module: Module, device_mesh: Any) -> Module:
        """Spread `module`, which is returned."""


def _spread(value: Any, mesh: Any, layout: Placement, wanted: Placement | None) -> Any:
    """`value` as a spread tensor: pieces under `layout` if it is a plain one, then brought to `wanted`."""
    if not isinstance(value, DTensor):
        value = DTensor.from_local(value, mesh, [layout], run_check=False)
    return value if wanted is None or value.placements == (wanted,) else value.redistribute(placements=[wanted])


def _result(value: Any, layout: Placement, local: bool) -> Any:
    if value.placements != (layout,):
        value = value.redistribute(placements=[layout])
    return value.to_local() if local else value


def _parameters(module: Module, mesh: Any, placement: dict[str, Placement], source: int | None) -> None:
    for name, parameter in list(module._parameters.items()):
        if parameter is not None:
            spread = distribute_tensor(parameter.detach(), mesh, [placement.get(name, Replicate())], src_data_rank=source)
            module.register_parameter(name, Parameter(spread, parameter.requires_grad))


class ColwiseParallel(ParallelStyle):
    """Divide the rows of the weight of a Linear, or the features of an Embedding, so that each rank has columns of the result.

    Args:
        input_layouts: how plain inputs lie; whole by default.
        output_layouts: how the result shall lie; divided along its last dimension by default.
        use_local_output: give the piece of the rank in the place of a spread tensor.
    """

    def __init__(
        self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None, use_local_output: bool = True
    ) -> None:
        self.input_layout, self.output_layout = input_layouts or Replicate(), output_layouts or Shard(-1)
        self.use_local_output = use_local_output

    def _apply(self, module: Module, device_mesh: Any) -> Module:
        if isinstance(module, fb.nn.Linear):
            where: dict[str, Placement] = {"weight": Shard(0), "bias": Shard(0)}
        elif isinstance(module, fb.nn.Embedding):
            where = {"weight": Shard(1)}
        else:
            raise NotImplementedError(f"ColwiseParallel currently only support nn.Linear and nn.Embedding, not {type(module).__name__}")
        return distribute_module(
            module, device_mesh, lambda name, part, mesh: _parameters(part, mesh, where, self.src_data_rank), self._inputs, self._outputs
        )

    def _inputs(self, module: Module, inputs: Any, mesh: Any) -> Any:
        return (_spread(inputs[0], mesh, self.input_layout, Replicate()), *inputs[1:])

    def _outputs(self, module: Module, output: Any, mesh: Any) -> Any:
        last = Shard(output.ndim - 1) if self.output_layout == Shard(-1) else self.output_layout
        return _result(output, last, self.use_local_output)


class RowwiseParallel(ParallelStyle):
    """Divide the columns of the weight of a Linear, or the rows of an Embedding, whose results are sums of all ranks' parts.

    Args:
        input_layouts: how plain inputs lie; divided along their last dimension by default.
        output_layouts: how the result shall lie; whole by default.
        use_local_output: as for `ColwiseParallel`.
    """

    def __init__(
        self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None, use_local_output: bool = True
    ) -> None:
        self.input_layout, self.output_layout = input_layouts or Shard(-1), output_layouts or Replicate()
        self.use_local_output = use_local_output

    def _apply(self, module: Module, device_mesh: Any) -> Module:
        if isinstance(module, fb.nn.Linear):
            where: dict[str, Placement] = {"weight": Shard(1), "bias": Replicate()}
            self._wanted: Placement = Shard(-1)
        elif isinstance(module, fb.nn.Embedding):
            where, self._wanted = {"weight": Shard(0)}, Replicate()
        else:
            raise NotImplementedError(f"RowwiseParallel currently only support nn.Linear and nn.Embedding, not {type(module).__name__}")
        return distribute_module(
            module, device_mesh, lambda name, part, mesh: _parameters(part, mesh, where, self.src_data_rank), self._inputs, self._outputs
        )

    def _inputs(self, module: Module, inputs: Any, mesh: Any) -> Any:
        wanted = Shard(inputs[0].ndim - 1) if self._wanted == Shard(-1) else self._wanted
        return (_spread(inputs[0], mesh, self.input_layout, wanted), *inputs[1:])

    def _outputs(self, module: Module, output: Any, mesh: Any) -> Any:
        return _result(output, self.output_layout, self.use_local_output)


class SequenceParallel(ParallelStyle):
    """Divide the positions of the input of a normalization or of dropout; its parameters are whole on every rank.

    Args:
        sequence_dim: the dimension of positions.
        use_local_output: as for `ColwiseParallel`.
    """

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_sharding, self.use_local_output = Shard(sequence_dim), use_local_output

    def _apply(self, module: Module, device_mesh: Any) -> Module:
        return distribute_module(
            module, device_mesh, lambda name, part, mesh: _parameters(part, mesh, {}, None),
            lambda part, inputs, mesh: (_spread(inputs[0], mesh, self.sequence_sharding, self.sequence_sharding), *inputs[1:]),
            lambda part, output, mesh: output.to_local() if self.use_local_output else output,
        )  # fmt: skip


def _several(given: Any) -> tuple[Any, ...]:
    return (given,) if isinstance(given, Placement) else tuple(given or ())


def _prepared(values: Sequence[Any], layouts: Sequence[Any], wanted: Sequence[Any], mesh: Any, local: bool, name: str) -> tuple[Any, ...]:
    if len(values) != len(layouts):
        raise ValueError(f"{name}: module inputs and input_layouts should have same length! got {len(values)} and {len(layouts)}")
    made = []
    for value, layout, aim in zip(values, layouts, wanted, strict=True):
        if layout is not None and isinstance(value, fb.Tensor):
            value = _spread(value, mesh, layout, aim)
            value = value.to_local() if local else value
        made.append(value)
    return tuple(made)


class PrepareModuleInput(ParallelStyle):
    """Spread and redistribute the arguments of a module.

    Args:
        input_layouts: a placement for each positional argument that is to be spread, else None; one alone for a single argument.
        desired_input_layouts: how they shall lie; as many.
        input_kwarg_layouts, desired_input_kwarg_layouts: the same for arguments by name.
        use_local_output: give the module the pieces of the rank.
    """

    def __init__(
        self, *, input_layouts: Any = None, desired_input_layouts: Any = None, input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None, use_local_output: bool = False,
    ) -> None:  # fmt: skip
        self.input_layouts, self.desired_input_layouts = _several(input_layouts), _several(desired_input_layouts)
        self.input_kwarg_layouts, self.desired_input_kwarg_layouts = input_kwarg_layouts or {}, desired_input_kwarg_layouts or {}
        self.use_local_output = use_local_output
        if len(self.input_layouts) != len(self.desired_input_layouts):
            raise AssertionError("PrepareModuleInput: input_layouts and desired_input_layouts should have same length!")
        if len(self.input_kwarg_layouts) != len(self.desired_input_kwarg_layouts):
            raise AssertionError("PrepareModuleInput: input_kwarg_layouts and desired_input_kwarg_layouts should have same length!")

    def _apply(self, module: Module, device_mesh: Any) -> Module:
        def prepared(values: Any, layouts: Any, wanted: Any) -> tuple[Any, ...]:
            return _prepared(values, layouts, wanted, device_mesh, self.use_local_output, "PrepareModuleInput")

        def before(part: Module, args: Any, kwargs: dict[str, Any]) -> Any:
            if self.input_layouts:
                args = prepared(args, self.input_layouts, self.desired_input_layouts)
            for name, layout in self.input_kwarg_layouts.items():
                if name in kwargs:
                    kwargs[name] = prepared([kwargs[name]], [layout], [self.desired_input_kwarg_layouts[name]])[0]
            return args, kwargs

        module.register_forward_pre_hook(before, with_kwargs=True)
        return module


class PrepareModuleOutput(ParallelStyle):
    """Spread and redistribute the results of a module.

    Args:
        output_layouts, desired_output_layouts: placements of the results, as of inputs in `PrepareModuleInput`.
        use_local_output: give the pieces of the rank.
    """

    def __init__(self, *, output_layouts: Any, desired_output_layouts: Any, use_local_output: bool = True) -> None:
        self.output_layouts, self.desired_output_layouts = _several(output_layouts), _several(desired_output_layouts)
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise AssertionError("PrepareModuleOutput: output_layouts and desired_output_layouts should have same length!")

    def _apply(self, module: Module, device_mesh: Any) -> Module:
        def after(part: Module, inputs: Any, outputs: Any) -> Any:
            values = outputs if isinstance(outputs, tuple) else (outputs,)
            made = _prepared(
                values, self.output_layouts, self.desired_output_layouts, device_mesh, self.use_local_output, "PrepareModuleOutput"
            )
            return made if isinstance(outputs, tuple) else made[0]

        module.register_forward_hook(after)
        return module


class PrepareModuleInputOutput(ParallelStyle):
    """`PrepareModuleInput` and `PrepareModuleOutput` in one; arguments as theirs."""

    def __init__(
        self, *, input_layouts: Any = None, desired_input_layouts: Any = None, input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None, use_local_input: bool = False, output_layouts: Any,
        desired_output_layouts: Any, use_local_output: bool = True,
    ) -> None:  # fmt: skip
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts, desired_input_layouts=desired_input_layouts, input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts, use_local_output=use_local_input,
        )  # fmt: skip
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts, desired_output_layouts=desired_output_layouts, use_local_output=use_local_output
        )

    def _apply(self, module: Module, device_mesh: Any) -> Module:
        return self.prepare_module_output._apply(self.prepare_module_input._apply(module, device_mesh), device_mesh)


def parallelize_module(
    module: Module, device_mesh: Any = None, parallelize_plan: ParallelStyle | dict[str, ParallelStyle] | None = None, *,
    src_data_rank: int | None = 0,
) -> Module:  # fmt: skip
    """Spread `module`, or those in it that the plan names.

    Args:
        device_mesh: of one dimension; by default the one whose context this is in.
        parallelize_plan: a style, or styles by the names of modules, in which ``*`` and ``?`` stand for any names.
        src_data_rank: whose parameters count; None: everyone's own.
    Returns: `module`.
    Raises: ValueError for a mesh of several dimensions; TypeError for a plan of another type.
    """
    mesh = _mesh(device_mesh)
    if mesh.ndim != 1:
        raise ValueError(f"parallelize_module: the mesh has {mesh.ndim} dimensions; slice it to one, as mesh['tp']")
    if parallelize_plan is None:
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, dict):
        raise TypeError(f"Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, {type(parallelize_plan)} found!")
    for path, style in parallelize_plan.items():
        found = _named(module, path.split("."))
        if not found:
            warn(f"parallelize_module: no module of the plan's name {path!r}")
        for part in found:
            parallelize_module(part, mesh, style, src_data_rank=src_data_rank)
    return module


def _named(module: Module, parts: list[str]) -> list[Module]:
    """The modules below `module` at a path of names."""
    found = [module]
    for part in parts:
        matches = partial(fnmatch, pat=part)
        found = [child for parent in found for name, child in parent.named_children() if matches(name)]
    return found
