"""Callbacks that log a run for training frameworks. Each module needs its framework."""
