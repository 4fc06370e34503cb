"""Details of the values and the engine that the laws do not cover."""

import asyncio
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

import refold
from refold.budget.budget import Budget
from refold.codecs.detect import open_payload
from refold.compactor.late_edits import (
    STRIP_THINKING_BY,
    drop_invalidated_thinking,
    edits_after_revert,
)
from refold.compactor.loading import make_local_edits
from refold.compactor.run import compact_if_due
from refold.core.edit_stack import RenderedMessage, flatten, has_same_shape, render
from refold.core.profile import CountedTranscript, Profile
from refold.core.strategy import Answer, Ask, Ending, is_local
from refold.core.view import View
from refold.edits import Attempt, Edit, edit_id
from refold.errors import EditError
from refold.messages import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult, user
from refold.models.driver import adrive, drive
from refold.rules import anthropic
from refold.rules.request import Fault, Request
from refold.rules.rule import ContinuityRule, Rule, Rules, compute_cuts
from refold.testing import ScriptedModel
from refold.transcript import AppendLog, LazyTips, Transcript, hash_message


def words(message: Message) -> int:
    """Count one token per character, so that a reader can check the figures."""
    return sum(len(part.text) for part in message.parts if isinstance(part, Text))


def talk(*texts: str) -> tuple[Message, ...]:
    return tuple(
        Message("user" if i % 2 == 0 else "assistant", (Text(t),)) for i, t in enumerate(texts)
    )


RULES = Rules(anthropic.RULES, alternate=True, thinking="bound")
LENS = Profile(words, RULES)


# --- edits and transcripts -------------------------------------------------------------------


def test_the_id_of_an_edit_depends_on_its_range_tip_and_maker():
    edit = Edit(1, 3, (user("x"),), "tip", "me")
    assert edit.id == edit_id(1, 3, "tip", "me") == "b4627ca6eba9802e"
    assert (
        len(
            {
                edit.id,
                Edit(2, 3, (), "tip", "me").id,
                Edit(1, 3, (), "tap", "me").id,
                Edit(1, 3, (), "tip", "").id,
            }
        )
        == 4
    )
    assert Edit(1, 3, (), "tip", "me").id == edit.id
    assert edit_id(0, 1, "", "\ud800") != edit_id(0, 1, "", "")


def test_tips_identify_prefixes_and_differ_by_salt():
    transcript, fork = Transcript.of(talk("a", "b")), Transcript.of(talk("a", "c"))
    assert transcript.tips[0] == "" and len(transcript.tips) == 3 and len(transcript) == 2
    assert transcript.tips[:2] == fork.tips[:2] and transcript.tips[2] != fork.tips[2]
    assert Transcript.of(talk("a"), salt="s").tips[0] != ""
    assert Transcript.of(talk("a"), salt="s").tips[1] != transcript.tips[1]
    assert transcript.extend(talk("x")).tips[:3] == tuple(transcript.tips)
    assert Transcript.of((), salt="\ud800").tips[0] not in (
        "",
        Transcript.of((), salt="\ud801").tips[0],
    )
    assert all(len(tip) == 32 for tip in list(transcript.tips)[1:])


def test_tips_that_two_threads_compute_at_once_are_right():
    messages, during = talk("a", "b", "c"), list[Transcript]()

    class Slow(AppendLog):
        """A log during whose reading another thread computes the tips too."""

        def __getitem__(self, index):
            if during:
                during.pop().tips  # noqa: B018 - computes them
            return super().__getitem__(index)

    transcript = Transcript(Slow(messages), AppendLog([""]))
    during.append(transcript)
    assert transcript.tips == transcript.tips == Transcript.of(messages).tips


@pytest.mark.parametrize(
    "message",
    [
        Message("assistant", (Text("a"),)),
        Message("user", (Text("b"),)),
        Message("user", (Text("a"), Text(""))),
        Message("user", (Opaque("text", "a"),)),
        Message("user", (Media("image", "a", "r"),)),
        Message("user", (Media("image", "a", "s"),)),
        Message("user", (Media("audio", "a", "s"),)),
        Message("user", (ToolCall("i", "n", "{}"),)),
        Message("user", (ToolCall("i", "n", "{1}"),)),
        Message("user", (ToolCall("i", "m", "{}"),)),
        Message("user", (ToolCall("j", "n", "{}"),)),
        Message("user", (ToolResult("i", (Text("a"),)),)),
        Message("user", (ToolResult("i", (Text("b"),)),)),
        Message("user", (ToolResult("i", (Text("a"), Text("b"))),)),
        Message("user", (ToolResult("i", (Text("a"),)), Text("b"))),
        Message("user", (ToolResult("i", (Text("a"),), True),)),
        Message("user", (ToolResult("k", (Text("a"),)),)),
    ],
)
def test_messages_with_different_content_have_different_hashes(message):
    assert hash_message(message) != hash_message(user("a"))
    assert hash_message(message) == hash_message(Message(message.role, message.parts))


def test_hashes_depend_on_part_boundaries_but_not_on_thinking():
    parts = [
        (Text("ab"),),
        (Text("a"), Text("b")),
        (ToolResult("i", (Text("a"),)), Text("b")),
        (ToolResult("i", (Text("a"), Text("b"))),),
    ]
    assert len({hash_message(Message("user", p)) for p in parts}) == len(parts)
    assert hash_message(Message("user", (Thinking("x", "y"), Text("a")))) == hash_message(user("a"))
    assert hash_message(user("\ud800")) != hash_message(user(""))


def test_a_transcript_matches_only_edits_with_its_range_and_tip():
    transcript = Transcript.of(talk("a", "b"))
    tips = transcript.tips
    assert transcript.matches(Edit(0, 1, (), tips[1]))
    assert transcript.matches(Edit(1, 2, (), tips[2]))
    for start, stop, tip in (
        (1, 1, tips[1]),
        (2, 1, tips[1]),
        (-1, 1, tips[1]),
        (0, 3, tips[2]),
        (0, 2, tips[1]),
    ):
        assert not transcript.matches(Edit(start, stop, (), tip))


