"""How many files of the product run code for one submission, one verification and one board."""

import threading
from collections import defaultdict
from functools import reduce
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("finishline", "server", "web", "worker")
# Measured figures. A rise fails. Lower a figure when it falls: 25, 30 and 10 are wanted.
MOST_FILES = {"submission": 62, "verification": 79, "board": 34}
# Threads by the start of their names: the event loop with its pools, and the one that gives out
# jobs. The others of a server wake at times of their own.
REQUESTS = ("asyncio", "AnyIO", "sync")
JOBS = "dispatch"


class Tracer:
    """Notes whose functions the server calls while it answers the requests of an action."""

    def __init__(self):
        self.noting, self.names, self.called = False, {}, {}

    def __call__(self, frame, event, argument):
        if self.noting and event == "call":
            ident = threading.get_ident()
            if ident not in self.names:
                self.names[ident] = threading.current_thread().name
            self.called[self.names[ident]].add(frame.f_code)

    def watch(self, client):
        """Note what runs during each request of a client."""
        request = client.request

        def noted(*arguments, **options):
            self.noting = True
            try:
                return request(*arguments, **options)
            finally:
                self.noting = False

        client.request = noted

    def files(self, action, threads):
        """The files of the product that run in these threads for an action, but for imports."""
        self.called = defaultdict(set)
        action()
        codes = [self.called[name] for name in list(self.called) if name.startswith(threads)]
        names = {code.co_filename for code in set().union(*codes) if code.co_name != "<module>"}
        paths = [Path(name).relative_to(ROOT) for name in names if Path(name).is_relative_to(ROOT)]
        return {path for path in paths if path.parts[0] in ROOMS}


@pytest.fixture(scope="module")
def tracer():
    """Traces the threads that start from now on: those of the server."""
    tracer = Tracer()
    threading.setprofile(tracer)
    yield tracer
    threading.setprofile(None)


def test_few_files_run_for_each_request(tracer, world, worker):
    def submission():
        made.append(world.submit())

    def verification():
        world.verify(made[-1])
        worker.work()

    def board():
        world.get("/leaderboards/digits")

    made, found = [], {name: [] for name in MOST_FILES}
    tracer.watch(world.client)
    for _ in range(3):
        found["submission"].append(tracer.files(submission, REQUESTS))
        found["verification"].append(tracer.files(verification, (*REQUESTS, JOBS)))
        found["board"].append(tracer.files(board, REQUESTS))

    # A file counts if it runs each time: the first time fills caches.
    always = {name: reduce(set.intersection, rounds) for name, rounds in found.items()}
    counted = {name: len(files) for name, files in always.items()}
    named = "\n".join(f"{name}: {sorted(map(str, files))}" for name, files in always.items())
    assert all(counted[name] <= most for name, most in MOST_FILES.items()), f"{counted}\n{named}"
