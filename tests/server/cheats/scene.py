"""A server that is cheated, and how each outcome of docs/cheats.md is told from the others."""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial

import orjson

from finishline.rules.benchmarks.benchmark import Benchmark
from server.base.database import Database
from tests.support.boards import rows_of
from tests.support.build import Person, ask_for_replay, build_report, taken
from tests.support.run_logs import SubmissionParts, build_log

BOARD = "/api/v1/leaderboards/digits"
MARK = b":::MLLOG "


@dataclass(frozen=True)
class Met:
    outcome: str
    said: str


def listed(cheats, cheat_id):
    def add(cheat):
        assert cheat_id not in cheats
        cheats[cheat_id] = cheat
        return cheat

    return add


def edited(log, edit):
    lines = [edit(orjson.loads(line.removeprefix(MARK))) for line in log.splitlines()]
    return b"".join(MARK + orjson.dumps(line) + b"\n" for line in lines if line is not None)


def scaled(factor):
    started = 1_790_000_000_000

    def edit(line):
        return line | {"time_ms": started + (line["time_ms"] - started) * factor}

    return edit


@dataclass
class Scene:
    database: Database
    digits: Benchmark
    honest: SubmissionParts
    make_person: Callable[..., Person]
    count_rows: Callable[[], dict[str, int]]
    alice: Person
    bob: Person
    olivia: Person
    ada: Person
    walter: Person

    @property
    def client(self):
        return self.alice.client

    def log(self, seed, name, **changes):
        return build_log(self.digits, seed, name=name, **changes)

    def parts(self, *, first_seed=100, edit=None, **log):
        """A submission of three runs with other seeds, each line edited."""
        parts = deepcopy(self.honest)
        for index, name in enumerate(parts.logs):
            made = self.log(first_seed + index, name, **log)
            parts.logs[name] = made if edit is None else edited(made, edit)
        return parts

    def claims(self, parts, **fields):
        system = parts.claim["system"] | fields.pop("system", {})
        return replace(parts, claim=parts.claim | fields | {"system": system})

    def send(self, parts, by=None):
        return (by or self.alice).post("/api/v1/submissions", files=parts.files())

    def stored(self, parts, by=None):
        return taken(self.send(parts, by))["id"]

    def replay(self, submission_id):
        asked = {"by": self.olivia, "worker": self.walter}
        return ask_for_replay(self.client, self.database, submission_id, **asked)

    def trained(self, submission_id, **report):
        replay = self.replay(submission_id)
        made = build_report(replay.seeds(), **report)
        sent = replay.report(replay.claim().json(), made)
        assert sent.status_code == 200, sent.text
        return replay, [float(run.tta_seconds or 0.0) for run in made.runs]

    def entry(self, submission_id):
        division = self._view(submission_id)["division"]
        found = rows_of(self.client.get(BOARD, params={"division": division}).json())
        return next(each for each in found if each["submission_id"] == submission_id)

    def refused(self, ask, *statuses):
        """Met by an error, with nothing stored."""
        before = self.count_rows()
        answer = ask()
        assert answer.status_code in (statuses or (422,)), answer.text
        assert self.count_rows() == before
        return Met(f"refused ({answer.status_code})", answer.text)

    def at_the_door(self, parts, *statuses, by=None):
        return self.refused(partial(self.send, parts, by), *statuses)

    def unranked(self, submission_id):
        row = self.entry(submission_id)
        assert (row["rank"], row["measured_seconds"]) == (None, None), row
        assert row["unranked_reason"]
        records = self.client.get("/api/v1/benchmarks/digits/records").text
        assert submission_id not in records
        return Met("unranked", json.dumps(row) + self._reasons(submission_id))

    def ranked_at_our_time(self, submission_id, seconds):
        """Met by our time: the olympic mean of all sealed runs; the claim stands beside it."""
        row = self.entry(submission_id)
        kept = sorted(seconds)[1:-1]
        assert len(seconds) <= 10, "more than one run is dropped at each end"
        assert (row["evidence"], row["measured_runs"]) == ("measured", len(seconds))
        assert abs(row["tta_seconds"] - sum(kept) / len(kept)) < 1e-9
        assert row["tta_seconds"] == row["measured_seconds"]
        assert row["claimed_seconds"] == self._view(submission_id)["result"]["tta_seconds"]
        return Met("ranked at our time", json.dumps(row) + self._reasons(submission_id))

    def _view(self, submission_id):
        return self.olivia.get(f"/api/v1/submissions/{submission_id}").json()

    def _reasons(self, submission_id):
        view = self._view(submission_id)
        return json.dumps(view) + "".join(
            self.client.get(f"/api/v1/verifications/{each['id']}").text
            for each in view["verifications"]
        )
