"""Schedulers: how many weights are 0, step by step."""
