"""Typed failures: every code with its kind and the next step."""

import signal
from pathlib import Path

from finishline.rules.verification.messages import Failure, FailureCode, FailureKind

ELSEWHERE = "Nothing to do: another worker makes the attempt again."

_NEXT_STEPS: dict[FailureKind, dict[FailureCode, str]] = {
    "submitter": {
        "bad_hyperparameter": (
            "Correct the hyperparameter and submit again; the benchmark page lists the limits."
        ),
        "training_diverged": (
            "Check the learning rate of the submission; these settings do not train."
        ),
        "entry_import_failed": "Read the end of the log, and try it with finishline run.",
        "entry_died": "Read the end of the log, and try it with finishline run.",
        "protocol_broken": "Return predictions of the type and shape that the task names.",
        "memory_limit": "Hold less memory; the benchmark page has the limit.",
        "log_limit": "Print less.",
    },
    "rules": {
        "unknown_reference": "Update the worker, or correct `reference` in the benchmark's file.",
        "data_set_differs": "Install the data set the benchmark names on this worker.",
        "precision_missing": (
            "Request another precision, or a worker with a device that has this one."
        ),
    },
    "infrastructure": {
        "clock_mismatch": (
            "Look for a busy or suspended host; the attempt is made again without cost."
        ),
        "child_died": "Read the end of the log; the attempt is made again without cost.",
        "out_of_memory": (
            "Use a worker with more memory, or fewer neighbours; the attempt is made again."
        ),
        "device_unfit": (
            "Correct the worker's device or number of processes; the attempt is made again."
        ),
        "node_lost": (
            "Look at that host; the attempt is made again, by this worker once all its hosts "
            "are back."
        ),
        "nodes_unfit": (
            "Look at the network between the hosts (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME); "
            "the attempt is made again."
        ),
        "worker_stopped": ELSEWHERE,
        "worker_lost": ELSEWHERE,
        "worker_drifted": (
            "Nothing to do: another worker makes the attempt again; this one gets no work "
            "until it is back at its baseline."
        ),
        "report_refused": ELSEWHERE,
        "host_busy": "Look for other load on this host; another worker makes the attempt again.",
        "box_unavailable": (
            "Look at the sandbox of this worker; another worker makes the attempt again."
        ),
    },
    "time_limit": {
        "prepare_time_limit": "Do less in prepare(); the benchmark page has the limit.",
        "silence_time_limit": "Evaluate sooner, or end; the benchmark page has the limit.",
        "run_time_limit": (
            "If the training is slow but honest, ask the organiser to raise the limit."
        ),
    },
}
_TABLE: dict[FailureCode, tuple[FailureKind, str]] = {
    code: (kind, step) for kind, steps in _NEXT_STEPS.items() for code, step in steps.items()
}


def failure(code: FailureCode, message: str) -> Failure:
    kind, next_step = _TABLE[code]
    return Failure(kind=kind, code=code, message=message, next_step=next_step)


def ends_attempt(reason: Failure) -> bool:
    """Say whether further runs of the attempt are pointless.

    An infrastructure failure leaves the submission unjudged, and a wrong job stays wrong. A run
    that diverged or ran out of time is a result, so the runs after it count as well.
    """
    return reason.code not in ("training_diverged", "run_time_limit")


def entry_failure(code: str | None, message: str) -> Failure:
    """Return the failure of a run in a sandbox. An unknown code becomes `entry_died`."""
    return failure(next((each for each in _TABLE if each == code), "entry_died"), message)


def death_of_child(
    exit_code: int | None, *, oom_kills: int, batch_size: float | None = None
) -> Failure:
    """Return the failure of a child that ended before it said why, after `oom_kills` in its run."""
    if exit_code == -signal.SIGKILL and oom_kills > 0:
        trained = f" at a batch size of {batch_size:g}" if batch_size else ""
        return failure(
            "out_of_memory",
            f"the kernel killed the training{trained}: the host's memory is full",
        )
    if exit_code is None:
        return failure("child_died", "the training closed its event stream and went on running")
    if exit_code < 0:
        name = signal.strsignal(-exit_code) or "unknown"
        return failure("child_died", f"the training was ended by signal {-exit_code} ({name})")
    return failure("child_died", f"the training ended early with exit code {exit_code}")


def count_oom_kills() -> int:
    """Count processes this host's kernel killed for memory since it started; 0 if unknown."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
