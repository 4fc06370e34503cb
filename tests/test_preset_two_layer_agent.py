"""The ReAct agent of docs/presets/two-layer.md, with a scripted chat model and real tools (seed system S1)."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

import refold
from pages import ROOT, blocks
from refold.presets.two_layer import ContextPolicy
from refold.testing import ScriptedModel

QUESTION = "Write twelve parts and read each."


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    """Everything that the page defines."""
    monkeypatch.chdir(tmp_path)
    namespace: dict = {"__name__": "docs"}
    for _, code in blocks(ROOT / "docs" / "presets" / "two-layer.md", "python"):
        exec(code, namespace)
    return namespace


def run(page: dict, policy: ContextPolicy | None, answers: list[str]) -> tuple[list, ScriptedModel]:
    requests, model = [], ScriptedModel(answers)
    agent = page["SkillsReactAgent"](page["scripted_chat"](requests), page["TOOLS"], "You are 豆豆.", policy, model)
    assert agent.run(QUESTION).startswith("All twelve")
    return requests, model


def test_the_agent_compacts_before_every_round(page):
    """S1-01 S1-32 S1-33: each request is valid, short enough, and still says what was asked."""
    requests, model = run(page, ContextPolicy(token_threshold=1_500), ["The assistant writes and reads parts."] * 9)
    assert len(requests) == 25
    assert model.asked
    for request in requests:
        assert not refold.check(request)
        assert request[0] == {"role": "system", "content": "You are 豆豆."}
        assert QUESTION in json.dumps(request)
        results = [entry["content"] for entry in request if entry["role"] == "tool"]
        assert all(len(result) <= 200 for result in results[:-4])


def test_without_a_policy_nothing_is_compacted(page):
    """S1-32"""
    requests, model = run(page, None, ["unused"])
    assert model.asked == []
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(requests))
    assert len(requests[-1]) == 50


def test_between_compactions_only_placeholders_change(page):
    """S1-02 S1-33: far below the threshold the first layer works alone."""
    requests, model = run(page, ContextPolicy(keep_recent_tools=2), [])
    assert model.asked == []
    assert len(requests[-1]) == 50
    assert any(entry["content"].startswith("[truncated: ") for entry in requests[-1] if entry["role"] == "tool")
