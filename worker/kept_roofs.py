"""The file in which a worker keeps the roofs that it measured, by hardware class."""

import json
import logging
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from finishline.rules.scoring.measurements import Canary

log = logging.getLogger(__name__)


class KeptRoofs:
    """A JSON file with a canary for each hardware class; one that cannot be read is empty."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, hardware_class: str) -> Canary | None:
        """The roof of a class, None if it was never measured."""
        return self._read_all().get(hardware_class)

    def write(self, hardware_class: str, canary: Canary) -> None:
        """Keep the roof of a class. A file that cannot be written is a line in the log."""
        kept = self._read_all() | {hardware_class: canary}
        table = {name: asdict(roof) for name, roof in kept.items()}
        beside = self._path.with_suffix(".new")
        try:
            beside.write_text(json.dumps(table, indent=2) + "\n")
            beside.replace(self._path)
        except OSError as error:
            log.warning("the roof cannot be kept in %s: %s", self._path, error)

    def _read_all(self) -> dict[str, Canary]:
        try:
            return TypeAdapter(dict[str, Canary]).validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValidationError) as error:
            log.warning("the roofs in %s cannot be read: %s", self._path, error)
            return {}
