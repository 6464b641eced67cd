"""Stands in for the limits of a server."""
