"""The laws of docs/concepts.md, each over random transcripts."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from refold.budget.budget import Budget
from refold.compactor.late_edits import (
    drop_invalidated_thinking,
    edits_after_revert,
    find_thinking_copies,
)
from refold.compactor.loading import make_local_edits
from refold.compactor.run import compact_if_due
from refold.core.profile import Profile
from refold.core.strategy import Answer, Ask, Steps
from refold.core.view import View
from refold.edits import Edit
from refold.errors import EditError
from refold.messages import Message, Text, Thinking, ToolCall, ToolResult, user
from refold.models.driver import adrive, drive
from refold.rules import anthropic, bedrock, gemini, openai_chat, openai_responses
from refold.rules.rule import Rules
from refold.testing import ScriptedModel, transcripts
from refold.transcript import Transcript, hash_message
from tests.support.examples import thorough

DIALECTS = {
    "anthropic": Rules(anthropic.RULES, alternate=True, thinking="bound"),
    "chat": Rules(openai_chat.RULES),
    "responses": Rules(openai_responses.RULES, thinking="fixed"),
    "gemini": Rules(gemini.RULES, alternate=True, thinking="fixed"),
    "bedrock": Rules(bedrock.RULES, alternate=True, thinking="bound"),
}
RULES = DIALECTS["anthropic"]
TIGHT = Budget(10, 10)


@dataclass(frozen=True)
class Clip:
    """A local strategy that keeps only the beginning of a long result."""

    limit: int = 40
    local: ClassVar[bool] = True

    def __call__(self, view: View, since: int = 0) -> Steps:
        for at in range(since, len(view.transcript)):
            message = view.transcript.messages[at]
            parts = tuple(
                self._clip(part) if isinstance(part, ToolResult) else part for part in message.parts
            )
            if parts != message.parts:
                yield view.replace(at, replace(message, parts=parts), by=repr(self))

    def _clip(self, result: ToolResult) -> ToolResult:
        return replace(result, content=(Text(result.text[: self.limit] or "-"),))


@dataclass(frozen=True)
class Clear:
    """A retrospective strategy without a model."""

    keep: int = 1

    def __call__(self, view: View) -> Steps:
        items = [
            i
            for i in view.items
            if any(isinstance(p, ToolResult) for m in i.messages for p in m.parts)
        ]
        for item in items[: len(items) - self.keep]:
            if len(item.messages) == 1:
                parts = tuple(
                    self._clear(p) if isinstance(p, ToolResult) else p
                    for p in item.messages[0].parts
                )
                yield view.replace(
                    item.start, replace(item.messages[0], parts=parts), by=repr(self)
                )

    def _clear(self, result: ToolResult) -> ToolResult:
        return replace(result, content=(Text("-"),))


@dataclass(frozen=True)
class Retell:
    """A retrospective strategy with a model."""

    keep: int = 2

    def __call__(self, view: View) -> Steps:
        cuts = sorted(c for c in view.cuts if c <= len(view.transcript) - self.keep)
        if len(cuts) > 1:
            answer = yield Ask("Summarise.")
            if answer is not None:
                yield view.fold(cuts[0], cuts[-1], user(answer.text), by=repr(self))


STRATEGIES = (Clear(), Retell())


def answer(ask: Ask) -> Answer:
    return Answer("short")


def look(messages: object, edits: tuple[Edit, ...] = (), rules: Rules = RULES) -> View:
    return View.of(messages, edits, Profile(rules=rules))


def compact(messages: object, rules: Rules = RULES, budget: Budget = TIGHT) -> View:
    return drive(compact_if_due(look(messages, rules=rules), STRATEGIES, budget), answer).view


def violations(view: View) -> set[tuple[str, str]]:
    return {(v.rule, v.subject) for v in view.profile.rules.check(view.messages)}


any_transcript = st.one_of(transcripts(), transcripts(tidy=False), st.just(()))
any_rules = st.sampled_from(sorted(DIALECTS)).map(DIALECTS.__getitem__)


@thorough
@given(any_transcript)
def test_identity(messages):
    assert look(messages).messages == messages


@thorough
@given(any_transcript, any_rules)
def test_reversibility(messages, rules):
    view = compact(messages, rules)
    assert tuple(view.transcript.messages) == messages
    assert view.revert().messages == messages
    for edit in view.edits:
        view.find(edit.id)
        assert view.unfold(edit.id) == list(messages[edit.start : edit.stop])


@thorough
@given(any_transcript, any_rules)
def test_validity(messages, rules):
    assert violations(compact(messages, rules)) <= violations(look(messages, rules=rules))


@thorough
@given(any_transcript, any_rules, st.data())
def test_validity_of_any_subset_of_the_edits(messages, rules, data):
    view = compact(messages, rules)
    assume(view.edits)
    gone = data.draw(st.sets(st.sampled_from([edit.id for edit in view.edits]), min_size=1))
    assert violations(view.revert(*gone)) <= violations(look(messages, rules=rules))


@thorough
@given(any_transcript)
def test_progress_a_compaction_with_edits_makes_the_view_smaller(messages):
    before, after = look(messages), compact(messages)
    assert after.tokens < before.tokens if after.edits else after.tokens == before.tokens
    for wordier in (longer, repeat):
        done = drive(compact_if_due(before, [wordier], TIGHT), answer)
        assert done.view is before, "what makes nothing smaller is not taken"


def longer(view):
    """Propose edits that make each message longer."""
    for at, message in enumerate(view.transcript.messages):
        yield view.replace(
            at, replace(message, parts=(*message.parts, Text("and more"))), by="longer"
        )


def repeat(view):
    """Propose edits that repeat each message."""
    for at, message in enumerate(view.transcript.messages):
        yield view.replace(at, replace(message, parts=message.parts), by="repeated")


@thorough
@given(any_transcript)
def test_tokens_are_those_of_the_visible_messages(messages):
    view = compact(messages)
    assert [item.tokens for item in view.iter_items()] == [
        sum(map(view.profile.count, item.messages)) for item in view.items
    ]
    assert view.estimate == sum(item.tokens for item in view.items)


@thorough
@given(transcripts(), transcripts())
def test_stable_prefix(messages, continuation):
    view = compact(messages)
    grown = view.extend([Message("assistant", (Text("done"),)), *continuation])
    assert grown.messages[: len(view.messages)] == view.messages


@thorough
@given(any_transcript, transcripts(), st.data())
def test_fork_safety(messages, branch, data):
    view = compact(messages)
    fork = messages[: data.draw(st.integers(0, len(messages)))] + branch
    transcript = Transcript.of(fork)
    for edit in view.edits:
        same = list(map(hash_message, fork[: edit.stop])) == list(
            map(hash_message, messages[: edit.stop])
        )
        assert transcript.matches(edit) == same


@thorough
@given(any_transcript, st.randoms(use_true_random=False))
def test_commutativity(messages, random):
    view = compact(messages)
    edits = list(view.edits)
    assume(len({(edit.start, edit.stop) for edit in edits}) == len(edits))
    random.shuffle(edits)
    assert look(messages, tuple(edits)).messages == view.messages


@thorough
@given(any_transcript, any_rules, st.data())
def test_everything_between_two_legal_cuts_may_be_hidden(messages, rules, data):
    view = look(messages, rules=rules)
    cuts = sorted(view.cuts)
    assume(len(cuts) > 1)
    start, stop = sorted(
        data.draw(st.lists(st.sampled_from(cuts), min_size=2, max_size=2, unique=True))
    )
    folded = view.apply(view.fold(start, stop, user("hidden")))
    assert violations(folded) <= violations(view)


@thorough
@given(any_transcript)
def test_the_async_driver_gives_the_same_view_as_the_sync_one(messages):
    async def ask(question: Ask) -> Answer:
        await asyncio.sleep(0)
        return Answer("short")

    run = compact_if_due(look(messages), STRATEGIES, TIGHT)
    assert asyncio.run(adrive(run, ask)).view == compact(messages)


@thorough
@given(any_transcript)
def test_determinism(messages):
    assert compact(messages) == compact(messages)


def sign(messages: tuple[Message, ...]) -> str:
    """Return a provider's signature over exactly the messages that it was sent."""
    return Transcript.of(messages).tips[-1] or "empty"


