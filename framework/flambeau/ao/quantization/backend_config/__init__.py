"""What a backend computes with quantized tensors: patterns of operations, the dtypes they take, and how they are observed."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from ...._on_demand import names_on_demand

__all__ = ["BackendConfig", "BackendPatternConfig", "DTypeConfig", "DTypeWithConstraints", "ObservationType"]


class ObservationType(Enum):
    """How the result of a pattern is observed."""

    OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT = 0
    """By an observer of its own, as of a convolution."""

    OUTPUT_SHARE_OBSERVER_WITH_INPUT = 1
    """By that of its first operand, as of a maximum over windows: the result has the same scale."""

    INPUT_OUTPUT_NOT_OBSERVED = 2
    """Neither operands nor result are, as of a size."""


@dataclass
class DTypeWithConstraints:
    """A dtype, and what scale, zero point and integers must be where a backend takes it only so. None says nothing.

    Args:
        dtype: of a tensor.
        quant_min_lower_bound, quant_max_upper_bound: limits of the integers.
        scale_min_lower_bound, scale_max_upper_bound: limits of the scale.
        scale_exact_match, zero_point_exact_match: the only ones.
    """

    dtype: Any = None
    quant_min_lower_bound: int | float | None = None
    quant_max_upper_bound: int | float | None = None
    scale_min_lower_bound: int | float | None = None
    scale_max_upper_bound: int | float | None = None
    scale_exact_match: float | None = None
    zero_point_exact_match: int | None = None


class DTypeConfig:
    """The dtypes that a pattern takes and gives. None stands for any.

    Args:
        input_dtype, output_dtype, weight_dtype: dtypes, or `DTypeWithConstraints`.
        bias_dtype: a dtype.
        is_dynamic: whether the operand is quantized when the model runs.

    >>> config = fb.ao.quantization.backend_config.DTypeConfig(input_dtype=fb.quint8, weight_dtype=fb.qint8)
    >>> config.input_dtype, config.to_dict()["weight_dtype"].dtype
    (torch.quint8, torch.qint8)
    """

    def __init__(
        self, input_dtype: Any = None, output_dtype: Any = None, weight_dtype: Any = None, bias_dtype: Any = None,
        is_dynamic: bool | None = None,
    ) -> None:  # fmt: skip
        self.input_dtype_with_constraints = _constrained(input_dtype)
        self.output_dtype_with_constraints = _constrained(output_dtype)
        self.weight_dtype_with_constraints = _constrained(weight_dtype)
        self.bias_dtype = bias_dtype
        self.is_dynamic = is_dynamic

    @property
    def input_dtype(self) -> Any:
        """The operand's dtype, or None."""
        return self.input_dtype_with_constraints.dtype

    @property
    def output_dtype(self) -> Any:
        """The result's dtype, or None."""
        return self.output_dtype_with_constraints.dtype

    @property
    def weight_dtype(self) -> Any:
        """The weight's dtype, or None."""
        return self.weight_dtype_with_constraints.dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DTypeConfig) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"DTypeConfig({', '.join(f'{name}={value}' for name, value in self.to_dict().items())})"

    @classmethod
    def from_dict(cls, dtype_config_dict: dict[str, Any]) -> DTypeConfig:
        """The config that a dictionary says, with the names of arguments as keys."""
        known = ("input_dtype", "output_dtype", "weight_dtype", "bias_dtype", "is_dynamic")
        return cls(**{name: dtype_config_dict.get(name) for name in known})

    def to_dict(self) -> dict[str, Any]:
        """The config as a dictionary, without what says nothing."""
        found: dict[str, Any] = {}
        for name in ("input_dtype", "output_dtype", "weight_dtype"):
            constrained = getattr(self, f"{name}_with_constraints")
            if constrained.dtype is not None:
                found[name] = constrained
        for name in ("bias_dtype", "is_dynamic"):
            if getattr(self, name):
                found[name] = getattr(self, name)
        return found


def _constrained(dtype: Any) -> DTypeWithConstraints:
    return dtype if isinstance(dtype, DTypeWithConstraints) else DTypeWithConstraints(dtype)


