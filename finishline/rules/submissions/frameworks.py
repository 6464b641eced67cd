"""Families of frameworks: many versions, few names."""

import re
from functools import lru_cache

NAMES = (
    *("PyTorch", "TensorFlow", "JAX", "MXNet", "NeMo", "HugeCTR", "DGL", "PaddlePaddle"),
    *("MindSpore", "Caffe", "BigDL", "TensorRT", "Keras", "tinygrad", "numpy"),
)
_KNOWN = re.compile("|".join(rf"(?P<{name}>{name})" for name in NAMES) + "|torch", re.IGNORECASE)


@lru_cache(maxsize=4096)
def framework_family(text: str) -> str:
    """The framework that a text names first, without its version: "PyTorch" of "NGC pytorch 1.0".

    Of a text that names none of those known it is the first word.
    """
    if (found := _KNOWN.search(text)) is not None:
        return found.lastgroup or "PyTorch"
    word = re.match(r"\W*([^\s,;/+(]+)", text)
    return word[1] if word else text
