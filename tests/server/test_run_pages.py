"""The page of a run with its log by lines, and the race on the whole screen."""

import io
import re

from server.pages.runs import read_lines
from tests.support.pages import BROWSER, words_of


def test_lines_of_a_log_are_read_in_pages_and_long_ones_cut():
    log = b"one\ntwo\r\n" + b"x" * 5_000 + b"\n\x1b[31mfour\nfive"
    pages = [read_lines(io.BytesIO(log), first=first, count=2) for first in (1, 3, 5, 7)]

    second = (["x" * 1_000, r"\x1b[31mfour"], True)
    assert pages == [(["one", "two"], True), second, (["five"], False), ([], False)]


def test_a_run_has_a_page_with_its_log(digits_submission, submit, client, monkeypatch):
    address = f"/submissions/{submit(digits_submission).json()['id']}"
    page = client.get(f"{address}/runs/0", headers=BROWSER)

    assert page.status_code == 200
    assert '<a id="L1" href="#L1">1</a>' in page.text
    assert 'data-label="Quality of the run, with the target"' in page.text
    assert "Seconds by phase" in words_of(page.text)
    assert f'href="{address}/runs/0"' in client.get(f"{address}?tab=runs").text

    monkeypatch.setattr("server.pages.runs.LINES", 5)
    second = client.get(f"{address}/runs/0?page=2").text
    assert re.findall(r'<a id="L(\d+)"', second) == ["6", "7", "8", "9", "10"]
    assert f'href="{address}/runs/0?page=3#log"' in second
    assert client.get(f"{address}/runs/9").status_code == 404
