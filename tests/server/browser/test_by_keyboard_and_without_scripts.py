"""Pages by the keyboard alone and without scripts, and the API's page held against axe."""

import pytest
from axe_playwright_python.base import AXE_SCRIPT

from tests.server.browser.test_every_page import (
    RESTYLED,
    RULES_ON_COLOURS,
    SIGNED_IN,
    pages_of,
    tab_to,
)

pytestmark = [pytest.mark.browser, pytest.mark.timeout(420)]
BROKEN = "options => axe.run(document, options).then(seen => seen.violations.map(v => v.id))"
# The operations of a method look alike: axe takes half a minute for all of them.
KEEP_ONE_OF_A_KIND = """() => {
  const kinds = new Set();
  for (const each of document.querySelectorAll(".opblock")) {
    if (kinds.has(each.className)) each.remove();
    else kinds.add(each.className);
  }
  return kinds.size;
}"""
# A field of a date takes a Tab for each of its parts.
MOST_ON_ONE = 5
MOST_TABS = 600
TABS_AT_ONCE = 25
# Notes after each Tab the focused element: its name, where it stands among all, and whether a ring
# shows where it is. A field may ask for the focus, which begins at the top.
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


def public_pages(filled):
    """The address of each page that needs no account."""
    return [page for page in pages_of(filled, faces=False) if not page.startswith(SIGNED_IN)]


def tab(page):
    """Press Tab; yields the element that each one leads to."""
    page.evaluate(NOTE_FOCUSED)
    for _ in range(MOST_TABS // TABS_AT_ONCE):
        for _ in range(TABS_AT_ONCE):
            page.keyboard.press("Tab")
        yield from page.evaluate("() => focused.splice(0)")


def faults_of_tabbing(page):
    """What is wrong on the way from the first element to the last by Tab alone."""
    faults, last, times = [], -1, 0
    for focused in tab(page):
        if focused is None:
            return faults
        if not focused["seen"]:
            faults.append(f"no focus to see: {focused['name']}")
        if focused["place"] < last:
            return (
                faults if last > 0 and "skip" in focused["name"] else [*faults, f"back: {focused}"]
            )
        times = times + 1 if focused["place"] == last else 1
        if times > MOST_ON_ONE:
            return [*faults, f"a trap: {focused['name']}"]
        last = focused["place"]
    return [*faults, f"no end after {MOST_TABS} Tabs"]


def test_tab_leads_through_every_public_page_in_its_order_and_out_of_it(browser, site, filled):
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page, faults = context.new_page(), []
    # Swagger UI draws hundreds of buttons on the page of the API, some time after its load.
    for address in sorted(set(public_pages(filled)) - {"/docs/api"}):
        page.goto(site + address, wait_until="load")
        faults += [f"{address}: {fault}" for fault in faults_of_tabbing(page)]
    context.close()
    assert not faults, "\n".join(faults)


def test_a_verification_is_requested_and_a_verdict_decided_by_keyboard(
    browser, site, filled, olivia
):
    context = browser.new_context(viewport={"width": 1280, "height": 700}, reduced_motion="reduce")
    page, faults = context.new_page(), []

    def press(selector, leads_to):
        tab_to(page, selector)
        page.keyboard.press("Enter")
        page.wait_for_url(f"**{leads_to}")

    page.goto(f"{site}/submissions/{filled['third_submission']}/verify")
    page.keyboard.type(olivia.secret)  # The one field has the focus.
    page.keyboard.press("Enter")
    page.wait_for_url("**/verify")
    press("button:has-text('Request it')", "/verifications/*")
    assert "queued" in page.locator("h1").inner_text()

    decision = f"/console/decide/{filled['rerun']}"
    for address in ("/console", decision, "/submit", "/account"):
        page.goto(site + address)
        faults += [f"{address}: {fault}" for fault in faults_of_tabbing(page)]
    page.goto(f"{site}/")
    press("a.sign-in", "/console")
    press(f"a[href='{decision}']", decision)
    tab_to(page, "[name=reason]")
    page.keyboard.type("the worker was quiet")
    tab_to(page, "button:has-text('Keep')")
    page.keyboard.press("Enter")
    page.locator(".notice.is-done").wait_for()
    page.goto(f"{site}/submissions/{filled['submission_id']}?tab=history")
    assert "the worker was quiet" in page.locator("main").inner_text()
    context.close()
    assert not faults, "\n".join(faults)


def test_pages_say_without_scripts_what_they_say_with_them(browser, site, filled, ada):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    faults = []
    for address in public_pages(filled):
        page.goto(site + address, wait_until="load")
        if not page.locator("main h1").first.is_visible():
            faults.append(f"{address}: no heading to see")
        buttons = page.locator("main button:visible").all()
        faults += [f"{address}: a button of no form" for each in buttons if not _acts(each)]
    page.goto(f"{site}/benchmarks/digits")
    page.locator("summary", has_text="More").click()
    page.fill("main [name=q]", "nothing is called so")
    page.get_by_role("button", name="Show").click()
    assert "No match" in page.locator("main").inner_text()
    page.goto(f"{site}/console/sign-in")
    page.fill("#f-token", ada.secret)
    page.press("#f-token", "Enter")
    page.goto(f"{site}/console/decide/{filled['rerun']}")
    page.fill("[name=reason]", "the worker was quiet")
    page.get_by_role("button", name="Keep").click()
    page.goto(f"{site}/submissions/{filled['submission_id']}?tab=history")
    assert "the worker was quiet" in page.locator("main").inner_text()
    context.close()
    assert not faults, "\n".join(faults)


def _acts(button):
    """Whether a button is of a form, so that it does something without a script."""
    return bool(button.get_attribute("form") or button.locator("xpath=ancestor::form").count())


def test_the_page_of_the_api_breaks_no_rule_of_accessibility(browser, address):
    context = browser.new_context(color_scheme="light", reduced_motion="reduce")
    page = context.new_page()
    page.goto(f"{address}/docs/api")
    page.locator(".opblock-summary-control").first.wait_for()
    page.locator(".models > h4").wait_for()
    assert page.evaluate(KEEP_ONE_OF_A_KIND) >= 4
    page.evaluate(AXE_SCRIPT)
    assert page.evaluate(BROKEN, {}) == []
    page.emulate_media(color_scheme="dark")
    page.evaluate(RESTYLED)
    assert page.evaluate(BROKEN, {"runOnly": RULES_ON_COLOURS}) == []
    context.close()
