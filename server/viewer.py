"""Who reads: what a session shows depends on it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Viewer:
    """Whose submissions are shown while they are under embargo.

    These users', those of everybody who is in this organisation, or all.

    `sees_figures` lets columns of runs be read whose seeds, curves and logs are hidden: for the
    figures that a board shows of them meanwhile.

    The rules themselves are in server.submissions.visibility.
    """

    user_ids: tuple[int, ...] = ()
    organisation_id: int | None = None
    sees_all: bool = False
    sees_figures: bool = False


ANYBODY = Viewer()
# The server's own work, and what organisers ask for.
ORGANISER = Viewer(sees_all=True)
