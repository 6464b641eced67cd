"""The pages in a real browser: quiet console, no other host, no sideways scroll, charts drawn."""

import json
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from web.board_map import board_map
from web.charts import BY_NAME, CHARTS, pareto_figure
from web.citation import badge_svg
from web.distribution_chart import survival_figure, survival_table
from web.formats import SECONDS
from web.render import render
from web.replay_chart import replay_figure

pytestmark = pytest.mark.browser

View = dict[str, Any]
Make = dict[str, Callable[..., View]]
WIDTHS = (390, 1280, 1920)
DRAWN = ".js-plotly-plot .main-svg"
SCROLLED_INSIDE = """[...document.querySelectorAll('main *')]
 .filter(e => /auto|scroll/.test(getComputedStyle(e).overflowY)
  && e.scrollHeight > e.clientHeight + 1).map(e => e.className)"""
AFTER_TWO_FRAMES = """() => new Promise(
 done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"""


def html(template, **context):
    return "text/html; charset=utf-8", render(template, **context).encode()


def as_json(figure):
    return "application/json", json.dumps(figure).encode()


@pytest.fixture
def site(page_server, make, busy_board, curves, target, control_points, hostile):
    """A small site of every page, with and without hostile names."""
    named = {**make["entry"](), "model": hostile, "submitter": hostile}
    named["system"] = make["system"](name=hostile)
    hostile_board = make["board"](named, {**named, "submission_id": "x"})
    hostile_sets = [{"entry": named, "runs": [run | {"seconds": 1.0} for run in curves]}]
    submission, benchmark = make["submission"](), make["benchmark"]()
    verification = make["verification"]()
    duel = make["duel"](id="duel-1")
    named_submission = make["submission"](model=hostile, submitter=hostile)
    page_server.answers |= {
        "/": html(
            "home.html",
            benchmarks=[
                {
                    **benchmark,
                    "records": [make["record"](model=hostile, submitter=hostile)],
                    "time": SECONDS,
                }
            ],
            live=[make["live_line"](model=hostile, submitter=hostile)],
            live_count=1,
            verdicts=[make["verdict_line"](model=hostile, submitter=hostile)],
        ),
        "/benchmarks/digits": html(
            "benchmark.html", benchmark=benchmark, board=busy_board, filters={}
        ),
        "/inference": html(
            "benchmark.html",
            benchmark={**benchmark, "inference_submissions": 2},
            board=make["inference_board"](
                make["inference_entry"](),
                make["inference_entry"](
                    model=hostile, submitter=hostile, system=make["system"](name=hostile)
                ),
            ),
            filters={"metric": "latency"},
        ),
        "/submissions/inference": html(
            "submission.html",
            **make["submission_page"](
                submission=make["inference_submission"](model=hostile, submitter=hostile)
            ),
        ),
        "/benchmarks/hostile": html(
            "benchmark.html",
            benchmark={**benchmark, "id": "hostile"},
            board=hostile_board,
            filters={"q": hostile},
        ),
        "/benchmarks/hostile/charts/survival": html(
            "board_chart.html",
            **chart_page({**benchmark, "id": "hostile"}, hostile_sets, BY_NAME["survival"]),
        ),
        "/benchmarks/hostile/charts/survival.json": as_json(survival_figure(hostile_sets)),
        "/submissions/sub-1": html(
            "submission.html",
            **make["submission_page"](submission=submission, curves=curves, tab="runs"),
            control_points=control_points,
        ),
        "/verifications/ver-1": html(
            "verification.html", **make["verification_page"](verification, submission=submission)
        ),
        "/verifications/duel-1": html(
            "verification.html",
            **make["verification_page"](duel, submission=submission, against=named_submission),
        ),
        "/workers": html(
            "workers.html",
            workers=[make["worker"](name=hostile), busy_worker(make)],
            readings={"gpu-node-17.example.org": [CANARY]},
        ),
        "/error": html("error.html", status=404, title=hostile, detail=hostile, problems=[]),
        **{
            f"/benchmarks/digits/charts/{chart.name}": html(
                "board_chart.html", **chart_page(benchmark, hostile_sets, chart)
            )
            for chart in CHARTS
        },
        **{
            f"/benchmarks/digits/charts/{chart.name}.json": as_json(
                chart.figure(chart_views(busy_board, target, curves))
            )
            for chart in CHARTS
        },
        "/benchmarks/hostile/charts/pareto.json": as_json(pareto_figure(hostile_board)),
        "/submissions/sub-1/badge.svg": ("image/svg+xml", badge_svg(submission).encode()),
        "/verifications/ver-1/charts/replay.json": as_json(replay_figure(verification)),
        "/verifications/duel-1/charts/replay.json": as_json(replay_figure(duel)),
    }
    return page_server


