"""`python -m worker`: says hello and stays."""

import contextlib
import json
import os
import sys
import time
import urllib.request
from pathlib import Path

if __name__ == "__main__":
    token = Path(os.environ["FINISHLINE_WORKER_TOKEN_FILE"]).read_text().strip()
    if token != "fl_worker":
        sys.exit("wrong token")
    while True:
        body = json.dumps({"name": os.environ["FINISHLINE_WORKER_NAME"]}).encode()
        with contextlib.suppress(OSError):
            urllib.request.urlopen(  # noqa: S310  (the supervisor's own loopback server)
                os.environ["FINISHLINE_SERVER_URL"] + "/api/v1/workers/hello", body
            ).close()
        time.sleep(0.1)
