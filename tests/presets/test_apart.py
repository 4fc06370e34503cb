"""Conversations never mix, whatever they have in common (F2), in every preset and in the library
itself."""

import asyncio
import copy
import gc
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import refold
from refold import Budget, Compactor
from refold.core.strategy import Answer, Ask
from refold.presets.gemini import Settings, compactor
from refold.presets.in_place import FIRST_SWEEP, CompactedLists
from refold.presets.koog import LLM
from refold.presets.prune_compact import Limits, PruneAndCompact
from refold.presets.soft_hard import CompactionConfig, SoftHardCompactor
from refold.presets.two_layer import ContextCompactor, ContextPolicy
from refold.strategies import ClearToolResults, Summarize
from tests.support.examples import examples_at_night

LIMITS = Limits(
    prune_protect=60,
    prune_minimum=60,
    model_limit=1_500,
    reserved_output=300,
    summary_max_tokens=200,
)
POLICY = ContextPolicy(
    token_threshold=700, keep_recent_tools=1, max_tool_length=60, summary_max_tokens=200
)
SMALL = CompactionConfig(300, 500, 100, keep_recent_messages=2, summary_max_tokens=200)
FORMATS = ("gemini", "openai_chat", "anthropic", "openai_responses")


# --- conversations ---------------------------------------------------------------------------------


def asks(format: str, text: str) -> list[dict]:
    if format == "gemini":
        return [{"role": "user", "parts": [{"text": text}]}]
    return [{"role": "user", "content": text}]


def answers(format: str, text: str) -> list[dict]:
    if format == "gemini":
        return [{"role": "model", "parts": [{"text": text}]}]
    return [{"role": "assistant", "content": text}]


def reads(format: str, step: int, result: str) -> list[dict]:
    """Return a call and its result. The call is the same in every conversation, without an id in
    Gemini's format."""
    id, arguments = f"call_{step}", {"path": "settings.toml"}
    if format == "gemini":
        return [
            {"role": "model", "parts": [{"functionCall": {"name": "read", "args": arguments}}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "read", "response": {"output": result}}}],
            },
        ]
    if format == "anthropic":
        return [
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": id, "name": "read", "input": arguments}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": id, "content": result}],
            },
        ]
    if format == "openai_responses":
        return [
            {
                "type": "function_call",
                "call_id": id,
                "name": "read",
                "arguments": json.dumps(arguments),
            },
            {"type": "function_call_output", "call_id": id, "output": result},
        ]
    function = {"name": "read", "arguments": json.dumps(arguments)}
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": id, "content": result},
    ]


def secret(owner: int) -> str:
    return f"secret-of-{owner:03}"


def lines(owner: int, step: int) -> str:
    """Return a result whose middle only this conversation contains. The rest is the same in all."""
    return f"{'[database] host = localhost ' * 12}password = {secret(owner)} in step {step}. {'timeout = 30 ' * 12}"


