"""Small records of a speedrun, in the form of modded-nanogpt's."""

# What the script prints and shows is no evaluation.
SOURCE = (
    'print0(f"step:{step}/{steps} val_loss:{val_loss:.4f} train_time:{ms:.0f}ms")\n'
    "# One line of an earlier run, for example:\n"
    "step:9999/9999 val_loss:1.0000 train_time:1ms step_avg:1ms\n" + "=" * 100 + "\n"
)
README = """
| # | Record time | Description | Date | Log | Contributors |
| - | - | - | - | - | - |
1 | 1.40 minutes | [First of all](https://example.org/1) | 03/06/26 | [log](records/track_1_short/2026-03-06_First/a0.txt),[PR](https://example.org/2) | @ann, @ben
2 | 1.23 minutes | Smaller steps | 07/17/26 | [log](records/track_1_short/2026-07-17_Second/this_pr/b0.txt) | @carl
"""  # noqa: E501 - a table's line
LOSSES = (3.2785, 3.2779, 3.2791, 3.2782, 3.2788)


def step_log(loss, milliseconds, *, stop=1385):
    rows = [(0, 10.8, 0), (stop // 2, 4.1, milliseconds // 2), (stop, loss, milliseconds)]
    return SOURCE + "".join(
        f"step:{step}/{stop} val_loss:{loss:.4f} train_time:{ms}ms step_avg:57.55ms\n"
        for step, loss, ms in rows
    )


def write_runs(folder, losses=LOSSES, *, first_ms=84_000, stop=1385, name="a"):
    """A folder with the logs of runs, each 100 ms longer than the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, loss in enumerate(losses):
        log = step_log(loss, first_ms + 100 * number, stop=stop)
        (folder / f"{name}{number}.txt").write_text(log)
    return folder


def write_records(root):
    root.mkdir(exist_ok=True)
    (root / "README.md").write_text(README)
    track = root / "records" / "track_1_short"
    write_runs(track / "2026-03-06_First")
    second = track / "2026-07-17_Second"
    write_runs(second / "this_pr", first_ms=74_000, stop=1375, name="b")
    write_runs(second / "baseline", [3.2799, 3.2805, 3.2796], first_ms=80_000, name="c")
    write_runs(track / "2026-07-20_Alone", [3.2701], first_ms=70_000, name="d")
    (second / "this_pr" / "stderr.txt").write_text("a warning of a library\n")
    return root
