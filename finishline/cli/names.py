"""The names of the command: its panels, earlier names and examples."""

from finishline.cli.errors import UsageError

# Each panel of the help, with its commands and where they are. A command without a place comes
# with finishline-server, by its entry point `finishline.commands`.
PANELS = {
    "Take part": {
        "check": "check:check",
        "run": "run:run",
        "submit": "submit:submit",
        "show": "requests:COMMANDS",
        "board": "board:board",
        "compare-verifications": "requests:COMMANDS",
        "convert": "convert:convert",
        "login": "login:login",
        "logout": "login:logout",
        "account": "requests:COMMANDS",
        "training": "entry:app",
    },
    "Read": {"score": "score:score", "proof": "proof:proof"},
    "Organise": {
        "verify": "verify:verify",
        "import": "import_archive:import_archive",
        "benchmark": "benchmark:app",
        "calibrate": "calibration:calibrate",
        "calibration": "calibration:app",
        "admin": "requests:COMMANDS",
    },
    "Operate": {"up": "", "data": "", "bench": "", "scale": "", "profile": "", "probe": ""},
}
# Of `admin`, from finishline-server too.
SERVER_ADMIN = ("backup", "restore", "export", "rescore", "service")

RENAMED = """
leaderboard: board | benchmarks: board | check-proof: proof
audit-log: admin audit | decide: admin review | withdraw: submit --withdraw | waive: admin waive
backup: admin backup | restore: admin restore | service install: admin service add
service remove: admin service remove | service: admin service
account show: account | account name: account set --display-name
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
webhook enable: account webhook set ID enable | webhook: account webhook
"""


def renamed(words: list[str]) -> UsageError | None:
    """Name the successor of an earlier name that the words begin with."""
    names = (each.strip() for line in RENAMED.splitlines() for each in line.split("|"))
    new = dict(each.split(": ") for each in names if each)
    for count in (3, 2, 1):
        if (old := " ".join(words[:count])) in new:
            return UsageError(f"`finishline {old}` is now `finishline {new[old]}`.")
    return None
