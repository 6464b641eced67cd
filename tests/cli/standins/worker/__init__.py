"""A stand-in for the worker."""
