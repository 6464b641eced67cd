"""`finishline convert`: run logs from what other tools wrote, and hostile files."""

import base64
import json
import struct

import pytest

from finishline.rules.benchmarks.benchmark import load_benchmark
from finishline.rules.logs import parse_run_log
from finishline.rules.logs.source_tfevents import masked_crc32c
from tests.conftest import BENCHMARKS

# Written by torch.utils.tensorboard with tensorboard 2.21: val/acc and loss at steps 1 to 3, at
# 1790000002.5, 1790000005 and 1790000007.5.
EVENTS = base64.b64decode(
    "SAAAAAAAAAD+kkidCaYWsSRgwdpBGg1icmFpbi5FdmVudDoyUi4KLHRlbnNvcmJvYXJkLnN1bW1hcnkud3JpdGVyLmV2"
    "ZW50X2ZpbGVfd3JpdGVyx11gSR0AAAAAAAAAYC/fIwkAAKDgTqzaQRABKhAKDgoHdmFsL2FjYxUAAAA/58f8tBoAAAAA"
    "AAAAEpvYLQkAAKDgTqzaQRABKg0KCwoEbG9zcxUAAIA/ly8IAx0AAAAAAAAAYC/fIwkAAEDhTqzaQRACKhAKDgoHdmFs"
    "L2FjYxUAAGA/C9cS1RoAAAAAAAAAEpvYLQkAAEDhTqzaQRACKg0KCwoEbG9zcxUAAAA/7TbOPx0AAAAAAAAAYC/fIwkA"
    "AODhTqzaQRADKhAKDgoHdmFsL2FjYxUAAHw/CQ3QihoAAAAAAAAAEpvYLQkAAODhTqzaQRADKg0KCwoEbG9zcxWrqqo+"
    "QFJtvA=="
)
STATE = {
    "epoch": 2.0,
    "log_history": [
        {"epoch": 0.5, "loss": 1.5, "learning_rate": 0.01, "step": 10},
        {"epoch": 1.0, "eval_accuracy": 0.9, "eval_loss": 0.4, "at": 105.0, "step": 20},
        {"epoch": 2.0, "eval_accuracy": 0.98, "eval_loss": 0.1, "at": 110.0, "step": 40},
        {"epoch": 2.0, "train_runtime": 12.5, "step": 40},
    ],
}


def convert(finishline, kind, file, *options):
    out = str(file.parent / "out")
    return finishline(
        "convert", "--from", kind, str(file), "--benchmark", "digits", "--out", out, *options
    )


def written(file, number=0):
    benchmark = load_benchmark(BENCHMARKS / "digits.toml")
    path = file.parent / "out" / f"run_{number}.log"
    return parse_run_log(path.read_bytes(), name=path.name, benchmark=benchmark)


def curve(run):
    return [(each.epoch, each.seconds, each.quality) for each in run.evaluations]


@pytest.fixture
def events(tmp_path):
    path = tmp_path / "events.out.tfevents.1790000000.host"
    path.write_bytes(EVENTS)
    return path


@pytest.fixture
def refused(finishline, tmp_path):
    def run(kind, content, *options):
        file = tmp_path / "table"
        file.write_bytes(content)
        ran = convert(finishline, kind, file, *options)
        assert (ran.code, (tmp_path / "out").exists()) == (1, False)
        return ran.err

    return run


def record(content, *, length=None):
    length = struct.pack("<Q", len(content) if length is None else length)
    return (
        length
        + struct.pack("<I", masked_crc32c(length))
        + content
        + struct.pack("<I", masked_crc32c(content))
    )


def scalar(tag, value, *, step, seconds, tensor=False):
    """A record with an Event of one scalar; TensorFlow 2 has it in a tensor."""
    if tensor:
        inner = b"\x08\x02\x12\x00\x22\x08" + struct.pack("<d", value)
        told = b"\x42" + bytes([len(inner)]) + inner
    else:
        told = b"\x15" + struct.pack("<f", value)
    one = b"\x0a" + bytes([len(tag)]) + tag.encode() + told
    summary = b"\x0a" + bytes([len(one)]) + one
    event = b"\x09" + struct.pack("<d", seconds) + b"\x10" + bytes([step])
    return record(event + b"\x2a" + bytes([len(summary)]) + summary)


