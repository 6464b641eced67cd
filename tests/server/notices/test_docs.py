"""What docs/notices.md says of events and signatures is so."""

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from finishline.api.notices import KINDS
from server.notices.webhooks import new_secret, signature_headers

PAGE = (Path(__file__).parents[3] / "docs" / "notices.md").read_text()
# The key, id, second and body of an example that was signed with `openssl dgst -sha256 -hmac`.
SECRET = "whsec_" + base64.b64encode(b"a key of thirty-two bytes it is!").decode()
BODY = b'{"type":"webhook.test"}'
SECONDS = 1_800_000_000
SIGNATURE = "v1,2hLWQ3+V0DlgH8ESTeLq1hpWwhDTtseuBxeu7gz1aa4="


@pytest.fixture
def is_ours(monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """The function of the page, at the second of the example."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102  It is our own page.
    monkeypatch.setattr(names["time"], "time", lambda: SECONDS + 10.0)
    found: Callable[..., bool] = names["is_ours"]
    return found


def test_the_function_of_the_page_tells_our_posts_from_others(is_ours: Any) -> None:
    headers = signature_headers([SECRET], "msg_1", seconds=SECONDS, body=BODY)

    assert headers["webhook-signature"] == SIGNATURE
    assert is_ours(SECRET, headers, BODY)
    other = "whsec_" + base64.b64encode(b"another").decode()
    both = signature_headers([other, SECRET], "msg_1", seconds=SECONDS, body=BODY)
    assert is_ours(SECRET, both, BODY)
    assert not is_ours(other, headers, BODY)
    assert not is_ours(SECRET, headers, BODY + b" ")
    assert not is_ours(SECRET, headers | {"webhook-id": "msg_2"}, BODY)
    late = signature_headers([SECRET], "msg_1", seconds=SECONDS - 400, body=BODY)
    assert not is_ours(SECRET, late, BODY)


def test_the_page_lists_every_event_and_no_other() -> None:
    assert re.findall(r"^\| `([a-z.]+)` \|", PAGE, re.MULTILINE) == list(KINDS)


def test_a_secret_has_as_many_random_bytes_as_the_specification_asks_for() -> None:
    """Standard Webhooks 1.0.0: between 24 and 64 bytes, in base64 after the prefix."""
    first, second = (base64.b64decode(new_secret().removeprefix("whsec_")) for _ in range(2))

    assert first != second
    assert 24 <= len(first) <= 64
