"""The front door: one call, kept edits, known conversations."""

import asyncio
import copy
import hashlib
import json
import pickle
from collections import OrderedDict
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

import refold
from refold.budget.triggers import Fraction, Tokens
from refold.codecs.detect import CODECS
from refold.compactor.conversations import MAX_CONVERSATIONS, put_lru
from refold.compactor.late_edits import drop_invalidated_thinking
from refold.memory import MemoryFlush
from refold.messages import Message, Text, ToolCall, user
from refold.strategies import ClearToolResults, Summarize
from refold.testing import ScriptedModel
from tests.support.compaction import STRATEGIES, conversation
from tests.support.examples import thorough


def compactor(store=None, trigger=3_000, target=1_500) -> refold.Compactor:
    return refold.Compactor(STRATEGIES, refold.Budget(trigger, target), store)


def test_the_history_is_not_changed_and_unedited_messages_are_the_same_objects():
    history = conversation(60)
    before = copy.deepcopy(history)
    view = compactor()(history)
    assert history == before
    assert view.edits
    assert view.payload[-1] is history[-1]
    assert view.revert().payload == history
    assert all(a is b for a, b in zip(view.revert().payload, history, strict=True))


def test_a_payload_is_returned_in_the_type_it_was_given():
    history = conversation(60)
    body = {
        "model": "claude-opus-5-5",
        "max_tokens": 10,
        "messages": history,
        "x-unknown": [1.0, 10**30],
    }
    view = compactor()(body)
    assert {**view.payload, "messages": history} == body
    data = json.dumps(body, indent=1).encode()
    as_bytes = compactor()(data)
    assert isinstance(as_bytes.payload, bytes)
    assert json.loads(as_bytes.payload) == view.payload
    assert as_bytes.revert().payload == data
    assert isinstance(compactor()(data.decode()).payload, str)


def test_under_the_trigger_nothing_is_edited():
    history = conversation(4)
    view = compactor(trigger=10**6)(history)
    assert (view.edits, view.attempts) == ((), ())
    assert view.payload == history


def test_the_payload_prefix_is_stable_between_compactions():
    """What was shown once is shown again, until the trigger is reached: the prompt cache holds."""
    compact, history, breaks, before = compactor(), conversation(80), 0, []
    for stop in range(1, len(history) + 1):
        view = compact(history[:stop])
        breaks += view.payload[: len(before)] != before
        before = view.payload
        assert view.tokens < 3_000
        assert refold.check(view.payload) == ()
    assert 1 <= breaks <= 20


def test_a_session_a_resent_list_and_a_new_process_give_the_same_payload():
    history = conversation(50)
    store = refold.MemoryStore()
    compact = compactor(store)
    talk = compactor(refold.MemoryStore()).session()
    for stop in range(1, len(history) + 1):
        resent, grown = compact(history[:stop]), talk.append(history[stop - 1])
        assert resent.payload == grown.payload
    assert compactor(store)(history).payload == resent.payload  # nothing but the store in common
    assert compactor(store)(json.loads(json.dumps(history))).payload == resent.payload


def test_acompact_gives_the_same_payload_as_a_sync_call():
    history = conversation(40)
    assert asyncio.run(compactor().acompact(history)).payload == compactor()(history).payload


def test_a_fork_uses_only_the_edits_made_before_it():
    store, history = refold.MemoryStore(), conversation(60)
    clearing = refold.Compactor([ClearToolResults(keep=2)], refold.Budget(3_000, 0), store)
    edits = clearing(history).edits
    fork = [*history[:41], {"role": "assistant", "content": "Done."}]
    shared = refold.Compactor([], refold.Budget(10**6, 10**6), store)(fork).edits
    before_fork = [edit for edit in edits if edit.stop <= 41]
    assert list(shared) == before_fork
    assert before_fork and len(before_fork) < len(edits)


