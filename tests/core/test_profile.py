"""Cached values: sums, columns, and the tokens of an adopted edit."""

from hypothesis import given
from hypothesis import strategies as st

from refold.compactor.late_edits import (
    STRIP_THINKING_BY,
    edits_dropping_thinking,
    find_thinking_copies,
    may_drop_more_thinking,
)
from refold.core.profile import CountedTranscript, Profile
from refold.core.view import View
from refold.edits import Attempt
from refold.messages import Message, Text, Thinking, ToolCall, ToolResult, user
from refold.rules.rule import Rules
from refold.transcript import Transcript

MESSAGES = tuple(user(f"message {n}") for n in range(12))


class Counted:
    """A pure function of a message that counts its calls."""

    def __init__(self) -> None:
        self.asked: list[Message] = []

    def __call__(self, message: Message) -> int:
        self.asked.append(message)
        return len(message.text)


def ground(
    messages: tuple[Message, ...] = MESSAGES, profile: Profile | None = None
) -> CountedTranscript:
    return CountedTranscript.of(Transcript.of(messages), profile or Profile())


@given(st.lists(st.integers(1, 4), max_size=5))
def test_a_cached_function_is_called_once_for_each_message(steps):
    of, base, at = Counted(), ground(MESSAGES[:2]), 2
    assert list(base.map_cached(of)) == [len(m.text) for m in MESSAGES[:2]]
    for step in steps:
        base, at = base.extend(MESSAGES[at : at + step]), min(at + step, len(MESSAGES))
        assert list(base.map_cached(of)) == [len(m.text) for m in MESSAGES[:at]]
    assert of.asked == list(MESSAGES[:at])


def test_messages_that_an_edit_hides_are_hashed_once_while_the_transcript_grows():
    """Each turn after a summary of 10,000 messages once hashed all of them: 5 ms instead of 0.2."""
    hashed = list[str]()

    class Watched(Text):
        def __hash__(self) -> int:
            hashed.append(self.text)
            return super().__hash__()

    messages = [Message("user", (Watched(str(n)),)) for n in range(12)]
    view = View.of(messages)
    view = view.apply(view.fold(0, 10, user("a summary"), messages[9]))
    assert [message.text for message in view.messages] == ["a summary", "9", "10", "11"]
    assert hashed
    hashed.clear()
    for n in range(12, 15):
        view = view.extend([user(str(n))])
        assert view.messages[-1].text == str(n)
    assert not hashed
    amended = view.revert().apply(view.revert().fold(0, 10, user("another")))  # at the same place
    assert amended.messages[0].text == "another"
    assert amended.revert().messages[:12] == tuple(messages)


def test_may_drop_more_thinking_looks_only_at_new_messages():
    """Each turn of a task of 10,000 messages once looked at all of them."""
    looked = list[str]()

    class Watched(Message):
        @property
        def is_request(self) -> bool:
            looked.append(self.text)
            return super().is_request

    messages = [Watched("user", (Text("Go."),)), *[Watched("assistant", (Text("on"),))] * 50]
    view = View.of([*messages, *MESSAGES[:2]], profile=Profile(rules=Rules(thinking="unsure")))
    before = view.before(51).extend([Watched("user", (ToolResult("c", (Text("r"),)),))])
    assert not may_drop_more_thinking(before, 51)
    assert looked == [""]
    assert not may_drop_more_thinking(view, 51)  # a request is new, and nothing is signed


def test_compute_once_runs_once_for_each_transcript_and_again_once_it_has_grown():
    asked = list[int]()

    def length(base: CountedTranscript) -> int:
        asked.append(len(base.transcript))
        return asked[-1]

    shorter = ground(MESSAGES[:2])
    longer = shorter.extend(MESSAGES[2:5])
    assert [each.compute_once(length) for each in (shorter, longer, shorter, longer)] == [
        2,
        5,
        2,
        5,
    ]
    assert asked == [2, 5]


def test_cached_values_of_several_functions_and_forks_are_kept_separate():
    base = ground(MESSAGES[:3])
    lengths, texts = Counted(), lambda message: message.text
    assert list(base.map_cached(lengths)) == [9, 9, 9]
    assert list(base.map_cached(texts)) == [m.text for m in MESSAGES[:3]]
    fork, branch = base.extend(MESSAGES[3:5]), base.extend(MESSAGES[7:8])
    assert list(fork.map_cached(texts)) == [m.text for m in MESSAGES[:5]]
    assert list(branch.map_cached(texts)) == [m.text for m in (*MESSAGES[:3], MESSAGES[7])]
    assert list(base.map_cached(texts)) == [m.text for m in MESSAGES[:3]]


