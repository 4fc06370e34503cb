"""What the Anthropic Messages API wants kept of the request before (AN-6, AN-7, AN-10).

The prefix of a thinking block is the system prompt, the tools and what was said before it, thinking
left out; if the API has compacted, it begins with the latest compaction block (AN-11).
`cache_control` is no part of it, nor are system messages that the API clears itself (`clear_at`).
Neighbours of one role are read as one message.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from refold.messages import Message, Opaque, Part, Thinking
from refold.rules.anthropic_body import block_binding
from refold.rules.request import (
    Fault,
    Line,
    Request,
    common_length,
    entry_fields,
    find_lapses,
    fingerprint,
)
from refold.rules.rule import ContinuityRule
from refold.text.json_values import dig, parse_or_text
from refold.transcript import hash_message

BOUND_FROM = {"opus": (5, 5), "sonnet": (5, 5), "haiku": (5, 5), "fable": (5, 1), "mythos": (5, 1)}
"""First version of each family that binds thinking to what came before it (AN-7), November 2026."""

_MODEL = re.compile(r"claude-(?:([a-z]+)-)?(\d+)(?:[-.](\d{1,2})(?!\d))?(?:-([a-z]+))?")

Word = tuple[str, Part]
"""Something said, and who said it."""


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
    """How many words stand before it."""
    signature: str


class Bound(NamedTuple):
    """A request as the signatures of its thinking see it: from the latest compaction block on."""

    compaction: Part | None
    """That block, if there is any."""
    words: list[Word]
    """What was said."""
    places: list[int]
    """For each word the position of its message; at the end the length of the request."""
    thoughts: list[Thought]
    """What was thought."""

    def by_signature(self) -> dict[str, list[Thought]]:
        """Return the thoughts by signature: several, if one is sent several times."""
        groups = defaultdict[str, list[Thought]](list)
        for thought in self.thoughts:
            groups[thought.signature].append(thought)
        return dict(groups)


def _bind(request: Request) -> Bound:
    """Read what is checked, without what the API clears by itself and failed compactions."""
    bound = Bound(None, [], [], [])
    for at, message in enumerate(request.messages):
        is_cleared = bool(entry_fields(request.entries[at]).get("clear_at"))
        for part in message.parts:
            if _compacts(part):
                bound = Bound(part, [], [], [])
            if is_cleared or _is_failed_compaction(part):
                continue
            if not isinstance(part, Thinking):
                bound.words.append((message.role, part))
                bound.places.append(at)
            elif part.signature:
                bound.thoughts.append(Thought(at, len(bound.words), part.signature))
    bound.places.append(len(request.messages))
    return bound


def _compacts(part: Part) -> bool:
    """Is it a compaction block in which the API has summarised what stood before?"""
    return (
        isinstance(part, Opaque) and part.kind == "compaction" and not _is_failed_compaction(part)
    )


def _is_failed_compaction(part: Part) -> bool:
    """Is it one of a compaction that failed, which the API passes over?"""
    if not (isinstance(part, Opaque) and part.kind == "compaction"):
        return False
    block = parse_or_text(part.json)
    return (
        isinstance(block, dict)
        and block.get("content") is None
        and not block.get("encrypted_content")
    )


# --- AN-7 ------------------------------------------------------------------------------------


def find_unbound_thinking(before: Request, after: Request) -> Iterator[Fault]:
    """Report signed thinking with something else before it than when it was thought (AN-7, AN-14).

    What was in the request before was thought over what stood before it there; what is new was
    thought over all of it. If only a part of that shows, as behind a new compaction block, only
    that part is looked at.
    """
    if not _is_refused(before, after):
        return
    was, now = _bind(before), _bind(after)
    common = common_length(was.words, now.words)
    place = f"message {now.places[common]}" if common < len(was.words) else "messages"
    head, olds, reported = _find_changed_head(before, after), was.by_signature(), set[int]()
    for thought in now.thoughts:
        old = olds.get(thought.signature, [])
        if thought.at not in reported and (head or not _holds(was, now, common, thought, old)):
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


def _holds(was: Bound, now: Bound, common: int, thought: Thought, old: Sequence[Thought]) -> bool:
    """Was it thought over what stands before it now?

    *old*: the same thought in the request before. *common*: words with which both begin.
    """
    if now.compaction is not None and now.compaction != was.compaction:
        return not old or any(_follows(was, now, earlier, thought) for earlier in old)
    if not old:
        return common == len(was.words) <= thought.prefix
    return any(earlier.prefix == thought.prefix <= common for earlier in old)


def _follows(was: Bound, now: Bound, old: Thought, thought: Thought) -> bool:
    """Is what stands between a new compaction block and the thought what stood before it?"""
    between = now.words[1 : thought.prefix]
    return was.words[max(0, old.prefix - len(between)) : old.prefix] == between


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
