"""Names of the command: its panels, earlier names and examples."""

from pathlib import Path

from finishline.cli.errors import UsageError
from finishline.rules.text import near_miss

# Each panel of the help, with its commands and their places. A command with an empty place comes
# with finishline-server, by its entry point `finishline.commands`.
PANELS = {
    "Take part": {
        "init": "code:init",
        "run": "run:run",
        "check": "check:check",
        "submit": "submit:submit",
        "show": "show:show",
        "board": "board:board",
        "compare": "compare:compare",
        "convert": "convert:convert",
        "login": "login:login",
        "logout": "login:logout",
        "account": "requests:COMMANDS",
    },
    "Read": {"score": "score:score", "proof": "proof:proof"},
    "Organise": {
        "verify": "verify:verify",
        "import": "import_archive:import_archive",
        "benchmark": "benchmark:app",
        "admin": "requests:COMMANDS",
    },
    "Operate": {"up": "", "worker": "", "bench": ""},
}
# Of `admin`, from finishline-server too.
SERVER_ADMIN = ("backup", "restore", "export", "rescore", "check", "service")

RENAMED = """
leaderboard: board | benchmarks: board | check-proof: proof
audit-log: admin audit | decide: admin review | withdraw: submit --withdraw ID | waive: admin waive
backup: admin backup | restore: admin restore | service install: admin service add
service remove: admin service remove | service: admin service
account show: account | account name: account set --display-name NAME
account tokens: account token list | account make: account token add
account revoke: account token remove | invite: admin invite add
admin invitation list: admin invite list | admin invitation revoke: admin invite remove
admin invitation: admin invite | admin user disapprove: admin user approve --undo
admin user erase: admin user remove | admin token make: admin token add
admin token revoke: admin token remove | prices add: admin price add FILE
prices import: admin price add | prices: admin price list | quota list: admin quota list
quota show: admin quota show | quota set: admin quota set | quota: account
workers pause: admin worker set NAME pause | workers resume: admin worker set NAME resume
workers confirm: admin worker set NAME confirm | workers: admin worker list
queue pause: admin queue set pause | queue resume: admin queue set resume
queue: admin queue list | webhook delete: account webhook remove
training init: init | training check: check | training run: run | training submit: submit
training run-again: verify --again | training factors: verify --ablations | training: run
calibrate: benchmark calibrate | calibration: benchmark calibrate | compare-verifications: compare
benchmark phases: benchmark phase | data check: benchmark fetch --check
data fetch: benchmark fetch | data: benchmark fetch | probe: worker probe | scale: bench scale
profile: bench profile | bench: bench train | head_to_head: verify --head-to-head
webhook enable: account webhook set ID enable | webhook: account webhook
"""


def renamed(words: list[str]) -> UsageError | None:
    """Name the successor of an earlier name that begins the words, spelled almost right."""
    names = (each.strip() for line in RENAMED.splitlines() for each in line.split("|"))
    new = dict(each.split(": ") for each in names if each)
    now = [name for panel in PANELS.values() for name in panel]
    for count in (3, 2, 1):
        old: str | None = " ".join(words[:count])
        if old not in new and words and words[0] not in now:
            known = [name for name in new if name.count(" ") == count - 1]
            old = near_miss(" ".join(words[:count]), [*now, *known])
        if old is not None and old in new:
            return UsageError(f"`finishline {old}` is now `finishline {new[old]}`.")
    return None


def examples_of(name: str) -> str:
    """Return two calls of a command, as the end of its help."""
    lines = (Path(__file__).parent / "examples.txt").read_text().splitlines()
    calls = dict(line.split(":", 1) for line in lines).get(name)
    if calls is None:
        return ""
    shown = (f"finishline {name} {each.strip()}".rstrip() for each in calls.split("|"))
    return "\n\n".join(["Examples:", *shown])
