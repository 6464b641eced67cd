"""Citations that a stranger's name cannot break out of."""

from collections.abc import Callable
from typing import Any

from web.citation import bibtex, escape_tex, plain_citation

Make = dict[str, Callable[..., Any]]
ADDRESS = "https://example.org/submissions/sub-1"


def balanced(text: str) -> bool:
    """Whether the braces that are not escaped close each other."""
    depth = 0
    for place, character in enumerate(text):
        if character in "{}" and (place == 0 or text[place - 1] != "\\"):
            depth += 1 if character == "{" else -1
        if depth < 0:
            return False
    return depth == 0


def test_a_citation_names_who_what_when_and_where(make: Make) -> None:
    entry = bibtex(make["submission"](), ADDRESS)

    assert entry.startswith("@misc{finishline-sub-1,\n  author = {{alice}},\n")
    assert "title = {{digits-cnn: time to accuracy on digits}}" in entry
    assert "year = {2026}" in entry
    assert r"howpublished = {\url{https://example.org/submissions/sub-1}}" in entry
    assert "Time to accuracy 0.853 s, closed division" in entry
    plain = plain_citation(make["submission"](submitted_on="2017-10-11"), ADDRESS)
    assert plain.startswith("alice (2017). digits-cnn: time to accuracy on digits. ")
    assert plain.endswith(ADDRESS)


def test_a_citation_says_what_the_badge_says_of_the_status(make: Make) -> None:
    unranked = {**make["submission"]()["result"], "tta_seconds": None}
    withdrawn = make["submission"](
        result=unranked,
        withdrawal={"by": "alice", "at": "2026-11-20T10:00:00Z", "reason": "wrong logs"},
    )
    assert "Target not reached, closed division, rules digits 1.0, withdrawn." in plain_citation(
        withdrawn, ADDRESS
    )
    agrees = make["submission"](evidence="claimed", check="epochs_agree")
    assert "rules digits 1.0, claimed · epochs agree." in plain_citation(agrees, ADDRESS)
    assert "rules digits 1.0, claimed · epochs agree." in bibtex(agrees, ADDRESS)


def test_no_name_is_a_command_or_ends_its_field(make: Make) -> None:
    hostile = "}},\n note={\\input{/etc/passwd}} 100% of #1 & $x_2^3$ ~<é>\x07"
    entry = bibtex(make["submission"](model=hostile, submitter=hostile), ADDRESS)

    assert balanced(entry)
    assert len(entry.splitlines()) == 7
    assert r"\input" not in entry
    assert "\x07" not in entry


def test_each_special_character_of_tex_is_escaped() -> None:
    assert escape_tex(r"a_b & 5% #1 $x$ {y} ~ ^ \z") == (
        r"a\_b \& 5\% \#1 \$x\$ \{y\} \textasciitilde{} \textasciicircum{} \textbackslash{}z"
    )


def test_an_inference_is_cited_by_its_latency(make: Make) -> None:
    assert "Latency 9.78 ms" in bibtex(make["inference_submission"](), ADDRESS)
