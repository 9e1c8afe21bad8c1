"""`python -m flambeau.distributed.launch`: the older command, which also passes ``--local-rank`` to the program."""

from __future__ import annotations

from collections.abc import Sequence

from . import run as _run

__all__ = ["launch", "main"]


def launch(args: Sequence[str] | None = None) -> None:
    """Run the program of a command line; see `main`."""
    main(args)


def main(args: Sequence[str] | None = None) -> None:
    """The command, with the options of `flambeau.distributed.run`; ``--use-env`` leaves ``--local-rank`` out.

    Args:
        args: the command line; that of this process if None.
    """
    parsed = _run.parse_args(args)
    parsed.pass_local_rank = not parsed.use_env
    _run._main(parsed)


if __name__ == "__main__":
    main()
