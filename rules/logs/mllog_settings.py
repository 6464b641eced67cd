"""What an MLPerf log says about its run: benchmark, division, seed, hyperparameters."""

from rules.benchmark import Benchmark
from rules.errors import LogFormatError
from rules.logs.mllog_lines import MllogRecord, is_number

SETTING_KEYS = frozenset(
    {
        "submission_benchmark",
        "submission_division",
        "submission_org",
        "submission_platform",
        "seed",
        "global_batch_size",
    }
)
MAX_HYPERPARAMETERS = 200
MAX_LABEL_LENGTH = 200
MAX_INTEGER = 2**63 - 1


class LogSettings:
    """The settings of one log; ranks may repeat a line, but not with another value."""

    def __init__(self, benchmark: Benchmark, *, file: str) -> None:
        self._benchmark = benchmark
        self._file = file
        self.texts: dict[str, str] = {}
        self.integers: dict[str, int] = {}
        self.hyperparameters: dict[str, float] = {}

    def read(self, record: MllogRecord) -> None:
        """Take in a line whose key is in SETTING_KEYS. Raises LogFormatError."""
        key = record.key
        if key in ("seed", "global_batch_size"):
            integer = self._integer(record, minimum=0 if key == "seed" else 1)
            self._refuse_change(record, integer, self.integers.setdefault(key, integer))
        else:
            text = self._text(record)
            self._refuse_change(record, text, self.texts.setdefault(key, text))

    def read_hyperparameter(self, record: MllogRecord) -> None:
        """Take in a line with any other number. Raises LogFormatError."""
        value = float(record.value)
        self._refuse_change(record, value, self.hyperparameters.setdefault(record.key, value))
        if len(self.hyperparameters) > MAX_HYPERPARAMETERS:
            raise self._fail(record, "too many settings", f"at most {MAX_HYPERPARAMETERS}")

    def refuse_nameless(self) -> None:
        """Raise LogFormatError unless the log named its benchmark."""
        if "submission_benchmark" not in self.texts:
            raise LogFormatError(
                "no submission_benchmark",
                file=self._file,
                field="submission_benchmark",
                expected=" or ".join(self._benchmark.log_names),
            )

    def _text(self, record: MllogRecord) -> str:
        value = record.value
        if type(value) is not str or len(value) > MAX_LABEL_LENGTH or not value.isprintable():
            expected = f"a text of at most {MAX_LABEL_LENGTH} printable characters"
            raise self._fail(record, _shown(value), expected)
        allowed = {
            "submission_benchmark": self._benchmark.log_names,
            "submission_division": self._benchmark.divisions,
        }.get(record.key)
        if allowed is not None and value not in allowed:
            what = record.key.removeprefix("submission_")
            raise self._fail(
                record, f"the log is of the {what} {_shown(value)}", " or ".join(allowed)
            )
        return value

    def _integer(self, record: MllogRecord, *, minimum: int) -> int:
        value = record.value
        if not is_number(value) or value % 1 or not minimum <= value <= MAX_INTEGER:
            raise self._fail(record, _shown(value), f"a whole number of at least {minimum}")
        return int(value)

    def _refuse_change(self, record: MllogRecord, value: object, said: object) -> None:
        if value != said:
            raise self._fail(record, f"{_shown(value)} after {_shown(said)}", "one value in a log")

    def _fail(self, record: MllogRecord, message: str, expected: str) -> LogFormatError:
        return LogFormatError(
            message, file=self._file, line=record.line, field=record.key, expected=expected
        )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
