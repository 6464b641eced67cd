"""Formats of logs, the lines they consist of, and logs of several metrics."""

import bz2
import gzip
import io
import json
import lzma
import time
import tracemalloc
import zipfile

import pytest

from finishline.rules.archive.definitions import shipped_definition
from finishline.rules.errors import LogFormatError
from finishline.rules.logs import check_file_name, mllog_lines
from finishline.rules.logs.mllog import read_mllog_chunks
from finishline.rules.logs.mllog_lines import (
    MLLOG_MARK,
    every_line,
    lines_that_count,
    read_mllog,
)
from finishline.rules.logs.text import (
    MAX_DEPTH,
    MAX_FILE_BYTES,
    MAX_LINE_BYTES,
    parse_json,
    refuse_long_lines,
    refuse_repeated_keys,
    whole_line_blocks,
)


def zipped(content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run_0.log", content)
    return buffer.getvalue()


def test_a_tsv_is_a_dawnbench_curve_and_anything_else_an_mlperf_log(parse, good_log):
    tsv = "epoch\thours\ttop1Accuracy\n1\t0.5\t94.2\n"
    assert parse(tsv, name="Curve.TSV").clock == "dawnbench"
    assert parse(good_log, name="result_0.txt").clock == "mlperf"
    with pytest.raises(LogFormatError, match="no run_start"):
        parse(tsv, name="curve.txt")


@pytest.mark.parametrize("content", [b"", b"\n \n\r\n", b"\t"])
def test_an_empty_log_is_refused(parse, content):
    with pytest.raises(LogFormatError, match=r"run_0.log: an empty log; expected one training run"):
        parse(content)


@pytest.mark.parametrize(
    ("kind", "compress"),
    [("gzip", gzip.compress), ("zip", zipped), ("xz", lzma.compress), ("bzip2", bz2.compress)],
)
@pytest.mark.parametrize("name", ["run_0.log", "curve.tsv"])
def test_compressed_bytes_are_refused_by_content(parse, good_log, kind, compress, name):
    with pytest.raises(LogFormatError) as caught:
        parse(compress(good_log.encode()), name=name)
    assert caught.value.message == f"{kind} compressed; send plain text"
    assert caught.value.file == name


def test_zstandard_bytes_are_refused(parse):
    """Magic number of RFC 8878, section 3.1.1."""
    with pytest.raises(LogFormatError, match="zstd compressed"):
        parse((0xFD2FB528).to_bytes(4, "little") + b"\x04\x00\x01")


def test_a_file_beyond_the_limit_is_refused_unread(parse):
    with pytest.raises(LogFormatError, match="expected at most 67,108,864 bytes"):
        parse(b"x" * (MAX_FILE_BYTES + 1))


@pytest.mark.parametrize(
    "name",
    ["run_0.log", "ORG/results/1xV100/resnet/result_0.txt", "Lauf 1 (é).log", "a..b", "x" * 200],
)
def test_ordinary_names_pass(name):
    check_file_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../run_0.log", "leaves its folder"),
        ("logs/../../run_0.log", "leaves its folder"),
        ("./run_0.log", "leaves its folder"),
        ("logs//run_0.log", "leaves its folder"),
        ("logs/", "leaves its folder"),
        ("/etc/passwd", "absolute"),
        ("C:/run_0.log", "absolute"),
        ("..\\run_0.log", "backslash"),
        ("run_0.log\x00.txt", "control characters"),
        ("run\n_0.log", "control characters"),
        ("gol.0_nur\u202e", "control characters"),
        ("", "empty"),
        (" ", "empty"),
        ("x" * 201, "201 characters"),
    ],
)
def test_unsafe_names_are_refused(name, reason):
    with pytest.raises(LogFormatError, match=reason) as caught:
        check_file_name(name)
    assert caught.value.field == "file name"
    assert str(caught.value).isprintable()


def test_a_log_with_an_unsafe_name_is_refused_unread(parse):
    with pytest.raises(LogFormatError, match="leaves its folder"):
        parse(b"", name="../run_0.log")


