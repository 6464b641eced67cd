"""Which pages of the console somebody finds in its navigation."""

import pytest

from web.home_words import console_pages_of


@pytest.mark.parametrize(
    ("role", "names"),
    [("worker", {"account"}), ("submitter", {"account", "notices"})],
)
def test_nobody_is_led_to_a_page_that_is_refused_them(role: str, names: set[str]) -> None:
    assert {name for name, _, _ in console_pages_of(role)} == names


def test_users_are_for_admins_alone() -> None:
    admins, organisers = console_pages_of("admin"), console_pages_of("organiser")
    assert [page[0] for page in admins if page not in organisers] == ["users"]
