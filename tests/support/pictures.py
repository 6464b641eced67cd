"""Take the README's pictures from a server with the demo and the archives."""

import json
import sys
from pathlib import Path
from urllib.request import urlopen

from tests.support.chromium import running_chromium

FOLDER = Path(__file__).parents[2] / "docs" / "images"
BOARD = "mlperf-v5.1-llama2_70b_lora"


def take_pictures(site):
    with urlopen(f"{site}/api/v1/verifications?limit=100") as answer:  # noqa: S310  the server that is asked for
        verifications = json.load(answer)["verifications"]
    # The demo's own, which has claimed runs.
    replay = next(one["id"] for one in verifications if one["reason"] == "demo")
    pages = {
        "leaderboard": (f"/benchmarks/{BOARD}", 860),
        "replay": (f"/verifications/{replay}", 1130),
    }
    with running_chromium() as browser:
        context = browser.new_context(color_scheme="light")
        for name, (address, height) in pages.items():
            page = context.new_page()
            page.set_viewport_size({"width": 1280, "height": height})
            page.goto(site + address, wait_until="networkidle")
            page.screenshot(path=FOLDER / f"{name}.png")


if __name__ == "__main__":
    take_pictures(sys.argv[1].rstrip("/"))