def nested(levels):
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize(
    "text", [b"NaN", b"[Infinity]", b'{"a": -Infinity}', b"1e999", b"{oops", b"{} x", b"", b"\x00"]
)
def test_what_is_no_json_is_refused_with_its_line(text):
    with pytest.raises(LogFormatError, match="broken JSON") as caught:
        parse_json(text, file="f", line=7)
    assert (caught.value.file, caught.value.line) == ("f", 7)


def test_a_whole_file_names_the_line_that_is_broken():
    with pytest.raises(LogFormatError, match="f line 3:"):
        parse_json(b'{\n "a": 1,\n "b": oops\n}', file="f")


def test_bytes_that_are_not_utf8_are_replaced():
    assert parse_json(b'{"a": "caf\xe9"}', file="f") == {"a": "caf\ufffd"}


def test_nesting_is_allowed_to_the_limit_and_no_further():
    parse_json(nested(MAX_DEPTH), file="f")
    for levels in (MAX_DEPTH + 1, 900, 100_000):
        with pytest.raises(LogFormatError):
            parse_json(nested(levels), file="f")


def test_brackets_side_by_side_are_not_deep():
    parse_json(b"[" + b"[],{}," * 500 + b"[]]", file="f")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (b'{"key": 1, "value": 2, "key": 3}', "key"),
        (b'{"key": 1, "\\u006bey": 3}', "key"),
        (b'{"a": {"status": 1, "b": "x\\"", "status" : 2}}', "status"),
        (b'[{"a": ":", ":": 1, "a": 2}]', "a"),
        (b'{"v": "\xff", "v": 1}', "v"),
    ],
)
def test_a_key_twice_in_one_object_is_refused(text, key):
    with pytest.raises(LogFormatError, match="2 times") as caught:
        refuse_repeated_keys(text, file="f", line=4)
    assert (caught.value.field, caught.value.line) == (key, 4)


@pytest.mark.parametrize(
    "text",
    [
        b'{"key": {"key": 1}, "value": [{"key": 1}, {"key": 2}]}',
        b'{"key": "\\"key\\": 1", "b": "key"}',
        b'{"n": 123456789012345678901234567890}',
        b"[]",
    ],
)
def test_the_same_key_in_two_objects_is_fine(text):
    refuse_repeated_keys(text, file="f")


MEBIBYTE = 1024 * 1024


def record_line(key="seed", value="1"):
    return (
        b':::MLLOG {"namespace": "", "time_ms": 1700000000000, "event_type": "POINT_IN_TIME", '
        b'"key": "%b", "value": %b, "metadata": {"lineno": 1}}' % (key.encode(), value.encode())
    )


def read(*chunks, counted=False):
    """The records in some chunks, and what was reported."""
    problems = []
    keys = frozenset({"seed", "run_stop"})
    lines = lines_that_count(keys) if counted else every_line()
    records = read_mllog(chunks, file="f", lines=lines, counted_keys=keys, report=problems.append)
    return list(records), problems


def test_a_mark_is_found_anywhere_in_a_line_and_numbered_from_one():
    content = b"\n0: %b\r\nnoise\n \xff%b\n%b" % (record_line(), record_line(), record_line())
    records, problems = read(content)
    assert ([record.line() for record in records], problems) == ([2, 4, 5], [])


def test_a_carriage_return_ends_a_line():
    """Progress bars write over themselves; the published checker reads their parts as lines."""
    records, problems = read(b"10 %%\r%b\r20 %%\n" % record_line())
    assert (len(records), problems) == (1, [])


def test_a_carriage_return_does_not_hide_a_line_that_counts():
    """What stands behind it could make the line look like one of no use."""
    short = b'"key":"seed","value":1,"time_ms":1,"metadata":{}}'
    behind = b'"POINT_IN_TIME", "key": "note"}'
    content = b":::MLLOG {%b%b%b" % (short, b"\r".ljust(57 - len(short)), behind)
    assert content.index(behind) == len(b":::MLLOG {") + 57

    found, problems = read(content, counted=True)

    assert ([record.key for record in found], problems) == (["seed"], [])


