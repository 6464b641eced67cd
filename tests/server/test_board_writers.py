"""Many who write at once, and every board that anybody reads: what its version was, to the byte."""

import random
import threading

import pytest
from sqlalchemy import insert, select, update

from server.base.board_versions import board_version, raise_board_version
from server.base.database import utc_now
from server.base.models import RunRow, Submission
from server.boards.board import board_in_division, cut_board
from server.boards.endpoints import encode_json
from server.boards.query import BoardQuery
from tests.support.both_databases import database_url  # noqa: F401
from tests.support.copies import serving

BOARD = "/api/v1/leaderboards/digits"
WRITERS, WRITES, READERS = 3, 15, 2
QUERIES = (
    {},
    {"limit": 3},
    {"metric": "cost", "division": "closed"},
    {"sort": "model", "order": "desc"},
    {"status": "verified", "limit": 5},
)


@pytest.fixture
def other_process(settings):
    """A second server on the same database, which hears of writes from the database alone."""
    with serving(settings) as made:
        yield made


class Writers:
    def __init__(self, database, benchmark, like):
        self.database = database
        self.benchmark = benchmark
        self.like = like
        self.queries = [BoardQuery.model_validate(query) for query in QUERIES]
        self.boards = {}

    def write(self, sequence, name):
        """Change, add or reject one submission; returns the version once it is acknowledged."""
        with self.database.write() as session:
            ids = session.scalars(select(Submission.id).order_by(Submission.id)).all()
            which = name if sequence.random() < 0.4 else sequence.choice(ids)
            is_told = sequence.random() < 0.9
            raise_board_version(session, "digits", submission_id=which if is_told else None)
            if which == name:
                self._add(session, name, sequence)
            else:
                self._change(session, which, sequence)
            version = board_version(session, "digits")
            self.boards[version] = [self._read_all(session, q, version) for q in self.queries]
        return version

    def _read_all(self, session, query, version):
        query, board = board_in_division(session, self.benchmark, query, version=None)
        return encode_json(cut_board(session, board, self.benchmark, query, version=version))

    def _add(self, session, name, sequence):
        seconds = sequence.choice((0.5, 0.7, 0.9))
        own = {"id": name, "idempotency_key": None, "submitted_at": utc_now(), "model": name}
        session.execute(insert(Submission).values(self.like | own | {"tta_seconds": seconds}))
        for index in range(sequence.randint(0, 3)):
            run = {"submission_id": name, "index": index, "file": "a", "log_sha256": ""}
            run |= {"curve": [], "log_bytes": 1, "reached": True}
            run["tta_seconds"] = seconds + index / 100
            session.execute(insert(RunRow).values(run))

    def _change(self, session, which, sequence):
        values = sequence.choice(
            (
                {"status": sequence.choice(("verified", "rejected", "claimed"))},
                {"tta_seconds": sequence.choice((0.4, 0.6, 0.7, 0.8, None))},
                {"cost_usd": sequence.choice((1.0, 2.0, None))},
                {"division": sequence.choice(("open", "closed"))},
                {"withdrawn_at": sequence.choice((utc_now(), None))},
            )
        )
        session.execute(update(Submission).where(Submission.id == which).values(values))


@pytest.fixture
def writers(digits_submission, submit, database, digits):
    sent = submit(digits_submission).json()["id"]
    with database.read() as session:
        row = session.get(Submission, sent)
        like = {c.key: getattr(row, c.key) for c in Submission.__table__.c}
    return Writers(database, digits, like)


def read(client, number):
    answer = client.get(BOARD, params=QUERIES[number])
    assert answer.status_code == 200, answer.text
    return number, answer.json()["version"], answer.content


def test_every_board_read_beside_writers_is_what_its_version_was(writers, client, other_process):
    reads = []
    faults = []
    writing = threading.Event()
    writing.set()
    first = writers.write(random.Random(0), "s-first")

    def write_boards(seed):
        sequence = random.Random(seed)
        for number in range(WRITES):
            version = writers.write(sequence, f"s-{seed}-{number}")
            at = sequence.choice((client, other_process))
            found = read(at, sequence.randrange(len(QUERIES)))
            reads.append(found)
            if found[1] < version:
                faults.append(f"version {found[1]} after version {version} was acknowledged")

    def read_boards(seed):
        sequence = random.Random(100 + seed)
        at = other_process if seed % 2 else client
        while writing.is_set():
            reads.append(read(at, sequence.randrange(len(QUERIES))))

    def guarded(call, seed):
        try:
            call(seed)
        except BaseException as error:  # noqa: BLE001  It is a fault like any other here.
            faults.append(error)

    threads = {
        call: [threading.Thread(target=guarded, args=(call, seed)) for seed in range(count)]
        for call, count in ((read_boards, READERS), (write_boards, WRITERS))
    }
    everybody = threads[read_boards] + threads[write_boards]
    for thread in everybody:
        thread.start()
    for thread in threads[write_boards]:
        thread.join(timeout=120)
    writing.clear()
    for thread in threads[read_boards]:
        thread.join(timeout=60)

    assert not any(thread.is_alive() for thread in everybody)
    assert faults == []
    assert len(reads) > WRITERS * WRITES
    for number, version, content in reads:
        assert version < first or content == writers.boards[version][number], (number, version)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_board_after_each_step_is_read_anew(replay, digits_submission, submit, client, settings):
    def submit_another():
        digits_submission.claim["model"] = "another"
        assert submit(digits_submission).status_code == 201

    def verify():
        replay.train()

    client.get(BOARD)
    for step in (submit_another, verify, submit_another):
        step()
        with serving(settings) as nothing_in_memory:
            for query in ("", "?metric=cost", "?sort=rank&order=desc", ".csv"):
                read_whole = nothing_in_memory.get(BOARD + query).text
                assert client.get(BOARD + query).text == read_whole
    assert '"verified"' in client.get(BOARD).text