@given(st.integers(5, 80), st.integers(200, 3_000))
def test_only_edits_that_are_visible_in_the_view_are_stored(size, trigger):
    """Whatever rounds it took: an edit that another one of the same call hides is not stored."""
    store = refold.MemoryStore()
    view = compactor(store, trigger, trigger // 2)(conversation(size))
    stored = {edit.id for edit in store.load(view.transcript.tips)}
    assert stored <= {placed.edit.id for placed in view.visible_edits}
    assert stored == {
        edit.id
        for edit in view.edits
        if not edit.by.startswith(("DropDuplicates(", "ClipResults("))
    }


def test_conformance_54_a_rewind_before_a_summary_shows_the_original_messages():
    """Nothing that only the summary hid, and no model saw, shows after it."""
    store, history = refold.MemoryStore(), conversation(60)
    edits = compactor(store)(history).edits
    summary = next(edit for edit in edits if "Summarize" in edit.by)
    fork = history[: summary.stop - 2]
    view = refold.Compactor([], refold.Budget(10**6, 10**6), store)(fork)
    assert view.payload == fork
    assert compactor(store)(history).edits == edits


def test_a_compactor_with_another_salt_finds_no_edits():
    store, history = refold.MemoryStore(), conversation(60)
    compactor(store)(history)
    stranger = refold.Compactor(STRATEGIES, refold.Budget(10**6, 10**6), store, salt="tenant 2")
    assert [edit for edit in stranger(history).edits if "ClearToolResults" in edit.by] == []


@pytest.mark.parametrize(
    "changes",
    [
        {"salt": "tenant 2"},
        {"count": lambda _: 1},
        {"model": "gpt-5"},
        {"format": "openai_chat"},
        {"store": refold.MemoryStore()},
    ],
)
def test_a_compactor_with_other_settings_reads_a_known_history_by_them(changes):
    compact, history = compactor(), conversation(60)
    compact(history)
    settings = {"store": compact.settings.store, **changes}
    fresh = refold.Compactor(STRATEGIES, refold.Budget(3_000, 1_500), **settings).show(history)
    view = compact.with_settings(**changes).show(history)
    assert view == fresh
    assert (view.tokens, view.profile.model) == (fresh.tokens, fresh.profile.model)


def test_a_compactor_with_another_store_writes_its_ledger_there():
    compact, store, ledger = compactor(), refold.MemoryStore(), refold.MemoryStore()
    compact.with_settings(store=store)(conversation(60))
    assert store.ledger() and not compact.settings.store.ledger()
    apart = compact.with_settings(ledger=ledger).with_settings(store=refold.MemoryStore())
    assert apart.settings.ledger is ledger


def test_a_list_that_was_changed_in_place_is_read_again():
    compact, history = compactor(trigger=10**6), conversation(5)
    compact(history)
    history[0]["content"] = "Something else."
    assert compact(history).messages[0].text == "Something else."


def test_moving_cache_control_keeps_the_edits_of_a_history():
    store, history = refold.MemoryStore(), conversation(60)
    view = compactor(store)(history)
    marked = json.loads(json.dumps(history))
    marked[-1]["content"][0]["cache_control"] = {"type": "ephemeral"}
    again = compactor(store)(marked)
    assert [e.id for e in again.edits] == [e.id for e in view.edits]
    assert again.payload[-1]["content"][0]["cache_control"] == {"type": "ephemeral"}


def test_a_changed_system_prompt_is_counted_anew_and_keeps_the_edits():
    store, history = refold.MemoryStore(), conversation(60)
    compact = compactor(store)
    short = compact({"system": "short", "messages": history})
    long = compact({"system": "long " * 500, "messages": history})
    assert long.profile.fixed_tokens > short.profile.fixed_tokens + 400
    assert {e.id for e in short.edits} <= {e.id for e in long.edits}


def test_edits_and_reverts_of_another_compactor_are_seen():
    store, history = refold.MemoryStore(), conversation(60)
    here = compactor(store, trigger=10**6, target=10**6)
    assert not any("Clear" in edit.by for edit in here(history).edits)
    there = compactor(store)(history)
    assert here(history).payload == there.payload
    store.remove([edit.id for edit in there.edits])
    assert here(history).payload == history


def test_a_revert_of_stored_or_local_edits_is_permanent():
    history = conversation(6, size=4_000)
    compact = compactor(trigger=10**6, target=10**6)
    clipped = compact(history)
    first = clipped.edits[0]
    assert "ClipResults" in first.by
    after = compact.revert(history, first.id[:8])
    assert after.messages[first.start] == after.transcript.messages[first.start]
    assert compact(history).payload == after.payload
    assert len(compact(history).payload) == len(history)
    assert compact.revert(history).payload == history
    with pytest.raises(refold.EditError, match="no edit"):
        compact.revert(history, "ffff")


def sign(payload: list[dict]) -> str:
    """A provider's signature over what it was shown, thinking aside."""
    contents = (m["content"] for m in payload)
    bare = [
        c if isinstance(c, str) else [b for b in c if b["type"] != "thinking"] for c in contents
    ]
    return hashlib.sha256(json.dumps(bare).encode()).hexdigest()


def answer_thinking(payload: list[dict], n: int, path: str) -> dict:
    """The answer to *payload*: signed thinking and a call."""
    call = {"type": "tool_use", "id": f"t{n}", "name": "read", "input": {"path": path}}
    return {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "hm", "signature": sign(payload)}, call],
    }


