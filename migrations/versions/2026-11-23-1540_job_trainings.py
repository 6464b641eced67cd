"""job trainings: the ordered trainings of a verification, one row each, in place of two lists."""

import json
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision: str = "0045"
down_revision: str | None = "0044"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

ROWS_AT_ONCE = 1_000
MEASURES = {
    "replay": ["tta", "profile"],
    "cross_check": ["tta", "profile"],
    "latency": ["tta", "latency", "profile"],
}


def upgrade() -> None:
    """Apply. Every run that was sealed becomes a row."""
    made = op.create_table(
        "job_trainings",
        sa.Column("verification_id", sa.String(20), nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("package", sa.String(100), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("data_nonce", sa.String(64), nullable=True),
        sa.Column("stop_at", sa.String(10), nullable=False),
        sa.Column("measure", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["verification_id"],
            ["verifications.id"],
            name=op.f("fk_job_trainings_verification_id_verifications"),
        ),
        sa.PrimaryKeyConstraint("verification_id", "index", name=op.f("pk_job_trainings")),
    )
    with op.batch_alter_table("verifications") as batch:
        batch.add_column(sa.Column("runs", sa.Integer(), nullable=False, server_default="0"))
    batch_of_rows: list[dict[str, Any]] = []
    for row in _trainings():
        batch_of_rows.append(row)
        if len(batch_of_rows) == ROWS_AT_ONCE:
            op.bulk_insert(made, batch_of_rows)
            batch_of_rows = []
    if batch_of_rows:
        op.bulk_insert(made, batch_of_rows)
    op.execute(
        "UPDATE verifications SET runs = (SELECT count(*) FROM job_trainings WHERE "
        "job_trainings.verification_id = verifications.id)"
    )
    with op.batch_alter_table("verifications") as batch:
        batch.drop_column("seeds")
        batch.drop_column("hyperparameters")


def _trainings() -> Iterator[dict[str, Any]]:
    """The runs of every verification, as rows."""
    connection = op.get_bind()
    definitions = connection.execute(sa.text("SELECT sha256, content FROM benchmark_definitions"))
    packages = {sha256: _reference_in(content) for sha256, content in definitions}
    found = connection.execute(
        sa.text(
            "SELECT v.id, v.kind, v.seeds, v.hyperparameters AS own, v.benchmark_sha256, "
            "s.hyperparameters AS claimed FROM verifications v "
            "LEFT JOIN submissions s ON s.id = v.submission_id"
        )
    ).all()
    for row in found:
        seeds, own, claimed = _read(row.seeds), _read(row.own), _read(row.claimed) or {}
        for index, seed in enumerate(seeds or []):
            yield {
                "verification_id": row.id,
                "index": index,
                "package": packages.get(row.benchmark_sha256, ""),
                "settings": own[index] if own else claimed,
                "seed": seed,
                "data_nonce": None,
                "stop_at": "end" if row.kind == "calibration" else "target",
                "measure": MEASURES.get(row.kind, ["tta"]),
            }


def _reference_in(content: str) -> str:
    try:
        return str(tomllib.loads(content).get("replay", {}).get("reference", ""))
    except tomllib.TOMLDecodeError:
        return ""


def _read(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def downgrade() -> None:
    """Take back."""
    with op.batch_alter_table("verifications") as batch:
        batch.add_column(sa.Column("seeds", sa.JSON(), nullable=False, server_default="[]"))
        batch.add_column(sa.Column("hyperparameters", sa.JSON(), nullable=True))
    connection = op.get_bind()
    trainings = sa.table(
        "job_trainings", *map(sa.column, ("verification_id", "index", "seed", "settings"))
    )
    by_job: dict[str, list[Any]] = {}
    query = sa.select(trainings).order_by(trainings.c.verification_id, trainings.c.index)
    for row in connection.execute(query):
        by_job.setdefault(row.verification_id, []).append((row.seed, _read(row.settings)))
    kinds = dict(connection.execute(sa.text("SELECT id, kind FROM verifications")).all())
    update = sa.text(
        "UPDATE verifications SET seeds = :seeds, hyperparameters = :own WHERE id = :id"
    )
    update = update.bindparams(
        sa.bindparam("seeds", type_=sa.JSON()),
        sa.bindparam("own", type_=sa.JSON(none_as_null=True)),
    )
    for verification_id, runs in by_job.items():
        differ = kinds[verification_id] in ("calibration", "duel")
        connection.execute(
            update,
            {
                "id": verification_id,
                "seeds": [seed for seed, _ in runs],
                "own": [own for _, own in runs] if differ else None,
            },
        )
    op.drop_table("job_trainings")
    with op.batch_alter_table("verifications") as batch:
        batch.drop_column("runs")
