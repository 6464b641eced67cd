"""Who asked and what is stored: the HTTP service."""

import gc

# A start makes some hundred thousand objects that stay, and a board makes as many again. To look
# for cycles after every 700 of them, as Python does by default, is a fifth of the start's time.
gc.set_threshold(50_000, 20, 10)
