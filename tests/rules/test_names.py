"""Which names look alike, and which form a new one has.

Source of the pairs: Unicode UTS 39, sections 4 and 5, and its confusables.txt 17.0.0.
"""

import unicodedata

import pytest

from finishline.rules.text import GROUPS, fault_in, skeletons


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("paypal", "ρɑуραӏ"), ("scope", "ѕсоре"), ("Circle", "Сігсӏе"), ("google", "ցoօɡle"),
        ("alice", "Alice"), ("alice", "a1ice"), ("alice", "aIice"), ("Bob", "BОB"), ("bob", "b0b"),
        ("modal", "rnodal"), ("ada", "ａｄａ"), ("ada", "𝐚𝐝𝐚"), ("кот", "κοτ"),
        ("Straße", "STRASSE"),
        ("José", "Jose\u0301"), ("José", "Jоsе\u0301"), ("Example Labs", "EXAMPLE LABS"),
    ],
)  # fmt: skip
def test_names_of_one_shape_look_alike(one: str, other: str) -> None:
    assert not skeletons(one).isdisjoint(skeletons(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [("alice", "alicia"), ("ali", "all"), ("José", "Jose"), ("gpu-1", "gpu-2"), ("мир", "mip"),
     ("Example Labs", "Example Lab"), ("李", "王")],
)  # fmt: skip
def test_names_that_differ_do_not(one: str, other: str) -> None:
    assert skeletons(one).isdisjoint(skeletons(other))


def test_each_letter_has_one_prototype_which_is_none_of_the_others() -> None:
    groups = GROUPS.split()
    others = [letter for group in groups for letter in group[1:]]
    assert len(others) == len(set(others))
    assert not {group[0] for group in groups} & set(others)
    assert all(unicodedata.normalize("NFKC", letter) == letter for letter in others)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        (" ada", "space"), ("ada ", "space"), ("", "empty"), ("ad\u202ea", "direction"),
        ("ad\u2066a", "direction"), ("ad\u200ba", "show nothing"), ("a\u3164", "show nothing"),
        ("ａda", "'ada'"), ("Jose\u0301", "'José'"), ("\u2460", "'1'"),
    ],
)  # fmt: skip
def test_a_new_name_has_one_plain_form(name: str, fault: str) -> None:
    assert fault in (fault_in(name) or "")


@pytest.mark.parametrize("name", ["ada", "Example Labs", "José", "李 雷", "Юрий", "o.k-2_b@c"])
def test_names_of_any_script_are_fine(name: str) -> None:
    assert fault_in(name) is None
