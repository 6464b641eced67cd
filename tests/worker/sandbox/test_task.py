"""A task in a box of its own: the same draw as outside, both halves, and errors in a sentence."""

import gzip
import importlib.util
import math
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest

from tests.support.fashion_files import bands, write_fashion
from tests.worker.sandbox.conftest import kill_boxes
from worker.sandbox import protocol
from worker.sandbox.packages import requirements_of
from worker.sandbox.protocol import FrameType, ProtocolError, TaskConversation, header_of
from worker.sandbox.task import TaskBox, TaskError, TaskModule, task_module

TEACHER = Path(__file__).parents[3] / "benchmarks" / "teacher"
USUAL = """
    import numpy as np

    class Task:
        train = {"x": np.arange(6, dtype=np.int8).reshape(3, 2)}
        inputs = {"x": np.zeros((4, 2), np.int8)}
        predictions = ("uint8", (4,))

        def score(self, predictions):
            return float(predictions[:2].sum()), float(predictions[2:].sum())

    def shapes():
        return {
            "train": {"x": ("int8", (3, 2))},
            "inputs": {"x": ("int8", (4, 2))},
            "predictions": ("uint8", (4,)),
        }

    def draw(nonce):
        return Task()
"""


@pytest.fixture
def write_task(tmp_path):
    def write(code):
        folder = tmp_path / "task"
        folder.mkdir(exist_ok=True)
        tmp_path.chmod(0o755)
        (folder / "task.py").write_text(textwrap.dedent(USUAL) + textwrap.dedent(code))
        return TaskModule(folder=folder, packages=dict(requirements_of(["numpy"])))

    return write


def test_the_teacher_drawn_in_its_box_is_that_drawn_outside():
    spec = importlib.util.spec_from_file_location("teacher_task", TEACHER / "task.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    expected = module.draw(bytes(32))

    with TaskBox(task_module(TEACHER, "teacher", Path())) as task:
        course = task.draw(bytes(32), facts={}, target=96.5)
        halves = course.score(expected.answers.tobytes())
        wrong = course.score(((expected.answers + (np.arange(32_768) < 8192)) % 8).tobytes())

    assert np.array_equal(course.train["x"], expected.train["x"])
    assert np.array_equal(course.train["y"], expected.train["y"])
    assert np.array_equal(course.inputs["x"], expected.inputs["x"])
    assert (course.prediction.dtype, course.prediction.shape) == ("uint8", (32_768,))
    assert (halves, wrong) == ((100.0, 100.0), (50.0, 100.0))


def test_digits_draw_order_names_and_pixels_of_a_control():
    with TaskBox(task_module(TEACHER.with_name("digits"), "digits", Path())) as task:
        drawn, again, other, control = (
            task.draw(nonce, facts={}, target=97.5, control=control)
            for nonce, control in ((b"a", False), (b"a", False), (b"b", False), (b"a", True))
        )

    def images(course):
        return np.concatenate([course.inputs["x"], course.train["x"]]).reshape(-1, 64)

    assert np.array_equal(images(drawn), images(again))
    assert not np.array_equal(images(drawn), images(other))
    assert not np.array_equal(images(drawn), images(control))
    assert np.array_equal(np.sort(images(drawn)), np.sort(images(control)))
    assert np.array_equal(drawn.train["y"], control.train["y"])

    def pixels_of_a_name(course):
        sums = course.train["x"].reshape(-1, 64).sum(1)
        return [int(sums[course.train["y"] == name].mean()) for name in range(10)]

    assert pixels_of_a_name(drawn) == pixels_of_a_name(control) != pixels_of_a_name(other)


def test_fashion_draws_order_names_and_a_control_from_checked_files(tmp_path, monkeypatch):
    train, test = bands(300, seed=1), bands(100, seed=2)
    write_fashion(tmp_path, monkeypatch, train=train, test=test)
    fashion = TEACHER.with_name("fashion")
    with TaskBox(task_module(fashion, "fashion", tmp_path)) as task:
        drawn, again, other, control = (
            task.draw(nonce, facts={}, target=91.0, control=control)
            for nonce, control in ((b"a", False), (b"a", False), (b"b", False), (b"a", True))
        )

    def names(course, published):
        label_of = {image.tobytes(): label for image, label in zip(*published, strict=True)}
        items = zip(course.train["x"], course.train["y"], strict=True)
        pairs = {(label_of[image.tobytes()], int(name)) for image, name in items}
        return sorted((int(label), name) for label, name in pairs)

    assert np.array_equal(drawn.train["x"], again.train["x"])
    assert not np.array_equal(drawn.inputs["x"], other.inputs["x"])
    assert (drawn.train["x"].shape, drawn.inputs["x"].shape) == ((300, 28, 28), (100, 28, 28))
    assert len(names(drawn, train)) == len(dict(names(drawn, train))) == 10
    assert names(drawn, train) != names(other, train)
    upright = 255 - np.roll(control.train["x"], -14, axis=(1, 2)).transpose(0, 2, 1)
    assert np.array_equal(upright, drawn.train["x"])
    assert np.array_equal(control.train["y"], drawn.train["y"])

    path = tmp_path / "fashion-mnist" / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1] + b"\1\1"))
    with pytest.raises(TaskError, match=r"t10k-labels-idx1-ubyte\.gz is another file"):
        task_module(fashion, "fashion", tmp_path)


