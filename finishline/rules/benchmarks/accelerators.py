"""Read vendor, model and count of a system's accelerators off the names that submitters write.

The names are in `accelerators.toml`. Other stated accelerators stay as stated.
"""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Literal

Pricing = Literal["on_demand", "spot"]
# Names of a price book, each one line, and of hardware classes.
NAME_LENGTHS = {"provider": 100, "instance": 200, "region": 100}
CLASS_NAME = r"[a-z0-9][a-z0-9._-]{0,99}"
A_CLASS = "a short name of lower-case letters, digits, dots and hyphens"
NOT_STATED = "not stated"
LONGEST = 400
PROCESSORS = "CPU"  # The vendor of unnamed processors.
# "x8" behind a name, which says how many.
_TIMES = "x[0-9]+(?![a-z0-9])"
_NUMBER = f"([a-z]?[0-9]+(?:(?!{_TIMES})[a-z0-9+]){{0,4}})"
_START = r"(?:(?<![a-z0-9.])|(?<=[0-9][x*]))"
_END = rf"s?(?![a-z0-9])|(?=sxm|pcie|nvl|oam|{_TIMES})"
# Makers by the words for them.
_MAKERS = {
    "nvidia": "NVIDIA", "tesla": "NVIDIA", "geforce": "NVIDIA", "quadro": "NVIDIA",
    "amd": "AMD", "instinct": "AMD", "radeon": "AMD", "intel": "Intel", "habana": "Intel",
    "google": "Google", "aws": "AWS", "apple": "Apple", "huawei": "Huawei",
    "graphcore": "Graphcore", "cerebras": "Cerebras", "alibaba": "Alibaba",
    "tenstorrent": "Tenstorrent",
}  # fmt: skip
_CLOUDS = {"Google", "AWS", "Huawei", "Alibaba"}  # They have the accelerators of others, too.
_MAKER = re.compile(rf"\b({'|'.join(_MAKERS)})\b")
# Near a model's name these leave the count open.
_FILLERS = (
    rf"(?:{'|'.join(_MAKERS)}|azure|cloud|gpus?|tensor core|with|core|of|an?|the|each|one|single)"
)
# Words behind a model's name that make it another model, up to a mark that ends its words.
_VARIANT = re.compile(r"\b(super|laptop|mobile|max-?q|mig\s*[0-9]g\.[0-9]+gb(?:\+me)?)(?![\w+])")
_VARIANT_NAMES = {"super": "SUPER", "laptop": "Laptop", "mobile": "Mobile"}
_N = "[0-9]{1,7}"
_FRACTION = re.compile(rf"(?:({_N})\s*/\s*({_N})|(half))\s+of\s+an?\s*$")
_BEFORE = re.compile(
    rf"(?<![a-z0-9./-])((?:{_N}\s*[x*]\s*)*{_N})\)?[\s-]*(?:[x*]\s*)?(?:{_FILLERS}[\s-]*)*$"
)
_AFTER = re.compile(
    rf"^(?:[\s(),-]*(?:sxm[0-9]?|pcie|nvl|oam|hbm\w*|gpus?|{_N}\s*gi?b))*[\s(),]*[x*]\s*({_N})\b"
)
_NODES = re.compile(rf"({_N})\s*(?:x\s*)?(?:nodes?|machines?|servers?|hosts?|instances?)\b")
_DEVICES = re.compile(rf"({_N})\s*(?:gpus?|tpus?|accelerators?|v?cpus?)\b")
_EACH = re.compile(r"(?:per|each)\s+(?:node|machine|server|host)")
# A full pod of the devices that a submitter rents one by one.
_POD_DEVICES = {"TPU v2": 64, "TPU v3": 256}
_UNKNOWN = re.compile(
    rf"(?:({_N})\s*[x×*]\s*)?(.*?)(?:(?:\s*[×*]|(?<=[\s)])x)\s*({_N}))?", re.IGNORECASE
)
# Instances of a provider, some with the name of an accelerator in them.
_INSTANCE = re.compile(r"[\w-]+\.\w*(?:xlarge|metal)|(?:standard_)?n[a-z][0-9]+\w*_v[0-9]+|gpu_\w+")

