"""The harness of `make adapters` detects the failures that it is for."""

import json
import re
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from adapters.__main__ import FRAMEWORKS
from adapters.environments import ROOT, requirements_path
from adapters.pages import PAGE, names_in
from adapters.session import (
    SCRIPT,
    TARGET,
    TRIGGER,
    TURNS,
    Model,
    check_part,
    read_part,
    texts_said,
)
from adapters.verdict import judge
from engines import __main__ as engines

from refold import Budget, Compactor, SQLiteStore
from refold.testing.scripted_provider import ScriptedProvider
from refold.tokens.count import exact

TOOL = {"type": "function", "function": {"name": "read_part", "parameters": {"type": "object"}}}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_has_a_module_and_pins(name):
    assert (ROOT / "adapters" / f"{name.replace('-', '_')}.py").exists()
    lines = requirements_path(FRAMEWORKS[name]).read_text("utf-8").splitlines()
    assert [line for line in lines if not re.fullmatch(r"#.*|[\w.-]+==[\w.+!-]+", line)] == []


def test_every_block_of_the_page_belongs_to_an_environment():
    assert names_in(PAGE) <= set(FRAMEWORKS)
    assert names_in(engines.PAGE) == {name.partition(", ")[0] for name in engines.ENGINES}


@pytest.mark.parametrize("name", sorted({place for place, _ in engines.ENGINES.values()}))
def test_the_requirements_of_an_engine_are_pinned(name):
    lines = requirements_path(name, "engines").read_text("utf-8").splitlines()
    assert [line for line in lines if not re.fullmatch(r"#.*|[\w.-]+==[\w.+!-]+", line)] == []


def test_no_text_of_the_script_is_repeated():
    assert len(set(texts_said())) == len(texts_said())


def talk(place: Path, show):
    """Hold the conversation in a short loop. *show* returns the messages to send."""
    model, messages, deltas = Model(exact("o200k_base")), [], []
    with ScriptedProvider(model) as provider:

        def ask():
            body = json.dumps({"model": "gpt-5.2", "messages": show(messages), "tools": [TOOL]})
            url = f"{provider.url}/v1/chat/completions"
            with urlopen(
                Request(url, body.encode(), {"content-type": "application/json"})
            ) as reply:
                return json.load(reply)

        for turn in TURNS:
            messages.append({"role": "user", "content": turn.text})
            while True:
                answer = ask()["choices"][0]["message"]
                messages.append(answer)
                if turn.streams:
                    deltas += re.findall(r"\S+\s*", answer["content"] or "")
                for call in answer.get("tool_calls") or ():
                    part = json.loads(call["function"]["arguments"])["part"]
                    text = f"{part} is broken"
                    if call["function"]["name"] == "read_part" or part != "part-14":
                        tool = {"read_part": read_part, "check_part": check_part}
                        text = tool[call["function"]["name"]](part)
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
                if not answer.get("tool_calls"):
                    break
    texts = [str(message["content"]) for message in messages]
    part = {"texts": texts, "deltas": deltas, "reports": 1, "errors": [], "turns": [0, 1, 2]}
    return judge(model, place, [part])


def make_compactor(place):
    store = SQLiteStore(place / "refold.db")
    return Compactor(budget=Budget(TRIGGER, TARGET), store=store, format="openai_chat")


def test_a_correct_run_is_judged_as_fine(tmp_path):
    compactor = make_compactor(tmp_path)
    verdict = talk(tmp_path, lambda messages: compactor(messages).payload)
    assert (verdict.answers, verdict.is_fine) == (len(SCRIPT), True)
    assert verdict.compactions == verdict.rewritten > 1


def test_a_run_that_loses_its_history_is_noticed(tmp_path):
    """It reports orphans, a prefix that changes every time, and edits that no store has."""
    compactor = make_compactor(tmp_path)
    compactor([{"role": "user", "content": "hello"}])
    verdict = talk(tmp_path, lambda messages: messages[-8:])
    assert verdict.invalid > 0
    assert verdict.rewritten > verdict.compactions == 0
    assert not verdict.is_fine
