"""The schema on one page. Curves, results and reports are JSON: they are read whole.

Curves and reports are large, so they are read only where they are asked for (`deferred`).
"""

from datetime import date, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    UniqueConstraint,
    false,
    func,
    true,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from server.database import UtcDateTime


class Base(DeclarativeBase):
    """Names every constraint, so that migrations can name it too."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012  SQLAlchemy reads this class attribute
        datetime: UtcDateTime,
        dict[str, Any]: JSON,
        list[Any]: JSON,
    }


class Organisation(Base):
    """Where users belong: members see each other's submissions under embargo, and no more."""

    __tablename__ = "organisations"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(100), unique=True)
    created_at: Mapped[datetime]


class User(Base):
    """Somebody who submits, organises or lends a worker.

    `role` is the highest their tokens may have (server.accounts.roles). The tokens and sessions of
    a user with a `disabled_at` are refused.
    """

    __tablename__ = "users"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(100), unique=True)
    created_at: Mapped[datetime]
    role: Mapped[str] = mapped_column(String(20), default="submitter", server_default="submitter")
    organisation_id: Mapped[int | None] = mapped_column(ForeignKey("organisations.id"), index=True)
    email: Mapped[str | None] = mapped_column(String(254))
    disabled_at: Mapped[datetime | None]

    organisation: Mapped[Organisation | None] = relationship()


class Token(Base):
    """An API token; only its SHA-256 is kept. `role` and `scopes` are of server.accounts.roles.

    `last_used_at` is right to about a minute. `rotated_from` is the token this one took over from.
    """

    __tablename__ = "tokens"

    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    role: Mapped[str] = mapped_column(String(20))
    token_sha256: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    label: Mapped[str | None] = mapped_column(String(100))
    scopes: Mapped[list[Any]] = mapped_column(server_default="[]")
    last_used_at: Mapped[datetime | None]
    rotated_from: Mapped[int | None] = mapped_column(ForeignKey("tokens.id"))

    user: Mapped[User] = relationship(lazy="joined")


class ConsoleSession(Base):
    """A browser that is signed in with a token; only the SHA-256 of its random id is kept.

    `notices` are what the next page tells once: what the last form changed.
    """

    __tablename__ = "console_sessions"

    id_sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    token_id: Mapped[int] = mapped_column(ForeignKey("tokens.id"), index=True)
    created_at: Mapped[datetime]
    last_seen_at: Mapped[datetime]
    notices: Mapped[list[Any]]

    token: Mapped[Token] = relationship(lazy="joined")


class BenchmarkDefinition(Base):
    """The text of a definition that some submission was scored under."""

    __tablename__ = "benchmark_definitions"

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    benchmark_id: Mapped[str] = mapped_column(String(100), index=True)
    version: Mapped[str] = mapped_column(String(50))
    content: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime]


class BenchmarkPhases(Base):
    """The dates of a benchmark as somebody set them; the latest row holds, none is ever changed.

    Except for `frozen_sha256`: it names the definition once `freezes_at` has passed.
    """

    __tablename__ = "benchmark_phases"

    id: Mapped[int] = mapped_column(primary_key=True)
    benchmark_id: Mapped[str] = mapped_column(String(100), index=True)
    opens_at: Mapped[datetime | None]
    freezes_at: Mapped[datetime | None]
    closes_at: Mapped[datetime | None]
    embargo_until: Mapped[datetime | None]
    frozen_sha256: Mapped[str | None] = mapped_column(ForeignKey("benchmark_definitions.sha256"))
    reason: Mapped[str] = mapped_column(Text)
    set_by: Mapped[int] = mapped_column(ForeignKey("users.id"))
    set_at: Mapped[datetime]

    setter: Mapped[User] = relationship(lazy="joined")


class Board(Base):
    """The version of a benchmark's leaderboard: raised by every write that can change it."""

    __tablename__ = "boards"

    benchmark_id: Mapped[str] = mapped_column(String(100), primary_key=True)
    version: Mapped[int] = mapped_column(BigInteger)


class BoardChange(Base):
    """Which submission a version of a board changed; kept of the latest versions alone."""

    __tablename__ = "board_changes"

    benchmark_id: Mapped[str] = mapped_column(String(100), primary_key=True)
    version: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    submission_id: Mapped[str] = mapped_column(String(20))


