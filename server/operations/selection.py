"""Rows and columns of the database that go into an export or a backup, as SQL.

A test compares the decisions with the models: a table or column without one fails it. Whatever
lets a person in, or reaches one, stays; a board, a record or a proof rests on the rest, which goes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    MetaData,
    Select,
    Table,
    Text,
    case,
    cast,
    func,
    or_,
    select,
    type_coerce,
)

from server.base.models import (
    Attempt,
    Base,
    JobTraining,
    Pool,
    PublishedResult,
    Submission,
    TrainingPackage,
    Verification,
)
from server.base.standing import OPEN
from server.operations.table_files import Kind, kind_of

OF_ITS_OWNER = "a secret of its owner and of one server"
FOR_ONE_SERVER = "the state of one server, without measurements"


@dataclass(frozen=True)
class Included:
    """A table that is exported: the columns that are, those left out with the reason of each.

    `joined` are columns that the database keeps in another table. `not_public` is why it is in no
    public export, None if it is.
    """

    columns: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    joined: frozenset[str] = frozenset()
    not_public: str | None = None


@dataclass(frozen=True)
class LeftOut:
    """A table that is not exported, and why."""

    because: str


def _included(
    columns: str, *, joined: str = "", not_public: str | None = None, **left_out: str
) -> Included:
    return Included(tuple(columns.split()), left_out, frozenset(joined.split()), not_public)


DECISIONS: Mapping[str, Included | LeftOut] = {
    "organisations": _included("id name created_at"),
    "users": _included(
        "id name display_name created_at role organisation_id disabled_at known_at",
        email="reaches a person",
        quota=FOR_ONE_SERVER,
        issuer=OF_ITS_OWNER,
        subject=OF_ITS_OWNER,
    ),
    "tokens": LeftOut(OF_ITS_OWNER),
    "invitations": LeftOut(OF_ITS_OWNER),
    "console_sessions": LeftOut(OF_ITS_OWNER),
    "benchmark_definitions": _included(
        "sha256 benchmark_id version content created_at added_by added_at"
    ),
    "benchmark_files": _included("definition_sha256 name file_sha256 size_bytes"),
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
        "organisation submitted_on kind precision precision_measured energy_joules "
        "embargoed withdrawn_at withdrawn_by withdrawn_because retirement waivers "
        "evidence check_word pool_id configuration_sha256 duplicate_of trained_with tuning "
        "claimed_model claimed_framework source",
        joined="archive organisation submitted_on source",
        idempotency_key="a word between a submitter and one server, for sending again",
    ),
    "trainings": _included(
        "submission_id package_sha256 program_sha256 hardware_class environment "
        "environment_sha256 manifest files size_bytes compressed_bytes determinism published_at"
    ),
    "published_results": LeftOut("the table of submissions has its columns"),
    "runs": _included(
        "id submission_id index file seed log_sha256 log_bytes reached tta_seconds "
        "epochs_to_target best_quality batch_size convergence ledger settings curve"
    ),
    "calibrations": _included(
        "id benchmark_id benchmark_sha256 version state reason requested_by batch_sizes runs "
        "created_at ended_at adopted_at adopted_by adopted_because precision"
    ),
    "verifications": _included(
        "id kind submission_id against_id calibration_id benchmark_sha256 requested_by reason "
        "state seal nonce runs control_points max_attempts lease_seconds "
        "limit_seconds outcome reasons report created_at ended_at pool_id "
        "checks_id decision decided_by decided_at decision_reason",
        gpu_seconds_reserved="an account between a submitter and one server",
    ),
    "job_trainings": _included(
        "verification_id index package settings seed data_nonce stop_at measure precision opening"
    ),
    "pools": _included(
        "id benchmark_id benchmark_sha256 division hardware_class configuration_sha256 settings "
        "opened_at closed_at measured_seconds low_seconds high_seconds runs measured_at is_busy"
    ),
    "pool_runs": _included("verification_id index pool_id attempt_id seed seconds epochs"),
    "calibration_runs": _included(
        "calibration_id batch_size seed verification_id status quality seconds system"
    ),
    "attempts": _included(
        "id verification_id number state fence worker send_after created_at started_at "
        "ended_at failure run_started_at last_evaluation log_tail hardware_class submitter_id "
        "by_organiser asked_at clock_slack_seconds",
        sent_to=FOR_ONE_SERVER,
        token_sha256=OF_ITS_OWNER,
        claimed_by="names a token, and tokens are left out",
        lease_expires_at=FOR_ONE_SERVER,
        accelerators="belongs to the accounts of one server",
    ),
    "replay_events": _included("attempt_id sequence event created_at"),
    "workers": _included(
        "name user_id hardware_class state system first_seen_at last_seen_at drift drifted_at "
        "baseline_since confirmed_at confirmed_by box",
        polls=FOR_ONE_SERVER,
        held=FOR_ONE_SERVER,
        held_at=FOR_ONE_SERVER,
        held_by=FOR_ONE_SERVER,
        held_because=FOR_ONE_SERVER,
    ),
    "hardware_classes": _included(
        "name accelerator accelerator_count processor processor_count roof origin created_at"
    ),
    "queues": LeftOut(FOR_ONE_SERVER),
    "worker_probes": _included(
        "id worker moment measured_at attempt_id gflops configuration baseline_gflops ratio "
        "figures host"
    ),
    "evidence": _included("verification_id benchmark_sha256 submission code created_at"),
    "signing_keys": _included("id public_key created_at"),
    "prices": _included(
        "id provider instance region pricing usd_per_hour effective_on source_url note supersedes "
        "hardware_class added_by added_at"
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


def hidden_submissions() -> ColumnElement[bool]:
    """The condition of submissions that are not to be published at this moment."""
    return Submission.embargoed.is_(True)


# Values that an export has in the place of a column's, by table and column.
Overrides = Mapping[str, Mapping[str, ColumnElement[Any]]]


@dataclass(frozen=True)
class Field:
    """A column of an export: its name, the kind of its values, and where they come from."""

    name: str
    kind: Kind
    source: ColumnElement[Any]


@dataclass(frozen=True)
class Selected:
    """A table with the columns that are written, and the rows."""

    name: str
    fields: tuple[Field, ...]
    rows: Select[Any]
    left_out: Mapping[str, str]


def select_export(*, public: bool) -> Iterator[Selected]:
    """Tables and columns that leave the server; with `public` those that everybody may know.

    A verification that has not ended is sealed: its draw is not in an export.
    """
    roots = _public_roots() if public else {}
    overrides = {**_sealed(), "submissions": _published()}
    for table in Base.metadata.sorted_tables:
        decision = DECISIONS[table.name]
        if isinstance(decision, LeftOut) or (public and decision.not_public):
            continue
        yield _selected(table, decision, overrides.get(table.name, {}), roots)


def select_backup(connection: Connection, *, without: tuple[str, ...]) -> Iterator[Selected]:
    """Every column of every table but those named, as the database has them.

    Before a migration these are not the models' columns.
    """
    found = MetaData()
    found.reflect(connection)
    for model in Base.metadata.sorted_tables:
        table = found.tables.get(model.name)
        if table is None or table.name in without:
            continue
        for column in table.columns:
            if column.name in model.columns:
                column.type = model.columns[column.name].type
        everything = Included(tuple(table.columns.keys()))
        yield _selected(table, everything, {}, {})


def tables_left_out(*, public: bool) -> dict[str, str]:
    """The tables that an export has not, each with the reason."""
    found = {}
    for name, decision in DECISIONS.items():
        if isinstance(decision, LeftOut):
            found[name] = decision.because
        elif public and decision.not_public:
            found[name] = decision.not_public
    return found


def _selected(
    table: Table,
    decision: Included,
    own: Mapping[str, ColumnElement[Any]],
    roots: Mapping[str, ColumnElement[bool]],
) -> Selected:
    fields = tuple(_field(name, table, own.get(name)) for name in decision.columns)
    query = select(*(each.source.label(each.name) for each in fields))
    query = query.order_by(*table.primary_key.columns)
    query = query.where(*visible(table, roots))
    return Selected(table.name, fields, query, decision.left_out)


def _public_roots() -> dict[str, ColumnElement[bool]]:
    """Hide embargoed submissions, and the pools that no other has."""
    shown = ~hidden_submissions()
    named = select(Submission.pool_id).where(shown, Submission.pool_id.is_not(None))
    return {"submissions": shown, "pools": Pool.id.in_(named)}


def _field(name: str, table: Table, own: ColumnElement[Any] | None) -> Field:
    column: ColumnElement[Any] | None = table.columns.get(name)
    source = own if own is not None else table.columns[name]
    kind = kind_of((source if column is None else column).type)
    if kind == "json":
        # The text as it is kept: reading and writing it could change a number's last digit, and
        # would make one of JSON's null and an absent value.
        source = type_coerce(cast(source, Text), Text)
    return Field(name, kind, source)


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


def _sealed() -> Overrides:
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
