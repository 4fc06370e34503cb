"""What fits each model: windows that are known, that upstreams name, and that a refusal shows."""

from collections.abc import Mapping
from functools import lru_cache
from threading import Lock
from typing import Any, TypeVar

from refold.gateway.conversations.conversations import Conversation
from refold.gateway.messages import Incoming
from refold.gateway.policy.body_fields import read_cap
from refold.gateway.policy.policy import TokenLevels, levels_for
from refold.gateway.policy.upstream_errors import ErrorFigures
from refold.gateway.settings import Settings
from refold.tokens.model_table import Window, find_window

ModelKey = tuple[str, str, str]
"""An upstream, a caller's credential, and a model."""
V = TypeVar("V")

MAX_MODELS = 1_000
"""Models whose figures are remembered: clients may send any number of names."""
SMALLEST_WINDOW = 500
"""Tokens that a window has at least; a smaller one is a misunderstanding."""


class ModelLimits:
    """The figures of models, in tokens. Calls may come from several threads.

    What an upstream tells one caller holds for that caller (its credential) alone. An error's words
    are in part the request's, and may come from another deployment of that name: they could shrink
    others' windows.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings, self._lock = settings, Lock()
        self._known_levels = lru_cache(MAX_MODELS)(self._find_levels)
        self._learned: dict[ModelKey, TokenLevels] = {}
        self._answered: dict[ModelKey, int] = {}
        """Tokens of the largest request that was answered since the last context error that named a
        window."""
        self._largest: dict[ModelKey, int] = {}
        """Tokens of the largest one since the last such error that was believed."""

    def for_conversation(
        self, incoming: Incoming, model: str, refused_at: tuple[str, int] | None
    ) -> TokenLevels:
        """Return the figures for a request of a conversation that was *refused_at* a model and so
        many tokens, if it was (`Conversation`)."""
        levels = self.for_model(incoming, model)
        if refused_at is None or refused_at[0] != model:
            return levels
        if levels.window and levels.window.room <= refused_at[1]:
            return levels
        return levels_for(self._settings, Window(refused_at[1]))

    def for_model(self, incoming: Incoming, model: str) -> TokenLevels:
        """Return the figures for a caller's model at an upstream."""
        levels = self._learned.get(_model_key(incoming, model)) if self._learned else None
        return levels or self._known_levels(model)

    def usable_tokens(self, incoming: Incoming, model: str) -> int | None:
        """Return the tokens that a request to *model* may have; None if its window is not known."""
        window = self.for_model(incoming, model).window
        return window.room if window is not None else None

    def fits(self, incoming: Incoming, model: str, body: Mapping[str, Any]) -> bool:
        """Does a request with this body, and its answer, fit its model's window whatever its tokens
        are?"""
        levels, size = self.for_model(incoming, model), len(incoming.body)
        if levels.window is None or levels.soft is None:
            return True
        cap = read_cap(incoming.api, body)
        most = size + (cap.tokens if cap else 0)  # no text has more tokens than bytes
        return size < levels.soft and most <= levels.window.context

    def record_answer(self, incoming: Incoming, model: str, tokens: int) -> None:
        """Note that an upstream has answered a request of so many estimated tokens."""
        key = _model_key(incoming, model)
        if tokens > self._answered.get(key, 0):
            with self._lock:
                _put(self._answered, key, tokens)
                _put(self._largest, key, max(tokens, self._largest.get(key, 0)))

    def largest_answered(self, incoming: Incoming, model: str) -> int:
        """Return the estimated tokens of the caller's largest request to this model that was
        answered."""
        return self._largest.get(_model_key(incoming, model), 0)

    def learn(
        self,
        incoming: Incoming,
        model: str,
        conversation: Conversation,
        figures: ErrorFigures,
        sent: int,
    ) -> ErrorFigures:
        """Take the window that a context error tells of, and return what can be true of its
        *figures*.

        If it tells of none, the *sent* tokens are too many for this *conversation*, and for it
        alone: nobody knows whether the window was the reason.
        """
        key, before = _model_key(incoming, model), conversation.refused_at
        if figures.limit:
            figures = self._plausible(key, figures)
        if figures.limit:
            window = self._window(model)
            with self._lock:
                self._largest.pop(key, None)
                if window is None or figures.limit < window.room:
                    _put(self._learned, key, levels_for(self._settings, Window(figures.limit)))
                else:
                    self._learned.pop(key, None)
        elif sent and not figures.output:
            least = min(sent, before[1]) if before and before[0] == model else sent
            conversation.refused_at = model, least
        return figures

    def _find_levels(self, model: str) -> TokenLevels:
        return levels_for(self._settings, self._window(model))

    def _window(self, model: str) -> Window | None:
        """Return the window that settings or the table name."""
        return find_window(model, self._settings.windows.get(model)).window

    def _plausible(self, key: ModelKey, figures: ErrorFigures) -> ErrorFigures:
        """Return *figures*, or none if their limit is no window at all or below half of what was
        answered.

        Estimates may be that wrong. Such a window is believed if it is told again before as much
        was answered once more.
        """
        with self._lock:
            answered = self._answered.pop(key, 0)
        is_plausible = figures.limit >= max(SMALLEST_WINDOW, answered // 2)
        return figures if is_plausible else ErrorFigures()


def _model_key(incoming: Incoming, model: str) -> ModelKey:
    return incoming.upstream, incoming.credential, model


def _put(table: dict[ModelKey, V], key: ModelKey, value: V) -> None:
    """Put a value into *table*, in place of the oldest if there are MAX_MODELS."""
    if key not in table and len(table) >= MAX_MODELS:
        del table[next(iter(table))]
    table[key] = value
