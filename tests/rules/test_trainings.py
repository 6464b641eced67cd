"""Training packages: the manifest, the files, and the frames of the protocol."""

import hashlib
import json
from pathlib import Path

import pytest

from finishline.rules.benchmarks.benchmark import load_benchmark, parse_benchmark
from finishline.rules.benchmarks.definition_tables import LARGEST_PACKAGE_BYTES
from finishline.rules.errors import BenchmarkError
from finishline.rules.trainings.manifest import PackageError, read_manifest
from finishline.rules.trainings.package import Package, read_package
from worker.sandbox.protocol import (
    HEADER,
    ArraySpec,
    Conversation,
    FrameType,
    Limits,
    ProtocolError,
    TaskConversation,
    header_of,
    offsets,
    size_of,
)

MANIFEST = b"""schema = 1
benchmark = "digits"
title = "Random cosines"
module = "train"
environment = "numpy-2.4"
license = "MIT"
"""
TRAIN = b"""import numpy as np

def prepare(task):
    pass

def train(prepared, data, seed):
    yield lambda inputs: np.zeros(599, "uint8")
"""
GOOD = {"training.toml": MANIFEST, "train.py": TRAIN}


def problems_of(files):
    package, problems = read_package(files, benchmarks=["digits"])
    assert (package is None) == bool(problems)
    return [str(problem) for problem in problems]


def test_files_to_compile_need_an_environment_with_a_compiler():
    compiled = GOOD | {"fast.cpp": b"int one() { return 1; }\n", "fast.h": b"int one();\n"}
    with_gcc = {"training.toml": MANIFEST.replace(b"numpy-2.4", b"numpy-2.4-gcc")}
    refused = "a kind of file that is not allowed; expected .py .toml .md .txt"

    assert problems_of(compiled | with_gcc) == []
    first = f"fast.cpp: {refused}; .cpp .h in an environment such as torch-2.13-cpu-gcc"
    assert problems_of(compiled)[0] == first
    assert problems_of(GOOD | with_gcc | {"fast.cu": b"\n"}) == [f"fast.cu: {refused} .cpp .h"]


