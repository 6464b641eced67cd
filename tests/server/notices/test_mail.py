"""Mail: an address is asked first, is told what it asked for, and ends it with one click."""

import email
import email.policy
import re
from dataclasses import dataclass, field

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
from pydantic import SecretStr, ValidationError
from sqlalchemy import func, select

from server.base.database import utc_now
from server.base.models import Message, Receiver, Submission
from server.base.settings import MailServer, Settings, parse_smtp_url
from server.notices import events
from server.notices.messages import compose_mail, send_mail
from server.notices.subscriptions import MailCreate
from tests.server.test_console import Console
from tests.support.processes import free_port
from tests.support.services import services_of

NOTICES = "/console/notices"
FORM = {
    "address": "ada@example.org", "submission.verified": "on", "submission.rejected": "on",
    "scope": "own",
}  # fmt: skip
HOSTILE = "small\r\nBcc: victim@example.org\r\n\r\n<b>net\0"


@dataclass
class Post:
    """A mail server: what was handed in, and what it answers instead of taking it."""

    mails: list = field(default_factory=list)
    receivers: list = field(default_factory=list)
    signed_in: list = field(default_factory=list)
    answers: list = field(default_factory=list)

    async def handle_DATA(self, _server, _session, envelope):
        if self.answers:
            return self.answers.pop(0)
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        self.mails.append(mail)
        self.receivers.append(list(envelope.rcpt_tos))
        return "250 taken"

    def sign_in(self, _server, _session, _envelope, _how, who):
        self.signed_in.append((who.login, who.password))
        return AuthResult(success=True)


@pytest.fixture
def post():
    return Post()


@pytest.fixture
def smtp_url(post):
    port = free_port()
    how = {"hostname": "127.0.0.1", "port": port, "server_hostname": "mail.example"}
    controller = Controller(post, authenticator=post.sign_in, auth_require_tls=False, **how)
    controller.start()
    yield f"smtp://finish%40line:s%2Fcret@127.0.0.1:{port}"
    controller.stop()


@pytest.fixture
def settings(settings, smtp_url):
    sender = {"smtp_url": SecretStr(smtp_url), "public_url": "https://finishline.example/"}
    sender["mail_from"] = "Finishline <notices@finishline.example>"
    return settings.model_copy(update=sender)


def subscribe(client, by, **change):
    answer = Console(client, by).post(f"{NOTICES}/mails", **FORM | change)
    client.cookies.clear()
    return answer


def listed(client, by):
    page = Console(client, by).get(NOTICES).text
    client.cookies.clear()
    return page


def end_in(page):
    (found,) = re.findall(rf'action="({NOTICES}/mails/[^"]+/end)"', page)
    return found


