"""The badge: a picture of its own that whatever name cannot break."""

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest

from web.citation import badge_svg, printable, text_width

Make = dict[str, Callable[..., Any]]
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '</title><script>alert("x")</script>&<!--]]>\x00\x0b\ud800\ufffe名前\u202e"\''


CLAIMED = {"evidence": "claimed", "check": "none"}
GREEN = "#126b3a"


def drawn(submission: dict[str, Any]) -> ElementTree.Element:
    return ElementTree.fromstring(badge_svg(submission).encode())  # noqa: S314  our own


def test_a_badge_says_benchmark_evidence_and_our_time(make: Make) -> None:
    root = drawn(make["submission"](measured_seconds=0.9))

    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts == ["digits", "measured · 0.900 s"]
    assert root.get("role") == "img"
    title = root.find(f"{SVG}title")
    assert title is not None
    assert title.text == "digits-cnn by alice on digits: measured · 0.900 s"
    assert root.get("aria-labelledby") == title.get("id")


@pytest.mark.parametrize("check", ["none", "epochs_agree", "undecided", "contradicted"])
def test_a_badge_of_a_claim_shows_no_time_and_is_never_green(make: Make, check: str) -> None:
    svg = badge_svg(make["submission"](evidence="claimed", check=check, status="verified"))

    assert "0.853" not in svg
    assert GREEN not in svg
    assert "claimed" in svg


def test_a_badge_shows_no_time_of_what_may_not_rank(make: Make) -> None:
    submission = make["submission"](**CLAIMED)
    submission["result"] = submission["result"] | {"eligible": False}

    words = "".join(drawn(submission).itertext())

    assert "claimed · not ranked" in words
    assert "0.853" not in words


def test_a_badge_is_well_formed_whatever_it_names_and_asks_for_no_other_file(make: Make) -> None:
    submission = make["submission"](model=HOSTILE, submitter=HOSTILE, benchmark=HOSTILE)
    text = badge_svg(submission)
    root = drawn(submission)

    assert "<script" not in text
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "title", "clipPath", "rect", "g", "text",
    }  # fmt: skip
    assert "href" not in text
    assert "style" not in text
    assert "名前" in text


def test_the_parts_of_a_badge_are_as_wide_as_their_texts(make: Make) -> None:
    root = drawn(make["submission"]())
    left, right = root.iter(f"{SVG}text")
    label, state = list(root.iter(f"{SVG}rect"))[1:]

    width = float(left.get("textLength", ""))
    assert float(state.get("x", "")) == pytest.approx(width + 14, abs=0.11)
    assert float(right.get("x", "")) == pytest.approx(width + 21, abs=0.11)
    assert float(label.get("width", "")) == pytest.approx(float(root.get("width", "")), abs=0.01)


# By the advance widths of Verdana: i 562, W 2025, m 1992 of 2048 to the em, at 11 px.
@pytest.mark.parametrize(
    ("text", "pixels"), [("i", 3.02), ("W", 10.88), ("mm", 21.4), ("名", 11.0), ("e\u0301", 6.55)]
)
def test_a_text_is_as_wide_as_its_font_makes_it(text: str, pixels: float) -> None:
    assert text_width(text) == pytest.approx(pixels, abs=0.02)


def test_what_xml_cannot_hold_is_left_out() -> None:
    assert printable("a\x00b\x1f \n c\ud800") == "ab c"


def test_an_inference_shows_its_latency_and_a_miss_says_so(make: Make) -> None:
    met = make["inference_submission"](result={"reached": True, "eligible": True}, **CLAIMED)
    assert "claimed" in badge_svg(met)
    assert "9.78" not in badge_svg(met)
    assert "target not reached" in badge_svg(make["inference_submission"]())
    assert "target not reached" in badge_svg(make["bare_submission"]())