# Sizes of systems that are chosen together: their name, and the most accelerators of each.
SIZES = {"1": 1, "2-8": 8, "9-64": 64, "65-512": 512, "more": 10**9}
# A part of a card, a card of a laptop and a faster one of the same number are other cards.
VARIANTS = frozenset({"mig", "laptop", "mobile", "super", "ti"})
# Words of an accelerator's name that leave the model open.
BESIDE_MODELS = frozenset(
    [
        *("nvidia", "tesla", "geforce", "quadro", "amd", "instinct", "radeon", "intel"),
        *("google", "cloud", "aws", "accelerator", "accelerators", "gpu", "gpus", "graphics"),
        *("tensor", "core", "cores", "oam"),
    ]
)
_BUILT = re.compile(r"\b(\d+\s*gi?b|hbm\w*|gddr\w*|sxm\d*|pcie\d*|nvl\d*)\b")
_COUNT_IN_FRONT = re.compile(r"(?<![a-z0-9])\d{1,2}x\s*(?=[a-z])")


@dataclass(frozen=True)
class Accelerator:
    """Vendor, model and number of accelerators, else of processors. None is unstated."""

    vendor: str | None = None
    model: str | None = None
    count: int | None = None

    @property
    def words(self) -> str:
        """Return the count and the model, as in "8 × V100"."""
        model = self.model or NOT_STATED
        return f"{self.count}\u00a0×\u00a0{model}" if self.count and self.model else model

    @property
    def size(self) -> str | None:
        """Return the name of the size with this count."""
        if self.count is None:
            return None
        return next((name for name, most in SIZES.items() if self.count <= most), "more")


@dataclass(frozen=True)
class _Names:
    """Names in one pattern, each with a group. `meant` has the vendor and the model of each."""

    pattern: re.Pattern[str]
    meant: tuple[tuple[str, str], ...]

    def find(self, text: str) -> tuple[Accelerator, re.Match[str]] | None:
        """Find the first name in a text, the longest at its place, with its variant."""
        match = self.pattern.search(text)
        if match is None:
            return None
        at = next(n for n in range(len(self.meant)) if match[f"n{n}"] is not None)
        vendor, model = self.meant[at]
        for number in match.groups()[match.re.groupindex[f"n{at}"] :][: model.count("#")]:
            model = model.replace("#", number.upper(), 1)
        words = re.split(r"[,;/()]", text[match.end() :])[0]
        for found in _VARIANT.findall(words):
            variant = found.replace("mig", "MIG") if "mig" in found else "Max-Q"
            model += f" {_VARIANT_NAMES.get(found, variant)}"
        return Accelerator(vendor, model), match


@cache
def _names(kind: str) -> _Names:
    """Read the names of accelerators, processors, or instances, which mean a count and a name."""
    file = files("finishline.rules.benchmarks") / "accelerators.toml"
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    if kind == "instances":
        found = {name: ("", machine) for name, machine in table[kind].items()}
    else:
        found = {name: (vendor, name) for vendor, names in table[kind].items() for name in names}
        found |= {new: found[name] for new, name in table["aliases"].items() if name in found}
    ordered = sorted(found, key=len, reverse=True)
    pattern = "|".join(f"(?P<n{n}>{_pattern(name)})" for n, name in enumerate(ordered))
    whole = f"{_START}(?:{pattern})(?:{_END})"
    return _Names(re.compile(whole), tuple(found[name] for name in ordered))


def _pattern(name: str) -> str:
    words = (re.escape(word).replace(r"\#", _NUMBER) for word in re.split("[ -]", name.lower()))
    return r"[\s_-]*".join(words)


@lru_cache(maxsize=4096)
def accelerator_of(text: str) -> Accelerator:
    """Read the accelerators, else the processors, off a name, sentence or instance type."""
    plain = _plain(text)
    rented = _rented(plain)
    found = _names("accelerators").find(plain)
    if found is None and (rented is None or rented.vendor == PROCESSORS):
        found = _names("processors").find(plain)
    if found is None or (rented is not None and found[0].vendor == PROCESSORS):
        return rented or Accelerator()
    accelerator, match = found
    count = _count(plain, match, accelerator)
    if count is None and rented is not None and rented.model == accelerator.model:
        count = rented.count
    return replace(accelerator, count=count)