class BackendPatternConfig:
    """What a backend does with one pattern of operations.

    Args:
        pattern: a class of modules, a function, the name of a method, or a tuple of these that follow each other.

    Each method returns the config.
    """

    def __init__(self, pattern: Any = None) -> None:
        self.pattern = pattern
        self.observation_type = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
        self.dtype_configs: list[DTypeConfig] = []
        self.root_module: Any = None
        self.qat_module: Any = None
        self.reference_quantized_module: Any = None
        self.fused_module: Any = None
        self.fuser_method: Any = None
        self._num_tensor_args_to_observation_type: dict[int, ObservationType] = {}
        self._input_type_to_index: dict[str, int] = {}

    def __repr__(self) -> str:
        entries = {name: value for name, value in self.to_dict().items() if value not in ([], {})}
        return f"BackendPatternConfig({entries})"

    def set_pattern(self, pattern: Any) -> BackendPatternConfig:
        """Say which operations it is about; see the class."""
        self.pattern = pattern
        return self

    def set_observation_type(self, observation_type: ObservationType) -> BackendPatternConfig:
        """Say how the result is observed."""
        self.observation_type = observation_type
        return self

    def add_dtype_config(self, dtype_config: DTypeConfig) -> BackendPatternConfig:
        """Add dtypes that the pattern takes."""
        self.dtype_configs.append(dtype_config)
        return self

    def set_dtype_configs(self, dtype_configs: list[DTypeConfig]) -> BackendPatternConfig:
        """Say all dtypes that the pattern takes, in place of those said before."""
        self.dtype_configs = list(dtype_configs)
        return self

    def set_root_module(self, root_module: Any) -> BackendPatternConfig:
        """Say the class of the module that has the weight."""
        self.root_module = root_module
        return self

    def set_qat_module(self, qat_module: Any) -> BackendPatternConfig:
        """Say the class that takes the module's place for quantization aware training; it has `from_float`."""
        self.qat_module = qat_module
        return self

    def set_reference_quantized_module(self, reference_quantized_module: Any) -> BackendPatternConfig:
        """Say the class that computes with the dequantized weight; see `ao.nn.quantized.reference`."""
        self.reference_quantized_module = reference_quantized_module
        return self

    def set_fused_module(self, fused_module: Any) -> BackendPatternConfig:
        """Say the class that the fuser method makes."""
        self.fused_module = fused_module
        return self

    def set_fuser_method(self, fuser_method: Any) -> BackendPatternConfig:
        """Say the function ``fuse(is_qat, *layers)`` that joins the modules of the pattern."""
        self.fuser_method = fuser_method
        return self

    def _set_num_tensor_args_to_observation_type(self, kinds: dict[int, ObservationType]) -> BackendPatternConfig:
        """Say how the result is observed, by how many operands are tensors."""
        self._num_tensor_args_to_observation_type = kinds
        return self

    def _set_input_type_to_index(self, input_type_to_index: dict[str, int]) -> BackendPatternConfig:
        """Say where the function takes its "weight" and "bias"."""
        self._input_type_to_index = input_type_to_index
        return self

    @classmethod
    def from_dict(cls, backend_pattern_config_dict: dict[str, Any]) -> BackendPatternConfig:
        """The config that a dictionary says. Raises: ValueError for dtypes that are no `DTypeConfig` and no dictionary."""
        made = cls()
        for key, name in _PATTERN_KEYS.items():
            if key in backend_pattern_config_dict:
                setattr(made, name, backend_pattern_config_dict[key])
        made.dtype_configs = [_dtype_config(entry) for entry in made.dtype_configs]
        return made

    def to_dict(self) -> dict[str, Any]:
        """The config as a dictionary, without what is not said."""
        found: dict[str, Any] = {}
        for key, name in _PATTERN_KEYS.items():
            value = getattr(self, name)
            if key == "dtype_configs":
                value = [entry.to_dict() for entry in value]
            if value is not None and value != {} or key in ("observation_type", "dtype_configs"):
                found[key] = value
        return found


