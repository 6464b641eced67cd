import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from jinja2 import UndefinedError

import web.render
from web.assets import static_url
from web.board_table import TRAIN
from web.formats import time_format
from web.render import TEMPLATES, render
from web.stamps import TABS


class Tags(HTMLParser):
    """Collects what could run or load something."""

    def __init__(self, page):
        super().__init__()
        self.scripts = []
        self.links = []
        self.handlers = []
        self.names = []
        self.images = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action")]
        if tag == "img":
            self.images.append(dict(attrs).get("src") or "")
        if tag == "script":
            self.scripts.append(dict(attrs))


def benchmark_page(make, board, **filters):
    benchmark = make["benchmark"]()
    return render("benchmark.html", benchmark=benchmark, board=board, filters=filters)


def verification_page(make, verification):
    return render("verification.html", **make["verification_page"](verification))


def submission_page(make, submission, **changes):
    context = make["submission_page"](submission=submission, **changes)
    return render("submission.html", **context)


def test_the_context_of_every_page_is_written_down():
    pages = [path for path in TEMPLATES.rglob("*.html") if "{% extends" in path.read_text()]
    unknown = [page.name for page in pages if page.name not in str(web.render.__doc__)]

    assert len(pages) > 30
    # That of the console shows nothing by itself.
    assert unknown == ["base.html"], "write their contexts on top of web/render.py"


def test_pages_load_nothing_from_elsewhere_and_run_nothing_inline(make, busy_board):
    page = benchmark_page(make, busy_board)
    tags = Tags(page)
    assert [script["src"] for script in tags.scripts] == [
        static_url("theme.js"),
        static_url("account.js"),
        static_url("board.js"),
    ]
    assert all(link.startswith(("/", "#", "?")) for link in tags.links)
    assert "plotly" not in page
    assert "style=" not in page


def test_the_board_shows_intervals_runs_and_evidence(make, busy_board, read):
    words = read(benchmark_page(make, busy_board, columns="cv")).replace("\u00a0", " ")
    assert "0.790 to 0.910 s" in words
    assert "6.3 % 3 sealed runs" in words
    for word in ("measured", "claimed", "replay queued", "undecided"):
        assert word in words


def test_a_measured_row_shows_our_time_with_its_interval_and_the_claimed_one_small(make, read):
    entry = make["entry"](
        tta_seconds=2.29, claimed_seconds=2.29, measured_seconds=2.75,
        measured_low_seconds=2.61, measured_high_seconds=2.9, measured_runs=10,
        also_by=["demo", "eve", "zoe"],
    )  # fmt: skip
    page = benchmark_page(make, make["board"](entry), columns="cv")
    words = read(page).replace("\u00a0", " ")

    assert "2.75 s 2.61 to 2.90 s claimed 2.29 s" in words
    assert "10 sealed runs" in words
    assert "also demo, eve and 1 more" in words


def test_claims_stand_apart_with_a_provisional_place_in_brackets(make, read):
    claim = make["entry"](
        submission_id="b", rank=None, provisional_rank=2, status="claimed",
        unranked_reason="claimed, not measured here",
    )  # fmt: skip
    refuted = make["entry"](submission_id="c", rank=None, provisional_rank=None, status="rejected",
                            unranked_reason="contradicted by its replay")  # fmt: skip
    page = benchmark_page(make, make["board"](make["entry"](), claim, refuted))
    words = read(page)

    order = [words.index(each) for each in (
        "0.853", "Claimed, not measured here", "(2)", "Not ranked", "contradicted by its replay",
    )]  # fmt: skip
    assert order == sorted(order)
    assert "Nothing measured yet" not in words
    alone = read(benchmark_page(make, make["board"](claim)))
    assert "Nothing measured yet. 1 claim below." in alone
    unchecked = read(benchmark_page(make, make["board"](claim | {"evidence": "published"})))
    assert "1 published result below, not checked." in unchecked
    assert "Published, source not checked" in unchecked
    waiting = read(benchmark_page(make, make["board"](claim | {"evidence": "measured"})))
    assert "Measured, without a number yet" in waiting
    assert "Nothing measured yet" not in waiting


def test_a_row_that_its_runs_cannot_tell_from_a_better_one_says_so(make, read):
    near = make["entry"](submission_id="b", rank=2, not_separated_from=1, visible_gap_percent=6.1)
    words = read(benchmark_page(make, make["board"](make["entry"](), near)))

    assert "not separated from #1 ; a gap under 6.1 % could not be seen" in words
    assert "statistically" not in words


