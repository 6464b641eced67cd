"""Boards in programs and notebooks."""

import sys

import httpx2
import pytest

import finishline
from finishline import Client


@pytest.fixture
def made(digits_submission, submit):
    """Three submissions, the first one first."""
    return [submit(digits_submission).json()["id"] for _ in range(3)]


class TwoAPage(httpx2.BaseTransport):
    """Asks the server for two entries a page, whoever asks without a limit."""

    def __init__(self):
        self.asked = []
        self._inner = httpx2.HTTPTransport()

    def handle_request(self, request):
        if "/leaderboards/" in request.url.path and "limit" not in request.url.params:
            request.url = request.url.copy_merge_params({"limit": "2"})
        self.asked.append(str(request.url.params))
        return self._inner.handle_request(request)

    def close(self):
        self._inner.close()


def test_iterating_goes_on_over_the_pages(site, alice, made):
    pages = TwoAPage()
    with Client(site, alice.secret, transport=pages) as client:
        board = client.board("digits", division="closed")
        assert len(board.entries) == 2
        assert sorted(row.submission.id for row in board) == sorted(made)
        assert len(pages.asked) == 2
        assert all("division=closed" in asked for asked in pages.asked)
        assert len(list(client.board("digits", limit=2))) == 2


def test_a_board_is_a_data_frame(site, alice, made):
    with Client(site, alice.secret, transport=TwoAPage()) as client:
        table = client.board("digits").to_pandas()
        empty = client.board("cifar10").to_pandas()
    assert sorted(table["submission_id"]) == sorted(made)
    assert set(table["system_hardware_class"]) == {"cpu-test"}
    assert (table["tta_seconds"] > 0).all()
    assert len(empty) == 0
    assert "submission_id" in empty.columns


def test_without_pandas_the_install_command_is_said(site, made, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with Client(site) as client, pytest.raises(ImportError, match=r"finishline-tta\[pandas\]"):
        client.board("digits").to_pandas()


def test_runs_are_a_data_frame(site, alice, made):
    with Client(site, alice.secret) as client:
        table = client.runs("digits", page_size=4).to_pandas()
    assert list(table["submission_id"]) == [each for each in made for _ in range(3)]
    assert set(table["system_hardware_class"]) == {"cpu-test"}


def test_curves_and_oneself_are_read(site, alice, made):
    with Client(site, alice.secret) as client:
        assert client.account().user == alice.name
        curve = client.curve(made[0], 1)
        assert curve.index == 1
        assert len(curve.evaluations) > 1
        with pytest.raises(finishline.NotFound):
            client.proof("none")
