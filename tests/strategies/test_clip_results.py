"""ClipResults keeps head and tail of long results when they first appear."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.core.profile import Profile
from refold.core.view import View
from refold.edits import Edit
from refold.messages import Media, Message, Opaque, Text, ToolCall, ToolResult, user
from refold.strategies.first_sight import ClipResults
from refold.testing import check_strategy, proposals, transcripts

IMAGE = Media("image", "image/png", "blake2b:00", 640, 480)


def talk_with(*content: Text | Media | Opaque, error: bool = False) -> tuple[Message, ...]:
    return (
        user("x"),
        Message("assistant", (ToolCall("c1", "bash", '{"command":"make"}'),)),
        Message("user", (ToolResult("c1", content, error),)),
    )


def clip(text: str, limit: int = 1_000) -> str:
    view = proposals(View.of(talk_with(Text(text))), ClipResults(limit))
    return view.messages[2].parts[0].text


@given(transcripts(), st.integers(400, 2_000), st.floats(0, 1))
def test_it_keeps_the_laws(messages: tuple[Message, ...], limit: int, head: float) -> None:
    check_strategy(ClipResults(limit, head), examples=[messages])


@given(transcripts(tidy=False))
def test_it_keeps_the_laws_for_invalid_histories_too(messages: tuple[Message, ...]) -> None:
    check_strategy(ClipResults(400), examples=[messages])


@given(transcripts())
def test_a_second_run_finds_nothing_to_clip(messages: tuple[Message, ...]) -> None:
    once = proposals(View.of(messages), ClipResults(400))
    again = proposals(View.of(once.messages), ClipResults(400))
    assert again.edits == ()


@given(st.text("ab你\n 👨‍👩‍👧", max_size=3_000), st.integers(400, 2_000))
def test_a_clipped_text_has_at_most_limit_characters(text: str, limit: int) -> None:
    shown = clip(text, limit)
    assert len(shown) <= max(limit, 0) or shown == text
    assert shown == text or len(text) > limit


def test_the_mark_gives_the_number_of_omitted_characters_and_the_edit() -> None:
    bare = View.of(talk_with(Text("x" * 10_000)))
    view = proposals(bare, ClipResults(1_000))
    (edit,) = view.edits
    assert (
        view.messages[2].parts[0].text
        == f"{'x' * 450}\n[… 9,100 characters left out (edit {edit.id[:8]}) …]\n{'x' * 450}"
    )
    assert view.unfold(edit.id[:8]) == [bare.messages[2]]


def test_error_lines_of_the_omitted_part_are_kept_in_order() -> None:
    noise = "\n".join(f"compiling part {n}" for n in range(500))
    shown = clip(f"{noise}\nexit code 2\n{noise}\nmain.c:3: error: no such thing\n{noise}")
    lines = shown.split("\n")
    mark = next(n for n, line in enumerate(lines) if "left out" in line)
    assert lines[mark].endswith("among them:")
    assert lines[mark + 1 : mark + 4] == ["exit code 2", "main.c:3: error: no such thing", "…]"]


def test_the_limit_covers_all_texts_of_a_result_and_media_are_kept() -> None:
    opaque = Opaque("future", "{}")
    content = (Text("a" * 900), IMAGE, Text("b" * 900), opaque, Text("c" * 900))
    view = proposals(View.of(talk_with(*content)), ClipResults(1_000))
    shown = view.messages[2].parts[0].content
    assert [type(part) for part in shown] == [Text, Media, Opaque, Text]
    assert shown[0].text.startswith("a" * 450 + "\n[… ")
    assert shown[-1].text == "c" * 450
    assert shown[1:3] == (IMAGE, opaque)


def test_each_result_of_a_message_is_clipped_on_its_own() -> None:
    messages = (
        user("x"),
        Message("assistant", (ToolCall("a", "bash", "{}"), ToolCall("b", "bash", "{}"))),
        Message(
            "user",
            (
                ToolResult("a", (Text("a" * 5_000),)),
                ToolResult("b", (Text("ok"),)),
                Text(""),
                Text("so?"),
            ),
        ),
    )
    view = proposals(View.of(messages), ClipResults(1_000))
    first, second, text = view.messages[2].parts
    assert (len(first.text) <= 1_000, second, text) == (True, messages[2].parts[1], Text("so?"))


def test_a_clipped_error_result_is_still_an_error() -> None:
    view = proposals(View.of(talk_with(Text("x" * 9_000), error=True)), ClipResults())
    assert view.messages[2].parts[0].error


def test_a_message_that_a_stored_edit_replaces_is_not_clipped() -> None:
    bare = View.of(talk_with(Text("x" * 9_000)))
    shown = bare.messages[2]
    stored = bare.apply(bare.replace(2, shown, by="as said"))
    assert list(ClipResults()(stored)) == []


def test_only_messages_from_the_given_position_on_are_clipped() -> None:
    messages = [*talk_with(Text("x" * 9_000)), *talk_with(Text("y" * 9_000))[1:]]
    view = View.of(messages)
    edits = [edit for edit in ClipResults()(view, 3) if isinstance(edit, Edit)]
    assert [edit.start for edit in edits] == [4]


def test_an_edit_that_would_not_be_smaller_is_not_made() -> None:
    view = View.of(talk_with(Text("x" * 9_000)), profile=Profile(count=lambda _: 7))
    assert list(ClipResults()(view)) == []


@pytest.mark.parametrize("settings", [{"limit": 399}, {"limit": -1}, {"head": 1.5}, {"head": -0.1}])
def test_invalid_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"limit|head"):
        ClipResults(**settings)


def test_the_repr_shows_every_setting() -> None:
    assert repr(ClipResults()) == "ClipResults(limit=4000, head=0.5, version=1, scorer=None)"
    assert replace(ClipResults(), limit=500) == eval(repr(ClipResults(500)))