@pytest.mark.parametrize(
    ("content", "checksum"),
    [(b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (bytes(range(32)), 0x46DD794E)],
)
def test_checksums_are_castagnolis(content, checksum):
    """Source: RFC 3720, appendix B.4, and the check value of the catalogue of CRCs."""
    masked = (checksum >> 15 | checksum << 17) + 0xA282EAD8
    assert masked_crc32c(content) == masked & 0xFFFFFFFF


def test_event_files_of_tensorboard_are_read(finishline, events):
    options = ("--quality", "val/acc", "--scale", "100", "--seed", "7", "--start", "1790000000")
    ran = convert(finishline, "tfevents", events, *options, "--json")
    assert ran.code == 0, ran.err
    assert ran.json()["unknown"] == ["run_stop"]
    run = written(events)
    assert curve(run) == [(1, 2.5, 50.0), (2, 5.0, 87.5), (3, 7.5, 98.4375)]
    assert (run.seed, run.benchmark, run.status) == (7, "digits", None)
    convert(finishline, "tfevents", events, *options)  # A further file is the next run.
    assert curve(written(events, 1)) == curve(run)


def test_an_unknown_start_is_said_and_none_is_written(finishline, events):
    ran = convert(finishline, "tfevents", events, "--quality", "val/acc", "--json")
    assert (ran.code, {"run_start", "seed"} <= set(ran.json()["unknown"])) == (0, True)
    log = (events.parent / "out" / "run_0.log").read_text()
    assert [log.count(key) for key in ("eval_accuracy", "run_start", "run_stop")] == [3, 0, 0]


def test_tensors_are_scalars_too_and_a_tag_tells_the_epoch(finishline, tmp_path):
    file = tmp_path / "events"
    file.write_bytes(
        scalar("epoch", 4.0, step=90, seconds=10.0)
        + scalar("acc", 96.5, step=90, seconds=10.5, tensor=True)
    )
    assert convert(finishline, "tfevents", file, "--start", "10").code == 0
    assert curve(written(file)) == [(4, 0.5, 96.5)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (EVENTS[:-1], "record 7: cut off"),
        (EVENTS[:5], "record 1: cut off"),
        (EVENTS[:100] + b"\xff" + EVENTS[101:], "record 2: wrong checksum"),
        (b"\xff" * 64, "record 1: wrong checksum of the length"),
        (record(b"", length=2**63)[:12], "record 1: 9,223,372,036,854,775,808 bytes"),
        (record(b"", length=2**20)[:12] + b"x", "record 1: cut off"),
        (record(b"\x2a\xff\xff\xff\x7f"), "ends beyond its message"),
        (record(b"\xff" * 30), "a number without an end"),
        (record(b"\x0b\x00"), "kind 3"),
        (record(b"\x09\x00"), "ends beyond"),
        (b"", "no number at all"),
        (record(b""), "no number at all"),
        (scalar("acc", float("nan"), step=3, seconds=1.0), "field acc: got nan at step 3"),
        (scalar("acc", 9.0, step=3, seconds=-1.0), "field wall_time: got -1.0 at step 3"),
    ],
)
def test_hostile_event_files_are_refused_in_a_sentence(refused, content, said):
    assert said in refused("tfevents", content)


def test_event_files_of_one_folder_are_one_resumed_training(finishline, tmp_path):
    """It stopped after step 4 and went on from step 3. The names are not in the files' order."""

    def write(folder, name, first, values):
        (tmp_path / folder).mkdir(exist_ok=True)
        other = scalar("start", 1.0, step=0, seconds=first)  # Each file has it.
        steps = (scalar("acc", v, step=s, seconds=first + s) for s, v in values.items())
        (tmp_path / folder / name).write_bytes(other + b"".join(steps))

    write("one", "events.out.tfevents.9.host", 10.0, {1: 50.0, 2: 60.0, 3: 70.0, 4: 80.0})
    write("one", "events.out.tfevents.10.host", 100.0, {3: 71.0, 5: 98.0})
    write("two", "events.out.tfevents.9.host", 10.0, {1: 55.0})
    options = ("--quality", "acc", "--start", "10", "--seed", "7", "--json")
    ran = convert(finishline, "tfevents", tmp_path / "one", str(tmp_path / "two"), *options)
    assert ran.code == 0, ran.err
    assert [each["evaluations"] for each in ran.json()["logs"]] == [4, 1]
    resumed = [(1, 1, 50), (2, 2, 60), (3, 93, 71), (5, 95, 98)]
    assert curve(written(tmp_path / "one")) == resumed
    assert [written(tmp_path / "one", number).seed for number in (0, 1)] == [7, 8]
    (tmp_path / "none").mkdir()
    assert "no event file" in convert(finishline, "tfevents", tmp_path / "none").err


