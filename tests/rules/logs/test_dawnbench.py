"""DAWNBench curves: what the real archive holds must import, what would mislead must not."""

from collections.abc import Callable

import pytest

from finishline.rules.errors import LogFormatError
from finishline.rules.logs.dawnbench import parse_curve, refuse_missing_partner
from finishline.rules.scoring.run import Evaluation, Run

ParseCurve = Callable[[bytes], Run]
HEADER = b"epoch\thours\ttop1Accuracy\n"


def refused(parse: ParseCurve, content: bytes) -> LogFormatError:
    with pytest.raises(LogFormatError) as caught:
        parse(content)
    assert caught.value.file == "curve.tsv"
    assert caught.value.expected
    return caught.value


def test_hours_become_seconds_at_full_precision(parse_percent_curve: ParseCurve) -> None:
    """The first two rows of davidcpage_resnet9_1v100-ec2_pytorch.tsv."""
    run = parse_percent_curve(HEADER + b"1\t0.00152249\t34.69\n2\t0.00234980\t74.55\n")
    assert run.evaluations == (
        Evaluation(1.0, 0.00152249 * 3600, 34.69, line=2),
        Evaluation(2.0, 0.00234980 * 3600, 74.55, line=3),
    )
    assert (run.clock, run.status, run.stop_seconds) == ("dawnbench", None, None)
    assert (run.name, run.ledger) == ("curve.tsv", None)


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfepoch\thours\ttop1Accuracy\n1\t0.5\t94.0\n",
        b"epoch\thours\ttop1Accuracy\r\n1\t0.5\t94.0\r\n",
        b"epoch\thours\ttop1Accuracy\n1\t0.5\t94.0",
        b"epoch\thours\ttop1Accuracy\n1\t0.5\t94.0\n\n \t \r\n\n",
        b" epoch\thours \ttop1Accuracy\n 1 \t0.5\t  94.0 \n",
        b"top1Accuracy\tepoch\thours\n94.0\t1\t0.5\n",
        b"epoch\thours\ttop1Accuracy\n1.0\t5e-1\t+94.\n",
    ],
    ids=["BOM", "CRLF", "no final newline", "blank lines", "spaces", "any order", "numbers"],
)
def test_what_the_archive_holds_imports(parse_percent_curve: ParseCurve, content: bytes) -> None:
    assert parse_percent_curve(content).evaluations == (Evaluation(1.0, 1800.0, 94.0, line=2),)


def test_epochs_may_be_fractions_start_at_zero_and_repeat(parse_percent_curve: ParseCurve) -> None:
    run = parse_percent_curve(HEADER + b"0\t0\t10\n1.00096\t0.1\t20\n1.00096\t0.1\t20\n")
    assert [evaluation.epoch for evaluation in run.evaluations] == [0.0, 1.00096, 1.00096]
    assert run.evaluations[0].seconds == 0.0


def test_curves_may_fall_and_never_reach_the_target(parse_percent_curve: ParseCurve) -> None:
    run = parse_percent_curve(HEADER + b"1\t0.1\t94.0\n2\t0.2\t93.1\n3\t0.3\t0.5\n")
    assert [evaluation.quality for evaluation in run.evaluations] == [94.0, 93.1, 0.5]


@pytest.mark.parametrize(
    ("metric", "unit", "content", "quality"),
    [
        ("top5Accuracy", "percent", "epoch\thours\ttop1Accuracy\ttop5Accuracy\n1\t1\t75\t93\n", 93),
        ("f1Score", "fraction", "epoch\thours\tf1Score\n1\t1\t0.75\n", 0.75),
        ("f1Score", "fraction", "epoch\thours\tf1Score\n1\t1\t0.001\n2\t2\t1\n", 0.001),
    ],
)
def test_each_metric_has_its_columns(metric: str, unit: str, content: str, quality: float) -> None:
    run = parse_curve(content.encode(), name="curve.tsv", metric=metric, unit=unit)
    assert run.evaluations[0].quality == quality