def test_a_role_may_be_any_text_that_json_can_hold():
    """Codecs pass on unknown roles, and JSON may contain half a surrogate pair."""
    envelope = open_payload([{"role": "\ud800", "content": "a"}], "anthropic")
    (message,) = envelope.decode()
    assert message.role == "\ud800"
    assert Transcript.of([message]).tips[1] not in (
        Transcript.of([Message(role, message.parts)]).tips[1] for role in ("", "user", "\ud801")
    )


def test_tips_are_the_same_whenever_they_are_computed():
    whole = Transcript.of(talk(*"abcd"))
    early, late = Transcript.of(talk(*"ab")), Transcript.of(talk(*"ab"))
    assert len(early.tips) == 3
    for transcript in (early, late):
        grown = transcript.extend(talk(*"abcd")[2:])
        assert len(grown.tips) == 5
        assert grown.tips == whole.tips
        assert transcript.tips == early.tips
        assert whole.tips[:3] == early.tips[:]


class Weighed(str):
    """A text that records in *hashed* when its bytes are requested."""

    __slots__ = ("hashed",)

    def __new__(cls, text, hashed):
        self = super().__new__(cls, text)
        self.hashed = hashed
        return self

    def encode(self, *how):
        self.hashed.append(str(self))
        return super().encode(*how)


def test_messages_are_hashed_lazily_and_only_once():
    """A turn without edits computes no hash."""
    hashed: list[str] = []
    messages = [user(Weighed(text, hashed)) for text in "abcd"]
    transcript = Transcript.of(messages[:2]).extend(messages[2:3])
    tail = LazyTips(transcript, 2)
    assert (len(transcript), len(tail), hashed) == (3, 2, [])
    assert tail[0] == transcript.tips[2]
    assert list(tail) == [*transcript.tips[2:]]
    assert hashed == ["a", "b", "c"]
    assert transcript.tips is transcript.tips
    assert len(transcript.extend(messages[3:]).tips) == 5
    assert hashed == ["a", "b", "c", "d"]


def test_lazy_tips_read_like_a_slice_of_the_tips():
    transcript = Transcript.of(talk(*"abc"))
    tips = tuple(transcript.tips)
    for start in range(5):
        tail = LazyTips(transcript, start)
        assert (len(tail), tuple(tail), tail[:], tail[1:]) == (
            4 - start,
            tips[start:],
            tips[start:],
            tips[start + 1 :],
        )
        assert bool(tail) is (start < 4)
    assert (LazyTips(transcript, 1)[-1], LazyTips(transcript, 1)[0]) == (tips[3], tips[1])
    with pytest.raises(IndexError):
        LazyTips(transcript, 2)[2]


def test_transcripts_are_equal_when_history_and_salt_are():
    transcript = Transcript.of(talk("a", "b"))
    assert transcript == Transcript.of(talk("a")).extend(talk("a", "b")[1:])
    assert transcript != Transcript.of(talk("a", "c")) and transcript != Transcript.of(talk("a"))
    assert transcript != Transcript.of(talk("a", "b"), salt="s")
    assert Transcript.of(talk("a"), salt="s") == Transcript.of(talk("a"), salt="s")
    assert Transcript.of() == Transcript.of() and Transcript.of() != Transcript.of(salt="s")
    assert transcript != 1 and transcript.__eq__(1) is NotImplemented
    assert repr(transcript) == "Transcript(2 messages)"


def test_a_messages_calls_and_results_include_those_of_server_side_tools():
    message = Message(
        "assistant",
        (
            ToolCall("a", "n", ""),
            Opaque("x", "", "b"),
            ToolResult("c"),
            Opaque("y", "", "", "d"),
            Opaque("z", ""),
        ),
    )
    assert message.calls == ("a", "b")
    assert message.results == ("c", "d")
    assert Message("user", (Text("a"), ToolResult("c"), Text("b"))).text == "a\nb"
    assert user("x").is_request
    assert not Message("user", (ToolResult("c"),)).is_request
    assert not Message("assistant", (Text("x"),)).is_request
    assert ToolResult("c", (Text("a"), Media("image"), Text("b"))).text == "a\nb"


# --- logs ------------------------------------------------------------------------------------


def test_logs_read_like_tuples():
    log = AppendLog("abc").extend("de")
    assert (log[0], log[-1], log[1:3], log[:], len(log)) == (
        "a",
        "e",
        ("b", "c"),
        tuple("abcde"),
        5,
    )
    assert list(log) == list("abcde") and "c" in log and log.index("c") == 2
    assert (log[::-2], log[::2]) == (("e", "c", "a"), ("a", "c", "e"))
    assert (log[False], log[True]) == ("a", "b")
    for wrong in (5, -6):
        with pytest.raises(IndexError):
            log[wrong]


def test_a_shorter_log_does_not_see_what_was_appended_to_its_buffer():
    short = AppendLog("ab")
    long = short.extend("cd")
    assert (list(short), len(short), short[-1], short[:]) == (["a", "b"], 2, "b", ("a", "b"))
    with pytest.raises(IndexError):
        short[2]
    assert short != long and short == AppendLog("ab") and short.__eq__(1) is NotImplemented
    assert (
        short.is_prefix_of(long)
        and short.is_prefix_of("abx")
        and not long.is_prefix_of(short)
        and not short.is_prefix_of("ax")
    )
    assert repr(short) == "AppendLog(['a', 'b'])"
    assert list(short.extend("x")) == ["a", "b", "x"] and list(long) == list("abcd")


# --- rules -----------------------------------------------------------------------------------


