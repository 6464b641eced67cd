"""The console by keyboard alone, without JavaScript, against a real server."""

import socket
import threading
import time
from dataclasses import dataclass

import orjson
import pytest
import uvicorn

from server.app import create_app
from server.base.database import Database
from server.base.schema import migrate
from server.base.settings import Settings
from server.people.accounts import create_token
from tests.server.conftest import build_log
from tests.support.processes import asking

pytestmark = pytest.mark.browser
WAIT_SECONDS = 20.0


@dataclass(frozen=True)
class Site:
    """A running server with one submission, and an organiser's token."""

    url: str
    secret: str
    submission_id: str


@pytest.fixture
def console_site(tmp_path, digits):
    """A server on a port of its own."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    address = f"sqlite:///{tmp_path / 'finishline.db'}"
    database = Database(address)
    migrate(database)
    with database.write() as session:
        made = create_token(session, user_name="olivia", role="organiser", expires_in=None)
    settings = Settings(
        database_url=address, artifacts_dir=tmp_path / "artifacts", rate_limits=False
    )
    config = uvicorn.Config(create_app(settings, dispatch=False), log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    limit = time.monotonic() + WAIT_SECONDS
    while not server.started and time.monotonic() < limit:
        thread.join(timeout=0.02)
    assert server.started
    yield Site(url, made.secret, submit(url, made.secret, digits))
    server.should_exit = True
    thread.join(timeout=WAIT_SECONDS)
    listening.close()
    database.close()


def submit(url, secret, digits):
    """Send three honest runs; the submission's id."""
    names = [f"run_{index}.log" for index in range(3)]
    system = {"name": "m", "hardware_class": "cpu", "processor": "p", "processor_count": 1,
              "memory_gib": 1}  # fmt: skip
    claim = {"benchmark": "digits", "division": "closed", "model": "m", "framework": "f",
             "system": system, "hyperparameters": {"batch_size": 64}, "runs": names}  # fmt: skip
    logs = [
        ("logs", (name, build_log(digits, index, name=name))) for index, name in enumerate(names)
    ]
    answer = asking.post(
        f"{url}/api/v1/submissions",
        files=[("submission", ("submission.json", orjson.dumps(claim))), *logs],
        headers={"Authorization": f"Bearer {secret}"},
        timeout=WAIT_SECONDS,
    )
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def tab_to(page, selector):
    """Press Tab until an element has the focus."""
    for _ in range(60):
        if page.locator(f"{selector}:focus").count():
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab never reaches {selector}")


def who_is_signed_in(browser, url, cookies):
    """The corner of a page that is kept ready: for anybody, and with the cookies of a session."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{url}/benchmarks/digits")
    anybody = page.inner_text("a.sign-in")
    assert page.locator("[data-role=organiser][hidden]").count() == 1
    context.add_cookies(cookies)
    page.goto(f"{url}/benchmarks/digits")
    told = page.inner_text("a.sign-in")
    assert page.locator("[data-role=organiser]:not([hidden])").count() == 1
    context.close()
    return anybody, told


def test_an_organiser_signs_in_verifies_and_signs_out_by_keyboard(browser, console_site):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{console_site.url}/console/verify")
    page.wait_for_selector("#f-token:focus")
    page.keyboard.type("fl_wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("#errors:focus")
    tab_to(page, "#f-token")
    page.keyboard.type(console_site.secret)
    page.keyboard.press("Enter")

    page.wait_for_selector("text=A dry run comes first")
    tab_to(page, "#f-submissions")
    page.keyboard.type(f"{console_site.submission_id} nothing")
    tab_to(page, 'button:has-text("Dry run")')
    page.keyboard.press("Enter")

    page.wait_for_selector("text=There is no such submission.")
    tab_to(page, "#f-reason")
    page.keyboard.type("a look")
    tab_to(page, 'button:has-text("Queue 1")')
    page.keyboard.press("Enter")

    page.wait_for_selector(".notice:focus >> text=1 verification is queued.")
    page.locator("td", has_text="a look").wait_for()  # Further down; and it is there once.
    shown_to = who_is_signed_in(browser, console_site.url, context.cookies())
    assert shown_to == ("Sign in", "Account (olivia)")
    tab_to(page, 'button:has-text("Sign out")')
    page.keyboard.press("Enter")
    page.wait_for_selector("text=You are signed out.")
    page.goto(f"{console_site.url}/console")
    page.wait_for_selector("#f-token")
    assert context.cookies() == []
    context.close()
