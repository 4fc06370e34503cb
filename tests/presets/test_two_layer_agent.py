"""The ReAct agent of docs/presets/two-layer.md: scripted chat model, real tools (seed system S1)."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

import refold
from refold.models import OpenAIModel
from refold.presets.two_layer import ContextCompactor, ContextPolicy
from refold.testing import ScriptedModel
from refold.testing.scripted_provider import Call, Reply, ScriptedProvider
from tests.support.pages import ROOT, code_blocks
from tests.support.sdks import LazyModule

openai = LazyModule("openai")

QUESTION = "Write twelve parts and read each."


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    """Return everything that the page defines."""
    monkeypatch.chdir(tmp_path)
    namespace: dict = {"__name__": "docs"}
    for _, code in code_blocks(ROOT / "docs" / "presets" / "two-layer.md", "python"):
        exec(code, namespace)
    return namespace


def run(page: dict, policy: ContextPolicy | None, answers: list[str]) -> tuple[list, ScriptedModel]:
    requests, model = [], ScriptedModel(answers)
    agent = page["SkillsReactAgent"](
        page["scripted_chat"](requests), page["TOOLS"], "You are 豆豆.", policy, model
    )
    assert agent.run(QUESTION).startswith("All twelve")
    return requests, model


def test_the_agent_compacts_before_every_round(page):
    """S1-01 S1-32 S1-33: each request is valid, short enough, and still contains the question."""
    requests, model = run(
        page, ContextPolicy(token_threshold=1_500), ["The assistant writes and reads parts."] * 9
    )
    assert len(requests) == 25
    assert model.asked
    for request in requests:
        assert not refold.check(request)
        assert request[0] == {"role": "system", "content": "You are 豆豆."}
        assert QUESTION in json.dumps(request)
        results = [entry["content"] for entry in request if entry["role"] == "tool"]
        assert all(len(result) <= 200 for result in results[:-4])


def test_f25_a_model_that_is_not_a_function_is_refused():
    """A LangChain chat model used to be called as a function, raised, and rules wrote the
    summaries."""
    with pytest.raises(TypeError, match=r"adapters\.langchain\.ChatModel"):
        ContextCompactor(ContextPolicy.defaults(), object())


def test_f25_one_chat_model_serves_the_agent_and_its_compactor(page):
    """S1-40: the seed passes one `chatModel` to both. Calls with and without tools of this one
    client differ only in their requests."""
    done = iter(range(99))

    def reply(received):
        if "tools" not in received.json:
            return "The assistant writes and reads parts."
        n = next(done)
        if n >= 24:
            return "All twelve parts are written and read."
        path = {"path": f"part{n // 2}.txt"}
        return Reply(
            calls=(
                Call("read", path) if n % 2 else Call("write", path | {"content": "part. " * 90}),
            )
        )

    with (
        ScriptedProvider(reply, keep_alive=False) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="k") as client,
    ):

        def chat(messages):
            tools = [{"type": "function", "function": {"name": name}} for name in page["TOOLS"]]
            answer = (
                client.chat.completions.create(model="m", messages=messages, tools=tools)
                .choices[0]
                .message
            )
            return answer.model_dump(exclude_none=True)

        policy, model = ContextPolicy(token_threshold=1_500), OpenAIModel(client, model="m")
        agent = page["SkillsReactAgent"](chat, page["TOOLS"], "You are 豆豆.", policy, model)
        assert agent.run(QUESTION).startswith("All twelve")
        asked = [received.json for received in server.received if "tools" not in received.json]
        rounds = [
            received.json["messages"] for received in server.received if "tools" in received.json
        ]
    assert {received.json["model"] for received in server.received} == {"m"}
    assert asked
    assert len(rounds) == 25
    assert all(not refold.check(messages) and QUESTION in str(messages) for messages in rounds)
    assert any("The assistant writes and reads parts." in str(messages) for messages in rounds)
    assert all(message["role"] != "tool" for body in asked for message in body["messages"])


def test_without_a_policy_nothing_is_compacted(page):
    """S1-32"""
    requests, model = run(page, None, ["unused"])
    assert model.asked == []
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(requests))
    assert len(requests[-1]) == 50


def test_below_the_threshold_old_results_only_become_placeholders(page):
    """S1-02 S1-33: far below the threshold only the first layer works."""
    requests, model = run(page, ContextPolicy(keep_recent_tools=2), [])
    assert model.asked == []
    assert len(requests[-1]) == 50
    assert any(
        entry["content"].startswith("[truncated: ")
        for entry in requests[-1]
        if entry["role"] == "tool"
    )
