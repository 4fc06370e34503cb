"""What every hook before a call does: compact, or let the request pass as it came; never stop an agent."""

import asyncio
import importlib
import logging
from types import SimpleNamespace

import pytest

from refold import Budget, Compactor, FormatError, MemoryStore, StoreError, check
from refold.adapters import langchain
from refold.adapters.hook import explain_missing, fail_open, require_format
from refold.strategies import Summarize
from tests.support.sdks import LazyModule


def history(rounds=20):
    messages = [{"role": "user", "content": "Mend the build."}]
    for n in range(rounds):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "make", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = f"line {n} of output\n" * 60
        messages.append({"role": "tool", "tool_call_id": f"c{n}", "content": text})
    return messages


class BrokenStore(MemoryStore):
    """A store whose disk is full."""

    def load(self, tips):
        raise StoreError("the disk is full")


# --- hooks ----------------------------------------------------------------------------------------


def show(compactor, messages):
    with fail_open():
        return compactor(messages).payload
    return messages


async def ashow(compactor, messages):
    with fail_open():
        return (await compactor.acompact(messages)).payload
    return messages


def test_a_failing_store_does_not_stop_the_agent(caplog):
    compactor = Compactor(budget=Budget(3_000, 1_500), store=BrokenStore())
    messages = history()
    assert show(compactor, messages) is messages
    assert asyncio.run(ashow(compactor, messages)) is messages
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    assert "the disk is full" in caplog.text


def test_a_history_in_an_unknown_format_does_not_stop_the_agent(caplog):
    assert show(Compactor(format="anthropic"), [3.5]) == [3.5]
    assert FormatError.__name__ in caplog.text


class OfAnotherRelease:
    """A message of a framework that has renamed its fields."""

    @property
    def content(self):
        raise AttributeError("'Message' object has no attribute 'parts'")


def test_messages_of_an_unknown_framework_release_do_not_stop_the_agent(caplog):
    """One line says so, and the agent goes on."""
    codec = SimpleNamespace(**{**vars(langchain), "decode": lambda item, prior: item.content})
    compactor = Compactor(format=codec)
    messages = [OfAnotherRelease()]
    assert show(compactor, messages) is messages
    assert asyncio.run(ashow(compactor, messages)) is messages
    for record in caplog.records:
        line = record.getMessage()
        assert "is sent as it came: AttributeError: 'Message' object has no" in line
        assert "\n" not in line and record.exc_info is None
    assert len(caplog.records) == 2


def test_a_compactor_for_another_format_is_refused():
    assert require_format(compactor := Compactor(format=langchain), langchain) is compactor
    with pytest.raises(ValueError, match=r"a Compactor with format=refold\.adapters\.langchain"):
        require_format(Compactor(), langchain)
    with pytest.raises(ValueError, match='a Compactor with format="gemini"'):
        require_format(Compactor(format="anthropic"), "gemini")
    read_from_a_file = b"gemini".decode()
    assert require_format(Compactor(format=read_from_a_file), "gemini")


def test_a_framework_that_is_missing_or_of_another_release_is_named_in_one_line():
    with pytest.raises(ImportError) as missing, explain_missing("no-such-package", "google-adk"):
        importlib.import_module("no_such_package")
    with pytest.raises(ImportError) as outdated, explain_missing("pytest", "x"):
        importlib.import_module("pytest.no_such_module")
    assert str(missing.value).startswith(
        "this adapter needs no-such-package: install Refold with its extra"
    )
    assert str(outdated.value).startswith(
        f"pytest {pytest.__version__} has another interface than this adapter"
    )
    assert "\n" not in f"{missing.value}{outdated.value}"


# --- LiteLLM --------------------------------------------------------------------------------------


litellm = LazyModule("refold.adapters.litellm")


def run_hook(refold, call_type="acompletion", **kwargs):
    kind = litellm.CallTypes(call_type) if call_type else None
    return asyncio.run(refold.async_pre_call_deployment_hook(kwargs, kind))


def make_logger():
    return litellm.RefoldLogger(strategies=[Summarize(keep=6)], budget=Budget(3_000, 1_500))


