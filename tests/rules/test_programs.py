"""Programs that call the client's tools: a provider runs them for any number of turns, and they
read the results instead of the model."""

from typing import Any

import pytest

import refold
from refold import Budget, Compactor
from refold.strategies import (
    ClearToolInputs,
    ClearToolResults,
    ClipResults,
    DropDuplicates,
    OutlineResults,
    Summarize,
)

ROWS = '{"rows":[' + ",".join('{"region":"north","sum":12}' for _ in range(300)) + "]}"
CODE = {"type": "server_tool_use", "id": "p", "name": "code_execution", "input": {"code": "..."}}
CODE_RESULT = {"type": "code_execution_tool_result", "tool_use_id": "p", "content": {"stdout": "9"}}
BY_CODE = {"type": "code_execution_20260120", "tool_id": "p"}
BY_PROGRAM = {"type": "program", "caller_id": "p"}
QUERY = {"sql": "select 1 -- " + "x" * 1_000}


def anthropic(rounds: int, *, is_done: bool = False, caller: object = BY_CODE) -> dict[str, Any]:
    """Return a request in which code called a tool in this many rounds."""
    messages = [{"role": "user", "content": "Sum up."}]
    for n in range(rounds):
        call = {"type": "tool_use", "id": f"t{n}", "name": "query", "input": QUERY}
        content = [*([] if n else [CODE]), {**call, "caller": caller}]
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": ROWS}
        messages += [
            {"role": "assistant", "content": content},
            {"role": "user", "content": [result]},
        ]
    if is_done:
        answer = [CODE_RESULT, {"type": "text", "text": "It is 9."}]
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "Why?"}]
    return {"model": "claude-opus-4-8", "messages": messages}


def responses(rounds: int, *, is_done: bool = False) -> dict[str, Any]:
    """Return the same request in the Responses API."""
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "Sum up."}]},
        {"type": "program", "id": "prog_1", "call_id": "p", "code": "...", "fingerprint": "f"},
    ]
    for n in range(rounds):
        call = {"type": "function_call", "call_id": f"c{n}", "name": "query", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": f"c{n}", "output": ROWS}
        items += [{**call, "caller": BY_PROGRAM}, {**output, "caller": BY_PROGRAM}]
    if is_done:
        items += [
            {"type": "program_output", "call_id": "p", "result": "9", "status": "completed"},
            {"type": "message", "role": "assistant", "content": "It is 9."},
            {"role": "user", "content": "Why?"},
        ]
    return {"model": "gpt-6-sol", "input": items}


STRATEGIES = (
    ClipResults(400),
    OutlineResults(400),
    DropDuplicates(),
    ClearToolResults(keep=0),
    ClearToolInputs(keep=0),
)
APIS = pytest.mark.parametrize("request_of", [anthropic, responses])


@APIS
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_a_program_that_runs_for_many_turns_is_no_violation(request_of, rounds) -> None:
    body = request_of(rounds)
    assert refold.check(body) == ()
    assert refold.repair(body).payload is body


@APIS
def test_a_running_program_is_not_hidden(request_of) -> None:
    body, done = request_of(8), request_of(8, is_done=True)
    summarize, budget = [Summarize(keep=1)], Budget(trigger=100, target=50)
    assert Compactor(summarize, budget)(body).edits == ()
    assert refold.check(done) == ()
    assert Compactor(summarize, budget)(done).tokens < 1_000


def test_a_program_that_the_user_interrupted_violates_an_3() -> None:
    body = anthropic(2)
    body["messages"] += [
        {"role": "assistant", "content": "Well."},
        {"role": "user", "content": "Stop."},
    ]
    assert [violation.rule for violation in refold.check(body)] == ["AN-3"]


@APIS
@pytest.mark.parametrize(
    "strategy", STRATEGIES, ids=[type(strategy).__name__ for strategy in STRATEGIES]
)
def test_results_of_calls_made_by_a_program_are_not_edited(request_of, strategy) -> None:
    compact = Compactor([strategy], Budget(trigger=100, target=50))
    for body in (request_of(4), request_of(4, is_done=True)):
        assert compact(body).edits == ()
    by_the_model = anthropic(4, caller={"type": "direct"}, is_done=True)
    assert compact(by_the_model).edits
