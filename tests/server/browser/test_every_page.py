"""Every page of a filled server: small, and accessible, quiet and narrow enough in Chromium.

Also without scripts. The pages are those of the application's routes, so a new page is visited too.
"""

import gzip

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import expect
from sqlalchemy import insert, select

from server.base.board_versions import raise_board_version
from server.base.models import Pool, PoolRun, RunRow, Submission, Verification
from tests.support.pages import BROWSER
from tests.support.statements import statements_of
from web.charts import CHARTS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
WIDTHS = (390, 1280)
FOUR_LOOKS = tuple((scheme, width) for scheme in ("light", "dark") for width in WIDTHS)
TWO_LOOKS = (("light", 390), ("dark", 1280))
# Pages that look different with another query, or of another submission or verification.
FACES = (
    *(f"/benchmarks/{{benchmark_id}}/charts/{chart.name}" for chart in CHARTS),
    "/benchmarks/{benchmark_id}?metric=cost",
    "/benchmarks/{benchmark_id}?metric=latency",
    "/benchmarks/{benchmark_id}?clock=dawnbench&target=95",
    "/benchmarks/{benchmark_id}?division=open",
    "/benchmarks/{benchmark_id}?q=nothing+is+called+so",
    "/benchmarks/imagenet",
    *(f"/submissions/{{submission_id}}?tab={tab}" for tab in ("runs", "scoring", "history")),
    "/submissions/{second_submission}",
    "/submissions/{long_submission}",
    "/submissions/{inference}",
    "/submissions/{entry}",
    "/submissions/{failed_entry}",
    "/verifications/{queued}",
    "/verifications/{head_to_head}",
    "/verifications/{measurement}",
    "/verifications/{failed_measurement}",
    "/compare",
    "/rounds/open?show=speed-up",
    "/docs/cli",
    "/docs/start",
    "/no-such-page",
)
# What scripts reveal to somebody who is signed in.
REVEALED = ("/benchmarks/{benchmark_id}", "/submissions/{submission_id}", "/submissions/{entry}")
# Reads of lists by the API, which send as few statements as their pages.
LISTS = (
    "/api/v1/benchmarks",
    "/api/v1/leaderboards/digits?limit=100",
    "/api/v1/submissions?limit=100",
    "/api/v1/verifications?limit=100",
    "/api/v1/workers",
)
ROWS = 100
MOST_STATEMENTS = 45  # Fewer than rows: a list that asks once for each of them is found.
MOST_BYTES = 25_000
BEYOND = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
CUT = """[...document.querySelectorAll('.tight')]
 .filter(table => table.scrollWidth > table.parentElement.clientWidth)
 .map(table => table.innerText.slice(0, 60))"""
WIDE = """[...document.querySelectorAll('main *')]
 .filter(e => !e.closest('.scroll, pre, svg, .plot')
  && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
 .slice(0, 3).map(e => e.outerHTML.slice(0, 120))"""
RUN_AXE = """options => axe.run(document, {resultTypes: ["violations"], ...options})
 .then(seen => seen.violations.map(v => `${v.id}: ${v.help}: ` +
  v.nodes.slice(0, 3).map(node => node.html.slice(0, 160)).join(" ")))"""
ON_COLOURS = {"runOnly": ["color-contrast", "link-in-text-block"]}
# Two frames, and the transitions that began: in the middle of one a colour is neither old nor new.
RESTYLED = """() => new Promise(
 done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))
 .then(() => Promise.allSettled(document.getAnimations()
  .filter(each => each.effect.getComputedTiming().endTime < Infinity).map(each => each.finished)))
 .then(() => true)"""
# The operations of a method look alike: axe takes half a minute for all of them.
KEEP_ONE_OPERATION_OF_A_KIND = """() => {
  const kinds = new Set();
  for (const each of document.querySelectorAll(".opblock")) {
    if (kinds.has(each.className)) each.remove();
    else kinds.add(each.className);
  }
}"""


def faces(filled):
    return [address.format(**filled) for address in FACES]


def sign_in(page, site, secret):
    page.goto(f"{site}/console/sign-in")
    page.fill("#f-token", secret)
    page.press("#f-token", "Enter")
    page.wait_for_url(lambda address: "/sign-in" not in address)


