"""Which messages of which part are shown: `set_logs`, and the environment variable ``TORCH_LOGS``.

Parts have loggers of Python's module `logging`. Artifacts, such as the code of a graph, are messages of a part that are shown or not.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from typing import Any

__all__ = ["getArtifactLogger", "set_logs", "warning_once"]

# Parts by name: the loggers that they write to.
_PARTS: dict[str, tuple[str, ...]] = {
    "all": ("flambeau",),
    "dynamo": ("flambeau._dynamo", "flambeau.compiler"),
    "aot": ("flambeau._functorch", "flambeau.func"),
    "autograd": ("flambeau.autograd",),
    "inductor": ("flambeau._inductor", "flambeau_kernels"),
    "dynamic": ("flambeau.fx.experimental",),
    "torch": ("flambeau",),
    "distributed": ("flambeau.distributed", "flambeau.nn.parallel"),
    "c10d": ("flambeau.distributed.distributed_c10d",),
    "ddp": ("flambeau.nn.parallel.distributed",),
    "fsdp": ("flambeau.distributed.fsdp",),
    "dtensor": ("flambeau.distributed.tensor",),
    "onnx": ("flambeau.onnx",),
    "export": ("flambeau.export",),
    "cudagraphs": ("flambeau.cuda.graphs",),
}
# Artifacts that something here writes, and what they show.
_WRITTEN = {
    "aot_graphs": "the operators of a recording and of its derivative, after the joint graph was cut in two",
    "aot_joint_graph": "the operators of a recording with those of its derivative, as one graph",
    "fusion": "which kernels a recording has become, and how many operations and operands each of them has",
    "graph": "what was recorded, as a table",
    "graph_breaks": "where a recording ended before the function did, and why",
    "graph_code": "what was recorded, as code, with the lines of the program that it comes from",
    "guards": "what the inputs of a recording are taken to be",
    "kernel_code": "the text of each fused kernel",
    "output_code": "what runs in the place of a recording, and the text of its kernels",
    "recompiles": "where a later call was recorded anew, and what was different in it",
    "schedule": "what runs one after the other: kernels, and operations by themselves",
}
# And those of PyTorch that have nothing to show here; where programs may wonder, why.
_NOTHING_TO_SHOW = {
    "bytecode": "functions run in the bytecode that Python has made; what runs in its place is shown by graph_code",
    "compiled_autograd": "backward is recorded with the function that calls it; graph_code shows it",
    "ddp_graphs": "graphs are not cut for DistributedDataParallel, which averages gradients as they come",
    **dict.fromkeys((
        "autotuning", "benchmarking", "compiled_autograd_verbose", "cudagraph_static_inputs", "cudagraphs", "graph_region_expansion",
        "graph_sizes", "hierarchical_compile", "incremental", "inductor_metrics", "ir_post_fusion", "ir_pre_fusion", "loop_ordering",
        "loop_tiling", "onnx_diagnostics", "overlap", "perf_hints", "post_grad_graphs", "pre_grad_graphs", "recompiles_verbose",
        "side_effects", "sym_node", "trace_bytecode", "trace_call", "trace_source",
    ), "nothing is written of that kind"),
}  # fmt: skip
_ARTIFACTS = _WRITTEN.keys() | _NOTHING_TO_SHOW.keys()
_LEVELS = (logging.CRITICAL, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG, logging.NOTSET)
_changed: set[str] = set()  # loggers whose level has been set here
_shown: set[str] = set()    # artifacts that are shown


class _Handler(logging.StreamHandler):
    """Writes to what is `sys.stderr` at the time."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(logging.Formatter("%(levelname).1s%(asctime)s %(process)d %(filename)s:%(lineno)d] %(message)s", "%m%d %H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


_handler = _Handler()


def set_logs(*, modules: dict[str, int | bool] | None = None, **settings: Any) -> None:
    """Show messages of parts from a level on, and artifacts; what is not named is as it was at first.

    Args:
        modules: levels by the name of a part, an artifact, or a module that can be imported.
        settings: ``dynamo=logging.DEBUG`` and the like for `all`, `dynamo`, `aot`, `autograd`, `dynamic`, `inductor`, `distributed`,
            `c10d`, `ddp`, `fsdp`, `dtensor`, `onnx` and `export`; ``graph_code=True`` and the like for artifacts.
    Raises: TypeError for unknown names; ValueError for what is no level of `logging`, or no bool for an artifact.
    Warns: in the log, of an artifact that PyTorch has and of which there is nothing to show here.

    >>> import logging
    >>> fb._logging.set_logs(dynamo=logging.DEBUG, graph_code=True)
    >>> fb._logging.set_logs()
    """
    levels: dict[str, int] = {}
    artifacts: set[str] = set()
    for name, value in settings.items():
        if name not in _PARTS and name not in _ARTIFACTS:
            raise TypeError(f"set_logs() got an unexpected keyword argument {name!r}")
        if value is not None:
            _note(name, value, levels, artifacts)
    for name, value in (modules or {}).items():
        if name not in _PARTS and name not in _ARTIFACTS and not _is_module(name):
            raise ValueError(f"Unrecognized log or artifact name passed to set_logs: {name}")
        _note(name, value, levels, artifacts)
    _apply(levels, artifacts)