def unbound(payload: list[dict]) -> list[int]:
    """Positions of thinking that was signed over something else than what is sent before it."""
    return [
        at
        for at, message in enumerate(payload)
        if isinstance(message["content"], list)
        and any(
            b["type"] == "thinking" and b["signature"] != sign(payload[:at])
            for b in message["content"]
        )
    ]


BOUND = "claude-opus-5-5"
"""Binds its thinking (AN-7)."""


@pytest.mark.parametrize("everything", [True, False])
def test_conformance_56_a_revert_drops_thinking_signed_while_the_edit_was_shown(everything):
    """AN-7 AN-11: after a revert no request holds thinking that was signed while the edit showed."""
    history = [{"role": "user", "content": [{"type": "text", "text": "Fix the parser."}]}]
    compact = compactor(trigger=2_500, target=1_000)
    for n in range(40):
        view = compact({"model": BOUND, "messages": history})
        assert unbound(view.payload["messages"]) == []
        if view.edits and str(view.payload).count("signature") > 1:
            break
        history.append(answer_thinking(view.payload["messages"], n, f"src/m{n}.py"))
        history.append(
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": f"t{n}", "content": f"word {n} " * 60}
                ],
            }
        )
    assert str(view.payload).count("signature") > 1
    edits = [edit for edit in view.edits if edit.by != "settle"]
    body = {"model": BOUND, "messages": history}
    after = compact.revert(body, *([] if everything else [edits[len(edits) // 2].id]))
    assert unbound(after.payload["messages"]) == []
    assert unbound(compact(body).payload["messages"]) == []
    assert after.revert().payload == body


def test_a_revert_shows_the_call_again_without_its_invalidated_thinking():
    """An edit that hides thinking repeats what an edit below it shows; both go, or the revert would show nothing."""
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a" * 3_000}]},
        answer_thinking([], 0, "src/" + "long/" * 900),
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t0", "content": "ok"}],
        },
    ]
    history = {"model": BOUND, "messages": messages}
    compact = compactor(trigger=10**6, target=10**6)
    view = compact(history)
    call = view.transcript.messages[1]
    cleared = Message("assistant", (call.parts[0], ToolCall("t0", "read", "{}")))
    first, second = view.replace(1, cleared, by="me"), view.replace(0, user("short"), by="me")
    late = view.apply(first, second)
    compact.settings.store.save(drop_invalidated_thinking(late, view.apply(first)).edits)
    assert "thinking" not in str(compact(history).payload)
    after = compact.revert(history, first.id)
    assert after.messages[1] == Message("assistant", call.parts[1:])


def test_b7_edits_that_drop_thinking_are_not_recorded_as_reverted():
    """What a revert puts back at once was not taken back: no row and no event say so."""
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a" * 3_000}]},
        answer_thinking([], 0, "src/parser.py"),
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t0", "content": "ok"}],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
        {"role": "user", "content": "Thanks."},
    ]
    body, events = {"model": BOUND, "messages": messages}, []
    store = refold.MemoryStore()
    compact = refold.Compactor([], refold.Budget(10**6, 10**6), store, on_event=events.append)
    store.save([compact(body).replace(0, user("short"), by="me")])
    (settled,) = compact.revert(body).edits
    before = store.ledger()
    assert settled.by == "settle" and settled.id not in {row.edit for row in before}
    assert compact.revert(body).edits == compact.revert(body, settled.id).edits == (settled,)
    assert store.ledger() == before and len(events) == 1


def test_attempts_report_no_headroom_if_the_target_is_out_of_reach():
    view = refold.Compactor([ClearToolResults(keep=3)], refold.Budget(100, 100))(conversation(2))
    assert view.tokens > 100
    assert [attempt.outcome for attempt in view.attempts] == ["noop", "no_headroom"]


def test_attempts_tell_how_each_strategy_ended():
    view = compactor(target=200)(conversation(60))
    assert [a.outcome for a in view.attempts] == ["applied", "applied"]
    assert (
        view.attempts[0].tokens_before
        > view.attempts[0].tokens_after
        >= view.attempts[1].tokens_before
        > view.attempts[1].tokens_after
    )


def test_revert_accepts_an_edit_object_and_raises_edit_error_for_none():
    history, compact = conversation(60), refold.Compactor(STRATEGIES, refold.Budget(3_000, 1_500))
    edit = compact(history).edits[-1]
    with pytest.raises(refold.EditError, match=r"name an edit by its id, .* not by None"):
        compact.revert(history, None)
    assert edit not in compact.revert(history, edit).edits


def test_a_failing_save_raises_and_leaves_the_history_unchanged():
    class Full(refold.MemoryStore):
        def save(self, edits):
            raise refold.StoreError("disk full")

    history = conversation(60)
    before = copy.deepcopy(history)
    with pytest.raises(refold.StoreError, match="disk full"):
        compactor(Full())(history)
    assert history == before


def test_a_session_does_not_grow_if_append_raises():
    talk = compactor().session(conversation(2))
    with pytest.raises(refold.FormatError):
        talk.append(42)
    assert talk.append({"role": "assistant", "content": "ok"}).payload[-1] == {
        "role": "assistant",
        "content": "ok",
    }


def test_a_session_accepts_messages_or_a_body_but_not_json_text():
    body = {"model": "m", "system": "Be brief.", "messages": conversation(2)}
    talk = compactor().session(body)
    answer = {"role": "assistant", "content": "ok"}
    grown = {**body, "messages": [*body["messages"], answer]}
    assert talk.append(answer).payload == grown
    assert talk.view.tokens == compactor()(grown).tokens
    with pytest.raises(refold.FormatError, match="list of messages"):
        compactor().session('{"messages": []}')


def test_at_most_max_conversations_are_remembered():
    compact = compactor()
    for number in range(MAX_CONVERSATIONS + 3):
        compact([{"role": "user", "content": f"{number}"}])
    assert len(compact._cache._states) == MAX_CONVERSATIONS


def test_reported_usage_sets_the_token_count_and_the_ratio_of_its_model():
    compact, history = compactor(trigger=10**6), conversation(40)
    body = {"model": "m", "messages": history}
    first = compact(body)
    compact.report(
        first,
        {"input_tokens": 10, "cache_read_input_tokens": 2 * first.tokens - 10, "output_tokens": 5},
    )
    grown = {**body, "messages": [*history, {"role": "assistant", "content": "Done. " * 40}]}
    added = compact(grown).base.tokens(len(history), len(history) + 1)
    assert compact(grown).tokens == 2 * first.tokens + 2 * added
    unrelated = compact({"model": "m", "messages": conversation(20)})
    assert unrelated.tokens == 2 * (unrelated.profile.fixed_tokens + unrelated.estimate)
    unknown = compact({"model": "n", "messages": conversation(20)})
    assert unknown.tokens == unknown.profile.fixed_tokens + unknown.estimate


def test_conformance_48_usage_from_before_a_compaction_is_stale():
    history = conversation(60)
    small = compactor(trigger=10**6)(history)
    compact = compactor(trigger=small.tokens + 2_000)
    before = compact(history)
    assert before.edits == ()
    compact.report(before, {"input_tokens": before.tokens + 1_900, "output_tokens": 5})
    grown = [*history, {"role": "assistant", "content": "Done. " * 100}]
    after = compact(grown)
    assert after.edits  # the report brought it over the trigger
    assert after.tokens < before.tokens  # and says nothing of the request that was compacted then


def test_invalid_or_implausible_usage_is_ignored():
    compact, history = compactor(trigger=10**6), conversation(10)
    view = compact(history)
    for nothing in (
        None,
        {},
        {"input_tokens": 0},
        {"input_tokens": 900 * view.tokens},
        "many",
        {"prompt_tokens": None},
    ):
        compact.report(view, nothing)
    assert compact(history).tokens == view.tokens


def test_budgets_that_contradict_themselves_are_refused():
    for wrong in (
        {"trigger": 1, "target": 2},
        {"trigger": 5, "target": -1},
        {"trigger": 5, "target": 1, "soft": 6},
    ):
        with pytest.raises(ValueError, match="must"):
            refold.Budget(**wrong)
    with pytest.raises(ValueError, match="nothing"):
        refold.Budget.of_window(10_000, reserve=10_000)
    assert refold.Budget.of_window(200_000) == refold.Budget(180_000, 90_000)


def test_the_soft_level_is_reported_without_a_compaction():
    budget = refold.Budget(trigger=10**6, target=10, soft=10)
    view = refold.Compactor(STRATEGIES, budget)(conversation(5))
    assert budget.check(view) == "soft"
    assert view.attempts == ()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "role",
                    "content",
                    "type",
                    "parts",
                    "text",
                    "id",
                    "tool_calls",
                    "input",
                    "messages",
                    "contents",
                ]
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@thorough
@given(JSON)
def test_any_json_is_compacted_without_loss_or_raises_format_error(payload):
    """Bad input: a clear error or an unchanged result, never a crash, never a lost message."""
    before = copy.deepcopy(payload)
    try:
        view = refold.compact(payload, to=10_000)
    except refold.FormatError:
        pass
    else:
        assert view.revert().payload == before
    assert payload == before


