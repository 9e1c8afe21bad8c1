"""Start workers from a program, as `flambeau.distributed.run` does from the command line."""

from __future__ import annotations

from .api import LaunchConfig, elastic_launch, launch_agent

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]