class Submission(Base):
    """A submitter's runs on one system, with the result derived from their logs.

    One of `kind` "inference" has no runs: latency and cost are as its entry states them. The others
    are of kind "train". `measured_latency_ms` is a worker's, on their hardware class.

    `precision` is the narrowest floating type that its training touches as it says,
    `precision_measured` as its latest replay found. `energy_joules` is what a run to the target
    took on average in the replay that its status rests on, on its own hardware class.

    `copies` lists its logs that an earlier submission has (server.submissions.earlier_logs), and is
    None for almost all. Unless it is of an archive it is then not `eligible`.

    An `archive` submission was published elsewhere, by `organisation` on `submitted_on`; it is kept
    with whatever rules it breaks.

    One that is `embargoed` is its owner's and the organisers' alone to see. One with a
    `withdrawn_at` stays where it is and ranks nowhere (server.submissions.visibility has both
    rules); `withdrawn_by` is a name.
    """

    __tablename__ = "submissions"
    __table_args__ = (
        # All that places or counts the submissions of a board, so that no row is looked at for it:
        # results are long, and a board has thousands.
        Index(
            "ix_submissions_standing",
            *("benchmark_id", "kind", "tta_seconds", "division", "status", "eligible"),
            *("withdrawn_at", "embargoed", "submitted_at", "submitted_on", "id"),
        ),
        Index(None, "benchmark_id", "submitted_at"),
        Index(None, "submitted_at"),
        Index(None, "user_id", "submitted_at"),
        UniqueConstraint("user_id", "idempotency_key"),
    )

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    benchmark_id: Mapped[str] = mapped_column(String(100))
    benchmark_sha256: Mapped[str] = mapped_column(ForeignKey("benchmark_definitions.sha256"))
    division: Mapped[str] = mapped_column(String(20))
    model: Mapped[str] = mapped_column(Text)
    framework: Mapped[str] = mapped_column(Text)
    system: Mapped[dict[str, Any]]
    hyperparameters: Mapped[dict[str, Any]]
    code_url: Mapped[str | None] = mapped_column(Text)
    notes: Mapped[str | None] = mapped_column(Text)
    claim_sha256: Mapped[str] = mapped_column(String(64))
    dawnbench: Mapped[dict[str, Any] | None]
    status: Mapped[str] = mapped_column(String(20))
    eligible: Mapped[bool]
    tta_seconds: Mapped[float | None]
    cost_usd: Mapped[float | None]
    latency_ms: Mapped[float | None]
    cost_usd_per_10000: Mapped[float | None]
    measured_latency_ms: Mapped[float | None]
    result: Mapped[dict[str, Any]]
    idempotency_key: Mapped[str | None] = mapped_column(String(200))
    request_sha256: Mapped[str] = mapped_column(String(64))
    submitted_at: Mapped[datetime]
    archive: Mapped[bool] = mapped_column(default=False, server_default=false())
    organisation: Mapped[str | None] = mapped_column(Text)
    submitted_on: Mapped[date | None]
    kind: Mapped[str] = mapped_column(String(20), default="train", server_default="train")
    precision: Mapped[str | None] = mapped_column(String(10))
    precision_measured: Mapped[str | None] = mapped_column(String(10))
    energy_joules: Mapped[float | None]
    embargoed: Mapped[bool] = mapped_column(default=False, server_default=false())
    withdrawn_at: Mapped[datetime | None]
    withdrawn_by: Mapped[str | None] = mapped_column(String(100))
    withdrawn_because: Mapped[str | None] = mapped_column(Text)
    copies: Mapped[list[Any] | None]

    @property
    def submitter(self) -> str:
        """Whose result it is: an archive's is that of the organisation it names."""
        return self.organisation or self.user.name

    user: Mapped[User] = relationship(lazy="joined")
    runs: Mapped[list["RunRow"]] = relationship(order_by="RunRow.index", lazy="selectin")
    verifications: Mapped[list["Verification"]] = relationship(
        foreign_keys="Verification.submission_id",
        order_by="Verification.created_at",
        lazy="selectin",
        back_populates="submission",
    )


# Few are embargoed at a time, and every list asks which.
Index(
    None,
    Submission.embargoed,
    sqlite_where=Submission.embargoed.is_(true()),
    postgresql_where=Submission.embargoed.is_(true()),
)