def chart_views(board, target, curves):
    """What the charts of the digits board are made from."""
    record = board["entries"][0] | {"date": "2026-11-20", "margin_percent": None, "p_value": None}
    runs = [run | {"seconds": run["tta_seconds"]} for run in curves]
    accelerated = [
        entry | {"system": entry["system"] | {"accelerator": "H200", "accelerator_count": count}}
        for count, entry in enumerate(board["entries"], start=1)
    ]
    return {
        "board": board | {"entries": accelerated},
        "against": "cost",
        "time": None,
        "target": target,
        "divisions": [{"division": "closed", "records": [record, record], "not_records": []}],
        "note": "A note for the caption.",
        "sets": [{"entry": entry, "runs": runs} for entry in board["entries"][:3]],
        "reference": [],
    }


def chart_page(benchmark, sets, chart):
    """What the page of a chart is rendered from, with submissions to choose from."""
    names = [{"name": one["entry"]["model"], "submission_id": "sub-1"} for one in sets]
    return {
        "benchmark": benchmark,
        "chart": chart,
        "about": "share of runs",
        "empty": None,
        "table": survival_table(sets),
        "board": None,
        "note": "Records are of all submissions.",
        "choices": [name | {"tta_seconds": 1.0, "is_shown": True} for name in names],
        "query": "q=x",
        "against_links": [{"label": "cost", "query": "against=cost", "is_shown": True}],
        "board_link": "q=x",
        "filters": {"q": "x"},
    }


@pytest.fixture
def complaints():
    return []


@pytest.fixture
def tab(browser, site, complaints):
    """A tab that writes down every console message, error and request to another host."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}"))

    def keep_host(request):
        if not request.url.startswith((site.url, "data:", "blob:")):
            complaints.append(f"request to {request.url}")

    page.on("request", keep_host)
    page.expose_function("refused", lambda words: complaints.append(words))
    page.add_init_script(
        "addEventListener('securitypolicyviolation',"
        " (event) => refused(`${event.violatedDirective} at ${event.sourceFile}`))"
    )
    yield page
    context.close()


CANARY = {
    "moment": "idle",
    "attempt_id": None,
    "gflops": 51234.5,
    "configuration": "c",
    "baseline_gflops": 51000.0,
    "ratio": 1.0046,
    "measured_at": "2026-11-20T10:00:00Z",
    "figures": {},
    "host": {},
}
BEYOND = """new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(
 Math.max(...[...document.querySelectorAll(".scroll")]
 .map(e => e.scrollWidth - e.clientWidth))))))"""


def busy_worker(make):
    under_way = {
        "verification_id": "v",
        "kind": "entry",
        "benchmark": "digits",
        "model": "Random cosine features and ridge regression",
        "attempt": 2,
        "run": 3,
        "runs": 7,
        "started_at": "2026-11-20T10:00:00Z",
    }
    return make["worker"](
        name="gpu-node-17.example.org",
        hardware_class="h100-sxm-80gb-8",
        state="busy",
        under_way=under_way,
        canary=CANARY,
    )


def show_chart(tab):
    tab.locator("[data-chart]").first.scroll_into_view_if_needed()
    tab.wait_for_selector(DRAWN, timeout=30_000)


def eventually(tab, expression, expected):
    """Polls a JavaScript expression; the page's own policy forbids wait_for_function."""
    for _ in range(600):
        found = tab.evaluate(expression)
        if found == expected:
            return
        tab.wait_for_timeout(50)
    raise AssertionError(f"{expression} is {found!r} and never became {expected!r}")


