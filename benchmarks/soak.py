"""The gateway under random upstream faults: invalid requests, lost edits and memory leaks.

python -m benchmarks.soak [seconds, by default 600] [agents at once, by default 8]

Agents run sessions of tool calls through a gateway process, in two APIs, streaming or not. Each
session exceeds its window, known to the gateway for three in four. The upstream checks requests by
its provider's rules, counts tokens its own way, refuses longer ones, and at random fails, is slow,
breaks off or is overloaded. Agents retry, rewind and disconnect. The gateway may take a minute to
decide, or a busy machine would pass on hidden results. Exit code 1 if anything is wrong.
"""

import http.client
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import httpx

from benchmarks.table import table
from refold import check
from refold.testing.scripted_provider import Received, Reply, ScriptedProvider

WINDOW = 12_000
"""Tokens, as the upstream counts them."""
TURNS = 90
"""Calls per session, which fill about three windows."""
FAULTS = (
    ("overloaded", 0.02, Reply("Overloaded", status=529, code="overloaded_error")),
    ("error", 0.02, Reply("Something broke", status=500)),
    ("rate limit", 0.01, Reply("Slow down", status=429, retry_after=0.1)),
    ("cut", 0.02, Reply("An answer that breaks off " * 20, cut_after=2)),
    ("slow", 0.01, Reply("Late.", delay=3.0)),
    ("no JSON", 0.01, Reply("", body="<html>bad gateway</html>", status=502)),
)
PATHS = {"openai_chat": "/v1/chat/completions", "anthropic": "/v1/messages"}
TOO_LONG = {
    "openai_chat": ("context_length_exceeded", "This model's maximum context length is {} tokens. However, your messages resulted in {} tokens."),
    "anthropic": ("invalid_request_error", "prompt is too long: {1} tokens > {0} maximum"),
}  # fmt: skip
WORDS = (
    "value",
    "path/to/module.py",
    "error:",
    "def",
    "return",
    "12345",
    "文件",
    "test_it",
    "=",
    "{",
    "}",
)


@dataclass
class SessionState:
    """What the upstream knows of one session."""

    order: dict[str, int] = field(default_factory=dict)
    """Results that it received unchanged, in order."""
    hidden: set[str] = field(default_factory=set)
    """Those of them that later requests did not show unchanged."""


@dataclass
class Judge:
    """The upstream, which checks what it receives."""

    chance: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    _states: dict[str, "SessionState"] = field(default_factory=lambda: defaultdict(SessionState))
    _lock: Lock = field(default_factory=Lock)

    def __call__(self, asked: Received) -> Reply:
        """Check a request, then answer it or play a fault."""
        api = next(api for api, path in PATHS.items() if asked.target.startswith(path))
        body = json.loads(asked.body)
        with self._lock:
            self.counts["requests"] += 1
            violations = check(body, api)
            self.wrong += [f"invalid: {violation}" for violation in violations[:3]]
            self._compare(asked.all("x-session-id")[0], body)
            tokens = int(
                len(asked.body) / 3.5 * (0.9 + int(body["user"].rpartition("-")[2]) % 4 * 0.1)
            )
            roll, fault = self.chance.random(), None
            for name, share, played in FAULTS:
                roll -= share
                if roll < 0:
                    fault = name, played
                    break
        if fault:
            self.counts[fault[0]] += 1
            return fault[1]
        if tokens > WINDOW:
            self.counts["too long"] += 1
            code, words = TOO_LONG[api]
            return Reply(words.format(WINDOW, tokens), status=400, code=code)
        self.counts["answered"] += 1
        return Reply("Go on.", usage=(tokens, 3, 0))

    def _compare(self, session: str, body: dict) -> None:
        """Check that a result that was once hidden or changed is never shown unchanged again."""
        state = self._states[session]
        whole = {
            id
            for id, text in results(body)
            if text.startswith(f"{id}: ") and text.endswith(f" end of {id}")
        }
        last = max((state.order[id] for id in whole if id in state.order), default=-1)
        for id in whole:
            state.order.setdefault(id, len(state.order))
        hidden = {id for id, place in state.order.items() if place < last and id not in whole}
        self.wrong += [f"an edit of {id} was lost in {session}" for id in state.hidden & whole]
        self.counts["results hidden"] += len(hidden - state.hidden)
        state.hidden |= hidden

    def forget(self, session: str) -> None:
        """Forget a session that has ended."""
        with self._lock:
            self._states.pop(session, None)


