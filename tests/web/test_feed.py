from typing import Any
from xml.etree import ElementTree as ET

from web.feed import ATOM, Feed, FeedEntry, atom_feed, record_entry, verdict_entry

NAMES = {"a": ATOM}
DIGITS = {"id": "digits", "title": "Digits"}


def entry(**changes: Any) -> FeedEntry:
    known: dict[str, Any] = {
        "subject": "record sub-1",
        "path": "/submissions/sub-1",
        "title": "Digits: record of 0.853 s by alice",
        "summary": "digits-cnn reached the target.",
        "author": "alice",
        "updated": "2026-11-20T10:00:00Z",
        "categories": ("record", "digits"),
    }
    return FeedEntry(**(known | changes))


def read(*entries: FeedEntry, base: str = "https://example.org") -> ET.Element:
    feed = Feed(base, "/feed.atom", "/", "Finishline", entries)
    return ET.fromstring(atom_feed(feed))  # noqa: S314  it was written a line above


def text(element: ET.Element, path: str) -> str:
    found = element.find(path, NAMES)
    assert found is not None
    assert found.text
    return found.text


def test_a_feed_has_what_rfc_4287_asks_of_it() -> None:
    # Section 4.1.1: one id, title and updated, an author, a link to itself; 4.1.2 for an entry.
    feed = read(entry(), entry(subject="record sub-2", updated="2026-11-21"))

    assert feed.tag == f"{{{ATOM}}}feed"
    assert text(feed, "a:updated") == "2026-11-21T00:00:00Z"
    assert text(feed, "a:author/a:name") == "Finishline"
    links = {link.get("rel"): link.get("href") for link in feed.findall("a:link", NAMES)}
    assert links == {
        "self": "https://example.org/feed.atom",
        "alternate": "https://example.org/",
    }
    first = feed.find("a:entry", NAMES)
    assert first is not None
    assert text(first, "a:title") == "Digits: record of 0.853 s by alice"
    assert text(first, "a:updated") == "2026-11-20T10:00:00Z"
    assert text(first, "a:author/a:name") == "alice"
    link = first.find("a:link", NAMES)
    assert link is not None
    assert link.get("href") == "https://example.org/submissions/sub-1"
    assert [c.get("term") for c in first.findall("a:category", NAMES)] == ["record", "digits"]


def test_an_id_stays_when_the_site_moves_and_no_two_are_alike() -> None:
    here, there = (
        [text(one, "a:id") for one in read(entry(), entry(subject="x"), base=base)[6:]]
        for base in ("http://127.0.0.1:8000", "https://example.org")
    )

    assert here == there
    assert len(set(here)) == 2
    assert all(one.startswith("urn:uuid:") for one in here)


def test_a_hostile_name_neither_breaks_the_xml_nor_becomes_a_part_of_it() -> None:
    name = 'a</name><evil x="1">&amp;\x00\x0b\ud800]]>'
    feed = read(entry(author=name, title=name, path='/x?"<>'))

    assert feed.find(".//evil") is None
    assert text(feed, "a:entry/a:title") == 'a</name><evil x="1">&amp;\ufffd\ufffd\ufffd]]>'


def test_a_feed_without_entries_is_whole() -> None:
    assert text(read(), "a:updated") == "1970-01-01T00:00:00Z"


def test_a_record_tells_what_it_beat(make: dict[str, Any]) -> None:
    first = record_entry(DIGITS, "closed", make["record"]())
    assert first.title == "Digits: record of 0.853\u00a0s by alice"
    assert first.summary.endswith("(closed division, measured), the first record.")

    elsewhere = record_entry(DIGITS, "closed", make["record"](evidence="published"))
    assert "(closed division, published)" in elsewhere.summary
    better = make["record"](beaten="sub-0", margin_percent=12.34, p_value=0.0123, tries=4)
    summary = record_entry(DIGITS, "closed", better).summary
    assert summary.endswith(
        ", 12.3\u00a0% below the record before, p = 0.012, at try 4 of its submitter."
    )


def test_a_verdict_tells_its_outcome_and_reason(make: dict[str, Any]) -> None:
    told = verdict_entry(DIGITS, make["verdict_line"](kind="duel", outcome="not_separable"))

    assert told.title == "Digits: digits-cnn by alice, duel: not separable"
    assert told.summary == "3 of 3 replays reached top1Accuracy 97.5"
    assert told.path == "/verifications/ver-1"
    unreasoned = verdict_entry(DIGITS, make["verdict_line"](reason=None))
    assert unreasoned.summary == "The outcome is: verified."
