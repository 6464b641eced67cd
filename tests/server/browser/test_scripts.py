"""What scripts add to pages that work without them."""

import pytest
from playwright.sync_api import expect

from tests.server.browser.test_every_page import sign_in

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
INK = "getComputedStyle(document.querySelector('.xtick text')).fill"
CHARTS = "/benchmarks/digits/charts"


@pytest.fixture
def page(browser):
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    yield context.new_page()
    context.close()


def draw_chart(page):
    chart = page.locator("[data-chart]").first
    chart.scroll_into_view_if_needed()
    chart.locator(".main-svg").first.wait_for(timeout=30_000)


def becomes(page, expression, wanted):
    """Wait until an expression is true: the policy of the pages forbids wait_for_function."""
    for _ in range(400):
        if (found := page.evaluate(expression)) == wanted:
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{expression} is {found!r}, not {wanted!r}")


def test_chosen_colours_stay(page, address):
    page.goto(f"{address}{CHARTS}/curves")
    draw_chart(page)
    light, ink = page.evaluate(BACKGROUND), page.evaluate(INK)
    page.get_by_role("button", name="Dark colours").press("Enter")
    becomes(page, f"{INK} !== '{ink}'", True)
    dark = page.evaluate(BACKGROUND)
    assert dark != light
    page.emulate_media(media="print")
    becomes(page, INK, ink)
    page.emulate_media(media="screen")
    page.goto(f"{address}/workers")
    assert page.evaluate(BACKGROUND) == dark
    page.get_by_role("button", name="Dark colours").press("Enter")
    assert page.evaluate(BACKGROUND) == light
    page.emulate_media(color_scheme="dark")  # Back at the system's own, the page follows it.
    becomes(page, BACKGROUND, dark)


def test_charts_are_drawn_in_view(page, address, replay, make_report):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.set_viewport_size({"width": 390, "height": 120})
    page.goto(f"{address}/verifications/{replay.verification_id}", wait_until="networkidle")
    assert not any("plotly" in url for url in asked)
    draw_chart(page)
    assert any("plotly" in url for url in asked)
    assert replay.report(replay.claim().json(), make_report(replay.seeds())).is_success
    page.goto(f"{address}{CHARTS}/curves")
    draw_chart(page)
    assert "seconds" in page.locator(".xtitle").text_content()
    page.get_by_role("button", name="epochs").press("Enter")
    becomes(page, "document.querySelector('.xtitle').textContent", "Epochs")
    page.route("**/curves.json*", lambda route: route.fulfill(status=404, body="gone"))
    page.reload()
    page.locator("[data-chart]").first.scroll_into_view_if_needed()
    page.wait_for_selector("text=The chart could not be drawn (the server answered 404)")


def test_board_follows_its_reader(page, address, variants, olivia):
    page.goto(f"{address}/benchmarks/digits")
    expect(page.locator("a.sign-in")).to_have_text("Sign in")
    expect(page.locator("button", has_text="Compare")).to_be_hidden()
    for row in (0, 1):
        page.locator("td.mark input").nth(row).check()
    expect(page.locator("[data-role=organiser]")).to_be_hidden()
    page.locator("button", has_text="Compare").click()
    page.wait_for_url("**/compare?ids=*")

    sign_in(page, address, olivia.secret)
    page.goto(f"{address}/benchmarks/digits")
    expect(page.locator("a.sign-in")).to_have_text("Account (olivia)")
    page.locator("td.mark input").first.check()
    expect(page.locator("[data-role=organiser]")).to_be_visible()
    page.locator(".more > summary").click()
    page.locator("input[type=range]").focus()
    with page.expect_navigation():
        for _ in range(3):
            page.keyboard.press("ArrowLeft")
    asked = page.evaluate("Object.fromEntries(new URL(location).searchParams)")
    assert float(asked["target"]) < 97.5


def test_dropped_folder_is_checked_and_sent(page, address, digits_submission, alice, tmp_path):
    folder = tmp_path / "my-runs"
    folder.mkdir()
    for _, (name, content) in digits_submission.files():
        (folder / name).write_bytes(content)
    sign_in(page, address, alice.secret)
    page.goto(f"{address}/submit")
    drag(page, folder)
    expect(page.locator(".drop")).to_contain_text("my-runs/submission.json")
    page.get_by_role("button", name="Check and preview").click()
    page.get_by_role("button", name="Send").click()
    page.wait_for_url("**/submissions/*")
    expect(page.locator("main")).to_contain_text("by alice")


def drag(page, path):
    """Drag a file or a folder of this machine onto the form, as from another program."""
    box = page.locator(".drop").bounding_box()
    dragged = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
    at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2, "data": dragged}
    session = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind} | at)
