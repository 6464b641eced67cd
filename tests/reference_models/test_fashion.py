"""Properties of the Fashion-MNIST reference: short trainings on small files on one thread."""

import gzip
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch

from finishline.rules.benchmarks.benchmark import load_benchmark
from reference_models import DataSetError, Measurement, data, fashion
from reference_models.data import require_data
from reference_models.precision import configured
from tests.support.curves import curve
from tests.support.fashion_files import bands, write_fashion
from worker import data_sets

BENCHMARK = load_benchmark(Path(__file__).parents[2] / "benchmarks" / "fashion.toml")
TRAIN, TEST = "train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Starts a training on 512 small images."""
    write_fashion(tmp_path, monkeypatch, train=bands(512, seed=1), test=bands(200, seed=2))

    def start(config=None, *, seed=0, **settings):
        config = config or fashion.configure({"batch_size": 64, "epochs": 3} | settings)
        return fashion.train(config, seed=seed, device="cpu", data_dir=tmp_path)

    return start


def test_it_learns_small_images_and_nothing_from_shuffled_labels(start, tmp_path, monkeypatch):
    assert curve(start(epochs=4))[-1] > 90
    images, labels = bands(512, seed=1)
    shuffled = np.random.default_rng(0).permutation(labels)
    write_fashion(tmp_path, monkeypatch, train=(images, shuffled), test=bands(200, seed=2))
    assert max(curve(start(epochs=4))) < 40


def test_every_calibrated_run_reaches_the_target_in_its_last_two_epochs():
    runs = BENCHMARK.reference_runs_at(256)
    assert len({run.seed for run in runs}) == 40
    assert {run.batch_size for run in BENCHMARK.reference_runs} == {128, 256, 512}
    for run in BENCHMARK.reference_runs:
        assert run.quality[3] >= BENCHMARK.target.value > run.quality[1], run.seed


def test_mixed_precision_learns_much_as_single_precision_does(start):
    assert BENCHMARK.replay.precisions == fashion.PRECISIONS
    settings = {"batch_size": 64, "epochs": 4}
    mixed = curve(start(configured(fashion, settings, "bf16")))
    assert mixed[-1] == pytest.approx(curve(start(**settings))[-1], abs=8)


def test_the_measured_model_evaluates_single_items_as_the_whole_set(start, tmp_path):
    *_, last = (item for item in start() if isinstance(item, Measurement))
    items = fashion.evaluation_items(device="cpu", data_dir=tmp_path)
    _, labels = bands(200, seed=2)
    with torch.no_grad():
        guesses = [int(last.model(*item).argmax()) for item in items]
    assert 100 * np.mean(np.array(guesses) == labels) == pytest.approx(last.quality)


@pytest.mark.parametrize("name", [TRAIN, TEST])
@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda content: gzip.compress(gzip.decompress(content)[:-1] + b"\7"), "sha256:"),
        (lambda content: gzip.compress(b"\7" * 50), "is another file, sha256:"),
        (lambda content: b"x" * len(content), "not a whole gzip file"),
        (lambda content: content[:-9] + b"123456789", "not a whole gzip file"),
        (lambda content: content[:50], "is half there"),
    ],
    ids=["another", "another and small", "no gzip", "broken", "short"],
)
def test_a_file_with_a_wrong_hash_is_named(start, tmp_path, name, change, found):
    path = tmp_path / "fashion-mnist" / name
    path.write_bytes(change(path.read_bytes()))
    for ask in (
        lambda: curve(start()),
        lambda: require_data("fashion", tmp_path, {}, hashed=True),
    ):
        with pytest.raises(DataSetError) as refused:
            ask()
        said = str(refused.value)
        assert f"fashion-mnist/{name} is " in said
        assert found in said
        assert refused.value.file == str(path)
        digests = {Path(each.name).name: each.digest for each in data.NEEDS["fashion"].files}
        assert refused.value.expected.endswith(digests[name])
        assert f"`finishline benchmark fetch fashion --data {tmp_path}`" in said


def test_a_file_that_is_packed_smaller_is_used(start, tmp_path):
    path = tmp_path / "fashion-mnist" / TRAIN
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content, 9))
    needs = data.NEEDS["fashion"]
    larger = [replace(each, size_bytes=path.stat().st_size + 1) for each in needs.files]
    needs = replace(needs, files=tuple(larger))
    for hashed, state in ((True, "as published"), (False, "here")):
        first = next(data.look_for(needs, tmp_path, hashed=hashed))
        assert (first.name, first.state) == (f"fashion-mnist/{TRAIN}", state)


@pytest.fixture
def system(start, tmp_path, monkeypatch):
    """The folder of a system that has the files, as Debian's package puts them."""
    folder = tmp_path / "system"
    folder.mkdir()
    (tmp_path / "fashion-mnist").rename(folder / "fashion-mnist")
    monkeypatch.setitem(data.NEEDS, "fashion", replace(data.NEEDS["fashion"], system=folder))
    return folder / "fashion-mnist"


def test_the_files_of_the_system_serve_a_data_folder_without_them(system, start, tmp_path):
    own = tmp_path / "fashion-mnist"
    assert {path.parent for path in require_data("fashion", tmp_path, {}, hashed=True)} == {system}
    assert len(curve(start())) == 3
    own.mkdir()
    with pytest.raises(DataSetError, match=f"{TRAIN} is missing in {tmp_path}"):
        require_data("fashion", tmp_path, {})


def test_files_are_fetched_and_checked_unpacked(system, tmp_path, monkeypatch, capsys):
    handler = partial(SimpleHTTPRequestHandler, directory=str(system))
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        needs, url = data.NEEDS["fashion"], f"http://127.0.0.1:{server.server_port}"
        files = [replace(each, url=f"{url}/{Path(each.name).name}") for each in needs.files]
        needs = replace(needs, files=tuple(files), system=None)
        monkeypatch.setitem(data.NEEDS, "fashion", needs)
        command = ["fashion", "--data-dir", str(tmp_path)]
        assert data_sets.main(["check", *command]) == 1
        assert data_sets.main(["fetch", *command]) == 0
        assert data_sets.main(["check", *command]) == 0
        fetched = tmp_path / "fashion-mnist"
        assert sorted(path.name for path in fetched.iterdir()) == sorted(
            path.name for path in system.iterdir()
        )
        (fetched / TEST).unlink()
        (system / TEST).write_bytes(gzip.compress(b"another"))
        assert data_sets.main(["fetch", *command]) == 2
        server.shutdown()
    assert f"{url}/{TEST} has sha256:" in capsys.readouterr().err
    assert not (fetched / TEST).exists()


def test_the_published_files_are_those_of_the_reference():
    if not Path("/usr/share/datasets/fashion-mnist").is_dir():
        pytest.skip("Fashion-MNIST is not here: apt-get install dataset-fashion-mnist")
    train_x, train_y, test_x, test_y = fashion.read_images(Path("/nowhere"))
    assert (train_x.shape, test_x.shape) == ((60_000, 1, 28, 28), (10_000, 1, 28, 28))
    assert train_y.bincount().tolist() == [6000] * 10
    assert test_y.bincount().tolist() == [1000] * 10
    pixels = train_x.float()
    assert pixels.mean().item() == pytest.approx(fashion.MEAN, abs=0.01)
    assert pixels.std().item() == pytest.approx(fashion.STD, abs=0.01)
