"""Import of an archive in the console: a plan first, then every result, and nothing twice."""

import io
import json
import re
import struct
import zipfile
from html import unescape

import pytest

from server.base.settings import MIB
from tests.server.test_console import ORIGIN, Console

DAWNBENCH_COMMIT = "fb27b827bd83eff9021698ffe576b33a100e0b78"
ENTRY = {
    "version": "v1.0", "author": "A", "authorEmail": "a@example.org", "framework": "F",
    "model": "M", "hardware": "V100", "timestamp": "2018-04-20",
}  # fmt: skip
CURVE = "epoch\thours\ttop1Accuracy\n1\t0.5\t90.0\n2\t1.0\t94.5\n"
TREE = {
    "repo/CIFAR10/train/a.json": json.dumps(ENTRY),
    "repo/CIFAR10/train/a.tsv": CURVE,
    "repo/CIFAR10/train/back.json": json.dumps(ENTRY | {"author": "B"}),
    "repo/CIFAR10/train/back.tsv": CURVE.replace("2\t1.0", "2\t0.2"),
    "repo/CIFAR10/train/alone.json": json.dumps(ENTRY),
    "repo/CIFAR10/inference/b.json": json.dumps(ENTRY | {"latency": 2.5, "top1Accuracy": 94.5}),
    "repo/README.md": "not a result",
    "repo/.git/config.json": "{}",
}


def zipped(files, *, comment=""):
    """A zip of files by their names."""
    kept = io.BytesIO()
    with zipfile.ZipFile(kept, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.comment = comment.encode()
    return kept.getvalue()


@pytest.fixture
def settings(settings):
    """A server that takes the list of a large zip."""
    return settings.model_copy(update={"max_request_bytes": 32 * MIB})


@pytest.fixture
def console(client, olivia):
    """Olivia's browser."""
    return Console(client, olivia)


def choose(console, archive, **fields):
    """The answer to the form with an archive."""
    return console.client.post(
        "/console/import",
        data={"csrf": console.csrf} | fields,
        files={"archive": ("archive.zip", archive)},
        headers=ORIGIN,
        follow_redirects=False,
    )


def words_of(page):
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split()).replace(" :", ":")


def test_an_archive_is_planned_imported_and_known_again(console, client, olivia, settings):
    planned = choose(console, zipped(TREE, comment=DAWNBENCH_COMMIT))
    assert planned.status_code == 303, planned.text
    address = planned.headers["location"]
    plan = words_of(console.get(address).text)

    assert f"Source: DAWNBench at {DAWNBENCH_COMMIT}" in plan
    assert "cifar10 3 2 0 1" in plan  # results, logs, known, with problems
    assert "1 result left out repo/CIFAR10/train/alone.json no alone.tsv beside it" in plan
    assert "hours went from 0.5 to 0.2" in plan
    assert client.get("/api/v1/submissions").json()["submissions"] == []

    assert console.post(address).headers["location"] == address
    report = words_of(console.get(address).text)
    assert "imported 2 refused 1" in report
    assert "repo/CIFAR10/train/back.json" in report
    listed = client.get("/api/v1/submissions").json()["submissions"]
    assert sorted(one["kind"] for one in listed) == ["inference", "train"]
    assert {one["source"]["name"] for one in listed} == {"DAWNBench"}

    audit = words_of(console.get("/console/audit", action="archive.import").text)
    imported = "2 results with 1 log imported from DAWNBench at commit"
    assert (
        f"archive.import {imported} {DAWNBENCH_COMMIT[:12]}: 2 of cifar10 2 records of import"
        in audit
    )
    each = console.get("/console/audit", action="archive.import", each="true", before="99").text
    assert len(re.findall("<td>archive.import", each)) == 2

    # Nothing of an import that is over is handed in again, and what is known is said at once.
    assert words_of(console.get(console.post(address).headers["location"]).text) == report
    again = choose(console, zipped(TREE)).headers["location"]
    assert "cifar10 3 2 2 1" in words_of(console.get(again).text)
    assert console.get(address).status_code == 404
    console.post(again)
    assert "imported 0 already there 2 refused 1" in words_of(console.get(again).text)
    assert len(list((settings.artifacts_dir / "incoming").iterdir())) == 2


def symlink():
    kept = io.BytesIO()
    with zipfile.ZipFile(kept, "w") as archive:
        for name, content in TREE.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o120777 if name.endswith("a.tsv") else 0o100644) << 16
            archive.writestr(info, content)
    return kept.getvalue()


def before_its_begin():
    """A zip whose directory says that it lies later than it does, so that all files lie earlier."""
    stored = bytearray(zipped(TREE))
    (at,) = struct.unpack_from("<I", stored, len(stored) - 6)
    struct.pack_into("<I", stored, len(stored) - 6, at + 100)
    return bytes(stored)


def damaged():
    stored = bytearray(zipped({"CIFAR10/train/a.json": TREE["repo/CIFAR10/train/a.json"]}))
    at = stored.index(b"CIFAR10/train/a.json") + 24
    stored[at : at + 8] = b"\xff" * 8
    return bytes(stored)


@pytest.mark.parametrize(
    ("archive", "status", "said"),
    [
        (b"no zip", 422, "This is no zip"),
        (b"", 422, "This is no zip"),
        (before_its_begin(), 422, "This is no zip"),
        (zipped({}), 422, "Nothing to import in there"),
        (zipped({"../../etc/x.json": "{}"}), 422, "Nothing to import in there"),
        (zipped({"results/S/b/result_0.txt": ":::MLLOG {}"}), 422, "folder around `results`"),
        (zipped({f"a/{n}.txt": "" for n in range(20_001)}), 413, "expected at most 20,000"),
        (zipped({"a/a.json": " " * (65 * MIB)}), 413, "larger than"),
        (zipped({f"{'x' * 400}{n}.md": "" for n in range(19_000)}), 413, "too many files"),
        (zipped({"a.json": ""})[:-22] + b"PK\x06\x07" + bytes(16) + zipped({})[-22:], 422, "zip"),
    ],
)
def test_a_zip_that_holds_no_archive_is_refused_and_not_kept(
    console, settings, archive, status, said
):
    answer = choose(console, archive)

    assert (answer.status_code, said in unescape(answer.text)) == (status, True), answer.text[:3000]
    assert list((settings.artifacts_dir / "incoming").iterdir()) == []


@pytest.mark.parametrize(
    ("archive", "said"),
    [
        (symlink(), "a symbolic link"),
        (damaged(), "cannot be unpacked"),
        (zipped({"../CIFAR10/train/a.json": "{}", "../CIFAR10/train/a.tsv": CURVE}), "file name"),
        (zipped(TREE | {"repo/b/b.tsv.gz": ""}), "Not read: 1 compressed file"),
    ],
)
def test_a_file_that_may_not_be_read_is_named_in_the_plan(console, archive, said):
    answer = choose(console, archive)

    assert answer.status_code == 303, answer.text
    assert said in words_of(console.get(answer.headers["location"]).text)


def test_a_commit_is_forty_digits_and_the_form_needs_an_archive(console, client, ada):
    assert "40 hex digits" in choose(console, zipped(TREE), commit="fb27b82").text
    assert choose(console, b"", csrf="0" * 128).status_code == 403
    address = choose(console, zipped(TREE)).headers["location"]
    client.cookies.clear()
    assert Console(client, ada).get(address).status_code == 404
