"""Rows and columns of the database that go into an export, as SQL.

A test compares the tables below with the models: a table or column that neither names fails it.
What lets a person in, or reaches one, is left out. What a board, a record or a proof rests on goes.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Select,
    Table,
    Text,
    case,
    cast,
    func,
    or_,
    select,
    type_coerce,
    union,
)

from server.base.models import (
    Attempt,
    Base,
    JobTraining,
    Pool,
    PublishedResult,
    RunRow,
    Submission,
    TrainingPackage,
    Verification,
)
from server.base.standing import OPEN
from server.benchmarks.definitions import files_of_added

OF_ITS_OWNER = "a secret of its owner and of one server"
FOR_ONE_SERVER = "the state of one server, without measurements"

COLUMNS: Mapping[str, str] = {
    "organisations": "id name created_at",
    "users": "id name display_name created_at role organisation_id disabled_at known_at",
    "benchmark_definitions": "sha256 benchmark_id version content created_at added_by in_force_at",
    "benchmark_phases": (
        "id benchmark_id opens_at freezes_at closes_at embargo_until reason set_by set_at"
    ),
    "boards": "benchmark_id version",
    "submissions": (
        "id user_id benchmark_id benchmark_sha256 division model framework system hyperparameters "
        "code_url notes claim_sha256 dawnbench status eligible tta_seconds cost_usd latency_ms "
        "cost_usd_per_10000 measured_latency_ms result request_sha256 submitted_at archive "
        "organisation submitted_on kind precision precision_measured energy_joules "
        "embargoed withdrawn_at withdrawn_by withdrawn_because retirement waivers "
        "evidence check_word pool_id configuration_sha256 duplicate_of trained_with tuning "
        "claimed_model claimed_framework source"
    ),
    "trainings": (
        "submission_id package_sha256 program_sha256 hardware_class environment "
        "environment_sha256 manifest files size_bytes compressed_bytes determinism published_at"
    ),
    "runs": (
        "id submission_id index file seed log_sha256 log_bytes reached tta_seconds "
        "epochs_to_target best_quality batch_size convergence ledger settings curve"
    ),
    "calibrations": (
        "id benchmark_id benchmark_sha256 version state reason requested_by batch_sizes runs "
        "created_at ended_at adopted_at adopted_by adopted_because precision"
    ),
    "verifications": (
        "id kind submission_id against_id calibration_id benchmark_sha256 requested_by reason "
        "state seal nonce runs control_points max_attempts lease_seconds "
        "limit_seconds outcome reasons report created_at ended_at pool_id "
        "checks_id continues_id decision decided_by decided_at decision_reason"
    ),
    "job_trainings": (
        "verification_id index package settings seed data_nonce stop_at measure precision opening"
    ),
    "pools": (
        "id benchmark_id benchmark_sha256 division hardware_class configuration_sha256 settings "
        "opened_at closed_at measured_seconds low_seconds high_seconds runs measured_at is_busy"
    ),
    "pool_runs": "verification_id index pool_id attempt_id seed seconds epochs best_quality",
    "calibration_runs": (
        "calibration_id batch_size seed verification_id status quality seconds system"
    ),
    "attempts": (
        "id verification_id number state fence worker send_after created_at started_at "
        "ended_at failure run_started_at last_evaluation log_tail hardware_class submitter_id "
        "by_organiser asked_at is_apart clock_slack_seconds"
    ),
    "replay_events": "attempt_id sequence event created_at",
    "workers": (
        "name user_id hardware_class state system first_seen_at last_seen_at drift drifted_at "
        "baseline_since confirmed_at confirmed_by box"
    ),
    "hardware_classes": (
        "name accelerator accelerator_count processor processor_count roof origin created_at"
    ),
    "worker_probes": (
        "id worker moment measured_at attempt_id gflops configuration baseline_gflops ratio "
        "figures host"
    ),
    "evidence": "verification_id benchmark_sha256 submission code created_at",
    "signing_keys": "id public_key created_at",
    "prices": (
        "id provider instance region pricing usd_per_hour effective_on source_url note supersedes "
        "hardware_class added_by added_at"
    ),
    "audit_log": (
        "id at actor_id actor action subject_kind subject_id reason before after previous_sha256 "
        "sha256"
    ),
}
LEFT_OUT = {
    "users.email": "reaches a person",
    "users.quota": FOR_ONE_SERVER,
    "users.issuer": OF_ITS_OWNER,
    "users.subject": OF_ITS_OWNER,
    "users.session_number": OF_ITS_OWNER,
    "tokens": OF_ITS_OWNER,
    "invitations": OF_ITS_OWNER,
    "board_changes": "saves the servers of one database reading boards whole",
    "submissions.idempotency_key": "a word between a submitter and one server",
    "published_results": "the table of submissions has its columns",
    "verifications.gpu_seconds_reserved": "an account between a submitter and one server",
    "attempts.sent_to": FOR_ONE_SERVER,
    "attempts.token_sha256": OF_ITS_OWNER,
    "attempts.claimed_by": "names a token, and tokens are left out",
    "attempts.lease_expires_at": FOR_ONE_SERVER,
    "attempts.accelerators": "belongs to the accounts of one server",
    "workers.polls": FOR_ONE_SERVER,
    "workers.held": FOR_ONE_SERVER,
    "workers.held_at": FOR_ONE_SERVER,
    "workers.held_by": FOR_ONE_SERVER,
    "workers.held_because": FOR_ONE_SERVER,
    "pauses": FOR_ONE_SERVER,
    "receivers": "reaches a person, and has a secret of one server",
    "outbox": FOR_ONE_SERVER,
}
NOT_PUBLIC = {
    "audit_log": "organisers alone read it; everybody may read its head, which the manifest has",
}


def hidden_submissions() -> ColumnElement[bool]:
    """The condition of submissions that are not to be published at this moment."""
    return Submission.embargoed.is_(True)


def list_logs(connection: Connection, *, public: bool = False) -> list[str]:
    """The hashes of all files that rows name, once each, in order."""
    claims, runs = select(Submission.claim_sha256), select(RunRow.log_sha256)
    if public:
        shown = ~hidden_submissions()
        claims = claims.where(shown)
        runs = runs.where(RunRow.submission_id.in_(select(Submission.id).where(shown)))
    named = connection.scalars(union(claims, runs)).all()
    return sorted({*named, *files_of_added(connection)})


def select_export(*, public: bool) -> Iterator[tuple[str, Select[Any]]]:
    """The tables that leave the server, and one query for each.

    With `public` only data that everybody may know. A verification that has not ended is sealed:
    its draw is not in an export.
    """
    roots = _public_roots() if public else {}
    sources = {**_sealed(), "submissions": _published()}
    for table in Base.metadata.sorted_tables:
        if table.name not in COLUMNS or (public and table.name in NOT_PUBLIC):
            continue
        own = sources.get(table.name, {})
        names = COLUMNS[table.name].split()
        query = select(*(_source(table, name, own).label(name) for name in names))
        query = query.where(*visible(table, roots)).order_by(*table.primary_key.columns)
        yield table.name, query


def _source(table: Table, name: str, own: Mapping[str, ColumnElement[Any]]) -> ColumnElement[Any]:
    source = own[name] if name in own else table.columns[name]
    if isinstance(table.columns.get(name, source).type, JSON):
        # The text as it is kept: reading and writing it could change a number's last digit.
        return type_coerce(cast(source, Text), Text)
    return source


def _public_roots() -> dict[str, ColumnElement[bool]]:
    """Hide embargoed submissions, and the pools that no other has."""
    shown = ~hidden_submissions()
    named = select(Submission.pool_id).where(shown, Submission.pool_id.is_not(None))
    return {"submissions": shown, "pools": Pool.id.in_(named)}


def visible(table: Table, roots: Mapping[str, ColumnElement[bool]]) -> list[ColumnElement[bool]]:
    """The conditions of a table's rows that hang on no hidden row, by the foreign keys."""
    conditions = [roots[table.name]] if table.name in roots else []
    for key in sorted(table.foreign_keys, key=lambda key: key.parent.name):
        parent = key.column.table
        above = [] if parent is table else visible(parent, roots)
        if above:
            known = select(key.column).where(*above)
            conditions.append(or_(key.parent.is_(None), key.parent.in_(known)))
    return conditions


