"""Webhooks over the API and in the console: each person's own, and what is refused."""

import re

import pytest
from sqlalchemy import func, select

from server.base.models import AuditRecord, Receiver
from server.notices.subscriptions import MOST_WEBHOOKS
from tests.server.test_console import Console

WEBHOOKS, NOTICES = "/api/v1/webhooks", "/console/notices"
BODY = {"url": "https://hooks.example/a", "kinds": ["submission.verified"]}
FORM = {"url": "https://hooks.example/<b>", "submission.verified": "on", "scope": "own"}


@pytest.fixture
def settings(settings):
    return settings.model_copy(update={"webhook_private_addresses": False})


def test_a_webhook_is_made_listed_read_and_deleted(client, alice, database):
    twice = {"kinds": ["record.set", "submission.verified", "record.set"]}
    made = client.post(WEBHOOKS, json=BODY | twice, headers=alice.headers)
    assert made.status_code == 201
    hook = made.json()
    secret = hook.pop("secret")
    assert secret.startswith("whsec_")
    assert hook["kinds"] == ["record.set", "submission.verified"]
    assert (hook["scope"], hook["benchmark"], hook["disabled_at"]) == ("own", None, None)
    listed = client.get(WEBHOOKS, headers=alice.headers)
    assert listed.json() == {"webhooks": [hook]}
    assert client.get(f"{WEBHOOKS}/{hook['id']}", headers=alice.headers).json() == hook
    deliveries = client.get(f"{WEBHOOKS}/{hook['id']}/deliveries", headers=alice.headers)
    assert deliveries.json() == {"deliveries": []}
    client.post(f"{WEBHOOKS}/{hook['id']}/test", headers=alice.headers)
    again = client.post(f"{WEBHOOKS}/{hook['id']}/test", headers=alice.headers)
    assert again.status_code == 409
    sent = client.get(f"{WEBHOOKS}/{hook['id']}/deliveries", headers=alice.headers).json()
    (waiting,) = sent["deliveries"]
    assert (waiting["kind"], waiting["state"], waiting["tries"]) == ("webhook.test", "waiting", [])
    resent = f"{WEBHOOKS}/{hook['id']}/deliveries/{waiting['id']}/repeat"
    assert client.post(resent, headers=alice.headers).status_code == 409
    asked = {"state": "failed"}
    failed = client.get(f"{WEBHOOKS}/{hook['id']}/deliveries", params=asked, headers=alice.headers)
    assert failed.json() == {"deliveries": []}
    assert client.delete(f"{WEBHOOKS}/{hook['id']}", headers=alice.headers).status_code == 204
    assert client.get(WEBHOOKS, headers=alice.headers).json() == {"webhooks": []}
    assert client.delete(f"{WEBHOOKS}/{hook['id']}", headers=alice.headers).status_code == 404


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"url": None}, "url"),
        ({"url": "http://hooks.example/"}, "url:"),
        ({"url": "https://127.0.0.1/"}, "url:"),
        ({"url": "https://[::ffff:10.0.0.1]/"}, "url:"),
        ({"kinds": []}, "kinds"),
        ({"kinds": ["submission.loved"]}, "kinds"),
        ({"scope": "mine"}, "scope"),
        ({"scope": "benchmark"}, "benchmark"),
        ({"benchmark": "digits"}, "benchmark"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_bad_body_is_422_and_makes_no_webhook(change, field, client, alice):
    response = client.post(WEBHOOKS, json=BODY | change, headers=alice.headers)

    assert response.status_code == 422
    assert field in response.text
    assert client.get(WEBHOOKS, headers=alice.headers).json() == {"webhooks": []}


def test_only_an_organiser_is_told_of_everything(client, alice, olivia, database):
    everything = BODY | {"scope": "all"}
    assert client.post(WEBHOOKS, json=everything, headers=alice.headers).status_code == 403
    hook = client.post(WEBHOOKS, json=everything, headers=olivia.headers).json()
    client.post(WEBHOOKS, json=BODY, headers=olivia.headers)
    client.delete(f"{WEBHOOKS}/{hook['id']}", headers=olivia.headers)
    missing = BODY | {"scope": "benchmark", "benchmark": "no-such"}
    assert client.post(WEBHOOKS, json=missing, headers=alice.headers).status_code == 404

    with database.read() as session:
        logged = session.execute(
            select(AuditRecord.action, AuditRecord.subject_id).order_by(AuditRecord.id)
        ).all()
    assert [tuple(row) for row in logged] == [
        ("webhook.create", hook["id"]),
        ("webhook.delete", hook["id"]),
    ]


def test_nobody_has_more_than_so_many(client, alice, database):
    for _ in range(MOST_WEBHOOKS):
        assert client.post(WEBHOOKS, json=BODY, headers=alice.headers).status_code == 201
    refused = client.post(WEBHOOKS, json=BODY, headers=alice.headers)

    assert refused.status_code == 409
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(Receiver)) == MOST_WEBHOOKS


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
