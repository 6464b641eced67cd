"""What a request leaves behind: nothing of ours that waits for a collection of cycles.

Under an overload thousands of requests end between two collections; whatever each leaves behind is
memory that the process takes and does not give back.
"""

import gc
from collections import Counter
from contextlib import contextmanager

import pytest

from server.base.models import Base

# More than there are threads that may each hold their last.
UPLOADS = 12


@pytest.fixture
def settings(settings):
    return settings.model_copy(update={"rate_limits": True, "rate_reads": "5/hour"})


@contextmanager
def no_collection():
    """Nothing is collected but what nobody refers to."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def ours():
    """Objects of the server's own classes, by class; rows are SQLAlchemy's to let go."""
    kinds = Counter(type(each) for each in gc.get_objects())
    own = [kind for kind in kinds if str(kind.__module__).startswith("server.")]
    own = [kind for kind in own if not issubclass(kind, Base)]
    return Counter({f"{kind.__module__}.{kind.__qualname__}": kinds[kind] for kind in own})


def one_each(before, *, requests):
    """Of what there is more of one for each request; a thread may still hold its last."""
    return {name: count for name, count in (ours() - before).items() if count >= requests}


def test_refused_requests_leave_nothing_behind(client):
    def ask():
        bad = {"Authorization": "Bearer fl_unknown"}
        assert client.get("/api/v1/me", headers=bad).status_code in (401, 429)
        return client.get("/api/v1/prices").status_code

    while ask() != 429:
        pass
    with no_collection():
        before = ours()
        assert {ask() for _ in range(200)} == {429}
        assert one_each(before, requests=200) == {}


def test_an_upload_leaves_nothing_behind(submit, digits_submission):
    for _ in range(2):  # The second is counted for a token that is known.
        assert submit(digits_submission).status_code in (201, 409)
    with no_collection():
        before = ours()
        for _ in range(UPLOADS):
            assert submit(digits_submission).status_code in (201, 409)
        assert one_each(before, requests=UPLOADS) == {}
