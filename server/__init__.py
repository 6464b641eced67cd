"""The HTTP service: users and their requests, and the storage of results."""

import gc

# A start makes some hundred thousand objects for good. Looking for cycles after every 700 of them,
# Python's default, would take a fifth of the start. server.app lowers the limit after it.
gc.set_threshold(300_000, 20, 10)
