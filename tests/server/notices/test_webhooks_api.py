"""Webhooks over the API: each person's own, and what is refused."""

import pytest
from sqlalchemy import func, select

from server.base.models import AuditRecord, Receiver
from server.notices.subscriptions import MOST_WEBHOOKS

WEBHOOKS = "/api/v1/webhooks"
BODY = {"url": "https://hooks.example/a", "kinds": ["submission.verified"]}


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
