"""Systems: their descriptions and their prices."""

import json
from contextlib import nullcontext
from dataclasses import asdict
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finishline.rules.benchmarks.prices import Price, training_cost_usd
from finishline.rules.errors import ClaimError, RuleError
from finishline.rules.submissions.claim import read_claim
from finishline.rules.submissions.descriptions import (
    REQUIRED_FIELDS,
    read_entry_system,
    read_system,
)
from finishline.rules.table import read_table
from server.base.models import PriceRow
from server.benchmarks.prices import PriceBook, price_of_system, system_price_usd_per_hour

GOOD = dict.fromkeys(REQUIRED_FIELDS, "") | {
    "submitter": "EXAMPLE",
    "division": "closed",
    "status": "Available on-premise",
    "system_name": "One node",
    "number_of_nodes": "2",
    "host_processors_per_node": 2,
    "host_processor_core_count": "64",
    "host_processor_caches": "N/A",
    "accelerators_per_node": "8",
    "accelerator_model_name": "NVIDIA H100",
    "framework": "PyTorch",
    "other_software_stack": {"cuda_version": "12.8", "python": 3.11, "notes": ""},
}


def read(**changes):
    return read_system(json.dumps(GOOD | changes).encode(), file="one.json")


def codes(description):
    return [(problem.code, problem.field) for problem in description.problems]


def test_a_good_file_is_read_with_numbers_as_text_and_text_as_numbers():
    system = read()

    assert (system.division, system.framework) == ("closed", "PyTorch")
    assert (system.number_of_nodes, system.accelerators_per_node, system.accelerators) == (2, 8, 16)
    assert system.host_processors_per_node == 2
    assert "cooling" not in system.fields, "an empty field is absent"
    assert "host_processor_caches" not in system.fields, "and so is N/A"
    assert system.fields["host_processors_per_node"] == "2"
    assert system.problems == ()


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"division": "half"}, "unknown_value", "division"),
        ({"status": "soon"}, "unknown_value", "status"),
        ({"submitter": " "}, "empty_field", "submitter"),
        ({"submitter": "Unknown"}, "empty_field", "submitter"),
        ({"number_of_nodes": "two"}, "not_a_count", "number_of_nodes"),
        ({"number_of_nodes": 0}, "not_a_count", "number_of_nodes"),
        ({"accelerators_per_node": -8}, "not_a_count", "accelerators_per_node"),
        ({"accelerators_per_node": 7.5}, "not_a_count", "accelerators_per_node"),
        ({"accelerators_per_node": 10**12}, "not_a_count", "accelerators_per_node"),
        ({"cooling": ["air"]}, "wrong_type", "cooling"),
        ({"hw_notes": "x" * 5000}, "long_field", "hw_notes"),
    ],
)
def test_what_is_wrong_is_listed_and_the_rest_is_read(changes, code, field):
    system = read(**changes)

    assert codes(system) == [(code, field)]
    assert system.problems[0].file == "one.json"
    assert system.problems[0].expected
    assert system.system_name == "One node"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"{}", [("missing_field", name) for name in REQUIRED_FIELDS]),
        (json.dumps(GOOD)[:-1].encode() + b', "division": "open"}',
         [("repeated_field", "division")]),
        (b"\xef\xbb\xbf" + json.dumps(GOOD).encode(), []),
    ],
    ids=["empty", "twice", "BOM"],
)  # fmt: skip
def test_what_a_file_lacks_or_has_twice_is_listed(content, found):
    assert codes(read_system(content, file="one.json")) == found


def test_control_characters_do_not_come_through():
    assert read(system_name="a\x1b[2Jb").system_name == "a [2Jb"


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(changes=st.dictionaries(st.sampled_from(REQUIRED_FIELDS) | st.text(), ANY_JSON))
def test_any_json_object_gives_a_description_or_a_rule_error(changes):
    try:
        system = read(**changes)
    except RuleError:
        return
    assert all(problem.code for problem in system.problems)