def unbound(messages: tuple[Message, ...]) -> list[int]:
    return [
        at
        for at, message in enumerate(messages)
        for part in message.parts
        if isinstance(part, Thinking) and part.signature and part.signature != sign(messages[:at])
    ]


@thorough
@given(transcripts(max_turns=5), st.integers(30, 400))
def test_binding_signed_thinking_is_sent_only_after_the_prefix_it_was_signed_for(messages, trigger):
    """No later request sends signed thinking after another prefix."""
    view = look(())
    for message in messages:
        if message.role == "assistant":
            view = drive(
                compact_if_due(view, STRATEGIES, Budget(trigger, trigger // 2)), answer
            ).view
            assert unbound(view.messages) == []
        thought = (Thinking("hm", sign(view.messages)),) if message.role == "assistant" else ()
        view = view.extend([replace(message, parts=(*thought, *message.parts))])
    assert unbound(drive(compact_if_due(view, STRATEGIES, TIGHT), answer).view.messages) == []


@thorough
@given(transcripts(max_turns=5), st.integers(30, 400), st.data())
def test_binding_holds_over_reverts(messages, trigger, data):
    """AN-7 AN-11, conformance 56: edits are reverted between turns, and thinking continues after
    the restored messages."""
    view = look(())
    for message in messages:
        if message.role == "assistant":
            view = drive(
                compact_if_due(view, STRATEGIES, Budget(trigger, trigger // 2)), answer
            ).view
            if view.edits and data.draw(st.booleans()):
                view = take_back(
                    view, data.draw(st.lists(st.sampled_from(view.edits), min_size=1, unique=True))
                )
            assert unbound(view.messages) == []
        thought = (Thinking("hm", sign(view.messages)),) if message.role == "assistant" else ()
        view = view.extend([replace(message, parts=(*thought, *message.parts))])
    assert unbound(take_back(view, list(view.edits)).messages) == []


def take_back(view: View, gone: list[Edit]) -> View:
    """Revert edits like `Compactor.revert`, without a store."""
    ids = {edit.id for edit in (*gone, *find_thinking_copies(view, gone))}
    after = view.revert(*ids) if ids else view
    return after.apply(*edits_after_revert(after, view))


def test_binding_keeps_thinking_added_after_the_edit():
    messages = [user("a" * 400), Message("assistant", (Text("b"),)), user("c")]
    view = compact(tuple(messages))
    thought = view.extend(
        [Message("assistant", (Thinking("hm", sign(view.messages)), Text("d"))), user("e")]
    )
    assert drop_invalidated_thinking(thought, thought) is thought
    assert unbound(thought.messages) == []


@thorough
@given(any_transcript)
def test_memorylessness_local_edits_at_once_equal_those_made_turn_by_turn(messages):
    at_once = look(messages).apply_valid(make_local_edits(look(messages), [Clip()]))
    turn_by_turn = look(())
    for message in messages:
        turn_by_turn = turn_by_turn.extend([message])
        bare = turn_by_turn.revert()
        turn_by_turn = turn_by_turn.apply_valid(
            make_local_edits(bare, [Clip()], len(bare.transcript) - 1)
        )
    assert turn_by_turn.messages == at_once.messages


@thorough
@given(any_transcript)
def test_restraint_nothing_runs_below_the_trigger(messages):
    view, model = look(messages), ScriptedModel(["never asked"])
    after = drive(compact_if_due(view, STRATEGIES, Budget(view.tokens + 1, 0)), model)
    assert after.view is view
    assert after.attempts == ()
    assert model.asked == []


@thorough
@given(any_transcript, st.integers(1, 100))
def test_restraint_strategies_stop_as_soon_as_the_view_fits(messages, share):
    view = look(messages)
    target = view.tokens * share // 100
    edits = compact(messages, budget=Budget(target, target)).edits
    before = look(messages, edits[:-1]) if edits and edits[-1].by != "settle" else None
    assert before is None or before.tokens > target


def test_the_later_of_two_edits_on_one_span_is_shown():
    view = look(
        tuple(
            Message("user" if i % 2 == 0 else "assistant", (Text(f"{i} " * 50),)) for i in range(6)
        )
    )
    first, second = (view.fold(0, 4, user(text), by=text) for text in ("one", "two"))
    assert view.apply(first, second).items[0].messages == (user("two"),)
    assert view.apply(second, first).items[0].messages == (user("one"),)
    assert view.apply(first, second).revert(second.id).items[0].messages == (user("one"),)


@thorough
@given(any_transcript, any_rules)
def test_idempotence(messages, rules):
    once = compact(messages, rules)
    again = drive(compact_if_due(once, STRATEGIES, Budget(once.tokens, once.tokens)), answer).view
    assert again is once or again.messages == once.messages


@given(
    st.lists(st.lists(st.integers(), max_size=4), max_size=6), st.lists(st.integers(), max_size=3)
)
def test_forks_of_an_append_log_do_not_see_each_others_entries(pieces, fork):
    from_start: list[int] = []
    log = Transcript.of().messages.__class__()
    for piece in pieces:
        branch = log.extend(fork)
        log = log.extend(piece)
        assert list(branch) == from_start + fork
        from_start += piece
        assert list(log) == from_start
        assert log.is_prefix_of(from_start)


# --- refusals of a view ---------------------------------------------------------------------


def plain(length: int) -> tuple[Message, ...]:
    return tuple(
        Message("user" if i % 2 == 0 else "assistant", (Text(f"{i} " * 50),)) for i in range(length)
    )


def test_refuses_an_edit_of_another_history():
    edit = look(plain(6)).fold(0, 4, user("x"))
    with pytest.raises(EditError, match="another history"):
        look((user("other"), *plain(6)[1:])).apply(edit)
    with pytest.raises(EditError, match="another history"):
        look(plain(3)).apply(edit)


def test_refuses_edits_that_cross():
    view = look(plain(8))
    first, second = view.fold(0, 5, user("x")), view.fold(3, 7, user("y"))
    with pytest.raises(EditError, match="cuts through"):
        view.apply(first, second)
    assert view.apply_valid([first, second]).edits == (first,)


def test_refuses_edits_that_would_cross_once_the_outer_one_is_gone():
    view = look(plain(10))
    outer, left_edit, right_edit = (
        view.fold(0, 9, user("o")),
        view.fold(2, 6, user("x")),
        view.fold(4, 8, user("y")),
    )
    with pytest.raises(EditError, match="cuts through"):
        view.apply(outer, left_edit, right_edit)


def test_refuses_to_hide_the_beginning_without_a_replacement():
    with pytest.raises(EditError, match="beginning"):
        look(plain(4)).fold(0, 2)
    assert look(plain(4)).fold(1, 3).insert == ()


def test_refuses_to_part_a_call_from_its_result():
    called = (*plain(1), *_pair("c1"), *plain(2)[1:])
    for start, stop in ((0, 2), (2, 4), (1, 2)):
        with pytest.raises(EditError, match="belongs together"):
            look(called).fold(start, stop, user("x"))


def test_refuses_a_swap_that_drops_a_result():
    called = (*plain(1), *_pair("c1"))
    with pytest.raises(EditError):
        look(called).apply(look(called).replace(2, user("gone")))


def test_refuses_empty_messages():
    with pytest.raises(EditError, match="empty"):
        look(plain(4)).fold(0, 2, Message("user"))
    with pytest.raises(EditError, match="empty"):
        look(plain(4)).fold(0, 2, user(""))


def test_refuses_inserted_calls_that_do_not_pair():
    call, result = _pair("c9")
    with pytest.raises(EditError, match="do not pair"):
        look(plain(4)).fold(0, 2, user("x"), call)
    assert look(plain(4)).fold(0, 3, user("x"), call, result).insert[1:] == (call, result)


@pytest.mark.parametrize("dialect", ["anthropic", "bedrock", "gemini"])
def test_inserted_messages_are_checked_as_they_are_sent(dialect):
    """BR-4: adjacent messages of one role are sent as one, and a history that begins with an
    assistant message follows the preceding user text."""
    call, result = _pair("c9")
    view = look(plain(6), rules=DIALECTS[dialect])
    stays = (user("summary"), user("the request that stays"), call, result)
    assert view.fold(0, 5, *stays).insert == stays
    assert view.fold(1, 3, call, result).insert == (call, result)
    with pytest.raises(EditError, match="do not pair"):
        view.fold(1, 3, result, call)


def test_edit_ids_may_be_shortened_if_they_stay_unique():
    view = look(plain(6))
    view = view.apply(view.fold(1, 3), view.fold(3, 5))
    first, second = view.edits
    assert view.find(first.id[:8]) == first
    with pytest.raises(EditError, match="no edit"):
        view.find("zz")
    with pytest.raises(EditError, match="no edit"):
        view.find("")
    assert view.revert(second.id[:8]).edits == (first,)


def test_messages_of_one_role_that_an_edit_makes_adjacent_are_joined():
    view = look(plain(6))
    merged = view.apply(view.fold(0, 2, user("sum"))).messages
    assert [m.role for m in merged] == ["user", "assistant", "user", "assistant"]
    assert merged[0].parts == (Text("sum"), *plain(6)[2].parts)
    both = look((*plain(2), user("a"), user("b")))
    swapped = both.apply(both.replace(3, user("c")))
    assert [m.role for m in swapped.messages] == ["user", "assistant", "user", "user"]


def _pair(id: str) -> Iterator[Message]:
    yield Message("assistant", (ToolCall(id, "read", "{}"),))
    yield Message("user", (ToolResult(id, (Text("x" * 500),)),))
