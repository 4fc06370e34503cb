"""What the codecs share: reading a list of blocks, and writing an edited one over its original."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from sys import intern
from typing import Any

from refold.errors import FormatError
from refold.messages import Content, Media, Message, Opaque, Part, Text, ToolCall, ToolResult
from refold.text.canonical_json import canonicalize

Block = Any
"""One block of a message's content, as parsed from JSON."""
Read = Callable[[Block], Any]
Write = Callable[[Block | None, Any], Block]
"""From a block (None for a new one) and what it is to say, to the block that says it."""


def as_dict(item: Any, expected: str) -> Any:
    """Return *item* as parsed JSON would give it: objects of the vendors' SDKs dump themselves.

    Raises `FormatError`, which says that *what* was expected, for anything but an object.
    """
    if isinstance(item, dict):
        return item
    if isinstance(item, Mapping):
        return dict(item)
    if hasattr(item, "model_dump"):
        return item.model_dump(mode="json", exclude_none=True)
    raise FormatError(f"{expected} is an object, not {kind_of(item)}")


def intern_text(word: str) -> str:
    """Keep a role, name or id in memory once, which parsing makes anew each time."""
    return intern(word) if type(word) is str else word


def as_list(value: Any) -> Sequence[Any]:
    """Return *value* if it is a list, else an empty one."""
    return value if isinstance(value, list | tuple) else ()


def kind_of(value: Any) -> str:
    """Return the JSON name of a value's type, for error messages."""
    names = {
        str: "a string",
        bool: "a boolean",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
    }
    return "null" if value is None else names.get(type(value), f"a Python {type(value).__name__}")


def as_opaque(
    block: Block, moved: Iterable[str] = ("cache_control",), opens: Any = "", closes: Any = ""
) -> Opaque:
    """Carry a block we do not know, without the fields that clients move from turn to turn."""
    kind = block.get("type") if isinstance(block, dict) else None
    text = canonicalize(
        {k: v for k, v in block.items() if k not in moved} if isinstance(block, dict) else block
    )
    if '"cache_control"' in text:
        text = canonicalize(
            _without_marks(block if not isinstance(block, dict) else json.loads(text))
        )
    return Opaque(kind if isinstance(kind, str) else "unknown", text, _id(opens), _id(closes))


def _without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_marks(item) for key, item in value.items() if key != "cache_control"}
    return [_without_marks(item) for item in value] if isinstance(value, list) else value


def _id(value: Any) -> str:
    return value if isinstance(value, str) else ""


def read_content(value: Any, read: Read) -> tuple[Any, ...]:
    """Read a content that is a string, a list of blocks or nothing.

    A string is one text part, an empty one no part, so that what clients spell differently is the
    same.
    """
    if isinstance(value, str):
        return (Text(value),) if value else ()
    if isinstance(value, list | tuple):
        return tuple([read(block) for block in value])
    return () if value is None else (as_opaque(value),)


def write_content(value: Any, new: Sequence[Part], read: Read, write: Write) -> Any:
    """Make the content *value* say *new*.

    A string stays a string if one text says it all, a list a list, and a block whose part did not
    change the same object.
    """
    old = read_content(value, read)
    if old == tuple(new):
        return value
    if not isinstance(value, list | tuple):
        if len(new) <= 1 and all(isinstance(part, Text) for part in new):
            return new[0].text if new else ""  # type: ignore[union-attr]  # a Text, as asked
        value = [write(None, part) for part in old]
    return write_blocks(value, old, new, write)


def write_blocks(
    blocks: Sequence[Block], old: Sequence[Part], new: Sequence[Part], write: Write
) -> list[Block]:
    """Make *blocks*, which say *old* one by one, say *new*."""
    out = []
    for at, part in zip(align(old, new), new, strict=True):
        block = None if at is None else blocks[at]
        out.append(block if at is not None and old[at] == part else write(block, part))
    return out


def align(old: Sequence[Part], new: Sequence[Part]) -> list[int | None]:
    """Return for each new part the position of the old one that it is or replaces, rising."""
    if len(old) == len(new) and all(map(_is_akin, old, new)):
        return list(range(len(old)))
    at, unchanged, out = 0, set(new), list[int | None]()
    for part in new:
        rest = range(at, len(old))
        same = next((k for k in rest if old[k] == part), None)
        if same is None:
            same = next(
                (k for k in rest if _is_akin(old[k], part) and old[k] not in unchanged), None
            )
        at = at if same is None else same + 1
        out.append(same)
    return out


def _is_akin(old: Part, new: Part) -> bool:
    """May *new* be what *old* has become? A call that had no id may have been given one (DS-2)."""
    return type(old) is type(new) and getattr(old, "id", "") in ("", getattr(new, "id", ""))


def canonical_all(value: Any) -> Iterator[str]:
    """Yield each element of a list of definitions as canonical JSON; nothing for no list."""
    return (as_opaque(item).json for item in value) if isinstance(value, list | tuple) else iter(())


# --- calls without ids (Gemini, legacy function calls) ---------------------------------------


def open_calls(prior: Sequence[Message]) -> list[ToolCall]:
    """Return the calls of the last turn that are not answered yet."""
    answered: set[str] = set()
    for message in reversed(prior):
        calls = [part for part in message.parts if isinstance(part, ToolCall)]
        if calls:
            return [call for call in calls if call.id not in answered]
        if not message.results or any(name.startswith("?") for name in message.results):
            return []
        answered.update(message.results)
    return []


def match_results(results: Sequence[ToolResult], prior: Sequence[Message]) -> list[str]:
    """Return the id of the call that each result answers.

    It is the first open call of its name, else the first one that remains. What answers nothing
    gets an id that begins with `?`.
    """
    calls = open_calls(prior)
    ids: list[str] = []
    for result in results:
        call = next((call for call in calls if call.name == result.name), None)
        if call is not None:
            calls.remove(call)
        ids.append(call.id if call is not None else "")
    return [id or (calls.pop(0).id if calls else f"?{len(prior)}.{n}") for n, id in enumerate(ids)]


def text_of(content: Sequence[Content]) -> str:
    """Return the text of a result, for formats that have no other place for it."""
    return "\n".join(part.text if isinstance(part, Text) else f"[{part.kind}]" for part in content)


def parse_arguments(call: ToolCall) -> Any:
    """Return a call's arguments as the object that an API demands."""
    try:
        value = json.loads(call.arguments, strict=False)
    except (ValueError, RecursionError):
        value = call.arguments
    return value if isinstance(value, dict) else {"arguments": value}


TEXTS = frozenset({"text", "input_text", "output_text"})
"""What OpenAI's two formats call a block of text."""


def read_content_block(block: Any, medium: Callable[[Any, Block], Media | None]) -> Content:
    """Read a content block of OpenAI's formats.

    *medium* reads images, sounds and files, and may raise `KeyError`, `TypeError` or
    `AttributeError` for a block of another shape.
    """
    if isinstance(block, str):
        return Text(block)
    if hasattr(block, "model_dump"):
        block = as_dict(block, "a content block")
    try:
        kind = block["type"]
        if kind in TEXTS and isinstance(block["text"], str):
            return Text(block["text"])
        return medium(kind, block) or as_opaque(block)
    except (KeyError, TypeError, AttributeError):
        return as_opaque(block)
