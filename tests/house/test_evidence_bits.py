"""Bits of the next action: the chosen points, the prompts, and the comparison of policies."""

import json
import sys
from pathlib import Path

import pytest
from benchmarks.evidence.bits import (
    FAR,
    FIRST_AND_LAST,
    LAST,
    Bench,
    Measured,
    action_at,
    choose_points,
    interval,
    row_of,
    size_of,
    spell,
    view_of,
)
from benchmarks.evidence.peers import Worker
from benchmarks.evidence.policies import REFERENCE
from benchmarks.evidence.sessions import Session

TARGET = 600
WORDS = "the payment is captured by the gateway and written to the ledger "
SCRIPT = """
import json, sys
sys.stdin.readline(), print("{}", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    tokens = min(len(asked["head"] + asked["prompt"]), asked["most"] or 10**9)
    print(json.dumps({"bits": 1.0 * len(asked["action"]), "tokens": tokens, "action": 1}), flush=True)
"""


@pytest.fixture(scope="module")
def session() -> Session:
    entries = [{"role": "user", "content": "Mend the payment."}]
    for n in range(40):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        entries += [
            {"role": "assistant", "content": f"I look at part {n}.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": f"{n} {WORDS * 9}"},
        ]
    return Session(
        "mended", "chat", {"messages": [*entries, {"role": "assistant", "content": "Done."}]}
    )


def test_points_are_calls_with_a_long_enough_history(session: Session):
    points = choose_points(session, TARGET)
    assert len(points) == 10
    assert set(points) <= set(session.calls)
    assert size_of(session.messages[: points[0]]) >= 3 * TARGET
    assert choose_points(session, 10_000) == []


def test_the_action_is_the_next_text_and_call_of_the_model(session: Session):
    assert action_at(session, 3) == "I look at part 1.\nread"
    assert spell(session.messages[:1]) == "[user]\nMend the payment.\n\n[assistant]\n"


def test_a_policy_shows_nearly_as_many_tokens_as_the_reference(session: Session):
    at = choose_points(session, TARGET)[5]
    first = view_of(session, at, REFERENCE, 0, TARGET)
    assert 0.8 * TARGET < size_of(first) <= TARGET
    sawtooth = view_of(session, at, "last N, sawtooth", size_of(first), TARGET)
    assert abs(size_of(sawtooth) / size_of(first) - 1) < 0.3


def test_views_far_over_the_target_are_cut_to_the_tokens_of_the_reference(
    session: Session, tmp_path: Path
):
    script = tmp_path / "model.py"
    script.write_text(SCRIPT)
    worker = Worker(Path(sys.executable), script)
    worker.ask({"model": ""})
    at, bench = choose_points(session, TARGET)[0], Bench(worker, "abc", TARGET, {})
    first = bench.measure(REFERENCE, session, at)
    bench.measurements[REFERENCE, session.name, at] = first
    last, headed = bench.measure(LAST, session, at), bench.measure(FIRST_AND_LAST, session, at)
    worker.close()
    assert size_of(session.messages[:at]) > FAR * TARGET
    assert (last.tokens, last.bits) == (first.tokens, first.bits)
    assert headed.tokens == first.tokens
    assert Measured(**json.loads(json.dumps(vars(last)))) == last


def test_an_interval_contains_the_mean_and_has_no_width_if_all_values_agree():
    low, high = interval([1.0, 2.0, 3.0, 4.0] * 20)
    assert 1 < low < 2.5 < high < 4
    assert interval([2.0] * 9) == (2.0, 2.0)


def test_a_table_row_compares_policies_point_by_point():
    base = [Measured("abc", 1, "s", at, REFERENCE, 10.0, 100, 5) for at in (1, 2)]
    dearer = [Measured("abc", 1, "s", at, LAST, 12.0 + at, 100, 5) for at in (1, 2)]
    assert row_of(LAST, dearer, base)[1:5] == ["2", "100", "13.5", "+3.5"]
    assert row_of(LAST, dearer, base)[-1] == "1 of 1"
