"""What the Anthropic Messages API wants kept of the request before (AN-6, AN-7, AN-10).

The prefix of a thinking block is the system prompt, the tools and what was said before it, thinking
left out; if the API has compacted, it begins with the latest compaction block (AN-11).
`cache_control` is no part of it, nor are system messages that the API clears itself (`clear_at`).
Neighbours of one role are read as one message.
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
    Fault,
    Line,
    Request,
    common_length,
    entry_fields,
    find_lapses,
    fingerprint,
)
from refold.rules.rule import ContinuityRule, Rules
from refold.text.json_values import dig, parse_or_text
from refold.transcript import hash_message

BOUND_FROM = {"opus": (5, 5), "sonnet": (5, 5), "haiku": (5, 5), "fable": (5, 1), "mythos": (5, 1)}
"""First version of each family that binds thinking to what came before it (AN-7), November 2026."""

_MODEL = re.compile(r"claude-(?:([a-z]+)-)?(\d+)(?:[-.](\d{1,2})(?!\d))?(?:-([a-z]+))?")


def thinking_kind(model: Any) -> Literal["loop", "bound", "unsure"]:
    """Return what holds for the thinking of this Claude model (`Rules.thinking`).

    A model not known to be older binds it (AN-7); without a name it may be either (AN-6, AN-7).
    """
    if not isinstance(model, str) or not model:
        return "unsure"
    return "loop" if _is_older(model) else "bound"


def _is_older(model: str) -> bool:
    """Is this a Claude model from before preserved thinking (AN-7)?"""
    match = _MODEL.search(model.lower())
    if match is None:
        return False
    family, major, minor, after = match.groups()
    version = (int(major), int(minor or 0))
    first = BOUND_FROM.get(family or after or "")
    return version < first if first else version < (5, 0)


class Thought(NamedTuple):
    """A signed thinking block."""

    at: int
    """Position of its message."""
    prefix: int
    """How many parts stand before it."""
    signature: str


class BoundRequest(NamedTuple):
    """A request as the signatures of its thinking see it: from the latest compaction block on."""

    compaction: Part | None
    """That block, if there is any: then it is the first of the parts."""
    parts: list[tuple[str, Part]]
    """What is said, thinking left out, and in which role."""
    places: list[int]
    """For each part the position of its message; at the end the length of the request."""
    thoughts: list[Thought]


def _bind(request: Request) -> BoundRequest:
    """Read what is checked, without what the API clears by itself and failed compactions."""
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
    """Is it the block of a compaction that failed, which the API passes over?"""
    block = parse_or_text(compaction.json)
    return (
        isinstance(block, dict)
        and block.get("content") is None
        and not block.get("encrypted_content")
    )


# --- AN-7 ------------------------------------------------------------------------------------


def find_unbound_thinking(before: Request, after: Request) -> Iterator[Fault]:
    """Report signed thinking with something else before it than when it was thought (AN-7, AN-14).

    What was in the request before was thought over what stood before it there; what is new was
    thought over all of it.
    """
    if not _is_refused(before, after):
        return
    was, now = _bind(before), _bind(after)
    common = common_length(was.parts, now.parts)
    place = f"message {now.places[common]}" if common < len(was.parts) else "messages"
    head, prefixes, reported = _find_changed_head(before, after), defaultdict(set), set[int]()
    for thought in was.thoughts:
        prefixes[thought.signature].add(thought.prefix)
    count_alike = cache(lambda start: common_length(was.parts[start:], now.parts[1:]))
    for thought in now.thoughts:
        earlier = prefixes[thought.signature]
        if thought.at not in reported and (
            head or not _holds(was, now, common, thought, earlier, count_alike)
        ):
            reported.add(thought.at)
            text = f"thinking stands behind {head or place} that was changed since"
            yield Fault(thought.at, text, fingerprint(after.messages[thought.at]))


def _is_refused(before: Request, after: Request) -> bool:
    """Does the API refuse what fails its check?

    Not if it is asked to drop it, nor, perhaps, if another model is asked now: thinking that a
    model cannot read is dropped.
    """
    models = (request.body.get("model") for request in (before, after))
    names = {model for model in models if isinstance(model, str)}
    binding = block_binding(after.body) or {}
    return len(names) < 2 and binding.get("prefix_mismatch_behavior") != "drop_block"


def _find_changed_head(before: Request, after: Request) -> str:
    """Name what differs of the request beside its messages."""
    if before.system != after.system:
        return "a system prompt"
    return "" if _tools(before) == _tools(after) else "tools"


def _tools(request: Request) -> Counter[str]:
    """Return the tools in any order, without those that are loaded later and bound only then."""
    return Counter(tool for tool in request.tools if '"defer_loading":true' not in tool)


def _holds(
    was: BoundRequest,
    now: BoundRequest,
    common: int,
    thought: Thought,
    earlier: Collection[int],
    count_alike: Callable[[int], int],
) -> bool:
    """Does what stands before a thought *now* agree with what it was thought over?

    *common*: parts with which both requests begin. *earlier*: how many parts stood before the same
    thought in the request before; several, if that had it several times, none if it is new.
    *count_alike* returns how many parts from a position on are those behind the compaction block
    now.
    """
    if now.compaction in (None, was.compaction):
        if earlier:
            return thought.prefix in earlier and thought.prefix <= common
        return common == len(was.parts) <= thought.prefix
    between = thought.prefix - 1  # all that a new compaction block lets compare
    return not earlier or any(
        end >= between and count_alike(end - between) >= between for end in earlier
    )


# --- AN-10 -----------------------------------------------------------------------------------


def find_thinking_gaps(before: Request, after: Request) -> Iterator[Fault]:
    """Report thinking that was left out between other thinking; only the oldest may be (AN-10)."""
    if not _is_refused(before, after):
        return
    order = [thought.signature for thought in _bind(before).thoughts]
    now = _bind(after).thoughts
    sent = {thought.signature for thought in now}
    first = next((n for n, signature in enumerate(order) if signature in sent), len(order))
    gap = min((order.index(it) for it in order[first:] if it not in sent), default=len(order))
    early = set(order) - set(order[gap:])
    late = next((thought for thought in now if thought.signature not in early), None)
    if gap < len(order) and late is not None:
        text = "earlier thinking was left out between thinking that is sent; only the oldest may be"
        yield Fault(late.at, text, fingerprint(after.messages[late.at]))


# --- AN-6 ------------------------------------------------------------------------------------


def find_changed_thinking(before: Request, after: Request) -> Iterator[Fault]:
    """Report thinking since the user last spoke that was changed while tools are called (AN-6).

    Looked at if thinking is on, for models that do not bind it (`loop`).
    """
    first = _loop_start(after.messages)
    if first is None or dig(after.body, "thinking", "type") not in ("enabled", "adaptive"):
        return
    for lapse in find_lapses(_lines(before.messages), _lines(after.messages)):
        message = after.messages[lapse.at]
        if lapse.at >= first and message.role == "assistant" and any(lapse.had):
            problem = "changed" if lapse.has else "removed"
            text = f"thinking of the latest assistant turn was {problem}"
            yield Fault(lapse.at, text, ",".join(message.calls))


def _lines(messages: Sequence[Message]) -> list[Line]:
    return [
        (hash_message(message), tuple(p for p in message.parts if isinstance(p, Thinking)))
        for message in messages
    ]


def _loop_start(messages: Sequence[Message]) -> int | None:
    """Return where the assistant's turn begins, if results of tools come last; else None."""
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
"""All that a request to this API must keep of the one before it."""


_REASONING = ("OA-3", "OA-4", "OA-5")
"""Rules of OpenAI's own reasoning: thinking that is bound goes alone."""


def rules_behind(body: Body, rules: Rules) -> Rules:
    """Return the *rules* of another vendor's API for the model that *body* names.

    Frameworks and gateways bring Claude's messages into its form: the thinking in them is as in
    Claude's own API.
    """
    model = body.get("model")
    if not isinstance(model, str) or "claude" not in model.lower():
        return rules
    kind, own = thinking_kind(model), rules.rules
    if kind == "bound":
        own = tuple(rule for rule in own if rule.id not in _REASONING)
    return replace(rules, rules=own, thinking=kind, continuity=(*rules.continuity, *CONTINUITY))
