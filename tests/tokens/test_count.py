"""Counts of messages, fixed parts and media, and their breakdown."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold import Budget, Compactor
from refold.core.profile import Profile
from refold.core.view import View
from refold.core.view_lines import break_down
from refold.messages import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult, user
from refold.tokens.count import (
    CALL,
    MAX_IMAGE_TOKENS,
    MESSAGE,
    RESULT,
    TOKENS_PER_PAGE,
    TOOL,
    UNKNOWN,
    count_fixed,
    count_message,
    counter,
    estimate,
    media_tokens,
    part_tokens,
    tile_tokens,
)

words = counter(lambda text: len(text.split()))


def test_framing_is_added_to_each_message_call_and_result():
    call = Message("assistant", (ToolCall("c1", "read", "{} {}"),))
    result = Message("tool", (ToolResult("c1", (Text("one two"), Text("three"))),))
    assert words(user("one two three")) == MESSAGE + 3
    assert words(call) == MESSAGE + CALL + 1 + 2
    assert words(result) == MESSAGE + RESULT + 3
    assert words(Message("user")) == MESSAGE


def test_ids_of_calls_are_not_counted():
    short, long = (Message("assistant", (ToolCall(id, "read", "{}"),)) for id in ("c", "c" * 1_000))
    assert count_message(short) == count_message(long)


def test_thinking_counts_as_its_text_or_by_the_size_of_its_signature():
    assert words(Message("assistant", (Thinking("one two", "x" * 13),))) == MESSAGE + 2
    assert words(Message("assistant", (Thinking("one two", "x" * 6_500),))) == MESSAGE + 1_000
    assert words(Message("assistant", (Thinking("", "x" * 6_500),))) == MESSAGE + 1_000


def test_system_and_tools_are_counted():
    assert count_fixed((), ()) == 0
    assert count_fixed((Text("a b c"),), (), lambda text: len(text.split())) == MESSAGE + 3
    assert count_fixed((), ('{"name": 1}', "{}"), lambda text: len(text.split())) == 3 + 2 * TOOL


BLOB = base64.b64encode(bytes(range(256)) * 400).decode()


@pytest.mark.parametrize(
    "wrap", ["{}", "{}\\n", "\\n".join(["{}"] * 2)], ids=["bare", "with a line end", "twice"]
)
def test_base64_in_an_unknown_part_never_counts_as_text(wrap):
    json = '{"data":"' + wrap.format(BLOB, BLOB) + '","note":"two words"}'
    assert part_tokens(Opaque("x", json)) <= 2 * UNKNOWN + 30
    assert part_tokens(Opaque("x", json)) > part_tokens(
        Opaque("x", '{"data":"","note":"two words"}')
    )


def test_base64_broken_into_lines_never_counts_as_text():
    lines = "\\n".join(BLOB[at : at + 76] for at in range(0, len(BLOB), 76))
    assert (
        part_tokens(Opaque("x", '{"data":"' + lines + '"}')) <= UNKNOWN + 50
    )  # the last, short line


def test_an_unknown_part_without_base64_counts_as_its_json():
    json = '{"text":"' + "some words here, " * 100 + '"}'
    assert part_tokens(Opaque("x", json)) == estimate(json)


@given(st.text('aA0+/=\\nr-_ "', max_size=3_000))
def test_an_unknown_part_never_counts_more_than_its_text(json):
    assert part_tokens(Opaque("x", json * 3), len) <= 3 * len(json)


@pytest.mark.parametrize(
    ("media", "tokens"),
    [
        (Media("image", width=1000, height=750), 1000),
        (Media("image", width=10_000, height=7_500), MAX_IMAGE_TOKENS),
        (Media("image", width=10_000, height=100), 33),
        (Media("image", width=1, height=1), 1),
        (Media("image", size=5_000_000), UNKNOWN),
        (Media("image", ref="https://example.org/a.png"), UNKNOWN),
        (Media("document", "application/pdf", size=120_000), 3 * TOKENS_PER_PAGE),
        (Media("document", "application/pdf"), UNKNOWN),
        (Media("document", "text/plain", size=400), 100),
        (Media("audio", "audio/mp3", size=160_000), 320),
        (Media("video", "video/mp4", size=250_000), 295),
    ],
)
def test_media_are_counted_by_kind_and_size(media, tokens):
    assert media_tokens(media) == tokens


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [(512, 512, 255), (1024, 1024, 765), (2048, 4096, 1105), (4096, 8192, 1105)],
)
def test_images_are_counted_by_tiles(width, height, tokens):
    """The examples of OpenAI's vision guide."""
    assert tile_tokens(Media("image", width=width, height=height)) == tokens


def test_tile_tokens_counts_other_media_by_the_common_formula():
    for media in (Media("image"), Media("audio", size=1_000)):
        assert tile_tokens(media) == media_tokens(media)


# --- breakdown ------------------------------------------------------------------------------------

SESSION = [
    user("Fix the bug, please."),
    Message(
        "assistant",
        (Thinking("Let me look."), Text("Reading."), ToolCall("c1", "read", '{"path":"a.py"}')),
    ),
    Message(
        "tool",
        (ToolResult("c1", (Text("def f(): pass\n" * 50), Media("image", width=300, height=250))),),
    ),
    Message("assistant", (Opaque("citation", '{"x":1}'), Text("Done."))),
]


def test_a_breakdown_adds_up_by_role_by_kind_and_by_name():
    """Seed row S4-02: a report of where the tokens are."""
    view = View.of(SESSION, profile=Profile(fixed_tokens=500))
    cut = break_down(view)
    assert cut.total == view.tokens
    for part in (cut.roles, cut.kinds, cut.names):
        assert sum(part.values()) == cut.total
        assert list(part.values()) == sorted(part.values(), reverse=True)
    assert cut.messages == tuple(map(count_message, SESSION))
    assert set(cut.roles) == {"system", "user", "assistant", "tool"}
    assert set(cut.kinds) == {"text", "thinking", "call", "result", "opaque", "framing", "system"}
    assert set(cut.names) == {"", "read"}
    assert cut.names["read"] == cut.kinds["call"] + cut.kinds["result"]


def test_a_breakdown_counts_the_edited_view_or_the_reverted_one():
    view = View.of(SESSION)
    shorter = Message("tool", (ToolResult("c1", (Text("[cleared]"),)),))
    edited = view.apply(view.replace(2, shorter))
    assert break_down(edited).total == edited.tokens < view.tokens
    assert break_down(edited.revert()) == break_down(view)


def test_system_prompt_and_tools_are_counted_separately_for_a_payload(anthropic_view):
    cut = break_down(anthropic_view)
    assert cut.total == anthropic_view.tokens_uncalibrated
    assert cut.system == count_fixed((Text("You are a coder. " * 20),), ())
    assert cut.tools > TOOL


@pytest.fixture
def anthropic_view():
    body = {
        "model": "claude-opus-4-5",
        "max_tokens": 100,
        "system": "You are a coder. " * 20,
        "tools": [
            {"name": "read", "description": "Reads a file", "input_schema": {"type": "object"}}
        ],
        "messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}],
    }
    return Compactor([], Budget(trigger=100_000, target=50_000))(body)
