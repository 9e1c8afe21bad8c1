"""Workers that are watched and started again.

An agent of each machine (`agent`) meets the others (`rendezvous`), starts the workers of this machine (`multiprocessing`), watches
them (`timer`), and says what happened (`events`, `metrics`). `flambeau.distributed.run` is the command on top.
"""
