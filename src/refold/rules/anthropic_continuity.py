"""What the Anthropic Messages API requires a request to keep of the previous one (AN-6, AN-7,
AN-10).

The prefix of a thinking block consists of the system prompt, the tools and the content before it
without thinking. If the API has compacted, it begins at the latest compaction block (AN-11). It
excludes `cache_control` and system messages that the API clears itself (`clear_at`). Neighbours of
one role are read as one message.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal, NamedTuple

from refold.messages import Message, Opaque, Part, Thinking
from refold.rules.anthropic import block_binding
from refold.rules.request import (
    Body,
    ContentLine,
    Fault,
    Request,
    common_length,
    entry_fields,
    find_lost_attachments,
    fingerprint,
)
from refold.rules.rule import ContinuityRule, Rules
from refold.text.json_values import dig, parse_or_text
from refold.transcript import hash_message

BOUND_FROM = {"opus": (5, 5), "sonnet": (5, 5), "haiku": (5, 5), "fable": (5, 1), "mythos": (5, 1)}
"""First version of each family that binds thinking to its prefix (AN-7), November 2026."""

_MODEL = re.compile(r"claude-(?:([a-z]+)-)?(\d+)(?:[-.](\d{1,2})(?!\d))?(?:-([a-z]+))?")


def thinking_kind(model: Any) -> Literal["loop", "bound", "unsure"]:
    """Return the value of `Rules.thinking` for a Claude model.

    It is `loop` for an older one (AN-6), `bound` for any other name (AN-7), `unsure` without a
    name.
    """
    if not isinstance(model, str) or not model:
        return "unsure"
    return "loop" if _is_older(model) else "bound"


def _is_older(model: str) -> bool:
    """Return whether this is a Claude model from before preserved thinking (AN-7)."""
    match = _MODEL.search(model.lower())
    if match is None:
        return False
    family, major, minor, after = match.groups()
    version = (int(major), int(minor or 0))
    first = BOUND_FROM.get(family or after or "")
    return version < first if first else version < (5, 0)


class Thought(NamedTuple):
    """Signed thinking block."""

    at: int
    """Position of its message."""
    prefix: int
    """Number of parts before it, without thinking."""
    signature: str


class BoundRequest(NamedTuple):
    """Content of a request that its thinking is bound to: from the latest compaction block on."""

    compaction: Part | None
    """The latest compaction block, if any. It is then the first of `parts`."""
    parts: list[tuple[str, Part]]
    """Role and part of all content except thinking."""
    places: list[int]
    """Message position of each part, then the number of messages."""
    thoughts: list[Thought]


def _bind(request: Request) -> BoundRequest:
    """Collect the bound content, without failed compactions and messages that the API clears."""
    bound = BoundRequest(None, [], [], [])
    for at, message in enumerate(request.messages):
        is_cleared = bool(entry_fields(request.entries[at]).get("clear_at"))
        for part in message.parts:
            if isinstance(part, Opaque) and part.kind == "compaction":
                if _has_failed(part):
                    continue
                bound = BoundRequest(part, [], [], [])
            if is_cleared:
                continue
            if not isinstance(part, Thinking):
                bound.parts.append((message.role, part))
                bound.places.append(at)
            elif part.signature:
                bound.thoughts.append(Thought(at, len(bound.parts), part.signature))
    bound.places.append(len(request.messages))
    return bound


def _has_failed(compaction: Opaque) -> bool:
    """Return whether a compaction block records a failure, which the API skips."""
    block = parse_or_text(compaction.json)
    return (
        isinstance(block, dict)
        and block.get("content") is None
        and not block.get("encrypted_content")
    )


# --- AN-7 ------------------------------------------------------------------------------------


def find_unbound_thinking(before: Request, after: Request) -> Iterator[Fault]:
    """Report signed thinking whose prefix differs from the one it was signed for (AN-7, AN-14).

    Thinking of the previous request was signed for its prefix there; new thinking for all of that
    request.
    """
    if not _is_refused(before, after):
        return
    was, now = _bind(before), _bind(after)
    common = common_length(was.parts, now.parts)
    place = f"message {now.places[common]}" if common < len(was.parts) else "messages"
    head, prefixes, reported = _find_changed_head(before, after), defaultdict(set), set[int]()
    for thought in was.thoughts:
        prefixes[thought.signature].add(thought.prefix)
    count_alike = cache(lambda: _count_alike(was.parts, now.parts[1:]))
    for thought in now.thoughts:
        earlier = prefixes[thought.signature]
        if thought.at not in reported and (
            head or not _holds(was, now, common, thought, earlier, count_alike)
        ):
            reported.add(thought.at)
            text = f"thinking stands behind {head or place} that was changed since"
            yield Fault(thought.at, text, fingerprint(after.messages[thought.at]))


def _is_refused(before: Request, after: Request) -> bool:
    """Return whether the API certainly refuses a request whose thinking fails its check.

    It does not if asked to drop the block. It may not if the model has changed: thinking that a
    model cannot read is dropped.
    """
    models = (request.body.get("model") for request in (before, after))
    names = {model for model in models if isinstance(model, str)}
    binding = block_binding(after.body) or {}
    return len(names) < 2 and binding.get("prefix_mismatch_behavior") != "drop_block"


def _find_changed_head(before: Request, after: Request) -> str:
    """Return which field besides the messages has changed: the system prompt, the tools or none."""
    if before.system != after.system:
        return "a system prompt"
    return "" if _tools(before) == _tools(after) else "tools"


def _tools(request: Request) -> Counter[str]:
    """Count the tool definitions in any order, without deferred ones, which are bound when
    loaded."""
    return Counter(tool for tool in request.tools if '"defer_loading":true' not in tool)


def _holds(
    was: BoundRequest,
    now: BoundRequest,
    common: int,
    thought: Thought,
    earlier: Collection[int],
    count_alike: Callable[[], Sequence[int]],
) -> bool:
    """Return whether the prefix of a thought in *now* agrees with the one it was signed for.

    *common*: number of parts in the common prefix of both requests. *earlier*: numbers of parts
    before this thought in the previous request, empty if it is new. *count_alike* returns how many
    parts from each position of the previous request on equal those after the compaction block.
    """
    if now.compaction in (None, was.compaction):
        if earlier:
            return thought.prefix in earlier and thought.prefix <= common
        return common == len(was.parts) <= thought.prefix
    between = thought.prefix - 1  # only the parts after a new compaction block can be compared
    return not earlier or any(
        end >= between and count_alike()[end - between] >= between for end in earlier
    )


def _count_alike(parts: Sequence[object], others: Sequence[object]) -> Sequence[int]:
    """Return how many items from each position of *parts*, and from its end, on equal the first
    *others*, in linear time (Z algorithm)."""
    items = (*others, None, *parts)
    counts, start, stop = [0] * len(items), 0, 0
    for at in range(1, len(items)):
        count = max(0, min(counts[at - start], stop - at))
        while at + count < len(items) and items[count] == items[at + count]:
            count += 1
        counts[at] = count
        if at + count > stop:
            start, stop = at, at + count
    return [*counts[len(others) + 1 :], 0]


# --- AN-10 -----------------------------------------------------------------------------------


def find_thinking_gaps(before: Request, after: Request) -> Iterator[Fault]:
    """Report thinking removed from between other thinking; only the oldest may go (AN-10)."""
    if not _is_refused(before, after):
        return
    order = [thought.signature for thought in _bind(before).thoughts]
    now = _bind(after).thoughts
    sent = {thought.signature for thought in now}
    first = next((n for n, signature in enumerate(order) if signature in sent), len(order))
    gap = next((n for n in range(first, len(order)) if order[n] not in sent), len(order))
    early = set(order) - set(order[gap:])
    late = next((thought for thought in now if thought.signature not in early), None)
    if gap < len(order) and late is not None:
        text = "earlier thinking was left out between thinking that is sent; only the oldest may be"
        yield Fault(late.at, text, fingerprint(after.messages[late.at]))


# --- AN-6 ------------------------------------------------------------------------------------


def find_changed_thinking(before: Request, after: Request) -> Iterator[Fault]:
    """Report thinking of the latest turn that was changed or removed while tools are called (AN-6).

    It applies if thinking is enabled, to models that do not bind thinking (`loop`).
    """
    first = _loop_start(after.messages)
    if first is None or dig(after.body, "thinking", "type") not in ("enabled", "adaptive"):
        return
    for lapse in find_lost_attachments(_lines(before.messages), _lines(after.messages)):
        message = after.messages[lapse.at]
        if lapse.at >= first and message.role == "assistant" and any(lapse.had):
            problem = "changed" if lapse.has else "removed"
            text = f"thinking of the latest assistant turn was {problem}"
            yield Fault(lapse.at, text, ",".join(message.calls))


def _lines(messages: Sequence[Message]) -> list[ContentLine]:
    return [
        (hash_message(message), tuple(p for p in message.parts if isinstance(p, Thinking)))
        for message in messages
    ]


def _loop_start(messages: Sequence[Message]) -> int | None:
    """Return where the assistant's turn begins if tool results come last, else None."""
    spoken = [at for at, message in enumerate(messages) if message.role != "system"]
    if not spoken or not messages[spoken[-1]].results:
        return None
    return max((at + 1 for at in spoken if messages[at].is_request), default=0)