def test_a_package_without_problems_has_a_hash_over_its_sorted_files():
    package, problems = read_package(GOOD, benchmarks=["digits"])

    assert problems == []
    assert isinstance(package, Package)
    rows = [
        [name, len(content), hashlib.sha256(content).hexdigest()]
        for name, content in (("train.py", TRAIN), ("training.toml", MANIFEST))
    ]
    text = json.dumps(rows, separators=(",", ":")).encode()
    assert package.sha256 == hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"training.toml": None}, "training.toml: missing; expected a manifest"),
        (
            {"training.toml": MANIFEST.replace(b"digits", b"nodigits")},
            "training.toml line 2, field benchmark: unknown benchmark 'nodigits'; expected digits",
        ),
        (
            {"training.toml": MANIFEST.replace(b"numpy-2.4", b"pandas")},
            "training.toml line 5, field environment: unknown environment 'pandas'; "
            "expected numpy-2.4 or torch-2.13-cpu",
        ),
        (
            {"training.toml": MANIFEST.replace(b'license = "MIT"\n', b"")},
            "training.toml, field license: missing; expected a text of 1 to 4000 characters",
        ),
        (
            {"training.toml": MANIFEST.replace(b"= 1", b"= true")},
            "training.toml line 1, field schema: got True; expected 1",
        ),
        (
            {"training.toml": MANIFEST.replace(b"= 1", b"= 1.0")},
            "training.toml line 1, field schema: got 1.0; expected 1",
        ),
        (
            {"training.toml": MANIFEST + b"deterministic = 1\n"},
            "training.toml line 7, field deterministic: got 1; expected true or false",
        ),
        (
            {"training.toml": MANIFEST + b'speed = "high"\n'},
            "training.toml line 7, field speed: unknown field",
        ),
        (
            {"training.toml": MANIFEST.replace(b'"train"', b'"other"')},
            "training.toml line 4, field module: no such module; expected a file other.py",
        ),
        (
            {"train.py": TRAIN.replace(b"def prepare(task)", b"def ready(task)")},
            "train.py: no function prepare; expected def prepare(task)",
        ),
        (
            {"train.py": TRAIN.replace(b"(prepared, data, seed)", b"(data)")},
            "train.py line 6: train takes other arguments; expected 3 arguments",
        ),
        (
            {"train.py": TRAIN + b"import sklearn.datasets\n"},
            "train.py line 8: imports sklearn.datasets, which the environment lacks; "
            "expected the standard library, numpy",
        ),
        ({"train.py": TRAIN + b"def broken(:\n"}, "train.py line 8: not Python"),
        ({"json.py": b"x = 1\n"}, "json.py: the name of a module of Python"),
        ({"numpy.py": b"x = 1\n"}, "numpy.py: the name of a module of Python"),
        ({"model.so": b"\x7fELF"}, "model.so: a kind of file that is not allowed"),
        ({"notes.txt": b"\xff"}, "notes.txt line 1: not UTF-8"),
        ({"notes.txt": "# Notes\n".encode("utf-16-le")}, "notes.txt: UTF-16; save it as UTF-8"),
        ({"notes.txt": b"a\nb\0"}, "notes.txt line 2: the character U+0000; expected text that"),
        ({"notes.md": b"a\r\nb\rc"}, "notes.md line 2: the character U+000D"),
        # Text that turns its direction reads otherwise than it runs (CVE-2021-42574).
        ({"net.py": "x = 1  # \u202e".encode()}, "net.py line 1: the character U+202E"),
        ({"net.py": b"# coding: utf-7\n#+AAo-import os\n"}, "net.py line 1: encoding utf-7"),
        ({"net.py": b"", "net.py/x.py": b""}, "net.py: the name of a folder as well; expected an"),
        ({"a/" * 49 + "b.py": b""}, "a/a/a/"),
        ({"notes.txt": b"a\n" + b"x" * 1001}, "notes.txt line 2: a line of 1001 characters"),
        ({"../up.py": b""}, "../up.py: a file's name that is not allowed"),
        ({"a b.txt": b""}, "a b.txt: a file's name that is not allowed"),
        ({"Train.py": b""}, "train.py: the name Train.py in other letters"),
        ({"Mine/a.py": b"", "mine/b.py": b""}, "mine: the name Mine in other letters"),
        ({"a.txt": b"x\n" * (65 << 10)}, "a.txt: 133120 bytes; expected at most 131072 bytes"),
    ],
)
def test_every_problem_names_file_line_and_the_expected(change, expected):
    files = {name: content for name, content in (GOOD | change).items() if content is not None}

    assert any(problem.startswith(expected) for problem in problems_of(files)), problems_of(files)


def test_all_problems_are_listed_at_once_a_misspelt_field_once():
    files = GOOD | {"train.py": b"import torch\nimport pandas\n", "a.bin": b"\0"}
    assert len(problems_of(files)) == 6  # Two imports, two functions, the name and NUL of a.bin.

    manifest = MANIFEST.replace(b"license", b"licence").replace(b'"numpy-2.4"', b"4")
    manifest += b'speed = 1\n[factors]\nMuon = "x"\nwide = 3\n'
    assert [each.split(":")[0] for each in problems_of(GOOD | {"training.toml": manifest})] == [
        "training.toml line 5, field environment",
        "training.toml, field license",
        "training.toml line 9, field factors.Muon",
        "training.toml line 10, field factors.wide",
        "training.toml line 7, field speed",
    ]


def test_a_manifest_of_many_wrong_fields_lists_the_first():
    for head in ("x", "[factors]\nX"):
        many = "\n".join(f"{head[-1]}{number} = 1" for number in range(10_000))
        files = {"training.toml": f"schema = 1\n{head[:-1]}{many}\n".encode(), "train.py": TRAIN}
        made, problems = read_package(files, benchmarks=None)
        assert (made, len(problems)) == (None, 50)


