"""The gemini preset for LangChain: `await compressor.compress(messages, config)` (S0-07 to
S0-10)."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from refold.adapters import langchain
from refold.adapters.hook import explain_missing
from refold.adapters.langchain import SOURCE, ChatModel
from refold.budget.triggers import Predicate
from refold.core.tool_groups import find_answers
from refold.core.view import View
from refold.edits import Outcome
from refold.models import HTTPModel
from refold.presets.gemini import Settings, clean_history, compactor
from refold.stores.store import Store
from refold.summarizers.forms import Snapshot, read_snapshot
from refold.text.summary_wrapper import opening_length, summary_in

with explain_missing("langchain-core", "langchain"):
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import RunnableConfig

CONFIGURABLE = "compression"
KEPT = "refold_steps_kept"
"""Key in the `additional_kwargs` of a snapshot: number of model steps after it when it was made."""


class Compressor(ABC):
    """Base class for compressors of LangChain histories. Extend it to write your own (S0-09)."""

    def __init__(self, config: Settings) -> None:
        self.config: Settings = config

    @abstractmethod
    async def compress(
        self, messages: list[BaseMessage], config: RunnableConfig
    ) -> tuple[list[BaseMessage], bool]:
        """Return the messages to continue with, and whether they changed."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class CompressionResult:
    """The result of one compression (C0-8)."""

    messages: list[BaseMessage] = field(repr=False)
    """The messages to continue with. The same list as given if nothing was compressed."""
    compressed: bool
    original_tokens: int
    new_tokens: int
    status: Outcome
    """`applied`, `noop`, `rejected`, `failed`, `degraded` or `no_headroom` (`refold.Attempt`)."""
    reason: str
    """Explanation of the status."""
    snapshot: Snapshot | None = None
    """The fields of the snapshot (S0-27)."""
    view: View | None = field(default=None, repr=False)


class GoogleStyleCompressor(Compressor):
    """Filters, checks the threshold, splits, takes a snapshot, rebuilds and verifies, like Gemini
    CLI (S0-10 to S0-16).

    *model* is a LangChain chat model or anything else that answers an `Ask`. The default is
    `config.model`, or `config.compression_model` at `config.url`. With a *store*, histories that
    are sent whole again show their earlier snapshots. Raises ValueError if there is neither a model
    nor a fallback.
    """

    def __init__(self, config: Settings, model: Any = None, store: Store | None = None) -> None:
        super().__init__(config)
        self.model = config.model if model is None else model
        if self.model is None and config.url:
            self.model = HTTPModel(config.url, model=config.compression_model, key=config.key)
        if self.model is None and config.fallback is None:
            raise ValueError(
                "give a model, or the url of an endpoint that serves compression_model, or a fallback"
            )
        also = Predicate(
            partial(_has_enough_steps, every=config.every or 0), "enough steps since the snapshot"
        )
        self.compactor = compactor(config, store=store, format=langchain, also=also)

    async def compress(
        self, messages: list[BaseMessage], config: RunnableConfig | Settings | None = None
    ) -> tuple[list[BaseMessage], bool]:
        """Return the compressed messages and True, or the given list itself and False (S0-45).

        Failures of the model do not raise. Raises `FormatError` if the list holds anything but
        messages.
        """
        result = await self.run(messages, config)
        return result.messages, result.compressed

    async def run(
        self, messages: list[BaseMessage], config: RunnableConfig | Settings | None = None
    ) -> CompressionResult:
        """As `compress`, with token counts, the reason and the snapshot's fields."""
        valid = clean_history(messages, langchain)
        view = await self.compactor.acompact(valid, self._asker(config))
        before = view.revert().tokens
        status, reason = self._outcome(view, valid)
        if not view.edits:
            return CompressionResult(messages, False, before, before, status, reason, None, view)
        sent = [_with_note(message, view) for message in view.payload]
        return CompressionResult(
            sent, True, before, view.tokens, status, reason, _snapshot(view), view
        )

    def _asker(self, config: RunnableConfig | Settings | None) -> Any:
        if isinstance(self.model, BaseChatModel):
            return ChatModel(self.model, None if isinstance(config, Settings) else config)
        return self.model

    def _outcome(self, view: View, valid: list[BaseMessage]) -> tuple[Outcome, str]:
        tried = [
            attempt for attempt in view.attempts if view.edits or attempt.outcome != "no_headroom"
        ]
        if tried:
            return tried[-1].outcome, tried[-1].reason
        if view.edits:
            return "applied", "by an earlier compression"
        check = self.compactor.check(valid)
        return "noop", check.hold_reason or check.reason


def get_compressor(
    config: Settings | RunnableConfig,
    kind: Callable[[Settings], Compressor] = GoogleStyleCompressor,
) -> Compressor:
    """Return a compressor for *config* (S0-44): `Settings`, or a run's config that has `Settings`,
    or a mapping of their names, under `configurable` as `compression`. Raises ValueError
    otherwise."""
    if isinstance(config, Settings):
        return kind(config)
    given = (config.get("configurable") or {}).get(CONFIGURABLE)
    if given is None:
        raise ValueError(
            f"give Settings, or a config with them under configurable as {CONFIGURABLE!r}"
        )
    return kind(given if isinstance(given, Settings) else Settings(**given))


def _snapshot(view: View) -> Snapshot | None:
    summaries = (text for text in map(summary_in, view.messages) if text is not None)
    return next((snapshot for text in summaries if (snapshot := read_snapshot(text))), None)


# --- snapshots at intervals -----------------------------------------------------------------------


def _with_note(message: BaseMessage, view: View) -> BaseMessage:
    """Return a snapshot with a note of the number of steps after it, for when the list comes
    back."""
    if message.additional_kwargs.get("lc_source") != SOURCE or KEPT in message.additional_kwargs:
        return message
    behind = max(edit.stop for edit in view.edits)
    steps = len(find_answers(view.transcript.messages[behind:]))
    return message.model_copy(
        update={"additional_kwargs": {**message.additional_kwargs, KEPT: steps}}
    )


def _has_enough_steps(view: View, every: int) -> bool:
    """Return whether the model has made *every* steps since the snapshot at the start of the
    history, or whether there is none."""
    messages = view.transcript.messages
    behind = opening_length(messages)
    if not behind or view.source is None:
        return True
    notes = (view.source.entry(at).additional_kwargs.get(KEPT) for at in range(behind))
    noted = next((note for note in notes if isinstance(note, int)), 0)
    return len(find_answers(messages[behind:])) >= noted + every