def test_large_records_are_passed_over_and_many_events_are_read(finishline, tmp_path):
    file = tmp_path / "events"
    picture = bytearray(record(b"\x2a" + b"\x00" * 2**20))
    one = scalar("acc", 96.5, step=3, seconds=10.5)
    file.write_bytes(bytes(picture) + one * 20_000)
    ran = convert(finishline, "tfevents", file, "--json")
    assert ran.code == 0, ran.err
    assert ran.json()["evaluations"] == 20_000


def test_a_trainers_state_is_read_where_a_field_has_the_time(finishline, refused, tmp_path):
    state = json.dumps(STATE).encode()
    assert "time unknown" in refused("trainer_state", state, "--quality", "eval_accuracy")
    file = tmp_path / "trainer_state.json"
    file.write_bytes(state)
    options = ("--quality", "eval_accuracy", "--scale", "100", "--time", "at", "--start", "100")
    assert convert(finishline, "trainer_state", file, *options).code == 0
    assert curve(written(file)) == [(1, 5.0, 90.0), (2, 10.0, 98.0)]


DATES = (
    "epoch,Acc,wall,lr\n"
    "1,0.5,2026-11-24T12:00:05Z,0.1\n"
    "2,,2026-11-24T12:00:07Z,0.1\n"
    "3,0.98,2026-11-24T12:00:09Z,0.1\n"
)
TABLE = "epoch,time,acc\n1,10,0.5\n2,20.5,0.98\n"
HALF = [(1, 10, 50), (2, 20.5, 98)]


def renamed(*names):
    return ",".join(names) + TABLE.removeprefix("epoch,time,acc")


def test_dates_are_times_and_rows_without_a_quality_are_passed_over(finishline, tmp_path):
    file = tmp_path / "log.csv"
    file.write_bytes(b"\xef\xbb\xbf" + DATES.replace("\n", "\r\n").encode())
    options = ("--quality", "Acc", "--scale", "100", "--time", "wall")
    ran = convert(finishline, "csv", file, *options, "--start", "2026-11-24T12:00:00")
    assert ran.code == 0, ran.err
    assert curve(written(file)) == [(1, 5.0, 50.0), (3, 9.0, 98.0)]


