"""The main pages in Firefox: quiet, accessible, as wide as the window, and with drag and drop.

`make test-firefox` runs these; they are skipped on a machine without a Firefox.
"""

import base64

import pytest
from axe_playwright_python.base import AXE_SCRIPT

from tests.server.browser.test_every_page import OVERFLOW, RULES_ON_COLOURS, RUN_AXE
from tests.support.firefox import running_firefox

pytestmark = [pytest.mark.browser, pytest.mark.nightly, pytest.mark.timeout(300)]
WIDTHS = (390, 1280)
PUBLIC = (
    "/",
    "/benchmarks/{benchmark_id}",
    "/benchmarks/{benchmark_id}/charts",
    "/benchmarks/{benchmark_id}/ideas",
    "/submissions/{submission_id}",
    "/submissions/{submission_id}?tab=runs",
    "/verifications/{verification_id}/race",
    "/compare?ids={submission_id},{third_submission}",
    "/submissions",
    "/rounds/open",
    "/search?q=alice",
    "/workers",
    "/docs/start",
    "/docs/api",
    "/no-such-page",
)
SIGNED_IN = ("/console", "/submit", "/console/submissions", "/console/decide/{rerun}", "/account")
DRAWN = """(() => { const charts = [...document.querySelectorAll("[data-chart]")]
 .filter(chart => chart.checkVisibility());
 for (const chart of charts) {
  if (!chart.querySelector(".main-svg, .plot > p")) { chart.scrollIntoView(); return false; } }
 return true; })()"""
SWITCH_SCHEME = """() => {
  window.background = getComputedStyle(document.body).backgroundColor;
  document.querySelector("button.theme").click();
}"""
# Files as they are dragged out of another program.
DROP = """(files) => {
  const dropped = new DataTransfer();
  for (const [name, content] of files) {
    const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
    dropped.items.add(new File([bytes], name));
  }
  document.querySelector("form[data-drop]").dispatchEvent(
    new DragEvent("drop", { dataTransfer: dropped, bubbles: true, cancelable: true }));
}"""
FILL = """(selector, text) => {
  const field = document.querySelector(selector);
  field.value = text;
  field.form.requestSubmit();
}"""


@pytest.fixture(scope="module")
def firefox():
    with running_firefox() as opened:
        yield opened


def faults_of(firefox, site, address):
    """What is wrong with a page at both widths; axe judges one of them, in both schemes of colours.

    Only the rules on colours can tell the schemes apart. The switch stays, so that the next page is
    loaded in the other one.
    """
    found = []
    for width in WIDTHS:
        firefox.show(site + address, width=width)
        firefox.wait(DRAWN)
        if (beyond := firefox.run(f"() => {OVERFLOW}")) > 0:
            found.append(f"{beyond} px wider than {width}")
        found += firefox.run("() => window.violations")
    firefox.run(f"() => {{ {AXE_SCRIPT} }}")
    for rules in ({}, {"runOnly": RULES_ON_COLOURS}):
        found += [
            f"axe {broken['id']}: {broken['nodes'][0]['html'][:160]}"
            for broken in firefox.run(RUN_AXE, {"resultTypes": ["violations"]} | rules)
        ]
        if not rules:
            firefox.run(SWITCH_SCHEME)
            firefox.wait("getComputedStyle(document.body).backgroundColor !== window.background")
    found += [
        said for said in firefox.complaints if address != "/no-such-page" or "404" not in said
    ]
    firefox.complaints.clear()
    return [f"{address}: {one}" for one in found]


def sign_in(firefox, site, secret):
    firefox.show(f"{site}/console/sign-in", width=1280)
    firefox.run(FILL, "#f-token", secret)
    firefox.wait("location.pathname !== '/console/sign-in'")


def test_the_main_pages_are_quiet_accessible_and_fit(firefox, site, filled, ada):
    faults = [f for page in PUBLIC for f in faults_of(firefox, site, page.format(**filled))]
    faults += faults_of(firefox, site, "/console/sign-in")
    sign_in(firefox, site, ada.secret)
    faults += [f for page in SIGNED_IN for f in faults_of(firefox, site, page.format(**filled))]
    assert not faults, "\n".join(faults)


def test_dropped_files_are_checked_and_sent(firefox, address, digits_submission, alice):
    sign_in(firefox, address, alice.secret)
    firefox.show(f"{address}/submit", width=1280)
    files = [
        (
            name,
            base64.b64encode(content if isinstance(content, bytes) else content.encode()).decode(),
        )
        for _, (name, content) in digits_submission.files()
    ]
    firefox.run(DROP, files)
    firefox.wait("document.querySelector('.drop').textContent.includes('submission.json')")
    firefox.run("() => document.querySelector('form[data-drop]').requestSubmit()")
    firefox.wait("document.querySelector('h1')?.textContent === 'Preview'")
    assert "(1)" in firefox.run("() => document.querySelector('.facts').textContent")
    firefox.run(
        "() => [...document.forms].find(f => f.textContent.includes('Send')).requestSubmit()"
    )
    firefox.wait("location.pathname.startsWith('/submissions/')")
    assert "alice" in firefox.run("() => document.querySelector('h1').textContent")
    assert not firefox.complaints
