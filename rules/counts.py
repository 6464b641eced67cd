"""So many of something, in words."""


def count_text(number: int, noun: str, plural: str | None = None) -> str:
    """So many of something: 1 run, 1,688 runs; `plural` where it takes more than an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