@pytest.mark.parametrize(
    "header",
    [
        b"epochs\thours\ttop1Accuracy",
        b"epoch\thours\ttop1Accuracy\t",
        b"epoch\thours\ttop1Accuracy\ttop5Accuracy",
        b"epoch\thours\tf1Score",
        b"epoch\thours",
        b"epoch\thours\thours",
        b"epoch\thours\ttop1Accuracy\thours",
        b"epoch hours top1Accuracy",
        b"epoch\t\thours\ttop1Accuracy",
        b"1\t0.5\t94.0",
        b"",
    ],
)
def test_any_other_header_is_refused(parse_percent_curve: ParseCurve, header: bytes) -> None:
    error = refused(parse_percent_curve, header + b"\n1\t0.5\t94.0\n")
    assert (error.line, error.field) == (1, "header")
    assert error.expected == "epoch, hours, top1Accuracy, in any order, with a tab between"


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (b"2\t\t0.6\t94", None),
        (b"2\t0.6", None),
        (b"2 0.6 94.0", None),
        (b"", None),
        (b"2\t\t94.0", "hours"),
        (b"2\tNA\t94.0", "hours"),
        (b'2\t"0.6"\t94.0', "hours"),
        (b"2\tnan\t94.0", "hours"),
        (b"2\tinf\t94.0", "hours"),
        (b"2\t1e999\t94.0", "hours"),
        (b"2\t1e99\t94.0", "hours"),
        (b"2\t-0.6\t94.0", "hours"),
        (b"2\t0,6\t94.0", "hours"),
        (b"2\t0_6\t94.0", "hours"),
        (b"2\t0.4\t94.0", "hours"),
        (b"-2\t0.6\t94.0", "epoch"),
        ("\u0662\t0.6\t94.0".encode(), "epoch"),
        (b"2\t0.6\tNaN", "top1Accuracy"),
        (b"2\t0.6\t100.01", "top1Accuracy"),
        (b"2\t0.6\t\xff", None),
    ],
)
def test_a_broken_row_is_refused_with_its_line(
    parse_percent_curve: ParseCurve, row: bytes, field: str | None
) -> None:
    error = refused(parse_percent_curve, HEADER + b"1\t0.5\t93\n" + row + b"\n3\t0.7\t94.0\n")
    assert (error.line, error.field) == (3, field)


def test_decreasing_hours_are_named(parse_percent_curve: ParseCurve) -> None:
    error = refused(parse_percent_curve, HEADER + b"1\t0.42\t93\n2\t0.40\t94\n")
    assert error.message == "hours went from 0.42 to 0.4"
    assert str(error).startswith("curve.tsv line 3, field hours: ")


def test_a_header_alone_is_refused(parse_percent_curve: ParseCurve) -> None:
    assert refused(parse_percent_curve, HEADER + b"\n").message == "no rows below the header"


def test_fractions_are_refused_where_percent_is_the_rule(parse_percent_curve: ParseCurve) -> None:
    error = refused(parse_percent_curve, HEADER + b"1\t0.1\t0.41\n2\t0.2\t0.941\n3\t0.3\t0.9\n")
    assert (error.line, error.field) == (3, "top1Accuracy")
    assert "fractions where percent is the rule" in error.message


def test_percent_is_refused_where_a_fraction_is_the_rule() -> None:
    content = b"epoch\thours\tf1Score\n1\t1\t0.7\n2\t2\t75.1\n3\t3\t80\n"
    with pytest.raises(LogFormatError) as caught:
        parse_curve(content, name="curve.tsv", metric="f1Score", unit="fraction")
    assert (caught.value.line, caught.value.expected) == (3, "a fraction from 0 to 1")


def test_a_metric_dawnbench_does_not_have_is_refused() -> None:
    with pytest.raises(LogFormatError, match="no curve of loss"):
        parse_curve(HEADER, name="curve.tsv", metric="loss", unit="nats/byte")


def test_long_lines_and_many_rows_are_refused(parse_percent_curve: ParseCurve) -> None:
    assert refused(parse_percent_curve, HEADER + b"1\t" * 20_000).line == 2
    assert refused(parse_percent_curve, HEADER + b"1\t0.5\t94\n" * 100_001).expected == (
        "at most 100,000 lines"
    )


@pytest.mark.parametrize(
    ("names", "alone"),
    [
        (["a.json"], "a.json"),
        (["a.tsv"], "a.tsv"),
        (["x/a.json", "y/a.tsv"], "x/a.json"),
        (["a.json", "a.tsv", "b.tsv"], "b.tsv"),
    ],
)
def test_a_file_without_its_partner_is_refused(names: list[str], alone: str) -> None:
    with pytest.raises(LogFormatError, match="a JSON and a TSV of the same name") as caught:
        refuse_missing_partner(names)
    assert caught.value.file == alone


def test_pairs_and_inference_entries_are_complete() -> None:
    refuse_missing_partner(["x/a.json", "x/a.tsv", "README.md"])
    refuse_missing_partner(["a.json"], kind="inference")
