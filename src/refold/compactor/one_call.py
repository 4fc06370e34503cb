"""The one-line form."""

from typing import Any

from refold.budget.budget import Budget
from refold.codecs.codec import Codec
from refold.compactor.compactor import Compactor
from refold.compactor.settings import default_strategies
from refold.core.view import View
from refold.errors import require_int
from refold.stores.store import Store


def compact(
    history: Any, to: int, *, store: Store | None = None, format: str | Codec | None = None
) -> View:
    """Return a view of *history* of at most *to* tokens, if the default strategies can make it so
    small.

    *history* is a list of messages, a request body or its JSON text (Anthropic Messages, OpenAI
    Chat Completions, OpenAI Responses, Gemini); *format* names it if its shape should not decide.
    It is left alone: send the view's `payload`. With a *store* the edits made now are used again
    next time. No model is asked. `view.tokens` says whether it fits; `view.attempts` what was done.

    Not for loops: called anew for a history that grows, it decides anew and breaks the prompt cache
    nearly every time. Keep one `Compactor(model=...)` there, which compacts when that pays.

    Raises ValueError if *to* is no number of tokens, `FormatError` if *history* holds no
    conversation, `StoreError` if the store fails.
    """
    require_int(0, to=to)
    return Compactor(default_strategies(to), Budget(to, to), store, format=format)(history)
