"""Processes of a job on one machine, and their errors."""