def test_a_published_row_names_its_source_and_the_board_whose_trademark_it_is(make, read):
    source = {"name": "MLPerf v5.1", "url": "https://example.org/v5.1", "commit": "ab" * 20}
    board = make["board"](make["entry"](evidence="published", source=source))
    benchmark = make["benchmark"](id="mlperf-v5.1-flux1")
    page = render("benchmark.html", benchmark=benchmark, board=board, filters={})

    assert '<a href="https://example.org/v5.1" rel="noopener nofollow">MLPerf v5.1</a>' in page
    assert (
        "MLPerf is a trademark of MLCommons. Ranks, cost, ties and intervals on this page are "
        "computed by this server and were not reviewed by MLCommons."
    ) in page
    assert "trademark" not in benchmark_page(make, board)
    assert "not reviewed by the publisher" in read(benchmark_page(make, board))


def test_a_lens_is_announced_and_can_be_left(make, read):
    lens = {"clock": "speedrun", "target": 95.0, "note": "Not the official ranking: speedrun.",
            "official_clock": "dawnbench", "official_target": 97.5}  # fmt: skip
    price = {
        "usd_per_accelerator_hour": 2.5,
        "prices_on": None,
        "note": "Not the official costs: at $2.50.",
    }
    board = make["board"](make["entry"](), lens=lens, price=price)
    page = benchmark_page(make, board, clock="speedrun", target=95.0, q="cnn", price=2.5)

    assert "Not the official ranking: speedrun." in read(page)
    assert "Not the official costs: at $2.50." in read(page)
    assert '<a href="?q=cnn&amp;price=2.5#board">Official ranking</a>' in page
    assert '<a href="?q=cnn&amp;clock=speedrun&amp;target=95#board">Official costs</a>' in page
    assert '<option value="speedrun" selected>' in page
    assert 'type="number" name="target" value="95"' in page
    assert 'type="number" name="price" value="2.5"' in page
    assert "/charts?q=cnn&amp;clock=speedrun&amp;target=95&amp;price=2.5" in page
    official = benchmark_page(make, make["board"](make["entry"]()))
    assert "Not the official" not in official


def test_an_absent_cost_says_that_it_is_not_ranked(make):
    priced = make["entry"](submission_id="priced", rank=None)
    page = benchmark_page(make, make["board"](make["entry"](cost_usd=None), priced), columns="cost")
    assert page.count('title="not ranked by cost"') == 1


def test_a_column_that_nobody_has_a_figure_for_is_left_out(make, read):
    bare = {"cost_usd": None, "epochs_to_target": None}
    usual = benchmark_page(make, make["board"](make["entry"](**bare)))
    every = ",".join(column.name for column in TRAIN)
    plain = benchmark_page(make, make["board"](make["entry"](**bare)), columns=every)
    full = make["entry"](
        submission_id="full",
        latency_ms=0.25,
        measured_latency_ms=0.5,
        energy_joules=5_430.0,
        samples_per_second=1234.0,
        precision="fp32",
        precision_measured="bf16",
        verification_id="ver 1",
        division="open",
    )
    claimed = make["entry"](precision="fp16")
    page = benchmark_page(make, make["board"](full, claimed), columns=every)
    usual, heads, more = (
        re.findall(r'<th scope="col".*?<a [^>]*>([^<]*)<', each) for each in (usual, plain, page)
    )

    assert usual == ["#", "System", "Time, 95 %", "Evidence", "By", "Date"]
    assert heads == ["#", "System", "Time, 95 %", "Runs", "Evidence", "By", "Date"]
    assert more == [
        "#", "System", "Time, 95 %", "Cost", "Runs",
        "Latency stated", "Latency measured", "Energy", "Epochs", "Samples/s", "Precision",
        "Division", "Evidence", "By", "Date",
    ]  # fmt: skip
    words = read(page).replace("\u00a0", " ")
    assert "0.250 ms 0.500 ms 5.43 kJ 7.67 1,234 bf16 measured open" in words
    assert "fp16 claimed closed" in words
    assert 'class="proof" href="/verifications/ver%201"' in page
    assert page.count('class="proof"') == 1
    columns = page.count('<th scope="col"')
    assert page.split("<tbody>")[1].split("</tr>")[0].count("<td") == columns


