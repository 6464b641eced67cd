"""A program on a client that openapi-python-client made: submits, asks for a replay, reads a board.

use_generated_client.py ADDRESS TOKEN FOLDER prints what it read as JSON.
"""

import json
import sys
from io import BytesIO
from pathlib import Path

from finishline_client import AuthenticatedClient, Client
from finishline_client.api.leaderboards import get_board
from finishline_client.api.submissions import create_submission
from finishline_client.api.verifications import get_verification, request_verification
from finishline_client.models import CreateSubmissionBody, VerificationCreate
from finishline_client.types import File


def main(address: str, token: str, folder: str) -> None:
    """Do the three, and print ids and states."""
    files = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
    claim = File(BytesIO(files.pop("submission.json")), "submission.json")
    logs = [File(BytesIO(content), name) for name, content in files.items()]
    mine = AuthenticatedClient(address, token)
    made = create_submission.sync(client=mine, body=CreateSubmissionBody(claim, logs))
    asked = request_verification.sync(
        made.id, client=mine, body=VerificationCreate(reason="a client that was generated")
    )
    anybody = Client(address)
    seen = get_verification.sync(asked.id, client=anybody)
    board = get_board.sync("digits", client=anybody)
    told = {"submission": made.id, "verification": [seen.id, seen.submission_id, seen.state]}
    print(json.dumps(told | {"board": [entry.submission_id for entry in board.entries]}))


main(*sys.argv[1:])
