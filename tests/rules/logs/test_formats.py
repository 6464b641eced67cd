"""Formats of logs, the lines they consist of, and logs of several metrics."""

import bz2
import json
import lzma
import time
import tracemalloc
from contextlib import nullcontext

import pytest

from finishline.rules.archive.definitions import shipped_definition
from finishline.rules.errors import LogFormatError
from finishline.rules.logs import check_file_name
from finishline.rules.logs import lines as log_lines
from finishline.rules.logs.lines import MLLOG, read_lines, whole_line_blocks
from finishline.rules.logs.mllog import read_log
from finishline.rules.logs.text import (
    MAX_DEPTH,
    MAX_FILE_BYTES,
    MAX_LINE_BYTES,
    parse_json,
    refuse_long_lines,
    refuse_repeated_keys,
)
from tests.support.archive_folders import make_line


def wrapped(log, field):
    lines = log.decode().splitlines(keepends=True)
    return "\n".join(json.dumps({"n": 1, field: line}) for line in lines).encode()


def test_a_tsv_is_a_dawnbench_curve_and_anything_else_an_mlperf_log(parse, good_log):
    tsv = "epoch\thours\ttop1Accuracy\n1\t0.5\t94.2\n"
    assert parse(tsv, name="Curve.TSV").clock == "dawnbench"
    assert parse(good_log, name="result_0.txt").clock == "mlperf"
    with pytest.raises(LogFormatError, match="no run_start"):
        parse(tsv, name="curve.txt")


WITHIN = "each line is inside "
# The mark of zstd is of RFC 8878, section 3.1.1.
BYTES = {
    "tab": (lambda _: b"\t", "empty_log", "an empty log"),
    "xz": (lzma.compress, "compressed", "xz compressed; send plain text"),
    "bzip2": (bz2.compress, "compressed", "bzip2 compressed; send plain text"),
    "zstd": (lambda _: b"\x28\xb5\x2f\xfd\x04\x00\x01", "compressed", "zstd compressed"),
    "large": (lambda _: b"x" * (MAX_FILE_BYTES + 1), None, "67,108,865 bytes"),
    "UTF-16": (lambda log: log.decode().encode("utf-16-be"), "not_utf8", "UTF-16; save it as"),
    "UTF-32": (lambda log: log.decode().encode("utf-32"), "not_utf8", "UTF-32; save it as UTF-8"),
    "cloud": (lambda log: wrapped(log, "textPayload"), "wrapped", f"{WITHIN}JSON, in the field 't"),
    "nested": (lambda log: json.dumps([{"a": log.decode()}]).encode(), "wrapped", f"{WITHIN}JSON"),
    "CSV": (lambda log: b't,"' + log.replace(b'"', b'""') + b'"', "wrapped", f"{WITHIN}CSV"),
    "docker without a mark": (
        lambda _: b'{"log": "epoch hours", "stream": "stdout"}', "wrapped", f"{WITHIN}JSON"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "code", "message"), BYTES.values(), ids=BYTES)
@pytest.mark.parametrize("name", ["run_0.log", "curve.tsv"])
def test_bytes_that_are_no_text_are_refused_by_content(parse, good_log, make, code, message, name):
    with pytest.raises(LogFormatError) as caught:
        parse(make(good_log.encode()), name=name)
    assert (caught.value.file, caught.value.code) == (name, code)
    assert caught.value.message.startswith(message)


def test_json_lines_of_a_trainer_are_not_called_wrapped(parse):
    with pytest.raises(LogFormatError) as caught:
        parse(b'{"event": "eval", "step": 120, "val_acc": 0.913}\n', name="run_0.log")
    assert caught.value.code != "wrapped"