def test_a_row_is_led_by_its_hardware_and_by_its_model_where_models_alone_differ(make, read):
    system = make["system"](name="node 7", accelerator="NVIDIA H200 NVL", accelerator_count=8)
    rows = [make["entry"](submission_id=name, system=system) for name in ("a", "b")]
    alike = benchmark_page(make, make["board"](*rows))
    several = benchmark_page(make, make["board"](rows[0], rows[1] | {"model": "other"}))
    another = make["entry"](submission_id="c", model="other")
    mixed = benchmark_page(make, make["board"](rows[0], another))

    link = 'title="8\u00a0×\u00a0H200 · alice node 7">'
    assert alike.count(f"{link}8\u00a0×\u00a0H200</a>") == 2
    assert "digits-cnn" not in alike
    assert f"{link}digits-cnn</a>" in several
    assert f"{link}other</a>" in several
    assert f"{link}8\u00a0×\u00a0H200</a>" in mixed
    assert 'title="digits-cnn">digits-cnn</small>' in mixed
    assert "EPYC 7B13 alice measured AMD EPYC 7B13 · two-core laptop" in read(
        benchmark_page(make, make["board"](make["entry"]()))
    )


def test_pages_are_numbered_and_one_too_far_says_so(make, read):
    board = make["board"](make["entry"](), total=5000, first=51)
    page = benchmark_page(make, board, page=2, sort="cost")
    assert "51–51 of 5,000" in read(page)
    for link in (
        '<a href="?sort=cost#board" rel="first">First</a>',
        '<a href="?sort=cost#board" rel="prev">Previous</a>',
        '<a href="?sort=cost&amp;page=3#board" rel="next">Next</a>',
        '<a href="?sort=cost&amp;page=100#board">Last</a>',
        "/api/v1/leaderboards/digits?sort=cost&amp;limit=50&amp;page=2",
    ):
        assert link in page
    beyond = benchmark_page(make, make["board"](total=51, first=None), page=9)
    assert "There is no page 9: 51 entries are on 2 pages." in read(beyond)
    assert 'class="pages"' not in benchmark_page(make, make["board"](make["entry"]()))


def test_a_board_sorted_by_something_else_stands_in_that_order(make, bare_entry):
    board = make["board"](bare_entry, make["entry"](submission_id="ranked"))
    page = benchmark_page(make, board, sort="model")
    assert page.index(bare_entry["submission_id"]) < page.index("/submissions/ranked")
    assert "rowgroup" not in page


def test_unranked_entries_stand_beneath_with_their_reason(make, bare_entry, read):
    page = benchmark_page(make, make["board"](make["entry"](), bare_entry))
    words = read(page)
    assert words.index("0.853") < words.index("Not ranked") < words.index("did not reach")


def test_a_board_of_unranked_entries_alone_has_no_chart(make, bare_entry):
    assert "data-chart=" not in benchmark_page(make, make["board"](bare_entry))


def test_an_empty_board_says_how_to_submit(make):
    page = benchmark_page(make, make["board"]())
    assert "finishline submit" in page
    assert "No submissions yet" in page
    assert "charts.js" not in page


def test_a_board_tells_what_its_embargo_hides_and_until_when_it_takes_submissions(make, read):
    dates = [
        ("Closes", "2026-12-01T00:00:00+00:00"),
        ("Results under embargo until", "2026-12-24T00:00:00+00:00"),
    ]
    context = {"benchmark": make["benchmark"](), "board": make["board"](), "filters": {}}
    words = read(render("benchmark.html", **context, dates=dates))

    assert "No submissions yet" not in words
    assert "Results are hidden until 2026-12-24 00:00:00 UTC" in words
    assert "Submissions that arrive after 2026-12-01 00:00:00 UTC are refused." in words
    assert "Submissions that arrive after" not in read(render("benchmark.html", **context))


def test_filters_that_fit_nothing_can_be_cleared(make):
    page = benchmark_page(make, make["board"](), status="verified")
    assert "No match." in page


def test_the_filter_form_and_its_twins_keep_the_query(make, busy_board):
    page = benchmark_page(make, busy_board, division="open", q="cnn", sort="cv", columns="cv")
    assert '<input type="hidden" name="division" value="open">' in page
    assert 'value="cnn"' in page
    query = "?division=open&amp;q=cnn&amp;sort=cv"
    assert f"/api/v1/leaderboards/digits.csv{query}" in page
    assert f"/api/v1/leaderboards/digits{query}" in page
    assert f"/charts{query}" in page
    assert "columns=cv" in page
    assert 'aria-sort="ascending"' in page


def test_a_submission_page_explains_its_score(make, read):
    submission = make["submission"]()
    words = read(submission_page(make, submission, tab="scoring"))
    assert "Drop the fastest and the slowest of 3, mean of the rest." in words
    assert "run 1 0.87" in words
    assert "with torch 2.13.0, submitted" in words
    history = read(submission_page(make, submission, tab="history"))
    assert "finishline verify sub-1 --watch" in history
    published = read(submission_page(make, make["submission"](archive=True)))
    assert "with torch 2.13.0, imported" in published  # Nobody knows when it was submitted.


