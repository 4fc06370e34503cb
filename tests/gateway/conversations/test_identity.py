"""How requests are assigned to conversations: recorded clients, keys, sub-agents, tenants, side
requests, deltas."""

import asyncio
import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold.gateway import Incoming, Outgoing, Pipeline, Settings
from refold.gateway.pipeline.turns import (
    AGENT_HEADER,
    SESSION_HEADERS,
    session_key,
    tools_fingerprint,
)
from refold.stores.store import MemoryStore
from refold.tokens.model_table import Window
from tests.support.examples import examples_at_night
from tests.support.recordings import read_requests


class Continuity(NamedTuple):
    """Pairs of consecutive requests in a client's main conversation, how many continue, and the key
    that identifies it."""

    pairs: int
    linked: int
    key: str


def all_of(pairs: int, key: str = "") -> Continuity:
    return Continuity(pairs, pairs, key)


TABLE = {
    "codex": all_of(7, "thread-id"),
    "codex_gpt6_lite": all_of(4, "thread-id"),
    "opencode_chat": all_of(7, "x-session-id"),
    "opencode_responses": all_of(4, "x-session-id"),
    "opencode_anthropic": all_of(7, "x-session-id"),
    "opencode_gemini": all_of(4, "x-session-id"),
    "claude_sonnet45": all_of(7, "x-claude-code-session-id+agent-id"),
    "claude_opus_multiturn": all_of(5, "x-claude-code-session-id+agent-id"),
    "gemini": all_of(4),
    "gemini gemini_resume": Continuity(
        7, 6, ""
    ),  # the resumed history contains every response twice
    "qwen": all_of(4),
    "qwen qwen_resume": Continuity(7, 6, ""),  # message 1 rewritten
    "pi_chat": all_of(7),
    "pi_anthropic": all_of(4),
    "pi_gemini": all_of(4),
    "kimi_chat": all_of(7, "prompt_cache_key"),
    "kimi_anthropic": all_of(4, "metadata.user_id"),
    "vibe_chat": all_of(4, "x-affinity"),
    "vibe_anthropic": all_of(7, "x-affinity"),
    "cline": all_of(4),
    "continue": all_of(4),
    "aider": Continuity(2, 0, ""),  # not append-only
    "mini": all_of(4),
    "openhands": all_of(6, "x-litellm-session-id"),
    "sdk_anthropic_threads_refused": all_of(4),
    "litellm_gemini": all_of(6),
    "strands": all_of(6),
    "adk": all_of(6),
    "lc_responses": all_of(6),
    "pyd_responses": all_of(6),
    "oaia_responses": all_of(6),
    "deepagents": all_of(6),
}
"""Expected values of real clients. If the clients' table counts a longer run than was recorded,
these are those of the recording."""


def run(
    requests: list[Incoming], settings: Settings | None = None, store: MemoryStore | None = None
) -> list[Outgoing]:
    async def go() -> list[Outgoing]:
        pipeline = Pipeline(
            settings or Settings(read_above_bytes=0, decide_timeout_seconds=60),
            store or MemoryStore(),
        )
        try:
            return [await pipeline.prepare(request) for request in requests]
        finally:
            await pipeline.aclose()

    return asyncio.run(go())


def conversations(out: list[Outgoing]) -> dict[str, list[Outgoing]]:
    by_name: dict[str, list[Outgoing]] = {}
    for outgoing in out:
        if outgoing.ticket is not None:
            by_name.setdefault(outgoing.ticket.conversation.name, []).append(outgoing)
    return by_name


def links(requests: list[Outgoing]) -> int:
    tips = [request.ticket.view.transcript.tips for request in requests]
    return sum(len(a) < len(b) and a[-1] in b for a, b in pairwise(tips))


@pytest.mark.parametrize("names", TABLE)
def test_a_client_s_requests_are_one_growing_conversation(shared: Path, names: str):
    requests = list(read_requests(shared, names))
    main = max(conversations(run(requests)).values(), key=len)
    keys = Counter(
        session_key(dict(request.headers), json.loads(request.body)).name for request in requests
    )
    assert Continuity(len(main) - 1, links(main), keys.most_common(1)[0][0]) == TABLE[names]