@pytest.mark.parametrize(
    "change",
    [
        lambda log: b"\xef\xbb\xbf" + log,
        lambda log: b'{"log": "start", "message": "x"}\n' + log,
        lambda log: b"2026-11-24T12:00:00.0Z stdout F " + log.replace(b"\n", b"\n2026 stdout F "),
        lambda log: bytes(4096) + b"\n" + log,
        lambda log: "日本語のログ\n".encode() * 50 + log,
    ],
    ids=["mark", "JSON above", "prefix of Kubernetes", "zeros", "Japanese"],
)
def test_a_log_among_other_lines_is_read(parse, good_log, change):
    expected = parse(good_log, name="run_0.log").evaluations
    found = parse(change(good_log.encode()), name="run_0.log").evaluations
    assert [each.quality for each in found] == [each.quality for each in expected]


@pytest.mark.parametrize(
    "name",
    ["run_0.log", "ORG/results/1xV100/resnet/result_0.txt", "Lauf 1 (é).log", "a..b", "x" * 200],
)
def test_ordinary_names_pass(name):
    check_file_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("logs/../../run_0.log", "leaves its folder"), ("./run_0.log", "leaves its folder"),
        ("logs//run_0.log", "leaves its folder"), ("logs/", "leaves its folder"),
        ("..\\run_0.log", "backslash"), ("run_0.log\x00.txt", "control characters"),
        ("run\n_0.log", "control characters"), ("gol.0_nur\u202e", "control characters"),
        ("", "empty"), (" ", "empty"),
    ],
)  # fmt: skip
def test_unsafe_names_are_refused(name, reason):
    with pytest.raises(LogFormatError, match=reason) as caught:
        check_file_name(name)
    assert caught.value.field == "file name"
    assert str(caught.value).isprintable()


def test_a_log_with_an_unsafe_name_is_refused_unread(parse):
    with pytest.raises(LogFormatError, match="leaves its folder"):
        parse(b"", name="../run_0.log")


@pytest.mark.parametrize(
    "text", [b"NaN", b"[Infinity]", b'{"a": -Infinity}', b"1e999", b"{oops", b"{} x", b"", b"\x00"]
)
def test_what_is_no_json_is_refused_with_its_line(text):
    with pytest.raises(LogFormatError, match="broken JSON") as caught:
        parse_json(text, file="f")
    assert (caught.value.file, caught.value.line) == ("f", 1)


def test_a_whole_file_names_the_line_that_is_broken():
    with pytest.raises(LogFormatError, match="f line 3:"):
        parse_json(b'{\n "a": 1,\n "b": oops\n}', file="f")
    # Bytes that are not UTF-8 are replaced.
    assert parse_json(b'{"a": "caf\xe9"}', file="f") == {"a": "caf\ufffd"}


def test_nesting_is_allowed_to_the_limit_and_no_further():
    for levels in (MAX_DEPTH, MAX_DEPTH + 1, 900, 100_000):
        with nullcontext() if levels == MAX_DEPTH else pytest.raises(LogFormatError):
            parse_json(b"[" * levels + b"]" * levels, file="f")
    # Brackets side by side are not deep.
    parse_json(b"[" + b"[],{}," * 500 + b"[]]", file="f")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (b'{"key": 1, "value": 2, "key": 3}', "key"),
        (b'{"key": 1, "\\u006bey": 3}', "key"),
        (b'{"a": {"status": 1, "b": "x\\"", "status" : 2}}', "status"),
        (b'[{"a": ":", ":": 1, "a": 2}]', "a"),
        (b'{"v": "\xff", "v": 1}', "v"),
        (b'{"key": {"key": 1}, "value": [{"key": 1}, {"key": 2}]}', None),
        (b'{"key": "\\"key\\": 1", "b": "key"}', None),
        (b'{"n": 123456789012345678901234567890}', None),
        (b"[]", None),
    ],
)
def test_a_key_twice_in_one_object_is_refused(text, key):
    if key is None:
        refuse_repeated_keys(text, file="f")
        return
    with pytest.raises(LogFormatError, match="2 times") as caught:
        refuse_repeated_keys(text, file="f")
    assert (caught.value.field, caught.value.file) == (key, "f")