def test_a_submission_of_absent_figures_renders(make, read):
    pages = {
        tab: submission_page(make, make["bare_submission"](evidence="claimed"), tab=tab)
        for tab, _ in TABS
    }
    page = pages["result"]
    assert not [tab for tab, each in pages.items() if "None" in read(each)]
    assert "Not ranked." in read(page)
    assert "/api/v1/submissions/sub-1/runs/0/log" in pages["runs"]
    assert "– target not reached" in read(page)
    assert "no interval below three runs" not in read(page)


def test_the_curves_of_a_submission_have_a_table_twin(make, curves):
    page = submission_page(make, make["submission"](), curves=curves, tab="runs")
    assert page.count('<td class="mono">run_1.log</td>') == 8 + 1
    assert 'href="#evaluations"' in page


def test_an_ended_verification_shows_its_verdict_and_asks_for_nothing_live(make, read):
    page = verification_page(make, make["verification"]())
    words = read(page)
    assert "supports the claim" in words
    assert "3 of 3 replays reached" in words
    assert "worker-a was not heard from" in words
    assert 'data-events=""' in page
    assert static_url("replay.js") not in page


def test_a_waiting_verification_says_why_and_follows_its_events(make, read):
    page = verification_page(make, make["queued_verification"]())
    assert "No worker is connected" in read(page)
    assert 'data-events="/api/v1/verifications/ver-1/events"' in page
    assert "reload it" in page
    assert static_url("replay.js") in page
    assert "None" not in read(page)


def test_a_verification_that_failed_or_was_cancelled_renders(make, read):
    for state in ("failed", "cancelled"):
        changes = {"outcome": None, "report": None, "reasons": [], "control_points": []}
        words = read(verification_page(make, make["verification"](state=state, **changes)))
        assert re.search("(no|without a) result for the submission", words)


def test_a_failed_attempt_shows_what_it_left_and_that_it_costs_nothing(make, read):
    page = verification_page(make, make["verification"]())
    text = read(page)
    assert "Not charged to a quota." in text
    assert re.search(r"Last evaluation: 45\.8\s% in run 1 at epoch 2", text)
    assert "epoch 2 &lt;b&gt;done&lt;/b&gt;" in page


def test_a_calibration_says_what_it_is_and_names_no_submission(make, read):
    calibration = make["verification"](kind="calibration", submission_id=None, outcome=None)
    calibration["report"] |= {"runs": [make["replay_run"](tta_seconds=0.66)]}
    page = render("verification.html", **make["verification_page"](calibration, submission=None))
    text = read(page)
    assert "calibration ver-1" in text
    assert "digits reference" in text
    assert "No claim is checked here" in text
    assert "/submissions/" not in page
    # Its runs go on beyond the target: their seconds are those of the last evaluation.
    assert "8 0.880 s 98.1 % reached" in text.replace("\u00a0", " ")


def test_a_failed_run_shows_its_next_step(make, read):
    failure = {
        "kind": "submitter",
        "code": "training_diverged",
        "message": "The loss became NaN.",
        "next_step": "Lower the learning rate.",
    }
    run = make["replay_run"](status="failed", evaluations=[], tta_seconds=None, failure=failure)
    report = {"runs": [run], "system": {}, "failure": None}
    words = read(verification_page(make, make["verification"](report=report)))
    assert "The loss became NaN. Lower the learning rate." in words


def test_empty_pages_say_what_to_do(make, read):
    home = read(render("home.html", benchmarks=[], live=[], live_count=0, verdicts=[]))
    assert "Request one on the page of your submission" in home
    assert "no benchmark" in home
    assert "python -m worker" in read(render("workers.html", workers=[]))


def test_an_error_page_shows_where_the_problem_is(read):
    problem = {"file": "run_1.log", "line": 17, "message": "time went backwards"}
    words = read(render("error.html", status=422, title="T", detail="D", problems=[problem]))
    assert "run_1.log" in words
    assert "17" in words


def test_a_forgotten_context_is_an_error():
    with pytest.raises(UndefinedError, match="workers"):
        render("workers.html")


def test_the_switch_between_kinds_stands_only_where_there_is_inference(make):
    without = benchmark_page(make, make["board"](make["entry"]()))
    assert "Inference" not in without
    benchmark = make["benchmark"](inference_submissions=1, divisions=["closed"])
    board = make["board"](make["entry"]())
    page = render("benchmark.html", benchmark=benchmark, board=board, filters={"q": "a"})
    assert '<a href="?q=a#board" aria-current="page">Training</a>' in page
    assert ">Inference</a>" in page


