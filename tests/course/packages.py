"""Training packages of a course: honest ones, and cheats of many kinds, by number.

All start from the reference of the benchmark that `finishline benchmark init` writes. A number is a
seed: the same one makes the same package.
"""

import random
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple

REFERENCE = (
    files("finishline.rules.trainings")
    .joinpath("benchmark_template/reference/train.py.example")
    .read_text()
)
WIRE = Path(__file__).parents[1].joinpath("worker", "box", "wire.py").read_text()
MANIFEST = """schema = 1
benchmark = "{benchmark}"
title = "{title}"
module = "train"
environment = "{environment}"
license = "MIT"
"""

# A cheat may be refused at the door, end without a measured time, be measured without a number, or
# be measured at no less than its true time.
Fate = Literal["refused", "unmeasured", "unnumbered", "true time"]
GUESS = 'yield lambda inputs: np.zeros(len(inputs["x"]), np.uint8)'
SLEPT_SECONDS = 1.0


class Package(NamedTuple):
    """A package's files but the manifest, its kind ("honest" or a cheat's), and its due fate."""

    kind: str
    fate: Fate | Literal["measured"]
    files: Mapping[str, str]

    def with_manifest(self, *, benchmark, title, environment):
        """All files, by name."""
        words = MANIFEST.format(benchmark=benchmark, title=title, environment=environment)
        return {"training.toml": words, **self.files}


class Cheat(NamedTuple):
    """A kind of cheat: its code behind the reference, whose `train` is called `honest` there."""

    kind: str
    code: str
    fate: Fate = "unmeasured"
    more: Mapping[str, str] = {}


def honest(number):
    """The reference with hyperparameters of its own, all of which reach the target."""
    draw = random.Random(number)
    changed = {
        "HIDDEN": draw.choice((128, 144, 160, 192)),
        # No two numbers have the same: equal programs have one place on the board.
        "STEPS": 4_000 + 2 * number,
        "RATE": draw.choice((0.25, 0.3, 0.35)),
        "BATCH": draw.choice((256, 288, 320)),
    }
    return Package("honest", "measured", {"train.py": _with_constants(changed)})


def of_the_course():
    """The reference of the course: that of the example in a third of its steps."""
    return _with_constants({"STEPS": 4_000})


def _with_constants(changed):
    line = next(line for line in REFERENCE.splitlines() if line.startswith("HIDDEN, "))
    names, values = (part.split(", ") for part in line.split(" = "))
    texts = [str(changed.get(name, value)) for name, value in zip(names, values, strict=True)]
    return REFERENCE.replace(line, f"{', '.join(names)} = {', '.join(texts)}")


def cheat(number):
    """A cheat: the kinds in turn, each number with a detail of its own."""
    kind, code, fate, more = CHEATS[number % len(CHEATS)]
    source = re.sub(r"^def train\(", "def honest(", REFERENCE, flags=re.MULTILINE)
    if "def prepare(" in code:
        source = re.sub(r"^def prepare\(", "def warm_up(", source, flags=re.MULTILINE)
    if kind == "copy":
        source = f"# Mine, version {number}.\n{of_the_course()}"
    text = f"{source}\n\nDETAIL = {number}\n{code.strip()}\n" if code else source
    return Package(kind, fate, {"train.py": text, **more})


def _train(body, end=GUESS):
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return f"def train(prepared, data, seed):\n{lines}\n    {end}\n"


AND_TRAIN = "yield from honest(prepared, data, seed)"


def _at_the_wire(kind, body, end=AND_TRAIN):
    code = _train(f"end = channel()\n{body}", end)
    return Cheat(
        kind, f"import time\nfrom wire import channel, frame\n\n{code}", more={"wire.py": WIRE}
    )