MEBIBYTE = 1024 * 1024


def record_line(key="seed", value="1"):
    return (
        b':::MLLOG {"namespace": "", "time_ms": 1700000000000, "event_type": "POINT_IN_TIME", '
        b'"key": "%b", "value": %b, "metadata": {"lineno": 1}}' % (key.encode(), value.encode())
    )


def read(*chunks, counted=False):
    problems = []
    records = read_lines(
        chunks,
        MLLOG,
        file="f",
        wanted=frozenset({"seed", "run_stop"}) if counted else None,
        report=lambda problem, text: problems.append(problem),
    )
    return list(records), problems


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"\n0: %b\r\nnoise\n \xff%b\n%b" % ((record_line(),) * 3), [2, 4, 5]),
        # Progress bars write over themselves; the published checker reads their parts as lines.
        (b"10 %%\r%b\r20 %%\n" % record_line(), [1]),
        # Ranks that write at once leave out the end of a line.
        (record_line() + record_line() + b"\n", [1, 1]),
    ],
)
def test_a_mark_is_found_anywhere_in_a_line_and_numbered_from_one(content, lines):
    records, problems = read(content)
    assert ([record.line for record in records], problems) == (lines, [])


def test_a_carriage_return_does_not_hide_a_line_that_counts():
    """What stands behind it could make the line look like one of no use."""
    short = b'"key":"seed","value":1,"time_ms":1,"metadata":{}}'
    behind = b'"POINT_IN_TIME", "key": "note"}'
    content = b":::MLLOG {%b%b%b" % (short, b"\r".ljust(57 - len(short)), behind)
    assert content.index(behind) == len(b":::MLLOG {") + 57

    found, problems = read(content, counted=True)

    assert ([record.key for record in found], problems) == (["seed"], [])


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_lines_are_the_same_however_the_file_is_cut(size):
    content = b"x\n%b\r\n\n%b\n%b" % (record_line(), b"y" * 300, record_line("run_stop"))
    chunks = [content[i : i + size] for i in range(0, len(content), size)]
    records, problems = read(*chunks)
    assert [(record.key, record.line) for record in records] == [("seed", 2), ("run_stop", 5)]
    assert problems == []


SEED, STOPPED = record_line(), record_line("run_stop")
THREE = (SEED, record_line("tracked_stats"), STOPPED)


@pytest.mark.parametrize(
    ("content", "keys", "problems"),
    [
        # Lines of no use are passed over, also those whose key is like one that counts.
        *(
            (record_line(key, value) + b"\n" + SEED, ["seed"], [])
            for key in ("seed2", "see", "run_stopped", "stop", "x")
            for value in ("null", "-0.5e-7", '"a b"', "{}", '{"loss": 1.5, "step": 2}')
        ),
        # They are told where they are broken.
        *(
            (record_line("tracked_stats", value) + b"\n" + SEED, ["seed"], [code])
            for value, code in (
                ("nullACME/train.py", "bad_json"),
                ('{"loss": 1.5,}', "bad_json"),
                ("1.", "bad_json"),
                *((zero, "bad_json") for zero in ("05", "-05", " 05", "[05]", "[5, 05]")),
                ('"a', "bad_json"),
                ('"\t"', "bad_json"),
                ("{'loss': 1}", "bad_json"),
                ("", "bad_json"),
                ("NaN", "not_finite"),
                ('{"loss": 1e400}', "not_finite"),
            )
        ),
        *((end.join(THREE), ["seed", "run_stop"], []) for end in (b"\n", b"\r\n", b"\r")),
        # Ranks that write at once leave out the end of a line.
        (record_line("tracked_stats") + STOPPED, ["run_stop"], []),
        # A line that counts cannot hide in another spelling.
        (b':::MLLOG {"key":"run_stop","time_ms":1,"value":null,"metadata":{}}', ["run_stop"], []),
        (b':::MLLOG {"time_ms": 1, "key": "run_stop"}', ["run_stop"], []),
        (STOPPED.replace(b'"event_type"', b'"rank": 1, "event_type"'), ["run_stop"], []),
        (STOPPED.replace(b"1700000000000", b"17"), ["run_stop"], []),
        (STOPPED.replace(b"run_", b"run\\u005f"), ["run_stop"], []),
        # Broken lines are told, also among lines of no use.
        *(
            (record_line(key).partition(b'", "value"')[0] + b"\n" + SEED, ["seed"], ["bad_json"])
            for key in ("tracked_st", "seed")
        ),
        (b":::MLLOG [1]\n" + SEED, ["seed"], ["bad_line"]),
        (b":::MLLOG 1\n" + SEED, ["seed"], ["bad_line"]),
        (b":::MLLOG {oops\n" + SEED, ["seed"], ["bad_json"]),
        (b':::MLLOG {"time_ms": 1}\n' + SEED, ["seed"], ["bad_line"]),
        (SEED.replace(b'{"lineno": 1}', b'""'), [], ["bad_line"]),
        (record_line(value="[" * 40 + "]" * 40), [], ["deep_json"]),
    ],
)
def test_lines_that_count_are_read_and_broken_ones_are_told(content, keys, problems):
    records, found = read(content, counted=True)
    assert [record.key for record in records] == keys
    assert [(p.file, p.line, p.code) for p in found] == [("f", 1, code) for code in problems]


