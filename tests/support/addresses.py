"""Every address of a server that can be read, filled with the ids of tests.support.everything."""

import itertools
import re
from collections import defaultdict

# The names of ids that an address is asked for with, by the parameter that they stand for.
IDS = {
    "submission_id": ("submission_id", "archived", "withdrawn", "inference", "package",
                      "failed_package", "second"),
    "verification_id": ("verification_id", "rerun", "failed", "queued", "head_to_head",
                        "measurement"),
    "benchmark_id": ("benchmark_id", "own_benchmark"),
}  # fmt: skip
# Values of parameters that name nothing of a submission's.
VALUES = {
    "accelerator": "cpu",
    "file": "style.css",
    "path": "style.css",
    "round_id": "open",
    "submitter": "bob",
}
# Parameters that stand for something else under this start of a path.
NAMES = {
    "/api/v1/attempts/": {"name": "task.py"},
    "/api/v1/benchmarks/{benchmark_id}/files/": {"name": "task.py"},
    "/api/v1/submissions/{submission_id}/package/files/": {"name": "train.py"},
    "/api/v1/quotas/": {"name": "alice"},
    "/docs/images/": {"name": "none.svg"},
    "/docs/": {"name": "rules"},
}
QUERIES = {
    "/api/v1/compare": ("submissions={submission_id},{second}",),
    "/api/v1/leaderboards/{benchmark_id}": ("metric=latency", "withdrawn=show", "target=95"),
    "/api/v1/verifications/compare": ("first={verification_id}&second={rerun}",),
    "/benchmarks/{benchmark_id}": (
        "metric=cost", "metric=latency", "withdrawn=show", "clock=dawnbench", "price=2",
        "target=95", "sort=model", "division=open",
    ),
    "/compare": ("ids={submission_id},{second}", "ids={submission_id}"),
    "/rounds/{round_id}": ("show=speed-up",),
    "/submissions/{submission_id}": (
        "tab=runs", "tab=scoring", "tab=system", "tab=history", "tab=cite",
    ),
    "/verifications/compare": ("first={verification_id}&second={rerun}",),
}  # fmt: skip


def walk(routes, prefix=""):
    for route in routes:
        if hasattr(route, "original_router"):
            inside = getattr(route, "include_context", None)
            yield from walk(route.original_router.routes, prefix + getattr(inside, "prefix", ""))
        elif getattr(route, "methods", None):
            yield prefix + route.path.replace(":path}", "}"), route


def readable(client):
    return sorted({path for path, route in walk(client.app.routes) if "GET" in route.methods})


def addresses(client, known):
    """Every readable path with the addresses under it that are asked for.

    A parameter that is not known is "none".
    """
    known = VALUES | {name: str(value) for name, value in known.items()}
    listed = client.get(f"/benchmarks/{known['benchmark_id']}/charts").text
    charts = sorted(set(re.findall(r"/charts/(\w+)", listed)))
    for path in readable(client):
        values = known | next((v for start, v in NAMES.items() if path.startswith(start)), {})
        named = [name for name in re.findall(r"{(\w+)}", path) if name in IDS]
        faces = [[(name, values[face]) for face in IDS[name] if face in values] for name in named]
        if path.startswith("/benchmarks/{benchmark_id}/charts/{name}"):
            faces.append([("name", chart) for chart in charts])
        for face in itertools.product(*faces):
            named = defaultdict(lambda: "none", values | dict(face))
            yield path, path.format_map(named)
            for query in QUERIES.get(path, ()):
                yield path, f"{path}?{query}".format_map(named)
