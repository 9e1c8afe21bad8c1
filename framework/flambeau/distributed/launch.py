"""`python -m flambeau.distributed.launch`: the older command, which also passes ``--local-rank`` to the program."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from . import run as _run

__all__ = ["launch", "main"]


class _Agent(_run._Agent):
    def _command(self, local_rank: int) -> list[str]:
        found = super()._command(local_rank)
        at = len(found) - len(self.args.training_script_args)
        return [*found[:at], f"--local-rank={local_rank}", *found[at:]]


def launch(args: Sequence[str] | None = None) -> None:
    """Run the program of a command line; see `main`."""
    main(args)


def main(args: Sequence[str] | None = None) -> None:
    """The command, with the options of `flambeau.distributed.run`; ``--use-env`` leaves ``--local-rank`` out.

    Args:
        args: the command line; that of this process if None.
    """
    given = list(sys.argv[1:] if args is None else args)
    before = _run._Agent
    if not _run.parse_args(given).use_env:
        _run._Agent = _Agent
    try:
        _run.main(given)
    finally:
        _run._Agent = before


if __name__ == "__main__":
    main()
