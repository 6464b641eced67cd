"""A program on a client that openapi-python-client made: submits, is verified, reads a board.

use_generated_client.py submit ADDRESS TOKEN FOLDER sends a folder and asks for its replay;
use_generated_client.py read ADDRESS VERIFICATION reads the verdict and the board. Both print JSON.
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


def submit(address, token, folder):
    files = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
    claim = File(BytesIO(files.pop("submission.json")), "submission.json")
    logs = [File(BytesIO(content), name) for name, content in files.items()]
    mine = AuthenticatedClient(address, token)
    made = create_submission.sync(client=mine, body=CreateSubmissionBody(claim, logs))
    asked = request_verification.sync(
        made.id, client=mine, body=VerificationCreate(reason="a client that was generated")
    )
    print(json.dumps([made.id, asked.id, asked.submission_id, asked.state]))


def read(address, verification_id):
    anybody = Client(address)
    seen = get_verification.sync(verification_id, client=anybody)
    board = get_board.sync("digits", client=anybody)
    rows = [[row.rank, row.submission.id, row.evidence] for row in board.entries]
    print(json.dumps([seen.state, seen.outcome, [reason.code for reason in seen.reasons], rows]))


{"submit": submit, "read": read}[sys.argv[1]](*sys.argv[2:])
