"""LiteLLM's callback at its hook before a routed call."""

import asyncio

import pytest

pytest.importorskip("litellm", reason="could not import 'litellm'")

from litellm.types.utils import CallTypes

from refold import Budget
from refold.adapters.litellm import RefoldLogger

MESSAGES = [
    {"role": role, "content": "words " * 400} for role in ("user", "assistant") * 60 + ("user",)
]


def show(callback, **arguments):
    """Return the arguments of a routed call after the hook, or None if it changes nothing."""
    kind = CallTypes.aresponses if "input" in arguments else CallTypes.acompletion
    return asyncio.run(callback.async_pre_call_deployment_hook(arguments, kind))


def test_a_fallback_has_a_view_of_its_own_though_the_first_model_was_sent_everything() -> None:
    callback, call = RefoldLogger(), {"messages": MESSAGES, "litellm_call_id": "one"}
    first = show(callback, model="none/of-a-known-window", **call)
    assert first["messages"] == MESSAGES
    fallback = show(callback, model="anthropic/claude-haiku-4-5", **call)
    assert len(fallback["messages"]) < 20


def test_the_hook_leaves_what_compact_returns_as_it_is() -> None:
    callback = RefoldLogger(budget=Budget(3_000, 1_500))
    shown = callback.compact({"model": "gpt-5.2", "input": MESSAGES})
    assert len(shown["input"]) < 20
    assert show(callback, **shown) is None
