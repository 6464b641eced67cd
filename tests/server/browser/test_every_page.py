"""Every page of a filled server in a real browser: at three widths, in light and dark."""

import pytest
from axe_playwright_python.base import AXE_SCRIPT

from server.pages import endpoints as pages
from web.charts import CHARTS as BOARD_CHARTS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(420)]
WIDTHS = (390, 1280, 1920)
# What a page is asked for with beside its path, and pages that have several faces.
FACES = (
    "/benchmarks/{benchmark_id}?metric=cost",
    "/benchmarks/{benchmark_id}?metric=latency",
    "/benchmarks/{benchmark_id}?clock=dawnbench&target=95",
    "/benchmarks/{benchmark_id}?q=nothing+is+called+so",
    "/benchmarks/imagenet",
    "/submissions/{second_submission}",
    "/submissions/{long_submission}",
    "/submissions/{inference}",
    "/verifications/{queued}",
    "/verifications/{rerun}",
    "/verifications/{duel}",
    "/submissions/{entry}",
    "/submissions/{failed_entry}",
    "/verifications/{measurement}",
    "/verifications/{failed_measurement}",
    "/benchmarks/{benchmark_id}?division=open",
    "/compare",
    "/workers/{name}",
    "/rounds/open?show=speed-up",
    "/submitters/alice",
    "/docs/rules",
    "/docs/cli",
    "/docs/start",
    "/no-such-page",
)
QUERIES = {
    "/compare": "?ids={submission_id},{third_submission}",
    "/verifications/compare": "?first={verification_id}&second={rerun}",
}
SIGNED_IN = ("/console", "/submit", "/account")
CHARTS = "/benchmarks/{benchmark_id}/charts/{name}"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# Only the violations come back: what passed is many times as long, and nobody reads it. What
# Swagger UI draws is its own.
RUN_AXE = """options => axe.run({exclude: [["#swagger-ui"]]}, options)
 .then(seen => seen.violations)"""
RULES_ON_COLOURS = ["color-contrast", "link-in-text-block"]
# Two frames, and the transitions that began: in the middle of one a colour is neither old nor new.
RESTYLED = """() => new Promise(
 done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))
 .then(() => Promise.allSettled(document.getAnimations()
  .filter(each => each.effect.getComputedTiming().endTime < Infinity).map(each => each.finished)))
 .then(() => true)"""
CUT = """[...document.querySelectorAll('.tight')]
 .filter(table => table.scrollWidth > table.parentElement.clientWidth)
 .map(table => table.innerText.slice(0, 60))"""
WIDE = """[...document.querySelectorAll('main *')]
 .filter(e => !e.closest('.scroll, pre, svg, .plot')
  && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
 .slice(0, 3).map(e => e.outerHTML.slice(0, 120))"""


def page_routes(router):
    """The paths of a router, and of those it includes, that are answered with a page."""
    for route in router.routes:
        if hasattr(route, "original_router"):
            yield from page_routes(route.original_router)
        elif "GET" in route.methods and "." not in route.path and ":path" not in route.path:
            yield route.path


def pages_of(filled, *, faces=True):
    """The address of every page there is: none can be forgotten here.

    Without `faces` each page once, and of the charts' pages, which are alike, one.
    """
    paths = [
        path + QUERIES.get(path, "")
        for router in pages.ROUTERS
        for path in page_routes(router)
        if path != CHARTS and not path.startswith("/console/sign-in/")
    ]
    charts = [CHARTS.replace("{name}", chart.name) for chart in BOARD_CHARTS]
    beside = [*charts, *FACES] if faces else charts[:1]
    return [path.format(**filled) for path in (*paths, *beside)]


