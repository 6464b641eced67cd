"""Sign-in at a provider of another site, with the cookies of a real browser."""

import pytest
from playwright.sync_api import expect

from tests.server.test_openid import issuer as issuer
from tests.server.test_openid import settings as settings

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:get_jwt_config:DeprecationWarning"),
]


def test_somebody_comes_back_from_another_site_signed_in(browser, address):
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{address}/submit")
    page.click("text=Sign in with OpenID")
    page.fill("input[name=sub]", "grace")
    page.press("input[name=sub]", "Enter")
    page.wait_for_url(f"{address}/account")
    expect(page.locator(".notice")).to_contain_text("Welcome")
    context.clear_cookies()
    page.goto(f"{address}/submit")
    page.click("text=Sign in with OpenID")
    page.fill("input[name=sub]", "grace")
    page.press("input[name=sub]", "Enter")
    page.wait_for_url(f"{address}/submit")
    expect(page.locator("h1")).to_have_text("Submit")
    context.close()