def test_no_page_scrolls_sideways_or_complains(tab, site, complaints):
    pages = [path for path in site.answers if not path.endswith((".json", ".svg"))]
    assert len(pages) == 11 + len(CHARTS)
    for path in pages:
        tab.set_viewport_size({"width": WIDTHS[0], "height": 900})
        tab.goto(site.url + path)
        if tab.locator("[data-chart]").count():
            show_chart(tab)
        for width in WIDTHS:
            tab.set_viewport_size({"width": width, "height": 900})
            wide = tab.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{path} is {wide} px too wide at {width}"
            if path == "/workers":  # Nor does its table: on a phone each row is a card.
                assert tab.evaluate(BEYOND) <= 0, width
    assert complaints == []


@pytest.mark.parametrize(("width", "height", "lowest"), [(1280, 800, 300), (390, 844, 420)])
@pytest.mark.parametrize("is_lens", [False, True])
def test_a_board_begins_on_the_first_screen_and_only_the_page_scrolls(
    tab, site, make, width, height, lowest, is_lens
):
    lens = {
        "clock": "speedrun",
        "target": 0.93,
        "note": "Not the official ranking: on the speedrun clock, at eval loss ≤ 0.93 nats/token. "
        "Official is the mlperf clock at 0.925 nats/token.",
        "official_clock": "mlperf",
        "official_target": 0.925,
    }
    rows = [
        make["entry"](
            submission_id=f"s{n}",
            energy_joules=1e6,
            tta_seconds=600.0 / (n + 1),
            system=make["system"](accelerator="H200", accelerator_count=8 * (n + 1)),
        )
        for n in range(33)
    ]
    board = make["board"](*rows, lens=lens if is_lens else None)
    benchmark = make["benchmark"](title="Llama 2 70B LoRA (MLPerf v5.1)", inference_submissions=1)
    filters = {"target": 0.93} if is_lens else {}
    site.answers["/long"] = html(
        "benchmark.html",
        benchmark=benchmark,
        board=board,
        filters=filters,
        facts={"entries": 33, "measured": 12, "updated": "2026-11-20"},
        map=board_map(rows, SECONDS),
    )
    tab.set_viewport_size({"width": width, "height": height})
    tab.goto(site.url + "/long")

    row = tab.locator(".board tbody tr").first
    assert row.bounding_box()["y"] < lowest
    picture = tab.locator(".board-map svg").bounding_box()
    if width == 1280:
        assert (picture["width"], picture["height"]) == (360, 176)
        assert 64 <= picture["y"] <= 80
        assert picture["y"] + picture["height"] <= 256
    else:
        assert picture["y"] > tab.locator(".board tbody tr").last.bounding_box()["y"]
    assert tab.evaluate(SCROLLED_INSIDE) == []
    assert not tab.locator("th", has_text="Energy").is_visible()
    if width == 1280:
        tab.locator("summary", has_text="Columns").click()
        assert tab.locator(".chip a", has_text="Energy").is_visible()
        tab.keyboard.press("Escape")
    assert not tab.locator("button", has_text="Compare").is_visible()
    tab.locator("td.mark input").first.check()
    assert tab.locator("button", has_text="Compare").is_visible()
    tab.evaluate("scrollTo(0, 1200)")
    if width == 1280:
        assert tab.locator(".board thead th").first.bounding_box()["y"] == 0


def test_a_board_counts_down_to_the_moment_it_closes(tab, site, make):
    context = {"benchmark": make["benchmark"](), "board": make["board"](), "filters": {}}
    for path, year in (("/later", "2099"), ("/earlier", "2020")):
        dates = [("Closes", f"{year}-12-01T00:00:00+00:00")]
        site.answers[path] = html("benchmark.html", **context, dates=dates)
    tab.goto(site.url + "/later")
    assert re.search(
        r"2099-12-01 00:00:00 UTC, in \d+ d \d+ h", tab.locator(".closes").inner_text()
    )
    tab.goto(site.url + "/earlier")
    assert "UTC, closed" in tab.locator(".closes").inner_text()


