"""Workers that are watched and started again; `flambeau.distributed.run` is the command."""