def test_a_second_mark_in_a_line_belongs_to_the_first():
    records, problems = read(record_line("note", '":::MLLOG {}"') + b"\n" + record_line())
    assert ([record.line() for record in records], problems) == ([1, 2], [])


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_lines_are_the_same_however_the_file_is_cut(size):
    content = b"x\n%b\r\n\n%b\n%b" % (record_line(), b"y" * 300, record_line("run_stop"))
    chunks = [content[i : i + size] for i in range(0, len(content), size)]
    records, problems = read(*chunks)
    assert [(record.key, record.line()) for record in records] == [("seed", 2), ("run_stop", 5)]
    assert problems == []


def test_lines_of_no_use_are_passed_over_unread():
    content = record_line("tracked_stats", '{"loss": NaN}') + b"\n" + record_line()
    records, problems = read(content, counted=True)
    assert ([record.key for record in records], problems) == (["seed"], [])
    assert [problem.line for problem in read(content)[1]] == [1]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_that_count_are_the_same_whatever_ends_a_line(end):
    keys = ("seed", "tracked_stats", "run_stop")
    records, problems = read(end.join(map(record_line, keys)), counted=True)
    assert [record.key for record in records] == ["seed", "run_stop"]
    assert problems == []


@pytest.mark.parametrize("key", ["seed2", "see", "run_stopped", "stop", "x"])
def test_a_key_that_is_only_like_one_that_counts_is_of_no_use(key):
    content = record_line(key, "NaN") + b"\n" + record_line()
    records, problems = read(content, counted=True)
    assert ([record.key for record in records], problems) == (["seed"], [])


@pytest.mark.parametrize("key", ["tracked_st", "seed"])
def test_a_line_that_breaks_off_in_its_key_is_reported(key):
    broken = record_line(key).partition(b'", "value"')[0]
    records, [problem] = read(broken + b"\n" + record_line(), counted=True)
    assert ([record.key for record in records], problem.line) == (["seed"], 1)


def test_a_line_that_counts_is_found_behind_one_of_no_use():
    """Ranks that write at once leave out the end of a line."""
    records, problems = read(record_line("tracked_stats") + record_line("run_stop"), counted=True)
    assert ([record.key for record in records], problems) == (["run_stop"], [])


@pytest.mark.parametrize("mark", [b"::MLLOG", b":::MLPLLOG", b"LLOG"])
@pytest.mark.parametrize("counted", [True, False])
def test_what_only_ends_like_the_mark_is_none(mark, counted):
    content = record_line("run_stop").replace(MLLOG_MARK, mark)
    assert read(content, counted=counted) == ([], [])


@pytest.mark.parametrize(
    "line",
    [
        b':::MLLOG {"key":"run_stop","time_ms":1,"value":null,"metadata":{}}',
        b':::MLLOG {"time_ms": 1, "key": "run_stop"}',
        record_line("run_stop").replace(b'"event_type"', b'"rank": 1, "event_type"'),
        record_line("run_stop").replace(b"1700000000000", b"17"),
        record_line("run_stop").replace(b"run_", b"run\\u005f"),
    ],
)
def test_a_line_that_counts_cannot_hide_in_another_spelling(line):
    records, problems = read(line, counted=True)
    assert ([record.key for record in records], problems) == (["run_stop"], [])


@pytest.mark.parametrize(
    "line", [b":::MLLOG [1]", b":::MLLOG 1", b":::MLLOG {oops", b':::MLLOG {"time_ms": 1}']
)
def test_a_broken_line_is_reported_even_among_lines_of_no_use(line):
    records, [problem] = read(b"\n" + line + b"\n" + record_line(), counted=True)
    assert len(records) == 1
    assert (problem.file, problem.line) == ("f", 2)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (record_line().replace(b'{"lineno": 1}', b'""'), "bad_line"),
        (record_line(value="[" * 40 + "]" * 40), "deep_json"),
    ],
)
def test_a_line_that_counts_may_not_have_an_odd_form(line, code):
    records, [problem] = read(line, counted=True)
    assert (records, problem.code) == ([], code)


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
    monkeypatch.setattr(mllog_lines, "MAX_MLLOG_LINES", 3)
    assert read((record_line() + b"\n") * 3)[1] == []
    records, [problem] = read((record_line() + b"\n") * 5)
    assert (len(records), problem.line) == (3, 4)


