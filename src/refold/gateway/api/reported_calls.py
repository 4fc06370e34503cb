"""The operation `report_usage`: a call that a program made itself is booked as those that pass
through the gateway are."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from msgspec import UNSET, UnsetType

from refold.budget.budget import Budget
from refold.budget.triggers import Never
from refold.codecs.codec import Payload
from refold.compactor.compactor import Compactor
from refold.core.view import View
from refold.errors import EditError
from refold.gateway.api.answers import Answer, Tokens
from refold.gateway.api.arguments import (
    Count,
    RequestArguments,
    SessionId,
    about,
)
from refold.gateway.api.context import ApiContext, Problem
from refold.gateway.api.lookup import read_request
from refold.gateway.conversations.stores import hash_parts
from refold.gateway.ledger.accounting import (
    BilledCall,
    compute_cost,
    has_hour_cache,
    read_billed_tokens,
)
from refold.gateway.ledger.entry import DOLLAR, clean_name
from refold.gateway.messages import Outgoing
from refold.gateway.pipeline.match import tenant_of
from refold.gateway.pipeline.turns import model_of
from refold.messages import Message
from refold.rules.request import common_length
from refold.tokens.model_table import find_rates
from refold.tokens.usage import MOST_TOKENS, read_usage


class ReportUsageArguments(RequestArguments, kw_only=True):
    """A call of a model: whose it was, what was sent, what it used."""

    conversation_id: Annotated[
        str, about("What the program calls it.", min_length=1, max_length=500)
    ]
    agent_id: Annotated[str, about("Which program; lists name it as client.", max_length=100)] = ""
    request: Annotated[
        dict[str, Any], about("A whole request body of any of the four APIs, as it was sent.")
    ]
    history: Annotated[
        list[dict[str, Any]] | UnsetType,
        about("The messages that `request` stands for, if it was compacted: all, in its format."),
    ] = UNSET
    usage: Annotated[
        dict[str, Any],
        about("The usage object of the answer, of any provider, with the fields as it has them."),
    ]


class ReportUsageAnswer(Answer):
    """What is booked."""

    session: SessionId
    original: Annotated[Tokens, about("Of the request, had it not been compacted.")]
    sent: Annotated[Tokens, about("Of the request.")]
    input: Annotated[Count, about("Tokens of the request as reported, the cache's included.")]
    output: Count
    spent: Annotated[float | None, about("US dollars; null if the model has no known price.")]


def report_usage(context: ApiContext, arguments: ReportUsageArguments) -> ReportUsageAnswer:
    """Book a call. Raises `Problem` 422, `FormatError`."""
    model = arguments.model or arguments.request.get("model")
    if not isinstance(model, str) or not model:
        raise Problem(422, "no_model", "`request` names no model, and `model` is missing.")
    incoming, payload = read_request(context, arguments.request, arguments)
    tokens = read_billed_tokens(arguments.usage, hour=has_hour_cache(incoming.body))
    if tokens is None:
        wanted = f"tokens of a request, as any provider has, and at most {MOST_TOKENS:,}"
        raise Problem(422, "no_usage", f"`usage` has to have {wanted}.")
    _reject_contradiction(arguments.usage)
    view = _show(payload)
    if arguments.history is not UNSET:
        whole = {**arguments.request, payload.codec.FIELD: arguments.history}
        history = _show(read_request(context, whole, arguments)[1])
        view = _fold_difference(history, view.transcript.messages)
    model, names = model_of(payload), (arguments.agent_id, arguments.conversation_id)
    session = hash_parts("reported", incoming.api, incoming.credential, *names)
    agent, name = map(clean_name, names)  # where a client has them
    incoming = replace(incoming, headers=(("user-agent", agent), ("x-session-id", name)))
    edits = tuple(edit.id for edit in view.edits)
    call = BilledCall(
        context.pipeline.settings.clock(),
        incoming,
        Outgoing(b"", edits, view.tokens_unedited, view.tokens, model=model),
        arguments.usage,
        tenant_of(incoming.api, incoming.credential),
        session,
        model,
        view,
        context.pipeline.resources.model_limits.usable_tokens(incoming, model),
    )
    context.ledger_writer.book(call)
    rates = find_rates(model, context.pipeline.settings.prices)
    return ReportUsageAnswer(
        session,
        view.tokens_unedited,
        view.tokens,
        tokens.input,
        tokens.output,
        sum(compute_cost(tokens, rates)) / DOLLAR if rates else None,
    )


def _reject_contradiction(usage: Any) -> None:
    """Raise `Problem` 422 if more tokens were in a cache than in the request. Where a provider
    leaves the cache's out of the request's, as Anthropic does, they are added first."""
    counts = read_usage(usage)
    if counts is not None and (cached := counts.cached + counts.written) > counts.input:
        raise Problem(
            422,
            "bad_usage",
            f"`usage` has {cached:,} tokens read from a cache or written to one, and the request "
            f"only {counts.input:,}: in this form the former are part of the latter. "
            "Anthropic's leaves them out of `input_tokens`, and has `cache_read_input_tokens`.",
        )


def _show(payload: Payload) -> View:
    return Compactor([], Budget(Never(), 0), format=payload.codec).show(payload)


def _fold_difference(history: View, sent: Sequence[Message]) -> View:
    """Return *history* with one edit, so that it shows what was *sent*. Raises `Problem` 422."""
    whole = history.transcript.messages
    start = common_length(whole, sent)
    if start == len(whole) == len(sent):
        return history
    stop = len(whole) - common_length(whole[start:][::-1], sent[start:][::-1])
    start = max((cut for cut in history.cuts if cut <= start), default=0)
    stop = min((cut for cut in history.cuts if cut >= stop), default=len(whole))
    insert = sent[start : len(sent) - (len(whole) - stop)]
    try:
        return history.apply(history.fold(start, stop, *insert, by="report_usage"))
    except (EditError, ValueError) as error:
        message = f"`request` cannot be what was sent for `history`: {error}"
        raise Problem(422, "not_a_view", message[:500]) from error
