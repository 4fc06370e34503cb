"""Load time of the page in a real Chromium: the list of 10,000 sessions, and a session of 5,000
messages.

python -m benchmarks.page [times]

Milliseconds from opening the address to the first rows of data on the screen, including the
download of the page's files: the median of *times* (5), and the slowest. Needs chromium and
chromedriver.
"""

import sqlite3
import statistics
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx
from tests.support.api_gateway import ADMIN, TOKEN, ApiGateway, answer_briefly, build_config
from tests.support.browser import Browser, ChromeDriver
from tests.support.raw_http import eventually

from refold.gateway.ledger.entry import FIGURES
from refold.gateway.ledger.rows import ListedSession
from refold.gateway.serve import create_gateway
from refold.testing.scripted_gateway import Serving
from refold.testing.scripted_provider import ScriptedProvider
from refold.tokens.model_table import Rates, Window

SESSIONS, MESSAGES = 10_000, 5_000
DAY = 86_400
SHOWN = """
const done = arguments[1];
const look = () => (document.querySelector(arguments[0]) ? requestAnimationFrame(() => done(performance.now())) : setTimeout(look, 1));
look();
"""
"""Milliseconds since the page was requested, in the frame that shows the rows."""


def fill(store: Path, now: float) -> None:
    """Insert sessions over a year, each with one call."""
    listed, calls = [], []
    names = ("hour", "tenant", "session", "model", "basis", *FIGURES)
    for n in range(SESSIONS):
        name, at = f"{n:032x}", now - n * 365 * DAY / SESSIONS
        size = 1_000 + 13 * n % 150_000
        figures = {"calls": 1, "cost_fresh": 10**10, "would_cost": 3 * 10**10, "fresh": size}
        listed.append(
            ListedSession(name, "t", ("Codex", "Claude Code", "pi")[n % 3], f"project-{n % 40}",
                          "openai_chat", f"model-{n % 5}", at, at, 2 * size, size, 0)
        )  # fmt: skip
        hour = int(at) // 3_600 * 3_600
        calls.append(
            (hour, "t", name, f"model-{n % 5}", "reported", *(figures.get(f, 0) for f in FIGURES))
        )
    with closing(sqlite3.connect(f"{store}.ledger", timeout=30)) as connection, connection:
        marks = ", ".join("?" * len(ListedSession._fields))
        connection.executemany(f"INSERT INTO refold_listed VALUES ({marks})", listed)
        marks = ", ".join("?" * len(names))
        connection.executemany(
            f"INSERT INTO refold_calls ({', '.join(names)}) VALUES ({marks})", calls
        )


def measure(browser: Browser, url: str, rows: str) -> float:
    """Open an address from scratch and return the milliseconds until *rows* are shown."""
    browser.open("about:blank")
    browser.open(url)
    return float(browser.ask("POST", "/execute/async", {"script": SHOWN, "args": [rows]}))


def main(times: int) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        ScriptedProvider(answer_briefly) as upstream,
        ChromeDriver() as browser,
    ):
        store = Path(folder) / "refold.db"
        rates = Rates(input=5.0, output=25.0, read=0.5, write=6.25)
        config = build_config(upstream, "7d", prices=rates, windows={"large": Window(2_000_000)})
        with (
            Serving(create_gateway(replace(config, store=str(store)))) as served,
            httpx.Client(base_url=served.url, timeout=60) as client,
        ):
            at = ApiGateway(upstream, served, client)
            messages = [
                {"role": ("user", "assistant")[n % 2], "content": f"word {n} of many " * 20}
                for n in range(MESSAGES + 1)
            ]
            at.say({"model": "large", "messages": messages}).raise_for_status()
            session = at.session()
            eventually(
                lambda: len(at.get("session", session=session).json().get("sizes", ())) > MESSAGES
            )
            now = time.time()
            fill(store, now)
            week = int(now) - 7 * DAY
            browser.resize(1_280, 900)
            browser.open(f"{served.url}/refold/")
            browser.type("#token", TOKEN)
            browser.click("#entry button")
            browser.find("tr[data-id]")
            views = {
                f"the list over {SESSIONS:,} sessions": ("#/", "tr[data-id]", f"overview?limit=100&since={week}"),
                f"a session of {MESSAGES:,} messages": (
                    f"#/s/{session}", ".rows article .words span", f"session?session={session}"),
            }  # fmt: skip
            for name, (path, rows, operation) in views.items():
                spans = [
                    measure(browser, f"{served.url}/refold/{path}", rows) for _ in range(times)
                ]
                began = time.perf_counter()
                answer = client.get(f"/refold/api/{operation}", headers=ADMIN)
                took = (time.perf_counter() - began) * 1e3
                print(
                    f"{name}: {statistics.median(spans):.0f} ms (slowest {max(spans):.0f}); "
                    f"its first answer {took:.0f} ms, {len(answer.content) / 1e3:.0f} kB"
                )


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 5)
