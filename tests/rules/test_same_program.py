"""The program of a package: two that differ for their readers alone are the same."""

import pytest

from finishline.rules.trainings.package import read_package
from tests.rules.test_trainings import GOOD, MANIFEST

TRAIN = b"""import numpy as np

def prepare(task):
    return {"rate": 0.1,
            "steps": [1, 2]}

def train(prepared, data, seed):
    x = prepared["rate"] * 2
    if x:
        yield lambda inputs: np.zeros(599, "uint8")
"""


def program_of(files):
    package, problems = read_package(files, benchmarks=["digits"])
    assert package is not None, problems
    return package.program_sha256


ORIGINAL = GOOD | {"train.py": TRAIN}
KERNEL = b"""#include <cmath>
float f(float x) { return x * 1'000; }  // it is fast
const char *said = "/* no */", *raw = R"end(// no)end";
const char8_t *coded = u8R"(a" // not)";
"""
COMPILED = {"training.toml": MANIFEST.replace(b"numpy-2.4", b"numpy-2.4-gcc")}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"import numpy as np", b"# Mine.\nimport numpy as np  # the fastest"),
        (b"\n\ndef train", b"\n\n\n\ndef train"),
        (b"* 2", b"\\\n    * 2"),
        (b"0.1,\n            ", b"0.1, "),
        (b"    x = prepared", b'    """Train."""\n    x = prepared'),
        (b"import numpy", b'"""The fastest."""\nimport numpy'),
        (b"        yield", b"                yield"),
        (b" * 2", b"*2"),
        (b"\n", b"\r\n"),
    ],
)
def test_comments_docstrings_and_layout_make_no_other_program(old, new):
    files = ORIGINAL | {"train.py": TRAIN.replace(old, new)}
    assert files != ORIGINAL
    assert program_of(files) == program_of(ORIGINAL)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"0.1", b"0.2"),
        (b'"uint8"', b'"uint16"'),
        (b"        yield", b"        pass\n    yield"),
        (b"        yield", b"        pass\n        yield"),
    ],
)
def test_another_token_or_block_makes_another_program(old, new):
    assert program_of(ORIGINAL | {"train.py": TRAIN.replace(old, new)}) != program_of(ORIGINAL)


HELPER = b"""import math
from functools import partial as bind

RATE = 0.5

def scaled(value, by=2):
    global calls
    calls = 1
    total = [each * by for each in value]
    def inner(other):
        return other + len(total) + RATE
    return bind(inner, math.pi)

class Net:
    size = 3
    def forward(self, data, rate=1):
        return scaled(value=data, by=rate) if data else self.size

def unused():
    return scaled
"""


@pytest.mark.parametrize(
    "changes",
    [
        {b"RATE": b"SPEED"}, {b"total": b"x"}, {b"scaled": b"fn"}, {b"inner": b"deep"},
        {b"other": b"o"}, {b"import math": b"import math as m", b"math.pi": b"m.pi"},
        {b"partial as bind": b"partial", b"bind(": b"partial("}, {b"each": b"e"}, {b"calls": b"n"},
        {b"value": b"v", b" by": b" times", b"by=": b"times="}, {b"self": b"me"},
        {b"unused": b"idle"},
        # Two locals of two functions, one of them renamed.
        {b"other): ": b"total): ", b"(other)": b"(a)", b"return other": b"return a"},
    ],
)  # fmt: skip
def test_names_of_its_own_make_no_other_program(changes):
    changed = HELPER
    for old, new in changes.items():
        changed = changed.replace(old, new)
    one, other = (ORIGINAL | {"helper.py": text} for text in (HELPER, changed))
    assert changed != HELPER
    assert program_of(one) == program_of(other)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"0.5", b"0.25"), (b"math.pi", b"math.e"), (b"import math", b"import cmath as math"),
        (b"return other + len(total)", b"return len(total) + other"), (b"by=2", b"by=3"),
        (b"size", b"width"), (b"forward", b"backward"), (b"other + len", b"total + len"),
        (b"rate=1", b"speed=1"), (b"+ RATE", b"+ calls"),
    ],
)  # fmt: skip
def test_values_attributes_and_imports_make_another_program(old, new):
    one, other = (ORIGINAL | {"helper.py": text} for text in (HELPER, HELPER.replace(old, new)))
    assert program_of(one) != program_of(other)


def test_a_name_that_another_file_imports_stays():
    caller = TRAIN.replace(b"import numpy as np", b"import numpy as np\nfrom helper import first")
    swapped = b"def first():\n    return 1\n\ndef other():\n    return 2\n"
    plain = b"def other():\n    return 1\n\ndef first():\n    return 2\n"
    one, other = (ORIGINAL | {"train.py": caller, "helper.py": h} for h in (plain, swapped))
    assert program_of(one) != program_of(other)


def test_texts_for_readers_make_no_other_program():
    assert program_of(ORIGINAL | {"README.md": b"# Mine\n"}) == program_of(ORIGINAL)


def test_deep_nesting_has_a_hash_of_its_own():
    deep = b"x = " + b"(" * 90 + b"1" + b")" * 90 + b"\n"
    sums = b"x = (" + b"\n+ ".join([b"1"] * 900) + b")\n"
    for text in (deep, sums):
        one, other = (ORIGINAL | {"helper.py": each} for each in (text, text.replace(b"x", b"y")))
        assert program_of(one) == program_of(other)


def test_words_of_the_manifest_make_no_other_program_and_its_environment_does():
    def after(old, new):
        return program_of(ORIGINAL | {"training.toml": MANIFEST.replace(old, new)})

    same = program_of(ORIGINAL)
    assert after(b"Random cosines", b"My own idea") == same
    assert after(b"MIT", b"Apache-2.0") == same
    assert after(b"numpy-2.4", b"torch-2.13-cpu") != same
    reads = ORIGINAL | {"ideas.py": b'IDEAS = ["muon"]\n'}
    with_factor = MANIFEST + b'[factors]\nmuon = "Muon"\n'
    assert program_of(reads | {"training.toml": with_factor}) != program_of(reads)


def test_names_of_files_and_bytes_of_other_files_make_another_program():
    same = program_of(ORIGINAL)
    renamed = ORIGINAL | {"training.toml": MANIFEST.replace(b'"train"', b'"start"')}
    renamed["start.py"] = renamed.pop("train.py")
    assert program_of(renamed) != same
    weights = program_of(ORIGINAL | {"weights.txt": b"1 2\n"})
    assert weights != same
    assert program_of(ORIGINAL | {"weights.txt": b"1  2\n"}) != weights


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        (b"it is fast", b"it's mine", True),
        (b"float f", b"/* mine\n*/ float  f", True),
        (b"{ return", b"{\\\n  return", True),
        (b"/* no */", b"/* yes */", False),
        (b"// no", b"// yes", False),
        (b"// not", b"// yet", False),
        (b"1'000", b"1'001", False),
        (b"float x", b"floatx", False),
    ],
)
def test_of_cpp_too_comments_and_layout_alone_make_no_other_program(old, new, *, is_same):
    kernel = KERNEL.replace(old, new)
    assert kernel != KERNEL
    one, other = (ORIGINAL | COMPILED | {"kernel.cpp": text} for text in (KERNEL, kernel))
    assert (program_of(one) == program_of(other)) is is_same
