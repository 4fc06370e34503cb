"""`refold.testing.check_codec`: what holds for the codecs of the package, and what it finds."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from refold.codecs import anthropic, openai_chat
from refold.codecs.codec import with_rules
from refold.errors import FormatError
from refold.messages import Message, Text
from refold.rules.rule import Rules
from refold.session_files import demo_session
from refold.testing import check_codec

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Read a.py."}], "at": 1},
    {"role": "user", "content": "And b.py."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "c", "content": "x = 1"},
    {"role": "assistant", "content": "It sets x."},
]


@pytest.mark.parametrize(
    ("codec", "entries"),
    [
        (anthropic, demo_session()[:60]),
        (openai_chat, CHAT),
    ],
)
def test_codecs_of_the_package_keep_the_laws(codec: Any, entries: list[Any]):
    check_codec(codec, examples=[entries])


class Faulty:
    """The codec of Chat Completions with other functions in place of some."""

    def __init__(self, **functions: Any) -> None:
        self.functions = functions

    def __getattr__(self, name: str) -> Any:
        return self.functions.get(name) or getattr(openai_chat, name)


def lose_fields(item: Mapping[str, Any], message: Message) -> Any:
    patched = openai_chat.patch(item, message)
    return item if patched is item else {k: v for k, v in patched.items() if k != "unknown"}


def change_entry(item: Any, message: Message) -> Any:
    if message != openai_chat.decode(item, ()):
        item["touched"] = True
    return openai_chat.patch(item, message)


def speak_for_the_user(item: Any, prior: Sequence[Message]) -> Message:
    message = openai_chat.decode(item, prior)
    return Message("user", message.parts)


def refuse(first: Any, second: Any) -> Any:
    raise FormatError("these cannot be merged")


@pytest.mark.parametrize(
    ("functions", "law"),
    [
        ({"patch": lambda item, message: openai_chat.encode(message)}, "identity: "),
        ({"patch": lambda item, message: item}, "edits: "),
        ({"patch": lose_fields}, "edits: an unknown field is lost"),
        ({"patch": change_entry}, "purity: "),
        ({"encode": lambda message: {"role": message.role, "content": "?"}}, "summaries: user"),
        ({"decode": speak_for_the_user}, "summaries: assistant"),
        ({"merge": lambda first, second: first}, "merging: "),
    ],
)
def test_a_codec_that_breaks_a_law_fails(functions: dict[str, Any], law: str):
    with pytest.raises(AssertionError, match=law):
        check_codec(Faulty(**functions), examples=[json.loads(json.dumps(CHAT))])


def test_calls_without_a_rule_fail_and_a_refused_merge_does_not():
    with pytest.raises(AssertionError, match="pairing: a cut at 3 separates 'c' from its result"):
        check_codec(with_rules(openai_chat, lambda body: Rules()), examples=[CHAT])
    check_codec(Faulty(merge=refuse), examples=[CHAT])
    assert openai_chat.decode(openai_chat.encode(Message("user", (Text("a"),))), ()).text == "a"
