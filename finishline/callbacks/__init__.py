"""Callbacks that log a run for training frameworks; each module needs its framework."""
