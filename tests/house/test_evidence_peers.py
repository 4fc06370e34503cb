"""Peers in `python -m benchmarks.evidence`: equal tokens, one format, a process of their own."""

import json
import sys
from pathlib import Path

import pytest
from benchmarks.evidence.chat import iter_chat
from benchmarks.evidence.equal import NEAR, match_sent_tokens
from benchmarks.evidence.peers import Worker
from benchmarks.evidence.visible import Score, has_violation
from hypothesis import given
from hypothesis import strategies as st

from refold.codecs.detect import open_payload
from refold.messages import Message, Text, ToolCall, ToolResult, user

SESSION = [
    user("Mend the payment."),
    Message("assistant", (Text("I look."), ToolCall("c1", "Read", '{"path":"pay.py"}'))),
    Message("tool", (ToolResult("c1", (Text("def pay(): ..."),)),)),
    Message("assistant", (Text("It is mended."),)),
]


@given(st.integers(1_000, 100_000), st.floats(0.3, 3))
def test_a_peer_that_sends_in_proportion_to_its_window_reaches_the_wanted_tokens(wanted, share):
    sent = match_sent_tokens(lambda factor: int(factor * share * wanted), int, wanted)
    assert abs(sent / wanted - 1) <= NEAR


def test_a_peer_that_cannot_send_less_keeps_the_nearest_run():
    assert match_sent_tokens(lambda factor: max(900, int(800 * factor)), int, 500) == 900


def test_messages_round_trip_through_the_chat_completions_format():
    chat = list(iter_chat(SESSION))
    assert open_payload({"messages": chat}).decode() == SESSION


def test_a_result_without_its_call_is_invalid():
    assert not has_violation(SESSION)
    assert has_violation(SESSION[2:])


def test_the_prefix_shared_with_the_previous_request_is_billed_as_cached():
    total = Score()
    total.add_request((), SESSION[:1], SESSION[:1], 0)
    total.add_request(SESSION[:1], SESSION[:3], SESSION[:3], 1)
    grown = total.read
    assert total.dollars == total.full_dollars
    total.add_request(SESSION[:3], SESSION[3:], SESSION, 3)
    assert 0 < grown == total.read < total.sent < total.full
    assert (total.calls, total.breaks) == (3, 1)
    dearer = Score(sent=total.sent)
    assert total.dollars < dearer.dollars


def test_a_worker_answers_line_by_line(tmp_path: Path):
    script = tmp_path / "echo.py"
    script.write_text("import sys\nfor line in sys.stdin: print(line, end='', flush=True)\n")
    worker = Worker(Path(sys.executable), script)
    question = {"new": [json.loads(json.dumps(m)) for m in iter_chat(SESSION)]}
    assert worker.ask(question) == question
    worker.close()


def test_a_worker_that_ends_is_an_error(tmp_path: Path):
    script = tmp_path / "end.py"
    script.write_text("import sys\nsys.stdin.readline()\n")
    worker = Worker(Path(sys.executable), script)
    with pytest.raises(RuntimeError, match="ended"):
        worker.ask({})
    worker.close()
