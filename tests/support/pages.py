"""What tests of pages share: who asks, what somebody hostile writes, and what is read."""

import re

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
ORIGIN = {"Origin": "http://testserver", "Accept": "text/html"}
HOSTILE = '<script>alert("x")</script>\'"><img src=x onerror=alert(1)>'


def words_of(page):
    """A page's text without its tags, every space made a plain one."""
    text = re.sub(r"<[^>]*>", " ", page.replace("\u00a0", " ").replace("&nbsp;", " "))
    return re.sub(r"\s+", " ", text)


def sign_in(client, person):
    token = {"token": person.secret}
    answer = client.post("/console/sign-in", data=token, headers=ORIGIN, follow_redirects=False)
    assert answer.status_code == 303, answer.text
