"""Where the tokens are: by role, by tool, by kind of part, by message."""

from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from refold.core.tool_groups import match_calls
from refold.core.view import View
from refold.messages import Content, Media, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from refold.tokens.count import count_fixed, part_counter


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Estimated tokens of a request, cut four ways; each of the four adds up to `total`."""

    system: int
    """System prompt."""
    tools: int
    """Tool definitions."""
    messages: tuple[int, ...]
    """Each message, its framing included; system prompt and tools are not among them."""
    roles: Mapping[str, int]
    """Most first; with `system` and `tools`."""
    kinds: Mapping[str, int]
    """`text`, `thinking`, `call`, `result`, `image` ..., `opaque`, `framing`, `system`, `tools`."""
    names: Mapping[str, int]
    """Calls and results together by the tool's name; everything else under the empty name."""

    @property
    def total(self) -> int:
        """Tokens of the whole request, as `view.tokens_uncalibrated`."""
        return self.system + self.tools + sum(self.messages)


def break_down(view: View) -> Breakdown:
    """Break down what *view* shows, by its profile's counter.

    What a message has beyond its parts is its framing. System prompt and tools are counted apart
    when the view came from a payload; without one all of `fixed_tokens` counts as the system
    prompt.
    """
    items, calls = view.items, match_calls(view.transcript.messages)
    messages = [message for item in items for message in item.messages]
    counts, part = tuple(map(view.profile.count, messages)), part_counter(view.profile.count)
    system, tools = _split_fixed_tokens(view)
    fixed = {"system": system, "tools": tools}
    parts = [
        (_kind_of(piece), _tool_of(piece, calls[item.start : item.stop]), part(piece))
        for item in items
        for message in item.messages
        for piece in message.parts
    ]
    framing = sum(counts) - sum(tokens for _, _, tokens in parts)
    roles = zip((message.role for message in messages), counts, strict=True)
    kinds = [("framing", framing), *((kind, tokens) for kind, _, tokens in parts)]
    names = [("", system + tools + framing), *((tool, tokens) for _, tool, tokens in parts)]
    return Breakdown(
        system, tools, counts, _tally(fixed, roles), _tally(fixed, kinds), _tally({}, names)
    )


def _split_fixed_tokens(view: View) -> tuple[int, int]:
    """Return tokens of system prompt and tools, together the profile's `fixed_tokens`."""
    total = view.profile.fixed_tokens
    if view.source is None:
        return total, 0
    tools = min(total, count_fixed((), view.source.tools))
    return total - tools, tools


def _tally(fixed: Mapping[str, int], pairs: Iterable[tuple[str, int]]) -> Mapping[str, int]:
    tally = Tally(fixed)
    for name, tokens in pairs:
        tally[name] += tokens
    return {name: tokens for name, tokens in tally.most_common() if tokens}


_KINDS: Mapping[type, str] = {
    Text: "text",
    Thinking: "thinking",
    ToolCall: "call",
    ToolResult: "result",
    Opaque: "opaque",
}


def _kind_of(part: Part | Content) -> str:
    return part.kind if isinstance(part, Media) else _KINDS[type(part)]


def _tool_of(part: Part | Content, answered: Iterable[Mapping[str, ToolCall]]) -> str:
    """Return the name of a part's tool; *answered* are the calls that results here answer."""
    match part:
        case ToolCall(_, name, _):
            return name
        case ToolResult(id, _, _, name):
            return name or next((calls[id].name for calls in answered if id in calls), "")
        case _:
            return ""
