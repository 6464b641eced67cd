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
    """Converts a content that is refused; what is said."""

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
        (EVENTS[:-1], "record 7 is cut off"),
        (EVENTS[:5], "record 1 is cut off"),
        (EVENTS[:100] + b"\xff" + EVENTS[101:], "wrong checksum"),
        (b"\xff" * 64, "wrong checksum of the length"),
        (record(b"", length=2**63)[:12], "9,223,372,036,854,775,808 bytes"),
        (record(b"", length=2**20)[:12] + b"x", "record 1 is cut off"),
        (record(b"\x2a\xff\xff\xff\x7f"), "ends beyond its message"),
        (record(b"\xff" * 30), "a number without an end"),
        (record(b"\x0b\x00"), "kind 3"),
        (record(b"\x09\x00"), "ends beyond"),
        (b"", "no number at all"),
        (record(b""), "no number at all"),
        (scalar("acc", float("nan"), step=3, seconds=1.0), "field acc: got nan at step 3"),
    ],
)
def test_hostile_event_files_are_refused_in_a_sentence(refused, content, said):
    assert said in refused("tfevents", content)


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


TABLE = (
    "epoch,Acc,wall,lr\n"
    "1,0.5,2026-11-24T12:00:05Z,0.1\n"
    "2,,2026-11-24T12:00:07Z,0.1\n"
    "3,0.98,2026-11-24T12:00:09Z,0.1\n"
)


def test_a_table_is_read_by_its_columns(finishline, tmp_path):
    file = tmp_path / "log.csv"
    file.write_bytes(b"\xef\xbb\xbf" + TABLE.replace("\n", "\r\n").encode())
    options = ("--quality", "Acc", "--scale", "100", "--time", "wall")
    ran = convert(finishline, "csv", file, *options, "--start", "2026-11-24T12:00:00")
    assert ran.code == 0, ran.err
    assert curve(written(file)) == [(1, 5.0, 50.0), (3, 9.0, 98.0)]


SCALED = ("--quality", "a", "--time", "t", "--scale", "100")


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        (TABLE, ("--quality", "Acc"), "time unknown"),
        (TABLE, ("--quality", "Acc", "--time", "walll"), "time unknown"),
        (TABLE, ("--quality", "acc", "--time", "wall"), "did you mean 'Acc'"),
        (TABLE, ("--time", "wall"), "chosen with --quality from Acc, lr"),
        (TABLE.replace("2026-11-24T12:00:09Z", "later"), ("--quality", "Acc", "--time", "wall"),
         "line 4, field wall: 'later' is no time"),
        ("epoch,a,t\n1,5,9\n2,6,8\n", ("--quality", "a", "--time", "t"), "the times go back"),
        ("a,t\n1,5\n", ("--quality", "a", "--time", "t"), "without an epoch"),
        ("epoch,a,t\n1,5,9\n", ("--quality", "a", "--time", "t", "--start", "10"), "--start"),
        ("epoch,a,t\n1,5,9\n2,n/a,9\n", ("--quality", "a", "--time", "t"),
         "line 3, field a: 'n/a' is no number"),
        ("epoch,a,b,t\n1,5,word,9\n2,n/a,,9\n", ("--time", "t"),
         "line 3, field a: 'n/a' is no number"),
        ("epoch,a,b,t\n1,5,nan,9\n2,NaN,1,9\n", ("--quality", "a", "--time", "t"),
         "table line 3, field a: got nan"),
        ("epoch,a,t\n1,5,9\n2,inf,9\n", ("--time", "t"), "table line 3, field a: got inf"),
        ("epoch,a,t\n-1,90,5\n", SCALED, "field epoch: got -1"),
        ("epoch,a,t\n1,90,1e300\n", SCALED, "field time: got 1e+300"),
        ("epoch,a,t\n1,1e307,5\n", SCALED, "field a: got inf"),
        ("", ("--time", "t"), "columns"),
        ("a\n" + "x" * 200_000, (), "a cell of 200,000 characters"),
    ],
)  # fmt: skip
def test_a_table_that_does_not_tell_is_refused_in_a_sentence(refused, content, options, said):
    assert said in refused("csv", content.encode(), *options)


@pytest.mark.parametrize("content", ["[]", "{", '{"log_history": [1]}', '{"log_history": {}}'])
def test_another_json_is_no_trainers_state(refused, content):
    refused("trainer_state", content.encode())


def test_wrong_usage_is_said(finishline, tmp_path):
    file = tmp_path / "log.csv"
    assert convert(finishline, "csv", file).code == 1
    file.write_text(TABLE)
    assert convert(finishline, "csv", file, "--start", "noon").code == 2
    assert convert(finishline, "tsv", file).code == 2
    for scale in ("nan", "0", "-1"):
        assert convert(finishline, "csv", file, "--scale", scale).code == 2
