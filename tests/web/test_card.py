"""The card of a shared link."""

from web.card import FONTS, board_card, card_png, submission_card
from web.formats import SECONDS


def test_the_card_of_a_claim_shows_no_time(make):
    claim = make["submission"](evidence="claimed", check="epochs_agree")
    svg = submission_card(claim, None, SECONDS)
    assert "not measured" in svg
    assert "claimed · epochs agree" in svg
    assert "0.85" not in svg


def test_a_card_is_drawn_with_the_packaged_font_and_shows_no_markup():
    assert {path.name for path in FONTS} == {"DejaVuSans.ttf", "DejaVuSans-Bold.ttf"}
    assert (FONTS[0].parent / "LICENSE.txt").read_text().count("Permission is hereby granted") >= 1
    target = {"value": 95, "unit": "percent", "direction": "higher", "metric": "<b>&"}
    empty = board_card({"id": "x", "title": "<script>", "target": target}, None, SECONDS, None)
    assert "&lt;script&gt;" in empty
    assert "Be the first." in empty
    unlettered = card_png(empty.replace("DejaVu Sans", "Nothing"))
    assert len(card_png(empty)) > len(unlettered) > 0
    assert card_png(empty) is card_png(empty)