def test_an_address_is_asked_and_told(client, post, hooks, alice, replay, make_report, database):
    with database.write() as session:
        session.get_one(Submission, replay.submission_id).model = HOSTILE.replace("\0", "")
    page = Console(client, alice).done(f"{NOTICES}/mails", **FORM)
    assert "A mail was sent to ada@example.org" in page
    client.cookies.clear()
    hooks.run(lambda: post.mails)
    asked = post.mails[0]
    assert asked["To"] == "ada@example.org"
    assert asked["Subject"] == "[Finishline] Confirm this address"
    first, *_ = asked.get_content().splitlines()
    assert first == "Somebody asked Finishline to send notices to this address."
    assert "alice" not in asked.get_content()
    assert asked["List-Unsubscribe"] is None
    assert post.signed_in == [(b"finish@line", b"s/cret")]
    (link,) = re.findall(r"https://finishline\.example(/mail/\S+)", asked.get_content())
    # Opening the link asks; only the button confirms.
    assert "Confirm this address" in client.get(link).text
    assert "not confirmed yet" in listed(client, alice)
    assert client.get(link[:-1] + ("0" if link[-1] != "0" else "1")).status_code == 404
    assert client.post(link.replace("confirm", "unsubscribe")).status_code == 404
    assert "is confirmed" in client.post(link).text
    assert "not confirmed yet" not in listed(client, alice)

    missed = make_report(replay.seeds(), qualities=[60.0, 90.0])
    replay.report(replay.claim().json(), missed)
    hooks.run(lambda: len(post.mails) == 2)
    told = post.mails[1]
    assert post.receivers[1] == ["ada@example.org"]
    assert told["Bcc"] is None
    subject = "[Finishline] digits: small Bcc: victim@example.org <b>net is"
    assert told["Subject"].startswith(subject)
    assert told["From"] == "Finishline <notices@finishline.example>"
    assert re.fullmatch(r"<msg_[0-9a-f]{20}\.[0-9a-f]{15}@finishline\.example>", told["Message-ID"])
    text = told.get_content()
    assert f"https://finishline.example/submissions/{replay.submission_id}" in text
    assert "Status: rejected" in text
    assert told.get_content_type() == "text/plain"
    assert told["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    ends = told["List-Unsubscribe"].removeprefix("<https://finishline.example").removesuffix(">")
    assert "End these notices" in client.get(ends).text
    # As a mail program does, without a cookie and from another site.
    one_click = {"List-Unsubscribe": "One-Click"}
    assert client.post(ends, data=one_click).status_code == 200
    assert "ada@example.org" not in listed(client, alice)
    assert client.post(ends).status_code == 404


def test_a_refusal_for_good_is_not_tried_again(client, post, hooks, alice, bob, database):
    def deliveries():
        with database.read() as session:
            found = session.execute(select(Message.state, Message.tries).order_by(Message.id))
            return [(state, tries) for state, tries in found]

    post.answers = ["550 no such person", "451 later"]
    subscribe(client, alice)
    hooks.run(lambda: deliveries()[0][0] == "failed")
    subscribe(client, bob, address="bob@example.org")
    hooks.run(lambda: not post.answers and deliveries()[1][1])

    (failed, first), (waiting, second) = deliveries()
    assert (failed, first[0]["answer"]) == ("failed", "no such person")
    assert (waiting, second[0]["status"]) == ("waiting", 451)


def test_nobody_floods_a_stranger(client, alice, bob, replay, database, monkeypatch):
    for by in (alice, bob, alice):
        assert subscribe(client, by).status_code == 303
        console = Console(client, by)
        assert "gets no more" in console.done(end_in(console.get(NOTICES).text))
    tagged = subscribe(client, bob, address="ada+more@example.org")
    assert (tagged.status_code, "within a day" in tagged.text) == (409, True)
    refused = subscribe(client, bob, address="ADA@example.org")
    assert refused.status_code == 409
    assert "within a day" in refused.text

    monkeypatch.setattr(events, "MAILS_PER_DAY", 1)
    kinds = ["verification.started", "verification.done", "submission.verified"]
    with database.write() as session:
        owner = session.get_one(Submission, replay.submission_id).user_id
        session.add(
            Receiver(
                id="m-1", user_id=owner, channel="mail", address="eve@example.org",
                mailbox="eve@example.org", kinds=kinds, scope="own", secret="s",
                created_at=utc_now(), confirmed_at=utc_now(),
            )
        )  # fmt: skip
    replay.finish()
    with database.read() as session:
        of_eve = select(func.count()).where(Message.receiver_id == "m-1")
        assert session.scalar(of_eve) == 1


def test_one_user_asks_few_strangers_a_day(client, alice):
    answers = []
    for number in range(11):
        answers.append(subscribe(client, alice, address=f"stranger-{number}@example.org"))
        if answers[-1].status_code == 303:
            console = Console(client, alice)
            console.done(end_in(console.get(NOTICES).text))
    assert [answer.status_code for answer in answers] == [303] * 10 + [409]
    assert "10 confirmation mails within a day" in answers[-1].text


def test_each_persons_addresses_are_their_own(client, alice, bob):
    subscribe(client, alice)
    end = end_in(listed(client, alice))
    other = Console(client, bob)
    assert "ada@example.org" not in other.get(NOTICES).text
    assert other.post(end).status_code == 404
    assert subscribe(client, alice, scope="all").status_code == 403
    for wrong in ({"scope": "benchmark"}, {"address": "ada@example.org\nBcc: x@example.org"}):
        assert subscribe(client, alice, **wrong).status_code == 422, wrong
    assert end_in(listed(client, alice)) == end


NO_ADDRESSES = [
    "ada", "ada@", "@example.org", "ada@example", "ada@example.org\n", "a b@example.org",
    "ada@example.org\r\nBcc: eve@example.org", "ada@example.org, eve@example.org",
    "Ada <ada@example.org>", "a..b@example.org", "x" * 65 + "@example.org",
    "ada@" + "x" * 250 + ".org", "ada@ex\u00e4mple.org",
]  # fmt: skip


@pytest.mark.parametrize("address", NO_ADDRESSES)
def test_what_is_no_single_address_is_refused(address):
    with pytest.raises(ValidationError, match="address"):
        MailCreate(address=address, kinds=["submission.verified"])


def composed():
    submission = {"id": "x", "status": "fine"}
    content = {"sentence": "digits: x is verified", "submission": submission}
    message = Message(message_id="msg_1", kind="submission.verified", content=content)
    receiver = Receiver(id="m-1", address="ada@example.org", secret="s")
    return compose_mail(message, receiver, sender="notices@finishline.example", site="")


def test_a_password_is_not_sent_in_clear_to_another_machine(post, smtp_url, monkeypatch):
    server = parse_smtp_url("smtp://ada:pw@mail.example:25")
    assert (server.scheme, server.is_loopback, server.password) == ("smtp", False, "pw")
    assert parse_smtp_url("smtps://mail.example").port == 465
    assert parse_smtp_url("starttls://mail.example").port == 587
    assert parse_smtp_url("smtp://localhost").is_loopback
    monkeypatch.setattr(MailServer, "is_loopback", False)
    answer = send_mail(parse_smtp_url(smtp_url), composed())
    assert "password was not sent" in answer.error
    assert (post.mails, post.signed_in) == ([], [])
    nobody = send_mail(parse_smtp_url("smtp://127.0.0.1:1"), composed())
    assert (nobody.status, nobody.is_success) == (None, False)


@pytest.mark.parametrize(
    "wrong",
    [
        {"smtp_url": "http://mail.example"},
        {"smtp_url": "smtp://mail.example"},
        {"smtp_url": "smtp://mail.example", "mail_from": "a@b.example"},
        {"smtp_url": "smtp://mail.example", "mail_from": "nobody", "public_url": "https://x"},
        {"mail_from": "a@b.example\r\nBcc: c@d.example"},
    ],
)
def test_a_setting_that_cannot_work_stops_the_start(wrong):
    with pytest.raises(ValidationError):
        Settings(**wrong)


def test_a_server_without_mail_says_so(client, alice, settings):
    services = services_of(client)
    object.__setattr__(services, "settings", settings.model_copy(update={"smtp_url": None}))
    refused = subscribe(client, alice)

    assert refused.status_code == 409
    assert "use a webhook for the same events" in refused.text