def results(body: dict) -> list[tuple[str, str]]:
    """Return the id and text of every tool result, in both APIs."""
    pairs = []
    for message in body["messages"]:
        if message["role"] == "tool":
            pairs.append((message["tool_call_id"], str(message["content"])))
        elif isinstance(message["content"], list):
            pairs += [
                (b["tool_use_id"], str(b["content"]))
                for b in message["content"]
                if b.get("type") == "tool_result"
            ]
    return pairs


class Agent:
    """Runs one session after another."""

    def __init__(self, url: str, judge: Judge, seed: int, until: float) -> None:
        self.chance, self.judge, self.until = random.Random(seed), judge, until
        self.client = httpx.Client(
            base_url=url, timeout=60, headers={"authorization": f"Bearer key-{seed}"}
        )
        self.sessions, self.counts = 0, Counter[str]()

    def __call__(self) -> Counter[str]:
        """Run sessions until the time is over."""
        with self.client:
            while time.monotonic() < self.until:
                self.sessions += 1
                self._session(f"s{id(self)}-{self.sessions}", self.chance.choice(list(PATHS)))
        self.counts["sessions"] = self.sessions
        return self.counts

    def _session(self, name: str, api: str) -> None:
        messages = [{"role": "user", "content": f"Find the bug of {name}."}]
        for turn in range(TURNS):
            if time.monotonic() > self.until:
                break
            if not self._ask(name, api, messages):
                self.counts["given up"] += 1
                break
            if turn > 20 and self.chance.random() < 0.01:
                steps = self.chance.choice((1, 1, 5))
                del messages[-2 * steps :]
                self.counts[f"rewinds by {steps}"] += 1
                if steps > 1:  # goes back before a fold, which is then rightly undone
                    self.judge.forget(name)
            messages += self._step(api, f"c{turn}-{self.chance.randrange(10**6)}")
        self.judge.forget(name)

    def _step(self, api: str, id: str) -> list[dict]:
        words = " ".join(self.chance.choices(WORDS, k=self.chance.choice((30, 150, 700))))
        text, arguments = f"{id}: {words} end of {id}", {"path": f"{id}.py"}
        if api == "anthropic":
            use = {"type": "tool_use", "id": id, "name": "read", "input": arguments}
            result = {"type": "tool_result", "tool_use_id": id, "content": text}
            return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        call = {
            "id": id,
            "type": "function",
            "function": {"name": "read", "arguments": json.dumps(arguments)},
        }
        answer = {"role": "assistant", "content": None, "tool_calls": [call]}
        return [answer, {"role": "tool", "tool_call_id": id, "content": text}]

    def _ask(self, name: str, api: str, messages: list[dict]) -> bool:
        """Send a request until it is answered, as agents do; return False after ten attempts."""
        model = "m" if self.sessions % 4 else f"unknown-{name}"
        body = {
            "model": model,
            "user": name,
            "max_tokens": 500,
            "messages": messages,
            "stream": self.chance.random() < 0.5,
        }
        for _ in range(10):
            leave = self.chance.random() < 0.01
            try:
                with self.client.stream(
                    "POST", PATHS[api], json=body, headers={"x-session-id": name}
                ) as answer:
                    status = answer.status_code
                    if leave:
                        self.counts["left early"] += 1
                        continue
                    body_read = answer.read()
            except httpx.HTTPError as error:
                self.counts[type(error).__name__] += 1
                continue
            self.counts[f"status {status}"] += 1
            if status == 200:
                return True
            if status == 400:
                self.counts["context errors passed on"] += (
                    b"too long" in body_read or b"maximum context" in body_read
                )
                return False
        return False


