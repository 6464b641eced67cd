"""Sandboxes for strangers' code: the worker starts, feeds, times and kills each training."""
