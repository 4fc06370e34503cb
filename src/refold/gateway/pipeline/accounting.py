"""What an answered call tells the books, and the conversation it belongs to."""

from typing import Any, NamedTuple

from refold.core.view import View
from refold.gateway.conversations.conversations import Conversation
from refold.gateway.conversations.identity import tenant_of
from refold.gateway.ledger.accounting import Answered
from refold.gateway.messages import Incoming, Outgoing
from refold.gateway.pipeline.model_limits import ModelLimits


class Ticket(NamedTuple):
    """What an `Outgoing` carries for the calls after it."""

    thread: Conversation
    view: View

    @property
    def name(self) -> str:
        """The conversation's name, a hash."""
        return self.thread.name


def billed_call(
    when: float, rooms: ModelLimits, incoming: Incoming, outgoing: Outgoing, usage: Any
) -> Answered:
    """The call, answered at *when* (seconds since 1970), for the books."""
    call = Answered(when, incoming, outgoing, usage, tenant_of(incoming))
    ticket = outgoing.thread
    if not isinstance(ticket, Ticket):
        return call
    thread, view = ticket
    return call._replace(
        session=thread.name,
        model=outgoing.model,
        view=view,
        room=rooms.room(incoming, outgoing.model),
    )


def learn_usage(ticket: Ticket, when: float, outgoing: Outgoing, usage: Any) -> None:
    """The conversation's own figures: when it was used, what it was spared, what its tokens really are. Raises what
    reading *usage* raises."""
    ticket.thread.used = when
    ticket.thread.count(outgoing.before - outgoing.after)
    ticket.thread.compactor.report(ticket.view, usage)
