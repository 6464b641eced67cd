"""The template of a request's address: its route, never what somebody put into it."""

from starlette.types import Scope

UNMATCHED = "(none)"
OTHER = "other"
MOUNTED = "(mounted files)"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def route_template(scope: Scope) -> str:
    """Such as /api/v1/submissions/{submission_id}; "(none)" where no route has the address.

    A route of an included router knows its own part alone. The prefix is what the address has
    before that part, filled in: no prefix has a parameter.
    """
    route = scope.get("route")
    own = getattr(route, "path_format", None)
    if own is None:
        return MOUNTED if "app_root_path" in scope else UNMATCHED
    filled = own.format(**scope.get("path_params", {}))
    path: str = scope["path"]
    return path.removesuffix(filled) + own if path.endswith(filled) else str(own)


def known_method(scope: Scope) -> str:
    """The request's method, "other" for a word that is none."""
    method: str = scope["method"]
    return method if method in METHODS else OTHER