def test_free_cuts_are_the_positions_that_separate_no_pair():
    assert compute_cuts(4, []) == {0, 1, 2, 3, 4}
    assert compute_cuts(4, [(1, 2)]) == {0, 1, 3, 4}
    assert compute_cuts(4, [(0, 2), (1, 3)]) == {0, 4}
    assert compute_cuts(4, [(0, 1), (0, 2)]) == {0, 3, 4}
    assert compute_cuts(2, [(1, 9)]) == {0, 1}
    assert compute_cuts(0, []) == {0}


def test_violations_are_sorted_and_rules_receive_the_body():
    def judge(request):
        return [Fault(1, "b"), Fault(0, str(request.body.get("x")))]

    rules = Rules(
        (
            Rule("B", "t", judge, lambda _: [(0, 1)]),
            Rule("A", "t", lambda _: [Fault(1, "a", "s")]),
        )
    )
    assert [(v.rule, v.at, v.subject) for v in rules.check([])] == [
        ("B", 0, ""),
        ("A", 1, "s"),
        ("B", 1, ""),
    ]
    assert rules.check([], {"x": 1})[0].text == "1"
    assert rules.check([])[0].text == "None"
    assert rules.cuts(talk("a", "b")) == {0, 2}


# --- views -----------------------------------------------------------------------------------


def test_tokens_are_the_calibrated_sum_of_fixed_tokens_and_visible_messages():
    profile = Profile(words, RULES, fixed_tokens=100, calibrate=lambda n: 2 * n)
    view = View.of(talk("aaaa", "bbb", "cc"), profile=profile)
    assert (view.estimate, view.tokens, view.tokens_unedited) == (9, 218, 218)
    folded = view.apply(view.fold(1, 2, Message("assistant", (Text("b"),))))
    assert (folded.estimate, folded.tokens, folded.tokens_unedited) == (7, 214, 218)
    outer = folded.apply(view.fold(0, 2, user("x")))
    assert outer.estimate == 3
    assert outer.revert(outer.edits[1].id).estimate == 7
    assert outer.revert().estimate == 9
    assert outer.extend(talk("dddd")).estimate == 7


def test_items_state_the_messages_and_edit_shown_for_each_range():
    view = View.of(talk("a", "b", "c", "d"), profile=LENS)
    edit = view.fold(1, 3, Message("assistant", (Text("x"),)), by="me")
    items = view.apply(edit).items
    assert [(i.start, i.stop, i.messages[0].text, i.edit) for i in items] == [
        (0, 1, "a", None),
        (1, 3, "x", edit),
        (3, 4, "d", None),
    ]
    assert view.apply(edit).cuts == {0, 1, 3, 4}


def test_an_edit_name_is_the_first_eight_characters_of_its_id():
    view = View.of(talk("a", "b"), profile=LENS)
    edit = view.replace(1, Message("assistant", (Text("x"),)), by="me")
    assert edit.id.startswith(view.edit_name(1, 2, "me")) and len(view.edit_name(1, 2, "me")) == 8
    with pytest.raises(EditError, match="position 3 is not in a transcript of 2"):
        view.edit_name(2, 3, "me")
    with pytest.raises(EditError, match="position -1"):
        view.edit_name(2, -1, "me")


def test_an_ambiguous_id_is_refused():
    view = View.of(talk(*"abcdefghijklmnopqrstuvwxyzabcdefgh"), profile=LENS)
    view = view.apply(
        *(
            view.replace(i, m, by="same")
            for i, m in enumerate(talk(*"zyxwvutsrqponmlkjihgfedcbazyxwvuts"))
        )
    )
    starts = [edit.id[0] for edit in view.edits]
    common = max(starts, key=starts.count)
    with pytest.raises(EditError, match="more than one edit"):
        view.find(common)
    with pytest.raises(EditError):
        view.revert(common)


def test_views_are_equal_when_history_and_edits_are():
    view = View.of(talk("a", "b"), profile=LENS)
    assert view == View.of(talk("a", "b")) and hash(view) == hash(View.of(talk("a", "b")))
    assert view != View.of(talk("a", "c")) and view != View.of(talk("a")) and view != 1
    assert view != view.apply(view.replace(1, Message("assistant", (Text("x"),))))


def test_an_edit_inside_another_is_kept_but_does_not_show():
    view = View.of(talk(*"abcdef"), profile=LENS)
    outer, inner = view.fold(0, 4, user("o")), view.replace(1, Message("assistant", (Text("i"),)))
    both = view.apply(outer, inner)
    assert both.edits == (outer, inner) and [p.edit for p in both.visible_edits] == [outer]
    assert both.messages == view.apply(inner, outer).messages
    assert both.revert(outer.id).messages[1].text == "i"
    assert (
        view.apply(view.fold(0, 2, user("x")), view.fold(2, 4, user("y"))).messages[0].text
        == "x\ny\ne"
    )


def test_edits_that_touch_do_not_overlap():
    view = View.of(talk(*"abcdefgh"), profile=LENS)
    middle, front, back = (
        view.fold(2, 4, user("x")),
        view.fold(0, 2, user("y")),
        view.fold(4, 6, user("z")),
    )
    assert [p.edit for p in view.apply(middle, front, back).visible_edits] == [front, middle, back]
    assert view.apply(middle, front, back).estimate == 5


# --- the loop --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Script:
    """A strategy that yields the given steps and records the answers."""

    steps: tuple
    answers: list

    def __call__(self, view):
        for step in self.steps:
            self.answers.append((yield step(view) if callable(step) else step))

    def __repr__(self):
        return "Script()"


def fold(start, stop, text):
    return lambda view: view.fold(start, stop, user(text), by=text)


def test_attempts_count_edits_and_model_requests():
    view = View.of(talk("a" * 50, "b" * 50, "c" * 50, "d"), profile=LENS)
    answers: list = []
    script = Script(
        (Ask("q"), fold(0, 2, "x" * 200), Ask("r"), fold(0, 2, "x"), Ask("never reached")), answers
    )
    done = drive(
        compact_if_due(view, [script], Budget(100, 60)),
        ScriptedModel(["one", Answer("two", "length")]),
    )
    assert done.attempts == (Attempt("Script()", "applied", "", 151, 52, 1, asks=2, calls=2),)
    assert answers == [Answer("one"), None, Answer("two", "length"), None]
    assert done.view.tokens == 52


