"""One honest MLPerf log, written by hand, that tests tamper with."""

from dataclasses import replace

import pytest

from finishline.rules.logs import parse_run_log

# Round times, so that the seconds a test expects can be worked out by eye.
GOOD_LOG = """\
:::MLLOG {"namespace": "", "time_ms": 1000, "event_type": "INTERVAL_START", "key": "init_start", "value": null, "metadata": {"file": "t.py", "lineno": 1}}
0: :::MLLOG {"namespace": "", "time_ms": 1000, "event_type": "POINT_IN_TIME", "key": "submission_benchmark", "value": "resnet9", "metadata": {"file": "t.py", "lineno": 2}}
0: :::MLLOG {"namespace": "", "time_ms": 1000, "event_type": "POINT_IN_TIME", "key": "submission_division", "value": "closed", "metadata": {}}
0: :::MLLOG {"namespace": "", "time_ms": 1000, "event_type": "POINT_IN_TIME", "key": "submission_org", "value": "Alice", "metadata": {}}
0: :::MLLOG {"namespace": "", "time_ms": 1000, "event_type": "POINT_IN_TIME", "key": "submission_platform", "value": "1xV100", "metadata": {}}
0: :::MLLOG {"namespace": "", "time_ms": 1000, "event_type": "POINT_IN_TIME", "key": "seed", "value": 7, "metadata": {}}
0: :::MLLOG {"namespace": "", "time_ms": 1000, "event_type": "POINT_IN_TIME", "key": "global_batch_size", "value": 512, "metadata": {}}
0: :::MLLOG {"namespace": "", "time_ms": 1000, "event_type": "POINT_IN_TIME", "key": "opt_base_learning_rate", "value": 0.4, "metadata": {}}
loading the data, 50,000 images
0: :::MLLOG {"namespace": "", "time_ms": 3000, "event_type": "INTERVAL_END", "key": "init_stop", "value": null, "metadata": {}}
0: :::MLLOG {"namespace": "", "time_ms": 3000, "event_type": "INTERVAL_START", "key": "run_start", "value": null, "metadata": {}}
0: :::MLLOG {"namespace": "", "time_ms": 13000, "event_type": "INTERVAL_START", "key": "eval_start", "value": null, "metadata": {"epoch_num": 1}}
0: :::MLLOG {"namespace": "", "time_ms": 15000, "event_type": "POINT_IN_TIME", "key": "eval_accuracy", "value": 90.0, "metadata": {"epoch_num": 1, "samples_count": 50000}}
0: :::MLLOG {"namespace": "", "time_ms": 15000, "event_type": "INTERVAL_END", "key": "eval_stop", "value": null, "metadata": {"epoch_num": 1}}
0: :::MLLOG {"namespace": "", "time_ms": 16000, "event_type": "POINT_IN_TIME", "key": "train_loss", "value": 0.2, "metadata": {}}
0: :::MLLOG {"namespace": "", "time_ms": 25000, "event_type": "INTERVAL_START", "key": "eval_start", "value": null, "metadata": {"epoch_num": 2}}
0: :::MLLOG {"namespace": "", "time_ms": 27500, "event_type": "POINT_IN_TIME", "key": "eval_accuracy", "value": 94.5, "metadata": {"epoch_num": 2, "samples_count": 100000}}
0: :::MLLOG {"namespace": "", "time_ms": 27500, "event_type": "INTERVAL_END", "key": "eval_stop", "value": null, "metadata": {"epoch_num": 2}}
0: :::MLLOG {"namespace": "", "time_ms": 28000, "event_type": "INTERVAL_END", "key": "run_stop", "value": null, "metadata": {"status": "success"}}
"""  # noqa: E501


@pytest.fixture
def resnet9(make_benchmark):
    return make_benchmark(log_names=("resnet9", "cifar10"))


@pytest.fixture
def parse(resnet9):
    def parse_log(content, *, name="run_0.log"):
        raw = content.encode() if isinstance(content, str) else content
        return parse_run_log(raw, name=name, benchmark=resnet9)

    return parse_log


@pytest.fixture
def parse_percent_curve(parse):
    return lambda content: parse(content, name="curve.tsv")


@pytest.fixture
def good_log():
    """Two epochs in 25 s after 2 s of initialisation: 90.0 %, then 94.5 %."""
    return GOOD_LOG


@pytest.fixture
def tamper():
    """The good log with one text in it replaced; fails if it is not there."""

    def replace_once(old, new):
        assert GOOD_LOG.count(old) == 1, f"{old!r} stands {GOOD_LOG.count(old)} times in the log"
        return GOOD_LOG.replace(old, new)

    return replace_once


@pytest.fixture
def as_mlperf(resnet9):
    return lambda name: replace(resnet9, log_names=(name,))
