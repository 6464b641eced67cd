"""One row a configuration: the earliest verified submission names it, the others stand beside."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from server.boards.rows import BoardRow


def one_row_each(rows: Mapping[str, BoardRow]) -> dict[str, BoardRow]:
    """The rows, of which those measured by one pool are one row with the others in `also_by`."""
    pools: defaultdict[str, list[BoardRow]] = defaultdict(list)
    for row in rows.values():
        if row.shown["evidence"] == "measured" and row.shown["pool_id"] is not None:
            pools[row.shown["pool_id"]].append(row)
    found = dict(rows)
    for sharing in pools.values():
        if len(sharing) < 2:
            continue
        first, *others = sorted(sharing, key=lambda row: (row.date, row.submission_id))
        for row in others:
            del found[row.submission_id]
        found[first.submission_id] = _with_others(first, others)
    return found


def _with_others(first: BoardRow, others: list[BoardRow]) -> BoardRow:
    own = first.shown["submitter"]
    names = tuple(dict.fromkeys(row.shown["submitter"] for row in others))
    return replace(
        first,
        search_text="\n".join((first.search_text, *(row.search_text for row in others))),
        changed=dict(first.changed) | {"also_by": tuple(name for name in names if name != own)},
    )