class Repeats:
    """A model that repeats every secret in its input, so that a leaked one shows up."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def __call__(self, ask: Ask) -> Answer:
        text = ask.system + ask.prompt + "".join(message.text for message in ask.messages)
        self.shown.append(text)
        secrets = sorted({secret(owner) for owner in range(60) if secret(owner) in text})
        return Answer(f"The settings were read. Seen: {' '.join(secrets)}.")


def text_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)


def strangers(owner: int, value: Any) -> list[int]:
    """Return the names of other owners whose secrets are in *value*."""
    text = text_of(value)
    return [stranger for stranger in range(60) if stranger != owner and secret(stranger) in text]


# --- lists that are compacted in place --------------------------------------------------------------


class InPlace:
    """One compactor, and the messages that each list it compacts should still contain."""

    def __init__(self, kind: str, format: str) -> None:
        self.model = Repeats()
        self.format = format
        if kind == "two_layer":
            context = ContextCompactor(POLICY, self.model, format=format)
            self.step: Callable[[list], Any] = context.compact
            self.originals = context.originals
        else:
            flow = PruneAndCompact(self.model, LIMITS, format=format)
            self.step = flow.before_send if kind == "before_send" else flow.finish_step
            self.originals = flow.originals

    def turn(self, owner: int, messages: list, originals: list, new: list) -> None:
        messages += new
        originals += copy.deepcopy(new)
        asked = len(self.model.shown)
        self.step(messages)
        assert strangers(owner, messages) == []
        assert strangers(owner, self.model.shown[asked:]) == []
        assert self.originals(messages) == originals
        assert refold.check(messages, self.format) == () or refold.check(originals, self.format)


KINDS = ("two_layer", "finish_step", "before_send")


@pytest.mark.parametrize(
    ("format", "count"),
    [*((format, 2) for format in FORMATS), (FORMATS[0], examples_at_night(12, 50))],
)
@pytest.mark.parametrize("kind", KINDS)
def test_f2_users_with_the_same_task_never_see_each_others_results(kind, format, count):
    """X-6: two users (nightly: fifty, otherwise twelve) share a compactor, the task and the calls,
    and results are pruned. One user's list, originals and summary used to contain the other's
    hidden text, and beyond eight lists originals were lost."""
    in_place = InPlace(kind, format)
    talks = [
        (owner, asks(format, "Compare the settings."), asks(format, "Compare the settings."))
        for owner in range(count)
    ]
    for step in range(3):
        for owner, messages, originals in talks:
            in_place.turn(
                owner,
                messages,
                originals,
                reads(format, step, lines(owner, 0) if step == 0 else "ok " * 200),
            )
    for owner, messages, originals in talks:
        in_place.turn(
            owner,
            messages,
            originals,
            [*answers(format, "Both are alike. " * 400), *asks(format, "Go on.")],
        )
    assert any(len(messages) < len(originals) for _, messages, originals in talks)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from(["read", "same", "ask", "fork", "pop", "json", "mark"])
    ),
    min_size=4,
    max_size=24,
)


@pytest.mark.parametrize("kind", KINDS)
@given(format=st.sampled_from(FORMATS), steps=STEPS)
def test_f2_lists_compacted_in_place_never_mix_whatever_they_have_in_common(kind, format, steps):
    """Law (X-5, X-6): whichever lists one compactor serves in any order, each returns its own
    messages and none of another's. Forks and rewinds continue from their parent, and a copy of a
    list returns the copy's own messages."""
    in_place = InPlace(kind, format)
    talks: dict[int, tuple[list, list]] = {owner: ([], []) for owner in range(4)}
    for owner, action in steps:
        messages, originals = talks[owner]
        if not messages:
            in_place.turn(owner, messages, originals, asks(format, "Compare the settings."))
        elif action == "read":
            in_place.turn(
                owner, messages, originals, reads(format, len(originals), lines(owner, 0))
            )
        elif action == "same":
            in_place.turn(
                owner, messages, originals, reads(format, 0, "[database] host = localhost " * 30)
            )
        elif action == "ask":
            in_place.turn(
                owner,
                messages,
                originals,
                [*answers(format, "Done. " * 20), *asks(format, "Go on.")],
            )
        elif action == "fork":
            talks[owner] = (list(messages), originals)
        elif action == "pop" and in_place.originals([messages[-1]]) == [messages[-1]]:
            del messages[-1], originals[-1]
            in_place.turn(owner, messages, originals, [])
        elif action == "json":
            messages = json.loads(json.dumps(messages))
            talks[owner] = (messages, copy.deepcopy(messages))
            in_place.turn(owner, *talks[owner], [])
        elif (
            action == "mark" and format == "anthropic" and isinstance(messages[0]["content"], list)
        ):
            messages[0]["content"][0]["cache_control"] = {"type": "ephemeral"}
            assert strangers(owner, in_place.originals(messages)) == []
            talks[owner] = (messages, in_place.originals(messages))


def test_f2_a_json_copy_of_a_compacted_list_has_no_hidden_originals():
    """A list loaded from JSON, as after a restart: its earlier content is not guessed."""
    flow = PruneAndCompact(None, LIMITS, format="gemini")
    ours, theirs = (asks("gemini", "Compare.") for _ in range(2))
    for owner, messages in enumerate((ours, theirs)):
        messages += [*reads("gemini", 0, lines(owner, 0)), *reads("gemini", 1, "ok " * 200)]
        flow.before_send(messages)
    assert ours == theirs
    back = json.loads(json.dumps(ours))
    assert flow.originals(back) == back
    assert secret(0) in text_of(flow.originals(ours))
    assert secret(1) in text_of(flow.originals(theirs))


