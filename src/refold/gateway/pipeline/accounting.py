"""What an answered call tells the books, and the conversation it belongs to."""

from typing import Any, NamedTuple

from refold.core.view import View
from refold.gateway.conversations.conversations import Conversation
from refold.gateway.conversations.identity import tenant_of
from refold.gateway.ledger.accounting import BilledCall
from refold.gateway.messages import Incoming, Outgoing
from refold.gateway.pipeline.model_limits import ModelLimits


class Ticket(NamedTuple):
    """What an `Outgoing` carries for the calls after it."""

    conversation: Conversation
    view: View

    @property
    def name(self) -> str:
        """The conversation's name, a hash."""
        return self.conversation.name


def billed_call(
    when: float, rooms: ModelLimits, incoming: Incoming, outgoing: Outgoing, usage: Any
) -> BilledCall:
    """The call, answered at *when* (seconds since 1970), for the books."""
    call = BilledCall(when, incoming, outgoing, usage, tenant_of(incoming))
    ticket = outgoing.ticket
    if not isinstance(ticket, Ticket):
        return call
    conversation, view = ticket
    return call._replace(
        session=conversation.name,
        model=outgoing.model,
        view=view,
        room=rooms.usable_tokens(incoming, outgoing.model),
    )


def learn_usage(ticket: Ticket, when: float, usage: Any) -> None:
    """The conversation's own figures: when it was answered, and what its tokens really are. Raises what
    reading *usage* raises."""
    ticket.conversation.answered_at = when
    ticket.conversation.compactor.report(ticket.view, usage)
