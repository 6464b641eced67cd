"""Submit with the keyboard alone and without scripts, and by dropping a folder."""

from dataclasses import replace

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import expect

from tests.server.browser.test_every_page import RUN_AXE, tab_to

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]
FILES = "#f-files"


def choose(page, parts):
    """Choose files in the field that Tab leads to, then check them.

    Key presses in the dialog of the system are beyond the page.
    """
    tab_to(page, FILES)
    page.locator(FILES).set_input_files(
        [
            {"name": name, "mimeType": "text/plain", "buffer": content}
            for _, (name, content) in parts.files()
        ]
    )
    tab_to(page, "button:has-text('Check and preview')")
    page.keyboard.press("Enter")


def broken_rules(page):
    """Rules of accessibility that a page breaks."""
    page.evaluate(AXE_SCRIPT)
    return [broken["id"] for broken in page.evaluate(RUN_AXE, {"resultTypes": ["violations"]})]


def test_a_claim_is_mended_previewed_and_sent(browser, address, digits_submission, alice):
    context = browser.new_context()
    # Scripts of a page are files: without these it has none, and axe can still look at it.
    context.route("**/static/**/*.js*", lambda route: route.abort())
    page = context.new_page()
    complaints = []
    blocked = []
    page.on("requestfailed", lambda request: blocked.append(request.url))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(f"{address}/")
    tab_to(page, "nav a:has-text('Submit')")
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/sign-in?next=*")
    tab_to(page, "#f-token")
    page.keyboard.type(alice.secret)
    page.keyboard.press("Enter")
    page.wait_for_url("**/submit")
    broken = replace(digits_submission, claim=digits_submission.claim | {"division": "ajar"})

    choose(page, broken)
    expect(page.locator("#errors")).to_be_focused()
    expect(page.locator(".reasons")).to_contain_text("submission.json, division")
    complaints += broken_rules(page)
    choose(page, digits_submission)

    expect(page.locator(".facts")).to_contain_text("(1)of 1")
    complaints += broken_rules(page)
    tab_to(page, "button:has-text('Send')")
    page.keyboard.press("Enter")
    page.wait_for_url("**/submissions/*")
    expect(page.locator("h1")).to_contain_text("alice")
    assert not complaints
    assert blocked
    context.close()


def test_a_dropped_folder_is_checked_and_sent(browser, address, digits_submission, alice, tmp_path):
    folder = tmp_path / "my-runs"
    folder.mkdir()
    for _, (name, content) in digits_submission.files():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{address}/console/sign-in?next=/submit")
    page.fill("#f-token", alice.secret)
    page.press("#f-token", "Enter")
    page.wait_for_url("**/submit")

    drag(page, folder)
    expect(page.locator(".drop")).to_contain_text("my-runs/submission.json")
    page.get_by_role("button", name="Check and preview").click()
    expect(page.locator(".facts")).to_contain_text("(1)of 1")
    page.get_by_role("button", name="Send").click()
    page.wait_for_url("**/submissions/*")
    expect(page.locator("h1")).to_contain_text("alice")
    context.close()


def drag(page, path):
    """Drag a file or a folder of this machine onto the form, as from another program."""
    box = page.locator(".drop").bounding_box()
    dragged = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
    at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2, "data": dragged}
    session = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind} | at)