LOOK = """
def tried(paths):
    found = b""
    for path in paths:
        try:
            with open(path, "rb") as file:
                found += file.read(1 << 20)
        except OSError:
            pass
    return found
"""
CHEATS = (
    Cheat("guess", _train("pass")),
    _at_the_wire("quality told", "end.sendall(frame(8, 2, bytes(8)))"),
    _at_the_wire("answers not asked for", "end.sendall(frame(6, 2, bytes(16_384)))"),
    _at_the_wire("frame of 4 EiB", "end.sendall(frame(4, 2, length=2**62))"),
    _at_the_wire("noise", "end.sendall(bytes(range(256)) * 8)"),
    _at_the_wire(
        "drip",
        "for byte in frame(4, 2):\n    end.sendall(bytes([byte]))\n    time.sleep(2)",
        GUESS,
    ),
    Cheat("silence", "import time\n\n" + _train("time.sleep(3600)")),
    Cheat(
        "fork bomb",
        "import os, time\n\n"
        + _train("""
try:
    while True:
        if os.fork() == 0:
            time.sleep(3600)
except OSError:
    pass
"""),
    ),
    Cheat(
        "memory bomb",
        _train("""
held = []
while True:
    held.append(np.random.default_rng(DETAIL).random(1 << 22))
"""),
    ),
    Cheat("log flood", _train("while True: print('x' * 100_000)")),
    Cheat(
        "endless evaluations",
        _train("""
draw = np.random.default_rng(seed)
while True:
    yield lambda inputs: draw.integers(0, 4, len(inputs["x"])).astype(np.uint8)
"""),
    ),
    Cheat(
        "luck below the target",
        """
STEPS = 950


def train(prepared, data, seed):
    draw = np.random.default_rng(seed)
    *_, last = honest(prepared, data, seed)

    def lucky(inputs):
        found = last(inputs).copy()
        where = draw.random(len(found)) < 0.02
        found[where] = draw.integers(0, 4, where.sum())
        return found

    for _ in range(20):
        yield lucky
""",
    ),
    Cheat(
        "answers of another draw",
        _train(
            """
x, y = np.asarray(data["x"])[:256], np.asarray(data["y"])[:256]
known = np.resize(y, 16_384)
"""[1:],
            "yield lambda inputs: known.astype(np.uint8)",
        ),
    ),
    Cheat(
        "message to the next run",
        LOOK
        + """
PLACES = [f"{folder}/kept" for folder in ("/scratch", "/dev/shm", "/tmp", "/var/tmp")]


def train(prepared, data, seed):
    kept = tried(PLACES)
    for path in PLACES:
        try:
            with open(path, "wb") as file:
                file.write(np.asarray(data["y"]).tobytes()[:16_384])
        except OSError:
            pass
    found = np.frombuffer(kept[:16_384] or bytes(16_384), np.uint8)
    yield lambda inputs: np.resize(found, len(inputs["x"])) % 4
""",
    ),
    Cheat(
        "files of the worker",
        LOOK
        + """
import glob


def train(prepared, data, seed):
    places = ["/etc/shadow", "/proc/1/environ", "/proc/kcore", "/root/.bash_history"]
    places += glob.glob("/**/task.py", recursive=True) + glob.glob("/**/*.token", recursive=True)
    found = tried(places)
    yield lambda inputs: np.resize(np.frombuffer(found + b"0", np.uint8), len(inputs["x"])) % 4
""",
    ),
    Cheat(
        "network",
        "import socket\n\n"
        + _train("""
found = b"0"
for place in (("127.0.0.1", 8000), ("1.1.1.1", 53), ("localhost", 6379)):
    try:
        with socket.create_connection(place, timeout=2) as line:
            line.sendall(b"GET /api/v1/benchmarks HTTP/1.0\\r\\n\\r\\n")
            found += line.recv(65536)
    except OSError:
        pass
"""),
    ),
    Cheat(
        "memory of the worker",
        LOOK
        + "import os\n\n"
        + _train("""
found = tried([f"/proc/{number}/mem" for number in (1, 2, os.getppid())])
"""),
    ),
    Cheat(
        "lying clock",
        f"""
import time

wait = time.sleep
time.sleep = time.time = time.monotonic = time.perf_counter = lambda *_: 0.0


def train(prepared, data, seed):
    wait({SLEPT_SECONDS})
    yield from honest(prepared, data, seed)
""",
        "true time",
    ),
    Cheat(
        "training before the clock",
        """
def prepare(task):
    warm_up(task)
    draw = np.random.default_rng(DETAIL)
    made = {"x": draw.uniform(-1, 1, (65_536, 8)).astype(np.float32)}
    made["y"] = (made["x"][:, 0] > 0).astype(np.uint8) + 2 * (made["x"][:, 1] > 0)
    while True:
        for kept in honest(None, made, DETAIL):
            pass


def train(prepared, data, seed):
    yield prepared
""",
    ),
    Cheat(
        "carried training",
        """
def prepare(task):
    warm_up(task)
    draw = np.random.default_rng(DETAIL)
    capitals = draw.uniform(-1, 1, (24, 8))
    x = draw.uniform(-1, 1, (65_536, 8)).astype(np.float32)
    y = (((x[:, None] - capitals) ** 2).sum(2).argmin(1) % 4).astype(np.uint8)
    *_, kept = honest(None, {"x": x, "y": y}, DETAIL)
    return kept


def train(prepared, data, seed):
    yield prepared
""",
    ),
    Cheat(
        "class that is none",
        _train("pass", 'yield lambda inputs: np.full(len(inputs["x"]), 250, np.uint8)'),
    ),
    Cheat("another type", _train("pass", 'yield lambda inputs: np.zeros(len(inputs["x"]))')),
    Cheat("exit as if done", "import os\n\n" + _train("os._exit(0)")),
    Cheat(
        "signals",
        "import os, signal\n\n"
        + _train("""
for number in (os.getppid(), 1, -1):
    try:
        os.kill(number, signal.SIGKILL)
    except OSError:
        pass
"""),
    ),
    Cheat(
        "daemon",
        "import os, time\n\n"
        + _train("""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            sum(range(1 << 20))
    os._exit(0)
"""),
    ),
    Cheat(
        "changed runner",
        "import __main__\n\n"
        + _train(
            """
send = __main__.Channel.send
def twice(self, kind, body=b""):
    send(self, kind, body)
    send(self, kind, body)
__main__.Channel.send = twice
""",
            AND_TRAIN,
        ),
    ),
    Cheat(
        "written data",
        _train(
            """
np.asarray(data["y"])[:] = 0
""",
            AND_TRAIN,
        ),
    ),
    Cheat(
        "package of another environment", "import torch\n\n" + _train("pass", AND_TRAIN), "refused"
    ),
    Cheat("name of a library", "", "refused", {"numpy.py": "zeros = None\n"}),
    Cheat("copy", "", "unnumbered"),
)