# A table, options in place of --time time, and the curve.
TABLES = {
    "commas": (TABLE, (), HALF),
    "semicolons, decimal commas": (TABLE.replace(",", ";").replace(".", ","), (), HALF),
    "semicolons, decimal points": (TABLE.replace(",", ";"), (), HALF),
    "tabs": (TABLE.replace(",", "\t"), (), HALF),
    "bars": (TABLE.replace(",", " | "), (), HALF),
    "colons": (TABLE.replace(",", ":"), (), HALF),
    "units of ASCII": (TABLE.replace(",", "\x1f"), (), HALF),
    "spaces": (TABLE.replace(",", "   "), (), HALF),
    "spaces of numpy.savetxt": ("# " + TABLE.replace(",", " "), (), HALF),
    "separator stated": ("sep=;\n" + TABLE.replace(",", ";"), (), HALF),
    "names in quotes": (TABLE.replace("time", '"t; in; s"'), ("--time", "t; in; s"), HALF),
    "comma at each end": (TABLE.replace("\n", ",\n"), (), HALF),
    "another column twice": (
        "lr,epoch,lr,time,acc\n1,1,2,10,0.5\n1,2,3,20.5,0.98\n", (), HALF
    ),
    "time missing without a quality": (TABLE + "3,later,\n4,,\n", (), HALF),
    "global_step": (renamed("global_step", "time", "acc"), (), HALF),
    "_step": (renamed("_step", "time", "acc"), (), HALF),
    "name of a Trainer": (renamed("train/global_step", "time", "acc"), (), HALF),
    "capital": (renamed("Step", "time", "acc"), (), HALF),
    "own step": (renamed("n", "time", "acc"), ("--step", "n"), HALF),
    "own epoch": (renamed("n", "time", "acc"), ("--epoch", "n"), HALF),
    "step before an epoch": (
        "epoch,step,time,acc\n1,10,10,0.5\n,20,20,0.9\n", ("--step", "step"),
        [(10, 10, 50), (20, 20, 90)],
    ),
    "epoch at the step": (
        "epoch,step,time,acc\n1,10,,\n,10,10,0.5\n2,20,,\n,20,20.5,0.98\n", (), HALF
    ),
    "evaluation before the training": (
        TABLE.replace("\n1", "\n0,0,0.1\n1", 1), (), [(0, 0, 10), *HALF]
    ),
    "from 0": (
        TABLE.replace("\n1", "\n0").replace("\n2", "\n1"), ("--first-epoch", "1"), HALF
    ),
    "from 0 without an evaluation at it": (
        "epoch,time,acc\n0,5,\n1,20,0.9\n", ("--first-epoch", "1"), [(2, 20, 90)]
    ),
    "milliseconds": (
        renamed("epoch", "time_ms", "acc"), ("--time", "time_ms", "--time-scale", "0.001"),
        [(1, 0.01, 50), (2, 0.0205, 98)],
    ),
    "hours that are seconds": (
        renamed("epoch", "hours", "acc"), ("--time", "hours", "--time-scale", "1"), HALF
    ),
    "smallest time": (renamed("epoch", "min_time", "acc"), ("--time", "min_time"), HALF),
    "day with a date": (
        "epoch,day,acc\n1,1970-01-01T00:00:10,0.5\n2,1970-01-01T00:00:20.5,0.98\n",
        ("--time", "day"), HALF,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("content", "options", "expected"), TABLES.values(), ids=TABLES)
def test_a_table_is_read_by_its_columns(finishline, tmp_path, content, options, expected):
    file = tmp_path / "log.csv"
    file.write_text(content)
    given = ("--quality", "acc", "--scale", "100", "--start", "0", "--time", "time", *options)
    ran = convert(finishline, "csv", file, *given, "--json")
    assert ran.code == 0, ran.err
    assert ran.json()["unknown"] == ["run_stop", "seed"]
    found = curve(written(file))
    assert found == [pytest.approx(each) for each in expected]


@pytest.mark.parametrize(
    ("content", "options"),
    [
        ("epoch,time,acc\n0,10,90\n1,20,98\n", ()),
        ("step,time,acc\n0,10,90\n1,20,98\n", ()),
        ("epoch,time,acc\n0,10,90\n1,20,98\n", ("--start", "9")),
        ("epoch,time,acc\n0,,\n1,20,98\n", ()),
    ],
)
def test_a_file_that_counts_from_0_is_said(finishline, tmp_path, content, options):
    file = tmp_path / "log.csv"
    file.write_text(content)
    ran = convert(finishline, "csv", file, "--time", "time", *options)
    assert (ran.code, "--first-epoch 1" in ran.out) == (0, True)


SCALED = ("--quality", "a", "--time", "t", "--scale", "100")


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        (DATES, ("--quality", "Acc"), "time unknown"),
        (DATES, ("--quality", "Acc", "--time", "walll"), "did you mean 'wall'"),
        (DATES, ("--quality", "acc", "--time", "wall"), "did you mean 'Acc'"),
        (DATES, ("--time", "wall"), "chosen with --quality from Acc, lr"),
        (DATES.replace("2026-11-24T12:00:09Z", "later"), ("--quality", "Acc", "--time", "wall"),
         "line 4, field wall: got 'later'"),
        (DATES, ("--quality", "Acc", "--time", "wall", "--step", "n"), "expected --step with one"),
        ("epoch,a,t\n1,5,9\n2,6,8\n", SCALED, "line 3, field t: the times go back"),
        ("epoch,a,t\n1,5,\n", SCALED, "line 2, field t: an empty cell"),
        ("a,t\n1,5\n", SCALED, "expected --epoch or --step with one of a, t"),
        ("epoch,a,t\n1,5,9\n", (*SCALED, "--start", "10"), "--start"),
        ("epoch,a,t\n1,5,9\n2,n/a,9\n", SCALED, "line 3, field a: got 'n/a'"),
        ("epoch,a,b,t\n1,5,word,9\n2,n/a,,9\n", ("--time", "t"), "line 3, field a: got 'n/a'"),
        ("epoch,a,b,t\n1,5,nan,9\n2,NaN,1,9\n", SCALED, "table line 3, field a: got 'NaN'"),
        ("epoch,a,t\n1,5,9\n2,inf,9\n", ("--time", "t"), "table line 3, field a: got 'inf'"),
        ("epoch,a,t\n-1,90,5\n", SCALED, "field epoch: got '-1'"),
        ("epoch,a,t\n1,90,1790000000000\n", SCALED, "field t: got '1790000000000'; expected sec"),
        ("epoch,a,t\n1,90,1790000000000\n", SCALED, "--time-scale 0.001 for milliseconds"),
        ("epoch,a,t\n1,1e307,5\n", SCALED, "field a: got inf"),
        ("epoch,a,t\n1,,5\n", SCALED, "no evaluation; expected a number in 'a'"),
        ("epoch,a,t,a\n1,1,5,2\n", SCALED, "line 1, field a: a column twice"),
        ("epoch,a,t, t\n1,1,5,2\n", SCALED, "line 1, field t: a column twice"),
        ("epoch,a,t,epoch\n1,1,5,2\n", SCALED, "line 1, field epoch: a column twice"),
        ("_step,a,t,_step\n1,1,5,2\n", SCALED, "line 1, field _step: a column twice"),
        ("epoch,step,a,t\n1,9,50,5\n,18,60,6\n", SCALED, "line 3, field epoch: an evaluation wit"),
        ("epoch,step,a,t\n1,9,50,5\n,18,60,6\n", SCALED, "or --step step to count all by steps"),
        ("epoch,a,t\n1,1,5,5\n", SCALED, "line 2: 4 cells; expected 3"),
        ('epoch,a,t\n1,5,"10,5"\n', SCALED, "got '10,5'; expected seconds from 0 to 1e+11, such"),
        ("epoch;a;t\n1;1.000,5;5\n", SCALED, "field a: got '1.000,5'"),
        ("epoch;a;t\n1;0.5;1,000\n", SCALED, "field t: got '1,000'; expected either decimal poi"),
        ("epoch/a/t\n1/2/3\n", SCALED, "1 column: epoch/a/t; expected a header of 2"),
        ('{"epoch": 1, "a": 1, "t": 2}\n', SCALED, "line 1: JSON; expected a header"),
        ('{"log": "epoch,a,t\\n", "stream": "stdout"}\n', SCALED, "in the field 'log'"),
        ("\ufeffepoch,a,t\n1,2,3\n".encode("utf-16-le"), SCALED, "UTF-16; save it as UTF-8"),
        ("epoch,ms,a\n1,5,9\n", ("--time", "ms"), "expected --time-scale 0.001"),
        ("epoch,elapsedMs,a\n1,5,9\n", ("--time", "elapsedMs"), "expected --time-scale 0.001"),
        ("epoch,time (min),a\n1,5,9\n", ("--time", "time (min)"), "expected --time-scale 60"),
        ("epoch,hours_run,a\n1,5,9\n", ("--time", "hours_run"), "expected --time-scale 3600"),
        ("epoch,t_us,a\n1,5,9\n", ("--time", "t_us"), "expected --time-scale 1e-06"),
        ("", ("--time", "t"), "empty"),
        ("\ufeff", ("--time", "t"), "0 columns"),
        (",".join("x" * 1001), (), "1,001 columns"),
    ],
)  # fmt: skip
def test_a_table_that_does_not_tell_is_refused_in_a_sentence(refused, content, options, said):
    content = content if isinstance(content, bytes) else content.encode()
    answer = refused("csv", content, *options)
    assert (said in answer, "\0" in answer) == (True, False), answer


