"""A codec is one file: this one has an invented format, with its tests.

An entry of a *notebook* is a list of cells by one author: prose, a picture, executed code (a call)
and its output (a result). The meaning of the format is defined here. Opening, detection,
byte-for-byte output, alignment of edited cells, compaction and repair are the library's.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import refold
from refold.codecs import openai_chat
from refold.codecs.blocks import (
    as_dict,
    block_fields,
    block_reader,
    content_reader,
    expect_text,
    is_link,
    parse_arguments,
    read_content,
    read_media,
    write_content,
    write_part,
)
from refold.codecs.detect import open_payload
from refold.messages import Media, Message, Part, Text, ToolCall, ToolResult
from refold.rules.openai_chat import RULES
from refold.rules.rule import Rules
from refold.strategies import ClearToolResults, Summarize
from refold.testing import check_codec
from refold.text.json_values import canonicalize


class Notebook:
    """The codec."""

    NAME = "notebook"
    FIELD = "pages"
    _HANDS = {"reader": "user", "writer": "assistant", "kernel": "tool", "preface": "system"}  # noqa: RUF012

    def rules(self, body: Mapping[str, Any]) -> Rules:
        return Rules(RULES)  # output directly after the code, as in Chat Completions

    def fits(self, body: Mapping[str, Any], items: Sequence[Any]) -> int:
        return 0  # it is always named

    def is_system(self, item: Any) -> bool:
        return isinstance(item, dict) and item.get("hand") == "preface"

    def system(self, body: Mapping[str, Any]) -> tuple[Part, ...]:
        return read_content(body.get("title"), self._read)

    def tools(self, body: Mapping[str, Any]) -> Sequence[Any]:
        return body.get("kernels", [])

    def decode(self, item: Any, prior: Sequence[Message]) -> Message:
        page = as_dict(item, "a page")
        role = self._HANDS.get(page.get("hand"), "user")
        return Message(role, read_content(page.get("cells"), self._read))

    def encode(self, message: Message) -> Any:
        hands = {role: hand for hand, role in self._HANDS.items()}
        return self.patch({"hand": hands[message.role], "cells": []}, message)

    def patch(self, item: Any, message: Message) -> Any:
        cells = write_content(item.get("cells"), message.parts, self._read, self._write)
        return item if cells is item.get("cells") else {**item, "cells": cells}

    def merge(self, first: Any, second: Any) -> Any:
        return {**first, "cells": [*first["cells"], *second["cells"]]}

    @staticmethod
    def _read_known(cell: dict[str, Any]) -> Part | None:
        match cell["type"]:
            case "text":
                return Text(expect_text(cell["text"]))
            case "picture":
                return read_media("image", "", None, cell["url"])
            case "code":
                return ToolCall(expect_text(cell["cell"]), "run", canonicalize(cell["source"]))
            case "output":
                content = read_content(cell["of"], Notebook._read_output)
                return ToolResult(expect_text(cell["cell"]), content)
        return None

    @staticmethod
    def _write(cell: Any, part: Part) -> Any:
        old = block_fields(cell)
        match part:
            case ToolCall(id):
                source = parse_arguments(part)
                return {"type": "code", "cell": id, **old, "source": source}
            case ToolResult(id, content):
                output = write_content(
                    old.get("of", ""), content, Notebook._read_output, Notebook._write
                )
                return {"type": "output", "cell": id, **old, "of": output}
            case Media(_, _, url) if is_link(part):
                return {"type": "picture", "url": url}
        return write_part(cell, part, "a page")

    _read = staticmethod(block_reader(_read_known.__func__))
    _read_output = staticmethod(content_reader(_read.__func__))


def pages(turns: int = 12) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = [
        {"hand": "preface", "cells": [{"type": "text", "text": "Be brief."}]}
    ]
    for n in range(turns):
        picture = {"type": "picture", "url": f"https://x/{n}.png", "dpi": 300}
        printed = [{"type": "text", "text": "1 2 3 " * 100}, picture]
        code = {"type": "code", "cell": f"c{n}", "source": {"n": n}, "colour": "red"}
        output = {"type": "output", "cell": f"c{n}", "of": printed, "seconds": n}
        out += [
            {"hand": "reader", "cells": [{"type": "text", "text": f"Plot {n}."}]},
            {"hand": "writer", "cells": [{"type": "text", "text": "Done."}, code, {"type": "?"}]},
            {"hand": "kernel", "cells": [output]},
        ]
    return out


def test_the_codec_keeps_the_laws() -> None:
    check_codec(Notebook(), examples=[pages(), pages(1)[1:] + pages(1)[1:2] * 2])


def test_an_entry_that_no_edit_touches_keeps_its_bytes() -> None:
    text = json.dumps({"title": "T", "kernels": [{"b": 1, "a": 2}], "pages": pages()}, indent=1)
    payload = open_payload(text, Notebook())
    assert payload.join([slice(0, len(payload))]) == text
    assert [part.text for part in payload.system] == ["T", "Be brief."]
    assert payload.tools == ('{"a":2,"b":1}',)
    messages = payload.decode()
    assert [message.role for message in messages[:3]] == ["user", "assistant", "tool"]
    assert messages[1].calls == messages[2].results == ("c0",)
    for item, message in zip(payload.iter_entries(), messages, strict=True):
        assert payload.codec.patch(item, message) is item
        assert payload.codec.decode(payload.codec.encode(message), ()).text == message.text


def test_an_edited_entry_changes_as_little_as_needed() -> None:
    body = {"pages": pages(), "model": "m"}
    strategy = ClearToolResults(keep=2)
    view = refold.Compactor([strategy], refold.Budget(1_000, 500), format=Notebook())(body)
    old, new = body["pages"][3], view.payload["pages"][3]
    assert view.payload["pages"][1] is body["pages"][1]
    assert new["cells"][0]["of"] != old["cells"][0]["of"] and new["cells"][0]["seconds"] == 0


def test_a_new_format_is_summarized_checked_and_repaired() -> None:
    compact = refold.Compactor([Summarize(keep=4)], refold.Budget(1_000, 500), format=Notebook())
    view = compact(pages())
    assert len(view.payload) < 20 and refold.check(view.payload, Notebook()) == ()
    broken = pages(2)
    del broken[3]
    assert [violation.rule for violation in refold.check(broken, Notebook())] == ["OA-1"]
    repaired = refold.repair(broken, Notebook())
    assert repaired.remaining == () and repaired.payload[3]["hand"] == "kernel"


def test_an_entry_of_another_kind_is_refused() -> None:
    with pytest.raises(refold.FormatError, match="entry 1: a page is an object, not a number"):
        open_payload([pages()[1], 3], Notebook()).decode()


class Pairs:
    """A custom format: `[who, text]` in a custom field."""

    NAME, FIELD = "pairs", "talk"

    def rules(self, body: Any) -> Any:
        return openai_chat.rules({})

    def fits(self, body: Any, items: Sequence[Any]) -> int:
        return int(all(isinstance(item, list) for item in items))

    def is_system(self, item: Any) -> bool:
        return False

    def system(self, body: Any) -> tuple[()]:
        return ()

    def tools(self, body: Any) -> tuple[()]:
        return ()

    def decode(self, item: Any, prior: Sequence[Message]) -> Message:
        return Message(item[0], (Text(item[1]),))

    def encode(self, message: Message) -> Any:
        return [message.role, message.text]

    def patch(self, item: Any, message: Message) -> Any:
        return self.encode(message)

    def merge(self, first: Any, second: Any) -> Any:
        return [first[0], first[1] + "\n" + second[1]]


@pytest.mark.parametrize("form", ["list", "body", "text"])
def test_a_custom_codec_reads_bodies_with_its_own_field(form):
    pairs = [[("user", "assistant")[n % 2], f"{n}: " + "some words " * 90] for n in range(120)]
    payload = {
        "list": pairs,
        "body": {"talk": pairs, "model": "m"},
        "text": json.dumps({"talk": pairs}),
    }[form]
    view = refold.compact(payload, to=2_000, format=Pairs())
    assert view.tokens <= 2_000 and view.revert().payload == payload
    assert not isinstance(payload, dict) or view.payload["model"] == "m"