def test_a_growing_request_in_bytes_with_a_system_message_is_recognised():
    """What is remembered of it has no text and no entries any more, and still is a request of its model."""
    compact, talk = (
        refold.Compactor(STRATEGIES, refold.Budget(10**6, 10**6)),
        [{"role": "system", "content": "Be brief."}],
    )
    for n in range(4):
        talk += [{"role": "user", "content": f"And {n}?"}, {"role": "assistant", "content": "Yes."}]
        body = json.dumps({"model": "gpt-6-luna", "messages": talk}).encode()
        view = compact(body)
        assert view.payload == body and len(view.transcript) == 2 * n + 2
        compact.report(view, {"prompt_tokens": 100 + n, "completion_tokens": 2})
        assert compact(body).tokens == 100 + n


async def reply_later(*_):
    """What nobody awaits: a hook's veto was ignored, and what a store was to save was lost."""


def with_async(method):
    store = refold.MemoryStore()
    setattr(store, method, reply_later)
    return store


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"before": reply_later}, "before must be a plain function, not the async"),
        ({"after": reply_later}, "after must be a plain function"),
        ({"on_event": reply_later}, "on_event must be a plain function"),
        ({"count": reply_later}, "count must be a plain function"),
        ({"store": with_async("save")}, "the store's save must be a plain function"),
        ({"store": with_async("record")}, "the ledger's record must be a plain function"),
        ({"strategies": [Summarize]}, "a strategy is given with its settings"),
        ({"strategies": ["Summarize"]}, "a strategy is given with its settings"),
        ({"strategies": Summarize(keep=2)}, r"given in a list, not as Summarize\(keep=2"),
        ({"strategies": refold.Budget(10, 10)}, r"strategies are given in a list, not as Budget\("),
        ({"strategies": "claude-opus-5-5"}, "given in a list, not as 'claude-opus-5-5'"),
        ({"store": refold.MemoryStore}, "the store must be one"),
        ({"budget": 100}, "the budget must be a refold.Budget"),
        ({"store": "refold.db"}, "the store must be one"),
        ({"memory": "notes.db"}, "memory must be a refold.memory.MemoryFlush, not 'notes.db'"),
        ({"memory": MemoryFlush}, "memory must be a refold.memory.MemoryFlush, not <class"),
        ({"model": 5}, "the model must be a name, such as 'claude-opus-5-5', not 5"),
        ({"salt": 3}, "the salt must be a text, not 3"),
        ({"format": "claude"}, "no format is called 'claude'; there are openai_chat, anthropic"),
    ],
)
def test_settings_of_a_wrong_type_are_refused_by_the_constructor(settings, error):
    given = {"strategies": [], "budget": refold.Budget(10, 10), **settings}
    with pytest.raises(ValueError, match=error):
        refold.Compactor(**given)