def test_the_request_is_compacted_and_the_callers_messages_are_left_alone():
    messages, refold = history(), make_logger()
    kwargs = run_hook(refold, model="gpt-5.2", messages=messages, temperature=0)
    assert len(kwargs["messages"]) < 10
    assert kwargs["messages"][-1] is messages[-1]
    assert (kwargs["temperature"], len(messages)) == (0, 41)
    assert len(refold.compact({"model": "gpt-5.2", "messages": messages})["messages"]) < 10


def test_the_result_of_compact_is_not_compacted_again_by_the_hook():
    """LiteLLM's sync `responses` calls the hook for async code: usage was reported to another conversation."""
    refold = make_logger()
    items = [{"role": "user", "content": message["content"] or "x"} for message in history()]
    kwargs = refold.compact({"model": "gpt-5.2", "input": items})
    assert len(kwargs["input"]) < 20
    assert run_hook(refold, "responses", **kwargs) is None
    again = run_hook(refold, "responses", **{**kwargs, "input": items})  # a fallback's call
    assert again["input"] == kwargs["input"]


def as_messages_api(messages):
    blocks = {"assistant": "tool_use", "tool": "tool_result"}
    for message in messages:
        kind = blocks.get(message["role"])
        if kind == "tool_use":
            content = [{"type": kind, "id": message["tool_calls"][0]["id"], "name": "make"}]
            content[0]["input"] = {}
        elif kind:
            content = [{"type": kind, "tool_use_id": message["tool_call_id"]}]
            content[0]["content"] = message["content"]
        else:
            content = message["content"]
        yield {"role": "assistant" if kind == "tool_use" else "user", "content": content}


def test_messages_and_responses_api_calls_are_compacted_in_their_own_format():
    entries = list(as_messages_api(history()))
    kwargs = run_hook(
        make_logger(), "anthropic_messages", model="claude-opus-5-5", messages=entries
    )
    assert len(kwargs["messages"]) < 10
    assert check(kwargs["messages"], "anthropic") == ()
    items = [{"role": "user", "content": "Mend the build."}]
    for n in range(20):
        call = {"call_id": f"c{n}", "name": "make", "arguments": "{}"}
        items.append({"type": "function_call", **call})
        text = f"line {n} of output\n" * 60
        items.append({"type": "function_call_output", "call_id": f"c{n}", "output": text})
    kwargs = run_hook(make_logger(), "aresponses", model="gpt-5.2", input=items)
    assert len(kwargs["input"]) < 10
    assert check(kwargs["input"], "openai_responses") == ()


@pytest.mark.parametrize(
    ("call_type", "kwargs"),
    [
        ("aembedding", {"input": ["a", "b"]}),
        ("aresponses", {"input": "hello"}),
        (None, {"messages": []}),
    ],
)
def test_calls_without_a_conversation_are_not_changed(call_type, kwargs):
    assert run_hook(make_logger(), call_type, model="m", **kwargs) is None


def test_usage_reaches_the_compactor_of_the_calls_format_once():
    refold = make_logger()
    run_hook(refold, model="gpt-5.2", messages=history(), litellm_call_id="1")
    answer = {"usage": {"prompt_tokens": 1_700, "completion_tokens": 5}}
    for _ in range(2):
        refold.log_success_event({"litellm_call_id": "1"}, answer, None, None)
    (report,) = refold.compactors["openai_chat"].settings.reports.newest
    assert report.usage.input == 1_700
    assert refold.compactors["anthropic"].settings.reports.newest == ()


def test_usage_of_another_release_does_not_stop_the_call(caplog):
    refold = make_logger()
    run_hook(refold, model="gpt-5.2", messages=history(), litellm_call_id="1")
    refold.log_success_event({"litellm_call_id": "1"}, {"usage": object()}, None, None)
    assert "the usage of a call is not counted: AttributeError" in caplog.text


def test_calls_whose_answer_never_comes_are_forgotten():
    refold = make_logger()
    for n in range(litellm.MAX_PENDING + 5):
        refold.compact({"model": "m", "messages": history(0), "litellm_call_id": str(n)})
    assert next(iter(refold._sent)) == "5"
