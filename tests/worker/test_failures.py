import signal
from typing import get_args

import pytest

from finishline.rules.verification.messages import FailureCode
from worker.failures import death_of_child, ends_attempt, failure


@pytest.mark.parametrize("code", get_args(FailureCode))
def test_every_failure_code_has_a_kind_and_a_next_step(code):
    made = failure(code, "what happened")
    assert made.kind in ("submitter", "rules", "infrastructure", "time_limit")
    assert made.next_step.endswith(".")


def test_a_kill_while_the_kernel_ran_out_of_memory_is_out_of_memory():
    found = death_of_child(-signal.SIGKILL, oom_kills=1, batch_size=64.0)
    assert (found.code, found.message) == (
        "out_of_memory",
        "the kernel killed the training at a batch size of 64: the host's memory is full",
    )
    assert death_of_child(-signal.SIGKILL, oom_kills=1).code == "out_of_memory"
    assert death_of_child(-signal.SIGKILL, oom_kills=0).code == "child_died"
    assert death_of_child(-signal.SIGSEGV, oom_kills=1).code == "child_died"


def test_a_run_that_is_a_result_does_not_end_its_attempt():
    assert not ends_attempt(failure("training_diverged", ""))
    assert not ends_attempt(failure("run_time_limit", ""))
    assert ends_attempt(failure("child_died", ""))
    assert ends_attempt(failure("bad_hyperparameter", ""))