def test_every_recorded_request_is_sent_unchanged(shared: Path):
    for path in sorted((shared / "fixtures/requests").glob("*.jsonl")):
        requests = list(read_requests(shared, path.stem))
        for sent, outgoing in zip(requests, run(requests), strict=True):
            assert outgoing.body is sent.body, (path.stem, outgoing.outcome, outgoing.reason)
            assert outgoing.outcome in ("untouched", "side", "opaque", "refused"), (
                path.stem,
                outgoing.reason,
            )


SIDES = {
    "codex_own_compaction": ["", "", "compaction", ""],
    "codex_remote_compaction_trigger": ["", "", "compaction"],
    "claude_ctx400_compaction": ["", "", "", "compaction", "", ""],
    "claude_tui_side_requests": ["", "", "", *["classifier"] * 10, "", "compaction"],
    "opencode_ctx400_compaction": ["title", "", "", *["compaction", ""] * 3],
    "kimi_ctx400_compaction": ["", "", "", "compaction", "compaction", "compaction", ""],
    "qwen_ctx400_compaction": ["", "", "", "compaction", "compaction", "", ""],
    "qwen_multiturn_memory_agent": ["", "", "", "", "", "", "memory"],
    "pi_ctx400_compaction": ["", "", "", "compaction", ""],
    "vibe_own_compaction": ["", "", "", "", "", "compaction", ""],
    "gemini_own_compaction": None,
    "aider": ["", "title", "", "title", ""],
    "opencode_subagent": ["title", "", "", "", "", "", ""],
}


FILLED = {"claude_ctx400_compaction": (3,), "claude_tui_side_requests": (14,)}
"""Recordings with filler in place of words, and the indices of their requests for a compaction."""


def with_words(request: Incoming) -> Incoming:
    """Return *request* with Claude Code's compaction prompt in its last text instead of filler."""
    body = json.loads(request.body)
    asks = [part for part in body["messages"][-1]["content"] if part["type"] == "text"][-1]
    asks["text"] = (
        f"Your task is to create a detailed summary of the conversation so far. {asks['text']}"
    )
    return replace(request, body=json.dumps(body).encode())


@pytest.mark.parametrize("name", SIDES)
def test_side_requests_are_recognised(shared: Path, name: str):
    requests = list(read_requests(shared, name))
    for at in FILLED.get(name, ()):
        requests[at] = with_words(requests[at])
    out = run(requests)
    reasons = [outgoing.reason if outgoing.outcome == "side" else "" for outgoing in out]
    expected = SIDES[name]
    if expected is None:  # the main requests stream, Gemini CLI's own do not
        expected = ["" if ":stream" in request.path else "compaction" for request in requests]
        assert "compaction" in expected
    assert reasons == expected
    assert all(outgoing.ticket is None for outgoing in out if outgoing.outcome == "side")


def test_sub_agents_are_conversations_of_their_own(shared: Path):
    for name, agents, header in (
        ("codex_subagents", 3, "thread-id"),
        ("claude_subagent", 2, "x-claude-code-agent-id"),
        ("opencode_subagent", 2, "x-session-id"),
    ):
        requests = list(read_requests(shared, name))
        out = run(requests)
        agent_ids: dict[str, set[str]] = {}
        for sent, outgoing in zip(requests, out, strict=True):
            if outgoing.ticket is not None:
                agent_ids.setdefault(outgoing.ticket.conversation.name, set()).add(
                    sent.header(header)
                )
        assert len(agent_ids) == agents
        assert all(len(values) == 1 for values in agent_ids.values())
        assert all(
            links(requests_of_one) == len(requests_of_one) - 1
            for requests_of_one in conversations(out).values()
        )


def test_a_memory_agent_with_other_tools_gets_its_own_conversation(shared: Path):
    requests = list(read_requests(shared, "qwen_multiturn_memory_agent"))
    plain = [
        Incoming(r.api, r.upstream, r.path, r.headers, unrecognisable(r.body), r.credential)
        for r in requests
    ]
    out = run(plain)
    assert out[-1].outcome == "untouched"
    assert out[-1].ticket.conversation.name != out[-2].ticket.conversation.name