def test_every_published_description_is_read(archives):
    """Expected: the figures the reference tools took from the same files.

    One of 21 files has a field twice.
    """
    root = archives / "mlperf"
    for group in json.loads((root / "expected_v51.json").read_text())["groups"]:
        path = root / "v5.1" / group["org"] / "systems" / f"{group['system']}.json"
        system = read_system(path.read_bytes(), file=path.name)
        assert system.number_of_nodes == int(group["nodes"])
        assert system.accelerators_per_node == int(group["accelerators_per_node"])
        assert system.accelerator_model_name == group["accelerator"]
        assert (system.status, system.division) == (group["availability"], group["division"])
    files = sorted(root.glob("*/*/systems/*.json"))
    odd = {path.stem: codes(read_system(path.read_bytes(), file=path.name)) for path in files}
    assert len(files) == 21
    assert {name: problems for name, problems in odd.items() if problems} == {
        "1xXE7745x8RTXPro6000-PCIe-96GB": [("repeated_field", "accelerator_frequency")]
    }


NODE = {
    "num_nodes": 80, "cpu": "2x Intel(R) Xeon(R) CPU E5-2698 v4 @ 2.20GHz", "num_cores": 40,
    "num_vcpus": 80, "accelerator": "Tesla V100-SXM2-16GB", "num_accelerators": 8,
    "sys_mem_size": 512,
}  # fmt: skip


ENTRY = {
    "division": "closed", "status": "on-prem", "hardware": "DGX-1V", "framework": "MXNet",
    "os": "Ubuntu 16.04", "libraries": "cuda 10", "power": "N/A",
}  # fmt: skip


def read_entry(*nodes, **entry):
    content = json.dumps(ENTRY | {"nodes": list(nodes)} | entry).encode()
    return read_entry_system(content, file="entry.json")


def test_an_entry_is_told_in_the_words_of_later_rounds():
    system = read_entry(NODE)
    assert (system.system_name, system.division, system.framework) == ("DGX-1V", "closed", "MXNet")
    assert (system.number_of_nodes, system.accelerators_per_node) == (80, 8)
    assert (system.accelerators, system.accelerator_model_name) == (640, "Tesla V100-SXM2-16GB")
    assert system.host_processors_per_node == 2
    assert system.host_processor_model_name == "Intel(R) Xeon(R) CPU E5-2698 v4 @ 2.20GHz"
    assert system.host_memory_capacity == "512 GB"
    assert system.fields["hardware"] == "DGX-1V"
    assert (system.fields["num_accelerators"], system.problems) == ("8", ())


@pytest.mark.parametrize(
    ("nodes", "name", "count", "accelerators"),
    [
        (64, "tpuv2-512", 512, 512),
        (2, "tpuv3-32", 32, 32),
        (1, "tpuv2-8", 8, 8),
        (36, "Tesla V100-SXM3-H-32GB", 16, 576),
    ],
)
def test_a_slice_has_its_accelerators_in_all_nodes_together(nodes, name, count, accelerators):
    """Expected: what the submitters' names say of their systems."""
    node = NODE | {"num_nodes": nodes, "accelerator": name, "num_accelerators": count}
    assert read_entry(node).accelerators == accelerators


def test_a_system_without_accelerators_has_its_processors_in_its_name():
    node = NODE | {"num_nodes": 4, "cpu": "Intel(R) Xeon(R) Platinum 8180", "num_vcpus": "NA",
                   "accelerator": "NA", "num_accelerators": 0, "num_cores": 112,
                   "sys_mem_size": "768G"}  # fmt: skip
    system = read_entry(node, hardware="4-nodes 4x Intel(R) Xeon(R) Platinum 8180 processor")
    assert system.host_processors_per_node == 4
    assert (system.accelerator_model_name, system.accelerators) == (None, 0)
    assert system.host_memory_capacity == "768G"
    assert system.problems == ()


