"""What tests of pages share: who asks, what somebody hostile writes, and what is read."""

import re

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
HOSTILE = '<script>alert("x")</script>\'"><img src=x onerror=alert(1)>'


def words_of(page):
    """A page's text without its tags, every space made a plain one."""
    text = re.sub(r"<[^>]*>", " ", page.replace("\u00a0", " ").replace("&nbsp;", " "))
    return re.sub(r"\s+", " ", text)