def test_a_budget_given_for_one_call_is_validated_too():
    compact = refold.Compactor([], refold.Budget(10, 10))
    history = [{"role": "user", "content": "hi"}]
    for call in (compact, compact.compact, compact.check):
        with pytest.raises(ValueError, match=r"the budget must be a refold.Budget.*, not 100"):
            call(history, budget=100)


def test_a_strategy_that_returns_its_edits_raises_type_error():
    compact = refold.Compactor([lambda view: []], refold.Budget(1, 1))
    with pytest.raises(TypeError, match=r"a strategy yields its edits; .* returns list"):
        compact([{"role": "user", "content": "hi"}])


def test_a_strategy_that_yields_something_else_than_edits_raises_type_error():
    def speak(view):
        yield "Fixed."

    class Local:
        local = True

        def __call__(self, view, since=0):
            return speak(view)

    talk = [{"role": ("user", "assistant")[n % 2], "content": "words " * 40} for n in range(6)]
    summarizer = Summarize(keep=1, summarizer=lambda *_: "Fixed.")  # returns, and should yield
    for strategy in (speak, Local(), summarizer):
        compact = refold.Compactor([strategy], refold.Budget(1, 1))
        with pytest.raises(
            TypeError,
            match=r"yields edits and asks, and .* yields 'F|returns a Summary of a text, not 'F",
        ):
            compact(talk)


