"""What the inputs and outputs of an exported graph are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any

__all__ = [
    "ArgumentSpec", "ConstantArgument", "CustomObjArgument", "ExportBackwardSignature", "ExportGraphSignature", "InputKind", "InputSpec",
    "OutputKind", "OutputSpec", "SymBoolArgument", "SymFloatArgument", "SymIntArgument", "TensorArgument", "TokenArgument",
]  # fmt: skip


@dataclasses.dataclass
class TensorArgument:
    """A Tensor, by the name of its node."""

    name: str


@dataclasses.dataclass
class TokenArgument:
    """A token of an effect, by the name of its node."""

    name: str


@dataclasses.dataclass
class SymIntArgument:
    """A symbolic int, by the name of its node."""

    name: str


@dataclasses.dataclass
class SymFloatArgument:
    """A symbolic float, by the name of its node."""

    name: str


@dataclasses.dataclass
class SymBoolArgument:
    """A symbolic bool, by the name of its node."""

    name: str


@dataclasses.dataclass
class CustomObjArgument:
    """An object of the class `class_fqn`, by the name of its node; `fake_val` stands for it while a program is recorded."""

    name: str
    class_fqn: str
    fake_val: Any = None


@dataclasses.dataclass
class ConstantArgument:
    """A value that the graph holds for, such as an int among the inputs."""

    name: str
    value: Any


ArgumentSpec = (
    TensorArgument | SymIntArgument | SymFloatArgument | SymBoolArgument | ConstantArgument | CustomObjArgument | TokenArgument
)


class InputKind(Enum):
    """Where an input comes from."""

    USER_INPUT = auto()
    PARAMETER = auto()
    BUFFER = auto()
    CONSTANT_TENSOR = auto()
    CUSTOM_OBJ = auto()
    TOKEN = auto()


class OutputKind(Enum):
    """Where an output goes."""

    USER_OUTPUT = auto()
    LOSS_OUTPUT = auto()
    BUFFER_MUTATION = auto()
    PARAMETER_MUTATION = auto()
    GRADIENT_TO_PARAMETER = auto()
    GRADIENT_TO_USER_INPUT = auto()
    USER_INPUT_MUTATION = auto()
    TOKEN = auto()


@dataclasses.dataclass
class InputSpec:
    """One input.

    Args:
        kind: where it comes from.
        arg: its node, or its value for a constant.
        target: the path of a parameter, buffer or constant in the module.
        persistent: whether state dicts hold it, for a buffer.
    """

    kind: InputKind
    arg: Any
    target: str | None
    persistent: bool | None = None

    def __post_init__(self) -> None:
        if self.kind is InputKind.BUFFER and self.persistent is None:
            raise AssertionError("Failed to specify persistent flag on BUFFER.")

    def __str__(self) -> str:
        target = "" if self.target is None else f" target='{self.target}'"
        persistent = "" if self.persistent is None else f" persistent={self.persistent}"
        return f"{self.arg.name}: {self.kind.name}{target}{persistent}"


@dataclasses.dataclass
class OutputSpec:
    """One output.

    Args:
        kind: where it goes.
        arg: its node, or its value for a constant.
        target: the path or name of what is to take its value, for a write.
    """

    kind: OutputKind
    arg: Any
    target: str | None

    def __str__(self) -> str:
        return f"{self.arg.name}: {self.kind.name}{'' if self.target is None else f' target={self.target!r}'}"


@dataclasses.dataclass
class ExportBackwardSignature:
    """Which outputs of a graph with a backward are gradients.

    Args:
        gradients_to_parameters, gradients_to_user_inputs: by name of output, the parameter or input that it is the gradient of.
        loss_output: the output that is the loss.
    """

    gradients_to_parameters: dict[str, str]
    gradients_to_user_inputs: dict[str, str]
    loss_output: str


@dataclasses.dataclass
class ExportGraphSignature:
    """The inputs and outputs of an exported graph, in order: state first, then what the user gives; writes first, then results."""

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    def _inputs(self, kind: InputKind) -> list[InputSpec]:
        return [s for s in self.input_specs if s.kind is kind]

    def _outputs(self, kind: OutputKind) -> list[OutputSpec]:
        return [s for s in self.output_specs if s.kind is kind]

    @property
    def parameters(self) -> tuple[str, ...]:
        """Paths of the parameters that are inputs."""
        return tuple(s.target for s in self._inputs(InputKind.PARAMETER) if s.target is not None)

    @property
    def buffers(self) -> tuple[str, ...]:
        """Paths of the buffers that are inputs."""
        return tuple(s.target for s in self._inputs(InputKind.BUFFER) if s.target is not None)

    @property
    def non_persistent_buffers(self) -> tuple[str, ...]:
        """Paths of the buffers that no state dict holds."""
        return tuple(s.target for s in self._inputs(InputKind.BUFFER) if s.persistent is False and s.target is not None)

    @property
    def lifted_tensor_constants(self) -> tuple[str, ...]:
        """Names of the constants that are inputs."""
        return tuple(s.target for s in self._inputs(InputKind.CONSTANT_TENSOR) if s.target is not None)

    @property
    def lifted_custom_objs(self) -> tuple[str, ...]:
        """Names of the objects that are inputs: there are none."""
        return tuple(s.target for s in self._inputs(InputKind.CUSTOM_OBJ) if s.target is not None)

    @property
    def user_inputs(self) -> tuple[Any, ...]:
        """Names of the nodes of what users give, and values of constants among it."""
        return tuple(s.arg.value if isinstance(s.arg, ConstantArgument) else s.arg.name for s in self._inputs(InputKind.USER_INPUT))

    @property
    def user_outputs(self) -> tuple[Any, ...]:
        """Names of the nodes of results, and values of constants among them."""
        kinds = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
        return tuple(s.arg.value if isinstance(s.arg, ConstantArgument) else s.arg.name for s in self.output_specs if s.kind in kinds)

    @property
    def inputs_to_parameters(self) -> Mapping[str, str]:
        """By name of node: the path of the parameter that it is."""
        return {s.arg.name: s.target for s in self._inputs(InputKind.PARAMETER) if s.target is not None}

    @property
    def inputs_to_buffers(self) -> Mapping[str, str]:
        """By name of node: the path of the buffer that it is."""
        return {s.arg.name: s.target for s in self._inputs(InputKind.BUFFER) if s.target is not None}

    @property
    def inputs_to_lifted_tensor_constants(self) -> Mapping[str, str]:
        """By name of node: the name of the constant that it is."""
        return {s.arg.name: s.target for s in self._inputs(InputKind.CONSTANT_TENSOR) if s.target is not None}

    @property
    def inputs_to_lifted_custom_objs(self) -> Mapping[str, str]:
        """By name of node: the name of the object that it is."""
        return {s.arg.name: s.target for s in self._inputs(InputKind.CUSTOM_OBJ) if s.target is not None}

    @property
    def buffers_to_mutate(self) -> Mapping[str, str]:
        """By name of node: the path of the buffer that takes its value."""
        return {s.arg.name: s.target for s in self._outputs(OutputKind.BUFFER_MUTATION) if s.target is not None}

    @property
    def parameters_to_mutate(self) -> Mapping[str, str]:
        """By name of node: the path of the parameter that takes its value."""
        return {s.arg.name: s.target for s in self._outputs(OutputKind.PARAMETER_MUTATION) if s.target is not None}

    @property
    def user_inputs_to_mutate(self) -> Mapping[str, str]:
        """By name of node: the name of the input that takes its value."""
        return {s.arg.name: s.target for s in self._outputs(OutputKind.USER_INPUT_MUTATION) if s.target is not None}

    @property
    def backward_signature(self) -> ExportBackwardSignature | None:
        """Which outputs are gradients; None where there is no loss."""
        loss = self._outputs(OutputKind.LOSS_OUTPUT)
        if not loss:
            return None
        return ExportBackwardSignature(
            {s.arg.name: s.target or "" for s in self._outputs(OutputKind.GRADIENT_TO_PARAMETER)},
            {s.arg.name: s.target or "" for s in self._outputs(OutputKind.GRADIENT_TO_USER_INPUT)}, loss[0].arg.name,
        )

    @property
    def assertion_dep_token(self) -> Mapping[int, str] | None:
        """None: assertions stand in the graph."""
        return None

    @property
    def input_tokens(self) -> tuple[str, ...]:
        """Names of tokens among the inputs: there are none."""
        return tuple(s.arg.name for s in self._inputs(InputKind.TOKEN))

    @property
    def output_tokens(self) -> tuple[str, ...]:
        """Names of tokens among the outputs: there are none."""
        return tuple(s.arg.name for s in self._outputs(OutputKind.TOKEN))

    def replace_all_uses(self, old: str, new: str) -> None:
        """Write the name `new` for the node that is called `old`."""
        for spec in (*self.input_specs, *self.output_specs):
            if not isinstance(spec.arg, ConstantArgument) and spec.arg.name == old:
                spec.arg.name = new

    def get_replace_hook(self, replace_inputs: bool = False) -> Callable[..., None]:
        """A hook for `Graph`'s replacements that renames nodes here: outputs, and inputs if `replace_inputs`."""

        def hook(old: Any, new: str, user: Any) -> None:
            if user.op == "output" or replace_inputs and old.op == "placeholder":
                self.replace_all_uses(old.name, new)

        return hook

    def __str__(self) -> str:
        inputs = "\n".join(map(str, self.input_specs))
        outputs = "\n".join(map(str, self.output_specs))
        return f"\n# inputs\n{inputs}\n\n# outputs\n{outputs}\n"