def test_attempts_without_an_edit_state_the_reason():
    view = View.of(talk("a" * 50, "b" * 50), profile=LENS)
    bad = Script((fold(0, 2, "x" * 200), lambda v: Edit(0, 1, (), "other history")), [])
    done = drive(compact_if_due(view, [bad, Script((), [])], Budget(10, 10)))
    assert [(a.outcome, a.edits_applied) for a in done.attempts] == [("rejected", 0), ("noop", 0)]
    assert (
        "makes nothing smaller" in done.attempts[0].reason
        and done.attempts[1].reason == "nothing to do"
    )
    assert done.view == view


@dataclass(frozen=True)
class Ends:
    """A strategy that yields the given steps, then reports how its run ended."""

    steps: tuple
    ending: Ending | None = None

    def __call__(self, view):
        for step in self.steps:
            yield step(view) if callable(step) else step
        return self.ending


@pytest.mark.parametrize(
    ("edits", "ends", "outcome", "reason"),
    [
        ((), Ending("failed", "nobody answered"), "failed", "nobody answered"),
        (
            ("x" * 200,),
            Ending("rejected", "the answer was no good"),
            "rejected",
            "the answer was no good",
        ),
        (
            ("x",),
            Ending("degraded", "rules instead of a model"),
            "degraded",
            "rules instead of a model",
        ),
        (("x",), Ending("failed", "the second question failed"), "applied", ""),
        (("x",), None, "applied", ""),
    ],
)
def test_an_ending_sets_the_outcome_if_no_edit_was_applied_or_it_is_degraded(
    edits, ends, outcome, reason
):
    """An accepted edit makes it `applied`, whatever else failed. Only `degraded` overrides that."""
    view = View.of(talk("a" * 50, "b" * 50, "c" * 50, "d"), profile=LENS)
    done = drive(
        compact_if_due(
            view, [Ends(tuple(fold(0, 2, text) for text in edits), ends)], Budget(100, 10)
        )
    )
    (attempt,) = done.attempts
    assert (attempt.outcome, attempt.reason) == (outcome, reason)


def test_an_attempt_records_its_edits_calls_cost_model_and_prompt():
    """Tokens of the request after each edit, US dollars of all calls, and the last named model and
    prompt."""
    view = View.of(talk("a" * 50, "b" * 50, "c" * 50, "d"), profile=LENS)
    asks = (Ask("q", prompt_id="short-1"), Ask("r", prompt_id="long-2"), Ask("s"), Ask("t"))
    run = Ends((*asks, fold(0, 2, "x"), fold(0, 3, "yy")))
    answers = [
        Answer("one", model="a", calls=2, cost=0.25),
        Answer("two", model="b", cost=0.5),
        Answer("three", calls=0),
        None,
    ]
    replies = iter(answers)
    (attempt,) = drive(
        compact_if_due(view, [run], Budget(100, 10)), lambda _: next(replies)
    ).attempts
    once = view.apply(view.fold(0, 2, user("x"), by="x"))
    twice = once.apply(once.fold(0, 3, user("yy"), by="yy"))
    assert attempt.edit_tokens == tuple(
        (edit.id, tokens) for edit, tokens in zip(twice.edits, (52, 3), strict=True)
    )
    assert (attempt.asks, attempt.calls, attempt.cost) == (4, 3, 0.75)
    assert (attempt.model, attempt.prompt) == ("b", "long-2")


def test_an_edit_that_saves_no_tokens_is_not_applied():
    view = View.of(talk("aa", "b"), profile=LENS)
    done = drive(compact_if_due(view, [Script((fold(0, 2, "xxx"),), [])], Budget(1, 1)))
    assert done.view.edits == ()


def test_later_strategies_do_not_run_once_it_fits():
    view = View.of(talk("a" * 50, "b" * 50, "c"), profile=LENS)
    done = drive(
        compact_if_due(view, [Script((fold(0, 2, "x"),), []), Script((), [])], Budget(50, 2))
    )
    assert len(done.attempts) == 1 and done.view.tokens == 2


def test_requests_are_answered_with_none_if_there_is_no_model():
    answers: list = []
    view = View.of(talk("a" * 50), profile=LENS)
    drive(compact_if_due(view, [Script((Ask("q"),), answers)], Budget(1, 1)))
    asyncio.run(adrive(compact_if_due(view, [Script((Ask("q"),), answers)], Budget(1, 1))))
    assert answers == [None, None]
    assert drive(_effects()) == 3 and asyncio.run(adrive(_effects())) == 3


def _effects():
    first = yield lambda: 1
    second = yield lambda: first + 1
    return first + second


@dataclass(frozen=True)
class Say:
    """A local strategy that replaces every message by this text."""

    text: str
    local = True

    def __call__(self, view, since=0):
        for at in range(since, len(view.transcript)):
            yield view.replace(
                at, Message(view.transcript.messages[at].role, (Text(self.text),)), by=repr(self)
            )


def test_the_smallest_local_edit_of_each_message_is_chosen():
    view = View.of(talk("aaaa", "bb", "c"), profile=LENS)
    edits = make_local_edits(view, [Say("xxx"), Say("yyy"), Say("z")])
    assert [(e.start, e.by) for e in edits] == [(0, "Say(text='z')"), (1, "Say(text='z')")]
    assert [e.by for e in make_local_edits(view, [Say("xxx"), Say("yyy")])] == ["Say(text='xxx')"]
    assert [e.start for e in make_local_edits(view, [Say("z")], since=1)] == [1]
    assert is_local(Say("x")) and not is_local(Script((), []))


