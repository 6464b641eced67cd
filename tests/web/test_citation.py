"""What leaves the site: citations, badges and feeds."""

from xml.etree import ElementTree

import pytest

from tests.web.views import submission
from web.citation import badge, bibtex, escape_tex, plain_citation
from web.feed import FeedEntry, atom_feed
from web.render import render

ADDRESS = "https://example.org/submissions/a"
ATOM = "http://www.w3.org/2005/Atom"
NAMES = {"a": ATOM}
GREEN = "#126b3a"


def test_citation_names_who_what_when_and_where():
    entry = bibtex(submission(), ADDRESS)

    assert entry.startswith("@misc{finishline-a,\n  author = {{alice}},\n")
    assert "title = {{digits-cnn on EPYC 7B13: time to accuracy on digits}}" in entry
    assert "year = {2026}" in entry
    assert r"howpublished = {\url{https://example.org/submissions/a}}" in entry
    plain = plain_citation(submission(submitted_on="2017-10-11"), ADDRESS)
    assert plain.startswith("alice (2017). digits-cnn on EPYC 7B13")
    assert plain.endswith(ADDRESS)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"evidence": "claimed", "check": "epochs_agree"}, "claimed · epochs agree."),
        ({"withdrawal": {"by": "alice", "at": "2026-11-20", "reason": "wrong"}}, "withdrawn."),
    ],
)
def test_citation_says_how_a_time_is_known(changes, status):
    assert f"{status} {ADDRESS}" in plain_citation(submission(**changes), ADDRESS)
    assert status in bibtex(submission(**changes), ADDRESS)


def test_no_name_is_a_command_of_tex():
    hostile = "}},\n note={\\input{/etc/passwd}} 100% of #1 & $x_2^3$ ~<é>\x07"
    entry = bibtex(submission(model=hostile, submitter=hostile), ADDRESS)

    depths = [0]
    for place, character in enumerate(entry):
        if character in "{}" and entry[place - 1] != "\\":
            depths.append(depths[-1] + (1 if character == "{" else -1))
    assert (min(depths), depths[-1]) == (0, 0)
    assert len(entry.splitlines()) == 7
    assert r"\input" not in entry
    assert "\x07" not in entry
    assert escape_tex(r"a_b & 5% #1 $x$ {y} ~ ^ \z") == (
        r"a\_b \& 5\% \#1 \$x\$ \{y\} \textasciitilde{} \textasciicircum{} \textbackslash{}z"
    )


def drawn(of):
    return ElementTree.fromstring(render("badge.svg", badge=badge(of)).encode())  # noqa: S314  our own


@pytest.mark.parametrize("check", ["none", "epochs_agree", "undecided", "contradicted"])
def test_badge_of_a_claim_has_no_time(check):
    svg = render(
        "badge.svg", badge=badge(submission(evidence="claimed", check=check, measured_seconds=None))
    )

    assert "0.853" not in svg
    assert GREEN not in svg
    assert "claimed" in svg


@pytest.mark.parametrize(
    ("result", "words"),
    [({"eligible": False}, "claimed · not ranked"), ({"tta_seconds": None}, "target not reached")],
)
def test_badge_says_why_it_has_no_time(result, words):
    of = submission(evidence="claimed", check="none", measured_seconds=None)
    of["result"] |= result

    assert words in "".join(drawn(of).itertext())


def entry(**changes):
    known = {
        "subject": "record sub-1",
        "path": "/submissions/sub-1",
        "title": "Digits: record of 0.853 s by alice",
        "summary": "digits-cnn reached the target.",
        "author": "alice",
        "updated": "2026-11-20T10:00:00Z",
        "categories": ("record", "digits"),
    }
    return FeedEntry(**(known | changes))


def read(*entries, base="https://example.org"):
    feed = atom_feed(entries, base=base, path="/feed.atom", page="/", title="Finishline")
    return ElementTree.fromstring(feed)  # noqa: S314  our own


def test_feed_has_what_rfc_4287_asks_of_it():
    # Section 4.1.1: one id, title and updated, an author, a link to itself. 4.1.2 is of entries.
    feed = read(entry(), entry(subject="record sub-2", updated="2026-11-21"))

    assert feed.tag == f"{{{ATOM}}}feed"
    assert feed.findtext("a:updated", namespaces=NAMES) == "2026-11-21T00:00:00Z"
    assert feed.findtext("a:author/a:name", namespaces=NAMES) == "Finishline"
    links = {link.get("rel"): link.get("href") for link in feed.findall("a:link", NAMES)}
    assert links == {"self": "https://example.org/feed.atom", "alternate": "https://example.org/"}
    first = feed.find("a:entry", NAMES)
    texts = [first.findtext(f"a:{tag}", namespaces=NAMES) for tag in ("title", "updated")]
    assert texts == ["Digits: record of 0.853 s by alice", "2026-11-20T10:00:00Z"]
    assert first.find("a:link", NAMES).get("href") == "https://example.org/submissions/sub-1"
    assert [c.get("term") for c in first.findall("a:category", NAMES)] == ["record", "digits"]
    assert read().findtext("a:updated", namespaces=NAMES) == "1970-01-01T00:00:00Z"


def test_id_stays_when_the_site_moves():
    here, there = (
        [
            one.text
            for one in read(entry(), entry(subject="x"), base=base).findall(
                ".//a:entry/a:id", NAMES
            )
        ]
        for base in ("http://127.0.0.1:8000", "https://example.org")
    )

    assert here == there
    assert len(set(here)) == 2
    assert all(one.startswith("urn:uuid:") for one in here)
