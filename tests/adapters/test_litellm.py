"""LiteLLM's callback at its hook before a routed call."""

import asyncio
from importlib.util import find_spec

import pytest

from refold import Budget
from tests.support.sdks import LazyModule

if not find_spec("litellm"):
    pytest.skip("could not import 'litellm'", allow_module_level=True)

litellm = LazyModule("refold.adapters.litellm")

MESSAGES = [
    {"role": role, "content": "words " * 400} for role in ("user", "assistant") * 60 + ("user",)
]


def show(callback, **arguments):
    """Return the arguments of a routed call after the hook, or None if it changes nothing."""
    kind = litellm.CallTypes.aresponses if "input" in arguments else litellm.CallTypes.acompletion
    return asyncio.run(callback.async_pre_call_deployment_hook(arguments, kind))


def test_a_fallback_has_a_view_of_its_own_though_the_first_model_was_sent_everything() -> None:
    callback, call = litellm.RefoldLogger(), {"messages": MESSAGES, "litellm_call_id": "one"}
    first = show(callback, model="none/of-a-known-window", **call)
    assert first["messages"] == MESSAGES
    fallback = show(callback, model="anthropic/claude-haiku-4-5", **call)
    assert len(fallback["messages"]) < 20


def test_the_hook_leaves_what_compact_returns_as_it_is() -> None:
    callback = litellm.RefoldLogger(budget=Budget(3_000, 1_500))
    shown = callback.compact({"model": "gpt-5.2", "input": MESSAGES})
    assert len(shown["input"]) < 20
    assert show(callback, **shown) is None
