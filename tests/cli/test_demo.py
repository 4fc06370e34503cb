"""The demo: its session is believable, and its checks can fail."""

import json
import re
from collections import Counter
from dataclasses import replace

import pytest
from benchmarks.demo_session.story import session
from benchmarks.demo_session.world import World

import refold
from refold.cli import terminal
from refold.cli.demo import CONSTRAINTS, prove, replay, show
from refold.messages import Text
from refold.session_files import demo_session
from tests.support.command_line import refold as run_command
from tests.support.pages import ROOT, code_blocks


@pytest.fixture(scope="module")
def history():
    return demo_session()


@pytest.fixture(scope="module")
def demo_replay():
    return replay()


def blocks(history, kind):
    return [
        b
        for e in history
        if isinstance(e["content"], list)
        for b in e["content"]
        if b["type"] == kind
    ]


def test_the_stored_session_equals_the_generated_one(history) -> None:
    assert json.dumps(session()) == json.dumps(history)


def test_the_session_is_long_and_ends_with_a_request(history) -> None:
    assert 300 <= len(history) <= 600
    view = refold.Compactor([], refold.Budget(10**9, 0))(history)
    assert 150_000 <= view.tokens <= 280_000
    assert history[-1]["role"] == "user"


def test_the_session_is_valid(history) -> None:
    assert refold.check(history, "anthropic") == ()


def test_the_session_has_errors_signed_thinking_an_image_and_repeated_results(history) -> None:
    results, thinking = blocks(history, "tool_result"), blocks(history, "thinking")
    assert sum(bool(result.get("is_error")) for result in results) > 20
    assert all(len(block["signature"]) > 200 for block in thinking)
    assert len({block["signature"] for block in thinking}) == len(thinking)
    assert len(blocks(history, "image")) == 1
    assert any(
        len([b for b in e["content"] if b["type"] == "tool_use"]) > 1
        for e in history
        if e["role"] == "assistant"
    )
    assert (
        Counter(
            result["content"] for result in results if len(result["content"]) > 1_000
        ).most_common(1)[0][1]
        > 1
    )
    assert {block["name"] for block in blocks(history, "tool_use")} == {
        "Bash",
        "Edit",
        "Grep",
        "Read",
        "TodoWrite",
        "Write",
    }


def test_no_long_text_is_repeated(history) -> None:
    long = [b["text"] for b in blocks(history, "text") if len(b["text"]) > 120]
    assert max(Counter(long).values()) == 1


def test_the_user_states_constraints_in_two_languages(history) -> None:
    text = json.dumps(history, ensure_ascii=False)
    assert all(words in text for words in CONSTRAINTS)
    assert any(re.search("[一-鿿]", words) for words in CONSTRAINTS)


@pytest.mark.parametrize("turns", [1, 2, 30])
def test_a_session_of_fewer_turns_is_a_prefix_of_the_session(history, turns) -> None:
    beginning = demo_session(turns)
    assert beginning == history[: len(beginning)]
    assert sum(entry["role"] == "assistant" for entry in beginning) == turns
    assert beginning[-1]["role"] == "user"


def test_the_agents_tools_return_results_that_match_its_files() -> None:
    world = World()
    thing = world.things[0]
    assert world.pytest([thing])[1]
    world.run(
        "Edit",
        {
            "file_path": thing.service,
            "old_string": "datetime.now()",
            "new_string": "clock.now()",
            "replace_all": True,
        },
    )
    assert "TypeError" in world.pytest([thing])[0]
    assert world.run("Read", {"file_path": "no/such.py"}) == (
        "File does not exist: no/such.py",
        True,
    )
    assert world.run("Edit", {"file_path": thing.api, "old_string": "nowhere", "new_string": ""})[1]
    assert "clock.now()" in world.git(f"diff {thing.plural}/")


def test_the_generated_python_files_compile() -> None:
    for path, text in World().files.items():
        if path.endswith(".py"):
            compile(text, path, "exec")


# --- the trial -------------------------------------------------------------------------------


def test_every_proof_holds(demo_replay) -> None:
    assert [proof.claim for proof in demo_replay.proofs if not proof.holds] == []
    assert len(demo_replay.proofs) == 8


def test_the_demo_sends_far_fewer_tokens_and_rarely_breaks_the_cache(demo_replay) -> None:
    assert sum(request.sent for request in demo_replay.requests) < 0.7 * sum(
        request.unedited for request in demo_replay.requests
    )
    assert 1 <= sum(request.breaks_cache for request in demo_replay.requests) <= 6


def test_the_demo_shows_a_stub_and_a_summary(demo_replay) -> None:
    assert demo_replay.stub is not None
    assert demo_replay.summary is not None


def test_the_proofs_fail_when_something_is_lost(demo_replay) -> None:
    def failing(
        history=demo_replay.history,
        before=None,
        view=demo_replay.view,
        again=demo_replay.view,
        requests=demo_replay.requests,
    ):
        before = json.dumps(history) if before is None else before
        return [
            proof.claim
            for proof in prove(history, before, view, again, requests)
            if not proof.holds
        ]

    assert failing() == []
    assert failing(before="[]") == ["the history is unchanged"]
    assert "view.revert().payload == history" in failing(history=demo_replay.history[:-1])
    assert failing(requests=[replace(demo_replay.requests[0], violations=1)]) == [
        "the provider would accept every request"
    ]
    assert failing(requests=[replace(demo_replay.requests[0], sent=10**6)]) == [
        "every request stayed under the trigger"
    ]
    assert failing(again=demo_replay.view.revert()) == [
        "after a restart, it sends the same request"
    ]


def test_a_proof_fails_if_the_latest_request_is_lost(demo_replay) -> None:
    view = demo_replay.view.revert()
    last = max(at for at, message in enumerate(view.transcript.messages) if message.is_request)
    forgetful = view.apply(
        view.replace(last, replace(view.transcript.messages[last], parts=(Text("[cleared]"),)))
    )
    claims = [
        proof.claim
        for proof in prove(
            demo_replay.history,
            json.dumps(demo_replay.history),
            forgetful,
            forgetful,
            demo_replay.requests,
        )
        if not proof.holds
    ]
    assert claims == ["the user's latest request is sent word for word"]


# --- what it prints -------------------------------------------------------------------------------


def test_the_chart_in_the_readme_is_the_output_of_the_demo(demo_replay, capsys) -> None:
    (picture,) = (code for _, code in code_blocks(ROOT / "README.md", "text"))
    terminal.print_lines(show(demo_replay))
    assert picture in capsys.readouterr().out.replace(" \n", "\n")


def test_the_command_prints_a_report_of_the_given_number_of_turns() -> None:
    printed = run_command("demo", "--turns", "3")
    assert printed.code == 0
    assert "Nothing was lost" in printed.out and "7 messages, 4 requests" in printed.out
