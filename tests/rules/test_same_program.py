"""The program of a package: two that differ for their readers alone are the same."""

import ast
import random
import re
from pathlib import Path

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
    package, problems = read_package(files, benchmarks=["digits", "teacher"])
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
    ("old", "new", "is_same"),
    [
        (b"import numpy as np", b"# Mine.\nimport numpy as np  # the fastest", True),
        (b"\n\ndef train", b"\n\n\n\ndef train", True),
        (b"* 2", b"\\\n    * 2", True),
        (b"0.1,\n            ", b"0.1, ", True),
        (b"    x = prepared", b'    """Train."""\n    x = prepared', True),
        (b"import numpy", b'"""The fastest."""\nimport numpy', True),
        (b"        yield", b"                yield", True),
        (b" * 2", b"*2", True),
        (b"\n", b"\r\n", True),
        (b"0.1", b"0.2", False),
        (b'"uint8"', b'"uint16"', False),
        (b"        yield", b"        pass\n    yield", False),
        (b"        yield", b"        pass\n        yield", False),
    ],
)
def test_tokens_and_blocks_make_a_program_and_layout_does_not(old, new, *, is_same):
    files = ORIGINAL | {"train.py": TRAIN.replace(old, new)}
    assert files != ORIGINAL
    assert (program_of(files) == program_of(ORIGINAL)) is is_same


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


RENAMED = [
    {b"RATE": b"SPEED"}, {b"total": b"x"}, {b"scaled": b"fn"}, {b"inner": b"deep"},
    {b"other": b"o"}, {b"import math": b"import math as m", b"math.pi": b"m.pi"},
    {b"partial as bind": b"partial", b"bind(": b"partial("}, {b"each": b"e"}, {b"calls": b"n"},
    {b"value": b"v", b" by": b" times", b"by=": b"times="}, {b"self": b"me"}, {b"unused": b"idle"},
    # Two locals of two functions, one of them renamed.
    {b"other): ": b"total): ", b"(other)": b"(a)", b"return other": b"return a"},
]  # fmt: skip
CHANGED = [
    {b"0.5": b"0.25"}, {b"math.pi": b"math.e"}, {b"import math": b"import cmath as math"},
    {b"return other + len(total)": b"return len(total) + other"}, {b"by=2": b"by=3"},
    {b"size": b"width"}, {b"forward": b"backward"}, {b"other + len": b"total + len"},
    {b"rate=1": b"speed=1"}, {b"+ RATE": b"+ calls"},
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "is_same"), [(c, True) for c in RENAMED] + [(c, False) for c in CHANGED]
)
def test_names_of_its_own_make_no_other_program(changes, *, is_same):
    changed = HELPER
    for old, new in changes.items():
        changed = changed.replace(old, new)
    one, other = (ORIGINAL | {"helper.py": text} for text in (HELPER, changed))
    assert changed != HELPER
    assert (program_of(one) == program_of(other)) is is_same


ARGUMENTS = ("a, b", "b, a")
SWAPPED = [f"def f({names}): return {names[0]}" for names in ARGUMENTS]
EACH = [f"{names} = 1, 2" for names in ARGUMENTS]
INNER = "def f(a):\n def g():\n  global a\n  return {}\n return g"


@pytest.mark.parametrize(
    "pair",
    [
        [f"try: import math as m\nexcept OSError: import cmath as {n}\nm.pi" for n in "mn"],
        [f"from math import pi as {name}" for name in ("train", "prepare")],
        ["import os.path\nos.name", "import os.path as os\nos.name"],
        # Keywords that mean a parameter, by whatever name its function is called.
        *([f"{function}\n{end}" for function in SWAPPED] for end in (
            "from functools import partial\npartial(f, a=1)", "g = f\ng(a=1, b=2)",
            "f(**read())", "f(**{'a': 1})", "import helper\nhelper.f(a=1, b=2)",
            "from helper import f as g\ng(a=1, b=2)",
        )),
        [f"class C:\n def __init__(s, {a}): s.c = {a[0]}\nC(a=1, b=2)" for a in ARGUMENTS],
        [f"def f(x): return [{name} for {name} in {name}]" for name in "xy"],
        # Names that Python looks for at the top of the file.
        *([f"{each}\n{end}" for each in EACH] for end in (
            "class C:\n a = a", "class C:\n a += 1", INNER.format("a"), INNER.format("lambda: a"),
            "eval('a + 1')", "import helper\nhelper.a",
            "from helper import a as c", "from helper import *\nc",
        )),
        [f"def f(): return a\ndef g():\n global {name}\n {name} = 1" for name in "ab"],
        [f"{name} = {name}\n{name}([1, 2])" for name in ("sum", "max")],
        [f"def f():\n {each}\n return vars()['a']" for each in EACH],
        [f"class {name}:\n def f(self): return self.__x\nC()._A__x" for name in "AB"],
        [f"def {name}(): pass\nlen({name}.__name__)" for name in ("f", "go")],
        *([f'"""{n}"""\n{end}' for n in "12"] for end in ("exec(__doc__)", "f.__doc__")),
    ],
)  # fmt: skip
def test_what_may_mean_another_value_makes_another_program(pair):
    one, other = (program_of(ORIGINAL | {"helper.py": each.encode()}) for each in pair)
    assert one != other