def test_f2_a_message_that_the_caller_rewrites_keeps_its_new_text():
    """No hidden original comes back in place of the caller's text."""
    flow = PruneAndCompact(None, LIMITS)
    messages = [*asks("", "Compare."), *reads("", 0, lines(0, 0)), *reads("", 1, "ok " * 200)]
    flow.before_send(messages)
    assert messages[2]["content"].startswith("[Old tool result")
    messages[2]["content"] = "nothing of note"
    assert flow.originals(messages)[2]["content"] == "nothing of note"
    flow.before_send(messages)
    assert messages[2]["content"] == "nothing of note"


def test_f2_adding_cache_control_to_a_message_loses_no_originals():
    """Anthropic clients move `cache_control` every turn."""
    flow = PruneAndCompact(None, LIMITS, format="anthropic")
    originals = [
        *asks("", "Compare."),
        *reads("anthropic", 0, lines(0, 0)),
        *reads("anthropic", 1, "ok " * 200),
    ]
    messages = copy.deepcopy(originals)
    flow.before_send(messages)
    messages[2]["content"][0]["cache_control"] = {"type": "ephemeral"}
    assert flow.originals(messages) == originals


def test_f2_a_list_that_is_cut_short_keeps_its_hidden_originals():
    """A list is cut short by retry or regenerate, and continues from its earlier state."""
    context = ContextCompactor(POLICY)
    originals = [
        entry
        for n in range(9)
        for entry in (*asks("", f"Question {n}. " * 20), *answers("", f"Answer {n}. " * 20))
    ]
    messages = copy.deepcopy(originals)
    context.compact(messages)
    assert len(messages) < len(originals)
    messages.pop()
    assert context.originals(messages) == originals[:-1]


def test_f2_a_message_appended_during_a_summary_call_is_kept():
    """Another task appends the message while the summary is being written."""
    originals = [
        entry
        for n in range(9)
        for entry in (*asks("", f"Question {n}. " * 20), *answers("", f"Answer {n}. " * 20))
    ]
    messages = copy.deepcopy(originals)
    late = asks("", "One more thing.")

    async def slow(_: Ask) -> Answer:
        messages.extend(late)
        return Answer("They talk.")

    context = ContextCompactor(POLICY)
    asyncio.run(context.acompact(messages, model=slow))
    assert messages[-1] == late[0]
    assert len(messages) < len(originals)
    assert context.originals(messages) == [*originals, *late]


def test_f2_lists_that_are_no_longer_referenced_are_forgotten():
    """A server's compactor serves many conversations in turn, and finished ones take no memory."""
    lists, held = CompactedLists(), []
    for n in range(20 * FIRST_SWEEP):
        originals = asks("", f"question {n}")
        messages = list(originals)
        lists.show(messages, originals, asks("", "[summary]"))
        if n % 100 == 0:
            held.append((messages, originals))
    gc.collect()
    assert len(lists) <= 4 * FIRST_SWEEP
    assert all(lists.full_history(messages) == originals for messages, originals in held)


def test_f2_full_history_returns_every_original_in_order():
    """Law of the bookkeeping: whatever replaces which messages, the list returns all originals in
    order."""

    @given(st.lists(st.sampled_from("abcd"), max_size=8), st.lists(st.integers(-1, 7), max_size=8))
    def law(words: list[str], shown: list[int]) -> None:
        entries = {word: {"role": "user", "content": word} for word in "abcd"}
        originals = [entries[word] for word in words]
        payload = [
            originals[at] if 0 <= at < len(originals) else {"role": "user", "content": "new"}
            for at in shown
        ]
        lists, messages = CompactedLists(), list(originals)
        lists.show(messages, originals, payload)
        assert messages == payload
        assert lists.full_history(messages) == (originals if payload else [])
        assert lists.full_history([*messages, *originals]) == [
            *(originals if payload else []),
            *originals,
        ]

    law()


# --- whole histories --------------------------------------------------------------------------------


