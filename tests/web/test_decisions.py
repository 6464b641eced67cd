"""A decision about a verdict in words and rows."""

from web.decisions import decision_headline, decision_rows, ratio_words, run_dots


def row(evidence, check=None):
    return {"evidence": evidence, "check": check, "trained_with": "reference"}


def test_the_headline_says_what_publishing_loses():
    before, after = row("measured"), row("claimed", "epochs_agree")
    assert decision_headline(before, after, rank=1, holds_record=True) == (
        "Publishing changes measured → claimed · epochs agree; it loses rank 1 and the record."
    )
    assert decision_headline(before, before, rank=1) == "Publishing leaves the row measured."
    assert decision_headline(after, before) == (
        "Publishing changes claimed · epochs agree → measured."
    )


def side(*seconds, words="measured"):
    runs = [{"tta_seconds": s, "epochs_to_target": None if s is None else 8.0} for s in seconds]
    return {"words": words, "runs": runs, "cpu_share": 0.97}


def test_each_figure_stands_beside_the_published_one_with_its_change():
    slower = {
        "figure": "tta_seconds", "comparable": True, "p_value": 0.0123,
        "first_mean": 2.1, "second_mean": 9.87,
    }  # fmt: skip
    rows = decision_rows(side(2.0, 2.2), side(9.4, 10.34, None), [slower])

    told = {each.name: (each.published, each.new, each.change) for each in rows}
    assert told["Time"] == ("2.10\u00a0s", "9.87\u00a0s", "4.7× slower (Welch's p = 0.012)")
    assert told["Epochs"] == ("8", "8", "no change")
    assert told["Reached"] == ("2 of 2", "2 of 3", "")
    assert told["Share of the processor"][0] == "97.0\u00a0%"


def test_a_ratio_is_told_from_the_slower_side():
    assert [ratio_words(r, "slower", "faster") for r in (4.7, 0.5, 1.004, 1.09)] == [
        "4.7× slower", "2× faster", "no change", "1.09× slower",
    ]  # fmt: skip


def test_the_dots_of_both_sides_have_one_scale():
    old, new = run_dots(side(5.0), side(10.0, None))
    assert (old.places, new.places) == ((49.0,), (97.0,))
    assert run_dots(side(None), side(None)) == []