def _sealed() -> dict[str, dict[str, ColumnElement[Any]]]:
    """The draw of a verification, absent while it is open, and sources that are not public.

    What the runs of a package wrote may tell its source: before that is public, neither it nor
    their report is there.
    """
    packages = TrainingPackage.__table__.columns
    secret = select(packages["submission_id"]).where(packages["published_at"].is_(None))
    verifications, training = Verification.__table__.columns, JobTraining.__table__.columns
    ended = verifications["state"].not_in(OPEN)
    of_ended = training["verification_id"].in_(select(verifications["id"]).where(ended))
    sides = (verifications["submission_id"], verifications["against_id"])
    tells = or_(*(side.in_(secret) for side in sides))
    telling = select(verifications["id"]).where(tells)
    attempts = Attempt.__table__.columns
    return {
        "verifications": {
            "nonce": case((ended, verifications["nonce"])),
            "report": case((tells, "null"), else_=cast(verifications["report"], Text)),
        },
        "attempts": {
            "log_tail": case((attempts["verification_id"].not_in(telling), attempts["log_tail"]))
        },
        "job_trainings": {
            "seed": case((of_ended, training["seed"])),
            "data_nonce": case((of_ended, training["data_nonce"])),
            "settings": case((of_ended, cast(training["settings"], Text))),
        },
        "trainings": {
            name: case(
                (packages["published_at"].is_not(None), cast(packages[name], Text)), else_="{}"
            )
            for name in ("files", "manifest")
        },
    }


def _published() -> dict[str, ColumnElement[Any]]:
    """Columns of published results, for the table of submissions."""

    def of_submission(column: ColumnElement[Any]) -> ColumnElement[Any]:
        which = PublishedResult.submission_id == Submission.id
        return select(column).where(which).scalar_subquery()

    source = func.coalesce(of_submission(cast(PublishedResult.source, Text)), "null")
    return {
        "archive": Submission.evidence == "published",
        "organisation": of_submission(PublishedResult.organisation.expression),
        "submitted_on": of_submission(PublishedResult.published_on.expression),
        "source": type_coerce(source, JSON),
    }