def test_accept_refuses_a_view_and_token_limits_must_be_whole_numbers():
    compact = refold.Compactor([], refold.Budget(10, 10))
    with pytest.raises(ValueError, match="what `preview` has made, not a View"):
        compact.accept(compact([{"role": "user", "content": "hi"}]))
    with pytest.raises(
        ValueError, match=r"trigger must be a number of tokens or a trigger, such as .*, not '1k'"
    ):
        refold.Budget(trigger="1k", target=20)
    with pytest.raises(ValueError, match="to must be a whole number of at least 0, not '60k'"):
        refold.compact([], to="60k")
    for act in (compact.preview, compact.compact_now):
        with pytest.raises(ValueError, match="to must be a whole number of at least 0, not '4k'"):
            act([{"role": "user", "content": "hi"}], to="4k")
    with pytest.raises(ValueError, match="pending must be a whole number of at least 0, not -5"):
        compact([{"role": "user", "content": "hi"}], pending=-5)


def test_the_repr_of_a_compactor_shows_its_arguments():
    strategy = Summarize(keep=2)
    assert repr(refold.Compactor([strategy], refold.Budget(10, 10))).startswith(
        f"Compactor([{strategy}], Budget(trigger="
    )


def test_a_repeated_result_with_a_hidden_first_copy_does_not_exceed_the_target() -> None:
    """Shown whole again behind a summary, a file of 1,100 tokens stood above a goal of 4,000."""
    text = "\n".join(f"{n}: the tide table of pier {n} is kept in port/{n}.toml" for n in range(80))
    talk = [{"role": "user", "content": "Mend the tide tables, one after another."}]
    for n in range(40):
        path = "tides.py" if n in {8, 36} else f"other{n}.py"
        body = text if path == "tides.py" else f"{text}\n# {n}"
        call = {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "read", "arguments": json.dumps({"path": path})},
        }
        talk += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": body},
        ]
    view = refold.Compactor(refold.default_strategies(), refold.Budget(16_000, 8_000))(talk)
    assert 4_000 < view.tokens <= 8_000


