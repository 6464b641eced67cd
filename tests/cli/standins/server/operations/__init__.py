"""Stands in for the operations of a server."""
