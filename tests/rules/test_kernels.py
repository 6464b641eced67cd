"""Lists of kernels: FLOPs counted by hand, and wrong numbers named with file, table and field."""

import pytest

from finishline.rules.errors import RuleError
from worker.machine.kernel_list import read_kernels

HEAD = 'schema = 1\nprecisions = ["fp32"]\npasses = ["forward", "backward"]\n'
CONVOLUTION = {"n": 2, "c": 3, "h": 9, "w": 7, "k": 5, "r": 3, "s": 2, "padding": 1, "stride": 2}


def table(kind, numbers, head=HEAD):
    lines = [f"{name} = {value}" for name, value in numbers.items()]
    return "\n".join([head, f"[[{kind}]]", *lines]).encode()


@pytest.mark.parametrize(
    ("kind", "numbers", "multiply_adds"),
    [
        ("gemm", {"m": 2, "n": 3, "k": 5}, 2 * 3 * 5),
        # Padded 11 x 9: 5 rows of 3 fit at a stride of 2, and 4 columns of 2.
        ("convolution", CONVOLUTION, 2 * 5 * (5 * 4) * (3 * 3 * 2)),
        # Four gates and three, each with a matrix for the input and one for the hidden state.
        ("lstm", {"hidden": 8, "batch": 3, "steps": 7}, 7 * 3 * 4 * (8 * 8 + 8 * 8)),
        ("gru", {"hidden": 8, "batch": 3, "steps": 7}, 7 * 3 * 3 * (8 * 8 + 8 * 8)),
        # Scores and their product with the values, whole though a causal kernel skips half.
        (
            "attention",
            {"batch": 2, "heads": 3, "query": 4, "key": 6, "head_dim": 5, "causal": "true"},
            2 * 3 * (4 * 6 * 5 + 4 * 6 * 5),
        ),
    ],
)
def test_flops_are_those_counted_by_hand(kind, numbers, multiply_adds):
    forward, backward = read_kernels(table(kind, numbers), file="own.toml")
    assert (forward.direction, backward.direction) == ("forward", "backward")
    assert forward.flops == 2 * multiply_adds
    assert backward.flops == 2 * forward.flops


def test_messages_and_launches_have_no_flops_and_one_pass():
    content = table("copy", {"bytes": 64}) + b"\n[[launch]]\n[[all_reduce]]\nbytes = 64\n"
    found = read_kernels(content + b"processes = 4", file="own.toml")
    assert [(one.kind, one.direction, one.flops, one.bytes_moved) for one in found] == [
        ("copy", "forward", None, 128), ("all_reduce", "forward", None, 96),
        ("launch", "forward", None, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (table("gemm", {"m": 0, "n": 3, "k": 5}), "field gemm[0].m: got 0"),
        (table("gemm", {"m": 1.5, "n": 3, "k": 5}), "field gemm[0].m: got 1.5"),
        (table("lstm", {"hidden": "true", "batch": 1, "steps": 1}), "field lstm[0].hidden"),
        (table("gru", {"hidden": 4, "batch": 1}), "field gru[0].steps: missing"),
        (table("gemm", {"m": 1, "n": 3, "k": 5, "l": 2}), "field gemm[0].l: unknown field"),
        (table("convolution", CONVOLUTION | {"r": 12}), "field convolution[0].r: got 12"),
        (table("convolution", CONVOLUTION | {"stride": 0}), "field convolution[0].stride"),
        (table("all_reduce", {"bytes": 8, "processes": 1}), "field all_reduce[0].processes"),
        (table("sort", {"n": 8}), "field sort: unknown field"),
        (HEAD.encode(), "no kernel"),
        (table("launch", {}, HEAD.replace("fp32", "fp4")), "field precisions: unknown value 'fp4'"),
        (table("launch", {}, HEAD.replace("backward", "up")), "field passes: unknown value 'up'"),
        (table("launch", {}, HEAD.replace("= 1", "= 2")), "field schema: got 2"),
    ],
)
def test_a_wrong_number_names_file_table_and_field(content, named):
    with pytest.raises(RuleError) as caught:
        read_kernels(content, file="own.toml")
    assert str(caught.value).startswith("own.toml, field ")
    assert named in str(caught.value)
