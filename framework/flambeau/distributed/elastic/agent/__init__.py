"""Agents: one on each machine, which starts and watches the workers there."""
