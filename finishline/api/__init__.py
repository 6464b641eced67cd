"""Schemas of HTTP: the server writes them, the client reads them."""