class Visit:
    """A tab that writes down what is wrong with the pages it sees."""

    def __init__(self, browser, site):
        self.site = site
        self.complaints = []
        self._address = ""
        self._context = browser.new_context(color_scheme="light", reduced_motion="reduce")
        self.page = self._context.new_page()
        self.page.on("console", lambda said: self._complain(f"console: {said.text}"))
        self.page.on("pageerror", lambda error: self._complain(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self._complain(f"dialog: {dialog.message}"))
        self.page.on("request", self._keep_host)
        self.page.on("requestfailed", self._keep_failed)
        self.page.on("response", self._keep_status)

    def _complain(self, words):
        if self._address != "/no-such-page" or "404" not in words:
            self.complaints.append(f"{self._address}: {words}")

    def _keep_host(self, request):
        if not request.url.startswith((self.site, "data:", "blob:")):
            self._complain(f"asks {request.url}")

    def _keep_failed(self, request):
        # A stream, or the renewal of a part, ends where its page is left.
        if "ERR_ABORTED" not in (request.failure or ""):
            self._complain(f"failed: {request.url}")

    def _keep_status(self, response):
        if response.status >= 400:
            self._complain(f"{response.status} {response.url}")

    def lets_in(self, address):
        """Whether the signed-in person may read a page."""
        return self._context.request.get(self.site + address).ok

    def see(self, address, looks=TWO_LOOKS):
        """Load a page, and look at it in colour schemes and at widths."""
        self._address = address
        self.page.goto(self.site + address, wait_until="load")
        self._draw_charts()
        self.page.evaluate(AXE_SCRIPT)
        for scheme, width in looks:
            self.page.emulate_media(color_scheme=scheme)
            self.page.set_viewport_size({"width": width, "height": 900})
            self.page.evaluate(RESTYLED)
            self._require_width(width)
            # The other rules find the same in both schemes.
            for broken in self.page.evaluate(RUN_AXE, {} if scheme == "light" else ON_COLOURS):
                self._complain(f"axe at {width} in {scheme}: {broken}")
        self.page.emulate_media(color_scheme="light")

    def _require_width(self, width):
        if (beyond := self.page.evaluate(BEYOND)) > 0:
            self._complain(f"{beyond} px wider than {width}: {self.page.evaluate(WIDE)}")
        if cut := self.page.evaluate(CUT):
            self._complain(f"tables cut at {width}: {cut}")

    def _draw_charts(self):
        """Bring each chart into view, wait until it is drawn, and point at one of its points."""
        for chart in self.page.locator("[data-chart]").all():
            if chart.is_visible():
                chart.scroll_into_view_if_needed()
                chart.locator(".main-svg, .plot > p").first.wait_for(timeout=30_000)
                points = [each.bounding_box() for each in chart.locator(".point").all()[:3]]
                if points:  # The end of a step has a point of no size.
                    point = max(points, key=lambda box: box["width"])
                    self.page.mouse.move(
                        point["x"] + point["width"] / 2, point["y"] + point["height"] / 2
                    )
        if self._address == "/docs/api":
            self.page.locator(".models > h4").wait_for()
            self.page.evaluate(KEEP_ONE_OPERATION_OF_A_KIND)

    def close(self):
        self._context.close()


@pytest.fixture
def visit(browser, site):
    made = Visit(browser, site)
    yield made
    made.close()


@pytest.fixture(params=[TWO_LOOKS, pytest.param(FOUR_LOOKS, marks=pytest.mark.nightly)])
def looks(request):
    """The schemes and widths that each page is seen in: half of them for every change."""
    return request.param


def test_public_pages_break_no_rule(visit, pages, filled, looks):
    for address in (*pages[0], "/console/sign-in"):
        visit.see(address, looks)
    for address in faces(filled):
        visit.see(address)
    assert not visit.complaints, "\n".join(visit.complaints)


def test_pages_of_people_break_no_rule(visit, pages, filled, looks, alice, ada):
    signed_in, seen = pages[1], set()
    for person in (ada, alice):
        visit.page.context.clear_cookies()
        sign_in(visit.page, visit.site, person.secret)
        theirs = set(filter(visit.lets_in, signed_in))
        for address in sorted(theirs):
            visit.see(address, TWO_LOOKS if address in seen else looks)
        for address in REVEALED:
            visit.see(address.format(**filled))
        seen |= theirs
    assert seen == set(signed_in)
    assert not visit.complaints, "\n".join(visit.complaints)


def test_pages_read_and_work_without_scripts(browser, site, pages, filled, ada):
    public, signed_in = pages
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    faults = [fault for each in (*public, *faces(filled)) for fault in faults_of(page, site, each)]
    page.goto(f"{site}/benchmarks/digits")
    page.locator("summary", has_text="Filters").click()
    page.fill("main [name=q]", "nothing is called so")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("main")).to_contain_text("0 matches")
    sign_in(page, site, ada.secret)
    faults += [fault for each in signed_in for fault in faults_of(page, site, each)]
    page.goto(f"{site}/console/decide/{filled['rerun']}")
    page.fill("[name=reason]", "the worker was quiet")
    page.get_by_role("button", name="Keep").click()
    page.goto(f"{site}/submissions/{filled['submission_id']}?tab=history")
    expect(page.locator("main")).to_contain_text("the worker was quiet")
    context.close()
    assert not faults, "\n".join(faults)


