"""Collectives that a program of spread tensors makes, counted for the whole and for each module, forward and backward."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import flambeau as fb

from .... import _aten
from ....nn.modules import module as modules
from ....ops._spec import OPS
from ....ops.creation.create import FUNCTIONS
from ....utils._python_dispatch import TorchDispatchMode
from ... import _ledger
from .._dtensor import DTensor
from ._operators import operator

__all__ = ["CommDebugMode"]

# Names of the functional collectives of what engines call them.
_NAMES = {
    "all_gather": "all_gather_into_tensor", "all_gather_into_tensor": "all_gather_into_tensor", "all_reduce": "all_reduce",
    "reduce_scatter": "reduce_scatter_tensor", "reduce_scatter_tensor": "reduce_scatter_tensor", "all_to_all": "all_to_all_single",
    "all_to_all_single": "all_to_all_single", "broadcast": "broadcast",
}  # fmt: skip


def _computes(func: Any) -> bool:
    """Whether an operator does more than to look at memory, to copy it, or to fill what it makes."""
    name = func._opname.removeprefix("_unsafe_")          # an operator whose view PyTorch does not call one
    packet = getattr(fb.ops.aten, name, None)
    schema = func._schema if packet is None or func._opname == name else getattr(packet, packet.overloads()[0])._schema
    is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
    return not (is_view or name in FUNCTIONS or OPS["identity"] in _aten.ops_of(name))


class _Record:
    """What was seen in one module, or outside of all."""

    def __init__(self, name: str, kind: str, parent: _Record | None) -> None:
        self.name, self.kind, self.parent = name, kind, parent
        self.children: dict[str, _Record] = {}
        self.parameters: dict[str, Any] = {}
        self.counts = {"forward": Counter(), "backward": Counter()}  # type: ignore[var-annotated]
        self.operations: dict[str, list[tuple[Any, bool]]] = {"forward": [], "backward": []}


class CommDebugMode(TorchDispatchMode):
    """A region in which collectives are counted, by operation and by the module that runs.

    Backward is counted for the outermost: which module an operation of it belongs to is not known.
    """

    def __init__(self) -> None:
        super().__init__()
        self._forget()

    def _forget(self) -> None:
        self._root = _Record("Global", "", None)
        self._at = self._root
        self._hooks: list[Any] = []

    def __enter__(self) -> Any:
        self._forget()
        self._hooks = [
            modules.register_module_forward_pre_hook(self._begin), modules.register_module_forward_hook(self._end, always_call=True)
        ]  # fmt: skip
        _ledger.listeners.append(self._heard)
        return super().__enter__()

    def __exit__(self, *given: Any) -> None:
        super().__exit__(*given)
        _ledger.listeners.remove(self._heard)
        for hook in self._hooks:
            hook.remove()

    def _begin(self, module: Any, args: Any) -> None:
        above = self._at
        name = type(module).__name__
        if above.parent is not None:
            owner = getattr(above, "module", None)
            name = f"{above.name}.{next((n for n, m in owner.named_modules() if m is module), name)}"  # type: ignore[union-attr]
        found = above.children.get(name)
        if found is None:
            cls = type(module)
            found = above.children[name] = _Record(name, f"class '{cls.__module__}.{cls.__qualname__}'", above)
            found.module = module  # type: ignore[attr-defined]
            found.parameters = {key: p for key, p in module._parameters.items() if p is not None}
        self._at = found

    def _end(self, module: Any, args: Any, output: Any) -> None:
        self._at = self._at.parent or self._root

    def _phase(self) -> str:
        return "backward" if fb._state.local.backward.nested else "forward"

    def _heard(self, entry: Any) -> None:
        name = _NAMES.get(entry.op.removesuffix("_"))
        if name is None:
            return
        at: _Record | None = self._at
        while at is not None:
            at.counts[self._phase()][name] += 1
            at = at.parent

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        spread = any(isinstance(x, DTensor) for x in args)
        at: _Record | None = self._at
        while at is not None:
            at.operations[self._phase()].append((func, spread))
            at = at.parent
        return func(*args, **(kwargs or {}))

    # -- what was seen

    def get_total_counts(self) -> int:
        """How many collectives there were."""
        return sum(sum(counts.values()) for counts in self._root.counts.values())

    def get_comm_counts(self) -> dict[Any, int]:
        """How many there were of each operator, by ``torch.ops.c10d_functional.<name>``."""
        total = self._root.counts["forward"] + self._root.counts["backward"]
        return {operator(name): count for name, count in total.items()}

    def get_parameter_info(self) -> dict[str, dict[str, Any]]:
        """The parameters of each module that ran and has some, by its name."""
        return {record.name: dict(record.parameters) for record in self._records() if record.parameters}

    def get_sharding_info(self) -> dict[str, Any]:
        """The placements of each spread parameter of modules that ran, by its name."""
        return {
            f"{record.name}.{key}": p.placements
            for record in self._records()
            for key, p in record.parameters.items()
            if isinstance(p, DTensor)
        }

    def _records(self) -> list[_Record]:
        found, stack = [], [self._root]
        while stack:
            record = stack.pop()
            found.append(record)
            stack += reversed(record.children.values())
        return found

    def _listed(self, record: _Record, phase: str, noise_level: int) -> list[str]:
        if noise_level < 1:
            return []
        return [
            str(func) for func, spread in record.operations[phase]
            if noise_level > 2 or (spread or noise_level > 1) and _computes(func)
        ]  # fmt: skip

    def generate_comm_debug_tracing_table(self, noise_level: int = 3) -> str:
        """A table of modules with their collectives.

        Args:
            noise_level: 0 for collectives, 1 also for operations of spread tensors and for parameters, 2 for all operations that
                compute, 3 for all.
        """
        lines: list[str] = []

        def tell(record: _Record, depth: int) -> None:
            pad = "  " * depth
            lines.append(f"{pad}{record.name}")
            if noise_level > 0 and record.kind:
                lines.append(f"{pad}  *module type: {record.kind}")
                for key, p in record.parameters.items():
                    lines.append(f"{pad}  *{key}: {p.placements if isinstance(p, DTensor) else 'not spread'}")
            for phase in ("forward", "backward"):
                operations = self._listed(record, phase, noise_level)
                if record.counts[phase] or operations:
                    lines.append(f"{pad}  {phase.upper()} PASS")
                    lines.extend(f"{pad}    *c10d_functional.{name}: {count}" for name, count in record.counts[phase].items())
                    lines.extend(f"{pad}    **{name}" for name in operations)
            for child in record.children.values():
                tell(child, depth + 1)

        tell(self._root, 0)
        return "\n".join(lines) + "\n"

    def log_comm_debug_tracing_table_to_file(self, file_name: str = "comm_mode_log.txt", noise_level: int = 3) -> None:
        """Write the table of `generate_comm_debug_tracing_table` to a file."""
        with open(file_name, "w", encoding="utf-8") as file:
            file.write(self.generate_comm_debug_tracing_table(noise_level))

    def generate_json_dump(self, file_name: str = "comm_mode_log.json", noise_level: int = 3) -> None:
        """Write what was seen to a file as JSON; `noise_level` as for the table."""

        def told(record: _Record) -> dict[str, Any]:
            placed = [[k, str(p.placements) if isinstance(p, DTensor) else ""] for k, p in record.parameters.items()]
            made: dict[str, Any] = {
                "fqn": record.name, "module_type": record.kind, "parameters": placed,
                "children": [told(child) for child in record.children.values()],
            }  # fmt: skip
            for phase in ("forward", "backward"):
                made[f"collectives_{phase}"] = [[f"c10d_functional.{name}", count] for name, count in record.counts[phase].items()]
                made[f"operations_{phase}"] = [{"name": name} for name in self._listed(record, phase, noise_level)]
            return made

        with open(file_name, "w", encoding="utf-8") as file:
            json.dump(told(self._root), file, indent=4)