def test_an_inference_board_shows_latency_cost_quality_and_reasons(make, read):
    weak = make["inference_entry"](
        submission_id="weak",
        rank=None,
        unranked_reason="did not reach the target",
        quality=90.25,
        cost_usd_per_10000=None,
    )
    board = make["inference_board"](make["inference_entry"](), weak)
    words = read(benchmark_page(make, board, metric="latency")).replace("\u00a0", " ")
    assert "9.78 ms 9.10 ms $0.0245 98.24 % claimed" in words
    assert "Not ranked" in words
    assert "not ranked: did not reach the target" in words
    assert "– not ranked by cost 90.25 % claimed" in words
    assert "ranked by latency of one item" in words
    assert "time to accuracy" not in words.split("Take part")[0]


def test_an_inference_page_has_no_runs_and_says_why_it_is_not_ranked(make, read):
    submission = make["inference_submission"](evidence="claimed")
    words = read(submission_page(make, submission)).replace("\u00a0", " ")
    assert "9.78 ms latency of one item" in words
    assert "Not ranked. The model did not reach the target: 94.09 % top1Accuracy" in words
    assert "Not measured yet; the figures are as claimed." in words
    assert "measured: " not in words
    assert "divided by 100" not in words
    assert "Seed" not in words
    history = read(submission_page(make, submission, tab="history"))
    assert "finishline verify sub-1 --kind latency --watch" in history


def test_a_quality_that_was_rescaled_says_so(make):
    result = {"given_in_percent": True, "eligible": True, "reached": True}
    submission = make["inference_submission"](result=result)
    page = submission_page(make, submission)
    assert "divided by 100" in page
    assert "Not ranked" not in page


# Wordings that readers did not understand; each has a better one.
UNCLEAR = (
    "a training counts by how long",
    "claims stay claims",
    "nobody has trained this again",
    "cannot be told from",
    "tie group",
    "chance of being done",
    "no ranked submission states the price",
    "have it replayed",
    "nothing is replayed now",
    "dates, and what if",
    "this board was not made",
    "could not decide about the claim",
    "times the claimed",
    "ends when you sign out",
    "the machinery fails",
    "room again",
    "what you may use",
    "workers out",
    "what is verified",
    "take nothing",
    "programs are told",
    "if left empty",
    "how surely",
    "not told",
    "epochs of a verdict are read off",
)


def test_no_page_has_a_wording_that_readers_did_not_understand():
    folder = Path(web.render.__file__).parent
    texts = [*folder.rglob("*.html"), *folder.rglob("*.js")]
    assert len(texts) > 50
    for path in texts:
        words = " ".join(path.read_text().lower().split())
        assert not [phrase for phrase in UNCLEAR if phrase in words], path.name


def test_the_times_of_a_board_have_one_unit_and_neighbours_read_apart():
    """As on two boards of MLPerf and DAWNBench: 24.2 s beside ten minutes, 75.67 beside 75.72."""
    shown = time_format([605.398, 24.204, None])
    assert [shown(seconds) for seconds in (24.204, 605.398, 7200.0, None)] == [
        "0.403\u00a0min", "10.09\u00a0min", "120.00\u00a0min", "–",
    ]  # fmt: skip
    assert shown.interval(574.0, 639.0) == "9.57 to 10.65\u00a0min"
    assert shown.interval(None, 1.0) == ""

    alike = time_format([75.67, 640.0 * 60, 75.72])
    assert [alike(75.67), alike(75.72)] == ["1.261\u00a0min", "1.262\u00a0min"]
    brief = time_format([119.9])
    assert [brief(s) for s in (0.003593, 0.0998, 1.913, 75.67, 0.0)] == [
        "0.00359\u00a0s", "0.0998\u00a0s", "1.91\u00a0s", "75.67\u00a0s", "0\u00a0s",
    ]  # fmt: skip
    assert (time_format([120.0]).unit, time_format([]).unit) == ("min", "s")


def test_a_definition_may_name_the_unit_of_its_boards():
    assert time_format([2.5, 9000.0], "s")(9000.0) == "9,000.00\u00a0s"
    assert time_format([2.5], "min")(2.5) == "0.0417\u00a0min"
    stopwatch = time_format([73.2, 73.8], "h:mm:ss")
    assert [stopwatch(73.2), stopwatch(73.8), stopwatch(349838.7)] == [
        "0:01:14", "0:01:14", "97:10:39",
    ]  # fmt: skip
    assert stopwatch.interval(59.1, 61.0) == "0:01:00 to 0:01:01"
