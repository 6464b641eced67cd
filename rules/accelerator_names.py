"""Accelerators by their names: whether two names may be of one."""

import re

# Words of an accelerator's name that do not tell which one it is.
FILLERS = frozenset(
    [
        *("nvidia", "tesla", "geforce", "quadro", "amd", "instinct", "radeon", "intel"),
        *("google", "cloud", "aws", "accelerator", "accelerators", "gpu", "gpus", "graphics"),
        *("tensor", "core", "cores", "oam"),
    ]
)
_COUNT_IN_FRONT = re.compile(r"(?<![a-z0-9])\d{1,2}x\s*(?=[a-z])")
_BUILT = re.compile(r"\b(\d+\s*gi?b|hbm\w*|gddr\w*|sxm\d*|pcie\d*|nvl\d*)\b")


def is_same_kind(one: str, other: str) -> bool:
    """Whether two names may be of one accelerator: of "NVIDIA H100 80GB HBM3" and "H100" yes.

    Maker, memory and form do not count; of the words left, one name has all that the other has, or
    both have the same letters in a row. A name without any such word may be of any.
    """
    first, second = _model_words(one), _model_words(other)
    return (
        set(first) <= set(second) or set(second) <= set(first) or "".join(first) == "".join(second)
    )


def _model_words(name: str) -> list[str]:
    plain = _BUILT.sub(" ", _COUNT_IN_FRONT.sub(" ", name.lower().replace("_", " ")))
    return [word for word in re.findall(r"[a-z0-9]+", plain) if word not in FILLERS]