def test_check_returns_hard_soft_or_none_by_the_thresholds():
    view = View.of(talk("a" * 10), profile=LENS)
    assert [
        Budget(n, 1, soft).check(view) for n, soft in ((10, None), (11, None), (11, 10), (12, 11))
    ] == [
        "hard",
        "none",
        "soft",
        "none",
    ]


# --- what is sent ----------------------------------------------------------------------------

MESSAGES = talk(*"abcdef")
X = user("x")


def edit(start: int, stop: int, *insert: Message) -> Edit:
    return Edit(start, stop, insert, "")


def entry(*pairs: tuple[Message, int | None]) -> list[RenderedMessage]:
    return [RenderedMessage(*pair) for pair in pairs]


def weave(*edits: Edit, messages=MESSAGES, alternate=True) -> list:
    profile = Profile(rules=Rules(alternate=alternate))
    return list(render(CountedTranscript.of(Transcript.of(messages), profile), edits))


def test_messages_without_edits_are_rendered_as_slices():
    assert weave() == [slice(0, 6)]
    assert weave(messages=()) == []
    assert weave(edit(1, 3)) == [slice(0, 1), slice(3, 6)]
    assert weave(edit(0, 6, X)) == [entry((X, None))]


def test_nothing_is_lost_before_a_system_message_that_an_edit_moves():
    first, note, last = user("a"), Message("system", (Text("s"),)), MESSAGES[1]
    messages = (first, note, last, user("c"), last)
    assert weave(edit(2, 4, X), messages=messages) == [
        entry((first, 0), (X, None)),
        slice(1, 2),
        slice(4, 5),
    ]


def test_messages_of_one_role_that_an_edit_makes_adjacent_are_joined():
    assert weave(edit(2, 4, X)) == [slice(0, 2), entry((X, None), (MESSAGES[4], 4)), slice(5, 6)]
    assert weave(edit(1, 2)) == [entry((MESSAGES[0], 0), (MESSAGES[2], 2)), slice(3, 6)]
    assert weave(edit(3, 4)) == [
        slice(0, 2),
        entry((MESSAGES[2], 2), (MESSAGES[4], 4)),
        slice(5, 6),
    ]
    assert weave(edit(2, 3), edit(4, 5)) == [
        slice(0, 1),
        entry((MESSAGES[1], 1), (MESSAGES[3], 3), (MESSAGES[5], 5)),
    ]
    assert weave(edit(0, 1, X), edit(1, 4, X)) == [
        entry((X, 0), (X, None), (MESSAGES[4], 4)),
        slice(5, 6),
    ]
    y = Message("assistant", (Text("y"),))
    assert weave(edit(4, 6, y)) == [slice(0, 3), entry((MESSAGES[3], 3), (y, None))]
    assert weave(edit(1, 2), edit(3, 4)) == [
        entry((MESSAGES[0], 0), (MESSAGES[2], 2), (MESSAGES[4], 4)),
        slice(5, 6),
    ]


def test_messages_of_one_role_that_were_adjacent_before_are_not_joined():
    messages = (*talk("a", "b", "c"), user("d"), user("e"))
    assert weave(edit(3, 4, X), messages=messages) == [slice(0, 3), entry((X, 3)), slice(4, 5)]
    assert weave(edit(2, 4, X, X), messages=messages) == [
        slice(0, 2),
        entry((X, 2)),
        entry((X, 3)),
        slice(4, 5),
    ]
    assert weave(edit(2, 3, X), edit(3, 4, X), messages=messages) == [
        slice(0, 2),
        entry((X, 2)),
        entry((X, 3)),
        slice(4, 5),
    ]


def test_nothing_is_joined_if_roles_need_not_alternate():
    assert weave(edit(2, 4, X), alternate=False) == [slice(0, 2), entry((X, None)), slice(4, 6)]
    assert weave(edit(1, 2), alternate=False) == [slice(0, 1), slice(2, 6)]


def test_an_inserted_message_of_the_transcript_keeps_its_position():
    assert weave(edit(0, 3, X, MESSAGES[1]), alternate=False) == [
        entry((X, None)),
        entry((MESSAGES[1], 1)),
        slice(3, 6),
    ]
    pieces = weave(edit(1, 5, MESSAGES[3], X), alternate=False)
    assert pieces == [slice(0, 1), entry((MESSAGES[3], 3)), entry((X, None)), slice(5, 6)]


def test_joined_messages_have_the_parts_of_all():
    assert list(flatten([entry((X, None))], ())) == [X]
    joined = Message("user", (Text("x"), Text("y")))
    assert list(flatten([entry((X, None), (user("y"), 3))], ())) == [joined]
    assert has_same_shape(X, user("z"))
    assert not has_same_shape(X, MESSAGES[1])
    assert not has_same_shape(X, Message("user", (ToolResult("c"),)))
    assert not has_same_shape(Message("assistant", (ToolCall("c", "n", ""),)), MESSAGES[1])


def payload() -> list[dict]:
    call = {"type": "tool_use", "id": "t", "name": "read", "input": {}}
    return [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "text", "text": "reading"}, call]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": "long " * 50, "x": 1}
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
        {"role": "user", "content": "on"},
    ]


def open_view(wires: list[dict]) -> View:
    envelope = open_payload(wires, "anthropic")
    return View.of(envelope.decode(), profile=LENS, source=envelope)


def test_a_payload_is_changed_only_where_it_was_edited():
    wires = payload()
    view = open_view(wires)
    cleared = view.apply(
        view.replace(2, Message("user", (ToolResult("t", (Text("-"),)),)), by="me")
    )
    sent = cleared.payload
    assert [a is b for a, b in zip(sent, wires, strict=True)] == [True, True, False, True, True]
    assert sent[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "t", "content": "-", "x": 1}
    ]
    assert cleared.unfold(cleared.edits[0].id) == [wires[2]]
    assert cleared.unfold(cleared.edits[0].id)[0] is wires[2]
    assert view.apply(view.replace(4, view.messages[4], by="as it is")).payload == wires


