"""The names of the command: its panels, earlier names and examples."""

import re

from finishline.cli.errors import UsageError

# Each panel of the help, with its commands and where they are. A command without a place comes
# with finishline-server, by its entry point `finishline.commands`.
PANELS = {
    "Take part": {
        "init": "training:init",
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
SERVER_ADMIN = ("backup", "restore", "export", "rescore", "service")

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
profile: bench profile
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


# Two calls of each command, without its name.
EXAMPLES = """
init: mine | trainings/first
run: mine | digits --runs 5 -- python train.py
check: mine | runs/digits-1/submission.json --url https://lab.example.org
submit: mine --dry-run | --withdraw 3f9k2m7q1xyz --reason "wrong clock"
show: digits | 3f9k2m7q1xyz --json
board: | digits --division open --limit 10
compare: old new --runs 10 | 3f9k2m7q1xyz 8k2m3f9q1xyz
convert: a.csv --from csv --benchmark digits --out r | l --from tfevents --benchmark digits --out r
login: https://lab.example.org | https://lab.example.org --profile lab
logout: | --profile lab
account: | --json
account set: --display-name "Ada Lovelace" | --display-name ""
account token: list | add --days 30
account token list: | --json
account token add: --days 30 | --role submitter --label nightly
account token remove: 7 | 7 --json
score: results/ACME | results --format table
proof: 5da07f0b9618183 | proof.zip --key keys
verify: 3f9k2m7q1xyz --watch | --head-to-head 3f9k2m7q1xyz 8k2m3f9q1xyz
import: mlperf results --dry-run | dawnbench DAWNBench
benchmark: list | show digits
benchmark list: | --json
benchmark show: digits | digits --json
benchmark init: mine | boards/mine
benchmark check: mine | mine --write --runs 10
benchmark add: mine | mine --reason "spring course"
benchmark fetch: cifar10 --check | mine --url https://lab.example.org
benchmark phase: digits | digits --closes 2027-02-01T22:00Z --reason "end of term"
benchmark calibrate: digits --batch-sizes 32,64 --runs 20 --watch | list
benchmark calibrate add: digits --batch-sizes 32,64 --runs 20 | digits --continue c1 --runs 40
benchmark calibrate list: | --benchmark digits
benchmark calibrate show: c1 | c1 --toml
benchmark calibrate compare: c1 | c1 c2
benchmark calibrate adopt: c1 --reason "tighter band" | c1 --reason "new torch" --json
benchmark calibrate cancel: c1 | c1 --json
admin: user list | queue set pause --reason "we move"
admin user: list | add ann --role organiser
admin user list: | --q ann
admin user add: ann | ann --role organiser --email ann@example.org
admin user set: ann --disable | ann --role organiser --no-email
admin user approve: ann | ann --undo
admin user remove: ann --yes | ann --yes --json
admin organisation: list | add Labs
admin organisation list: | --json
admin organisation add: Labs | "Example Labs"
admin token: list | add ann
admin token list: | --user ann
admin token add: gpu-7 --role worker | ann --days 90 --label "her laptop"
admin token remove: 7 | 7 --json
admin invite: add | list
admin invite add: --uses 200 --until 2027-02-01 | --from students.csv
admin invite list: | --json
admin invite remove: 3 | 3 --json
admin quota: list | show ann
admin quota list: | --json
admin quota show: ann | ann --json
admin quota set: ann --submissions-per-day 20 --reason r | ann --gpu-hours-per-month 9 --reason r
admin price: list | add prices.csv
admin price list: | --on 2026-11-21
admin price add: prices.csv | prices.toml
admin worker: list | set gpu-7 confirm
admin worker list: | --json
admin worker set: gpu-7 confirm | gpu-7 pause --reason "new fans"
admin queue: list | set resume
admin queue list: | --json
admin queue set: pause --reason "we move" | resume
admin audit: | --out log.json
admin review: 5da07f0b9618183 publish --reason "same host" | 5da07f0b9618183 keep --reason hot
admin withdraw: 3f9k2m7q1xyz --reason "wrong clock" | 3f9k2m7q1xyz --undo --reason "a mistake"
admin waive: 3f9k2m7q1xyz too_few_runs --reason r | 3f9k2m7q1xyz too_few_runs --undo --reason r
admin retire: 3f9k2m7q1xyz --reason "its card is gone" | 3f9k2m7q1xyz --reason "no driver" --json
admin backup: | /srv/backups --keep 14
admin restore: | /srv/backups --at 20300101T020000Z
admin export: /srv/exports/spring | spring.tar --public
admin rescore: --dry-run | --benchmark digits --definition current
admin service: add | remove
admin service add: | --devices all --print
admin service remove: | --name finishline
up: | --devices all --port 8080
worker: | probe
worker probe: | --device cuda:0
bench: train digits | machine
bench train: digits --seconds 20 | torchvision:resnet18 --precision bf16
bench kernels: examples/kernels.toml | kernels.toml --device cuda:0 --out kernels.json
bench generate: grammar | hf:roberta --scenario server --rate 20
bench scale: digits --processes 1,2 --weak | digits --strong --device cuda
bench profile: digits --out trace | cifar10 --out trace --steps 50
bench machine: | --device cuda:0 --json
"""
WEBHOOK_EXAMPLES = """
list: | --json
add: https://hooks.example.org --kind record.set | https://hooks.example.org --kind record.set --all
remove: h1 | h1 --json
set: h1 enable | h1 enable --json
test: h1 | h1 --json
deliveries: h1 | h1 --state waiting
resend: h1 7 | h1 7 --json
secret: h1 | h1 --json
"""


def examples_of(name: str) -> str:
    """Two calls of a command, as the end of its help."""
    text = EXAMPLES
    for group in ("account webhook", "admin webhook"):
        text += f"{group}: list | test h1\n"
        text += re.sub(r"^(?=\w)", f"{group} ", WEBHOOK_EXAMPLES, flags=re.MULTILINE)
    calls = dict(line.split(":", 1) for line in text.splitlines() if line).get(name)
    lines = (
        [] if calls is None else [f"finishline {name} {each.strip()}" for each in calls.split("|")]
    )
    return "\n\n".join(["Examples:", *(line.rstrip() for line in lines)])
