"""What a program says of its own modules when a model is fused, prepared or converted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..qconfig_mapping import QConfigMapping

__all__ = ["ConvertCustomConfig", "FuseCustomConfig", "PrepareCustomConfig", "StandaloneModuleConfigEntry"]

_KINDS = ("static", "dynamic", "weight_only")


def _by_kind(mappings: dict[Any, Any]) -> dict[str, dict[Any, Any]]:
    """The mapping with the ways of quantization as text. Raises: ValueError for others."""
    found = {}
    for kind, mapping in mappings.items():
        name = kind if isinstance(kind, str) else kind.name.lower()
        if name not in _KINDS:
            raise ValueError(f"a way of quantization is one of {_KINDS}, got {kind!r}")
        found[name] = dict(mapping)
    return found


def _kind_of(quant_type: Any) -> str:
    (name,) = _by_kind({quant_type: {}})
    return name


@dataclass
class StandaloneModuleConfigEntry:
    """How a module is prepared on its own; None takes what its model has.

    Args:
        qconfig_mapping: which QConfig its operations get.
        example_inputs: a tuple of arguments.
        prepare_custom_config: what is said of modules within it.
        backend_config: what the backend computes.
    """

    qconfig_mapping: QConfigMapping | None
    example_inputs: tuple[Any, ...]
    prepare_custom_config: PrepareCustomConfig | None
    backend_config: Any


class PrepareCustomConfig:
    """What `prepare_fx` does otherwise than usual. Each method returns the config."""

    def __init__(self) -> None:
        self.standalone_module_names: dict[str, StandaloneModuleConfigEntry] = {}
        self.standalone_module_classes: dict[type, StandaloneModuleConfigEntry] = {}
        self.float_to_observed_mapping: dict[str, dict[type, type]] = {}
        self.non_traceable_module_names: list[str] = []
        self.non_traceable_module_classes: list[type] = []
        self.input_quantized_indexes: list[int] = []
        self.output_quantized_indexes: list[int] = []
        self.preserved_attributes: list[str] = []

    def __repr__(self) -> str:
        return f"PrepareCustomConfig({ {name: value for name, value in self.to_dict().items() if value} })"

    def set_standalone_module_name(
        self, module_name: str, qconfig_mapping: QConfigMapping | None, example_inputs: tuple[Any, ...],
        prepare_custom_config: PrepareCustomConfig | None, backend_config: Any,
    ) -> PrepareCustomConfig:  # fmt: skip
        """Prepare the module of this name on its own; see `StandaloneModuleConfigEntry`."""
        self.standalone_module_names[module_name] = StandaloneModuleConfigEntry(
            qconfig_mapping, example_inputs, prepare_custom_config, backend_config
        )
        return self

    def set_standalone_module_class(
        self, module_class: type, qconfig_mapping: QConfigMapping | None, example_inputs: tuple[Any, ...],
        prepare_custom_config: PrepareCustomConfig | None, backend_config: Any,
    ) -> PrepareCustomConfig:  # fmt: skip
        """Prepare the modules of this class each on its own; see `StandaloneModuleConfigEntry`."""
        self.standalone_module_classes[module_class] = StandaloneModuleConfigEntry(
            qconfig_mapping, example_inputs, prepare_custom_config, backend_config
        )
        return self

    def set_float_to_observed_mapping(self, float_class: type, observed_class: type, quant_type: Any = "static") -> PrepareCustomConfig:
        """Put ``observed_class.from_float(module)`` in the place of modules of `float_class`.

        Args:
            quant_type: "static", "dynamic" or "weight_only".
        """
        self.float_to_observed_mapping.setdefault(_kind_of(quant_type), {})[float_class] = observed_class
        return self

    def set_non_traceable_module_names(self, module_names: list[str]) -> PrepareCustomConfig:
        """Do not look into the modules of these names, and leave them as they are."""
        self.non_traceable_module_names = module_names
        return self

    def set_non_traceable_module_classes(self, module_classes: list[type]) -> PrepareCustomConfig:
        """Do not look into modules of these classes, and leave them as they are."""
        self.non_traceable_module_classes = module_classes
        return self

    def set_input_quantized_indexes(self, indexes: list[int]) -> PrepareCustomConfig:
        """Say which arguments of the model, by their place, are quantized already."""
        self.input_quantized_indexes = indexes
        return self

    def set_output_quantized_indexes(self, indexes: list[int]) -> PrepareCustomConfig:
        """Say which results of the model, by their place, are to stay quantized."""
        self.output_quantized_indexes = indexes
        return self

    def set_preserved_attributes(self, attributes: list[str]) -> PrepareCustomConfig:
        """Say which attributes of the model the prepared one is to have too."""
        self.preserved_attributes = attributes
        return self

    @classmethod
    def from_dict(cls, prepare_custom_config_dict: dict[str, Any]) -> PrepareCustomConfig:
        """The config that a dictionary says, by the keys of `to_dict`."""
        made = cls()
        for key, put in (("standalone_module_name", made.set_standalone_module_name),
                         ("standalone_module_class", made.set_standalone_module_class)):  # fmt: skip
            for name, mapping, example_inputs, custom, backend in prepare_custom_config_dict.get(key, []):
                put(
                    name, QConfigMapping.from_dict(mapping) if isinstance(mapping, dict) else mapping, example_inputs,
                    cls.from_dict(custom) if isinstance(custom, dict) else custom, backend,
                )  # fmt: skip
        made.float_to_observed_mapping = _by_kind(prepare_custom_config_dict.get("float_to_observed_custom_module_class", {}))
        for key, name in _LISTS.items():
            setattr(made, name, list(prepare_custom_config_dict.get(key, [])))
        return made

    def to_dict(self) -> dict[str, Any]:
        """The config as a dictionary, without what is not said."""

        def rows(entries: dict[Any, StandaloneModuleConfigEntry]) -> list[Any]:
            return [
                (key, e.qconfig_mapping and e.qconfig_mapping.to_dict(), e.example_inputs,
                 e.prepare_custom_config and e.prepare_custom_config.to_dict(), e.backend_config)
                for key, e in entries.items()
            ]  # fmt: skip

        found: dict[str, Any] = {
            "standalone_module_name": rows(self.standalone_module_names),
            "standalone_module_class": rows(self.standalone_module_classes),
            "float_to_observed_custom_module_class": self.float_to_observed_mapping,
            **{key: getattr(self, name) for key, name in _LISTS.items()},
        }
        return {key: value for key, value in found.items() if value}


_LISTS = {
    "non_traceable_module_name": "non_traceable_module_names", "non_traceable_module_class": "non_traceable_module_classes",
    "input_quantized_idxs": "input_quantized_indexes", "output_quantized_idxs": "output_quantized_indexes",
    "preserved_attributes": "preserved_attributes",
}  # fmt: skip


class ConvertCustomConfig:
    """What `convert_fx` does otherwise than usual. Each method returns the config."""

    def __init__(self) -> None:
        self.observed_to_quantized_mapping: dict[str, dict[type, type]] = {}
        self.preserved_attributes: list[str] = []

    def __repr__(self) -> str:
        return f"ConvertCustomConfig({self.to_dict()})"

    def set_observed_to_quantized_mapping(
        self, observed_class: type, quantized_class: type, quant_type: Any = "static"
    ) -> ConvertCustomConfig:
        """Put ``quantized_class.from_observed(module)`` in the place of modules of `observed_class`.

        Args:
            quant_type: "static", "dynamic" or "weight_only".
        """
        self.observed_to_quantized_mapping.setdefault(_kind_of(quant_type), {})[observed_class] = quantized_class
        return self

    def set_preserved_attributes(self, attributes: list[str]) -> ConvertCustomConfig:
        """Say which attributes of the prepared model the converted one is to have too."""
        self.preserved_attributes = attributes
        return self

    @classmethod
    def from_dict(cls, convert_custom_config_dict: dict[str, Any]) -> ConvertCustomConfig:
        """The config that a dictionary says, by the keys of `to_dict`."""
        made = cls()
        made.observed_to_quantized_mapping = _by_kind(convert_custom_config_dict.get("observed_to_quantized_custom_module_class", {}))
        made.preserved_attributes = list(convert_custom_config_dict.get("preserved_attributes", []))
        return made

    def to_dict(self) -> dict[str, Any]:
        """The config as a dictionary, without what is not said."""
        found = {
            "observed_to_quantized_custom_module_class": self.observed_to_quantized_mapping,
            "preserved_attributes": self.preserved_attributes,
        }
        return {key: value for key, value in found.items() if value}


class FuseCustomConfig:
    """What `fuse_fx` does otherwise than usual."""

    def __init__(self) -> None:
        self.preserved_attributes: list[str] = []

    def __repr__(self) -> str:
        return f"FuseCustomConfig({self.to_dict()})"

    def set_preserved_attributes(self, attributes: list[str]) -> FuseCustomConfig:
        """Say which attributes of the model the fused one is to have too; returns the config."""
        self.preserved_attributes = attributes
        return self

    @classmethod
    def from_dict(cls, fuse_custom_config_dict: dict[str, Any]) -> FuseCustomConfig:
        """The config that a dictionary says, by the keys of `to_dict`."""
        return cls().set_preserved_attributes(list(fuse_custom_config_dict.get("preserved_attributes", [])))

    def to_dict(self) -> dict[str, Any]:
        """The config as a dictionary, without what is not said."""
        return {"preserved_attributes": self.preserved_attributes} if self.preserved_attributes else {}
