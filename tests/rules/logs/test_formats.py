"""Which format a file has, which names are safe, and what is refused unread."""

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable

import pytest

from finishline.rules.errors import LogFormatError
from finishline.rules.logs import check_file_name
from finishline.rules.logs.text import MAX_FILE_BYTES
from finishline.rules.scoring.run import Run


def zipped(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run_0.log", content)
    return buffer.getvalue()


def test_a_tsv_is_a_dawnbench_curve_and_anything_else_an_mlperf_log(
    parse: Callable[..., Run], good_log: str
) -> None:
    tsv = "epoch\thours\ttop1Accuracy\n1\t0.5\t94.2\n"
    assert parse(tsv, name="Curve.TSV").clock == "dawnbench"
    assert parse(good_log, name="result_0.txt").clock == "mlperf"
    with pytest.raises(LogFormatError, match="no run_start"):
        parse(tsv, name="curve.txt")


@pytest.mark.parametrize("content", [b"", b"\n \n\r\n", b"\t"])
def test_an_empty_log_is_refused(parse: Callable[..., Run], content: bytes) -> None:
    with pytest.raises(LogFormatError, match=r"run_0.log: an empty log; expected one training run"):
        parse(content)


@pytest.mark.parametrize(
    ("kind", "compress"),
    [("gzip", gzip.compress), ("zip", zipped), ("xz", lzma.compress), ("bzip2", bz2.compress)],
)
@pytest.mark.parametrize("name", ["run_0.log", "curve.tsv"])
def test_compressed_bytes_are_refused_by_content(
    parse: Callable[..., Run],
    good_log: str,
    kind: str,
    compress: Callable[[bytes], bytes],
    name: str,
) -> None:
    with pytest.raises(LogFormatError) as caught:
        parse(compress(good_log.encode()), name=name)
    assert caught.value.message == f"{kind} compressed; send plain text"
    assert caught.value.file == name


def test_zstandard_bytes_are_refused(parse: Callable[..., Run]) -> None:
    """Magic number of RFC 8878, section 3.1.1."""
    with pytest.raises(LogFormatError, match="zstd compressed"):
        parse((0xFD2FB528).to_bytes(4, "little") + b"\x04\x00\x01")


def test_a_file_beyond_the_limit_is_refused_unread(parse: Callable[..., Run]) -> None:
    with pytest.raises(LogFormatError, match="expected at most 67,108,864 bytes"):
        parse(b"x" * (MAX_FILE_BYTES + 1))


@pytest.mark.parametrize(
    "name",
    ["run_0.log", "ORG/results/1xV100/resnet/result_0.txt", "Lauf 1 (é).log", "a..b", "x" * 200],
)
def test_ordinary_names_pass(name: str) -> None:
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
def test_unsafe_names_are_refused(name: str, reason: str) -> None:
    with pytest.raises(LogFormatError, match=reason) as caught:
        check_file_name(name)
    assert caught.value.field == "file name"
    assert str(caught.value).isprintable()


def test_a_log_with_an_unsafe_name_is_refused_unread(parse: Callable[..., Run]) -> None:
    with pytest.raises(LogFormatError, match="leaves its folder"):
        parse(b"", name="../run_0.log")
