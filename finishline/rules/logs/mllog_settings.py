"""Settings in an MLPerf log: benchmark, division, seeds, hyperparameters."""

from collections.abc import Mapping, Sequence

from finishline.rules.errors import LogFormatError
from finishline.rules.logs.mllog_evaluation import Report
from finishline.rules.logs.mllog_record import MllogRecord, is_number
from finishline.rules.text import shown

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
# Ours, no key of MLPerf's: known only once the run is over.
PROCESSOR_SHARE = "processor_share"
MAX_HYPERPARAMETERS = 200
MAX_SEEDS = 10_000  # One for each accelerator of a large system.
MAX_LABEL_LENGTH = 200
MAX_INTEGER = 2**63 - 1


class LogSettings:
    """The settings of one log; ranks may repeat a line, but not with another value.

    `allowed` has, for some keys, the only texts they may have. Errors are reported; then the first
    good value of a setting stays. `seeds` has every seed the log names, in order: each rank may
    have its own. A seed that is none, and a number that changes but has no part in any figure, go
    to `odd`.
    """

    def __init__(
        self,
        allowed: Mapping[str, Sequence[str]],
        *,
        file: str,
        report: Report,
        odd: Report | None = None,
    ) -> None:
        self._allowed = allowed
        self._file = file
        self._report = report
        self._odd = odd or report
        self.texts: dict[str, str] = {}
        self.integers: dict[str, int] = {}
        self.seeds: dict[int, None] = {}
        self.hyperparameters: dict[str, float] = {}
        self.processor_share: float | None = None

    def read(self, record: MllogRecord) -> None:
        """Read a line with a key in SETTING_KEYS."""
        key = record.key
        try:
            if key == "seed":
                self._read_seed(record)
            elif key == "global_batch_size":
                integer = self._integer(record, minimum=1)
                self._refuse_change(record, integer, self.integers.setdefault(key, integer))
            else:
                text = self._text(record)
                self._refuse_change(record, text, self.texts.setdefault(key, text))
        except LogFormatError as error:
            self._report(error)

    def _read_seed(self, record: MllogRecord) -> None:
        """Keep a seed; below 0 it is odd, but can be that of another run as well as any other."""
        try:
            seed = self._integer(record, minimum=0)
        except LogFormatError as error:
            self._odd(error)
            if type(record.value) is not int or not -MAX_INTEGER <= record.value < 0:
                return
            seed = record.value
        self.integers.setdefault("seed", seed)
        if len(self.seeds) < MAX_SEEDS:
            self.seeds[seed] = None

    def read_hyperparameter(self, record: MllogRecord) -> None:
        """Take in a line with any other number."""
        if not record.key.isprintable():
            self._odd(self._fail(record, "no name of a setting", "printable characters"))
            return
        value = float(record.value)
        said = self.hyperparameters.get(record.key)
        if said is None and len(self.hyperparameters) == MAX_HYPERPARAMETERS:
            self._odd(self._fail(record, "too many settings", f"at most {MAX_HYPERPARAMETERS}"))
        elif said is None:
            self.hyperparameters[record.key] = value
        elif value != said:
            self._odd(self._change(record, value, said))

    def read_processor_share(self, record: MllogRecord) -> None:
        """Take in the share of the processor that the training had."""
        value = record.value
        if is_number(value) and 0.0 <= value <= 1.0:
            self.processor_share = float(value)
        else:
            self._odd(self._fail(record, shown(value), "a number from 0 to 1"))

    def report_nameless(self) -> None:
        """Report a log that never named its benchmark."""
        if "submission_benchmark" not in self.texts:
            self._report(
                LogFormatError(
                    "no submission_benchmark",
                    file=self._file,
                    field="submission_benchmark",
                    expected=" or ".join(self._allowed.get("submission_benchmark", ("a text",))),
                    code="no_benchmark",
                )
            )

    def _text(self, record: MllogRecord) -> str:
        value = record.value
        if type(value) is not str or len(value) > MAX_LABEL_LENGTH or not value.isprintable():
            expected = f"a text of at most {MAX_LABEL_LENGTH} printable characters"
            raise self._fail(record, shown(value), expected)
        allowed = self._allowed.get(record.key)
        if allowed is not None and value not in allowed:
            what = record.key.removeprefix("submission_")
            message = f"the log is of the {what} {shown(value)}"
            raise self._fail(record, message, " or ".join(allowed), code=f"wrong_{what}")
        return value

    def _integer(self, record: MllogRecord, *, minimum: int) -> int:
        value = record.value
        if not is_number(value) or value % 1 or not minimum <= value <= MAX_INTEGER:
            expected = f"a whole number from {minimum} to {MAX_INTEGER}"
            raise self._fail(record, shown(value), expected)
        return int(value)

    def _refuse_change(self, record: MllogRecord, value: object, said: object) -> None:
        if value != said:
            raise self._change(record, value, said)

    def _change(self, record: MllogRecord, value: object, said: object) -> LogFormatError:
        message = f"{shown(value)} after {shown(said)}"
        return self._fail(record, message, "one value in a log", code="setting_changes")

    def _fail(
        self, record: MllogRecord, message: str, expected: str, *, code: str = "bad_setting"
    ) -> LogFormatError:
        return LogFormatError(
            message,
            file=self._file,
            line=record.line(),
            field=record.key,
            expected=expected,
            code=code,
        )
