"""The HTTP service: users and their requests, and the storage of results."""

import gc

# A start makes some hundred thousand objects that stay: to look for cycles among them, after every
# 700 of them as Python does by default, would be a fifth of the start's time. A server looks more
# often once it has started (see server.app).
gc.set_threshold(300_000, 20, 10)
