"""Measurements in a process of their own, with modules that misbehave."""

import logging
import os
import time

import pytest

from worker.measuring import measure_apart


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")

    def write(body):
        (tmp_path / "measuring_module.py").write_text(body)
        return "measuring_module"

    return write


def test_a_module_is_told_its_orders_and_its_parent_and_answers_with_its_last_line(module):
    name = module(
        "import json, os, sys\n"
        "told = json.load(sys.stdin)\n"
        "print('a library says hello')\n"
        "print(json.dumps(told | {'threads_set': os.environ['OMP_NUM_THREADS']}))\n"
    )
    answer = measure_apart(name, {"device": "cpu", "threads": 3}, 30.0)
    assert answer == {
        "device": "cpu",
        "threads": 3,
        "threads_set": "3",
        "parent_pid": os.getpid(),
    }


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import sys; sys.exit('no such device')", "no such device"),
        ("print('no json')", "no JSON object"),
        ("print('[1]')", "no JSON object"),
        ("", "no JSON object"),
    ],
)
def test_a_module_that_fails_is_absent_and_the_log_says_why(module, caplog, body, said):
    with caplog.at_level(logging.WARNING):
        assert measure_apart(module(body), {}, 30.0) is None
    assert said in caplog.text


def test_a_module_that_takes_too_long_is_killed(module, caplog):
    started = time.monotonic()
    assert measure_apart(module("import time; time.sleep(600)"), {}, 0.3) is None
    assert time.monotonic() - started < 30
    assert "longer than" in caplog.text


def test_a_worker_that_is_told_to_stop_does_not_wait_for_its_measurement(module, caplog):
    started = time.monotonic()
    name = module("import time; time.sleep(600)")
    assert measure_apart(name, {}, 500.0, stop=lambda: True) is None
    assert time.monotonic() - started < 30
    assert caplog.text == ""
