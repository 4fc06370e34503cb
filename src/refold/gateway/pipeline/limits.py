"""Token limits of models, and how to stay within them: windows from tables, upstreams' errors and
refusals; levels, budgets, strategies."""

import json
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Lock
from typing import Any, ClassVar, NamedTuple

from refold.budget.budget import Budget
from refold.budget.triggers import Never
from refold.compactor.conversations import put_lru
from refold.compactor.settings import default_strategies, summary_room
from refold.core.strategy import Edits, Strategy, is_local
from refold.core.view import View
from refold.edits import Edit
from refold.gateway.conversations.conversations import Conversation, Refusal
from refold.gateway.exchange import Incoming
from refold.gateway.logs import log
from refold.gateway.pipeline.request_kind import read_cap
from refold.gateway.pipeline.upstream_errors import ErrorFigures
from refold.gateway.settings import Settings
from refold.rules.request import is_signed
from refold.strategies import (
    ClearThinking,
    ClearToolInputs,
    ClearToolResults,
    Summarize,
    SummarizeTo,
)
from refold.tokens.model_table import Window, find_rates, find_window

NEVER = 10**15
ModelKey = tuple[str, str, str]
"""Upstream, caller's credential, and model."""

MAX_MODELS = 1_000
"""Maximum number of models whose figures are kept. Clients may send any number of names."""
TARGET_STEP = 1_000
"""Targets are raised in multiples of this number of tokens."""
SMALLEST_WINDOW = 500
"""Smallest plausible window in tokens."""


