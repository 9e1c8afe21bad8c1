"""`python -m flambeau.distributed.run`: start the processes of a program, watch them, start them again when one fails.

    python -m flambeau.distributed.run --standalone --nproc-per-node 2 train.py --its --arguments

Workers find RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and the job's key in their environment, so
`init_process_group()` needs no arguments.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ._errors import DistNetworkError

if TYPE_CHECKING:
    from .launcher.api import LaunchConfig

__all__ = [
    "config_from_args",
    "determine_local_world_size",
    "get_args_parser",
    "get_rdzv_endpoint",
    "main",
    "parse_args",
    "parse_min_max_nnodes",
    "run",
    "run_script_path",
]


def get_args_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(prog="flambeau.distributed.run", description="Start the processes of a distributed program.")
    add = parser.add_argument
    add("--nnodes", default="1", help="number of machines, or least:most; each runs this command")
    add("--nproc-per-node", "--nproc_per_node", default="1", help="processes on this machine: a number, or cpu, or auto")
    add("--rdzv-backend", "--rdzv_backend", default="static", help="static (ranks are given) or c10d (machines come and go)")
    add("--rdzv-endpoint", "--rdzv_endpoint", default="", help="host:port of the store")
    add("--rdzv-id", "--rdzv_id", default="none", help="name of the job")
    add("--rdzv-conf", "--rdzv_conf", default="", help="key=value,...: options of the backend, such as timeout in seconds")
    add("--standalone", action="store_true", help="one machine: the store takes a free port")
    add("--max-restarts", "--max_restarts", type=int, default=0, help="how often workers are started again after a failure")
    add("--monitor-interval", "--monitor_interval", type=float, default=0.1, help="seconds between looks at the workers")
    add(
        "--start-method", "--start_method", default="spawn", choices=("spawn", "fork", "forkserver"),
        help="how processes of --run-path start",
    )  # fmt: skip
    add("--event-log-handler", "--event_log_handler", default="null", help="where events go: null or console")
    add("--role", default="default", help="what the workers are called")
    add("-m", "--module", action="store_true", help="the script is a module, as for python -m")
    add("--no-python", "--no_python", action="store_true", help="the script is a program of its own")
    add("--run-path", "--run_path", action="store_true", help="workers run the script by runpy.run_path, without another interpreter")
    add("--log-dir", "--log_dir", default=None, help="folder for what workers print")
    add("-r", "--redirects", default="0", help="1 stdout, 2 stderr, 3 both into files, for all workers or as 0:1,1:2")
    add("-t", "--tee", default="0", help="as --redirects, and print it too")
    add("--local-ranks-filter", "--local_ranks_filter", default="", help="0,2: print only what these workers print")
    add("--node-rank", "--node_rank", type=int, default=0, help="which machine this is, for static")
    add("--master-addr", "--master_addr", default="127.0.0.1", help="address of machine 0")
    add("--master-port", "--master_port", type=int, default=29500, help="port of the store there")
    add("--local-addr", "--local_addr", default=None, help="address of this machine")
    add("--shutdown-timeout", "--shutdown_timeout", type=int, default=None, help="seconds that workers have to end, 30")
    add("--use-env", "--use_env", action="store_true", help=argparse.SUPPRESS)
    add("training_script", help="the program")
    add("training_script_args", nargs=argparse.REMAINDER, help="its arguments")
    return parser


def parse_args(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line `args`, that of this process if None."""
    return get_args_parser().parse_args(args)


def parse_min_max_nnodes(nnodes: str) -> tuple[int, int]:
    """The least and the largest number of machines.

    Args:
        nnodes: a number, or ``least:most``.
    Raises: RuntimeError for more than two numbers; ValueError for what is no number.
    """
    parts = [int(part) for part in nnodes.split(":")]
    if len(parts) > 2:
        raise RuntimeError(f"--nnodes {nnodes} is not in the form least:most")
    return parts[0], parts[-1]


def determine_local_world_size(nproc_per_node: str) -> int:
    """How many workers a machine has.

    Args:
        nproc_per_node: a number; ``cpu`` or ``auto``, which is the number of processors.
    Raises: ValueError for anything else.
    """
    if nproc_per_node in ("cpu", "auto"):
        return os.cpu_count() or 1
    if nproc_per_node == "gpu":
        raise ValueError("--nproc-per-node gpu: engines work on the CPU; give a number")
    try:
        count = int(nproc_per_node)
    except ValueError:
        raise ValueError(f"--nproc-per-node must be a number, cpu or auto, got {nproc_per_node}") from None
    if count < 1:
        raise ValueError(f"--nproc-per-node must be 1 at least, got {count}")
    return count


