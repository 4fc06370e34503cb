"""Signed thinking through the gateway, checked as the provider does (AN-7): each block is sent
after exactly the prefix that it was signed for."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold import StoreError
from refold.strategies import ClearToolResults, ClipResults, Summarize
from refold.tokens.model_table import Window
from tests.support.agent_requests import CONTEXT_ERRORS, WORDS, entries, violations
from tests.support.pipeline_driver import Driver, UnreliableStore
from tests.support.signing import refuse_bad_signatures, sign

REFUSED = json.dumps(CONTEXT_ERRORS["anthropic"]).encode()


class Lossy(UnreliableStore):
    """A store that may fail after saving, as when the acknowledgement is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.lossy = False

    def save(self, edits: Any) -> None:
        super().save(edits)
        if self.lossy:
            self.lossy = False
            raise StoreError("connection lost")


class Agent:
    """An agent that sends its whole history every turn. Its model signs thinking with a hash of its
    input."""

    def __init__(self, strategies: Any) -> None:
        self.strategies, self.store = strategies, Lossy()
        self.driver = self.process()
        self.history: list[Any] = [
            {"role": "user", "content": "Find the bug in calc.py and fix it."}
        ]
        self.forks = 0
        self.forgot = self.lost = False
        """Whether the gateway ever lost its edits, and whether a refusal may now reveal it: right
        after the loss, or when a rewind leaves edits that it lost and none that it made since."""

    def process(self) -> Driver:
        return Driver(self.store, strategies=self.strategies, store_cooldown_seconds=0.0)

    def restart(self) -> None:
        self.driver.__exit__()
        self.driver = self.process()

    def request(self) -> bytes:
        return json.dumps(
            {"model": "claude-opus-5-5", "max_tokens": 500, "messages": self.history}
        ).encode()

    def turn(self, repeat: int, *, too_long: bool = False) -> None:
        body = self.request()
        out = self.driver(body)
        if self.lost and (error := refuse_bad_signatures(out.body)):
            out = self.driver.drop_thinking(body, out, error)
            assert out is not None
        self.lost = False
        check(out.body)
        if too_long:
            out = self.driver.shrink(body, out, REFUSED)
            if out is None:  # the client gets the error and no thinking
                return
            check(out.body)
        id = f"t{self.forks}_{len(self.history)}"
        thought = {"type": "thinking", "thinking": "hm", "signature": sign(entries(out.body))}
        call = {"type": "tool_use", "id": id, "name": "read", "input": {"path": id}}
        result = {"type": "tool_result", "tool_use_id": id, "content": f"{id} {WORDS * repeat}"}
        self.history += [
            {"role": "assistant", "content": [thought, call]},
            {"role": "user", "content": [result]},
        ]

    def rewind(self, steps: int) -> None:
        self.forks, self.lost = self.forks + 1, self.forgot
        del self.history[max(1, len(self.history) - 2 * steps) :]


def check(body: bytes) -> None:
    """Check that the provider would refuse nothing."""
    assert refuse_bad_signatures(body) is None
    assert violations(body, "anthropic") == ()


ACTIONS = st.one_of(
    st.tuples(st.just("turn"), st.integers(1, 8)),
    st.tuples(st.just("turn"), st.integers(1, 8)),
    st.tuples(st.sampled_from(["too long", "rewind"]), st.integers(1, 4)),
    st.tuples(st.sampled_from(["restart", "down", "up", "lossy", "lost"]), st.just(0)),
)
STRATEGIES = (
    ClipResults(limit=6_000),
    Summarize(keep=0.3),
    ClearToolResults(keep=2),
    Summarize(keep=2),
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ACTIONS, min_size=10, max_size=40), st.sampled_from([None, STRATEGIES]))
def test_no_signature_is_sent_after_a_prefix_that_it_was_not_made_for(
    actions: list[Any], strategies: Any
):
    agent = Agent(strategies)
    try:
        for action, amount in actions:
            act(agent, agent.store, action, amount)
    finally:
        agent.driver.__exit__()


def act(agent: Agent, store: Lossy, action: str, amount: int) -> None:
    match action:
        case "turn" | "too long":
            agent.turn(amount, too_long=action == "too long")
        case "rewind":
            agent.rewind(amount)
        case "down" | "up":
            store.down = action == "down"
        case "lossy":
            store.lossy = True
        case "lost":  # another key or a new store: all state is lost
            agent.store, agent.forgot, agent.lost = Lossy(), True, True
            agent.restart()
        case _ if not any(
            conversation.shown.is_interrupted or conversation.shown.unsaved
            for conversation in agent.driver.pipeline.conversations
        ):
            # with a failing store, edits that are only in memory are lost: no guarantee then
            agent.restart()
            store.down = store.lossy = False  # nor for a process that has never read the store
            if not agent.lost:
                check(agent.driver(agent.request()).body)


def test_a_refused_chat_to_claude_under_another_model_name_drops_its_thinking() -> None:
    """The model name is unknown, so the current turn keeps its thinking until the refusal shows
    that it is bound."""
    history: list[Any] = [{"role": "user", "content": "Find the bug."}]
    for n in range(9):
        thought = {"type": "thinking", "thinking": "hm", "signature": f"s{n}"}
        function = {"name": "read", "arguments": json.dumps({"path": f"f{n}.py"})}
        call = {"id": f"c{n}", "type": "function", "function": function}
        answer = {"role": "assistant", "content": None, "tool_calls": [call]}
        history += [
            {**answer, "reasoning_content": "hm", "thinking_blocks": [thought]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": f"{n} {WORDS}"},
        ]
    body = json.dumps({"model": "smart", "messages": history}).encode()
    windows = {"smart": Window(4_000)}
    with Driver(strategies=(ClearToolResults(keep=2),), windows=windows) as driver:
        out = driver(body, api="openai_chat")
        assert out.body != body and out.body.count(b"thinking_blocks") == 9
        words = "messages.2.content.0: Invalid `signature` in `thinking` block"
        error = json.dumps({"error": {"message": words}}).encode()
        again = driver.drop_thinking(body, out, error, api="openai_chat")
        assert again is not None
        assert b"hm" not in again.body
        assert [e["role"] for e in entries(again.body)] == [e["role"] for e in history]
        assert violations(again.body, "openai_chat") == ()
