"""When the last export and the last backup ended well: noted beside them, told to Prometheus."""

import json
import secrets
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from server.settings import Settings

LAST = "last.json"


def note_success(folder: Path, name: str, *, started: datetime, ended: datetime) -> None:
    """Write into a folder of exports or backups which one ended well, when, and how long it took.

    Whoever may read metrics may read it, whatever else the folder holds.
    """
    content = {
        "name": name,
        "ended_at": ended.isoformat(),
        "seconds": (ended - started).total_seconds(),
    }
    fresh = folder / f".{LAST}.{secrets.token_hex(8)}"
    fresh.write_text(json.dumps(content) + "\n")
    fresh.replace(folder / LAST)


def kept_copies_families(settings: Settings) -> Iterator[Metric]:
    """Of each kind that the settings name a folder for; 0 while none has ended well."""
    for kind, folder in (("export", settings.exports_dir), ("backup", settings.backups_dir)):
        if folder is None:
            continue
        ended, seconds = _read(folder)
        yield GaugeMetricFamily(
            f"finishline_{kind}_last_success_timestamp_seconds",
            f"When the last {kind} ended well, in Unix time; 0 if none did.",
            ended,
        )
        yield GaugeMetricFamily(
            f"finishline_{kind}_last_duration_seconds",
            f"How long the last {kind} that ended well took.",
            seconds,
        )


def _read(folder: Path) -> tuple[float, float]:
    try:
        found = json.loads((folder / LAST).read_text())
        return datetime.fromisoformat(found["ended_at"]).timestamp(), float(found["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0, 0.0
