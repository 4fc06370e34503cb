"""What the Anthropic Messages API wants kept of the request before (AN-6, AN-7, AN-10).

The prefix of a thinking block is the system prompt, the tools and what was said before it, thinking
left out; where the API has compacted, it begins with the latest compaction block (AN-11). `cache_control`
is no part of it, nor are system messages that the API clears itself (`clear_at`). Neighbours of one role
are read as one message.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from refold.messages import Message, Opaque, Part, Thinking
from refold.rules.continuity import (
    Lapse,
    common_length,
    entry_fields,
    find_lapses,
    message_digest,
    thinking_of,
)
from refold.rules.rule import ContinuityRule, SentRequest, Violation
from refold.rules.violations import fingerprint
from refold.text.canonical_json import parse_or_text

Word = tuple[str, Part]
"""Something said, and who said it."""


class Thought(NamedTuple):
    """A signed thinking block."""

    at: int
    """Position of its message."""
    prefix: int
    """How many words stand before it."""
    signature: str


@dataclass
class Bound:
    """A request as the signatures of its thinking see it."""

    sent: SentRequest

    @cached_property
    def first(self) -> tuple[int, int]:
        """Message and part with which the checked prefix begins: the latest compaction block, if there is any."""
        parts = (
            (at, n, part)
            for at, message in enumerate(self.sent.messages)
            for n, part in enumerate(message.parts)
        )
        return max(((at, n) for at, n, part in parts if _compacts(part)), default=(0, 0))

    @cached_property
    def compaction(self) -> Part | None:
        """That block."""
        at, n = self.first
        parts = self.sent.messages[at].parts[n : n + 1] if self.sent.messages else ()
        return parts[0] if parts and _compacts(parts[0]) else None

    @cached_property
    def words(self) -> list[Word]:
        """What was said from there on."""
        return [word for _, word in self._read() if not isinstance(word[1], Thinking)]

    @cached_property
    def places(self) -> list[int]:
        """For each word the position of its message."""
        return [at for at, word in self._read() if not isinstance(word[1], Thinking)]

    @cached_property
    def thoughts(self) -> list[Thought]:
        """What was thought from there on."""
        thoughts, words = list[Thought](), 0
        for at, (_, part) in self._read():
            if not isinstance(part, Thinking):
                words += 1
            elif part.signature:
                thoughts.append(Thought(at, words, part.signature))
        return thoughts

    @cached_property
    def thoughts_by_signature(self) -> dict[str, list[Thought]]:
        """The thoughts by signature: several, where one is sent several times."""
        by_signature = defaultdict[str, list[Thought]](list)
        for thought in self.thoughts:
            by_signature[thought.signature].append(thought)
        return dict(by_signature)

    def _read(self) -> Iterator[tuple[int, Word]]:
        begin = self.first
        for at, message in enumerate(self.sent.messages):
            if at >= begin[0] and not _clears(self.sent.entries, at):
                for n, part in enumerate(message.parts):
                    if (at, n) >= begin and not _is_failed_compaction(part):
                        yield at, (message.role, part)


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


def _clears(entries: Sequence[Any], at: int) -> bool:
    """Is it a message that the API takes away by itself?"""
    return bool(entry_fields(entries[at]).get("clear_at"))


# --- AN-7 ------------------------------------------------------------------------------------


def check_thinking_prefixes(before: SentRequest, after: SentRequest) -> Iterator[Violation]:
    """AN-7, AN-14: before signed thinking stands what stood there when it was thought. What was in the
    request before was thought over what stood before it there; what is new was thought over all of it.
    Where that shows but in part, as behind a new compaction block, only that part is looked at."""
    if not _is_refused(before, after):
        return
    was, now = Bound(before), Bound(after)
    head, common = _head(before, after), common_length(was.words, now.words)
    reported = set[int]()
    for thought in now.thoughts:
        if thought.at not in reported and (head or not _holds(was, now, common, thought)):
            reported.add(thought.at)
            text = f"thinking stands behind {head or _difference(was, now, common)} that was changed since"
            yield Violation("AN-7", thought.at, text, fingerprint(after.messages[thought.at]))


def _is_refused(before: SentRequest, after: SentRequest) -> bool:
    """Does the API refuse what fails its check? Not if it is asked to drop it, nor, perhaps, if another
    model is asked now: thinking that a model cannot read is dropped."""
    models = {
        sent.body.get("model")
        for sent in (before, after)
        if isinstance(sent.body.get("model"), str)
    }
    thinking = after.body.get("thinking")
    binding = thinking.get("block_binding") if isinstance(thinking, Mapping) else None
    drops = isinstance(binding, Mapping) and binding.get("prefix_mismatch_behavior") == "drop_block"
    return len(models) < 2 and not drops


def _head(before: SentRequest, after: SentRequest) -> str:
    """What of the request beside its messages differs."""
    if before.system != after.system:
        return "a system prompt"
    return "" if _tools(before) == _tools(after) else "tools"


def _tools(sent: SentRequest) -> Counter[str]:
    """The tools in any order, without those that are loaded later and are bound only then."""
    return Counter(tool for tool in sent.tools if '"defer_loading":true' not in tool)


def _holds(was: Bound, now: Bound, common: int, thought: Thought) -> bool:
    """Was it thought over what stands before it now? *common*: words with which both begin."""
    old = was.thoughts_by_signature.get(thought.signature, ())
    if now.compaction is not None and now.compaction != was.compaction:
        return not old or any(_follows(was, now, earlier, thought) for earlier in old)
    if not old:
        return common == len(was.words) <= thought.prefix
    return any(earlier.prefix == thought.prefix <= common for earlier in old)


def _follows(was: Bound, now: Bound, old: Thought, thought: Thought) -> bool:
    """Behind a new compaction block: is what stands between it and the thought what stood before the thought?"""
    between = now.words[1 : thought.prefix]
    return was.words[max(0, old.prefix - len(between)) : old.prefix] == between


def _difference(was: Bound, now: Bound, common: int) -> str:
    """Which message is the first that differs."""
    at = now.places[common] if common < len(now.places) else len(now.sent.messages)
    return f"message {at}" if common < len(was.words) else "messages"


# --- AN-10 -----------------------------------------------------------------------------------


def check_thinking_chain(before: SentRequest, after: SentRequest) -> Iterator[Violation]:
    """AN-10: of earlier thinking the oldest may be left out, but none between others that are sent."""
    if not _is_refused(before, after):
        return
    was, now = Bound(before), Bound(after)
    present = [thought.signature in now.thoughts_by_signature for thought in was.thoughts]
    first = present.index(True) if True in present else len(present)
    gone = {
        thought.signature
        for thought, stays in zip(was.thoughts[first:], present[first:], strict=True)
        if not stays
    }
    later = _behind(was, now, gone)
    if later is not None:
        text = "earlier thinking was left out between thinking that is sent; only the oldest may be"
        yield Violation("AN-10", later.at, text, fingerprint(after.messages[later.at]))


def _behind(was: Bound, now: Bound, gone: set[str]) -> Thought | None:
    """The first thought sent that came after one of those *gone*."""
    order = [thought.signature for thought in was.thoughts]
    first = min(map(order.index, gone), default=len(order))
    late = set(order[first:])
    return next(
        (
            thought
            for thought in now.thoughts
            if gone
            and (thought.signature in late or thought.signature not in was.thoughts_by_signature)
        ),
        None,
    )


# --- AN-6 ------------------------------------------------------------------------------------


def check_tool_loop(before: SentRequest, after: SentRequest) -> Iterator[Violation]:
    """AN-6: while tools are called, what the assistant has thought since the user last spoke comes back
    as it was. Looked at where thinking is on, for models that do not bind it (`loop`)."""
    thinking = after.body.get("thinking")
    first = _loop(after.messages)
    if (
        first is None
        or not isinstance(thinking, Mapping)
        or thinking.get("type") not in ("enabled", "adaptive")
    ):
        return
    for lapse in find_lapses(_lines(before.messages), _lines(after.messages)):
        if lapse.at >= first and after.messages[lapse.at].role == "assistant" and any(lapse.had):
            text = f"thinking of the latest assistant turn was {_what(lapse)}"
            yield Violation("AN-6", lapse.at, text, ",".join(after.messages[lapse.at].calls))


def _lines(messages: Sequence[Message]) -> list[tuple[bytes, tuple[Thinking, ...]]]:
    return [(message_digest(message), thinking_of(message)) for message in messages]


def _what(lapse: Lapse) -> str:
    return "changed" if lapse.has else "removed"


def _loop(messages: Sequence[Message]) -> int | None:
    """Where the assistant's turn begins, if results of tools come last; else None."""
    spoken = [at for at, message in enumerate(messages) if message.role != "system"]
    if not spoken or not messages[spoken[-1]].results:
        return None
    return max((at + 1 for at in spoken if messages[at].is_request), default=0)


GROWN: tuple[ContinuityRule, ...] = (
    ContinuityRule(
        "AN-6",
        "thinking of the latest turn comes back as it was while tools are called",
        check_tool_loop,
        ("loop",),
    ),
    ContinuityRule(
        "AN-7",
        "before signed thinking stands what it was thought over",
        check_thinking_prefixes,
        ("bound", "unsure"),
    ),
    ContinuityRule(
        "AN-10",
        "thinking is left out from the oldest on, without a gap",
        check_thinking_chain,
        ("bound", "unsure"),
    ),
)
"""All that a request to this API must keep of the one before it."""
