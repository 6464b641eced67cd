"""Who reads: what a session shows depends on it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Viewer:
    """Whose submissions are shown while they are under embargo: these users', or everybody's.

    The rule itself is in server.submissions.visibility.
    """

    user_ids: tuple[int, ...] = ()
    sees_all: bool = False


ANYBODY = Viewer()
# The server's own work, and what organisers ask for.
ORGANISER = Viewer(sees_all=True)
