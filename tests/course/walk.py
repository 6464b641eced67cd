"""A course on one box: everything an organiser and two hundred students do, for real.

`python -m tests.course.walk [--students 200] [--cheats 40] [--devices cpu,cpu]` starts `finishline
up` in a folder of its own and goes on by the commands that an organiser types: a benchmark of her
own, a closing date, and one link for the class. Each student joins by the
link and hands two training packages in; 40 of the 400 cheat (tests/course/packages.py). When every
one has its verdict, the board and an export are made.

Exit code 1 if a cheat was measured and numbered, or more than 1 % of the honest were left without
a measured time.
"""

import argparse
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import httpx2

from finishline import Client, FinishlineError
from tests.course.packages import SLEPT_SECONDS, Package, cheat, honest, of_the_course
from tests.support.processes import free_port, wait_for

Item = TypeVar("Item")
Made = TypeVar("Made")
BENCHMARK, ENVIRONMENT = "course", "numpy-2.4"
AT_ONCE = 8
PACKAGES_EACH = 2
LOOK_SECONDS, TELL_SECONDS = 30.0, 60.0
MOST_HONEST_LOST = 0.01
CHANGES = (
    ('title = "Map"', 'title = "Map of the course"'),
    ("run_limit_seconds = 60", "run_limit_seconds = 20"),
    ("prepare_seconds = 20", "prepare_seconds = 5"),
    ("memory_mib = 3072", "memory_mib = 1024"),
)


@dataclass
class HandedIn:
    """A package on its way: its submission, and the words of a refusal or of an end not due."""

    student: str
    package: Package
    submission_id: str | None = None
    told: str | None = None
    outcome: str = "open"
    seconds: float | None = None

    @property
    def is_as_due(self):
        """Whether it ended as it should: a cheat without a number, and at no less than its time."""
        fate = self.package.fate
        if fate == "measured":
            return self.outcome == "numbered"
        if fate == "true time" and self.outcome == "numbered":
            return self.seconds is not None and self.seconds >= SLEPT_SECONDS
        return self.outcome != "numbered"


