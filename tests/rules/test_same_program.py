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
        (b"x", b"y"),
        (b'"uint8"', b'"uint16"'),
        (b"        yield", b"        pass\n    yield"),
        (b"        yield", b"        pass\n        yield"),
    ],
)
def test_another_token_or_block_makes_another_program(old, new):
    assert program_of(ORIGINAL | {"train.py": TRAIN.replace(old, new)}) != program_of(ORIGINAL)


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
