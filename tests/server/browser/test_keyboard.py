"""The site by keyboard alone."""

from dataclasses import replace

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import expect

from tests.server.browser.test_every_page import RUN_AXE

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
FILES = "#f-files"
# A field of a date takes a Tab for each of its parts.
MOST_ON_ONE = 5
MOST_TABS = 600
TABS_AT_ONCE = 25
# Notes after each Tab the focused element: its name, its place among all, and whether a ring shows
# where it is. A field may ask for the focus, so the way begins at the top.
NOTE_FOCUSED = """() => {
  document.activeElement?.blur();
  window.focused = [];
  addEventListener("keyup", () => {
    const e = document.activeElement;
    if (!e || e === document.body) return focused.push(null);
    const box = e.getBoundingClientRect(), style = getComputedStyle(e);
    const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
    const inside = box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight
      && box.right > 0 && box.left < innerWidth;
    focused.push({ name: e.outerHTML.slice(0, 100), seen: inside && ring,
      place: [...document.querySelectorAll("*")].indexOf(e) });
  }, true);
}"""


def tab_to(page, selector):
    """Press Tab until the focus is where a selector points."""
    wanted = page.locator(selector).first
    for _ in range(80):
        if wanted.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"80 Tabs do not lead to {selector}")


def choose(page, parts):
    """Choose files, then check them.

    Key presses in the dialog of the system are beyond the page.
    """
    fill_in(page, parts)
    tab_to(page, "button:has-text('Check and preview')")
    page.keyboard.press("Enter")


def fill_in(page, parts):
    """Choose files in the field that Tab leads to."""
    tab_to(page, FILES)
    files = [
        {"name": name, "mimeType": "text/plain", "buffer": content}
        for _, (name, content) in parts.files()
    ]
    page.locator(FILES).set_input_files(files)


def test_logs_are_sent_by_keyboard(browser, address, digits_submission, alice):
    context = browser.new_context()
    # The scripts of a page are files: without these it has none, and axe can still look at it.
    context.route("**/static/**/*.js*", lambda route: route.abort())
    page = context.new_page()
    page.goto(f"{address}/")
    tab_to(page, "header a.button")
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/sign-in?next=*")
    for secret in ("fl_wrong", alice.secret):
        tab_to(page, "#f-token")
        page.keyboard.type(secret)
        page.keyboard.press("Enter")
        if secret != alice.secret:
            expect(page.locator("#errors")).to_be_focused()
    page.wait_for_url("**/submit")

    broken = replace(digits_submission, claim=digits_submission.claim | {"division": "ajar"})
    choose(page, broken)
    expect(page.locator("#errors")).to_be_focused()
    expect(page.locator(".reasons")).to_contain_text("submission.json, division")
    page.evaluate(AXE_SCRIPT)
    assert page.evaluate(RUN_AXE, {}) == []
    choose(page, digits_submission)
    expect(page.locator(".facts")).to_contain_text("noneof 1")
    page.evaluate(AXE_SCRIPT)
    assert page.evaluate(RUN_AXE, {}) == []
    fill_in(page, digits_submission)  # Without scripts a page that was loaded has no file.
    tab_to(page, "button:has-text('Send')")
    page.keyboard.press("Enter")
    page.wait_for_url("**/submissions/*")
    expect(page.locator(".top-card")).to_contain_text("alice")
    context.close()


def tab(page):
    """Press Tab, and yield the element that each one leads to."""
    page.evaluate(NOTE_FOCUSED)
    for _ in range(MOST_TABS // TABS_AT_ONCE):
        for _ in range(TABS_AT_ONCE):
            page.keyboard.press("Tab")
        yield from page.evaluate("() => focused.splice(0)")


def faults_of_tabbing(page):
    """What is wrong on the way from the first element to the last by Tab alone."""
    faults, last, times = [], -1, 0
    for focused in tab(page):
        if focused is None or (focused["place"] < last > 0 and "skip" in focused["name"]):
            return faults
        if not focused["seen"]:
            faults.append(f"no focus to see: {focused['name']}")
        if focused["place"] < last:
            return [*faults, f"back: {focused}"]
        times = times + 1 if focused["place"] == last else 1
        if times > MOST_ON_ONE:
            return [*faults, f"a trap: {focused['name']}"]
        last = focused["place"]
    return [*faults, f"no end after {MOST_TABS} Tabs"]


@pytest.mark.nightly
def test_tab_leads_through_every_page(browser, site, pages):
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page, faults = context.new_page(), []
    # Swagger UI draws hundreds of buttons on the page of the API, some time after its load.
    for address in sorted(set(pages[0]) - {"/docs/api"}):
        page.goto(site + address, wait_until="load")
        faults += [f"{address}: {fault}" for fault in faults_of_tabbing(page)]
    context.close()
    assert not faults, "\n".join(faults)
