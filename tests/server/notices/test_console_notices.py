"""Webhooks and addresses in the console: forms that work, and what they refuse."""

import re

import pytest
from pydantic import SecretStr

from tests.server.test_console import Console

NOTICES = "/console/notices"
FORM = {"url": "https://hooks.example/<b>", "submission.verified": "on", "scope": "own"}


@pytest.fixture
def settings(settings):
    nobody = {"smtp_url": SecretStr("smtp://127.0.0.1:1"), "public_url": "http://testserver"}
    return settings.model_copy(update=nobody | {"mail_from": "notices@finishline.example"})


def test_a_webhook_is_made_tested_replaced_and_deleted(client, alice):
    console = Console(client, alice)
    made = console.post(f"{NOTICES}/webhooks", **FORM)
    assert made.status_code == 200
    (secret,) = re.findall(r"whsec_[A-Za-z0-9+/]+=*", made.text)
    (own,) = set(re.findall(rf'href="({NOTICES}/[^"]+)"', made.text))
    page = console.get(own).text
    assert secret not in page + console.get(NOTICES).text + str(made.headers)
    assert "https://hooks.example/&lt;b&gt;" in page
    assert "Deliveries appear here" in page
    assert "A test is queued" in console.done(f"{own}/test")
    refused = console.post(f"{own}/test")
    assert refused.status_code == 409
    assert "wait for it" in refused.text
    (delivery,) = re.findall(r'class="r num">(\d+)<', refused.text)
    assert console.post(f"{own}/deliveries/{delivery}/resend").status_code == 409
    assert "whsec_" in console.done(f"{own}/secret")
    assert "is deleted" in console.done(f"{own}/delete")
    assert console.get(own).status_code == 404


def test_what_is_wrong_is_said_beside_the_fields(client, alice):
    console = Console(client, alice)
    none = console.post(f"{NOTICES}/webhooks", url="https://a.example", scope="own")
    assert none.status_code == 422
    assert "Choose at least one." in none.text
    everything = console.post(f"{NOTICES}/webhooks", **FORM | {"scope": "all"})
    assert everything.status_code == 403
    ftp = console.post(f"{NOTICES}/webhooks", **FORM | {"url": "ftp://a.example"})
    assert ftp.status_code == 422
    assert "expected https" in ftp.text
    assert 'value="ftp://a.example"' in ftp.text
    assert "Make a webhook here" in console.get(NOTICES).text