def figures(pid: int) -> tuple[float, int, int]:
    """Return the megabytes, threads and open files of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    value = {
        line.split(":")[0]: line.split()[1] for line in status.splitlines() if len(line.split()) > 1
    }
    return (
        int(value["VmRSS"]) / 1024,
        int(value["Threads"]),
        len(list(Path(f"/proc/{pid}/fd").iterdir())),
    )


def gateway(place: Path, upstream: str) -> tuple[subprocess.Popen, str]:
    """Start a gateway in its own process; return it and its address."""
    port = 20_000 + random.SystemRandom().randrange(20_000)
    text = f'port = {port}\nlog = "error"\n[[upstream]]\nurl = "{upstream}"\n[windows]\nm = {WINDOW}\n[compaction]\nconversations = 32\ndecide_timeout_seconds = 60\n'
    (place / "refold.toml").write_text(text)
    process = subprocess.Popen(
        [sys.executable, "-m", "refold", "serve", "--config", "refold.toml"], cwd=place
    )
    for _ in range(200):
        try:
            line = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
            line.request("GET", "/refold/ready")
            if line.getresponse().status == 200:
                return process, f"http://127.0.0.1:{port}"
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the gateway did not start")


def watch(pid: int, until: float) -> list[tuple[float, int, int]]:
    """Return the process's figures, sampled twenty times."""
    rows, pause = [], max(0.5, (until - time.monotonic()) / 20)
    while time.monotonic() < until:
        time.sleep(min(pause, max(0.0, until - time.monotonic())))
        rows.append(figures(pid))
    return rows


def main(seconds: float, agents: int) -> int:
    """Run, print the results, and return 1 if anything is wrong."""
    judge = Judge(random.Random(1))
    received = list[Received]()
    provider = ScriptedProvider(forgetful(judge, received), received=received)
    with tempfile.TemporaryDirectory() as folder, provider as upstream:
        process, url = gateway(Path(folder), upstream.url)
        until = time.monotonic() + seconds
        with ThreadPoolExecutor(agents) as pool:
            runs = [pool.submit(Agent(url, judge, seed, until)) for seed in range(agents)]
            seen = watch(process.pid, until)
            counts = sum((run.result() for run in runs), Counter())
        metrics = httpx.get(f"{url}/metrics").text
        process.send_signal(signal.SIGTERM)
        ended = process.wait(60)
    return report(seconds, judge, counts, seen, metrics, ended)


def forgetful(judge: Judge, received: list[Received]) -> Callable[[Received], Reply]:
    """Return the judge as a script for an upstream that keeps no requests."""

    def play(asked: Received) -> Reply:
        received.clear()
        return judge(asked)

    return play


def report(seconds, judge, counts, seen, metrics, ended) -> int:
    """Print all results; return True if anything is wrong."""
    print(f"{seconds:g} seconds\n")
    print(
        table(
            ["upstream saw", "times"],
            [[name, f"{count:,}"] for name, count in judge.counts.most_common()],
        )
    )
    print(
        "\n"
        + table(
            ["agents saw", "times"], [[name, f"{count:,}"] for name, count in counts.most_common()]
        )
    )
    lines = [
        line
        for line in metrics.splitlines()
        if line.startswith(("refold_requests_total", "refold_context_errors", "refold_failures"))
    ]
    print("\n" + "\n".join(lines))
    middle, last = seen[len(seen) // 2], seen[-1]
    rows = [[at, f"{mb:.0f}", threads, files] for at, (mb, threads, files) in (("a tenth", seen[len(seen) // 10]), ("half", middle), ("the end", last))]  # fmt: skip
    print(
        "\n"
        + table(
            ["the gateway after", "MB", "threads", "open files"],
            [[str(cell) for cell in row] for row in rows],
        )
    )
    wrong = judge.wrong[:20] + (
        [f"it ended with {ended}"] if ended not in (0, -signal.SIGTERM) else []
    )
    if last[0] > middle[0] * 1.25 + 10 or last[2] > middle[2] + 20 or last[1] > middle[1] + 5:
        wrong.append(f"it grew from {middle} to {last} in the second half")
    print("\n" + ("\n".join(wrong) if wrong else "no invalid request, no lost edit, no leak"))
    return bool(wrong)


if __name__ == "__main__":
    numbers = [float(argument) for argument in sys.argv[1:]]
    sys.exit(main(numbers[0] if numbers else 600.0, int(numbers[1]) if len(numbers) > 1 else 8))
