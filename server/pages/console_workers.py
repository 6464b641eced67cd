"""Workers and queues in the console, and the form that pauses, resumes and confirms them."""

from urllib.parse import urlencode

from sqlalchemy.orm import Session

from server.pages.declared import Context, page
from server.verifications.queue import read_queue
from server.verifications.worker_endpoints import CONSOLE, EVERY_QUEUE, WORKER, CursorDep
from server.verifications.worker_queries import SHOWN_PER_PAGE, list_workers


@page(CONSOLE, "workers.html", role="organiser")
def workers_page(
    session: Session, what: str = "", action: str = "pause", cursor: CursorDep = None
) -> Context:
    """A page of workers, the queue, and the form that changes one of them, or every queue."""
    found = list_workers(session, limit=SHOWN_PER_PAGE, cursor=cursor)
    names = [worker.name for worker in found.workers]
    chosen = what.removeprefix(WORKER)
    if what.startswith(WORKER) and chosen not in names:
        names.append(chosen)
    following = found.next_cursor
    return {
        "typed": {"what": what, "action": action},
        "workers": found.workers,
        "first": None if cursor is None else CONSOLE,
        "following": following and f"{CONSOLE}?{urlencode({'cursor': following})}",
        "here_query": "" if cursor is None else f"{urlencode({'cursor': cursor})}&",
        "queue": read_queue(session, shown=1),
        "choices": [
            ("", "–"),
            (EVERY_QUEUE, "every queue"),
            *((f"{WORKER}{name}", f"worker {name}") for name in names),
        ],
    }