def faults_of(page, site, address):
    """What a reader without scripts misses on a page."""
    page.goto(site + address, wait_until="load")
    if not page.locator("main h1").first.is_visible():
        yield f"{address}: no heading to see"
    for chart in page.locator("figure.chart").all():
        links = chart.locator("figcaption a")
        twin = links.last.get_attribute("href") if links.count() else None
        table = page.locator(f"{twin} table") if twin else chart.locator("xpath=following::table")
        if (twin is None or twin[0] == "#") and not table.first.is_visible():
            yield f"{address}: a chart without its table"
    for button in page.locator("main button:visible").all():
        if not button.get_attribute("form") and not button.locator("xpath=ancestor::form").count():
            yield f"{address}: a button of no form"


def test_pages_stay_small_with_a_hundred_rows(client, pages, filled, database, ada):
    public, signed_in = pages
    add_rows(database, filled["submission_id"], filled["verification_id"])
    add_rows(database, filled["entry"], filled["measurement"])
    boards = [f"/benchmarks/digits?limit=100&division={each}" for each in ("closed", "open")]
    addresses = (*boards, *public, *faces(filled), *LISTS)
    sizes = [size_of(client, database, each) for each in addresses]
    signed = client.post(
        "/console/sign-in", data={"token": ada.secret}, headers={"Origin": "http://testserver"}
    )
    assert signed.status_code == 200, signed.text
    # What belongs to a submitter alone is not an admin's.
    theirs = [each for each in signed_in if client.get(each, headers=BROWSER).status_code != 403]
    assert len(theirs) > len(signed_in) - 3
    sizes += [size_of(client, database, each) for each in theirs]

    for board in boards:
        assert client.get(board, headers=BROWSER).text.count('href="/submissions/copy') > ROWS - 5
    assert not [each for each in sizes if each[1] > MOST_STATEMENTS or each[2] > MOST_BYTES]


def size_of(client, database, address):
    """An address, how many statements its answer takes, and the bytes of the answer in gzip."""
    with statements_of(database) as sent:
        answer = client.get(address, headers={} if address.startswith("/api") else BROWSER)
    assert answer.status_code == (404 if address == "/no-such-page" else 200), answer.text
    return address, len(sent), len(gzip.compress(answer.content))


def add_rows(database, submission_id, verification_id):
    """Copy a measured submission a hundred times, each with its own name, settings and time."""

    def copy(row, *without, **own):
        columns = {c.key: getattr(row, c.key) for c in type(row).__table__.c}
        copies.setdefault(type(row), []).append(
            {key: value for key, value in (columns | own).items() if key not in without}
        )

    copies = {}
    with database.write() as session:
        submission = session.get_one(Submission, submission_id)
        verification = session.get_one(Verification, verification_id)
        pool = session.get_one(Pool, submission.pool_id)
        runs = session.scalars(select(RunRow).where(RunRow.submission_id == submission_id)).all()
        sealed = session.scalars(select(PoolRun).where(PoolRun.pool_id == pool.id)).all()
        for number in range(ROWS):
            name, seconds = f"copy{number}{submission_id}", 10.1 + 0.37 * number
            own = {"model": f"{name} of a model", "tta_seconds": seconds, "idempotency_key": None}
            key = {"configuration_sha256": f"{name:064}"}
            copy(pool, id=name, measured_seconds=seconds, **key)
            copy(submission, id=name, pool_id=name, **own)
            copy(verification, id=name, submission_id=name)
            copy(verification.attempts[0], id=name, verification_id=name, token_sha256=None)
            for run in runs:
                copy(run, "id", submission_id=name)
            for index, run in enumerate(sealed):
                copy(run, pool_id=name, verification_id=name, index=index)
        for model, values in copies.items():
            session.execute(insert(model), values)
        raise_board_version(session, "digits")
