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


def default_strategies(target: int = 60_000) -> tuple[Strategy, ...]:
    """What `refold.compact` and the command line use unless told otherwise, gentlest first.

    Summaries of the older half, then of more, come before the clearing of results: on recorded
    sessions that keeps more of what later calls use at the same size (docs/benchmarks.md). A summary
    takes at most a tenth of *target* tokens, from 600 to 4,000.
    """
    room = max(600, min(4_000, target // 10))
    return (
        DropDuplicates(),
        ClipResults(limit=50_000),
        ClearThinking(keep=2),
        Summarize(keep=0.5, max_tokens=room),
        Summarize(keep=0.35, max_tokens=room),
        Summarize(keep=0.2, max_tokens=room),
        ClearToolResults(keep=3),
        ClearToolInputs(keep=3),
        Summarize(keep=8, max_tokens=room),
    )


def compact(history: Any, to: int, *, store: Store | None = None, format: str | None = None) -> View:
    """A view of *history* of at most *to* tokens, if the default strategies can make it so small.

    *history* is a list of messages, a request body or its JSON text (Anthropic Messages, OpenAI Chat
    Completions, OpenAI Responses, Gemini); *format* names it where its shape should not decide. It
    is left alone: send the view's `payload`. With a *store* the edits made now are used again next
    time. No model is asked. `view.tokens` says whether it fits; `view.attempts` what was done.

    Raises `FormatError` when *history* holds no conversation, `StoreError` when the store fails.
    """
    return Compactor(default_strategies(to), Budget(to, to), store, format=format)(history)
