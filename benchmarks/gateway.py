"""Overhead of the gateway: added milliseconds per request, and requests per second.

It is compared with a direct connection, a bare pass-through (ASGI, uvicorn, aiohttp), the same with
the gateway's own client (`lean`), our own wire without its core, and the LiteLLM proxy, which is
installed in .bench-litellm.

python -m benchmarks.gateway [seconds per measurement]

All servers run at once, one process each. Their measurements alternate, so that other load on the
machine affects all alike. `small`: 1 kB and a short answer. `stream`: 16 events. `200k`: a session
of 200,000 tokens that grows by one turn per request, as agents' sessions do.
"""

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import aiohttp

from benchmarks import litellm_proxy
from benchmarks.table import table
from refold.codecs.detect import open_payload
from refold.tokens.count import count_message

AT_ONCE = 16
"""Concurrent requests when throughput is measured."""
PATH = "/v1/chat/completions"


def start_server(*arguments):
    """Start a server in its own process."""
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gateway_servers", *map(str, arguments)]
    )


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def small(stream=False):
    content = "Please look at the file and say what is wrong with it. " * 16
    body = {"model": "bench", "stream": stream, "messages": [{"role": "user", "content": content}]}
    if stream:
        body["stream_options"] = {"include_usage": True}
    data = json.dumps(body).encode()
    return lambda: data


class Growing:
    """A session of 200,000 tokens that grows; each client has its own."""

    def __init__(self, mark):
        self.messages = [{"role": "user", "content": f"Session {mark}: find the bug."}]
        self.turns = 0
        while self._tokens() < 200_000:
            for _ in range(100):
                self._turn()

    def _tokens(self):
        return sum(map(count_message, open_payload(self.messages, "openai_chat").decode()))

    def _turn(self):
        self.turns += 1
        call = {
            "id": f"c{self.turns}",
            "type": "function",
            "function": {"name": "read", "arguments": '{"path":"a.py"}'},
        }
        self.messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        lines = "\n".join(
            f"{self.turns:06}:{n:04} value_{n} = compute({self.turns}, {n})" for n in range(30)
        )
        self.messages.append({"role": "tool", "tool_call_id": f"c{self.turns}", "content": lines})

    def __call__(self):
        """Return the next request."""
        self._turn()
        return json.dumps({"model": "bench", "stream": False, "messages": self.messages}).encode()


async def one(client, url, body):
    start = time.perf_counter()
    async with client.post(url, data=body, headers={"content-type": "application/json"}) as reply:
        await reply.read()
        if reply.status != 200:
            raise RuntimeError(f"{url} answered {reply.status}: {(await reply.text())[:200]}")
    return time.perf_counter() - start


async def latencies(client, url, make, seconds, warm):
    """Return the seconds of sequential requests."""
    for _ in range(warm):
        await one(client, url, make())
    spans, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        spans.append(await one(client, url, make()))
    return spans


async def throughput(client, url, make, seconds, pid):
    """Return the requests per second at `AT_ONCE` at once, and the server's processor seconds per
    request."""
    until, done = time.perf_counter() + seconds, 0

    async def ask():
        nonlocal done
        while time.perf_counter() < until:
            await one(client, url, make())
            done += 1

    start, used = time.perf_counter(), processor_seconds(pid)
    await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
    return done / (time.perf_counter() - start), (processor_seconds(pid) - used) / done


