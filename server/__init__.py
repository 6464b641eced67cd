"""Who asked and what is stored: the HTTP service."""