def test_charts_alone_load_their_library_and_only_when_they_come_into_view(tab, site):
    asked = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.set_viewport_size({"width": 390, "height": 120})
    for path in ("", "/charts/curves"):
        tab.goto(f"{site.url}/benchmarks/digits{path}", wait_until="networkidle")
        assert not any("plotly" in url for url in asked)
    show_chart(tab)
    assert any(url.endswith("plotly-basic.min.js") for url in asked)
    assert not tab.locator(".modebar").is_visible()  # A phone has no room for a toolbar.


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_every_chart_of_a_board_is_drawn_and_pointed_at_under_the_policy(
    tab, site, complaints, chart
):
    tab.goto(f"{site.url}/benchmarks/digits/charts/{chart.name}")
    assert tab.locator(".chart-list [aria-current]").inner_text() == chart.label
    show_chart(tab)
    points = [point.bounding_box() for point in tab.locator(".scatterlayer .point").all()[:3]]
    point = max(points, key=lambda box: box["width"])  # The end of a step has no mark.
    tab.mouse.move(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
    tab.locator(".hovertext").first.wait_for(timeout=30_000)
    buttons = tab.locator(".modebar-btn").all()
    titles = {button.get_attribute("data-title") for button in buttons}
    assert "Reset axes" in titles
    assert not any("hare" in title for title in titles)  # Nothing is sent to another host.
    if chart.name == "records":
        assert "A note for the caption." in tab.locator("figcaption").inner_text()
    assert complaints == []


def test_a_style_that_the_policy_refuses_would_be_seen(tab, site, complaints):
    tab.goto(site.url + "/")
    tab.evaluate("document.body.setAttribute('style', 'color: red')")
    eventually(tab, "document.body.style.color", "")
    for _ in range(100):
        if any(line.startswith("style-src-attr") for line in complaints):
            return
        tab.wait_for_timeout(50)
    raise AssertionError(complaints)


def test_the_axis_of_a_curve_can_be_switched_by_keyboard(tab, site):
    tab.goto(site.url + "/benchmarks/digits/charts/curves")
    show_chart(tab)
    assert "seconds" in tab.locator(".xtitle").text_content()
    tab.get_by_role("button", name="epochs").press("Enter")
    eventually(tab, "document.querySelector('.xtitle').textContent", "Epochs")
    assert tab.get_by_role("button", name="epochs").get_attribute("aria-pressed") == "true"


def test_a_chart_takes_the_colours_of_a_dark_page(tab, site):
    tab.emulate_media(color_scheme="dark")
    tab.goto(site.url + "/benchmarks/digits/charts/pareto")
    show_chart(tab)
    ink = "getComputedStyle(document.querySelector('.xtick text')).fill"
    assert tab.evaluate(ink) == "rgb(156, 165, 173)"
    tab.emulate_media(color_scheme="light")
    eventually(tab, ink, "rgb(90, 97, 105)")
    tab.get_by_role("button", name="Dark colours").click()
    eventually(tab, ink, "rgb(156, 165, 173)")


def test_the_chosen_colours_stay_and_the_systems_own_are_no_choice(tab, site, complaints):
    page = "getComputedStyle(document.body).backgroundColor"
    light, dark = "rgb(251, 251, 248)", "rgb(16, 19, 22)"
    tab.emulate_media(color_scheme="light")
    tab.goto(site.url + "/")
    switch = tab.get_by_role("button", name="Dark colours")
    assert (tab.evaluate(page), switch.get_attribute("aria-pressed")) == (light, "false")

    switch.press("Enter")
    assert (tab.evaluate(page), switch.get_attribute("aria-pressed")) == (dark, "true")
    tab.goto(site.url + "/workers")
    assert tab.evaluate(page) == dark
    assert tab.evaluate("document.documentElement.dataset.theme") == "dark"

    switch.press("Enter")
    assert tab.evaluate(page) == light
    tab.emulate_media(color_scheme="dark")
    eventually(tab, page, dark)
    eventually(tab, "document.querySelector('.theme').ariaPressed", "true")
    assert complaints == []


def test_a_browser_that_keeps_nothing_changes_the_colours_of_the_page_it_shows(
    tab, site, complaints
):
    refuses = "{ get() { throw new DOMException('denied', 'SecurityError'); } }"
    tab.add_init_script(f"Object.defineProperty(window, 'localStorage', {refuses})")
    tab.emulate_media(color_scheme="light")
    tab.goto(site.url + "/")
    tab.get_by_role("button", name="Dark colours").click()
    assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
    assert complaints == []


def test_a_figure_of_a_page_is_switched_by_keyboard_and_asks_for_no_library(tab, site, complaints):
    asked = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(site.url + "/submissions/sub-1")
    shown = tab.locator(".figure .face:visible svg[role=img]")
    assert "Time on the clock" in shown.get_attribute("aria-label")
    assert shown.locator("path[class^=is-series]").count() == 3
    tab.get_by_role("radio", name="seconds").press("ArrowRight")
    assert shown.get_attribute("aria-label").endswith("Epochs")
    assert shown.locator("path.is-band").count() == 1
    assert not [url for url in asked if "plotly" in url or url.endswith(".json")]
    assert complaints == []


def test_a_page_keeps_the_room_that_its_chart_will_take(tab, site):
    path = "/benchmarks/digits/charts/curves.json"
    drawn, gate = site.answers[path], threading.Event()

    def late():
        gate.wait(60)
        return drawn

    site.answers[path] = late
    tab.goto(site.url + "/benchmarks/digits/charts/curves")
    tab.locator("[data-chart]").first.scroll_into_view_if_needed()
    below = "document.querySelector('.chart').offsetHeight"
    before = tab.evaluate(below)
    gate.set()
    tab.wait_for_selector(DRAWN, timeout=30_000)
    assert tab.get_by_role("button", name="epochs").is_visible()
    assert abs(tab.evaluate(below) - before) < 10


def test_a_dark_page_is_printed_in_light_colours_without_its_controls(tab, site):
    tab.emulate_media(color_scheme="dark")
    tab.goto(site.url + "/benchmarks/digits/charts/pareto")
    show_chart(tab)
    tab.emulate_media(color_scheme="dark", media="print")
    ink = "getComputedStyle(document.querySelector('.xtick text')).fill"
    eventually(tab, ink, "rgb(90, 97, 105)")
    tab.goto(site.url + "/benchmarks/digits")
    for control in (".filters", "form.compare", ".board td.mark"):
        assert not tab.locator(control).first.is_visible(), control
    assert tab.locator(".board td.model").first.is_visible()
    mark = tab.locator(".board td.word .evidence .mark").first
    assert mark.is_visible()
    assert mark.evaluate("it => getComputedStyle(it).printColorAdjust") == "exact"


def test_a_chart_that_cannot_be_fetched_says_so(tab, site):
    del site.answers["/benchmarks/digits/charts/pareto.json"]
    tab.goto(site.url + "/benchmarks/digits/charts/pareto")
    tab.locator("[data-chart]").first.scroll_into_view_if_needed()
    tab.wait_for_selector("text=The chart could not be drawn (the server answered 404)")


def test_a_target_is_slid_and_the_board_asked_for_it_once(tab, site):
    tab.goto(site.url + "/benchmarks/digits")
    tab.locator(".what-if > summary").click()
    tab.locator("input[type=range]").focus()
    with tab.expect_navigation():
        for _ in range(3):
            tab.keyboard.press("ArrowLeft")

    asked = tab.evaluate("Object.fromEntries(new URL(location).searchParams)")
    assert list(asked) == ["metric", "target"]
    assert float(asked["target"]) < 97.5


def sse(event, payload):
    return f"event: {event}\ndata: {json.dumps(payload)}\n\n"


def sent(attempt, sequence, run=0, **changes):
    """One replay event as the stream carries it."""
    nothing = {"phase": None, "status": None, "ledger": None, "samples": None}
    place = {"epoch": float(sequence), "seconds": 0.1 * sequence, "kind": "evaluation"}
    ids = {"attempt": attempt, "sequence": sequence, "run": run}
    return sse("replay", nothing | place | ids | changes)


def second_attempt():
    """An attempt that trains run 0 to the target."""
    evaluations = [
        sent(2, i, quality=quality) for i, quality in enumerate([45.0, 90.0, 98.0], start=1)
    ]
    finish = sent(2, 4, kind="run_finished", status="reached")
    return "".join([*evaluations, finish])


def test_a_replay_is_followed_live_to_its_verdict(tab, site, make, complaints):
    queued, submission = make["queued_verification"](), make["submission"]()
    path = "/verifications/ver-1"
    site.answers[path] = html(
        "verification.html", **make["verification_page"](queued, submission=submission)
    )
    site.answers[f"{path}/charts/replay.json"] = as_json(replay_figure(queued))
    running = sse("state", make["queued_verification"](state="running"))
    lost = sent(1, 9, quality=99.9)
    drawn, checked, ended = threading.Event(), threading.Event(), threading.Event()
    # Every answer ends its connection; the browser connects again and is sent the attempt again.
    answers = iter(
        [
            (drawn, running + lost + second_attempt()),
            (checked, second_attempt() + sent(2, 5, run=1, quality=50.0)),
            (ended, sse("end", make["verification"]())),
        ]
    )

    def stream():
        gate, events = next(answers)
        gate.wait(60)
        return "text/event-stream", f"retry: 100\n\n{events}".encode()

    site.answers[f"/api/v1{path}/events"] = stream
    tab.goto(site.url + path)
    show_chart(tab)
    drawn.set()
    rows = "document.querySelectorAll('#evaluation-rows tr').length"
    eventually(tab, rows, 3)
    row = """document.querySelector('#run-rows tr[data-run="0"]')"""
    eventually(tab, f"{row}.cells[5].textContent", "reached")
    assert "98\u00a0%" in tab.evaluate(f"{row}.textContent")
    ys = "document.getElementById('chart').chart.figure.data.find(t => t.name === 'run 1').y"
    assert tab.evaluate(ys) == [45.0, 90.0, 98.0]
    checked.set()
    eventually(tab, rows, 4)
    done = make["verification"]()
    site.answers[path] = html(
        "verification.html", **make["verification_page"](done, submission=submission)
    )
    ended.set()
    tab.wait_for_selector("text=The replay of 3 runs supports the claim.")
    eventually(tab, rows, 24)
    assert tab.locator("#run-rows tr").count() == 3
    assert complaints == []


def test_what_comes_late_changes_no_verdict_and_has_no_commentary(tab, site, make, complaints):
    queued, submission = make["queued_verification"](), make["submission"]()
    path = "/verifications/ver-1"
    ended = site.answers[path]
    site.answers[path] = html(
        "verification.html", **make["verification_page"](queued, submission=submission)
    )
    figure, read = as_json(replay_figure(make["verification"]())), threading.Event()

    def late():
        read.wait(60)
        return figure

    def stream():
        site.answers[path] = ended
        running = sse("state", make["queued_verification"](state="running"))
        # The last evaluation and the end come together: nothing of it is drawn in between.
        events = running + second_attempt() + sse("end", make["verification"]())
        return "text/event-stream", events.encode()

    site.answers |= {f"/api/v1{path}/events": stream, f"{path}/charts/replay.json": late}
    tab.goto(site.url + path)
    tab.wait_for_selector("text=The replay of 3 runs supports the claim.")
    rows = "document.querySelectorAll('#evaluation-rows tr').length"
    eventually(tab, rows, 24)
    tab.evaluate(AFTER_TWO_FRAMES)
    said = "document.getElementById('commentary').textContent"
    assert tab.evaluate(said) == ""
    read.set()
    show_chart(tab)
    tab.evaluate(AFTER_TWO_FRAMES)
    assert (tab.evaluate(said), tab.evaluate(rows)) == ("", 24)
    assert complaints == []


def test_an_answer_that_comes_late_takes_no_verdict_back(tab, site, make, complaints):
    queued, submission = make["queued_verification"](), make["submission"]()
    running = make["queued_verification"](state="running")
    path = "/verifications/ver-1"
    ended = site.answers[path]
    loaded, before = (
        html("verification.html", **make["verification_page"](view, submission=submission))
        for view in (queued, running)
    )
    pages, streams = iter([loaded, before]), iter([sse("state", running)])
    asked, late = threading.Event(), threading.Event()

    def page():
        answer = next(pages, ended)
        if answer is before:
            asked.set()
            late.wait(60)
        return answer

    def stream():
        events = next(streams, None)
        if events is None:
            asked.wait(60)
            events = sse("end", make["verification"]())
        return "text/event-stream", f"retry: 100\n\n{events}".encode()

    site.answers[path] = page
    site.answers[f"/api/v1{path}/events"] = stream
    tab.goto(site.url + path)
    verdict = "The replay of 3 runs supports the claim."
    tab.wait_for_selector(f"text={verdict}")
    with tab.expect_event("requestfinished", lambda request: request.url == site.url + path):
        late.set()
    tab.evaluate(AFTER_TWO_FRAMES)
    assert tab.locator("[data-live=badge]").inner_text().endswith("verified")
    assert tab.get_by_text(verdict).is_visible()
    assert complaints == []


def test_what_was_lost_and_waits_again_is_not_said_to_train(tab, site, make, complaints):
    queued, submission = make["queued_verification"](), make["submission"]()
    path = "/verifications/ver-1"
    site.answers[path] = html(
        "verification.html", **make["verification_page"](queued, submission=submission)
    )
    site.answers[f"{path}/charts/replay.json"] = as_json(replay_figure(queued))
    claimed = threading.Event()

    def stream():
        events = sent(1, 1, quality=45.0)
        if claimed.is_set():
            running = make["queued_verification"](state="running")
            preparing = sent(2, 1, kind="phase", phase="warmup", quality=None)
            events = sse("state", running) + preparing
        return "text/event-stream", f"retry: 100\n\n{events}".encode()

    site.answers[f"/api/v1{path}/events"] = stream
    tab.goto(site.url + path)
    row = "document.querySelector('#run-rows tr')"
    eventually(tab, f"{row}.cells[2].textContent", "1")
    eventually(tab, f"{row}.cells[5].textContent", "ended early")
    assert tab.locator("#commentary").text_content() == ""
    claimed.set()
    eventually(tab, f"{row}.cells[5].textContent", "warming up")
    assert complaints == []


def test_a_duel_that_ends_shows_its_pairs_and_draws_them(tab, site, make, complaints):
    path = "/verifications/duel-1"
    sides = {"submission": make["submission"](), "against": make["submission"](id="sub-2")}
    nothing = make["duel"]()["duel"] | {"pairs": [], "time": None}
    running = make["duel"](id="duel-1", state="running", outcome=None, report=None, duel=nothing)
    ended = site.answers[path]
    site.answers[path] = html("verification.html", **make["verification_page"](running, **sides))
    gate = threading.Event()

    def stream():
        gate.wait(60)
        return "text/event-stream", sse("end", make["duel"]()).encode()

    site.answers[f"/api/v1{path}/events"] = stream
    tab.goto(site.url + path)
    assert tab.locator("#duel-chart").count() == 0
    site.answers[path] = ended
    gate.set()
    tab.wait_for_selector("text=The challenger is faster.")
    tab.locator("#duel-chart").scroll_into_view_if_needed()
    dots = "document.querySelectorAll('#duel-chart svg[role=img] .mark').length"
    eventually(tab, dots, 5)
    assert complaints == []
