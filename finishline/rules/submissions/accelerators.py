"""The accelerators of a system: vendor, model and count, read off the names submitters write.

The names are in `accelerators.toml`. A text that has none of them is of no known accelerator.
"""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

NOT_STATED = "not stated"
LONGEST = 400
PROCESSORS = "CPU"  # The vendor of processors that nobody names.
_NUMBER = "([a-z]?[0-9]+[a-z0-9+]{0,4})"
_START = r"(?:(?<![a-z0-9.])|(?<=[0-9][x*]))"
_END = r"(?![a-z0-9])|(?=sxm|pcie|nvl|oam)"
# Beside a model's name these say nothing of how many there are.
_MAKERS = (
    r"(?:nvidia|tesla|geforce|quadro|amd|instinct|radeon|intel|habana|google|cloud|aws|azure|"
    r"gpus?|tensor core|with|core|of|an?|the|each|one|single)"
)
_N = "[0-9]{1,7}"
_FRACTION = re.compile(rf"(?:({_N})\s*/\s*({_N})|(half))\s+of\s+an?\s*$")
_BEFORE = re.compile(
    rf"(?<![a-z0-9./-])((?:{_N}\s*[x*]\s*)*{_N})\s*(?:[x*]\s*)?(?:{_MAKERS}[\s-]*)*$"
)
_AFTER = re.compile(rf"^(?:[\s-]*(?:sxm[0-9]?|pcie|nvl|oam|hbm\w*|{_N}\s*gb))*\s*[x*]\s*({_N})")
_NODES = re.compile(rf"({_N})\s*(?:x\s*)?(?:nodes?|machines?|servers?|hosts?|instances?)\b")
_DEVICES = re.compile(rf"({_N})\s*(?:gpus?|tpus?|accelerators?|v?cpus?)\b")
_EACH = re.compile(r"(?:per|each)\s+(?:node|machine|server|host)")
# A full pod of the devices that a submitter rents one by one.
_POD_DEVICES = {"TPU v2": 64, "TPU v3": 256}


# Sizes of systems that are chosen together: their name, and the most accelerators of each.
SIZES = {"1": 1, "2-8": 8, "9-64": 64, "65-512": 512, "more": 10**9}


@dataclass(frozen=True)
class Accelerator:
    """An accelerator by vendor and model, and how many; None is not stated.

    A system without accelerators has the processors it trains on instead.
    """

    vendor: str | None = None
    model: str | None = None
    count: int | None = None

    @property
    def words(self) -> str:
        """The count and the model, as in "8 × V100"."""
        model = self.model or NOT_STATED
        return f"{self.count}\u00a0×\u00a0{model}" if self.count and self.model else model

    @property
    def size(self) -> str | None:
        """The name of the size that the count is of."""
        if self.count is None:
            return None
        return next((name for name, most in SIZES.items() if self.count <= most), "more")


@dataclass(frozen=True)
class _Names:
    """Names in one pattern, each with a group; `meant` has the vendor and the model of each."""

    pattern: re.Pattern[str]
    meant: tuple[tuple[str, str], ...]

    def find(self, text: str) -> tuple[Accelerator, re.Match[str]] | None:
        """The first name in a text, the longest of those that begin there."""
        match = self.pattern.search(text)
        if match is None:
            return None
        at = next(n for n in range(len(self.meant)) if match[f"n{n}"] is not None)
        vendor, model = self.meant[at]
        for number in match.groups()[match.re.groupindex[f"n{at}"] :][: model.count("#")]:
            model = model.replace("#", number.upper(), 1)
        return Accelerator(vendor, model), match


@cache
def _names(kind: str) -> _Names:
    """The names of accelerators, processors or instances; an instance means a count and a name."""
    file = files("finishline.rules.submissions") / "accelerators.toml"
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
def accelerator_of(text: str, *, count: int | None = None) -> Accelerator:
    """Read the accelerators off a name, a sentence or a type of instance.

    `count` is how many a description states in a field of its own. Processors count where the text
    names nothing else.
    """
    plain = _plain(text)
    rented = _rented(plain)
    found = _names("accelerators").find(plain)
    if found is None and (rented is None or rented.vendor == PROCESSORS):
        found = _names("processors").find(plain)
    if found is None or (rented is not None and found[0].vendor == PROCESSORS):
        return replace(rented or Accelerator(), count=count or (rented.count if rented else None))
    accelerator, match = found
    said = count or _count(plain, match, accelerator)
    if said is None and rented is not None and rented.model == accelerator.model:
        said = rented.count
    return replace(accelerator, count=said)


def accelerator_of_system(system: Mapping[str, Any]) -> Accelerator:
    """The accelerators of a system: as stated, of its instance, or named in its prose."""
    cloud = system.get("cloud") or {}
    return _of_texts(
        str(system.get("accelerator") or ""),
        system.get("accelerator_count") or None,
        str(cloud.get("instance") or ""),
        int(cloud.get("count") or 1),
        str(system.get("name") or ""),
        str(system.get("processor") or ""),
    )


@lru_cache(maxsize=4096)
def _of_texts(
    accelerator: str, count: int | None, instance: str, instances: int, name: str, processor: str
) -> Accelerator:
    if accelerator:
        return accelerator_of(accelerator, count=count)
    if instance and (rented := _rented(f"{instances} {_plain(instance)}")) is not None:
        return rented
    found = [one for text in (name, processor) if (one := accelerator_of(text)).model is not None]
    if found:
        # A name such as a hardware class begins with "cpu": its processor says more.
        return next((one for one in found if one.model != PROCESSORS), found[0])
    # An entry of prose has it in both fields; any other without accelerators trains on processors.
    is_prose = processor in (name, "", NOT_STATED)
    return Accelerator() if is_prose else Accelerator(PROCESSORS, PROCESSORS)


def hardware_words(system: Mapping[str, Any]) -> str:
    """The name of a system's row: "8 × V100", or the stated words if they hold no known name."""
    found = accelerator_of_system(system)
    if found.model is None and (stated := system.get("accelerator")):
        return replace(found, model=str(stated)).words
    return found.words


def _plain(text: str) -> str:
    marks = re.compile(r"\(r\)|\(tm\)|[®™]")
    return marks.sub("", text[:LONGEST].lower()).replace("×", "x")


def _rented(text: str) -> Accelerator | None:
    """The accelerators of the instances that a text names, all of them together."""
    found = _names("instances").find(text)
    if found is None:
        return None
    count, _, name = (found[0].model or "").partition(" ")
    known = _names("accelerators").find(name.lower())
    one = Accelerator(PROCESSORS, name) if known is None else known[0]
    return replace(one, count=int(count) * (_machines(text[: found[1].start()]) or 1))


def _machines(before: str) -> int | None:
    found = _BEFORE.search(before) or _NODES.search(before)
    return _product(found[1]) if found else None


def _product(factors: str) -> int:
    return math.prod(map(int, re.findall("[0-9]+", factors)))


def _count(text: str, match: re.Match[str], one: Accelerator) -> int | None:
    """Number of accelerators in a sentence that names them at this place."""
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
