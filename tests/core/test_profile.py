"""What is worked out once: sums, columns, and the tokens that an adopted edit shows."""

from hypothesis import given
from hypothesis import strategies as st

from refold.compactor.late_edits import BY, edits_dropping_thinking, find_thinking_copies
from refold.core.profile import CountedTranscript, Profile
from refold.core.view import View
from refold.edits import Attempt
from refold.messages import Message, Text, Thinking, ToolCall, ToolResult, user
from refold.rules.rule import Rules
from refold.transcript import Transcript

SAID = tuple(user(f"message {n}") for n in range(12))


class Counted:
    """A pure function of a message that says how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[Message] = []

    def __call__(self, message: Message) -> int:
        self.asked.append(message)
        return len(message.text)


def ground(said: tuple[Message, ...] = SAID, profile: Profile | None = None) -> CountedTranscript:
    return CountedTranscript.of(Transcript.of(said), profile or Profile())


@given(st.lists(st.integers(1, 4), max_size=5))
def test_a_column_is_worked_out_once_for_each_message(steps):
    of, one, at = Counted(), ground(SAID[:2]), 2
    assert list(one.map_cached(of)) == [len(m.text) for m in SAID[:2]]
    for step in steps:
        one, at = one.extend(SAID[at : at + step]), min(at + step, len(SAID))
        assert list(one.map_cached(of)) == [len(m.text) for m in SAID[:at]]
    assert of.asked == list(SAID[:at])


def test_a_fact_of_a_transcript_is_worked_out_once_and_anew_when_it_has_grown():
    asked = list[int]()

    def length(base: CountedTranscript) -> int:
        asked.append(len(base.transcript))
        return asked[-1]

    one = ground(SAID[:2])
    longer = one.extend(SAID[2:5])
    assert [each.compute_once(length) for each in (one, longer, one, longer)] == [2, 5, 2, 5]
    assert asked == [2, 5]


def test_columns_of_one_transcript_are_not_mixed_up():
    one = ground(SAID[:3])
    lengths, texts = Counted(), lambda message: message.text
    assert list(one.map_cached(lengths)) == [9, 9, 9]
    assert list(one.map_cached(texts)) == [m.text for m in SAID[:3]]
    fork, other = one.extend(SAID[3:5]), one.extend(SAID[7:8])
    assert list(fork.map_cached(texts)) == [m.text for m in SAID[:5]]
    assert list(other.map_cached(texts)) == [m.text for m in (*SAID[:3], SAID[7])]
    assert list(one.map_cached(texts)) == [m.text for m in SAID[:3]]


def test_another_lens_finds_the_same_transcript_sums_and_columns():
    of, one, profile = Counted(), ground(), Profile(fixed_tokens=7)
    one.map_cached(of)
    other = one.with_profile(profile)
    assert (
        other.transcript is one.transcript
        and other.token_sums is one.token_sums
        and other.profile is profile
    )
    assert other.map_cached(of) is one.map_cached(of)
    assert len(of.asked) == len(SAID)


def test_what_another_view_counted_is_not_counted_again():
    of = Counted()
    base = View(ground(profile=Profile(count=of)), estimate=0).revert()
    edits = (base.fold(0, 4, user("a summary")), base.fold(6, 8, user("another")))
    made = base.apply(*edits)
    of.asked.clear()
    adopted = base.apply_counted(made, edits)
    assert of.asked == []
    assert (
        adopted == made
        and adopted.visible_edits == made.visible_edits
        and adopted.estimate == made.estimate
    )
    late = base.fold(9, 11, user("not in the other"))
    assert base.apply_counted(made, [late]).estimate == base.apply(late).estimate
    assert of.asked[0] == late.insert[0]


def test_a_grown_view_keeps_its_edits_its_attempts_and_adds_what_was_added():
    attempt = Attempt("a strategy", "noop", "nothing to do", 1, 1)
    base = View.of(SAID[:6])
    view = View(base.base, (), None, (), base.estimate, (attempt,)).apply(
        base.fold(0, 4, user("a summary"))
    )
    grown = view.extend(SAID[6:9])
    assert (
        grown.edits == view.edits
        and grown.visible_edits == view.visible_edits
        and grown.attempts == (attempt,)
    )
    assert grown.estimate == View.of(SAID[:9]).apply(*view.edits).estimate
    assert grown.source is None


def thought(number: int) -> tuple[Message, ...]:
    call = ToolCall(f"c{number}", "read", "{}")
    said = Message("assistant", (Thinking("hm", f"sig{number}"), Text("So."), call))
    return said, Message("user", (ToolResult(f"c{number}", (Text("a result " * 40),)),))


def test_what_was_thought_before_edits_that_were_made_ahead_is_taken_out():
    """AN-7"""
    profile = Profile(rules=Rules(thinking="bound"))
    said = (user("Go."), *(message for n in range(6) for message in thought(n)))
    before = View.of(said, profile=profile)
    ahead = View.of(said[:7], profile=profile).fold(0, 5, user("a summary"))
    late = edits_dropping_thinking(before, [ahead])
    assert [(edit.start, edit.by) for edit in late] == [(at, BY) for at in (5, 7, 9, 11)]
    assert all(
        not isinstance(part, Thinking) for edit in late for m in edit.insert for part in m.parts
    )
    after = before.apply(ahead, *late)
    assert edits_dropping_thinking(after, [ahead]) == (), "what is on already unbinds nothing"
    assert edits_dropping_thinking(View.of(said), [ahead]) == (), (
        "nor does anything where thinking is free"
    )


def test_copies_without_thinking_go_with_what_they_copy():
    view = View.of([user("Go."), *thought(0), *thought(1)])
    made = view.replace(
        1, Message("assistant", (Text("So."), ToolCall("c0", "read", "{}"))), by="a strategy"
    )
    settled = view.replace(
        1, Message("assistant", (Text("So!"), ToolCall("c0", "read", "{}"))), by=BY
    )
    elsewhere = view.replace(
        3, Message("assistant", (Text("So."), ToolCall("c1", "read", "{}"))), by=BY
    )
    both = view.apply(made, settled, elsewhere)
    assert find_thinking_copies(both, [made]) == [settled]
    assert find_thinking_copies(both, []) == []
    assert find_thinking_copies(view.apply(made), [made]) == []
