"""What of each table and each column leaves the server in an export, and why the rest does not.

A test holds this page against the models: a table or column about which nothing is decided here
fails it. What lets a person in, or reaches one, stays; what a board, a record or a proof rests on
goes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

OF_ITS_OWNER = "a secret of its owner and of one server"
FOR_ONE_SERVER = "says what one server does at the moment, and nothing of what was measured"


@dataclass(frozen=True)
class Included:
    """A table that is exported: the columns that are, those left out with the reason of each.

    `not_public` is why it is in no public export, None if it is.
    """

    columns: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    not_public: str | None = None


@dataclass(frozen=True)
class LeftOut:
    """A table that is not exported, and why."""

    because: str


def _included(columns: str, *, not_public: str | None = None, **left_out: str) -> Included:
    return Included(tuple(columns.split()), left_out, not_public)


DECISIONS: Mapping[str, Included | LeftOut] = {
    "organisations": _included("id name created_at"),
    "users": _included(
        "id name created_at role organisation_id disabled_at",
        email="reaches a person",
    ),
    "tokens": LeftOut(OF_ITS_OWNER),
    "console_sessions": LeftOut(OF_ITS_OWNER),
    "benchmark_definitions": _included("sha256 benchmark_id version content created_at"),
    "benchmark_phases": _included(
        "id benchmark_id opens_at freezes_at closes_at embargo_until frozen_sha256 reason set_by "
        "set_at"
    ),
    "boards": _included("benchmark_id version"),
    "board_changes": LeftOut("saves the servers of one database reading boards whole"),
    "submissions": _included(
        "id user_id benchmark_id benchmark_sha256 division model framework system hyperparameters "
        "code_url notes claim_sha256 dawnbench status eligible tta_seconds cost_usd latency_ms "
        "cost_usd_per_10000 measured_latency_ms result request_sha256 submitted_at archive "
        "organisation submitted_on kind precision precision_measured energy_joules ticket_id "
        "revealed_at "
        "embargoed withdrawn_at withdrawn_by withdrawn_because "
        "evidence check_word witnessed_by pool_id trained_with tuning source",
        idempotency_key="a word between a submitter and one server, for sending again",
    ),
    "runs": _included(
        "id submission_id index file seed log_sha256 log_bytes reached tta_seconds "
        "epochs_to_target best_quality batch_size convergence ledger settings curve"
    ),
    "calibrations": _included(
        "id benchmark_id benchmark_sha256 version state reason requested_by batch_sizes runs "
        "created_at ended_at adopted_at adopted_by adopted_because"
    ),
    "verifications": _included(
        "id kind submission_id against_id calibration_id benchmark_sha256 requested_by reason "
        "state seal nonce seeds hyperparameters control_points max_attempts lease_seconds "
        "limit_seconds outcome reasons report created_at ended_at cancelled_at pool_id own_runs "
        "fresh checks_id",
        witness_token_id="names a token, and tokens are left out",  # noqa: S106  a reason
    ),
    "pools": _included(
        "id benchmark_id benchmark_sha256 division hardware_class configuration_sha256 settings "
        "opened_at closed_at closed_because measured_seconds low_seconds high_seconds runs state "
        "measured_at owners by_organisers attested_at"
    ),
    "pool_runs": _included(
        "verification_id index pool_id attempt_id seed seconds epochs fresh counted"
    ),
    "calibration_runs": _included(
        "calibration_id batch_size seed verification_id status quality seconds system"
    ),
    "attempts": _included(
        "id verification_id number state fence worker sends send_after created_at started_at "
        "ended_at failure run_started_at last_evaluation log_tail hardware_class submitter_id "
        "by_organiser asked_at clock_slack_seconds",
        sent_to=FOR_ONE_SERVER,
        token_sha256=OF_ITS_OWNER,
        claimed_by="names a token, and tokens are left out",
        lease_expires_at=FOR_ONE_SERVER,
        accelerators="belongs to the accounts of one server",
    ),
    "replay_events": _included("attempt_id sequence event created_at"),
    "replay_openings": _included("verification_id run benchmark_id seed opening"),
    "workers": _included(
        "name user_id hardware_class state system first_seen_at last_seen_at drift drifted_at "
        "baseline_since confirmed_at confirmed_by witness_for",
        held=FOR_ONE_SERVER,
        held_at=FOR_ONE_SERVER,
        held_by=FOR_ONE_SERVER,
        held_because=FOR_ONE_SERVER,
    ),
    "hardware_classes": _included(
        "name accelerator accelerator_count processor processor_count roof origin created_at"
    ),
    "tickets": LeftOut("between a submitter and one server"),
    "queues": LeftOut(FOR_ONE_SERVER),
    "queue_turns": LeftOut(FOR_ONE_SERVER),
    "worker_probes": _included(
        "id worker moment measured_at attempt_id gflops configuration baseline_gflops ratio "
        "figures host"
    ),
    "quotas": LeftOut(FOR_ONE_SERVER),
    "charges": LeftOut("an account between a submitter and one server"),
    "evidence": _included("verification_id benchmark_sha256 submission code created_at"),
    "signing_keys": _included("id public_key created_at"),
    "decisions": _included("verification_id decision decided_by reason decided_at"),
    "prices": _included(
        "id provider instance region pricing usd_per_hour effective_on source_url note supersedes "
        "added_by added_at"
    ),
    "notice_events": LeftOut(FOR_ONE_SERVER),
    "webhooks": LeftOut(OF_ITS_OWNER),
    "mail_subscriptions": LeftOut("reaches a person, and has a secret of one server"),
    "deliveries": LeftOut(FOR_ONE_SERVER),
    "audit_log": _included(
        "id at actor_id actor action subject_kind subject_id reason before after previous_sha256 "
        "sha256",
        not_public="organisers alone read it; everybody may read its head, which the manifest has",
    ),
}
