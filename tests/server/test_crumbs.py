"""What leads back to a benchmark's page calls it by the name that stands on that page."""

import re
from html import unescape
from typing import Any

import pytest
from fastapi.testclient import TestClient

from finishline.rules.benchmarks.benchmark import Benchmark
from tests.support.pages import BROWSER

CRUMB = re.compile(r'<p class="crumb"><a href="/benchmarks/digits[^"]*">([^<]*)</a>')


@pytest.mark.parametrize(
    "address",
    [
        "/submissions/{submission}",
        "/verifications/{verification}",
        "/verifications/compare?first={verification}&second={other}",
        "/compare?ids={submission}",
        "/calibrations?benchmark=digits",
        "/benchmarks/digits/convergence",
        "/benchmarks/digits/charts/records",
    ],
)
def test_a_crumb_says_the_name_of_its_benchmark(
    address: str, replay: Any, make_report: Any, digits: Benchmark, client: TestClient, olivia: Any
) -> None:
    ids = {"submission": replay.submission_id, "verification": replay.verification_id}
    if "{other}" in address:
        replay.report(replay.claim().json(), make_report(replay.seeds()))
        again = f"/api/v1/submissions/{replay.submission_id}/verifications"
        asked = client.post(again, json={"reason": "again"}, headers=olivia.headers)
        ids["other"] = asked.json()["id"]

    page = client.get(address.format(**ids), headers=BROWSER).text

    assert [unescape(name) for name in CRUMB.findall(page)] == [digits.title]
