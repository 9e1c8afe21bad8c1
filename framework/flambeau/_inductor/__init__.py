"""Private names of PyTorch's code generator that programs use: `compile` of graphs, and settings."""

from __future__ import annotations

from typing import Any, NoReturn

from .. import _missing
from .._on_demand import names_on_demand
from . import config

__all__ = [
    "CompiledArtifact", "aot_compile", "aoti_compile_and_package", "aoti_load_package", "compile", "config", "cudagraph_mark_step_begin",
    "list_mode_options", "list_options", "standalone_compile",
]  # fmt: skip


def compile(gm: Any, example_inputs: Any, options: dict[str, Any] | None = None) -> Any:
    """A graph compiled: a function of its inputs that gives what the graph gives, a tuple as a list.

    Args:
        gm: a `GraphModule`.
        example_inputs: values of its inputs.
        options: settings of `config` by name.
    Raises: AttributeError for a name that is no setting.

    >>> graph = fb.fx.symbolic_trace(lambda x: (x * 2,))
    >>> fb._inductor.compile(graph, [fb.ones(2)])(fb.ones(2))
    [tensor([2., 2.])]
    """
    from .compile_fx import compile_fx

    return compile_fx(gm, example_inputs, config_patches=options)


def aot_compile(gm: Any, args: Any, kwargs: Any = None, *, options: Any = None) -> NoReturn:
    """Not built: raises NotImplementedError."""
    raise _missing.not_built("_inductor.aot_compile", "export.save writes programs to files, and compile makes a graph faster")


def cudagraph_mark_step_begin() -> None:
    """Tell recorded CUDA graphs that a new step begins: there are none."""


def aoti_compile_and_package(exported_program: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Not built: raises NotImplementedError."""
    raise _missing.not_built("_inductor.aoti_compile_and_package", "modules run eagerly")


def aoti_load_package(path: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Not built: raises NotImplementedError."""
    raise _missing.not_built("_inductor.aoti_load_package", "build the module in Python and load its parameters")


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> Any:
    """The settings that modes of `compile` stand for, by mode; those of `mode` alone, where it is given.

    Args:
        dynamic: accepted; kernels do not depend on sizes, so it makes no difference.
    Raises: RuntimeError for an unknown mode.

    >>> fb._inductor.list_mode_options("reduce-overhead")
    {'triton.cudagraphs': True}
    """
    if mode is None:
        return {name: dict(settings) for name, settings in _SETTINGS_OF_MODES.items()}
    if mode not in _SETTINGS_OF_MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_SETTINGS_OF_MODES)}")
    return dict(_SETTINGS_OF_MODES[mode])


_SETTINGS_OF_MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "lite": {
        "fallback_by_default": True, "selective_decompose": True, "reorder_for_peak_memory": False,
        "reorder_for_compute_comm_overlap": False, "triton.reorder_for_reducing_graph_partitions": False, "use_pre_grad_passes": False,
        "use_joint_graph_passes": False, "use_post_grad_passes": False, "use_dce": False, "allow_buffer_reuse": False,
    },
    "reduce-overhead": {"triton.cudagraphs": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True, "coordinate_descent_tuning": True},
    "max-autotune": {"max_autotune": True, "triton.cudagraphs": True, "coordinate_descent_tuning": True},
}  # fmt: skip


def list_options() -> list[str]:
    """The names of settings that ``compile(options=...)`` takes, those of a group with its name before a dot."""
    return config.names()


# Each compiled function asks for the settings here; graphs take longer to import than all else that it needs.
__getattr__, __dir__ = names_on_demand(__name__, {"._artifact": ("CompiledArtifact", "standalone_compile")}, modules=("custom_graph_pass",))
