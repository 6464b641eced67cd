"""A benchmark that members alone see: every address, as strangers and as members."""

import io
import re
import shutil
from itertools import cycle

import pytest
from pyarrow.parquet import read_table

from server.base.places import BENCHMARKS
from server.operations.export import Wanted, export_everything
from tests.support.every_address import (
    CANARY,
    addresses,
    ask,
    carol,
    hidden,
    organisations,
    told,
)
from tests.support.services import services_of

__all__ = ["carol", "hidden", "organisations"]
BOARD = "/api/v1/leaderboards/digits"
TITLE = "qwyjibo"
NOBODY: dict[str, str] = {}
STRANGERS = (NOBODY, {"Authorization": "Bearer fl_none"}, {"Cookie": "finishline_console=none"})
# Documents take digits as their example, and a page of the console asks for a sign-in.
APART = ("/console", "/static", "/docs", "/account", "/openapi.json", "/llms.txt")
NAMED = re.compile(r"""["'/=]digits\b""")


@pytest.fixture
def settings(settings, tmp_path):
    """Settings of a server with two benchmarks, of which members alone see one."""
    folder = tmp_path / "definitions"
    folder.mkdir()
    shutil.copy(BENCHMARKS / "cifar10.toml", folder)
    text = (BENCHMARKS / "digits.toml").read_text()
    text = re.sub(r'^title = ".*"$', f'title = "{TITLE}"\nvisible = "members"', text, flags=re.M)
    (folder / "digits.toml").write_text(text)
    return settings.model_copy(update={"benchmarks_dir": folder})


def test_no_address_tells_strangers_of_a_closed_benchmark_and_members_read_it(
    hidden, client, olivia, alice
):
    calibration = {"benchmark": "digits", "batch_sizes": [64], "runs": 2, "reason": "new torch"}
    asked = client.post("/api/v1/calibrations", json=calibration, headers=olivia.headers)
    pool = client.get(f"{BOARD}?evidence=measured", headers=alice.headers).json()["entries"][0]
    known = hidden | {
        "calibration_id": asked.json()["id"],
        "pool_id": pool["pool_id"],
        "submitter:path": "alice",
    }
    words = (*told(hidden), hidden["public"], known["calibration_id"], known["pool_id"], TITLE)
    found, unknown = set(), cycle(STRANGERS[1:])
    for path, address in addresses(client, known):
        if path.endswith("/events") or path.startswith(APART):
            continue
        # Whoever reads first, nothing of it is kept for a stranger.
        by_member = ask(client, address, alice.headers)
        assert CANARY not in by_member.text.replace("q=zyzzyva", "").replace(
            'value="zyzzyva"', ""
        ), address
        if any(
            word in by_member.text for word in (hidden["public"], TITLE, known["calibration_id"])
        ):
            found.add(path)
        for who in (NOBODY, next(unknown)):
            answer = ask(client, address, who)
            assert answer.status_code < 500, address
            text = answer.text if answer.status_code < 400 else ""
            for word in set(words) - {word for word in words if word in address}:
                assert word not in text, f"{address} tells {word}"
            assert "digits" in address or not NAMED.search(text), f"{address} names it"
            named = "digits" in address or any(word in address for word in words)
            if named and "?" not in address:
                assert answer.status_code in (404, 401), address
            by_tag = ask(client, address, who | {"If-None-Match": "*"})
            assert by_tag.status_code != 304 or answer.status_code == 200, address
    assert found >= {
        "/", "/submissions", "/benchmarks/{benchmark_id}", "/calibrations",
        "/calibrations/{calibration_id}", "/api/v1/benchmarks", "/api/v1/calibrations",
        "/api/v1/leaderboards/{benchmark_id}", "/api/v1/leaderboards/{benchmark_id}.csv",
        "/api/v1/leaderboards/{benchmark_id}.parquet", "/api/v1/runs.parquet",
        "/api/v1/submissions", "/api/v1/pools/{pool_id}", "/feed.atom",
        "/benchmarks/{benchmark_id}/feed.atom", "/submitters/{submitter:path}",
    }  # fmt: skip


def test_a_stranger_cannot_tell_it_from_none(client, replay, alice):
    for path in ("/api/v1/benchmarks/{}", "/benchmarks/{}", "/api/v1/leaderboards/{}"):
        closed = client.get(path.format("digits")).json()["detail"]
        missing = client.get(path.format("nothing")).json()["detail"]
        assert closed == missing.replace("nothing", "digits")
        assert "digits" not in closed.partition(";")[2]
        assert client.get(path.format("digits"), headers=alice.headers).status_code == 200
    search = f"/search?q={TITLE[:4]}"
    assert TITLE in client.get(search, headers=alice.headers).text
    assert TITLE not in client.get(search).text
    events = f"/api/v1/verifications/{replay.verification_id}/events"
    assert client.get(events).status_code == 404


def test_counts_and_records_of_members_are_as_on_a_public_board(client, replay, make_report, alice):
    # A stranger reads the home page first.
    assert client.get("/").status_code == 200
    replay.report(replay.claim().json(), make_report(replay.seeds()))
    client.get("/")
    listed = client.get("/api/v1/benchmarks", headers=alice.headers).json()["benchmarks"]
    assert {one["id"]: one["submissions"] for one in listed} == {"cifar10": 0, "digits": 1}
    assert {one["id"]: one["visible"] for one in listed} == {
        "cifar10": "public",
        "digits": "members",
    }
    for _ in range(2):
        board = client.get(BOARD, headers=alice.headers)
        assert [row["evidence"] for row in board.json()["entries"]] == ["measured"]
        assert "private" in board.headers["cache-control"]
    assert client.get(BOARD).status_code == 404


def test_parquet_has_no_run_of_it(client, replay, alice):
    for headers, runs in ((alice.headers, 3), (NOBODY, 0)):
        answer = client.get("/api/v1/runs.parquet", headers=headers)
        assert read_table(io.BytesIO(answer.content)).num_rows == runs


def test_a_public_export_has_nothing_of_it(client, replay, make_report, tmp_path):
    replay.report(replay.claim().json(), make_report(replay.seeds()))
    for public, content in ((True, False), (False, True)):
        folder = tmp_path / f"export {public}"
        export_everything(services_of(client), folder, Wanted(public=public))
        texts = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
        for word in (replay.submission_id, TITLE, replay.verification_id):
            assert any(word.encode() in text for text in texts) == content, (public, word)
        assert (folder / "benchmarks" / "digits.toml").exists() == content
        logs = [path for path in (folder / "logs").rglob("*") if path.is_file()]
        assert bool(logs) == content
