"""Counts of the user's messages in the requests that reached the model."""

from collections.abc import Iterable, Iterator, Sequence

from clients.client import Client
from refold.codecs.detect import open_payload
from refold.messages import Message, Part, Text, ToolResult
from refold.speakers import own_words, segment_messages
from refold.summarizers.heuristic.earlier import read_earlier_summaries
from refold.testing.scripted_provider import Received
from refold.text.summary_wrapper import summary_in, without_summary

BEGINNING = 40
"""Characters of a request that are compared: a summary cuts the middle of a long one."""
NOTES = ("<system-reminder>", "<total_tokens>", "This is how Claude Code", "Today's date is")
"""Words that only clients write here, never the user."""


def count_unsaid(requests: Sequence[Received], client: Client) -> int:
    """Count the *requests* that lack the verbatim user message of the open turn.

    For a client with many turns each message is one turn. Within one turn, text typed later counts
    from the first request that has it on, and is missing in all if none has it.
    """
    texts = [_text_beside_summaries(received, client.api) for received in requests]
    if len(client.turns) > 1:
        asked = (client.turns[min(at, len(client.turns) - 1)][0] for at in range(len(texts)))
        return sum(words not in text for words, text in zip(asked, texts, strict=True))
    first, *later = client.turns[0]
    missing = [first not in text for text in texts]
    for words in later:
        since = next((at for at, text in enumerate(texts) if words in text), 0)
        missing = [
            is_missing or (at >= since and words not in text)
            for at, (is_missing, text) in enumerate(zip(missing, texts, strict=True))
        ]
    return sum(missing)


def count_mistaken(requests: Sequence[Received], client: Client) -> int:
    """Count the *requests* in which `refold.speakers`, or a summary's list of requests, attributes
    other text to the user."""
    texts = [text for turn in client.turns for text in turn]
    return sum(
        not all(_is_said(words, texts) for words in _person_words(received, client.api))
        for received in requests
    )


def _is_said(words: str, texts: Sequence[str]) -> bool:
    """Return whether this begins as one of *texts*, perhaps after a manual, without client
    notes."""
    is_text = any(text[:BEGINNING] in words for text in texts)
    return is_text and not any(note in words for note in NOTES)


def _messages(received: Received, api: str) -> list[Message]:
    return list(open_payload(received.json, api).decode())


def _text_beside_summaries(received: Received, api: str) -> str:
    parts = (part for m in _messages(received, api) for part in without_summary(m).parts)
    return "\n".join(part.text for part in _flatten(parts) if isinstance(part, Text))


def _flatten(parts: Iterable[Part]) -> Iterator[Part]:
    for part in parts:
        yield from part.content if isinstance(part, ToolResult) else (part,)


def _person_words(received: Received, api: str) -> Iterator[str]:
    messages = _messages(received, api)
    for spoken in segment_messages(messages):
        for segment in spoken:
            if segment.voice == "person" and (words := own_words(segment).strip()):
                yield words
    for message in messages:
        if (summary := summary_in(message)) is not None:
            yield from read_earlier_summaries([summary]).state.requests