def test_nodes_of_several_kinds_are_added_up_and_keep_what_they_share():
    system = read_entry(NODE | {"num_nodes": 3}, NODE | {"num_nodes": 1, "sys_mem_size": 8})
    assert (system.number_of_nodes, system.accelerators) == (4, 32)
    assert (system.host_memory_capacity, system.host_processors_per_node) == (None, 2)
    assert system.fields["nodes[1].sys_mem_size"] == "8"
    # Accelerators in the name are no processors.
    named = read_entry(NODE | {"cpu": "Skylake"}, hardware="w/8xV100")
    assert named.host_processors_per_node is None


@pytest.mark.parametrize("nodes", [None, [], "two", [3], [NODE, 3]])
def test_nodes_that_are_none_are_a_problem_and_nothing_is_refused(nodes):
    [problem] = read_entry(nodes=nodes).problems
    assert (problem.file, problem.field) == ("entry.json", "nodes")


def test_counts_that_are_none_are_left_out():
    system = read_entry(NODE | {"num_nodes": -1, "num_accelerators": "8 or so"})
    assert (system.number_of_nodes, system.accelerators) == (None, None)


CLOUD = {"provider": "cloud", "instance": "gpu.8", "region": "north", "count": 2}
STATED = {
    "hardware_class": "cpu",
    "price_usd_per_hour": 30.0,
    "price_source": "a list",
    "cloud": CLOUD,
}


def entry(number, usd, starts, **others):
    names = {"provider": "cloud", "instance": "gpu.8", "region": "north", "pricing": "on_demand"}
    values = names | {"source_url": "https://cloud.example"} | others
    return PriceRow(id=number, usd_per_hour=usd, effective_on=starts, **values)


BOOK = [entry(1, 12.5, date(2026, 3, 5), hardware_class="cpu")]
SPOT = entry(2, 4.0, date(2026, 3, 1), pricing="spot")
OWNED = {"hardware_class": "cpu", "price_usd_per_hour": 3.0, "price_source": "a list"}
OWN, OTHER, UNKNOWN = "priced by its submitter", "gpu.8 belongs to", "does not say that gpu.8"


@pytest.mark.parametrize(
    ("system", "book", "day", "usd", "number", "why"),
    [
        # The book goes before what a system states, from its first day on.
        (STATED, BOOK, 5, 25.0, 1, None),
        (STATED, BOOK, 4, 30.0, None, OWN),
        (STATED | {"cloud": CLOUD | {"region": "south"}}, BOOK, 5, 30.0, None, OWN),
        # A spot price never ranks, but the book may price the same system.
        (STATED | {"pricing": "spot"}, [], 5, None, None, OWN),
        (STATED | {"pricing": "spot"}, [SPOT, *BOOK], 5, 25.0, 1, None),
        # A system that was not rented has the price it states.
        (OWNED, BOOK, 9, 3.0, None, OWN),
        (OWNED | {"price_usd_per_hour": None}, BOOK, 9, None, None, OWN),
        # The instance belongs to the class of its price.
        (STATED | {"hardware_class": "other"}, BOOK, 5, 25.0, 1, OTHER),
        (STATED, [entry(2, 9.0, date(2026, 3, 5))], 5, 18.0, 2, UNKNOWN),
        (STATED, [*BOOK, entry(2, 9.0, date(2026, 3, 9), hardware_class="b")], 9, 25.0, 1, None),
    ],
)
def test_the_price_of_a_system(system, book, day, usd, number, why):
    found = price_of_system(system, PriceBook(book), on=date(2026, 3, day))

    assert (found.usd_per_hour, found.entry and found.entry.id) == (usd, number)
    assert found.count == (2 if number else 1)
    assert (why is None) == (found.why_unranked is None)
    assert (why or "") in str(found.why_unranked)


RENTED = {"cloud": CLOUD | {"instance": "p5.48xlarge"}, "hardware_class": "gpus"}


