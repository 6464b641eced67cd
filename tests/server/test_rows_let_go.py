"""What a request read of a submission is gone with it: the garbage collector is not waited for."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from server.base.database import Database
from server.base.models import Submission
from tests.server.conftest import Replay


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Only what nobody refers to goes."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_a_submission_its_verifications_and_their_attempts_are_gone_after_the_block(
    replay: Replay, database: Database
) -> None:
    with database.read() as session:
        submission = session.get_one(Submission, replay.submission_id)
        (verification,) = submission.verifications
        (attempt,) = verification.attempts
        assert attempt.verification is verification
        assert verification.submission is submission
        rows = [weakref.ref(row) for row in (submission, verification, attempt)]
    del submission, verification, attempt

    assert [row() for row in rows] == [None, None, None]