@pytest.mark.parametrize(
    "head",
    [
        "'[' * 60_000",
        "'[]'",
        "' ' * 70_000 + '{}'",
        "json.dumps({'prediction': ['uint8', [2**40]], 'train': {}, 'inputs': {}})",
        "json.dumps({'prediction': ['uint8', [4]], 'train': {'x': ['int8', [9]]}, 'inputs': {}})",
        "json.dumps({'prediction': ['uint8', [4]], 'train': [], 'inputs': {}})",
        "json.dumps({'prediction': ['uint8', [4.5]], 'train': {}, 'inputs': {}})",
    ],
)
def test_a_task_that_speaks_for_itself_is_stopped_by_its_head(write_task, head):
    code = f"""
        import json, sys
        tasker = sys.modules["__main__"]
        tasker.check_shapes = lambda *_: None
        tasker.packed = lambda task: ({{}}, ({head}).encode() + b"\\n")
    """
    with TaskBox(write_task(code)) as task, pytest.raises(TaskError, match="drew no arrays"):
        task.draw(b"nonce", facts={}, target=1.0)


def test_a_class_out_of_range_has_no_quality_and_a_broken_score_is_told(write_task):
    """A package that could make the task fail would choose which of its runs count."""
    table = "Task.score = lambda self, predictions: 2 * (float(np.arange({})[predictions][0]),)"
    with TaskBox(write_task(table.format(3))) as task:
        course = task.draw(b"nonce", facts={}, target=1.0)
        assert all(map(math.isnan, course.score(bytes([9] * 4))))
        assert course.score(bytes([2] * 4)) == (2.0, 2.0)

    with TaskBox(write_task(table.format(0))) as task:
        course = task.draw(b"nonce", facts={}, target=1.0)
        with pytest.raises(TaskError, match="the task's module failed: IndexError"):
            course.score(bytes([9] * 4))


def test_each_answer_of_a_task_has_its_own_processor_seconds(write_task):
    """So no number of evaluations uses up a task's, and none of its answers lasts."""
    code = """
        import sys, time
        sys.modules["__main__"].ANSWER_SECONDS = 1

        def score(self, predictions):
            until = time.process_time() + predictions[0] / 2
            while time.process_time() < until:
                pass
            return 1.0, 1.0

        Task.score = score
    """
    with TaskBox(write_task(code)) as task:
        course = task.draw(b"nonce", facts={}, target=1.0)
        assert [course.score(bytes([1] * 4)) for _ in range(5)] == [(1.0, 1.0)] * 5
        assert all(map(math.isnan, course.score(bytes([9] * 4))))


@pytest.mark.parametrize("answer", ["'[' * 4000", "'[1' + '0' * 400 + ', 1]'", "'{}'", "'[1]'"])
def test_a_score_that_is_no_two_numbers_is_told(write_task, answer):
    code = f"""
        import sys, types

        def score(self, predictions):
            sys.modules["__main__"].json = types.SimpleNamespace(dumps=lambda _: {answer})
            return 0.0, 0.0

        Task.score = score
    """
    with TaskBox(write_task(code)) as task:
        course = task.draw(b"nonce", facts={}, target=1.0)
        with pytest.raises(TaskError, match="returned no two numbers"):
            course.score(bytes(4))


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("Task.train = {'x': np.zeros((3, 3), np.int8)}", "shapes() says"),
        ("Task.inputs = {'x': np.zeros((4, 2), np.uint8)}", "shapes() says"),
        ("Task.predictions = ('uint16', (4,))", "shapes() says"),
        ("Task.train = {str(n): np.zeros(1) for n in range(33)}", "more than 32 arrays"),
        ("def draw(nonce): raise ValueError('no luck')", "no luck"),
    ],
)
def test_a_draw_that_fails_is_told_in_a_sentence(write_task, code, told):
    words = f"(?s)the task's module failed.*{re.escape(told)}"
    with TaskBox(write_task(code)) as task, pytest.raises(TaskError, match=words):
        task.draw(b"nonce", facts={}, target=1.0)


def test_a_draw_beyond_its_limit_is_refused_before_it_is_read(write_task, monkeypatch):
    task = TaskConversation()
    task.expected = FrameType.DRAWN
    with pytest.raises(
        ProtocolError, match="drawn has 1073741824 bytes; expected at most 402653184"
    ):
        task.accept(header_of(FrameType.DRAWN, 0, 1 << 30))

    monkeypatch.setitem(protocol._MOST_OF_TASKS, FrameType.DRAWN, 16)
    told = r"the task broke the protocol: drawn has \d+ bytes; expected at most 16"
    with TaskBox(write_task("")) as box, pytest.raises(TaskError, match=told):
        box.draw(b"nonce", facts={}, target=1.0)


def test_a_task_that_gives_no_answer_is_told(write_task, monkeypatch):
    module = write_task("import time\n\ndef draw(nonce):\n    time.sleep(60)\n")

    with TaskBox(module) as task:
        monkeypatch.setattr("worker.sandbox.task.ANSWER_SECONDS", 0.2)
        with pytest.raises(TaskError, match=r"gave no answer in 0\.2 s"):
            task.draw(bytes(32), facts={}, target=1)


def test_a_task_whose_box_something_outside_kills_is_not_blamed(write_task):
    with TaskBox(write_task("")) as task:
        course = task.draw(bytes(32), facts={}, target=1)
        assert course.train["x"].tolist() == [[0, 1], [2, 3], [4, 5]]
        assert course.score(bytes([1, 2, 3, 4])) == (3.0, 7.0)
        kill_boxes()  # Not before its start is over: it would outlive this.
        with pytest.raises(TaskError, match=r"ended from outside by signal 9 \(Killed\)"):
            task.draw(bytes(32), facts={}, target=1)