@pytest.mark.parametrize(
    ("described", "is_right"),
    [
        ({"accelerator": "NVIDIA H100 80GB HBM3", "accelerator_count": 16}, True),
        ({"accelerator": "16x H100"}, True),
        ({"accelerator": "H100"}, True),
        ({"accelerator": "GPU", "accelerator_count": 16}, True),
        ({}, True),
        ({"accelerator": "H100", "accelerator_count": 8}, False),
        ({"accelerator": "H100", "accelerator_count": 32}, False),
        ({"accelerator": "H200", "accelerator_count": 16}, False),
        ({"accelerator": "Foo 7", "accelerator_count": 16}, False),
        ({"accelerator": "H100 MIG 1g.10gb", "accelerator_count": 16}, False),
        ({"accelerator": None, "accelerator_count": 0}, False),
        ({"accelerator": "none", "accelerator_count": 0}, False),
    ],
)
def test_rented_instances_have_the_described_accelerators(read_claim_of, described, is_right):
    if is_right:
        system = asdict(read_claim_of(**RENTED | described).system)
        price = entry(1, 98.0, date(2026, 3, 1), instance="p5.48xlarge")
        found = price_of_system(system, PriceBook([price]), on=date(2026, 3, 5))
        assert (found.usd_per_hour, found.why_unranked) == (196.0, None)
        return
    with pytest.raises(ClaimError) as caught:
        read_claim_of(**RENTED | described)
    error = caught.value
    assert error.code == "accelerators_contradict_instance"
    assert "p5.48xlarge has 16\u00a0×\u00a0H100" in error.message


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"cloud": {"provider": "cloud", "instance": "gpu.8"}}, "system.cloud.region"),
        ({"cloud": CLOUD | {"count": 0}}, "system.cloud.count"),
        ({"cloud": CLOUD | {"instance": "two\nlines"}}, "system.cloud.instance"),
        ({"cloud": CLOUD | {"zone": "a"}}, "system.cloud.zone"),
        ({"cloud": "gpu.8"}, "system.cloud"),
        ({"pricing": "reserved"}, "system.pricing"),
    ],
)
def test_a_cloud_that_cannot_be_looked_up_is_refused_by_its_field(change, field, read_claim_of):
    with pytest.raises(ClaimError) as refused:
        read_claim_of(**change)
    assert refused.value.field == field


@pytest.fixture
def read_claim_of(digits):
    def read(**system):
        table = {
            "benchmark": "digits", "division": "closed", "model": "m", "framework": "f",
            "system": {"name": "n", "hardware_class": "cpu", "processor": "p"} | system,
            "runs": ["run_0.log"],
        }  # fmt: skip
        return read_claim(json.dumps(table).encode(), file="s.json", benchmarks={"digits": digits})

    return read


def test_a_claim_names_what_was_rented(read_claim_of):
    system = read_claim_of(cloud=CLOUD).system
    assert vars(system.cloud) == CLOUD
    assert (system.pricing, read_claim_of().system.cloud) == ("on_demand", None)


ROW = {
    "provider": "cloud", "instance": "gpu.8", "region": "north", "usd_per_hour": 12.5,
    "effective_on": "2026-03-01", "source_url": "https://cloud.example/prices",
}  # fmt: skip


def on(book, day, name="gpu.8"):
    found = PriceBook(book).find(("cloud", name, "north"), on=date(2026, 3, day))
    return found and found.usd_per_hour


def starting(number, usd, day, **others):
    return entry(number, usd, date(2026, 3, day), **others)