@given(st.lists(st.sampled_from("abcdef")), st.integers(1, 4))
def test_put_latest_keeps_only_the_keys_that_were_put_last(keys, most):
    table = OrderedDict[str, int]()
    for at, key in enumerate(keys):
        put_lru(table, key, at, most)
    latest = {key: at for at, key in enumerate(keys)}
    assert list(table.items()) == sorted(latest.items(), key=lambda item: item[1])[-most:]


def chat_of(turns: int) -> list[dict[str, str]]:
    """Questions with answers of about 700 characters each."""
    return [
        {"role": role, "content": f"{start} {n}. " + words * 9}
        for n in range(turns)
        for role, start, words in (
            (
                "user",
                "Question",
                "Why does the ferry leave at noon, when the tide is low, every day? ",
            ),
            (
                "assistant",
                "Part",
                "It waits for the mail that the night train brings from the coast. ",
            ),
        )
    ]


def test_a_model_that_is_given_without_strategies_writes_the_summary():
    """It was never asked: all default strategies worked by rules."""
    for budget in (refold.Budget(4_000, 2_000), None):
        model = ScriptedModel(["## Goal\nA port.\n" * 3])
        compact = refold.Compactor(budget=budget, ask=model, model="claude-opus-5-5")
        view = compact.compact_now(chat_of(40), to=2_000)
        assert model.asked[0].purpose == "summary" and view.tokens <= 2_000
        (tried,) = (attempt for attempt in view.attempts if "ModelSummary" in attempt.by)
        assert tried.by.startswith("SummarizeTo(") and tried.calls


FAR = refold.Budget(10**6, 10**6)
BUDGETS = [
    refold.Budget(20_000, to, window=40_000) for to in (Fraction(0.3), Tokens(12_000), 12_000)
]
WAYS = [
    *(refold.Compactor(budget=budget) for budget in BUDGETS),
    *(partial(refold.Compactor(), budget=budget) for budget in BUDGETS),
    partial(refold.Compactor(budget=FAR).compact_now, to=12_000),
    lambda history: refold.Compactor(budget=FAR).preview(history, to=12_000).view,
]


@pytest.mark.parametrize("make", WAYS)
def test_default_strategies_summarise_to_the_given_target(make):
    """Little below it, so that much is kept, whether a budget or `to` sets it."""
    view = make(chat_of(80))
    assert view.goal == 12_000 and 9_000 <= view.tokens <= 12_000
    assert [edit.by[:25] for edit in view.edits] == ["SummarizeTo(tokens=12000,"]


@pytest.mark.parametrize("to_source", [dict, json.dumps, lambda body: json.dumps(body).encode()])
@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.NAME)
def test_a_view_can_be_pickled_with_its_payload(codec, to_source):
    """Ray, Spark and `multiprocessing` return it from another process."""
    turns = [
        user("Long words. " * 200),
        Message("assistant", (Text("An answer. " * 200),)),
        user("?"),
    ]
    model = "claude-opus-4-8" if codec.NAME in ("anthropic", "bedrock") else "gemini-3-pro"
    source = to_source({"model": model, codec.FIELD: [codec.encode(turn) for turn in turns]})
    budget = refold.Budget(200, 100)
    view = refold.Compactor([Summarize(keep=1)], budget, format=codec.NAME)(source)
    copied = pickle.loads(pickle.dumps(view))
    assert view.edits
    assert (copied, copied.payload, copied.tokens) == (view, view.payload, view.tokens)
    assert copied.source.codec is codec
    assert copied.revert().payload == source
    assert copy.deepcopy(view) == view
