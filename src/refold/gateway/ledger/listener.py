"""Books what is done to a conversation, and what that costs."""

from collections.abc import Callable

from refold.compactor.hooks import (
    CompactionEnded,
    CompactionStarted,
    EditsReverted,
    Event,
    OnEvent,
    PreviewAccepted,
)
from refold.gateway.ledger.accounting import SummaryCost
from refold.gateway.ledger.rows import SessionEvent


def summary_cost_listener(
    book: Callable[[SummaryCost | SessionEvent], None],
    tenant: str,
    session: str,
    then: OnEvent | None,
) -> OnEvent:
    """Return a listener that books what is done to one conversation and what that costs, and calls
    *then*."""
    models = dict[str, str]()

    def listen(event: Event) -> None:
        if isinstance(event, CompactionStarted):
            models[event.run] = event.model
        elif isinstance(event, CompactionEnded):
            model = models.pop(event.run, "")
            if event.calls:
                book(SummaryCost(event.ended_at, tenant, session, model, event.calls, event.cost))
            if event.action == "compact" and event.edits:
                book(SessionEvent(session, tenant, event.ended_at, "compact"))
        elif isinstance(event, PreviewAccepted):
            book(SessionEvent(session, tenant, event.when, "accept"))
        elif isinstance(event, EditsReverted):
            book(SessionEvent(session, tenant, event.when, "revert"))
        if then is not None:
            then(event)

    return listen
