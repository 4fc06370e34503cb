"""Three gateway processes with one PostgreSQL and no sticky sessions. One of them is killed."""

import re
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event, Lock

import httpx
import pytest

import refold
from refold.summarizers.model import HEADINGS
from refold.testing.scripted_provider import Received, Reply, ScriptedProvider
from tests.support.gateway_processes import GatewayProcess, run_processes

SESSIONS, TURNS, REPLICAS = 4, 30, 3
LIMIT = 64_000
"""Limit of the provider in characters: a window of 16,000 tokens."""
SUMMARY = "\n".join(f"## {title}\n- the bug is in file 3" for title in HEADINGS)
MARK = re.compile(r"<s(\d+) m(\d+)>")
CONFIG = """
log = "warning"
store = "{store}"
[[upstream]]
url = "{provider}"
[summaries]
model = "writer"
url = "{writer}/replica{number}/v1"
[windows]
local = 16_000
"""


def result(session: int, turn: int) -> str:
    return f"<s{session} m{turn}> " + "some text of a file " * 180


def chat(session: int, turns: int) -> dict:
    messages = [{"role": "user", "content": f"Find the bug of session {session}."}]
    for n in range(turns):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{n}", "content": result(session, n)})
    return {"model": "local", "messages": messages}


def anthropic(session: int, turns: int) -> dict:
    messages = [{"role": "user", "content": f"Find the bug of session {session}."}]
    for n in range(turns):
        call = {"type": "tool_use", "id": f"c{n}", "name": "read", "input": {}}
        content = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": result(session, n)}]
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": content}]
    return {"model": "local", "max_tokens": 100, "messages": messages}


APIS = (("/v1/chat/completions", chat), ("/v1/messages", anthropic))


EARLIER = re.compile(
    r"<earlier-conversation>.*?</earlier-conversation>|<previous-summary>.*?</previous-summary>",
    re.DOTALL,
)
"""Summaries, whose quotations do not count as unfolded."""


def marks(asked: Received) -> dict[int, set[int]]:
    """Return by session which results a request contains."""
    turns_by_session = defaultdict(set)
    for session, turn in MARK.findall(EARLIER.sub("", asked.body.decode())):
        turns_by_session[int(session)].add(int(turn))
    return turns_by_session


@dataclass
class Load:
    """Sessions with turns that rotate among the gateways, as behind a load balancer without sticky
    sessions."""

    urls: list[str]
    half: Event = field(default_factory=Event)
    answered: int = 0
    refused: list[str] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def play(self, session: int) -> None:
        with httpx.Client(timeout=60) as client:
            for turn in range(1, TURNS + 1):
                self.send(client, session, turn)
                with self.lock:
                    self.answered += 1
                    if self.answered == SESSIONS * TURNS // 2:
                        self.half.set()

    def send(self, client: httpx.Client, session: int, turn: int) -> None:
        path, make_body = APIS[session % 2]
        headers = {
            "authorization": f"Bearer key-{session % 3}",
            "x-session-id": f"session-{session}",
        }
        for attempt in range(REPLICAS):  # a dead one is skipped
            url = self.urls[(session + turn + attempt) % len(self.urls)]
            try:
                answer = client.post(f"{url}{path}", json=make_body(session, turn), headers=headers)
            except httpx.TransportError:
                continue
            if answer.status_code != 200:
                self.refused.append(f"{answer.status_code} {answer.text[:200]}")
            return
        self.refused.append(f"no gateway took turn {turn} of session {session}")


def provider(asked: Received) -> Reply:
    """Simulate a provider that refuses requests over its window."""
    if len(asked.body) > LIMIT:
        return Reply(
            "prompt is too long: 20000 tokens > 16000 maximum",
            status=400,
            code="context_length_exceeded",
        )
    return Reply("Go on.")


@pytest.mark.slow
def test_no_edit_is_lost_if_one_of_three_replicas_is_killed_under_load(server, tmp_path):
    writer_script = Reply(SUMMARY, delay=0.3)
    with ScriptedProvider(provider) as upstream, ScriptedProvider([writer_script]) as writer:
        places = {"store": server.database(), "provider": upstream.url, "writer": writer.url}
        gateways = [
            GatewayProcess(tmp_path, f"g{n}", CONFIG.format(number=n, **places))
            for n in range(REPLICAS)
        ]
        with run_processes(*gateways):
            load = Load([gateway.url for gateway in gateways])
            with ThreadPoolExecutor(SESSIONS) as pool:
                playing = [pool.submit(load.play, session) for session in range(SESSIONS)]
                assert load.half.wait(600)
                gateways[1].kill()
                for run in playing:
                    run.result()
        sent = list(upstream.received)
        late = GatewayProcess(tmp_path, "late", CONFIG.format(number=REPLICAS, **places))
        with run_processes(late):
            again = Load([late.url])
            with httpx.Client(timeout=60) as client:
                for session in range(SESSIONS):
                    again.send(client, session, TURNS)

    assert not load.refused + again.refused
    assert load.answered == SESSIONS * TURNS
    check_valid(sent)
    check_never_unfolded(sent)
    check_written_once(writer.received, killed="/replica1/")
    check_the_same(sent, upstream.received[len(sent) :])


def check_valid(sent: list[Received]) -> None:
    for asked in sent:
        assert (
            refold.check(asked.body, "anthropic" if "/messages" in asked.target else "openai_chat")
            == ()
        )
        assert len(asked.body) <= LIMIT


def check_never_unfolded(sent: list[Received]) -> None:
    """Check that hidden content never comes back, whichever gateway a turn went through."""
    hidden, folds = defaultdict(set), defaultdict(int)
    for asked in sent:
        ((session, shown),) = marks(asked).items()
        assert not shown & hidden[session], (
            f"session {session} got back {sorted(shown & hidden[session])}"
        )
        gone = set(range(max(shown))) - shown
        folds[session] += gone > hidden[session]
        hidden[session] |= gone
    assert len(folds) == SESSIONS and min(folds.values()) >= 2


def check_written_once(asked: list[Received], killed: str) -> None:
    """Check that no result is summarised twice, unless the first process was killed before it could
    store the answer."""
    done, by = defaultdict(dict), []
    for received in asked:
        for session, turns in marks(received).items():
            twice = [turn for turn in turns if turn in done[session]]
            assert all(killed in done[session][turn] for turn in twice), (
                session,
                twice,
                received.target,
            )
            by += [1] * bool(twice)
            done[session] |= dict.fromkeys(turns, received.target)
    assert len(by) <= SESSIONS
    assert len(done) == SESSIONS


def check_the_same(sent: list[Received], again: list[Received]) -> None:
    """Check that a new gateway sends every session as it was sent last, so each edit is in
    force."""
    last = {next(iter(marks(asked))): asked.body for asked in sent}
    assert {next(iter(marks(asked))): asked.body for asked in again} == last
