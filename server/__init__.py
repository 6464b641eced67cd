"""Who asked and what is stored: the HTTP service."""

import gc

# A start makes some hundred thousand objects that stay, and a board makes as many again. To look
# for cycles after every 700 of them, as Python does by default, is a fifth of the start's time. Under
# load thousands of requests are alive whenever that happens and grow old with their cycles, so the
# older generations are looked at soon.
gc.set_threshold(50_000, 2, 5)
