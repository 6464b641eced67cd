"""A class joins from one address: by one link, with the usual limits."""

import re

import pytest

from tests.support.pages import ORIGIN

STUDENTS = 30


@pytest.fixture
def settings(settings):
    return settings.model_copy(update={"rate_limits": True, "rate_writes": "10/minute"})


def test_a_class_joins_within_a_minute_from_one_address(client, olivia):
    wanted = {"uses": STUDENTS, "mail_domain": "uni.example"}
    link = olivia.post("/api/v1/invitations", wanted).json()["link"]

    def join(number):
        client.cookies.clear()
        typed = {"name": f"Jürgen Müller {number}", "email": f"s{number}@uni.example"}
        return client.post(link, data=typed, headers=ORIGIN, follow_redirects=False)

    for number in range(STUDENTS):
        joined = join(number)
        assert joined.status_code == 200, number
        assert len(re.findall(r">(fl_[\w-]{43})<", joined.text)) == 1
        assert client.get("/account").status_code == 200
    assert "which is the most" in join(STUDENTS).text
