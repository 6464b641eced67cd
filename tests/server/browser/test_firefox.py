"""The main pages in Firefox. `make test-firefox` runs this where there is one."""

import pytest
from axe_playwright_python.base import AXE_SCRIPT

from tests.server.browser.test_every_page import BEYOND, ON_COLOURS, RESTYLED, RUN_AXE, WIDTHS
from tests.support.firefox import running_firefox

pytestmark = [pytest.mark.browser, pytest.mark.nightly, pytest.mark.timeout(300)]
PUBLIC = (
    "/",
    "/benchmarks/{benchmark_id}",
    "/benchmarks/{benchmark_id}/charts",
    "/submissions/{submission_id}",
    "/submissions/{submission_id}?tab=runs",
    "/compare?ids={submission_id},{third_submission}",
    "/workers",
    "/docs/start",
    "/docs/api",
)
SIGNED_IN = ("/console", "/submit", "/console/decide/{rerun}", "/account")
DRAWN = """(() => { const charts = [...document.querySelectorAll("[data-chart]")]
 .filter(chart => chart.checkVisibility());
 for (const chart of charts) {
  if (!chart.querySelector(".main-svg, .plot > p")) { chart.scrollIntoView(); return false; } }
 return true; })()"""
SWITCH_SCHEME = """() => {
  window.background = getComputedStyle(document.body).backgroundColor;
  document.querySelector("button.theme").click();
}"""
SIGN_IN = """secret => {
  const field = document.querySelector("#f-token");
  field.value = secret;
  field.form.requestSubmit();
}"""


def faults_of(firefox, site, address):
    """What is wrong with a page at both widths, and for axe in both colour schemes.

    The switch stays, so the next page is loaded in the other scheme.
    """
    found = []
    for width in WIDTHS:
        firefox.show(site + address, width=width)
        firefox.wait(DRAWN)
        if (beyond := firefox.run(f"() => {BEYOND}")) > 0:
            found.append(f"{beyond} px wider than {width}")
    firefox.run(f"() => {{ {AXE_SCRIPT} }}")
    found += firefox.run(RUN_AXE, {})
    firefox.run(SWITCH_SCHEME)
    firefox.wait("getComputedStyle(document.body).backgroundColor !== window.background")
    firefox.run(RESTYLED)
    found += firefox.run(RUN_AXE, ON_COLOURS) + firefox.complaints
    firefox.complaints.clear()
    return [f"{address}: {one}" for one in found]


def test_main_pages_break_no_rule_in_firefox(site, filled, ada):
    with running_firefox() as firefox:
        faults = [f for page in PUBLIC for f in faults_of(firefox, site, page.format(**filled))]
        firefox.show(f"{site}/console/sign-in", width=1280)
        firefox.run(SIGN_IN, ada.secret)
        firefox.wait("location.pathname !== '/console/sign-in'")
        faults += [f for page in SIGNED_IN for f in faults_of(firefox, site, page.format(**filled))]
    assert not faults, "\n".join(faults)
