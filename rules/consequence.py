"""What a decision about evidence does to its row, in words for the audit log."""

from rules.evidence_words import Row, evidence_words

STRENGTH = {"claimed": 0, "published": 1, "measured": 2}


def consequence(before: Row, after: Row) -> str:
    """How a row's evidence changes: "drops from measured to claimed".

    Both have `evidence` and `check`. The check is named where the evidence stays as it is.
    """
    first, then = str(before["evidence"]), str(after["evidence"])
    if first != then:
        verb = "rises" if STRENGTH[then] > STRENGTH[first] else "drops"
        return f"{verb} from {first} to {evidence_words(after)}"
    one, other = evidence_words(before), evidence_words(after)
    return f"stays {one}" if one == other else f"changes from {one} to {other}"