def processor_seconds(pid):
    """Return the processor time that a process has used; 0 if the system does not report it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


ROUNDS = 3


async def measure(places, seconds, pids):
    """Return rows for all kinds of request and all servers, alternating between the servers."""
    kinds = {
        "small": {name: small() for name in places},
        "stream": {name: small(stream=True) for name in places},
        "200k": {name: Growing(name) for name in places},
    }
    spans = {(kind, name): [] for kind in kinds for name in places}
    rates = {(kind, name): [] for kind in kinds for name in places}
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=timeout
    ) as client:
        for at in range(ROUNDS):
            for kind, makes in kinds.items():
                for name, url in places.items():
                    warm = 0 if at else 3
                    key = kind, name
                    spans[key] += await latencies(client, url + PATH, makes[name], seconds, warm)
                    if kind != "200k":  # a growing session has one client
                        rates[key].append(
                            await throughput(client, url + PATH, makes[name], seconds, pids[name])
                        )
    return rows(kinds, places, spans, rates)


def rows(kinds, places, spans, rates):
    for kind in kinds:
        base = quantiles(spans[kind, "direct"])
        bare = median(rates[kind, "bare"])
        for name in places:
            p50, p99 = quantiles(spans[kind, name])
            rate = median(rates[kind, name])
            added = (
                ("", "") if name == "direct" else (f"{p50 - base[0]:.2f}", f"{p99 - base[1]:.2f}")
            )
            speed = (
                (f"{rate[0]:,.0f}", f"{rate[0] / bare[0]:.2f}", f"{rate[1] * 1000:.2f}")
                if rate
                else ("", "", "")
            )
            yield [kind, name, f"{p50:.2f}", f"{p99:.2f}", *added, *speed]


def ratios(results):
    """Yield a comparison of the gateway with LiteLLM for each kind of request."""
    figures = {
        (kind, name): (number(row[4]), number(row[6])) for kind, name, *row in results if row[4]
    }
    for kind in dict.fromkeys(kind for kind, name in figures if name == "litellm"):
        (rate, used), (their_rate, their_use) = figures[kind, "gateway"], figures[kind, "litellm"]
        spent = f", each for {their_use / used:.1f} times less processor time" if used else ""
        yield f"{kind}: {rate / their_rate:.1f} times the requests per second of LiteLLM {litellm_proxy.version()}{spent}."


def number(cell):
    return float(cell.replace(",", ""))


def median(pairs):
    """Return the median of each of the two figures; empty if nothing was measured."""
    return tuple(statistics.median(column) for column in zip(*pairs, strict=True))


def quantiles(spans):
    """Return p50 and p99 in milliseconds."""
    cuts = statistics.quantiles(spans, n=100, method="inclusive")
    return cuts[49] * 1000, cuts[98] * 1000


async def ready(places, servers):
    """Wait until all servers answer."""
    async with aiohttp.ClientSession() as client:
        for name, url in places.items():
            for _ in range(1_800):  # LiteLLM takes half a minute, or more on a busy machine
                try:
                    await one(client, url + PATH, small()())
                    break
                except (aiohttp.ClientError, RuntimeError):
                    if servers[name].poll() is not None:
                        raise RuntimeError(f"the server {name!r} has ended") from None
                    await asyncio.sleep(0.1)


def main(seconds):
    ports = {name: free_port() for name in ("direct", "bare", "lean", "wire", "gateway", "litellm")}
    places = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    if not litellm_proxy.install():
        del places["litellm"]
    with tempfile.TemporaryDirectory() as directory, ExitStack() as running:
        servers = {
            "direct": start_server("upstream", ports["direct"]),
            "bare": start_server("bare", places["direct"], ports["bare"]),
            "lean": start_server("lean", places["direct"], ports["lean"]),
            "wire": start_server("wire", places["direct"], ports["wire"]),
            "gateway": start_server("gateway", places["direct"], ports["gateway"], directory),
        }
        if "litellm" in places:
            servers["litellm"] = litellm_proxy.start(directory, places["direct"], ports["litellm"])
        for server_process in servers.values():
            running.callback(server_process.wait)
            running.callback(server_process.terminate)
        asyncio.run(ready(places, servers))
        results = list(
            asyncio.run(
                measure(places, seconds, {name: process.pid for name, process in servers.items()})
            )
        )
    head = [
        "request",
        "through",
        "p50 ms",
        "p99 ms",
        "added p50",
        "added p99",
        f"requests/s ({AT_ONCE} at once)",
        "of bare",
        "CPU ms each",
    ]
    print(table(head, results))
    print(
        f"\n{seconds:g} s a measurement, {ROUNDS} rounds, {os.cpu_count()} cores, one process each, Python {sys.version.split()[0]}."
    )
    for line in ratios(results):
        print(line)


if __name__ == "__main__":
    main(float(sys.argv[1]) if sys.argv[1:] else 5.0)
