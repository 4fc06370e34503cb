"""ClearToolInputs: long arguments of old calls."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.core.view import View
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.rules import anthropic
from refold.rules.rule import Rules
from refold.strategies.clear import ClearToolInputs
from refold.testing import check_strategy, proposals, transcripts

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=30),
        st.text('ab"\\\n你: ', min_size=190, max_size=400),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=12,
)
CODE = 'print("你好")\n' * 100


def session(*arguments: str, answered: bool = True) -> View:
    messages = [user("x")]
    for n, text in enumerate(arguments):
        messages.append(Message("assistant", (ToolCall(f"c{n}", "write", text),)))
        if answered:
            messages.append(Message("tool", (ToolResult(f"c{n}", (Text("ok"),)),)))
    return View.of([*messages, Message("assistant", (Text("so"),))])


def shorten(arguments: str) -> str:
    view = proposals(session(arguments), ClearToolInputs(keep=0, min_tokens=0))
    return view.messages[1].parts[0].arguments


@given(transcripts(), st.integers(0, 3))
def test_it_keeps_the_laws(messages: tuple[Message, ...], keep: int) -> None:
    check_strategy(
        ClearToolInputs(keep, min_tokens=0),
        Rules(anthropic.RULES, alternate=True),
        examples=[messages],
    )


@given(st.dictionaries(st.text(max_size=9), VALUES, max_size=5), st.booleans())
def test_shortened_arguments_keep_their_keys_numbers_and_short_strings(
    fields: dict[str, object], ascii_: bool
) -> None:
    arguments = json.dumps(fields, ensure_ascii=ascii_)
    shown = shorten(arguments)
    assert_alike(fields, json.loads(shown))
    assert shorten(shown) == shown


def assert_alike(before: object, after: object) -> None:
    if isinstance(before, dict):
        assert list(before) == list(after)
        for key, value in before.items():
            assert_alike(value, after[key])
    elif isinstance(before, list):
        assert len(before) == len(after)
        for pair in zip(before, after, strict=True):
            assert_alike(*pair)
    elif isinstance(before, str) and before != after:
        assert f"[… {len(before):,} characters in all (edit " in after
        assert len(before) > 200 > len(after)
    else:
        assert repr(before) == repr(after)


def test_a_long_string_is_cut_to_its_beginning_and_a_note_of_its_length() -> None:
    view = proposals(
        session(json.dumps({"content": CODE, "path": "a.py"}, ensure_ascii=False)),
        ClearToolInputs(keep=0),
    )
    (edit,) = view.edits
    opening = " ".join(CODE[:80].split())
    note = f"{opening} [… 1,200 characters in all (edit {edit.id[:8]})]"
    assert json.loads(view.messages[1].parts[0].arguments) == {"content": note, "path": "a.py"}
    assert view.messages[1].calls == ("c0",)
    assert view.messages[1].parts[0].name == "write"


def test_json_outside_long_strings_is_kept_byte_for_byte() -> None:
    odd = (
        '{"n":123456789012345678901234567890,"f":1e400,"g":1.10,"s":"\\u00e9","k\\"ey":"'
        + "x" * 300
        + '","t":[1, 2]}'
    )
    assert shorten(odd).startswith(
        '{"n":123456789012345678901234567890,"f":1e400,"g":1.10,"s":"\\u00e9","k\\"ey":"xxx'
    )
    assert shorten(odd).endswith(',"t":[1, 2]}')


def test_a_key_is_never_shortened() -> None:
    key = "k" * 300
    assert list(json.loads(shorten(json.dumps({key: CODE})))) == [key]


def test_arguments_that_are_not_a_json_object_become_one() -> None:
    patch = "*** Begin Patch\n*** Update File: src/a.py\n" + "+x = 1\n" * 200
    stub = json.loads(shorten(patch))
    assert list(stub) == ["input"]
    assert stub["input"].startswith(
        "*** Begin Patch *** Update File: src/a.py +x = 1 +x = 1 +x = 1 +x = 1 +x = 1 +x [… 1,442 characters in all (edit "
    )
    assert list(json.loads(shorten(json.dumps(["x" * 5_000])))) == ["input"]


def test_deeply_nested_arguments_are_shortened_without_a_crash() -> None:
    deep = '{"a":' * 50_000 + '"' + "x" * 1_000 + '"' + "}" * 50_000
    assert shorten(deep).startswith('{"a":{"a":')
    assert "1,000 characters in all" in shorten(deep)


def test_newest_groups_open_calls_short_calls_and_protected_tools_stay() -> None:
    long = json.dumps({"content": CODE})
    view = session(*[long] * 5)
    assert [edit.start for edit in proposals(view, ClearToolInputs(keep=3)).edits] == [1, 3]
    assert proposals(session(long, answered=False), ClearToolInputs(keep=0)).edits == ()
    assert (
        proposals(session(json.dumps({"content": "word " * 50})), ClearToolInputs(keep=0)).edits
        == ()
    )
    assert proposals(view, ClearToolInputs(keep=0, protect="write")).edits == ()


def test_it_is_idempotent_and_can_be_reverted() -> None:
    bare = session(*[json.dumps({"content": CODE})] * 5)
    view = proposals(bare, ClearToolInputs())
    assert list(ClearToolInputs()(view)) == []
    assert view.revert().messages == bare.messages


@pytest.mark.parametrize("name", ["keep", "min_tokens"])
def test_negative_settings_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        ClearToolInputs(**{name: -1})
