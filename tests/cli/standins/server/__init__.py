"""A stand-in for the server."""
