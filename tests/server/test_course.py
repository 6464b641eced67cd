"""A class joins from one address: by one link, with the usual limits."""

import re

import pytest

from tests.support.pages import ORIGIN

STUDENTS = 30


@pytest.fixture
def settings(settings):
    """Limits that fewer people than a class use up."""
    return settings.model_copy(update={"rate_limits": True, "rate_writes": "10/minute"})


@pytest.fixture
def link(client, olivia):
    """A link for the class."""
    wanted = {"uses": STUDENTS, "mail_domain": "uni.example"}
    answer = client.post("/api/v1/invitations", json=wanted, headers=olivia.headers)
    return str(answer.json()["link"]).removeprefix("http://testserver")


@pytest.fixture
def join(client, link):
    """A student joins, in a browser of their own."""

    def as_student(number):
        client.cookies.clear()
        typed = {"name": f"Jürgen Müller {number}", "email": f"s{number}@uni.example"}
        return client.post(link, data=typed, headers=ORIGIN, follow_redirects=False)

    return as_student


def test_a_class_joins_within_a_minute_from_one_address(client, join, link):
    for number in range(STUDENTS):
        joined = join(number)
        assert joined.status_code == 200, number
        assert len(re.findall(r">(fl_[\w-]{43})<", joined.text)) == 1
        assert client.get("/account").status_code == 200
    # One who is late is told why, and one who has joined already that the name is taken.
    assert "which is the most" in join(STUDENTS).text


def test_a_name_that_is_taken_is_told_in_the_form(join):
    assert join(1).status_code == 200
    again = join(1)
    assert again.status_code == 422
    assert "There is a user &#39;Jürgen Müller 1&#39; already" in again.text
    assert 'value="s1@uni.example"' in again.text