def test_one_wrong_file_of_several_leaves_no_log(finishline, tmp_path):
    for name, content in (("a.csv", TABLE), ("b.csv", "epoch,time,acc\n1,x,5\n")):
        (tmp_path / name).write_text(content)
    ran = convert(finishline, "csv", tmp_path / "a.csv", str(tmp_path / "b.csv"), "--time", "time")
    assert (ran.code, "b.csv line 2" in ran.err, (tmp_path / "out").exists()) == (1, True, False)


@pytest.mark.parametrize("content", ["[]", "{", '{"log_history": [1]}', '{"log_history": {}}'])
def test_another_json_is_no_trainers_state(refused, content):
    refused("trainer_state", content.encode())


def test_wrong_usage_is_said(finishline, tmp_path):
    file = tmp_path / "log.csv"
    assert convert(finishline, "csv", file).code == 1
    file.write_text(TABLE)
    seeds = ("--seed", str(2**63 - 1))
    assert convert(finishline, "csv", file, str(file), *seeds).code == 2
    assert convert(finishline, "csv", file, "--start", "noon").code == 2
    assert convert(finishline, "tsv", file).code == 2
    for scale in ("nan", "0", "-1"):
        assert convert(finishline, "csv", file, "--scale", scale).code == 2
        assert convert(finishline, "csv", file, "--time-scale", scale).code == 2