class RunRow(Base):
    """One run of a submission: its log (by hash), its curve (one JSON list), its figures.

    `training_sha256` is the same for the same training, whatever else was edited in its log
    (rules.fingerprint); None of a curve too short to tell.
    `convergence` is in the benchmark's unit: epochs or samples of a run that succeeded.
    """

    __tablename__ = "runs"
    __table_args__ = (
        UniqueConstraint("submission_id", "index"),
        Index(None, "log_sha256"),
        Index(None, "training_sha256"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"))
    index: Mapped[int]
    file: Mapped[str] = mapped_column(String(200))
    seed: Mapped[int | None] = mapped_column(BigInteger)
    log_sha256: Mapped[str] = mapped_column(String(64))
    log_bytes: Mapped[int] = mapped_column(BigInteger)
    training_sha256: Mapped[str | None] = mapped_column(String(64))
    reached: Mapped[bool]
    tta_seconds: Mapped[float | None]
    epochs_to_target: Mapped[float | None]
    best_quality: Mapped[float | None]
    batch_size: Mapped[int | None] = mapped_column(BigInteger)
    convergence: Mapped[float | None]
    ledger: Mapped[dict[str, Any] | None]
    curve: Mapped[list[Any]] = mapped_column(deferred=True)


class Verification(Base):
    """One set of sealed runs on a worker: plan first, verdict last, attempts in between.

    A `replay` checks its submission. A `calibration` measures the reference for its calibration
    and has no submission. A `duel` holds its submission `against` another. A `latency` times the
    trained model. `hyperparameters` has
    one table per run where the runs differ. A replay's `calibration_id` is what it is judged by.
    """

    __tablename__ = "verifications"
    __table_args__ = (Index(None, "state"), Index(None, "created_at"))

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    kind: Mapped[str] = mapped_column(String(20), default="replay", server_default="replay")
    submission_id: Mapped[str | None] = mapped_column(ForeignKey("submissions.id"), index=True)
    against_id: Mapped[str | None] = mapped_column(ForeignKey("submissions.id"))
    calibration_id: Mapped[str | None] = mapped_column(ForeignKey("calibrations.id"), index=True)
    benchmark_sha256: Mapped[str] = mapped_column(ForeignKey("benchmark_definitions.sha256"))
    requested_by: Mapped[int] = mapped_column(ForeignKey("users.id"))
    reason: Mapped[str | None] = mapped_column(Text)
    state: Mapped[str] = mapped_column(String(20))
    seal: Mapped[str] = mapped_column(String(64))
    nonce: Mapped[str] = mapped_column(String(64))
    seeds: Mapped[list[Any]]
    hyperparameters: Mapped[list[Any] | None]
    control_points: Mapped[list[Any]]
    max_attempts: Mapped[int]
    lease_seconds: Mapped[float]
    limit_seconds: Mapped[float]
    outcome: Mapped[str | None] = mapped_column(String(20))
    reasons: Mapped[list[Any]]
    report: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    created_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]

    submission: Mapped[Submission | None] = relationship(
        foreign_keys=[submission_id], back_populates="verifications"
    )
    against: Mapped[Submission | None] = relationship(foreign_keys=[against_id])
    attempts: Mapped[list["Attempt"]] = relationship(
        order_by="Attempt.number", lazy="selectin", back_populates="verification"
    )
    decision: Mapped["Decision | None"] = relationship(lazy="selectin")


class Calibration(Base):
    """A measurement of the reference: so many `runs` at each batch size, to their last epoch.

    `version` counts per benchmark. From `adopted_at` on, what is planned for this definition is
    judged by its runs; then nothing of it changes any more.
    """

    __tablename__ = "calibrations"
    __table_args__ = (UniqueConstraint("benchmark_id", "version"),)

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    benchmark_id: Mapped[str] = mapped_column(String(100))
    benchmark_sha256: Mapped[str] = mapped_column(
        ForeignKey("benchmark_definitions.sha256"), index=True
    )
    version: Mapped[int]
    state: Mapped[str] = mapped_column(String(20))
    reason: Mapped[str | None] = mapped_column(Text)
    requested_by: Mapped[int] = mapped_column(ForeignKey("users.id"))
    batch_sizes: Mapped[list[Any]]
    runs: Mapped[int]
    created_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    adopted_at: Mapped[datetime | None]
    adopted_by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    adopted_because: Mapped[str | None] = mapped_column(Text)

    requester: Mapped[User] = relationship(foreign_keys=[requested_by], lazy="joined")
    adopter: Mapped[User | None] = relationship(foreign_keys=[adopted_by], lazy="joined")


class CalibrationRunRow(Base):
    """One training of the reference in a calibration: its curve, and the system it was made on."""

    __tablename__ = "calibration_runs"

    calibration_id: Mapped[str] = mapped_column(ForeignKey("calibrations.id"), primary_key=True)
    batch_size: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    seed: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    verification_id: Mapped[str] = mapped_column(ForeignKey("verifications.id"))
    status: Mapped[str] = mapped_column(String(20))
    quality: Mapped[list[Any]]
    seconds: Mapped[list[Any]]
    system: Mapped[dict[str, Any]]


class Attempt(Base):
    """One try at a verification on one worker. `fence` counts its claims.

    `accelerators` are those of the worker when it claimed.
    `run_started_at` is when the run under way was announced, `last_evaluation` the latest event of
    one, `log_tail` the end of what the run that failed wrote, or what was heard last of a lost one.

    It waits for `hardware_class`, None for any; for its place there see rules.fair_queue.
    `sent_to` is the hardware class whose workers a message went to, None before the first. The
    defaults are for a server of the version before, which may go on while this one starts.
    """

    __tablename__ = "attempts"
    __table_args__ = (
        UniqueConstraint("verification_id", "number"),
        Index(None, "state", "lease_expires_at"),
        Index(
            "ix_attempts_waiting",
            *("state", "sent_to", "hardware_class", "by_organiser", "submitter_id", "asked_at"),
        ),
    )

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    verification_id: Mapped[str] = mapped_column(ForeignKey("verifications.id"))
    number: Mapped[int]
    state: Mapped[str] = mapped_column(String(20))
    fence: Mapped[int]
    token_sha256: Mapped[str | None] = mapped_column(String(64), unique=True)
    worker: Mapped[str | None] = mapped_column(String(200))
    claimed_by: Mapped[int | None] = mapped_column(ForeignKey("tokens.id"))
    sends: Mapped[int]
    send_after: Mapped[datetime]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    lease_expires_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    failure: Mapped[dict[str, Any] | None]
    run_started_at: Mapped[datetime | None]
    last_evaluation: Mapped[dict[str, Any] | None]
    log_tail: Mapped[str | None] = mapped_column(Text)
    accelerators: Mapped[int | None]
    hardware_class: Mapped[str | None] = mapped_column(String(200))
    submitter_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    by_organiser: Mapped[bool] = mapped_column(server_default=true())
    asked_at: Mapped[datetime] = mapped_column(server_default=func.now())
    sent_to: Mapped[str | None] = mapped_column(String(200))

    verification: Mapped[Verification] = relationship(back_populates="attempts", lazy="joined")


class QueueRow(Base):
    """The queue of a hardware class, EVERY_QUEUE for all of them: its last turn, its pause.

    A pause is by a user, named, since `paused_at`, for a reason. Nothing of it starts meanwhile.
    """

    __tablename__ = "queues"

    hardware_class: Mapped[str] = mapped_column(String(200), primary_key=True)
    turn: Mapped[int] = mapped_column(BigInteger)
    organisers_in_a_row: Mapped[int]
    paused_at: Mapped[datetime | None]
    paused_by: Mapped[str | None] = mapped_column(String(100))
    paused_because: Mapped[str | None] = mapped_column(Text)


class QueueTurn(Base):
    """The number of a submitter's last turn in a queue, apart for what organisers ask for."""

    __tablename__ = "queue_turns"

    hardware_class: Mapped[str] = mapped_column(String(200), primary_key=True)
    by_organiser: Mapped[bool] = mapped_column(primary_key=True)
    submitter_id: Mapped[int] = mapped_column(
        ForeignKey("users.id"), primary_key=True, autoincrement=False
    )
    turn: Mapped[int] = mapped_column(BigInteger)


class ReplayEventRow(Base):
    """What a worker posted, in order: the source of live pages and of a partial log."""

    __tablename__ = "replay_events"

    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.id"), primary_key=True)
    sequence: Mapped[int] = mapped_column(Integer, primary_key=True)
    event: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class WorkerRow(Base):
    """A worker that said hello, and when it last did. Its name is its user's from then on.

    `drift` is the sentence that says why it is out, since `drifted_at`: its canary is off its own
    baseline, which is of readings after `baseline_since`. `held` is "paused", "draining" or,
    once it ended for that, "drained" where an organiser said so: by whom, since when and why.
    """

    __tablename__ = "workers"

    name: Mapped[str] = mapped_column(String(200), primary_key=True)
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    hardware_class: Mapped[str] = mapped_column(String(200), index=True)
    state: Mapped[str] = mapped_column(String(20))
    system: Mapped[dict[str, Any]]
    first_seen_at: Mapped[datetime]
    last_seen_at: Mapped[datetime] = mapped_column(index=True)
    drift: Mapped[str | None] = mapped_column(Text)
    drifted_at: Mapped[datetime | None]
    baseline_since: Mapped[datetime | None]
    held: Mapped[str | None] = mapped_column(String(20))
    held_at: Mapped[datetime | None]
    held_by: Mapped[str | None] = mapped_column(String(100))
    held_because: Mapped[str | None] = mapped_column(Text)


class WorkerProbeRow(Base):
    """What a worker measured of itself at one moment; `gflops` is its canary, if it has one.

    Canaries are compared within a `configuration`; `baseline_gflops` is what this one was held
    against and `ratio` what came of it. `figures` has the roofs, `host` the surroundings.
    """

    __tablename__ = "worker_probes"
    __table_args__ = (Index(None, "worker", "configuration"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    worker: Mapped[str] = mapped_column(ForeignKey("workers.name"))
    moment: Mapped[str] = mapped_column(String(20))
    measured_at: Mapped[datetime]
    attempt_id: Mapped[str | None] = mapped_column(String(20))
    gflops: Mapped[float | None]
    configuration: Mapped[str | None] = mapped_column(String(300))
    baseline_gflops: Mapped[float | None]
    ratio: Mapped[float | None]
    figures: Mapped[dict[str, Any]]
    host: Mapped[dict[str, Any]]


class Evidence(Base):
    """What a verification was judged on, as it was when it ended: scoring again changes results.

    `submission` is the part of that name in a proof bundle, `code` what judged.
    """

    __tablename__ = "evidence"

    verification_id: Mapped[str] = mapped_column(ForeignKey("verifications.id"), primary_key=True)
    benchmark_sha256: Mapped[str] = mapped_column(ForeignKey("benchmark_definitions.sha256"))
    submission: Mapped[dict[str, Any]]
    code: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class SigningKey(Base):
    """A public key that proofs were signed with (hex); none is ever removed."""

    __tablename__ = "signing_keys"

    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    public_key: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime]


class Decision(Base):
    """What became of a verdict: the first is published by itself, a later one as decided.

    `decision` is publish or keep; `decided_by` is None for what was published by itself. The one
    published last is what a submission's status rests on.
    """

    __tablename__ = "decisions"

    verification_id: Mapped[str] = mapped_column(ForeignKey("verifications.id"), primary_key=True)
    decision: Mapped[str] = mapped_column(String(10))
    decided_by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    reason: Mapped[str] = mapped_column(Text)
    decided_at: Mapped[datetime]


class Quota(Base):
    """What a user, an organisation's members or a benchmark may use, unlike the settings.

    `subject_kind` is user, organisation or benchmark, `measure` what is limited; an `amount` of
    None is no limit.
    """

    __tablename__ = "quotas"

    subject_kind: Mapped[str] = mapped_column(String(20), primary_key=True)
    subject: Mapped[str] = mapped_column(String(100), primary_key=True)
    measure: Mapped[str] = mapped_column(String(40), primary_key=True)
    amount: Mapped[int | None] = mapped_column(BigInteger)
    reason: Mapped[str] = mapped_column(Text)
    set_by: Mapped[int] = mapped_column(ForeignKey("users.id"))
    set_at: Mapped[datetime]


class Charge(Base):
    """A verification that a submitter asked for: its accelerators' seconds are theirs.

    What it used is that of its attempts. Until it ends `gpu_seconds_reserved` stands for it.
    """

    __tablename__ = "charges"
    __table_args__ = (Index(None, "user_id", "created_at"),)

    verification_id: Mapped[str] = mapped_column(ForeignKey("verifications.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    gpu_seconds_reserved: Mapped[float]
    created_at: Mapped[datetime]


class PriceRow(Base):
    """An entry of the price book; a trigger refuses to change or delete it.

    A correction is a later entry, or one that `supersedes` the wrong one.
    """

    __tablename__ = "prices"
    __table_args__ = (
        UniqueConstraint("supersedes"),
        Index(None, "provider", "instance", "region"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    provider: Mapped[str] = mapped_column(String(100))
    instance: Mapped[str] = mapped_column(String(200))
    region: Mapped[str] = mapped_column(String(100))
    pricing: Mapped[str] = mapped_column(String(20))
    usd_per_hour: Mapped[float]
    effective_on: Mapped[date]
    source_url: Mapped[str] = mapped_column(Text)
    note: Mapped[str | None] = mapped_column(Text)
    supersedes: Mapped[int | None] = mapped_column(ForeignKey("prices.id"))
    added_by: Mapped[int] = mapped_column(ForeignKey("users.id"))
    added_at: Mapped[datetime]

    adder: Mapped[User] = relationship(lazy="joined")


class NoticeEvent(Base):
    """Something that happened, written with the change it tells of.

    `user_id` is whose submission or worker it is about. Once it is handed on (`spread_at`) it stays
    as long as its deliveries.
    """

    __tablename__ = "notice_events"
    __table_args__ = (Index(None, "spread_at", "created_at"),)

    id: Mapped[str] = mapped_column(String(24), primary_key=True)
    kind: Mapped[str] = mapped_column(String(40))
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    benchmark_id: Mapped[str | None] = mapped_column(String(100))
    content: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    spread_at: Mapped[datetime | None]


class Webhook(Base):
    """An address of somebody's that events are posted to. `scope` is own, benchmark or all.

    `secret` signs, and so does `previous_secret` until `previous_until`. `failing_since` is the
    first failure after the last success.
    """

    __tablename__ = "webhooks"

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    url: Mapped[str] = mapped_column(Text)
    kinds: Mapped[list[Any]]
    scope: Mapped[str] = mapped_column(String(20))
    benchmark_id: Mapped[str | None] = mapped_column(String(100))
    secret: Mapped[str] = mapped_column(String(100))
    previous_secret: Mapped[str | None] = mapped_column(String(100))
    previous_until: Mapped[datetime | None]
    created_at: Mapped[datetime]
    failing_since: Mapped[datetime | None]
    disabled_at: Mapped[datetime | None]
    disabled_because: Mapped[str | None] = mapped_column(Text)


class MailSubscription(Base):
    """An e-mail address that events are sent to, from `verified_at` to `ended_at`. Its links are
    signed by its `secret`.
    """

    __tablename__ = "mail_subscriptions"

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    address: Mapped[str] = mapped_column(String(254), index=True)
    kinds: Mapped[list[Any]]
    scope: Mapped[str] = mapped_column(String(20))
    benchmark_id: Mapped[str | None] = mapped_column(String(100))
    secret: Mapped[str] = mapped_column(String(100))
    created_at: Mapped[datetime]
    verified_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]


class Delivery(Base):
    """An event on its way to one webhook or one address; waiting, delivered or failed.

    A try is claimed by raising `claims`, which also puts `due_at` off: one that dies is made again.
    `failures` counts those of the present series, `tries` keeps what came of each.
    """

    __tablename__ = "deliveries"
    __table_args__ = (
        UniqueConstraint("event_id", "webhook_id"),
        UniqueConstraint("event_id", "mail_id"),
        Index(None, "state", "due_at"),
        Index(None, "created_at"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    event_id: Mapped[str] = mapped_column(ForeignKey("notice_events.id"))
    webhook_id: Mapped[str | None] = mapped_column(ForeignKey("webhooks.id"), index=True)
    mail_id: Mapped[str | None] = mapped_column(ForeignKey("mail_subscriptions.id"), index=True)
    state: Mapped[str] = mapped_column(String(20))
    due_at: Mapped[datetime]
    claims: Mapped[int]
    failures: Mapped[int]
    tries: Mapped[list[Any]]
    created_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]

    event: Mapped[NoticeEvent] = relationship(lazy="joined")
    webhook: Mapped[Webhook | None] = relationship()
    mail: Mapped[MailSubscription | None] = relationship()


class AuditRecord(Base):
    """Who changed what, and why; a trigger refuses to change or delete it.

    Each hash covers the one before. `actor` keeps the name; `actor_id` is None for the server's
    own administration.
    """

    __tablename__ = "audit_log"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    actor_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    actor: Mapped[str] = mapped_column(String(100))
    action: Mapped[str] = mapped_column(String(50))
    subject_kind: Mapped[str] = mapped_column(String(50))
    subject_id: Mapped[str] = mapped_column(String(200))
    reason: Mapped[str | None] = mapped_column(Text)
    before: Mapped[dict[str, Any] | None]
    after: Mapped[dict[str, Any] | None]
    previous_sha256: Mapped[str] = mapped_column(String(64))
    sha256: Mapped[str] = mapped_column(String(64))