def get_rdzv_endpoint(args: argparse.Namespace) -> str:
    """Where machines meet: ``--rdzv-endpoint``, or for static without it ``--master-addr`` and ``--master-port``."""
    if args.rdzv_backend == "static" and not args.rdzv_endpoint:
        return f"{args.master_addr}:{args.master_port}"
    return args.rdzv_endpoint


def run_script_path(training_script: str, *training_script_args: str) -> None:
    """Run a script in this process, as its main program.

    Args:
        training_script: its path.
        training_script_args: its arguments.
    """
    import runpy

    sys.argv = [training_script, *training_script_args]
    runpy.run_path(training_script, run_name="__main__")


def _options(text: str) -> dict[str, str]:
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise ValueError(f"--rdzv-conf {text!r}: {part!r} is not in the form key=value")
        found[name.strip()] = value.strip()
    return found


def config_from_args(args: argparse.Namespace) -> tuple[LaunchConfig, Callable[..., Any] | str, list[str]]:
    """How workers are started, what they run, and its arguments.

    Args:
        args: of `parse_args`.
    Raises: ValueError for options that do not fit.
    """
    from .elastic.multiprocessing import DefaultLogsSpecs, Std
    from .elastic.utils import macros
    from .launcher.api import LaunchConfig

    least, most = parse_min_max_nnodes(args.nnodes)
    if not 0 < least <= most:
        raise ValueError(f"--nnodes {args.nnodes}: give a positive number, or least:most")
    options: dict[str, Any] = _options(args.rdzv_conf)
    if args.rdzv_backend == "static":
        if most > 1 and args.max_restarts:
            raise ValueError("--max-restarts with several machines needs machines that can meet again: give --rdzv-backend c10d")
        options["rank"] = args.node_rank
    shown = {int(rank) for rank in args.local_ranks_filter.split(",")} if args.local_ranks_filter else None
    # Only one machine: the job has a key that nobody else can know.
    if most == 1:
        os.environ.setdefault("FLAMBEAU_JOB_KEY", secrets.token_hex(32))
    config = LaunchConfig(
        least,
        most,
        determine_local_world_size(args.nproc_per_node),
        DefaultLogsSpecs(args.log_dir, Std.from_str(args.redirects), Std.from_str(args.tee), shown),
        run_id=uuid.uuid4().hex if args.rdzv_id == "none" and most == 1 else args.rdzv_id,
        role=args.role,
        rdzv_endpoint=get_rdzv_endpoint(args),
        rdzv_backend=args.rdzv_backend,
        rdzv_configs=options,
        max_restarts=args.max_restarts,
        monitor_interval=args.monitor_interval,
        start_method=args.start_method,
        local_addr=args.local_addr,
        event_log_handler=args.event_log_handler,
        shutdown_timeout=args.shutdown_timeout,
    )
    # The older command tells programs their rank by an argument.
    local_rank = [f"--local-rank={macros.local_rank}"] if getattr(args, "pass_local_rank", False) else []
    rest = [args.training_script, *local_rank, *args.training_script_args]
    if args.run_path:
        return config, run_script_path, rest
    if args.no_python:
        return config, rest[0], rest[1:]
    return config, sys.executable, ["-u", *(["-m"] if args.module else []), *rest]


def run(args: argparse.Namespace) -> None:
    """Run the program that `args`, of `parse_args`, describe.

    Raises: ChildFailedError, which names the process that failed first; RendezvousError when machines did not meet.
    """
    from .elastic.multiprocessing.errors import ChildFailedError
    from .launcher.api import launch_agent

    if args.standalone:
        args.rdzv_backend, args.rdzv_endpoint, args.rdzv_id = "c10d", "127.0.0.1:0", uuid.uuid4().hex
    config, entrypoint, rest = config_from_args(args)
    try:
        launch_agent(config, entrypoint, rest)
    except ChildFailedError as error:
        raise ChildFailedError(args.training_script, error.failures) from None


def main(args: Sequence[str] | None = None) -> None:
    """The command: runs the program, and ends this process with status 1 when it failed.

    Args:
        args: the command line; that of this process if None.
    """
    _main(parse_args(args))


def _main(args: argparse.Namespace) -> None:
    from .elastic.multiprocessing import SignalException
    from .elastic.multiprocessing.api import _signals_raise
    from .elastic.multiprocessing.errors import ChildFailedError
    from .elastic.rendezvous import RendezvousError

    try:
        with _signals_raise():
            run(args)
    except ChildFailedError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    except SignalException as error:
        sys.exit(128 + error.sigval)
    except (DistNetworkError, RendezvousError, ValueError, NotImplementedError) as error:
        print(f"flambeau.distributed.run: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
