"""A store killed at any moment keeps its acknowledged writes and nothing partial (issue 2, section
8)."""

import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from tests.support.examples import examples_at_night
from tests.support.kill_writer import STORES, batch, tips

WRITER = Path(__file__).parents[1] / "support" / "kill_writer.py"
KILLS = {
    "sqlite": examples_at_night(24, 200),
    "sidecar": examples_at_night(24, 200),
    "postgresql": examples_at_night(8, 40),
}
KILLS_PER_FILE = 6
MOST_LINES = 8
"""Upper bound (exclusive) of the number of lines after which a writer is killed."""
LONGEST = 0.01
"""Maximum number of seconds from an acknowledgement to the kill, so that kills fall between and
into writes. It affects nothing but the time of the kill."""

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")


def run_and_kill(nursery, kind, first, path, after, seconds):
    """Start a writer and kill it *seconds* after it has written *after* lines. Return its last
    acknowledgement of each batch."""
    nursery.stdin.write(f"{kind} {first} {path}\n")
    nursery.stdin.flush()
    acknowledged, pid, lines_read = {}, None, 0
    for line in nursery.stdout:
        word, _, number = line.strip().partition(" ")
        if word == "dead":
            return acknowledged
        if word == "pid":
            pid = int(number)
        else:
            acknowledged[int(number)] = word
            lines_read += 1
        if (
            lines_read >= after and pid is not None
        ):  # on a busy machine it may save before printing `pid`
            time.sleep(seconds)
            os.kill(pid, signal.SIGKILL)
            pid = None
    raise AssertionError("the nursery ended")


def check_content(store, acknowledged, unknown):
    """Check that each acknowledged batch is complete or removed, as acknowledged, and those of
    *unknown* one of the two."""
    for number, word in acknowledged.items():
        edits = list(store.load(tips(number)))
        if number in unknown:
            assert edits in ([], batch(number)), number
        else:
            assert edits == (batch(number) if word == "saved" else []), (number, word)


def check_started(store, started):
    """Check that batches that a killed writer may have been saving are complete or absent."""
    for number in started:
        assert list(store.load(tips(number))) in ([], batch(number)), number


def check_file(kind, path, store):
    if kind == "postgresql":
        return  # PostgreSQL checks its own files
    if kind == "sqlite":
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    else:
        assert all(
            re.fullmatch(r"line \d+: cut off; its write was never acknowledged", p)
            for p in store.problems
        )


@pytest.fixture
def places(kind, tmp_path, request):
    """An iterator of new store paths or addresses."""
    if kind != "postgresql":
        return (tmp_path / f"{n}.store" for n in count())
    server = request.getfixturevalue("server")
    return (server.database() for _ in count())


@pytest.mark.slow
@pytest.mark.parametrize("kind", STORES)
def test_a_store_killed_at_any_moment_keeps_every_acknowledged_write(kind, places):
    rng = random.Random(kind)
    saved = least = 0
    command = [sys.executable, str(WRITER)]
    # Of 200 kills of the sidecar's writer, a few fall into a write and leave a torn line behind.
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as nursery:
        for kill in range(KILLS[kind]):
            if kill % KILLS_PER_FILE == 0:
                path, first, acknowledged, unknown, begun = next(places), 0, {}, set(), set()
            after = rng.randrange(MOST_LINES)
            new = run_and_kill(nursery, kind, first, path, after, rng.uniform(0.0, LONGEST))
            # A removal interrupted by the kill may or may not be done.
            unknown |= (
                {max(new) - 1} if new and max(new) % 5 == 0 and new[max(new)] == "saved" else set()
            )
            acknowledged |= new
            saved, least = saved + len(new), least + after
            store = STORES[kind](path)
            check_content(store, acknowledged, unknown)
            last = max(new, default=first - 1) + 1
            begun |= {last}
            check_started(store, begun)
            first = last + 1
            check_file(kind, path, store)
            if kind != "sidecar":
                store.close()
        nursery.stdin.close()
    assert saved > least // 2 > 0