def whole(kind: str, model: Repeats) -> Callable[[list], list]:
    """One instance that serves all conversations, each passed as a whole history."""
    if kind == "two_layer":
        context = ContextCompactor(POLICY, model)
        return lambda history: context.view(history).payload
    if kind == "gemini":
        snapshots = compactor(
            Settings(1_200, summary_tokens=300, min_saving=0), model, format="openai_chat"
        )
        return lambda history: snapshots(history).payload
    if kind == "soft_hard":
        desk = SoftHardCompactor(SMALL, model=model)
        return lambda history: (
            desk.compact(history, "agent", config={"use_llm": True}).compacted_messages
        )
    if kind == "koog":

        async def compress(history: list) -> list:
            llm = LLM(history, ask=model)
            async with llm.write_session() as session:
                await session.replace_history_with_tldr()
            return llm.history

        return lambda history: asyncio.run(compress(history))
    strategies = [ClearToolResults(keep=1), Summarize(keep=2, max_tokens=200)]
    plain = Compactor(strategies, Budget(500, 250), ask=model)
    if kind == "library":
        return lambda history: plain(history).payload
    return lambda history: plain.session(history).view.payload


@pytest.mark.parametrize("kind", ["two_layer", "gemini", "soft_hard", "koog", "library", "session"])
@pytest.mark.parametrize("again", [False, True], ids=["whole", "compacted lists sent again"])
@pytest.mark.parametrize("count", [2, examples_at_night(12, 20)])
def test_f2_whole_histories_never_mix(kind, again, count):
    """This holds for whole histories and for compacted lists that continue, with equal beginnings
    and equal calls."""
    model = Repeats()
    show = whole(kind, model)
    talks = {owner: asks("", "Compare the settings.") for owner in range(count)}
    for step in range(4):
        for owner, before in talks.items():
            history = [
                *before,
                *reads("", step, lines(owner, step) if step == 1 else "the same for all " * 40),
            ]
            asked = len(model.shown)
            shown = show(list(history))
            assert strangers(owner, shown) == []
            assert strangers(owner, model.shown[asked:]) == []
            talks[owner] = list(shown) if again else history


def long_lists() -> dict[str, list[Any]]:
    """One long task in each format, as plain lists without a format name."""
    texts = [f"line {n} " * 800 for n in range(40)]
    ask = {"role": "user", "content": "do the task"}
    chat, claude, responses = [ask], [ask], [ask]
    gemini: list[Any] = [{"role": "user", "parts": [{"text": "do the task"}]}]
    for n, text in enumerate(texts):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        chat.append({"role": "assistant", "content": None, "tool_calls": [call]})
        chat.append({"role": "tool", "tool_call_id": f"c{n}", "content": text})
        use, done = (
            {"type": "tool_use", "id": f"c{n}", "name": "read", "input": {}},
            {"type": "tool_result"},
        )
        claude.append({"role": "assistant", "content": [use]})
        claude.append(
            {"role": "user", "content": [{**done, "tool_use_id": f"c{n}", "content": text}]}
        )
        responses.append(
            {"type": "function_call", "call_id": f"c{n}", "name": "read", "arguments": "{}"}
        )
        responses.append({"type": "function_call_output", "call_id": f"c{n}", "output": text})
        response = {"name": "read", "response": {"output": text}}
        gemini.append({"role": "model", "parts": [{"functionCall": {"name": "read", "args": {}}}]})
        gemini.append({"role": "user", "parts": [{"functionResponse": response}]})
    return {
        "openai_chat": chat,
        "anthropic": claude,
        "openai_responses": responses,
        "gemini": gemini,
    }


@pytest.mark.parametrize("format", list(long_lists()))
@pytest.mark.parametrize("kind", [*KINDS, "soft_hard"])
def test_a_list_of_any_format_is_compacted_without_naming_it(kind: str, format: str) -> None:
    """Lists of Gemini and of the Responses API used to be taken for chats, and nothing in them was
    counted or compacted."""
    messages = long_lists()[format]
    before = len(json.dumps(messages))
    if kind == "two_layer":
        ContextCompactor(ContextPolicy(token_threshold=8_000)).compact(messages)
    elif kind == "soft_hard":
        result = SoftHardCompactor().compact(messages)
        assert result.tokens_before_compaction > 50_000
        messages = result.compacted_messages
    else:
        getattr(PruneAndCompact(limits=Limits(model_limit=40_000, reserved_output=8_000)), kind)(
            messages
        )
    assert len(json.dumps(messages)) < before / 2
    assert refold.check(messages, format) == ()


def test_a_list_that_is_not_in_the_given_format_is_refused() -> None:
    with pytest.raises(refold.FormatError, match="no entries of openai_chat"):
        ContextCompactor(ContextPolicy(), format="openai_chat").compact(long_lists()["gemini"])
