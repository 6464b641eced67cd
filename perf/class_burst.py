"""A class that opens one link to join in the same instant: all of them are in, or are told how.

`python -m perf.class_burst [--people 200]` starts one server process on SQLite with its usual
limits. As many browsers as people open the link at once from one address, send the form, and open
the account that shows their token. A browser follows `Refresh`, as real ones do. A page of an
error without it is a person who is stuck.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx2

from perf.harness import Bars
from perf.servers import environment_of, make_tokens, running_database, running_server

LONGEST_SECONDS = 120


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--people", type=int, default=200)
    people = parser.parse_args().people
    bars = Bars("class_burst")
    with tempfile.TemporaryDirectory() as name, running_database("sqlite", Path(name)) as url:
        token = make_tokens(url, {"olivia": "organiser"})["olivia"]
        settings = environment_of(url, Path(name), FINISHLINE_RATE_LIMITS="true")
        with running_server(settings) as server:
            link = make_link(server.url, token, people)
            answers, seconds = asyncio.run(burst(server.url, link, people))
    statuses = Counter(status for status, _ in answers)
    seconds.sort()
    bars.say(f"{people} at once, load {os.getloadavg()[0]:.1f}; answers {dict(statuses)}")
    if seconds:
        bars.say(
            f"seconds to their token: p50 {seconds[len(seconds) // 2]:.1f}, most {seconds[-1]:.1f}"
        )
    bars.hold("joined", len(seconds), at_least=people)
    bars.hold("errors without a way on", sum(stuck for _, stuck in answers), at_most=0)
    return bars.exit_code


def make_link(url: str, token: str, people: int) -> str:
    """The path of a link that all of them may use."""
    headers = {"Authorization": f"Bearer {token}"}
    made = httpx2.post(f"{url}/api/v1/invitations", json={"uses": people}, headers=headers)
    return "/join/" + str(made.raise_for_status().json()["link"]).rpartition("/")[2]


async def burst(url: str, link: str, people: int) -> tuple[list[tuple[int, bool]], list[float]]:
    """Status of each answer, with whether a person is stuck there; seconds until each token."""
    answers: list[tuple[int, bool]] = []
    seconds: list[float] = []

    async def person(number: int) -> None:
        began = time.perf_counter()
        headers = {"Accept": "text/html", "Origin": url}
        async with httpx2.AsyncClient(
            base_url=url, headers=headers, timeout=LONGEST_SECONDS, trust_env=False
        ) as browser:
            if await opened(browser, link, answers) is None:
                return
            sent = await browser.post(link, data={"name": f"student-{number:03}"})
            answers.append((sent.status_code, sent.status_code != 303))
            page = await opened(browser, "/account", answers)
            if page is not None and "fl_" in page.text:
                seconds.append(time.perf_counter() - began)

    await asyncio.gather(*(person(number) for number in range(people)))
    return answers, seconds


async def opened(
    browser: httpx2.AsyncClient, path: str, answers: list[tuple[int, bool]]
) -> httpx2.Response | None:
    """The page, once it comes; None where a browser would stay at an error."""
    while True:
        page = await browser.get(path)
        wait = page.headers.get("refresh")
        answers.append((page.status_code, page.status_code != 200 and wait is None))
        if page.status_code == 200 or wait is None:
            return page if page.status_code == 200 else None
        await asyncio.sleep(int(wait))


if __name__ == "__main__":
    raise SystemExit(main())
