"""An atheris target: any bytes as the files of an archive, with no exception but a record.

`pip install atheris; python fuzz/score_archives.py -max_total_time=600 -max_len=8192` runs for ten
minutes. The first byte chooses what the rest is: a log in a package, a log by itself, or the JSON
and the TSV of a DAWNBench entry. A hang is what takes longer than -timeout=10.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import atheris

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))

with atheris.instrument_imports(include=["finishline.rules"]):
    from finishline.rules.archive.files import Archive, ArchiveFile
    from finishline.rules.archive.score import Reader, find_scorable, score_submission
    from finishline.rules.benchmarks.benchmark import load_benchmarks

DEFINITIONS = load_benchmarks(CHECKOUT / "benchmarks")
SYSTEM = b'{"division": "closed", "submitter": "ACME"}'
SET = "ACME/results/big"


def files_of(content: bytes) -> dict[str, bytes]:
    """The files of an archive made of some bytes."""
    kind, rest = content[0] % 6, content[1:]
    if kind == 0:
        return {f"{SET}/llama2_70b_lora/result_0.txt": rest, "ACME/systems/big.json": SYSTEM}
    if kind == 1:
        half = len(rest) // 2
        return {
            f"v0.5.0/{SET}/resnet/result_0.txt": rest[:half],
            f"v0.5.0/{SET}/resnet/result_1.txt": rest[half:],
            f"v0.5.0/{SET}/entry.json": rest[:half],
        }
    if kind == 2:
        return {"run.log": rest}
    if kind == 3:
        return {f"{SET}/rgat/result_0.txt": rest, "ACME/systems/big.json": rest,
                f"{SET}/rgat/scaling.json": rest}  # fmt: skip
    entry, _, curve = rest.partition(b"\x00")
    task, where = ("CIFAR10", "train") if kind == 4 else ("SQuAD", "inference")
    return {f"{task}/{where}/x.json": entry, f"{task}/{where}/x.tsv": curve}


def score_any(content: bytes) -> None:
    """Score an archive made of some bytes; every record can be written."""
    if not content:
        return
    contents = {("/", *path.split("/")): text for path, text in files_of(content).items()}

    def read(file: ArchiveFile, size: int) -> Iterator[bytes]:
        text = contents[file.place]
        return (text[i : i + size] for i in range(0, len(text), size))

    listed = [ArchiveFile("/".join(place[1:]), place, len(t)) for place, t in contents.items()]
    found = find_scorable(Archive(listed, read))
    reader = Reader(found, DEFINITIONS)
    for each in found.submissions:
        record = score_submission(each, reader)
        json.dumps(record, allow_nan=False)


if __name__ == "__main__":
    atheris.Setup(sys.argv, score_any)
    atheris.Fuzz()