def test_a_package_of_257_kib_or_33_files_beside_its_manifest_is_refused():
    large = {f"f{n}.txt": b"x\n" * (32 << 10) for n in range(4)} | {"more.txt": b"x" * 1000}
    many = {f"f{n}.txt": b"" for n in range(31)}  # beside train.py

    assert sum(map(len, (GOOD | large).values())) > LARGEST_PACKAGE_BYTES
    assert any("expected at most 262144 bytes" in each for each in problems_of(GOOD | large))
    assert problems_of(GOOD | many) == []
    assert problems_of(GOOD | many | {"one.txt": b""}) == [
        "34 files; expected training.toml and at most 32 others"
    ]


def test_own_modules_and_folders_may_be_imported():
    files = GOOD | {
        "README.md": b"# Notes\n",
        "train.py": b"from Mine.Net import prepare\nimport helper\ntrain = helper.train\n",
        "Mine/Net.py": b"def prepare(task): pass\n",
        "helper.py": b"def train(prepared, data, seed): yield\n",
    }

    assert problems_of(files) == []


@pytest.mark.parametrize("field", ["benchmark", "title", "environment"])
def test_a_text_of_the_manifest_is_one_line(field):
    opening = f'{field} = "'.encode()
    two_lines = MANIFEST.replace(opening, opening + b"a\\nb")

    with pytest.raises(PackageError, match=f"{field}.*expected one line"):
        read_manifest(two_lines)


def test_factors_are_at_most_eight_and_read_by_a_file():
    manifest = MANIFEST + b'[factors]\nmuon = "Muon instead of SGD"\n'
    nine = b"[factors]\n" + b"".join(b'f%d = "idea"\n' % n for n in range(9))
    reads = b'def prepare(task): return task["factors"]["muon"]\n'
    train = b"def train(prepared, data, seed): yield\n"

    assert read_manifest(manifest).factors == {"muon": "Muon instead of SGD"}
    with pytest.raises(PackageError, match="too many factors"):
        read_manifest(MANIFEST + nine)
    (problem,) = problems_of(GOOD | {"training.toml": manifest})
    assert "factors.muon: a factor that no file reads" in problem
    assert problems_of({"training.toml": manifest, "train.py": reads + train}) == []


def conversation():
    return Conversation(599, max_evaluations=2)


@pytest.mark.parametrize("hello", [2, 20, 4096])
def test_a_conversation_goes_from_hello_to_done(hello):
    talk = conversation()
    frames = [(1, hello), (2, 0), (4, 0), (6, 599), (4, 0), (6, 599), (7, 0)]

    for sequence, (kind, length) in enumerate(frames):
        assert talk.accept(header_of(FrameType(kind), sequence, length)) == (kind, length)

    assert (talk.state, talk.asks) == (None, 2)


@pytest.mark.parametrize(
    ("before", "header", "message"),
    [
        ([], HEADER.pack(b"FLE2", 1, 0, 20), "does not begin with FLE1"),
        ([], HEADER.pack(b"FLE1", 1, 1, 20), "frame 1 came; expected frame 0"),
        ([], HEADER.pack(b"FLE1", 1, 0, 4097), "hello has 4097 bytes"),
        ([], HEADER.pack(b"FLE1", 1, 0, 1), "hello has 1 bytes"),
        ([], HEADER.pack(b"FLE1", 6, 0, 599), "a frame of type 6 came; expected hello"),
        ([], HEADER.pack(b"FLE1", 99, 0, 0), "a frame of type 99 came; expected hello"),
        ([1, 2], HEADER.pack(b"FLE1", 6, 2, 599), "type 6 came; expected ask or done"),
        ([1, 2, 4], HEADER.pack(b"FLE1", 6, 3, 2**62), "predictions has 4611686018427387904 bytes"),
        ([1, 2, 4], HEADER.pack(b"FLE1", 6, 3, 598), "predictions has 598 bytes; expected 599"),
        ([1, 2, 4], HEADER.pack(b"FLE1", 4, 3, 0), "type 4 came; expected predictions"),
        ([1, 2, 4, 6, 4, 6], HEADER.pack(b"FLE1", 4, 6, 0), "more than 2 evaluations"),
        ([1, 2, 7], HEADER.pack(b"FLE1", 7, 3, 0), "a frame came after the end"),
        ([1, 2], HEADER.pack(b"FLE1", 7, 2, 1), "done has 1 bytes; expected 0"),
    ],
)
def test_a_frame_out_of_order_or_of_a_wrong_length_breaks_the_protocol(before, header, message):
    talk = conversation()
    lengths = {1: 20, 6: 599}
    for sequence, kind in enumerate(before):
        talk.accept(header_of(FrameType(kind), sequence, lengths.get(kind, 0)))

    with pytest.raises(ProtocolError, match=message):
        talk.accept(header)


