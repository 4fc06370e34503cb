"""What the Responses API refuses beside calls, outputs and reasoning (OA-6, OA-9, OA-10)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from refold.messages import Message, Opaque
from refold.rules.repair_draft import Entry, Mended, Repair, messages_of
from refold.rules.rule import Rule, Verdict, Violation
from refold.rules.violations import Body

TRUNCATIONS = ("auto", "disabled")

CHOICE = "only the caller knows what was meant"
"""Why a field with a value that cannot be stays."""


def check_context_management(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001 - every judge's signature
    """OA-6: context management knows `compaction` alone, from a number of tokens on."""
    errors = _management_errors(body.get("context_management"))
    return Verdict(tuple(Violation("OA-6", 0, text, "context_management") for text in errors))


def _management_errors(entries: Any) -> Iterator[str]:
    if entries is not None and not isinstance(entries, list | tuple):
        yield "context_management is a list"
    for entry in entries if isinstance(entries, list | tuple) else ():
        if not isinstance(entry, Mapping) or entry.get("type") != "compaction":
            yield "an entry of context_management is not of the type compaction"
        elif not _is_threshold(entry.get("compact_threshold")):
            yield "compact_threshold is no number of tokens above 0"


def _is_threshold(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0)


def check_truncation(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001
    """OA-10: a history that is too long is cut by the API (`auto`) or refused (`disabled`)."""
    value = body.get("truncation")
    if value is None or value in TRUNCATIONS:
        return Verdict()
    return Verdict(
        (Violation("OA-10", 0, f"truncation is {' or '.join(TRUNCATIONS)}", "truncation"),)
    )


def check_trigger(messages: Sequence[Message], body: Body) -> Verdict:  # noqa: ARG001
    """OA-9: what asks for compaction is the last item. There it stays to be seen, with no cut behind it."""
    positions, last = (
        [at for at, message in enumerate(messages) if _asks(message)],
        len(messages) - 1,
    )
    text = "what asks for compaction is not the last item"
    early = (Violation("OA-9", at, text, "compaction_trigger") for at in positions if at < last)
    return Verdict(tuple(early), ((last, last + 1),) if last in positions else ())


def _asks(message: Message) -> bool:
    if Opaque not in map(type, message.parts):  # as nearly always, and far sooner known
        return False
    return any(
        isinstance(part, Opaque) and part.kind == "compaction_trigger" for part in message.parts
    )


def put_last(entries: Sequence[Entry], body: Body) -> Mended:
    """Mend OA-9: the latest item that asks for compaction moves to the end; others, which say the same, go."""
    early = {violation.at for violation in check_trigger(messages_of(entries), body).violations}
    if not early:
        return list(entries), []
    positions = [at for at, entry in enumerate(entries) if _asks(entry.message)]
    rest = [entry for at, entry in enumerate(entries) if at not in positions]
    texts = (
        "moved to the end" if at == positions[-1] else "removed: another asks for compaction"
        for at in positions
    )
    repairs = [
        Repair("OA-9", entries[at].near, text)
        for at, text in zip(positions, texts, strict=True)
        if at in early
    ]
    return [*rest, entries[positions[-1]]], repairs


RULES: tuple[Rule, ...] = (
    Rule(
        "OA-6",
        "context management knows compaction alone",
        check_context_management,
        limit=CHOICE,
        joins=False,
    ),
    Rule("OA-9", "what asks for compaction is the last item", check_trigger, put_last),
    Rule("OA-10", "truncation is auto or disabled", check_truncation, limit=CHOICE, joins=False),
)
"""All rules of this API that concern the rest of the request, and what stands in for a field of it."""