def test_an_inserted_message_is_joined_with_the_next_entry_in_the_payload():
    wires = payload()
    view = open_view(wires)
    folded = view.apply(view.fold(0, 4, user("so far")))
    assert folded.payload == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "so far"}, {"type": "text", "text": "on"}],
        }
    ]
    assert [m.parts for m in folded.messages] == [(Text("so far"), Text("on"))]
    assert folded.unfold(folded.edits[0].id) == wires[:4]


def test_a_grown_view_is_encoded_into_the_longer_payload():
    wires = payload()
    view = open_view(wires[:4])
    folded = view.apply(view.fold(0, 3, user("so far")))
    envelope = open_payload(wires, "anthropic")
    grown = folded.extend(envelope.decode(4))
    assert grown.encode(envelope) == [{"role": "user", "content": "so far"}, *wires[3:]]
    assert grown.estimate == folded.estimate + words(grown.transcript.messages[4])


def test_the_payload_of_a_view_without_a_source_is_its_messages():
    view = View.of(talk("a", "b"), profile=LENS)
    assert view.payload == list(talk("a", "b"))
    cleared = view.apply(view.fold(1, 2))
    assert cleared.unfold(cleared.edits[0].id) == [talk("a", "b")[1]]


# --- thinking that is bound ------------------------------------------------------------------


def thinking(*texts: str, signature: str = "s") -> Message:
    return Message("assistant", (Thinking("hm", signature), *map(Text, texts)))


def test_only_thinking_that_a_late_edit_invalidates_is_dropped():
    messages = (
        user("a" * 90),
        thinking("b"),
        user("c" * 90),
        thinking("d"),
        thinking(signature=""),
        user("e"),
        thinking("f"),
    )
    view = View.of(messages, profile=LENS)
    late = view.apply(view.fold(2, 3, user("x"), by="me"))
    after = drop_invalidated_thinking(late, view)
    assert [m.parts for m in after.messages if m.role == "assistant"] == [
        messages[1].parts, (Text("d"),), messages[4].parts, (Text("f"),)
    ]  # fmt: skip
    assert {e.by for e in after.edits} == {"me", STRIP_THINKING_BY}
    assert STRIP_THINKING_BY == "settle"
    assert drop_invalidated_thinking(view, view) is view


def test_thinking_after_the_earliest_of_several_late_edits_is_dropped():
    """AN-7: of several edits made at once, in any order, the first in the history unbinds all
    thinking after it."""
    messages = [
        message
        for at in range(4)
        for message in (user(f"{at} " * 50), Message("assistant", (Thinking("hm", "s"), Text("b"))))
    ]
    view = View.of(messages, profile=LENS)
    for first, then in ((0, 4), (4, 0)):
        late = view.apply(view.replace(first, user("x")), view.replace(then, user("y")))
        assert not any(
            isinstance(part, Thinking)
            for message in drop_invalidated_thinking(late, view).messages
            for part in message.parts
        )


def test_a_message_of_only_invalidated_thinking_is_hidden():
    messages = (user("a" * 90), thinking(), user("b"), thinking("c"))
    view = View.of(messages, profile=LENS)
    after = drop_invalidated_thinking(view.apply(view.fold(0, 1, user("x"))), view)
    assert [m.text for m in after.messages] == ["x\nb", "c"]


def test_clearing_the_oldest_thinking_does_not_drop_later_thinking():
    messages = (user("a"), thinking("b"), user("c"), thinking("d"))
    view = View.of(messages, profile=LENS)
    cleared = view.apply(view.replace(1, Message("assistant", (Text("b"),)), by="ClearThinking"))
    assert (
        drop_invalidated_thinking(cleared, view) is cleared
        or drop_invalidated_thinking(cleared, view).edits == cleared.edits
    )


@pytest.mark.parametrize("mode", ["fixed", "loop"])
def test_thinking_that_is_not_bound_to_its_prefix_is_kept(mode):
    messages = (user("a" * 90), thinking("b"), user("c"), thinking("d"))
    view = View.of(
        messages, profile=Profile(words, Rules(anthropic.RULES, alternate=True, thinking=mode))
    )
    late = view.apply(view.fold(0, 1, user("x")))
    assert drop_invalidated_thinking(late, view) is late


def test_a_revert_drops_thinking_after_the_reverted_edit():
    """AN-7 AN-11: thinking after the edit is bound to the edited text. Where nothing changed,
    nothing is dropped."""
    messages = (user("a"), thinking("b"), user("c" * 90), thinking("d"), user("e"), thinking("f"))
    view = View.of(messages, profile=LENS)
    before = view.apply(view.fold(2, 3, user("x"), by="me"))
    after = before.revert()
    assert [(edit.start, edit.insert, edit.by) for edit in edits_after_revert(after, before)] == [
        (3, (Message("assistant", (Text("d"),)),), STRIP_THINKING_BY),
        (5, (Message("assistant", (Text("f"),)),), STRIP_THINKING_BY),
    ]
    assert edits_after_revert(before, before) == [] == edits_after_revert(view, view)
    fixed = Rules(anthropic.RULES, alternate=True, thinking="fixed")
    unbound = View.of(messages, profile=Profile(words, fixed))
    assert edits_after_revert(unbound, unbound.apply(*before.edits)) == []


def test_the_current_turn_of_an_unknown_model_keeps_its_signed_thinking():
    """The name may be an alias of a model that binds its thinking, or of one that requires it."""
    messages = (user("a"), thinking("b"), user("c"), thinking("d"))
    view = View.of(messages, profile=Profile(words, Rules(anthropic.RULES, alternate=True)))
    after = drop_invalidated_thinking(view.apply(view.fold(0, 1, user("x"))), view)
    assert [part for part in after.messages[1].parts if isinstance(part, Thinking)] == []
    assert after.messages[3] is view.messages[3]


