"""Events of a program of ours, read line by line by the one that started it."""

import json


def tell(kind: str, **facts: object) -> None:
    """Print an event as one line of JSON, at once."""
    print(json.dumps({"kind": kind} | facts), flush=True)