def unrecognisable(body: bytes) -> bytes:
    return body.replace(b"managed memory extraction subagent", b"helper").replace(
        b"TWO directories", b"places"
    )


# --- keys, tenants, tools -------------------------------------------------------------------------


def chat(*contents: str, tools: tuple[str, ...] = (), **fields: object) -> bytes:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)]
    listed = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in tools]
    return json.dumps({"model": "m", "messages": messages, "tools": listed, **fields}).encode()


def incoming(
    body: bytes,
    headers: dict[str, str] | None = None,
    credential: str = "a",
    api: str = "openai_chat",
):
    return Incoming(
        api, "up", "/v1/chat/completions", tuple((headers or {}).items()), body, credential
    )


def names(*requests: Incoming) -> list[str]:
    return [outgoing.ticket.conversation.name for outgoing in run(list(requests))]


def test_tenants_sessions_agents_and_tools_separate_conversations():
    request = incoming(chat("hi"))
    strangers = [
        incoming(chat("hi"), credential="b"),
        incoming(chat("hi"), {"x-session-id": "s"}),
        incoming(chat("hi"), {"x-claude-code-session-id": "s"}),
        incoming(chat("hi"), {"x-claude-code-session-id": "s", "x-claude-code-agent-id": "a"}),
        incoming(chat("hi", tools=("read",))),
        incoming(chat("hi"), api="openai_chat", credential="c"),
    ]
    assert len(set(names(request, *strangers))) == 1 + len(strangers)
    same = incoming(chat("hi", "yes", "go on", temperature=1))
    assert names(request, same)[0] == names(request, same)[1]
    unrelated = incoming(chat("other words", "yes", "go on"))
    assert names(request, unrelated)[0] != names(request, unrelated)[1]


def test_the_same_history_has_other_tips_for_another_tenant():
    a, b = run([incoming(chat("hi")), incoming(chat("hi"), credential="b")])
    assert a.ticket.view.transcript.tips[-1] != b.ticket.view.transcript.tips[-1]


def test_a_conversation_name_reveals_no_session_id_or_credential():
    (name,) = names(incoming(chat("hi"), {"x-session-id": "private-id"}, "private-hash"))
    assert "private" not in name


def test_the_most_specific_key_wins():
    codex = {"session-id": "tree", "thread-id": "agent", "x-client-request-id": "weak"}
    assert session_key(codex, {"prompt_cache_key": "tree"}) == ("thread-id", "agent")
    user = json.dumps({"device_id": "d", "session_id": "s"})
    assert session_key({}, {"metadata": {"user_id": user}}) == ("metadata.user_id", "s")
    assert (
        session_key({}, {"metadata": {"user_id": "user_1_session_2"}}).value == "user_1_session_2"
    )
    assert session_key({}, {"metadata": {"user_id": 3}, "prompt_cache_key": 4}) == ("", "")


def test_the_order_of_tools_does_not_change_their_fingerprint():
    assert (
        tools_fingerprint(("a", "b")) == tools_fingerprint(("b", "a")) != tools_fingerprint(("a",))
    )
    assert tools_fingerprint(()) == ""


# --- deltas ---------------------------------------------------------------------------------------


def test_threads_are_refused_so_that_the_client_sends_its_history(shared: Path):
    out = run(list(read_requests(shared, "sdk_anthropic_threads")))
    assert {outgoing.outcome for outgoing in out} == {"refused"}
    error = json.loads(out[0].response.body)
    assert out[0].response.status == 400
    assert error["error"]["details"] == {
        "error_code": "thread_unsupported_request",
        "unsupported": ["thread"],
    }


def test_deltas_that_are_not_refused_pass_untouched(shared: Path):
    names = ("sdk_openai_responses_prev", "codex_websocket", "sdk_anthropic_threads")
    for name in names:
        requests = list(read_requests(shared, name))
        out = run(requests, Settings(refuse=frozenset(), decide_timeout_seconds=60))
        assert all(outgoing.body is sent.body for sent, outgoing in zip(requests, out, strict=True))
        assert sum(outgoing.reason == "delta" for outgoing in out) >= len(out) - 2