@pytest.mark.parametrize(
    ("book", "prices"),
    [
        # The latest price that has started holds.
        ([starting(2, 20.0, 10), starting(1, 10.0, 5)],
         {4: None, 5: 10.0, 9: 10.0, 10: 20.0, 31: 20.0}),
        ([], {1: None}),
        ([starting(1, 10.0, 5, provider="Other")], {6: None}),
        ([starting(1, 10.0, 5, instance="Other")], {6: None}),
        ([starting(1, 10.0, 5, region="Other")], {6: None}),
        # Spot never holds, however late it is.
        ([starting(1, 10.0, 5), starting(2, 3.0, 6, pricing="spot")], {7: 10.0}),
        ([starting(2, 3.0, 6, pricing="spot")], {7: None}),
        # Of two from the same day the one added later holds.
        ([starting(2, 11.0, 5), starting(1, 10.0, 5)], {5: 11.0}),
        # What is superseded holds on no day.
        ([starting(1, 100.0, 5), starting(2, 10.0, 7, supersedes=1)],
         {5: None, 6: None, 7: 10.0}),
        ([starting(1, 100.0, 5), starting(2, 10.0, 7, supersedes=1),
          starting(3, 9.0, 5, supersedes=2)], {5: 9.0, 8: 9.0}),
        # A correction of the name: the entry under the wrong one holds no more.
        ([starting(1, 100.0, 5), starting(2, 99.0, 5, instance="gpu.4", supersedes=1)],
         {6: None}),
    ],
)  # fmt: skip
def test_the_price_that_holds_on_a_day(book, prices):
    assert {day: on(book, day) for day in prices} == prices
    renamed = any(each.instance == "gpu.4" for each in book)
    assert on(book, 31, "gpu.4") == (99.0 if renamed else None)


def test_a_row_is_read_whole():
    more = {"pricing": "spot", "note": "from the list", "supersedes": 3}

    price = read_table(Price, ROW, file="p.csv")
    absent = {"note": None, "supersedes": None, "hardware_class": None}
    started = {"effective_on": date(2026, 3, 1)}
    assert vars(price) == ROW | started | absent | {"pricing": "on_demand"}
    assert read_table(Price, ROW | started, file="p.toml") == price
    assert read_table(Price, ROW | more, file="p.csv").supersedes == 3
    assert read_table(Price, ROW | more, file="p.csv").pricing == "spot"


@pytest.mark.parametrize(
    ("field", "value"),
    [("provider", ""), ("provider", None), ("instance", "x" * 201), ("region", "a\nb"),
     ("pricing", "reserved"), ("usd_per_hour", 0), ("usd_per_hour", -1.0),
     ("usd_per_hour", "12.5"), ("usd_per_hour", float("nan")), ("usd_per_hour", 1e8),
     ("effective_on", "1 March"), ("effective_on", None), ("effective_on", 20260301),
     ("source_url", "javascript:alert(1)"), ("source_url", "https://"), ("supersedes", 0),
     ("note", "x" * 2001), ("price", 1),
     ("hardware_class", "A class")],
)  # fmt: skip
def test_a_wrong_field_is_named_with_file_and_line(field, value):
    with pytest.raises(RuleError) as refused:
        read_table(Price, ROW | {field: value}, file="p.csv", line=4)

    error = refused.value
    assert (error.file, error.line, error.field) == ("p.csv", 4, field)
    assert error.expected


@pytest.mark.parametrize(
    ("text", "good"),
    [("https://a.example/x?y#z", True), ("HTTP://a", True), ("ftp://a", False), ("//a", False),
     ("https:///x", False), ("https://a b", False), ("https://?x", False), ("", False)],
)  # fmt: skip
def test_a_source_is_an_address_that_can_be_followed(text, good):
    with nullcontext() if good else pytest.raises(RuleError, match="an http or https address"):
        assert read_table(Price, ROW | {"source_url": text}, file="p.csv").source_url == text


@pytest.mark.parametrize(
    ("seconds", "price", "cost"),
    [(None, 3.06, None), (44.0, None, None), (None, None, None), (44.0, 0.0, 0.0)],
)
def test_a_free_system_costs_nothing_which_is_not_the_same_as_unknown(seconds, price, cost):
    assert training_cost_usd(seconds, price) == cost


def test_a_system_is_priced_by_its_accelerators():
    assert system_price_usd_per_hour(2.5, 8) == 20.0
    assert system_price_usd_per_hour(2.5, 0) == 2.5