@pytest.mark.parametrize("mark", [b"::MLLOG", b":::MLPLLOG", b"LLOG"])
@pytest.mark.parametrize("counted", [True, False])
def test_what_only_ends_like_the_mark_is_none(mark, counted):
    assert read(STOPPED.replace(MLLOG.mark, mark), counted=counted) == ([], [])


@pytest.mark.parametrize("length", [9, 10])
def test_a_line_at_the_limit_passes(length):
    refuse_long_lines(b"ab\n" + b"x" * length + b"\nab", file="f", limit=10)


@pytest.mark.parametrize("tail", [b"", b"\n", b"\nab\n"])
def test_a_line_one_byte_over_the_limit_is_refused_with_its_number(tail):
    with pytest.raises(LogFormatError) as caught:
        refuse_long_lines(b"ab\n\nab\n" + b"x" * 11 + tail, file="f", limit=10)
    assert caught.value.line == 4


def test_a_long_mllog_line_is_reported_and_the_rest_is_read():
    long = record_line("note", '"' + "A" * 60_000 + '"')
    records, [problem] = read(b"%b\n%b\n%b\n" % (record_line(), long, record_line()))
    assert len(records) == 2
    assert (problem.line, problem.code) == (2, "long_line")


def test_the_number_of_mllog_lines_is_limited(monkeypatch):
    monkeypatch.setattr(log_lines, "MAX_MLLOG_LINES", 3)
    assert read((record_line() + b"\n") * 3)[1] == []
    records, [problem] = read((record_line() + b"\n") * 5)
    assert (len(records), problem.line) == (3, 4)


