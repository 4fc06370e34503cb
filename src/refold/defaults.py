"""The one-line form: sensible strategies, gentlest first."""

from typing import Any

from refold.budget import Budget
from refold.compactor import Compactor
from refold.store import Store
from refold.strategies import (
    ClearThinking,
    ClearToolInputs,
    ClearToolResults,
    ClipResults,
    DropDuplicates,
    Summarize,
)
from refold.strategy import Strategy
from refold.view import View


def default_strategies() -> tuple[Strategy, ...]:
    """What `refold.compact` and the command line use unless told otherwise, gentlest first: a summary
    of the older half, if that is not enough of more, at last of all but eight messages."""
    return (
        DropDuplicates(),
        ClipResults(limit=20_000),
        ClearThinking(keep=2),
        ClearToolResults(keep=3),
        ClearToolInputs(keep=3),
        Summarize(keep=0.5),
        Summarize(keep=0.2),
        Summarize(keep=8),
    )


def compact(history: Any, to: int, *, store: Store | None = None, format: str | None = None) -> View:
    """A view of *history* of at most *to* tokens, if the default strategies can make it so small.

    *history* is a list of messages, a request body or its JSON text (Anthropic Messages, OpenAI Chat
    Completions, OpenAI Responses, Gemini); *format* names it where its shape should not decide. It
    is left alone: send the view's `payload`. With a *store* the edits made now are used again next
    time. No model is asked. `view.tokens` says whether it fits; `view.attempts` what was done.

    Raises `FormatError` when *history* holds no conversation, `StoreError` when the store fails.
    """
    return Compactor(default_strategies(), Budget(to, to), store, format=format)(history)