def chunks_of(size, *, line):
    chunk = line * (MEBIBYTE // len(line))
    return (chunk for _ in range(size))


@pytest.mark.parametrize(
    "line", [b"x" * MEBIBYTE, b":::MLLO", MLLOG_MARK, b"x\r", record_line("tracked_stats") + b"\n"]
)
def test_memory_stays_small_whatever_the_size_of_a_log_or_of_a_line(line):
    tracemalloc.start()
    records = 0
    for block in whole_line_blocks(chunks_of(64, line=line), mark=MLLOG_MARK):
        records += len(block.content)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * MEBIBYTE


def near_marks(size):
    line = b":::MLLO" * (MAX_LINE_BYTES // 7) + b"\n"
    return line * (size // len(line))


def short_lines(size):
    return b"\n:::MLLO" * (size // 8)


def one_line(size):
    return b"x" * size


def marks(size):
    return b":::MLLOG " * (size // 9)


def one_marked_line(size):
    return b':::MLLOG {"key": "' + b"A" * size


@pytest.mark.parametrize("build", [near_marks, short_lines, one_line, marks, one_marked_line])
@pytest.mark.parametrize("counted", [True, False])
def test_reading_time_grows_with_the_size_not_with_its_square(build, counted):
    def cpu_seconds(size):
        content = build(size)
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


def line(key, time_ms, value=None, **metadata):
    table = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key,
             "value": value, "metadata": metadata}  # fmt: skip
    return f":::MLLOG {json.dumps(table)}\n"


def measured(metric, value, samples, time_ms):
    return line("eval_accuracy", time_ms, value, samples_count=samples, metric=metric)


HEAD = line("submission_benchmark", 0, "stable_diffusion") + line("run_start", 100_000)


STOP = line("run_stop", STOP_MS, status="success")


EVALUATIONS = (
    measured("FID", 96.7, 1024, 600_000)
    + measured("CLIP", 0.147, 1024, 610_000)
    + measured("FID", 88.5, 2048, 700_000)
    + measured("CLIP", 0.161, 2048, 720_000)
)


@pytest.fixture(scope="module")
def stable_diffusion():
    """The definition that is shipped."""
    return shipped_definition("mlperf-v4.1-stable_diffusion")


def read_run(log, benchmark):
    problems = []
    reading = read_mllog_chunks(
        [log.encode()],
        name="r",
        allowed={},
        report=problems.append,
        detail="last",
        target=benchmark.target,
    )
    return reading, problems


def test_the_lines_of_one_moment_are_one_evaluation(stable_diffusion):
    reading, problems = read_run(HEAD + EVALUATIONS + STOP, stable_diffusion)
    told = [(e.samples, e.quality, e.others, e.seconds) for e in reading.run.evaluations]
    assert told == [(1024, 96.7, {"CLIP": 0.147}, 510.0), (2048, 88.5, {"CLIP": 0.161}, 620.0)]
    assert (reading.evaluations, problems) == (2, [])


def test_a_run_may_stop_before_its_checkpoints_are_measured(stable_diffusion):
    """Source: training_rules.adoc: "evaluation is done offline, the time is not counted"."""
    reading, problems = read_run(HEAD + EVALUATIONS + STOP, stable_diffusion)
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


def test_an_evaluation_without_the_main_metric_is_reported_and_one_without_others_kept(
    stable_diffusion,
):
    log = HEAD + measured("CLIP", 0.2, 1024, 1) + measured("FID", 80.0, 2048, 2) + STOP
    reading, [problem] = read_run(log, stable_diffusion)
    assert (problem.line, problem.message) == (3, "no FID")
    [kept] = reading.run.evaluations
    assert not stable_diffusion.target.is_reached_at(kept)