class Organiser:
    """Her terminal: commands with her token, counted."""

    def __init__(self, url, token, folder):
        self.typed = []
        self._environment = os.environ | {"FINISHLINE_URL": url, "FINISHLINE_TOKEN": token}
        self._folder = folder

    def types(self, *words, program="finishline.cli.main"):
        """Run a command; what it printed."""
        self.typed.append(shlex.join(words))
        done = subprocess.run(
            [sys.executable, "-m", program, *words],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{shlex.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout


def main():
    """Walk, print, and judge; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--students", type=int, default=200)
    parser.add_argument("--cheats", type=int, default=40)
    parser.add_argument("--devices", default="cpu,cpu")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="finishline-course-") as name:
        folder, port = Path(name), free_port()
        url = f"http://127.0.0.1:{port}"
        command = ["up", "--port", str(port), "--var", str(folder / "var")]
        with (folder / "up.log").open("wb") as log:
            up = subprocess.Popen(
                [sys.executable, "-m", "finishline.cli.main", *command, "--devices", asked.devices],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                return walk(url, folder, asked)
            finally:
                up.send_signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    up.wait(timeout=60)
                up.kill()


def walk(url, folder, asked):
    """The course on a server that is starting."""
    begun = time.monotonic()
    tokens = folder / "var" / "tokens"
    wait_for(lambda: (tokens / "organiser.token").exists(), seconds=120, what="her token")
    organiser = Organiser(url, (tokens / "organiser.token").read_text().strip(), folder)
    wait_for(lambda: is_ready(url, asked.devices), seconds=240, what="the workers")
    say(begun, "the workers are ready")
    prepare_benchmark(organiser, folder)
    say(begun, "the benchmark is on the server")
    link = organiser.types("invite", "--uses", str(asked.students), "--approve").strip()
    students = [f"student {number:03d}" for number in range(asked.students)]
    secrets = dict(zip(students, each(students, lambda name: join(link, name)), strict=True))
    say(begun, f"{len(secrets)} students have joined")
    handed = packages_of(students, cheats=asked.cheats, seed=asked.seed)
    each(handed, lambda one: hand_in(url, secrets[one.student], one))
    say(begun, f"{len(handed)} packages are handed in, {count(handed, 'refused')} refused")
    with Client(url, (tokens / "organiser.token").read_text().strip()) as client:
        wait_for_verdicts(client, handed, begun)
        for one in handed:
            if one.submission_id and not one.is_as_due:
                one.told = why(client, one.submission_id)
    say(begun, "every package has its verdict")
    organiser.types("leaderboard", BENCHMARK)
    organiser.types("admin", "export", str(folder / "exports"), "--var", str(folder / "var"))
    size = sum(path.stat().st_size for path in (folder / "exports").rglob("*"))
    say(begun, f"an export of {size / 1e6:.1f} MB is made")
    print(f"she typed {len(organiser.typed)} commands:")
    for line in organiser.typed:
        print("  ", line.replace(str(folder), "FOLDER"))
    return judge(handed)


def is_ready(url, devices):
    """Whether every worker is alive and confirmed."""
    workers = httpx2.get(f"{url}/api/v1/workers", timeout=10).json()["workers"]
    ready = [one for one in workers if one["alive"] and one["confirmed_at"]]
    return len(ready) == len(devices.split(","))


def prepare_benchmark(organiser, folder):
    """Make a benchmark from the example, with a reference of a third of its steps."""
    organiser.types("benchmark", "init", BENCHMARK)
    definition = folder / BENCHMARK / "benchmark.toml"
    text = definition.read_text()
    for old, new in CHANGES:
        if old not in text:
            raise SystemExit(f"{definition.name}: expected {old!r}")
        text = text.replace(old, new)
    definition.write_text(text)
    (folder / BENCHMARK / "reference" / "train.py").write_text(of_the_course())
    organiser.types("benchmark", "check", BENCHMARK, "--write")
    organiser.types("benchmark", "add", BENCHMARK)
    organiser.types("submit", f"{BENCHMARK}/reference")
    closes = datetime.now(UTC) + timedelta(days=7)
    organiser.types(
        *("benchmark", "phase", BENCHMARK, "--closes", f"{closes:%Y-%m-%dT%H:%MZ}"),
        *("--reason", "end of term"),
    )


def join(link, name):
    """Join by the link of the class, as a browser does; the student's first token."""
    origin = link.partition("/join/")[0]
    with httpx2.Client(headers={"Origin": origin, "Accept": "text/html"}, timeout=60) as browser:
        for _ in range(20):
            answer = browser.post(link, data={"name": name}, follow_redirects=False)
            if answer.status_code not in (429, 503):
                break
            time.sleep(1)
        if answer.status_code != 200:
            raise SystemExit(f"{name} could not join: {answer.status_code} {answer.text[:500]}")
        page = answer.text
    found = re.search(r">(fl_[\w-]{43})<", page)
    if found is None:
        raise SystemExit(f"{name} saw no token")
    return found[1]


def packages_of(students, *, cheats, seed):
    """The packages of all students, in the order in which they are handed in."""
    total = PACKAGES_EACH * len(students)
    packages = [honest(number) for number in range(total - cheats)]
    packages += [cheat(number) for number in range(cheats)]
    draw = random.Random(seed)
    draw.shuffle(packages)
    return [
        HandedIn(student, package)
        for student, package in zip([*students] * PACKAGES_EACH, packages, strict=True)
    ]


def hand_in(url, token, one):
    """Hand a package in as a student does."""
    words = {"benchmark": BENCHMARK, "environment": ENVIRONMENT}
    files = one.package.with_manifest(title=f"{one.student}'s", **words)
    try:
        with Client(url, token) as client:
            one.submission_id = client.submit(files).id
    except FinishlineError as error:
        one.told, one.outcome = str(error), "refused"


def wait_for_verdicts(client, handed, begun):
    """Wait until every package has its verdict."""
    told = time.monotonic()
    while True:
        open_ones = [one for one in handed if one.submission_id and not look_up(client, one)]
        if not open_ones:
            return
        if time.monotonic() - told > TELL_SECONDS:
            told = time.monotonic()
            say(begun, f"{len(open_ones)} of {len(handed)} wait")
        time.sleep(LOOK_SECONDS)


def look_up(client, one):
    """Read how a package ended; False if it has not yet."""
    view = client.submission(one.submission_id or "")
    if any(
        each.kind == "entry" and each.state in ("queued", "running") for each in view.verifications
    ):
        return False
    one.seconds = view.measured_seconds
    one.outcome = "not measured"
    if one.seconds is not None:
        one.outcome = "measured, no number" if view.rank is None else "numbered"
    return True


def why(client, submission_id):
    """The status of a submission, and all reasons of its verdicts that do not speak for it."""
    view = client.submission(submission_id)
    told = [str(view.status)]
    for each in view.verifications:
        reasons = client.verification(each.id).reasons
        told += [reason.message for reason in reasons if reason.weight != "supports"]
    return "; ".join(told)


def judge(handed):
    """Print how each kind ended; the exit code."""
    kinds = Counter((one.package.kind, one.package.fate, one.outcome) for one in handed)
    print("\n| kind | due | ended | packages |\n| --- | --- | --- | --- |")
    for (kind, fate, outcome), number in sorted(kinds.items()):
        print(f"| {kind} | {fate} | {outcome} | {number} |")
    wrong = [one for one in handed if not one.is_as_due]
    for one in wrong:
        print(f"not as due: {one.package.kind} by {one.student}: {one.outcome}, {one.seconds} s,")
        print(f"  submission {one.submission_id}, {one.told}")
    lost = sum(one.package.kind == "honest" for one in wrong)
    caught_none = len(wrong) - lost
    all_honest = sum(one.package.kind == "honest" for one in handed)
    print(f"cheats with a number: {caught_none} (at most 0)")
    print(f"honest without one: {lost} of {all_honest} (at most {MOST_HONEST_LOST:.0%})")
    return int(bool(caught_none) or lost > MOST_HONEST_LOST * all_honest)


def count(handed, outcome):
    """How many ended so."""
    return sum(one.outcome == outcome for one in handed)


def each(items, make):
    """Do something for every item, a few at once."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(make, items))


def say(begun, words):
    """Print a step with the seconds so far."""
    print(f"{time.monotonic() - begun:7.1f} s  {words}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