# --- details ---------------------------------------------------------------------------------


def test_nested_or_adjacent_edits_inside_an_outer_edit_do_not_cross():
    view = View.of(talk(*"abcdefgh"), profile=LENS)
    outer = view.fold(0, 8, user("o"))
    spans = [(2, 6), (2, 4), (4, 6), (6, 8), (1, 2), (2, 6)]
    inner = [view.fold(a, b, by=str(i)) for i, (a, b) in enumerate(spans)]
    assert view.apply(outer, *inner).edits == (outer, *inner)
    for crossing in ((1, 3), (5, 7), (3, 5)):
        with pytest.raises(EditError, match="cuts through"):
            view.apply(outer, *inner, view.fold(*crossing, by="crossing"))


def test_budget_and_edit_errors_state_the_reason():
    with pytest.raises(
        ValueError, match=r"^the target \(2\) must lie between 0 and the trigger \(1\)$"
    ):
        Budget(1, 2)
    with pytest.raises(
        ValueError, match=r"^the soft level \(3\) must not exceed the trigger \(2\)$"
    ):
        Budget(2, 1, 3)
    assert Budget(2, 1, 2).soft == 2
    with pytest.raises(
        ValueError, match=r"^a reserve of 20000 tokens leaves nothing of a window of 20000$"
    ):
        Budget.of_window(20_000)
    assert Budget.of_window(20_001) == Budget(1, 0)
    assert Budget.of_window(30_000, 10_000, 0.25) == Budget(20_000, 5_000)
    view = View.of(talk("a", "b"), profile=LENS)
    with pytest.raises(EditError, match=r"^no edit of this view starts with 'zz'$"):
        view.find("zz")
    bad = Script((lambda v: Edit(0, 1, (), "other history"),), [])
    done = drive(compact_if_due(view, [bad], Budget(1, 1)))
    assert "was made for another history" in done.attempts[0].reason


def test_an_async_model_function_receives_the_request():
    asked = []

    async def ask(question: Ask) -> Answer:
        asked.append(question)
        return Answer("a")

    view, answers = View.of(talk("a" * 50), profile=LENS), []
    asyncio.run(adrive(compact_if_due(view, [Script((Ask("q"),), answers)], Budget(1, 1)), ask))
    assert (asked, answers) == ([Ask("q")], [Answer("a")])


def test_different_views_have_different_hashes():
    view = View.of(talk("a", "b"), profile=LENS)
    changed = view.apply(view.replace(1, Message("assistant", (Text("x"),))))
    assert len({hash(view), hash(changed), hash(View.of(talk("a"))), hash(View.of(()))}) == 4


# --- what the mutation run asked for (docs/decisions/0010-mutants.md) -------------------------


TIPS = [
    "",
    "5e93961215690abc91dd7b3bfbc182da",
    "80a0859080dbe9eea5164dce865fe739",
    "75701f1dd9c17ee9971e269fc4a29db6",
]
SALTED = "a80e0c5938f5d3221d986f2fb430c5a4"


def test_tips_are_the_same_in_every_version():
    """Stores find edits by tips: a version with other hashes would lose every stored edit."""
    messages = [
        user("Fix it. 修好它。\ud800"),
        Message(
            "assistant", (Thinking("hm", "s"), Text("ok"), ToolCall("c", "read", '{"path":"a"}'))
        ),
        Message(
            "user",
            (
                ToolResult("c", (Text("x"), Media("image", "image/png", "r", 1, 2)), True),
                Opaque("k", "{}"),
            ),
        ),
    ]
    assert list(Transcript.of(messages).tips) == TIPS
    assert Transcript.of((), salt="tenant").tips[0] == SALTED


def test_the_first_extension_shares_the_buffer_and_a_fork_does_not():
    short = AppendLog("ab")
    long, fork = short.extend("c"), short.extend("d")
    assert long._buffer is short._buffer
    assert fork._buffer is not short._buffer
    with pytest.raises(IndexError, match=r"^9$"):
        short[9]


def test_a_strategy_is_stopped_as_soon_as_the_view_fits():
    view = View.of(talk("a" * 50, "b" * 50, "c" * 50, "d" * 50), profile=LENS)
    target = view.apply(view.fold(0, 1, user("x"))).tokens
    done = drive(
        compact_if_due(
            view, [Script((fold(0, 1, "x"), fold(2, 3, "y")), [])], Budget(target, target)
        )
    )
    assert (done.view.tokens, len(done.view.edits)) == (target, 1)


def test_a_sync_model_function_receives_the_request():
    model = ScriptedModel(["a"])
    drive(
        compact_if_due(
            View.of(talk("a" * 50), profile=LENS), [Script((Ask("q"),), [])], Budget(1, 1)
        ),
        model,
    )
    assert model.asked == [Ask("q")]


def test_apply_valid_skips_invalid_edits_and_applies_the_rest():
    view = View.of(talk(*"abcd"), profile=LENS)
    good = view.fold(1, 3)
    assert view.apply_valid([Edit(0, 1, (X,), "elsewhere"), good]).edits == (good,)
    assert good.by == ""
    assert view.replace(0, X).by == ""


def test_items_between_edits_are_listed_once():
    view = View.of(talk(*"abcdef"), profile=LENS)
    both = view.apply(
        view.replace(1, Message("assistant", (Text("x"),))),
        view.replace(3, Message("assistant", (Text("y"),))),
    )
    assert [item.start for item in both.items] == [0, 1, 2, 3, 4, 5]


def test_system_messages_that_an_edit_moves_stay_in_their_order():
    system = [Message("system", (Text(text),)) for text in "AB"]
    first, reply, request, answer = talk("0" * 9, "1" * 9, "2" * 9, "3")
    view = View.of((first, reply, *system, request, answer), profile=LENS)
    view = view.apply(view.fold(0, 2, user("x")), view.fold(4, 5, user("y")))
    assert view.messages == (Message("user", (Text("x"), Text("y"))), *system, answer)


