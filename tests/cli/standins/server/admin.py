"""`python -m server.admin migrate`, `confirm-worker`, `token`, as far as the supervisor looks."""

import json
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    if sys.argv[1] == "migrate":
        database = Path(os.environ["FINISHLINE_DATABASE_URL"].removeprefix("sqlite:///"))
        if os.environ.get("STANDIN_MIGRATE") == "fails":
            sys.exit("the database is from a newer version")
        database.touch()
    elif sys.argv[1] == "worker-account":
        for _ in sys.argv[2:]:
            print(os.environ["FINISHLINE_BROKER_URL"])
    elif sys.argv[1] == "tokens":
        for wanted in sys.argv[3:]:
            user, role = wanted.split("=")
            print(json.dumps({"id": "t", "user": user, "role": role, "token": f"fl_{role}"}))