def test_with_profile_keeps_the_transcript_token_sums_and_cached_values():
    of, base, profile = Counted(), ground(), Profile(fixed_tokens=7)
    base.map_cached(of)
    relensed = base.with_profile(profile)
    assert (
        relensed.transcript is base.transcript
        and relensed.token_sums is base.token_sums
        and relensed.profile is profile
    )
    assert relensed.map_cached(of) is base.map_cached(of)
    assert len(of.asked) == len(MESSAGES)


def test_apply_counted_does_not_count_edits_of_another_view_again():
    of = Counted()
    base = View(ground(profile=Profile(count=of)), estimate=0).revert()
    edits = (base.fold(0, 4, user("a summary")), base.fold(6, 8, user("another")))
    edited = base.apply(*edits)
    of.asked.clear()
    adopted = base.apply_counted(edited, edits)
    assert of.asked == []
    assert (
        adopted == edited
        and adopted.visible_edits == edited.visible_edits
        and adopted.estimate == edited.estimate
    )
    late = base.fold(9, 11, user("not in the other"))
    assert base.apply_counted(edited, [late]).estimate == base.apply(late).estimate
    assert of.asked[0] == late.insert[0]


def test_a_grown_view_keeps_its_edits_and_attempts_and_counts_new_messages():
    attempt = Attempt("a strategy", "noop", "nothing to do", 1, 1)
    base = View.of(MESSAGES[:6])
    view = View(base.base, (), None, (), base.estimate, (attempt,)).apply(
        base.fold(0, 4, user("a summary"))
    )
    grown = view.extend(MESSAGES[6:9])
    assert (
        grown.edits == view.edits
        and grown.visible_edits == view.visible_edits
        and grown.attempts == (attempt,)
    )
    assert grown.estimate == View.of(MESSAGES[:9]).apply(*view.edits).estimate
    assert grown.source is None


def think_and_call(number: int) -> tuple[Message, ...]:
    call = ToolCall(f"c{number}", "read", "{}")
    thinking = Message("assistant", (Thinking("hm", f"sig{number}"), Text("So."), call))
    return thinking, Message("user", (ToolResult(f"c{number}", (Text("a result " * 40),)),))


def test_thinking_produced_before_a_prepared_edit_was_applied_is_dropped():
    """AN-7"""
    profile = Profile(rules=Rules(thinking="bound"))
    messages = (user("Go."), *(message for n in range(6) for message in think_and_call(n)))
    before = View.of(messages, profile=profile)
    ahead = View.of(messages[:7], profile=profile).fold(0, 5, user("a summary"))
    late = edits_dropping_thinking(before, [ahead])
    assert [(edit.start, edit.by) for edit in late] == [
        (at, STRIP_THINKING_BY) for at in (5, 7, 9, 11)
    ]
    assert all(
        not isinstance(part, Thinking) for edit in late for m in edit.insert for part in m.parts
    )
    after = before.apply(ahead, *late)
    assert edits_dropping_thinking(after, [ahead]) == (), "what is on already unbinds nothing"
    assert edits_dropping_thinking(View.of(messages), [ahead]) == (), (
        "nor does anything where thinking is free"
    )


def test_find_thinking_copies_returns_the_copies_of_the_given_edits():
    view = View.of([user("Go."), *think_and_call(0), *think_and_call(1)])
    copied = view.replace(
        1, Message("assistant", (Text("So."), ToolCall("c0", "read", "{}"))), by="a strategy"
    )
    settled = view.replace(
        1, Message("assistant", (Text("So!"), ToolCall("c0", "read", "{}"))), by=STRIP_THINKING_BY
    )
    elsewhere = view.replace(
        3, Message("assistant", (Text("So."), ToolCall("c1", "read", "{}"))), by=STRIP_THINKING_BY
    )
    both = view.apply(copied, settled, elsewhere)
    assert find_thinking_copies(both, [copied]) == [settled]
    assert find_thinking_copies(both, []) == []
    assert find_thinking_copies(view.apply(copied), [copied]) == []