def test_a_fold_may_span_the_only_two_cuts_and_insert_a_call_with_its_result():
    call, answer = (
        Message("assistant", (ToolCall("c", "n", ""),)),
        Message("user", (ToolResult("c", (Text("r"),)),)),
    )
    view = View.of((call, answer), profile=Profile(words, Rules(anthropic.RULES)))
    assert view.cuts == {0, 2}
    assert view.fold(0, 2, X).stop == 2
    short = View.of(talk(*"abcd"), profile=Profile(words, Rules(anthropic.RULES)))
    with pytest.raises(EditError, match="do not pair"):
        short.fold(1, 3, answer, call)
    bare = View.of(
        talk(*"abcd"),
        profile=Profile(
            words,
            Rules(
                (
                    Rule(
                        "T",
                        "t",
                        lambda _: (),
                        lambda request: ((0, 1),) if len(request.messages) == 2 else (),
                    ),
                )
            ),
        ),
    )
    assert bare.fold(1, 3, call, answer).insert == (call, answer)
    with pytest.raises(EditError, match="position 0 is not in"):
        bare.edit_name(0, 0, "")


def test_the_error_for_an_ambiguous_id_states_the_prefix():
    view = View.of(talk(*"abcd"), profile=LENS)
    view = view.apply(*(view.replace(0, user("x" * n), by=str(n)) for n in range(1, 40)))
    digit = next(d for d in "0123456789abcdef" if sum(e.id.startswith(d) for e in view.edits) > 1)
    with pytest.raises(EditError, match=f"^more than one edit of this view starts with '{digit}'$"):
        view.find(digit)


# --- applied edits ---------------------------------------------------------------------------


def test_an_edit_that_another_edit_hides_saves_no_tokens():
    view = View.of(talk(*"abcdefgh"), profile=Profile(words))
    under = view.replace(4, user(""), by="inner")
    stack = view.apply(view.fold(0, 2, user("x")), view.fold(2, 6, user("y"))).edit_stack()
    with pytest.raises(EditError, match=rf"edit {under.id} \(4:5\) makes nothing smaller"):
        stack.add(replace(under, insert=(user("e"),)), smaller=True)
    assert len(stack.edits) == 2
    stack.add(replace(under, insert=(user("e"),)))
    assert [edit.by for edit in stack.edits][2:] == ["inner"] and stack.estimate == 4


def test_continuity_rules_apply_only_to_their_thinking_mode():
    before, after = Request(talk("a")), Request(talk("a", "b"))
    compared: list[tuple[Request, Request]] = []

    def judge(before: Request, after: Request) -> list[Fault]:
        compared.append((before, after))
        return [Fault(1, "later"), Fault(0, "first")]

    rules = (
        ContinuityRule("G-2", "grows", judge, ("bound",)),
        ContinuityRule("G-1", "grows", lambda *_: [Fault(1, "as late")], ("bound",)),
        ContinuityRule("L", "never", judge, ("loop",)),
    )
    violations = Rules(thinking="bound", continuity=rules).check_continuity(before, after)
    assert compared == [(before, after)] and [(v.at, v.rule) for v in violations] == [
        (0, "G-2"),
        (1, "G-1"),
        (1, "G-2"),
    ]
    assert Rules(thinking="free", continuity=rules).check_continuity(before, after) == ()


def test_edits_are_found_by_unique_id_prefixes():
    turns = [
        {"role": ("user", "assistant")[n % 2], "content": f"{n}: " + "some words " * 90}
        for n in range(300)
    ]
    view = refold.compact(turns, to=3_000)
    by_ids = {edit.id: edit for edit in view.edits}
    assert view.find_all(by_ids) == list(by_ids.values())
    assert view.find_all(id[:12] for id in by_ids) == list(by_ids.values())
    assert view.find_all(view.edits) == list(view.edits)
    edit = view.edits[-1]
    assert view.unfold(edit) == view.unfold(edit.id) and view.revert(edit) == view.revert(edit.id)
    for wrong in (None, 5):
        with pytest.raises(refold.EditError, match=f"name an edit by its id, .* not by {wrong}"):
            view.unfold(wrong)
    for wrong in ("", "xyz"):
        with pytest.raises(refold.EditError, match="no edit"):
            view.find_all([wrong])


def test_find_refuses_an_id_prefix_that_several_edits_share():
    messages = [user(f"{n} " + "words " * 50) for n in range(40)]
    view = refold.View.of(messages)
    view = view.apply(*(view.replace(at, user("short"), by="a hand") for at in range(40)))
    ids = sorted(edit.id for edit in view.edits)
    first = next(id[0] for id, after in pairwise(ids) if id[0] == after[0])
    with pytest.raises(refold.EditError, match="more than one"):
        view.find(first)


def test_refuses_blank_texts_where_the_provider_does():
    """Such an edit was taken, and Anthropic refused the request (AN-5)."""
    history = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "Done."}]
    body = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": history}
    view = refold.Compactor()(body)
    for insert in (user("  "), Message("user", (Text("a"), Text("\n")))):
        with pytest.raises(EditError, match="empty"):
            view.apply(view.replace(0, insert))
    chat = refold.Compactor()({"model": "gpt-5", "messages": history})
    chat = chat.apply(chat.replace(0, user("  ")))
    assert chat.messages[0] == user("  ") and not refold.check(chat.payload)


def test_an_edit_may_keep_a_blank_text_that_the_message_had():
    history = [{"role": "user", "content": [{"type": "text", "text": t} for t in (" ", "Go.")]}]
    view = refold.Compactor()({"model": "claude-opus-5-5", "max_tokens": 100, "messages": history})
    shown = Message("user", (Text(" "), Text("[gone]")))
    assert view.apply(view.replace(0, shown)).messages == (shown,)