def test_a_name_that_another_file_imports_stays():
    caller = TRAIN + b"    from helper import f\n    f(a=1, b=2)\n"
    for pair in (SWAPPED, ["def f(): 1\ndef g(): 2", "def g(): 1\ndef f(): 2"]):
        files = (ORIGINAL | {"train.py": caller, "helper.py": each.encode()} for each in pair)
        one, other = map(program_of, files)
        assert one != other


def own_names(source):
    """Names that the functions of a file bind, without those that something may look up."""
    nodes = list(ast.walk(ast.parse(source)))
    inside = [each for f in nodes if isinstance(f, ast.FunctionDef) for each in ast.walk(f)]
    bound = {each.arg for each in inside if isinstance(each, ast.arg)}
    bound |= {e.id for e in inside if isinstance(e, ast.Name) and isinstance(e.ctx, ast.Store)}
    taken = [getattr(each, "attr", getattr(each, "value", "")) for each in nodes]
    taken += [each.arg for each in nodes if isinstance(each, ast.keyword)]
    return bound - set(re.findall(r"\w+", " ".join(e for e in taken if isinstance(e, str))))


@pytest.mark.parametrize("name", ["digits_answers", "digits_weights", "teacher_fast"])
def test_renamed_locals_of_an_example_make_no_other_program(name):
    folder = Path(__file__).parents[2] / "examples" / "packages" / name
    files = {each.name: each.read_bytes() for each in folder.iterdir()}
    code = {file: text for file, text in files.items() if file.endswith(".py")}
    names = sorted(own_names(b"\n".join(code.values())))
    draw, same = random.Random(name), program_of(files)
    for _ in range(3):
        chosen = {n.encode(): b"x%d_" % draw.randrange(99) for n in draw.sample(names, 5)}
        words = re.compile(rb"\b(%s)\b" % b"|".join(chosen))
        renamed = {
            file: words.sub(lambda found, new=chosen: new[found[0]] + found[0], text)
            for file, text in code.items()
        }
        assert renamed != code
        assert program_of(files | renamed) == same


def test_deep_nesting_has_a_hash_of_its_own():
    deep = b"x = " + b"(" * 90 + b"1" + b")" * 90 + b"\n"
    sums = b"x = (" + b"\n+ ".join([b"1"] * 900) + b")\n"
    for text in (deep, sums, b"def f():\n global x, x\n"):
        one, other = (ORIGINAL | {"helper.py": each} for each in (text, text.replace(b"x", b"y")))
        assert program_of(one) == program_of(other)


FACTOR = {"ideas.py": b'IDEAS = ["muon"]\n'}
OTHER_MODULE = {"start.py": TRAIN, "training.toml": MANIFEST.replace(b'"train"', b'"start"')}


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ({}, {"README.md": b"# Mine\n"}, True),
        ({}, {"training.toml": MANIFEST.replace(b"Random cosines", b"My own idea")}, True),
        ({}, {"training.toml": MANIFEST.replace(b"MIT", b"Apache-2.0")}, True),
        ({}, {"training.toml": MANIFEST.replace(b"numpy-2.4", b"torch-2.13-cpu")}, False),
        (FACTOR, {"training.toml": MANIFEST + b'[factors]\nmuon = "Muon"\n'} | FACTOR, False),
        ({"start.py": TRAIN}, OTHER_MODULE, False),
        ({}, {"weights.txt": b"1 2\n"}, False),
        ({"weights.txt": b"1 2\n"}, {"weights.txt": b"1  2\n"}, False),
    ],
)
def test_files_for_readers_make_no_other_program_and_others_do(one, other, *, is_same):
    assert (program_of(ORIGINAL | one) == program_of(ORIGINAL | other)) is is_same


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        (b"it is fast", b"it's mine", True), (b"float f", b"/* mine\n*/ float  f", True),
        (b"{ return", b"{\\\n  return", True), (b"/* no */", b"/* yes */", False),
        (b"// no", b"// yes", False), (b"// not", b"// yet", False),
        (b"1'000", b"1'001", False), (b"float x", b"floatx", False),
    ],
)  # fmt: skip
def test_of_cpp_too_comments_and_layout_alone_make_no_other_program(old, new, *, is_same):
    kernel = KERNEL.replace(old, new)
    assert kernel != KERNEL
    one, other = (ORIGINAL | COMPILED | {"kernel.cpp": text} for text in (KERNEL, kernel))
    assert (program_of(one) == program_of(other)) is is_same
