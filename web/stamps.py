"""The stamp on top of a submission's page: how its time is known, and its place, in sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from finishline.rules.ranking import check_of_row, evidence_word
from finishline.rules.text import count_text
from web.entries import why_not_measured
from web.formats import web_address
from web.names import row_name, separation_words
from web.verdicts import published_check, was_worker_unfit, why_not_timed

View = Mapping[str, Any]
OPEN = ("queued", "running", "checking")
# Names of a page's tabs in its address, and in words.
TABS = (
    ("result", "Result"),
    ("runs", "Runs"),
    ("scoring", "Scoring"),
    ("system", "System & settings"),
    ("history", "History"),
    ("cite", "Cite & badge"),
)


@dataclass(frozen=True)
class Stamp:
    """A word with its class, a sentence, and the address and words of a link after it."""

    kind: str
    lead: str
    text: str
    address: str | None = None
    link: str = ""


def subject_title(submission: View, against: View | None) -> str:
    """Title of a verification's subject: of a head-to-head both sides by their models."""
    if against is None:
        return row_name(submission)
    return f"{row_name(submission)} against {row_name(against)}"


def stamp_of(submission: View, place: View | None, checks: Sequence[View]) -> Stamp:
    """How a submission's time is known, with the verification that says so or is under way."""
    evidence = submission["evidence"]
    if evidence == "measured":
        return _linked(
            Stamp("measured", "Measured:", _measured(submission, place)), submission, checks
        )
    if evidence == "published":
        return _published(submission)
    if submission["package"] is not None:
        return _of_package(submission, checks)
    return _of_claim(submission, checks)


def _measured(submission: View, place: View | None) -> str:
    if submission["package"] is not None:
        text = "a worker trained this code submission"
    else:
        text = "the reference was trained with these settings on our worker,"
    if place:
        text += f" in {count_text(place['measured_runs'], 'measured run')}"
    return f"{text.removesuffix(',')}. The time is ours."


def _published(submission: View) -> Stamp:
    source = submission["source"]
    how = "as it was stated" if submission["kind"] == "inference" else "from its logs"
    named = f"in {source['name']}" if source else "its source was not checked"
    text = f"{named}. Scored again here {how}; not retrained."
    address = web_address(source["url"]) if source else None
    lead = "Published" if source else "Published:"
    return Stamp("published", lead, text, address, "The source" if address else "")


def _of_package(submission: View, checks: Sequence[View]) -> Stamp:
    word = evidence_word(submission)
    under_way = _open(checks)
    if word == "queued":
        return _watch(Stamp("claimed", "Queued:", "it waits for a worker."), under_way)
    if word == "being measured":
        return _watch(Stamp("claimed", "Being measured:", "a worker trains it."), under_way)
    return Stamp("claimed", "Not measured:", why_not_measured(checks))


def _of_claim(submission: View, checks: Sequence[View]) -> Stamp:
    figures = "figures" if submission["kind"] == "inference" else "logs"
    own = f"the submitter's own {figures}."
    word = check_of_row(submission)
    if word in OPEN:
        doing = "A replay is queued." if word == "queued" else "It is being replayed."
        return _watch(Stamp("claimed", "Claimed:", f"{own} {doing}"), _open(checks))
    kind = "contradicted" if word == "contradicted" else "claimed"
    more = _found(submission, word, published_check(submission, checks))
    stamp = Stamp(kind, "Claimed:", f"{own} {more}")
    if submission["kind"] == "logs" and submission["trained_with"] == "own" and not checks:
        words = "Send it as a code submission to have it measured"
        stamp = Stamp(kind, "Claimed:", stamp.text, "/docs/trainings#five-minutes", words)
    return _linked(stamp, submission, checks)


def _found(submission: View, word: str | None, check: View | None) -> str:
    if word == "epochs_agree":
        again = " An organiser may request another one." if was_worker_unfit(check) else ""
        return f"A replay took as many epochs; {why_not_timed(check)}.{again}"
    if word == "undecided" and submission["status"] == "verified":
        return "Undecided: not calibrated at its batch size."
    if word in ("undecided", "contradicted"):
        return "A replay could not decide." if word == "undecided" else "A replay contradicts it."
    if submission["kind"] == "logs" and submission["trained_with"] == "own":
        return "It was trained with its own code, so its time is not measured."
    return "Nothing was measured here yet."


def _open(checks: Sequence[View]) -> View | None:
    return next((check for check in checks if check["state"] in OPEN), None)


def _watch(stamp: Stamp, check: View | None) -> Stamp:
    if check is None:
        return stamp
    words = "Its place in the queue" if check["state"] == "queued" else "Watch it"
    return Stamp(stamp.kind, stamp.lead, stamp.text, _address(check), words)


def _linked(stamp: Stamp, submission: View, checks: Sequence[View]) -> Stamp:
    check = published_check(submission, checks)
    if check is None:
        return stamp
    return Stamp(stamp.kind, stamp.lead, stamp.text, _address(check), "The verdict")


def _address(check: View) -> str:
    return f"/verifications/{quote(str(check['id']), safe='')}"


def place_sentence(submission: View, place: View) -> str:
    """The place of a submission on its board, and whether its runs tell it from a better one."""
    where = f"in the {submission['division']} division"
    if place["rank"] is not None:
        text = f"Rank {place['rank']} of {place['ranked']} {where}."
    else:
        text = f"Not ranked: {place['unranked_reason'] or 'its claim was not measured'}."
    if place["is_holder"]:
        text += " It holds first place."
    elif place["not_first"]:
        text += f" Not first: {place['not_first']}."
    apart = separation_words(place)
    return f"{text} {apart[:1].upper()}{apart[1:]}." if apart else text
