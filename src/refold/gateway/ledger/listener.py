"""What compactions ask models, told to who keeps the books."""

from refold.compactor.hooks import CompactionEnded, CompactionStarted, Event, OnEvent
from refold.gateway.ledger.accounting import Summarised
from refold.gateway.ledger.writer import Clerk


def listener(clerk: Clerk, tenant: str, session: str, then: OnEvent | None) -> OnEvent:
    """Books what the compactions of one conversation cost, and tells *then*."""
    models = dict[str, str]()

    def listen(event: Event) -> None:
        if isinstance(event, CompactionStarted):
            models[event.run] = event.model
        elif isinstance(event, CompactionEnded):
            model = models.pop(event.run, "")
            if event.calls:
                clerk.summarised(Summarised(event.ended_at, tenant, session, model, event.calls, event.cost))
        if then is not None:
            then(event)

    return listen