def _note(name: str, value: Any, levels: dict[str, int], artifacts: set[str]) -> None:
    if name in _ARTIFACTS:
        if not isinstance(value, bool):
            raise ValueError(f"Expected bool to enable artifact {name}, received {value}")
        (artifacts.add if value else artifacts.discard)(name)
        return
    if isinstance(value, bool) or value not in _LEVELS:
        raise ValueError(
            f"Unrecognized log level for log {name}: {value}, valid level values are: {','.join(map(str, _LEVELS))}"
        )
    for logger in _PARTS.get(name, (_here(name),)):
        levels[logger] = value


def _here(module: str) -> str:
    """The module here that programs know by PyTorch's name."""
    head, dot, rest = module.partition(".")
    return f"flambeau{dot}{rest}" if head == "torch" else module


def _is_module(name: str) -> bool:
    parts = _here(name).split(".")
    # Parents are asked first: looking for a module inside one that is not there raises.
    return all(part.isidentifier() and importlib.util.find_spec(".".join(parts[: i + 1])) is not None for i, part in enumerate(parts))


def _apply(levels: dict[str, int], artifacts: set[str]) -> None:
    for name in _changed - levels.keys():
        logger = logging.getLogger(name)
        logger.setLevel(logging.NOTSET)
        logger.removeHandler(_handler)
        logger.propagate = True
    _changed.clear()
    for name, level in levels.items():
        logger = logging.getLogger(name)
        logger.setLevel(level)
        if _handler not in logger.handlers:
            logger.addHandler(_handler)
        # One message is written once, by the innermost logger that has a level.
        logger.propagate = False
        _changed.add(name)
    for name in sorted(artifacts & _NOTHING_TO_SHOW.keys() - _shown):
        logging.getLogger(__name__).warning("set_logs: %s shows nothing in Flambeau: %s", name, _NOTHING_TO_SHOW[name])
    _shown.clear()
    _shown.update(artifacts)
    for name, logger in _artifact_loggers.items():
        _set_artifact(logger, name.rpartition(".__")[2])


_artifact_loggers: dict[str, logging.Logger] = {}


def getArtifactLogger(module_qname: str, artifact_name: str) -> logging.Logger:  # PyTorch's name
    """The logger of an artifact of a module; its messages of level DEBUG are shown while the artifact is.

    Args:
        module_qname: the module's full name.
        artifact_name: such as "graph_code".
    Raises: ValueError for an unknown artifact.
    """
    if artifact_name not in _ARTIFACTS:
        raise ValueError(f"Artifact name: '{artifact_name}' not registered; the artifacts are {', '.join(sorted(_ARTIFACTS))}")
    name = f"{_here(module_qname)}.__{artifact_name}"
    logger = _artifact_loggers.setdefault(name, logging.getLogger(name))
    _set_artifact(logger, artifact_name)
    return logger


def _set_artifact(logger: logging.Logger, artifact: str) -> None:
    on = artifact in _shown
    logger.setLevel(logging.DEBUG if on else logging.INFO)
    (logger.addHandler if on else logger.removeHandler)(_handler)
    logger.propagate = not on


_warned: set[tuple[str, str]] = set()


def warning_once(logger: logging.Logger, message: str, *args: Any) -> None:
    """Log a warning the first time that it comes from this logger.

    Args:
        logger: where to.
        message, args: as for ``logger.warning``.
    """
    if (logger.name, message) not in _warned:
        _warned.add((logger.name, message))
        logger.warning(message, *args)


def _help(everything: bool) -> str:
    """What ``TORCH_LOGS`` may name; with `everything` also artifacts of PyTorch's of which there is nothing to show here."""
    lines = [
        "TORCH_LOGS=+dynamo,graph_code,-inductor shows more of dynamo, the code of graphs, and only errors of inductor.", "",
        "Parts, from INFO on, with + from DEBUG on, with - errors alone:", *[f"  {name}" for name in sorted(_PARTS)],
        "  and modules by their full names, such as torch.fx.graph", "",
        "Artifacts:", *[f"  {name:<20}{what}" for name, what in _WRITTEN.items()], "",
    ]  # fmt: skip
    if not everything:
        return "\n".join([*lines, "TORCH_LOGS=+help also lists what shows nothing here."])
    return "\n".join([*lines, "Taken, and shows nothing here:", *[f"  {name:<26}{why}" for name, why in sorted(_NOTHING_TO_SHOW.items())]])


def read_environment() -> None:
    """Do what ``TORCH_LOGS`` says: ``+dynamo,graph_code,-inductor`` shows more of dynamo, the code of graphs, and less of inductor.

    ``help`` and ``+help`` print what it may say. Raises: ValueError for names that are neither parts, artifacts nor modules.
    """
    text = os.environ.get("TORCH_LOGS", "")
    levels: dict[str, int] = {}
    artifacts: set[str] = set()
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name = entry.lstrip("+-")
        level = logging.DEBUG if entry.startswith("+") else logging.ERROR if entry.startswith("-") else logging.INFO
        if name == "help":
            print(_help(level == logging.DEBUG), file=sys.stderr)
        elif name in _ARTIFACTS:
            artifacts.add(name)
        elif name in _PARTS or _is_module(name):
            _note(name, level, levels, artifacts)
        else:
            raise ValueError(
                f"Invalid log settings: {text}, must be a comma separated list of fully qualified module names, registered log names or "
                "registered artifact names; TORCH_LOGS=help says what each shows. "
                f"Valid settings: {', '.join(sorted({*_PARTS, *_ARTIFACTS}))}"
            )
    _apply(levels, artifacts)


read_environment()
