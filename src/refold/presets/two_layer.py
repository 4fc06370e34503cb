"""Two layers: old tool output becomes placeholders every round, and beyond a threshold a summary
that knows the current question replaces old messages (S1).

Its parts are Refold's own; this module says which, and with which figures
(docs/presets/two-layer.md).
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from refold.budget.budget import Budget
from refold.budget.triggers import Tokens
from refold.codecs.codec import Codec
from refold.compactor.compactor import Compactor
from refold.compactor.hooks import CompactionStarted, Instructions
from refold.core.strategy import Strategy, Summarizer
from refold.core.view import View
from refold.models.driver import Asker, AsyncAsker
from refold.presets.in_place import EVERY_ROUND, CompactedLists
from refold.presets.measures import KeepFrom, LastTurns, OnlyBeyond, two_ratios
from refold.presets.two_layer_parts import (
    BUILTIN_PROTECTED_TOOLS,
    DEFAULT_KEEP_RECENT_TOOLS,
    DEFAULT_MAX_TOOL_LENGTH,
    DEFAULT_TOKEN_THRESHOLD,
    SUMMARY_CLOSING,
    SUMMARY_PROMPT,
    TITLE,
    ClipOldTexts,
    ContextPolicy,
    PolicyBuilder,
    SummarizeTurns,
    Titled,
    Truncated,
)
from refold.stores.store import MemoryStore, Store
from refold.strategies import ClearToolInputs, ClearToolResults, KeepImportant, Summarize
from refold.summarizers.model import ModelSummary, Prompt
from refold.summarizers.model.prompt import in_tags
from refold.summarizers.placement import PLACEMENTS
from refold.summarizers.tail import find_requests
from refold.text.summary_wrapper import without_summary
from refold.tokens.count import Counter, count_message

FEW = 2
"""Messages, system prompt included, that are never summarised; what is too long in them is still
clipped (C1-11)."""
_log = logging.getLogger("refold")
_question: ContextVar[str] = ContextVar("current_question", default="")
"""The question of the call that runs."""


@contextmanager
def _asking(question: str) -> Iterator[None]:
    reset = _question.set(question)
    try:
        yield
    finally:
        _question.reset(reset)


def micro_compact(policy: ContextPolicy) -> list[Strategy]:
    """Return the first layer (S1-20 to S1-25): results and long arguments of all but the newest
    groups, where the placeholder is smaller. Arguments stay valid JSON (C1-2)."""
    keep, longer, protect = policy.keep_recent_tools, policy.max_tool_length, policy.protected_tools
    stub = Truncated(longer, json=policy.placeholder == "json")
    strategies: list[Strategy] = [
        ClearToolResults(keep=keep, min_tokens=0, protect=protect, stub=stub),
        ClearToolInputs(keep=keep, min_tokens=0, protect=protect, longer_than=longer),
    ]
    return (
        strategies
        if policy.max_text_length is None
        else [*strategies, ClipOldTexts(max(1, keep), policy.max_text_length)]
    )


def auto_compact(
    policy: ContextPolicy,
    prompt: Prompt | str = SUMMARY_PROMPT,
    instruction: Prompt | str = SUMMARY_CLOSING,
) -> list[Strategy]:
    """Return the second layer (S1-26 to S1-31): one summary instead of all but the last turns."""
    tail, writer = LastTurns(policy.keep_recent_turns), summarizer(policy, prompt, instruction)
    place = PLACEMENTS[policy.summary_role]
    whole: Any = KeepFrom(
        Summarize(max_tokens=policy.summary_max_tokens, summarizer=writer, place=place), tail
    )
    if policy.scorer is not None:
        whole = KeepImportant(whole, policy.scorer)
    if not policy.incremental:
        return [whole]
    return [
        SummarizeTurns(start=tail, summarizer=writer),
        OnlyBeyond(whole, policy.token_threshold),
    ]


def summarizer(
    policy: ContextPolicy,
    prompt: Prompt | str = SUMMARY_PROMPT,
    instruction: Prompt | str = SUMMARY_CLOSING,
) -> Summarizer:
    """By a model, with the current question in the request; by rules where none answers (C1-13). In
    *instruction* `{question}` stands for the question and `{tokens}` for the room."""
    return Titled(ModelSummary(prompt=prompt, closing=instruction, headings=(), form=policy.form))


class ContextCompactor:
    """Both layers behind one call, for a loop that keeps its messages in one list (S1-17).

    *model* answers for the second layer: a model of `refold.models` or any function of an `Ask`;
    without one rules summarise. Without a *policy* nothing is ever compacted (S1-32). *store* keeps
    the edits, *count* counts one message's tokens (`counter(two_ratios)` counts as the system did),
    *format* names the wire format where its shape should not decide. *prompt* and *instruction*
    take the place of the summary's system prompt and of the last message of its request.
    """

    def __init__(
        self,
        policy: ContextPolicy | None = None,
        model: Asker | None = None,
        *,
        store: Store | None = None,
        count: Counter = count_message,
        format: str | Codec | None = None,
        prompt: Prompt | str = SUMMARY_PROMPT,
        instruction: Prompt | str = SUMMARY_CLOSING,
    ) -> None:
        self.policy, self.format, self.count = policy, format, count
        settled, store = policy or ContextPolicy(), MemoryStore() if store is None else store
        threshold = settled.token_threshold
        over = Budget(Tokens(threshold + 1), threshold // 2)
        self._first = Compactor(
            micro_compact(settled), EVERY_ROUND, store, count=count, format=format
        )
        self._second = Compactor(
            auto_compact(settled, prompt, instruction),
            over,
            store,
            ask=model,
            count=count,
            format=format,
            before=self._before,
        )
        self._lists = CompactedLists(format)

    def compact(self, messages: list[Any] | None, current_question: str = "") -> View | None:
        """Compact *messages* in place, before each round (S1-18, S1-33), and return the view that
        they show now. None, and no change, for no list and without a policy. *current_question* is
        what the summary is to serve; by default the user's latest request. Raises `FormatError` and
        `StoreError`."""
        if messages is None or self.policy is None:
            return None
        return self._lists.rewrite(messages, lambda history: self.view(history, current_question))

    async def acompact(
        self,
        messages: list[Any] | None,
        current_question: str = "",
        model: AsyncAsker | None = None,
    ) -> View | None:
        """As `compact`, for async code; *model*, if given, is awaited."""
        if messages is None or self.policy is None:
            return None
        originals, seen = self._lists.full_history(messages), len(messages)
        view = await self._first.acompact(originals)
        if not _is_short(view):
            with _asking(current_question):
                view = await self._second.acompact(originals, model)
        # While a model was asked, the list may have grown.
        self._lists.show(messages, originals, view.payload, seen)
        return view

    def view(self, history: Any, current_question: str = "") -> View:
        """Return what to send of a whole *history*, which is left alone: the form for who keeps it
        (X-5)."""
        view = self._first(history)
        if _is_short(view):
            return view
        with _asking(current_question):
            return self._second(history)

    def originals(self, messages: Sequence[Any]) -> list[Any]:
        """Return everything that a list compacted here ever said, word for word (C1-10)."""
        return self._lists.full_history(messages)

    def revert(self, messages: list[Any], *ids: str) -> View:
        """Show in *messages* again what the edits with these ids hide (all, without ids). What the
        first layer did comes back with the next round. Raises `EditError`."""
        return self._lists.rewrite(messages, lambda history: self._second.revert(history, *ids))

    def _before(self, view: View, started: CompactionStarted) -> Instructions | None:
        assert self.policy is not None  # noqa: S101 - without one nothing runs
        _log.info(
            "Context auto_compact triggered: estimated tokens=%s > threshold=%s",
            started.tokens,
            self.policy.token_threshold,
        )
        question = _question.get().strip()
        latest = (view.transcript.messages[at] for at in find_requests(view)[-1:])
        if not question or question in (without_summary(m).text.strip() for m in latest):
            return None
        return Instructions(f"当前用户问题：{in_tags('request', question)}")


def estimate_tokens(
    messages: Any, count: Counter = count_message, format: str | Codec | None = None
) -> int:
    """Return tokens of *messages*, all roles, calls with name and arguments (S1-14, S1-16); 0 for
    none. Rounds up (C1-12). Raises `FormatError`."""
    if not messages:
        return 0
    view = Compactor([], EVERY_ROUND, count=count, format=format).show(messages)
    return view.tokens_uncalibrated


def _is_short(view: View) -> bool:
    head = view.source.head if view.source is not None else 0
    return head + len(view.transcript) <= FEW


__all__ = [
    "BUILTIN_PROTECTED_TOOLS",
    "DEFAULT_KEEP_RECENT_TOOLS",
    "DEFAULT_MAX_TOOL_LENGTH",
    "DEFAULT_TOKEN_THRESHOLD",
    "EVERY_ROUND",
    "SUMMARY_CLOSING",
    "SUMMARY_PROMPT",
    "TITLE",
    "ContextCompactor",
    "ContextPolicy",
    "PolicyBuilder",
    "auto_compact",
    "estimate_tokens",
    "micro_compact",
    "summarizer",
    "two_ratios",
]