def test_a_task_sends_the_frames_that_are_expected_in_their_order():
    talk = TaskConversation()
    for header in (
        HEADER.pack(b"FLE2", FrameType.HELLO, 0, 2),
        header_of(FrameType.SCORED, 0, 2),
        header_of(FrameType.HELLO, 1, 2),
    ):
        with pytest.raises(ProtocolError, match="no frame of type hello came"):
            talk.accept(header)
    assert talk.accept(header_of(FrameType.HELLO, 0, 4096)) == (FrameType.HELLO, 4096)
    talk.expected = FrameType.SCORED
    with pytest.raises(ProtocolError, match="scored has 4097 bytes; expected at most 4096"):
        talk.accept(header_of(FrameType.SCORED, 1, 4097))
    assert talk.accept(header_of(FrameType.SCORED, 1, 20)) == (FrameType.SCORED, 20)


def test_arrays_begin_at_multiples_of_64_bytes():
    specs = {"x": ArraySpec("uint8", (1198, 8, 8)), "y": ArraySpec("uint8", (1198,))}

    assert offsets(specs) == {"x": 0, "y": 76_672}  # 1,198 x 64 = 76,672
    assert size_of(specs) == 77_888  # 19 x 64 = 1,216 more
    assert ArraySpec("float64", (1, 1)).nbytes == 8


@pytest.mark.parametrize(
    ("kind", "shape", "words"),
    [
        ("uint8", (), "whole dimensions"),
        ("uint8", (0,), "dimensions of at least 1"),
        ("uint8", (4.5,), "whole dimensions"),
        ("float16", (1,), "expected one of"),
    ],
)
def test_an_array_of_no_size_or_an_unknown_kind_is_refused(kind, shape, words):
    with pytest.raises(ValueError, match=words):
        ArraySpec(kind, shape)


def test_limits_of_the_clock_and_of_the_processor():
    """Three times the seconds of preparing, and for each thread with a minute to spare."""
    limits = Limits(prepare_seconds=20, run_seconds=80, cpu_factor=2.5, threads=3)

    assert limits.prepare_clock_seconds == 60
    assert limits.cpu_seconds == 810  # 2.5 x 100 x 3 + 60


DIGITS = Path(__file__).parents[2] / "benchmarks/digits.toml"


@pytest.mark.parametrize("folder", sorted(DIGITS.parent.glob("*/task.py")))
def test_a_shipped_definition_pins_the_files_of_its_folder(folder):
    """A task that changes changes the hash of its definition."""
    benchmark = load_benchmark(folder.parent.with_suffix(".toml"))
    for name, digest in benchmark.trainings.files.items():
        content = (folder.parent / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest, f"[trainings.files] {name}"


@pytest.mark.parametrize(
    ("written", "instead", "field"),
    [
        ('trust = "demonstration"', 'trust = "sure"', "trainings.trust"),
        ("runs = 5", "runs = 2", "trainings.runs"),
        ('"task.py" = "', '"../task.py" = "', "trainings.files.../task.py"),
        ('"task.py" = "', '"task.py" = "g', "trainings.files.task.py"),
        ('"task.py" = "', '"other.py" = "', "trainings.files.task.py"),
        ('clock = "mlperf"', 'clock = "dawnbench"', "clock"),
        ('divisions = ["closed", "open"]', 'divisions = ["closed"]', "divisions"),
    ],
)
def test_a_policy_that_cannot_hold_names_its_field(written, instead, field):
    """Also where the rest of the definition does not go with packages."""
    text = DIGITS.read_text().replace(written, instead)
    with pytest.raises(BenchmarkError) as caught:
        parse_benchmark(text.encode(), file="digits.toml")
    assert caught.value.field == field