@lru_cache(maxsize=4096)
def stated_accelerator(text: str, count: int | None = None) -> Accelerator:
    """Return the accelerators in a description, `count` of them where a field says so.

    An unknown name, a known name of another maker and the name of an instance stay as stated.
    """
    plain = _plain(text)
    makers = [_MAKERS[word] for word in _MAKER.findall(plain)]
    instance = _names("instances").pattern.search(plain) or _INSTANCE.search(plain)
    found = _names("accelerators").find(plain)
    if found is not None and instance is not None and found[1].start() in range(*instance.span()):
        found = None
    if found is not None and (found[0].vendor in makers or set(makers) <= _CLOUDS):
        accelerator, match = found
        return replace(
            accelerator, count=_count(plain, match, accelerator) if count is None else count
        )
    stated = _UNKNOWN.fullmatch(" ".join(text[:LONGEST].split()))
    before, model, after = stated.groups() if stated else (None, text[:LONGEST], None)
    number = before or after
    written = int(number) if number else None
    return Accelerator(
        makers[0] if makers else None, model or None, written if count is None else count
    )


def accelerators_of_cloud(cloud: Mapping[str, Any] | None) -> Accelerator | None:
    """Return all accelerators of rented instances, if known and not sold by processors."""
    rented = rented_of(cloud) if cloud else None
    return None if rented is None or rented.vendor == PROCESSORS else rented


def are_of_cloud(described: Accelerator, rented: Accelerator) -> bool:
    """Whether described accelerators fit the rented instances, as far as they are stated."""
    if described.count not in (None, rented.count):
        return False
    model = described.model
    return (
        model is None
        or model == rented.model
        or (accelerator_of(model).model is None and is_same_kind(model, rented.model or ""))
    )


def rented_of(cloud: Mapping[str, Any]) -> Accelerator | None:
    rented = _rented(_plain(str(cloud["instance"])).removeprefix("ml."))
    return rented and replace(rented, count=(rented.count or 1) * (cloud.get("count") or 1))


def _plain(text: str) -> str:
    """Write the text in lower case, minus marks and the plural "s" behind a model's number."""
    text = re.sub(r"\([rR]\)|\((?:tm|TM)\)|[®™]", "", text[:LONGEST]).replace("×", "x")
    return text.lower() if text.islower() else re.sub(r"(?<=[0-9])s\b", "", text).lower()


def _rented(text: str) -> Accelerator | None:
    """Return the accelerators of the instances in a text, all of them together."""
    found = _names("instances").find(text)
    if found is None:
        return None
    count, _, name = (found[0].model or "").partition(" ")
    known = _names("accelerators").find(name.lower())
    one = Accelerator(PROCESSORS, name) if known is None else known[0]
    before = text[: found[1].start()]
    machines = _BEFORE.search(before) or _NODES.search(before)
    return replace(one, count=int(count) * ((machines and _product(machines[1])) or 1))


def _product(factors: str) -> int:
    return math.prod(map(int, re.findall("[0-9]+", factors)))


def _count(text: str, match: re.Match[str], one: Accelerator) -> int | None:
    before, after = text[: match.start()], text[match.end() :]
    if share := _FRACTION.search(before):
        of_pod = _POD_DEVICES.get(one.model or "", 0) if after.lstrip().startswith("pod") else 0
        parts = 2 if share[3] else int(share[2])
        return of_pod * int(share[1] or 1) // max(parts, 1) or None
    if direct := _BEFORE.search(before):
        each = _product(direct[1])
        nodes = _NODES.search(before[: direct.start()])
    elif behind := _AFTER.match(after) or _DEVICES.search(text):
        each, nodes = int(behind[1]), _NODES.search(before)
    else:
        nodes = _NODES.search(before)
        return int(nodes[1]) if nodes else None
    nodes = nodes or (_NODES.search(text) if _EACH.search(text) else None)
    return each * (int(nodes[1]) if nodes else 1)


def is_same_kind(one: str, other: str) -> bool:
    """Whether two names may be of one accelerator, as "NVIDIA H100 80GB HBM3" and "H100" are.

    Without maker, memory and form, one name has all words of the other, or both the same letters in
    a row, and both the same variants such as "Laptop". A name without such words fits any.
    """
    first, second = _model_words(one), _model_words(other)
    if not first or not second or "".join(first) == "".join(second):
        return True
    if VARIANTS & set(first) != VARIANTS & set(second):
        return False
    return set(first) <= set(second) or set(second) <= set(first)


def _model_words(name: str) -> list[str]:
    plain = _BUILT.sub(" ", _COUNT_IN_FRONT.sub(" ", name.lower().replace("_", " ")))
    return [word for word in re.findall(r"[a-z0-9]+", plain) if word not in BESIDE_MODELS]