def test_a_request_with_previous_response_id_can_be_refused(shared: Path):
    refusing = Settings(refuse=frozenset({"previous_response_id"}), decide_timeout_seconds=60)
    out = run(list(read_requests(shared, "sdk_openai_responses_prev")), refusing)
    refused = [outgoing for outgoing in out if outgoing.outcome == "refused"]
    assert len(refused) == len(out) - 1  # the first request names none
    assert json.loads(refused[0].response.body)["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize("id", ["", None])
def test_an_empty_previous_response_id_names_no_response(id: str | None):
    body = json.dumps({"model": "m", "previous_response_id": id, "input": [{"role": "user"}] * 2})
    incoming = Incoming("openai_responses", "up", "/v1/responses", (), body.encode())
    (out,) = run([incoming], Settings(read_above_bytes=0, decide_timeout_seconds=60))
    assert out.reason != "delta"


def test_a_request_with_cached_content_is_left_unchanged():
    body = json.dumps(
        {
            "cachedContent": "cachedContents/1",
            "contents": [{"role": "user", "parts": [{"text": "x"}]}],
        }
    )
    (out,) = run([Incoming("gemini", "up", "/v1beta/models/g:generateContent", (), body.encode())])
    assert (out.outcome, out.reason) == ("opaque", "delta")


# --- forks ----------------------------------------------------------------------------------------


def long(steps: int, last: str = "") -> bytes:
    """Return a session that exceeds the window of `SMALL` from 40 steps on."""
    contents = [
        text
        for i in range(steps)
        for text in (f"Do step {i}.", f"Step {i} is done. " + "word " * 400)
    ]
    return chat(*contents, last or f"Do step {steps}.")


SMALL = Settings(windows={"m": Window(16_000)}, decide_timeout_seconds=60)
KEYS = st.dictionaries(
    st.sampled_from((*SESSION_HEADERS, AGENT_HEADER)),
    st.text(st.characters(codec="ascii"), min_size=1),
    max_size=3,
)


def messages_of(body: bytes) -> list[object]:
    return json.loads(body)["messages"]


@settings(max_examples=examples_at_night(3, 50), deadline=None)
@given(parent=KEYS, fork=KEYS)
def test_d6_a_fork_under_any_session_key_shows_the_edits_of_its_parent(parent, fork):
    """A forked session used to be compacted anew, and cached tokens fell from 33.5k to 9k. The
    shared part is sent identically. Another tenant with the same key and history shares nothing."""
    first, forked, strange = run(
        [
            incoming(long(50), parent),
            incoming(long(50, "Another way."), fork),
            incoming(long(50), parent, credential="b"),
        ],
        SMALL,
    )
    assert first.reason == "hard"
    assert forked.edits == first.edits
    assert forked.reason == "shown"
    assert messages_of(forked.body)[:-1] == messages_of(first.body)[:-1]
    assert strange.reason == "hard"  # decided anew: no edit of another tenant was found
    assert not set(strange.edits) & set(first.edits)


def test_d6_sessions_with_a_common_prefix_share_no_edits_beyond_it():
    """An edit over messages of only one session shows in that session alone."""
    marked = long(50).replace(b"Step 3 is done.", b"Step 3 is done by Anna.")
    first, second = run(
        [incoming(long(50), {"x-session-id": "1"}), incoming(marked, {"x-session-id": "2"})], SMALL
    )
    assert first.reason == second.reason == "hard"
    assert not set(first.edits) & set(second.edits)
    assert b"Anna" not in first.body


def test_d6_another_process_finds_the_edits_of_a_parent_for_its_fork():
    """After a restart, or on another replica, only the store is shared."""
    store = MemoryStore()
    (first,) = run([incoming(long(50), {"thread-id": "1"})], SMALL, store)
    (forked,) = run([incoming(long(50, "Another way."), {"thread-id": "2"})], SMALL, store)
    assert forked.edits == first.edits
    assert (
        forked.ticket.conversation.name != first.ticket.conversation.name
    )  # still a session of its own
