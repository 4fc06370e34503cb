"""What the codecs share: reading a list of blocks, and writing an edited one over its original."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
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


def plain(item: Any, what: str) -> Any:
    """*item* as parsed JSON would give it: the objects of the vendors' SDKs dump themselves.

    Raises `FormatError`, which says that *what* was expected, for anything but an object.
    """
    if isinstance(item, dict):
        return item
    if isinstance(item, Mapping):
        return dict(item)
    if hasattr(item, "model_dump"):
        return item.model_dump(mode="json", exclude_none=True)
    raise FormatError(f"{what} is an object, not {kind_of(item)}")


def shared(word: str) -> str:
    """*word*, once in memory however often it comes: roles, names and ids, which parsing makes anew each time."""
    return intern(word) if type(word) is str else word


def kind_of(value: Any) -> str:
    """The JSON name of a value's type, for error messages."""
    names = {str: "a string", bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return "null" if value is None else names.get(type(value), f"a Python {type(value).__name__}")


def opaque(block: Block, moved: Iterable[str] = ("cache_control",), opens: Any = "", closes: Any = "") -> Opaque:
    """A block we do not understand, without the fields that clients move from turn to turn."""
    kind = block.get("type") if isinstance(block, dict) else None
    text = canonicalize({k: v for k, v in block.items() if k not in moved} if isinstance(block, dict) else block)
    if '"cache_control"' in text:
        text = canonicalize(_unmarked(block if not isinstance(block, dict) else json.loads(text)))
    return Opaque(kind if isinstance(kind, str) else "unknown", text, _id(opens), _id(closes))


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unmarked(item) for key, item in value.items() if key != "cache_control"}
    return [_unmarked(item) for item in value] if isinstance(value, list) else value


def _id(value: Any) -> str:
    return value if isinstance(value, str) else ""


def contents(value: Any, read: Read) -> tuple[Any, ...]:
    """Parts of a content that is a string, a list of blocks or nothing. A string is one text part,
    an empty one no part, so that what clients spell differently is the same.
    """
    if isinstance(value, str):
        return (Text(value),) if value else ()
    if isinstance(value, list | tuple):
        return tuple([read(block) for block in value])
    return () if value is None else (opaque(value),)


def reshape(value: Any, new: Sequence[Part], read: Read, write: Write) -> Any:
    """*value*, saying *new*: a string stays a string where one text says it all, a list a list,
    and a block whose part did not change stays the same object.
    """
    old = contents(value, read)
    if old == tuple(new):
        return value
    if not isinstance(value, list | tuple):
        if len(new) <= 1 and all(isinstance(part, Text) for part in new):
            return new[0].text if new else ""  # type: ignore[union-attr]  # a Text, as asked
        value = [write(None, part) for part in old]
    return rewrite(value, old, new, write)


def rewrite(blocks: Sequence[Block], old: Sequence[Part], new: Sequence[Part], write: Write) -> list[Block]:
    """*blocks*, which say *old* one by one, made to say *new*."""
    out = []
    for at, part in zip(align(old, new), new, strict=True):
        block = None if at is None else blocks[at]
        out.append(block if at is not None and old[at] == part else write(block, part))
    return out


def align(old: Sequence[Part], new: Sequence[Part]) -> list[int | None]:
    """For each new part the position of the old one that it is or replaces, in rising order."""
    if len(old) == len(new) and all(map(_akin, old, new)):
        return list(range(len(old)))
    at, kept, out = 0, set(new), list[int | None]()
    for part in new:
        rest = range(at, len(old))
        same = next((k for k in rest if old[k] == part), None)
        if same is None:
            same = next((k for k in rest if _akin(old[k], part) and old[k] not in kept), None)
        at = at if same is None else same + 1
        out.append(same)
    return out


def _akin(one: Part, other: Part) -> bool:
    """May *other* be what *one* has become? A call that had no id may have been given one (DS-2)."""
    return type(one) is type(other) and getattr(one, "id", "") in ("", getattr(other, "id", ""))


def canonical_all(value: Any) -> Iterator[str]:
    """Each element of a list of definitions as canonical JSON; nothing for what is no list."""
    return (opaque(item).json for item in value) if isinstance(value, list | tuple) else iter(())


# --- calls without ids (Gemini, legacy function calls) ---------------------------------------


def waiting(prior: Sequence[Message]) -> list[ToolCall]:
    """The calls of the last turn that are not answered yet."""
    answered: set[str] = set()
    for message in reversed(prior):
        calls = [part for part in message.parts if isinstance(part, ToolCall)]
        if calls:
            return [call for call in calls if call.id not in answered]
        if not message.results or any(name.startswith("?") for name in message.results):
            return []
        answered.update(message.results)
    return []


def answer(results: Sequence[ToolResult], prior: Sequence[Message]) -> list[str]:
    """The call that each result answers: of the calls that wait the first of its name, else the
    first that is left. What answers nothing gets an id of its own, which begins with `?`.
    """
    left = waiting(prior)
    found: list[str] = []
    for result in results:
        call = next((call for call in left if call.name == result.name), None)
        if call is not None:
            left.remove(call)
        found.append(call.id if call is not None else "")
    return [name or (left.pop(0).id if left else f"?{len(prior)}.{n}") for n, name in enumerate(found)]


def nameless(message: Message) -> Message:
    """*message* with its calls and results told apart by order alone."""
    parts = (replace(p, id="") if isinstance(p, ToolCall | ToolResult) else p for p in message.parts)
    return Message(message.role, tuple(parts))


def text_of(content: Sequence[Content]) -> str:
    """The text of a result, for formats that have no other place for it."""
    return "\n".join(part.text if isinstance(part, Text) else f"[{part.kind}]" for part in content)


def arguments(call: ToolCall) -> Any:
    """A call's arguments as the object that an API demands."""
    try:
        value = json.loads(call.arguments, strict=False)
    except (ValueError, RecursionError):
        value = call.arguments
    return value if isinstance(value, dict) else {"arguments": value}


TEXTS = frozenset({"text", "input_text", "output_text"})
"""What OpenAI's two formats call a block of text."""


def content_block(block: Any, medium: Callable[[Any, Block], Media | None]) -> Content:
    """A content block of OpenAI's formats; *medium* reads images, sounds and files, and may raise
    `KeyError`, `TypeError` or `AttributeError` for a block of another shape."""
    if isinstance(block, str):
        return Text(block)
    if hasattr(block, "model_dump"):
        block = plain(block, "a content block")
    try:
        kind = block["type"]
        if kind in TEXTS and isinstance(block["text"], str):
            return Text(block["text"])
        return medium(kind, block) or opaque(block)
    except (KeyError, TypeError, AttributeError):
        return opaque(block)
