"""What fits each model: windows that are known, that upstreams told of, and that a refusal shows."""

from collections.abc import Mapping
from threading import Lock
from typing import Any, TypeVar

from refold.gateway.conversations.turn import Turn
from refold.gateway.http.request_model import request_model
from refold.gateway.messages import Incoming
from refold.gateway.policy.policy import TokenLevels, levels_for
from refold.gateway.policy.request_kind import fits_window
from refold.gateway.policy.upstream_errors import ErrorFigures
from refold.gateway.settings import Settings
from refold.tokens.windows import Window, find_window

ModelKey = tuple[str, str, str]
"""An upstream, a caller's credential, and a model."""
K = TypeVar("K")
V = TypeVar("V")

MAX_MODELS = 1_000
"""Models whose figures are remembered: names are what clients send, so there may be any number."""
SMALLEST_WINDOW = 500
"""Tokens that a window has at least; a smaller one is a misunderstanding."""


class ModelLimits:
    """The figures of models, in tokens. Calls may come from several threads.

    What an upstream told one caller holds for that caller (its credential) alone. An error's words are in part
    the request's, and may come from another deployment of that name, so that they could shrink others' windows.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings, self._lock = settings, Lock()
        self._by_model: dict[str, TokenLevels] = {}
        self._learned: dict[ModelKey, TokenLevels] = {}
        self._answered: dict[ModelKey, int] = {}
        """Tokens of the largest request that was answered since the last context error that told of a window."""
        self._largest: dict[ModelKey, int] = {}
        """The same since the last one that was believed."""

    def for_turn(self, turn: Turn) -> TokenLevels:
        """The figures for a request of a conversation, which may have been refused at fewer tokens."""
        found, refused = self.for_model(turn.incoming, turn.model), turn.conversation.refused_at
        if (
            refused is None
            or refused[0] != turn.model
            or (found.window and found.window.room <= refused[1])
        ):
            return found
        return levels_for(self._settings, Window(refused[1]))

    def for_model(self, incoming: Incoming, model: str) -> TokenLevels:
        """The figures for a caller's model at an upstream."""
        told = self._learned.get(_model_key(incoming, model)) if self._learned else None
        found = told or self._by_model.get(model)
        if found is None:
            found = levels_for(self._settings, self._window(model))
            with self._lock:
                _put(self._by_model, model, found)
        return found

    def _window(self, model: str) -> Window | None:
        """The window that settings or the table say."""
        return find_window(model, self._settings.windows.get(model)).window

    def usable_tokens(self, incoming: Incoming, model: str) -> int | None:
        """Tokens that a request to *model* may have; None where its window is not known."""
        window = self.for_model(incoming, model).window
        return window.room if window is not None else None

    def fits(self, incoming: Incoming, body: Mapping[str, Any]) -> bool:
        """Does a request with this body, and its answer, fit the window of its model whatever its tokens are?"""
        limits = self.for_model(incoming, request_model(incoming.path, body))
        return fits_window(incoming.api, body, len(incoming.body), limits)

    def record_answer(self, incoming: Incoming, model: str, tokens: int) -> None:
        """An upstream has answered a request of so many tokens, as they are estimated."""
        place = _model_key(incoming, model)
        if tokens > self._answered.get(place, 0):
            with self._lock:
                _put(self._answered, place, tokens)
                _put(self._largest, place, max(tokens, self._largest.get(place, 0)))

    def largest_answered(self, turn: Turn) -> int:
        """Tokens of the largest request of this caller to this model that was answered, as they are estimated."""
        return self._largest.get(_model_key(turn.incoming, turn.model), 0)

    def learn(self, turn: Turn, said: ErrorFigures, sent: int) -> ErrorFigures:
        """Take the window that the upstream told of, and what can be true of the figures that it *said*. Where it told
        of none, the *sent* tokens are too many for this conversation, and for it alone: nobody knows whether the
        window was the reason."""
        said = self._plausible(turn, said)
        if said.limit:
            window, place = self._window(turn.model), _model_key(turn.incoming, turn.model)
            with self._lock:
                self._largest.pop(place, None)
                if window is None or said.limit < window.room:
                    _put(self._learned, place, levels_for(self._settings, Window(said.limit)))
                else:
                    self._learned.pop(place, None)
        elif sent and not said.output:
            before = turn.conversation.refused_at
            least = min(sent, before[1]) if before and before[0] == turn.model else sent
            turn.conversation.refused_at = turn.model, least
        return said

    def _plausible(self, turn: Turn, said: ErrorFigures) -> ErrorFigures:
        """*said*, or nothing where it is below what is no window at all, or below half of what was answered: estimates
        may be that wrong. Such a window is believed when it is told again before as much was answered once more."""
        if not said.limit:
            return said
        with self._lock:
            answered = self._answered.pop(_model_key(turn.incoming, turn.model), 0)
        return said if said.limit >= max(SMALLEST_WINDOW, answered // 2) else ErrorFigures()


def _model_key(incoming: Incoming, model: str) -> ModelKey:
    return incoming.upstream, incoming.credential, model


def _put(kept: dict[K, V], key: K, what: V) -> None:
    """Keep it, in place of the oldest where there are MODELS."""
    if key not in kept and len(kept) >= MAX_MODELS:
        del kept[next(iter(kept))]
    kept[key] = what