_PATTERN_KEYS = {
    "pattern": "pattern", "observation_type": "observation_type", "dtype_configs": "dtype_configs", "root_module": "root_module",
    "qat_module": "qat_module", "reference_quantized_module_for_root": "reference_quantized_module", "fused_module": "fused_module",
    "fuser_method": "fuser_method", "num_tensor_args_to_observation_type": "_num_tensor_args_to_observation_type",
    "input_type_to_index": "_input_type_to_index",
}  # fmt: skip


def _dtype_config(entry: Any) -> DTypeConfig:
    if isinstance(entry, DTypeConfig):
        return entry
    if not isinstance(entry, dict):
        raise ValueError(f"Expected a list of dictionaries or of DTypeConfig in dtype_configs, got {type(entry).__name__}")
    return DTypeConfig.from_dict(entry)


class BackendConfig:
    """The patterns that a backend computes with quantized tensors.

    Args:
        name: of the backend.

    >>> config = fb.ao.quantization.backend_config.BackendConfig("mine")
    >>> linear = fb.ao.quantization.backend_config.BackendPatternConfig(fb.nn.Linear)
    >>> len(config.set_backend_pattern_config(linear).configs)
    1
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._by_pattern: dict[Any, BackendPatternConfig] = {}

    def __repr__(self) -> str:
        return f"BackendConfig({self.name!r}, {len(self._by_pattern)} patterns)"

    def set_name(self, name: str) -> BackendConfig:
        """Name the backend."""
        self.name = name
        return self

    def set_backend_pattern_config(self, config: BackendPatternConfig) -> BackendConfig:
        """Say what is done with a pattern; what was said of it before is forgotten."""
        self._by_pattern[config.pattern] = config
        return self

    def set_backend_pattern_configs(self, configs: list[BackendPatternConfig]) -> BackendConfig:
        """Say what is done with several patterns."""
        for config in configs:
            self.set_backend_pattern_config(config)
        return self

    @property
    def configs(self) -> list[BackendPatternConfig]:
        """What is said of each pattern, a new list."""
        return list(self._by_pattern.values())

    @classmethod
    def from_dict(cls, backend_config_dict: dict[str, Any]) -> BackendConfig:
        """The config that a dictionary says: "name" and "configs". Raises: ValueError for entries of another kind."""
        made = cls(backend_config_dict.get("name", ""))
        for entry in backend_config_dict.get("configs", []):
            if isinstance(entry, dict):
                entry = BackendPatternConfig.from_dict(entry)
            if not isinstance(entry, BackendPatternConfig):
                raise ValueError(f"Expected dictionaries or BackendPatternConfig in configs, got {type(entry).__name__}")
            made.set_backend_pattern_config(entry)
        return made

    def to_dict(self) -> dict[str, Any]:
        """The config as a dictionary, which `from_dict` reads."""
        return {"name": self.name, "configs": [config.to_dict() for config in self.configs]}


def constraints_met(constraints: DTypeWithConstraints, observer: Any) -> bool:
    """Whether the scale, zero point and integers that `observer` gives are those that `constraints` allow."""
    limits = {field.name: getattr(constraints, field.name) for field in fields(constraints)}
    low, high = getattr(observer, "quant_min", None), getattr(observer, "quant_max", None)
    if limits["quant_min_lower_bound"] is not None and (low is None or low < limits["quant_min_lower_bound"]):
        return False
    if limits["quant_max_upper_bound"] is not None and (high is None or high > limits["quant_max_upper_bound"]):
        return False
    inner = getattr(observer, "activation_post_process", observer)
    if limits["scale_min_lower_bound"] is not None and float(getattr(inner, "eps", 0.0)) < limits["scale_min_lower_bound"]:
        return False
    if limits["scale_exact_match"] is None:
        return True
    fixed = inner.calculate_qparams() if hasattr(inner, "scale") and hasattr(inner, "zero_point") else None
    if fixed is None:
        return False
    return float(fixed[0]) == limits["scale_exact_match"] and int(fixed[1]) == limits["zero_point_exact_match"]


__getattr__, __dir__ = names_on_demand(
    __name__,
    {
        ".native": (
            "get_fbgemm_backend_config", "get_native_backend_config", "get_onednn_backend_config", "get_qnnpack_backend_config",
        )
    },
    modules=("native",),
)  # fmt: skip
