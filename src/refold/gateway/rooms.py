"""What fits each model: windows that are known, that upstreams told of, and that a refusal shows."""

from collections.abc import Mapping
from threading import Lock
from typing import Any

from refold.gateway import light, plan
from refold.gateway.errors import Figures
from refold.gateway.settings import Settings
from refold.gateway.traffic import Incoming
from refold.gateway.turn import Turn, named
from refold.windows import Window, find_window

MODELS = 1_000
"""Models whose figures are remembered: names are what clients send, so there may be any number."""


class Rooms:
    """The figures of models, in tokens. Calls may come from several threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._lock = settings, Lock()
        self._told: dict[str, int] = {}
        self._figures: dict[str, plan.Limits] = {}

    def of(self, turn: Turn) -> plan.Limits:
        """The figures for a request of a conversation, which may have been refused at fewer tokens."""
        found, refused = self.limits(turn.incoming, turn.model), turn.thread.refused
        if refused is None or refused[0] != turn.model or (found.window and found.window.room <= refused[1]):
            return found
        return plan.limits(self._settings, Window(refused[1]))

    def limits(self, incoming: Incoming, model: str) -> plan.Limits:
        """The figures for a model at an upstream."""
        place = _place(incoming, model)
        found = self._figures.get(place)
        if found is None:
            told = self._told.get(place)
            window = find_window(model, self._settings.windows.get(model)).window
            if told and (window is None or told < window.room):
                window = Window(told)
            if len(self._figures) >= MODELS:
                self._figures.clear()
            found = self._figures[place] = plan.limits(self._settings, window)
        return found

    def room(self, incoming: Incoming, model: str) -> int | None:
        """Tokens that a request to *model* may have; None where its window is not known."""
        window = self.limits(incoming, model).window
        return window.room if window is not None else None

    def holds(self, incoming: Incoming, body: Mapping[str, Any]) -> bool:
        """Does a request with this body, and its answer, fit the window of its model whatever its tokens are?"""
        limits = self.limits(incoming, named(incoming.path, body))
        return light.has_room(incoming.api, body, len(incoming.body), limits)

    def learn(self, turn: Turn, said: Figures, sent: int) -> None:
        """Take the window that the upstream told of. Where it told of none, the *sent* tokens are too many for this
        conversation, and for it alone: nobody knows whether the window was the reason."""
        if said.limit:
            with self._lock:
                if len(self._told) >= MODELS:
                    self._told.clear()
                self._told[_place(turn.incoming, turn.model)] = said.limit
                self._figures.clear()
        elif sent and not said.output:
            before = turn.thread.refused
            least = min(sent, before[1]) if before and before[0] == turn.model else sent
            turn.thread.refused = turn.model, least


def _place(incoming: Incoming, model: str) -> str:
    return f"{incoming.upstream}\n{model}"