CONTINUITY: tuple[ContinuityRule, ...] = (
    ContinuityRule(
        "AN-6",
        "thinking of the latest turn comes back as it was while tools are called",
        find_changed_thinking,
        ("loop",),
    ),
    ContinuityRule(
        "AN-7",
        "before signed thinking stands what it was thought over",
        find_unbound_thinking,
        ("bound", "unsure"),
    ),
    ContinuityRule(
        "AN-10",
        "thinking is left out from the oldest on, without a gap",
        find_thinking_gaps,
        ("bound", "unsure"),
    ),
)
"""All rules of this API about what a request must keep of the previous one."""


_REASONING = ("OA-3", "OA-4", "OA-5")
"""Rules of OpenAI's own reasoning; they do not apply to bound thinking."""


def rules_behind(body: Body, rules: Rules) -> Rules:
    """Return the *rules* of another vendor's API, with those of Claude's thinking if *body* names a
    Claude model, else unchanged.

    Frameworks and gateways convert Claude's messages to that API's format, but their thinking
    follows the rules of Claude's own API.
    """
    model = body.get("model")
    if not isinstance(model, str) or "claude" not in model.lower():
        return rules
    kind, own = thinking_kind(model), rules.rules
    if kind == "bound":
        own = tuple(rule for rule in own if rule.id not in _REASONING)
    return replace(rules, rules=own, thinking=kind, continuity=(*rules.continuity, *CONTINUITY))