class TokenLevels(NamedTuple):
    """Sizes of requests to one model, in tokens, at which compaction is due, and the *target* to
    come down to. All others are None if its window is unknown."""

    window: Window | None
    hard: int | None
    soft: int | None
    target: int

    def for_view(self, view: View) -> "TokenLevels":
        """Return the levels for *view*, with the target raised by the tokens that system prompt and
        tools take beyond half of it, at most to halfway between them and the hard level, and not
        above that. Otherwise many tools would leave almost nothing of the conversation, again and
        again."""
        fixed = view.profile.calibrate(view.profile.fixed_tokens)
        beyond = fixed - self.target // 2
        if self.hard is None or beyond <= 0:
            return self
        added = -(-beyond // TARGET_STEP) * TARGET_STEP
        most = min(max(self.target, (fixed + self.hard) // 2), self.hard)
        return self._replace(target=min(self.target + added, most))


def levels_for(settings: Settings, window: Window | None) -> TokenLevels:
    """Return the levels that *settings* give for a window; for None only a target."""
    if window is None:
        return TokenLevels(None, None, None, 60_000)
    usable = window.room - min(settings.reserve_tokens, window.room // 5)
    return TokenLevels(
        window,
        int(usable * settings.hard),
        int(usable * settings.soft),
        int(usable * min(settings.target, settings.hard)),
    )


class ModelLimits:
    """Token limits of models. Usable from several threads.

    What an upstream tells one caller (its credential) holds for that caller only. An error's text
    comes in part from the request, and may come from another deployment of that name, so it could
    shrink the windows of others.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings, self._lock = settings, Lock()
        self._known_levels = lru_cache(MAX_MODELS)(self._read_levels)
        self._learned = OrderedDict[ModelKey, TokenLevels]()
        self._answered = OrderedDict[ModelKey, int]()
        """Tokens of the largest request answered since the last context error that named a
        window."""
        self._largest = OrderedDict[ModelKey, int]()
        """Tokens of the largest request answered since the last such error that was believed."""

    def for_conversation(
        self, incoming: Incoming, model: str, refusal: Refusal | None
    ) -> TokenLevels:
        """Return the levels for a request of a conversation. If its *refusal* was by this model,
        the window is at most what was refused."""
        levels = self.for_model(incoming, model)
        if refusal is None or refusal.model != model:
            return levels
        if levels.window and levels.window.room <= refusal.tokens:
            return levels
        return levels_for(self._settings, Window(refusal.tokens))

    def for_model(self, incoming: Incoming, model: str) -> TokenLevels:
        """Return the levels for a model: as learned from its upstream for this caller, else from
        settings or table."""
        levels = self._learned.get(_model_key(incoming, model)) if self._learned else None
        return levels or self._known_levels(model)

    def usable_tokens(self, incoming: Incoming, model: str) -> int | None:
        """Return the maximum tokens of a request to *model*; None if its window is unknown."""
        window = self.for_model(incoming, model).window
        return window.room if window is not None else None

    def fits(self, incoming: Incoming, model: str, body: Mapping[str, Any]) -> bool:
        """Return whether a request with this body is below the soft level, and fits the model's
        window together with its answer, even at one token a byte. True if the window is unknown."""
        levels, size = self.for_model(incoming, model), len(incoming.body)
        if levels.window is None or levels.soft is None:
            return True
        cap = read_cap(incoming.api, body)
        most = size + (cap.tokens if cap else 0)  # no text has more tokens than bytes
        return size < levels.soft and most <= levels.window.context

    def record_answer(self, incoming: Incoming, model: str, tokens: int) -> None:
        """Record that an upstream answered a request of this number of estimated tokens."""
        key = _model_key(incoming, model)
        if tokens > self._answered.get(key, 0):
            with self._lock:
                largest = max(tokens, self._largest.get(key, 0))
                put_lru(self._answered, key, tokens, MAX_MODELS)
                put_lru(self._largest, key, largest, MAX_MODELS)

    def largest_answered(self, incoming: Incoming, model: str) -> int:
        """Return the estimated tokens of the caller's largest request to this model that was
        answered since its window was last learned; 0 if none was."""
        return self._largest.get(_model_key(incoming, model), 0)

    def learn(
        self,
        incoming: Incoming,
        model: str,
        conversation: Conversation,
        figures: ErrorFigures,
        sent: int,
    ) -> ErrorFigures:
        """Learn the window that a context error names, and return its *figures* as far as they are
        plausible.

        If it names none, record the *sent* tokens as too many for this *conversation* only, because
        the window may not have been the reason.
        """
        key, before = _model_key(incoming, model), conversation.refusal
        if figures.limit:
            figures = self._plausible(key, figures)
        if figures.limit:
            window = self._window(model)
            with self._lock:
                self._largest.pop(key, None)
                if window is None or figures.limit < window.room:
                    levels = levels_for(self._settings, Window(figures.limit))
                    put_lru(self._learned, key, levels, MAX_MODELS)
                else:
                    self._learned.pop(key, None)
        elif sent and not figures.output:
            is_less = before is None or before.model != model or sent < before.tokens
            conversation.refusal = Refusal(model, sent) if is_less else before
        return figures

    def _read_levels(self, model: str) -> TokenLevels:
        """Return the levels of *model* from settings or table. Log missing ones, once."""
        window, settings = self._window(model), self._settings
        if model and window is None:
            log(
                "no context window is known for a model: its requests are not compacted before "
                "its upstream refuses one as too long, unless that pays",
                model=model[:200],
                set=f"[windows] {json.dumps(model[:200])} = its tokens, in refold.toml",
            )
        if model and not settings.engines and find_rates(model, settings.prices) is None:
            log(
                "no prices are known for a model: its requests are not compacted to save costs, "
                "and their costs are not counted",
                logging.INFO,
                model=model[:200],
                set=f"[prices.{json.dumps(model[:200])}] in refold.toml",
            )
        return levels_for(settings, window)

    def _window(self, model: str) -> Window | None:
        return find_window(model, self._settings.windows.get(model)).window

    def _plausible(self, key: ModelKey, figures: ErrorFigures) -> ErrorFigures:
        """Return *figures*, or empty ones if their limit is too small for a window or below half of
        an answered request.

        Estimates may be that wrong. Such a limit is believed if it is named again before another
        request of that size is answered.
        """
        with self._lock:
            answered = self._answered.pop(key, 0)
        is_plausible = figures.limit >= max(SMALLEST_WINDOW, answered // 2)
        return figures if is_plausible else ErrorFigures()


def _model_key(incoming: Incoming, model: str) -> ModelKey:
    return incoming.upstream, incoming.credential, model


# --- budgets and strategies -----------------------------------------------------------------------


@lru_cache(maxsize=256)
def manual_budget(levels: TokenLevels) -> Budget:
    """Return a budget that never triggers, with the target for compactions by hand."""
    return Budget(NEVER, levels.target, window=levels.window)


@lru_cache(maxsize=256)
def level_budget(levels: TokenLevels) -> Budget:
    """Return the budget with the hard and soft levels; one that never triggers without them."""
    if levels.hard is None:
        return Budget(Never(), levels.target)
    return Budget(levels.hard, levels.target, levels.soft, window=levels.window)


def strategies_for(settings: Settings, target: int) -> tuple[Strategy, ...]:
    """Return the strategies, gentlest first, with local ones wrapped in `AfterSignedThinking`."""
    chosen = (
        gateway_strategies(target, asks=settings.ask is not None)
        if settings.strategies is None
        else settings.strategies
    )
    return tuple(
        AfterSignedThinking(strategy) if is_local(strategy) else strategy for strategy in chosen
    )


def gateway_strategies(target: int, *, asks: bool) -> tuple[Strategy, ...]:
    """Return the library's default strategies, with summaries sized for each compaction's goal, and
    one more for requests that are still too long."""
    usual = default_strategies(target, asks=asks)
    aimed = (
        replace(each, tokens=None) if isinstance(each, SummarizeTo) else each for each in usual
    )
    return *aimed, Summarize(keep=2, max_tokens=summary_room(target))


def rule_strategies(settings: Settings, target: int) -> tuple[Strategy, ...]:
    """Return the strategies for a compaction that is not due: without a model, gentlest first. Of
    the strategies that *settings* name, only those that leave the words of user and model alone."""
    if settings.strategies is None:
        return strategies_for(replace(settings, ask=None), target)
    return tuple(
        strategy
        for strategy in strategies_for(settings, target)
        if is_local(strategy)
        or isinstance(strategy, ClearThinking | ClearToolResults | ClearToolInputs)
    )


@dataclass(frozen=True, slots=True, repr=False)
class AfterSignedThinking:
    """A local strategy restricted to messages that no signed thinking follows, so that it never
    changes what signed thinking is bound to (AN-7).

    Its edits are stored, because after a restart they would come too late.
    """

    strategy: Any
    local: ClassVar[bool] = True

    def __repr__(self) -> str:
        return repr(self.strategy)

    def __call__(self, view: View, since: int = 0) -> Edits:
        """Yield the strategy's edits that no signed thinking follows."""
        first = position_after_signed_thinking(view) if view.profile.rules.binds else 0
        yield from (
            edit
            for edit in self.strategy(view, since)
            if isinstance(edit, Edit) and edit.start >= first
        )


def position_after_signed_thinking(view: View) -> int:
    """Return the position after the last message with signed thinking; 0 if there is none."""
    messages = view.transcript.messages
    signed = (at for at in range(len(messages) - 1, -1, -1) if is_signed(messages[at]))
    return next(signed, -1) + 1