class Visit:
    """A tab that writes down what is wrong with the pages it sees.

    Each page is loaded in the colour scheme that the one before it was left in, so every other one
    in dark, and looked at in both.
    """

    def __init__(self, browser, site):
        self.site = site
        self.complaints = []
        self.page_address = ""
        self._scheme = "light"
        self._context = browser.new_context(color_scheme=self._scheme, reduced_motion="reduce")
        self._page = self._context.new_page()
        self._page.on("console", lambda said: self._complain(f"console: {said.text}"))
        self._page.on("pageerror", lambda error: self._complain(f"error: {error}"))
        self._page.on("dialog", lambda dialog: self._complain(f"dialog: {dialog.message}"))
        self._page.on("request", self._keep_host)

    def _complain(self, words):
        if "status of 404" in words and self.page_address == "/no-such-page":
            return  # Chromium's own word on a page that is meant to be missing.
        self.complaints.append(f"{self.page_address} ({self._scheme}): {words}")

    def _keep_host(self, request):
        if not request.url.startswith((self.site, "data:", "blob:")):
            self._complain(f"asks {request.url}")

    def sign_in(self, secret):
        """Open the console with a token."""
        self._page.goto(f"{self.site}/console/sign-in")
        self._page.fill("#f-token", secret)
        self._page.press("#f-token", "Enter")
        self._page.wait_for_url(f"{self.site}/console")

    def see(self, address):
        """Load a page once, then look at it at each width."""
        self.page_address = address
        self._page.set_viewport_size({"width": WIDTHS[0], "height": 900})
        self._page.goto(self.site + address, wait_until="load")
        for width in WIDTHS:
            self._page.set_viewport_size({"width": width, "height": 900})
            if (beyond := self._page.evaluate(OVERFLOW)) > 0:
                wide = self._page.evaluate(WIDE)
                self._complain(f"{beyond} px wider than {width}: {wide}")
            if cut := self._page.evaluate(CUT):
                self._complain(f"tables cut at {width}: {cut}")

    def draw_charts(self):
        """Bring each chart into view and wait until it is drawn, or says why it is not."""
        for chart in self._page.locator("[data-chart]").all():
            if chart.is_visible():
                chart.scroll_into_view_if_needed()
                chart.locator(".main-svg, .plot > p").first.wait_for(timeout=30_000)

    def hold_against_axe(self, *, in_both_schemes=True):
        """Complain of every rule of accessibility that the page breaks, in light and dark.

        Only the rules on colours can tell the schemes apart: the others are held once.
        """
        self._page.evaluate(AXE_SCRIPT)
        self._complain_of_axe({})
        if not in_both_schemes:
            return
        self._scheme = "dark" if self._scheme == "light" else "light"
        self._page.emulate_media(color_scheme=self._scheme)
        self._page.evaluate(RESTYLED)
        self._complain_of_axe({"runOnly": RULES_ON_COLOURS})

    def _complain_of_axe(self, options):
        for broken in self._page.evaluate(RUN_AXE, {"resultTypes": ["violations"]} | options):
            where = [node["html"][:160] for node in broken["nodes"][:3]]
            self._complain(f"axe {broken['id']}: {broken['help']}: {where}")

    def close(self):
        self._context.close()


@pytest.fixture
def visit(browser, site):
    made = Visit(browser, site)
    yield made
    made.close()


def test_every_page_is_quiet_accessible_and_fits(visit, filled, ada):
    addresses = pages_of(filled)
    assert {"/benchmarks/digits", "/console/verify", "/console/users"} < set(addresses)
    # Signed in last: nobody is asked again who has signed in already.
    addresses.sort(key=lambda address: address.startswith(SIGNED_IN))
    # Another face of a page has its colours again; half of them are loaded in dark.
    once = set(pages_of(filled, faces=False))
    signed_in = False
    for address in addresses:
        if address.startswith(SIGNED_IN) and not signed_in:
            visit.see("/console/sign-in")
            visit.hold_against_axe()
            visit.sign_in(ada.secret)
            signed_in = True
        visit.see(address)
        visit.draw_charts()
        visit.hold_against_axe(in_both_schemes=address in once)
    assert not visit.complaints, "\n".join(visit.complaints)


def test_a_board_is_filtered_sorted_and_its_chart_read_by_keyboard(browser, site):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(f"{site}/benchmarks/digits")
    tab_to(page, "summary:has-text('Evidence')")
    page.keyboard.press("Enter")
    tab_to(page, "details[open] a:has-text('measured')")
    page.keyboard.press("Enter")
    page.wait_for_url("**evidence=measured**")
    assert page.locator(".board tbody tr").count() == 1

    tab_to(page, "th a:has-text('System')")
    page.keyboard.press("Enter")
    page.wait_for_selector("th[aria-sort=ascending] >> text=System")
    assert page.url.endswith("#board")
    tab_to(page, "a:has-text('Charts')")
    page.keyboard.press("Enter")
    page.wait_for_url("**/charts?**evidence=measured**")
    tab_to(page, ".chart-list a:has-text('Trade-offs')")
    page.keyboard.press("Enter")
    page.wait_for_url("**/charts/pareto?**evidence=measured**")
    assert page.locator("[aria-labelledby=figures] tbody tr").count() == 1
    context.close()


def tab_to(page, selector):
    """Press Tab until the focus is where a selector points, forwards from wherever it is."""
    wanted = page.locator(selector).first
    for _ in range(80):
        if wanted.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"80 Tabs do not lead to {selector}")
