"""Averages of models that train apart."""
