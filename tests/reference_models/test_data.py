"""Data of references: how they lie there, what a training says before it prepares, downloads."""

import hashlib
import json
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from reference_models import DataSetError, data
from reference_models.data import DataFile, Needs, look_for, require_data
from worker import data_sets

CONTENT = bytes(range(256)) * 40


def sha256(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


class Ranges(SimpleHTTPRequestHandler):
    """A server of files that goes on where a client stopped, and keeps what it was asked."""

    asked: ClassVar[list[str | None]] = []

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.asked.append(wanted)
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        content, start = path.read_bytes(), 0
        if wanted is not None:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
        if start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start:])

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A server of SQuAD's files in small, which the reference's needs name."""
    folder = tmp_path / "published"
    folder.mkdir()
    (folder / "train.json").write_bytes(CONTENT)
    with zipfile.ZipFile(folder / "glove.zip", "w") as zipped:
        zipped.writestr("glove.txt", "a 1 2\n")
    Ranges.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Ranges, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    needs = Needs(
        "squad",
        (
            DataFile("squad/train.json", len(CONTENT), sha256(CONTENT), f"{url}/train.json"),
            DataFile("squad/glove.txt", url=f"{url}/glove.zip", setting="pretrained_vectors"),
        ),
    )
    monkeypatch.setitem(data.NEEDS, "squad", needs)
    yield url
    server.shutdown()
    server.server_close()


def states(data_dir):
    found = look_for(data.NEEDS["squad"], data_dir, hashed=True)
    return [(each.name, each.state) for each in found]


def run(command, data_dir, capsys):
    code = data_sets.main([command, "squad", "--data-dir", str(data_dir)])
    said = capsys.readouterr()
    lines = said.out.splitlines()
    return code, json.loads(lines[-1]) if lines else None, said.err


@pytest.mark.usefixtures("published")
def test_missing_files_are_fetched_and_are_as_published(tmp_path, capsys):
    code, answer, _ = run("check", tmp_path, capsys)
    assert (code, answer["whole"]) == (1, False)
    assert f"finishline benchmark fetch squad --data {tmp_path}" in answer["how"]
    assert states(tmp_path) == [("squad/train.json", "missing"), ("squad/glove.txt", "missing")]

    code, answer, _ = run("fetch", tmp_path, capsys)

    assert (code, answer["whole"]) == (0, True)
    assert states(tmp_path) == [("squad/train.json", "as published"), ("squad/glove.txt", "here")]
    assert sorted(path.name for path in (tmp_path / "squad").iterdir()) == [
        "glove.txt",
        "train.json",
    ]
    asked = len(Ranges.asked)
    assert run("fetch", tmp_path, capsys)[0] == 0
    assert len(Ranges.asked) == asked, "nothing is fetched twice"


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize("name", ["train.json", "train.json.part"])
def test_a_download_that_stopped_goes_on_where_it_was(tmp_path, capsys, name):
    (tmp_path / "squad").mkdir()
    (tmp_path / "squad" / name).write_bytes(CONTENT[:1000])
    assert run("fetch", tmp_path, capsys)[0] == 0
    assert Ranges.asked[0] == "bytes=1000-"
    assert (tmp_path / "squad/train.json").read_bytes() == CONTENT


@pytest.mark.usefixtures("published")
def test_a_file_with_another_hash_is_never_replaced_nor_used(tmp_path, capsys):
    (tmp_path / "squad").mkdir()
    own = tmp_path / "squad/train.json"
    own.write_bytes(bytes(len(CONTENT)))
    first = next(look_for(data.NEEDS["squad"], tmp_path, hashed=True))
    assert (first.name, first.state) == ("squad/train.json", "another file")
    assert (first.digest, first.expected_digest) == (sha256(bytes(len(CONTENT))), sha256(CONTENT))
    code, _, err = run("fetch", tmp_path, capsys)
    assert code == 2
    assert f"train.json is another file, {first.digest}; remove {own} and fetch again" in err
    assert sha256(CONTENT) in err
    assert own.read_bytes() == bytes(len(CONTENT))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (CONTENT[::-1], "{url} has sha256:"),
        (None, "{url} cannot be read: Not Found; fetch again, or get it by hand"),
    ],
    ids=["another content", "nothing there"],
)
def test_a_wrong_download_leaves_no_file(tmp_path, published, capsys, content, said):
    source = tmp_path / "published/train.json"
    source.unlink()
    if content is not None:
        source.write_bytes(content)
    code, _, err = run("fetch", tmp_path, capsys)
    assert (code, len(err.splitlines())) == (2, 1)
    assert said.format(url=f"{published}/train.json") in err
    assert [path for path in tmp_path.glob("squad/*") if path.is_file()] == []


@pytest.mark.usefixtures("published")
def test_a_training_says_at_once_which_file_is_missing_and_how_to_get_it(tmp_path):
    with pytest.raises(DataSetError, match=r"train\.json is missing .*finishline benchmark fetch"):
        require_data("squad", tmp_path, {})
    (tmp_path / "squad").mkdir()
    (tmp_path / "squad/train.json").write_bytes(CONTENT)
    with pytest.raises(DataSetError, match=r"glove\.txt is missing"):
        require_data("squad", tmp_path, {"pretrained_vectors": 1})
    require_data("squad", tmp_path, {"pretrained_vectors": 0})
    (tmp_path / "squad/train.json").write_bytes(CONTENT[:-1])
    with pytest.raises(DataSetError, match="half there"):
        require_data("squad", tmp_path, {"pretrained_vectors": 0})


def test_no_data_are_opened_before_the_clock(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "open", lambda *_, **__: pytest.fail("opened"))
    with pytest.raises(DataSetError, match=r"cifar-10-python\.tar\.gz is missing"):
        require_data("cifar10", tmp_path, {})
    require_data("digits", tmp_path, {})


@pytest.mark.parametrize(
    ("classes", "state"), [(0, "missing"), (999, "half there"), (1000, "here")]
)
def test_class_folders_and_their_pictures_are_counted(tmp_path, classes, state):
    for part in ("train", "val"):
        for number in range(classes):
            (tmp_path / "imagenet" / part / f"n{number:08}").mkdir(parents=True)
    needs = data.NEEDS["imagenet"]
    assert [each.state for each in look_for(needs, tmp_path, hashed=False)] == [state, state]
    found = list(look_for(needs, tmp_path, hashed=True))
    assert [each.state for each in found] == ["half there" if classes else "missing"] * 2
    assert [each.expected for each in found] == [
        "1,281,167 pictures in 1,000 class folders",
        "50,000 pictures in 1,000 class folders",
    ]
    if classes == 1000:
        (tmp_path / "imagenet/val/n00000000/1.JPEG").touch()
        needs = Needs("imagenet", class_folders={"imagenet/val": 1})
        assert [each.state for each in look_for(needs, tmp_path, hashed=True)] == ["here"]


def test_a_file_is_told_with_path_size_hash_and_command(tmp_path, capsys):
    (archive,) = look_for(data.NEEDS["cifar10"], tmp_path, hashed=True)
    assert archive.path == str(tmp_path / "cifar-10-python.tar.gz")
    assert archive.expected.startswith("170,498,071 bytes, sha256:6d958be0")
    glove = list(look_for(data.NEEDS["squad"], tmp_path, hashed=True))[-1]
    zipped = tmp_path / "squad/glove.6B.zip"
    assert f"&& unzip -j {zipped} glove.6B.100d.txt -d {tmp_path / 'squad'}" in glove.command
    # What may not be passed on is told and not fetched.
    assert data_sets.main(["fetch", "imagenet", "--data-dir", str(tmp_path)]) == 2
    assert f"put them into {tmp_path / 'imagenet'}" in capsys.readouterr().err