def chunks_of(size, *, line):
    chunk = line * (MEBIBYTE // len(line))
    return (chunk for _ in range(size))


@pytest.mark.parametrize(
    "line", [b"x" * MEBIBYTE, b":::MLLO", MLLOG.mark, b"x\r", record_line("tracked_stats") + b"\n"]
)
def test_memory_stays_small_whatever_the_size_of_a_log_or_of_a_line(line):
    tracemalloc.start()
    records = 0
    for block in whole_line_blocks(chunks_of(64, line=line), mark=MLLOG.mark):
        records += len(block)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * MEBIBYTE


NEAR_MARKS = b":::MLLO" * (MAX_LINE_BYTES // 7) + b"\n"


@pytest.mark.parametrize(
    ("first", "repeated"),
    [
        (b"", NEAR_MARKS),
        (b"", b"\n:::MLLO"),
        (b"", b"x"),
        (b"", b":::MLLOG "),
        (b':::MLLOG {"key": "', b"A"),
    ],
    ids=["near marks", "short lines", "one line", "marks", "one marked line"],
)
@pytest.mark.parametrize("counted", [True, False])
def test_reading_time_grows_with_the_size_not_with_its_square(first, repeated, counted):
    def cpu_seconds(size):
        content = first + repeated * (size // len(repeated))
        pieces = [content[i : i + MEBIBYTE] for i in range(0, len(content), MEBIBYTE)]
        best = float("inf")
        for _ in range(3):
            started = time.process_time()
            read(*pieces, counted=counted)
            best = min(best, time.process_time() - started)
        return best

    small, large = cpu_seconds(2 * MEBIBYTE), cpu_seconds(16 * MEBIBYTE)
    assert large < 24 * small + 0.01  # Eight times the size; its square would be 64 times.


STOP_MS = 400_000


def measured(metric, value, samples, time_ms):
    return make_line("eval_accuracy", time_ms, value, samples_count=samples, metric=metric)


HEAD = make_line("submission_benchmark", 0, "stable_diffusion") + make_line("run_start", 100_000)


STOP = make_line("run_stop", STOP_MS, status="success")


EVALUATIONS = (
    measured("FID", 96.7, 1024, 600_000)
    + measured("CLIP", 0.147, 1024, 610_000)
    + measured("FID", 88.5, 2048, 700_000)
    + measured("CLIP", 0.161, 2048, 720_000)
)


@pytest.fixture(scope="module")
def stable_diffusion():
    return shipped_definition("mlperf-v4.1-stable_diffusion")


def read_run(log, benchmark):
    problems = []
    reading = read_log(
        [log.encode()],
        MLLOG,
        name="r",
        allowed={},
        report=problems.append,
        odd=problems.append,
        target=benchmark.target,
        every_line=False,
    )
    return reading, problems


def test_the_lines_of_one_moment_are_one_evaluation_also_after_the_run(stable_diffusion):
    """Source: training_rules.adoc: "evaluation is done offline, the time is not counted"."""
    reading, problems = read_run(HEAD + EVALUATIONS + STOP, stable_diffusion)
    told = [(e.samples, e.quality, e.others, e.seconds) for e in reading.run.evaluations]
    assert told == [(1024, 96.7, {"CLIP": 0.147}, 510.0), (2048, 88.5, {"CLIP": 0.161}, 620.0)]
    assert (reading.run.stop_seconds, reading.run.status) == (300.0, "success")
    assert (reading.trusted, problems) == (True, [])


def test_checkpoints_may_be_measured_in_any_order(stable_diffusion):
    lines = EVALUATIONS.splitlines(keepends=True)
    reading, _ = read_run(HEAD + "".join(reversed(lines)) + STOP, stable_diffusion)
    assert [e.samples for e in reading.run.evaluations] == [1024, 2048]


@pytest.mark.parametrize("metric", [None, "IS", 3])
def test_a_line_of_no_known_metric_is_reported(stable_diffusion, metric):
    log = HEAD + EVALUATIONS + measured(metric, 1.0, 4096, 730_000) + STOP
    reading, [problem] = read_run(log, stable_diffusion)
    assert (problem.line, problem.field, problem.code) == (7, "metadata.metric", "missing_metric")
    assert problem.expected == "FID and CLIP of every evaluation"
    assert len(reading.run.evaluations) == 2


def test_evaluation_without_its_main_metric_is_reported(stable_diffusion):
    log = HEAD + measured("CLIP", 0.2, 1024, 1) + measured("FID", 80.0, 2048, 2) + STOP
    reading, [problem] = read_run(log, stable_diffusion)
    assert (problem.line, problem.message) == (3, "no FID")
    [kept] = reading.run.evaluations
    assert not stable_diffusion.target.is_reached_at(kept)
