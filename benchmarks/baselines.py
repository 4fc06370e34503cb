"""The baseline for compaction in layers: a plain summary by a scripted model."""

import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.billing import PRICES
from refold.core.strategy import Answer, Ask, Summary
from refold.core.view import View
from refold.messages import Message, Text, user
from refold.models.model import with_cost
from refold.text.plain import readable_text, terms
from refold.text.summary_wrapper import wrap_summary
from refold.tokens.count import count_message
from refold.tokens.usage import Usage

SENTENCE = re.compile(r"[^\n.!?。！？]{4,}(?:[.!?。！？](?=\s|$)|[.!?。！？][^\s][^\n.!?。！？]*)*")
LONGEST = 300
"""Maximum characters of a sentence; longer ones are cut."""
PROMPT = "Summarise the conversation so far."


@dataclass(frozen=True, slots=True)
class Plain:
    """The most common kind of summary: the model is given the messages to hide, and its answer
    replaces them. There is no record beside it, and an earlier summary is summarised again."""

    def __call__(
        self, view: View, start: int, stop: int, max_tokens: int
    ) -> Generator[Ask, Answer | None, Summary]:
        """Summarise what the view shows of `messages[start:stop]`."""
        room = max_tokens - view.profile.count(wrap_summary(""))
        answer = yield Ask(
            PROMPT, max(1, room), messages=tuple(turns(_iter_shown(view, start, stop)))
        )
        return Summary(answer.text if answer is not None else "")


def _iter_shown(view: View, start: int, stop: int) -> Iterator[Message]:
    for item in view.items:
        if start <= item.start and item.stop <= stop:
            yield from item.messages


def turns(messages: Iterator[Message] | Sequence[Message]) -> Iterator[Message]:
    """Yield each message as text, with tool results as user messages."""
    for message in messages:
        if text := readable_text(message):
            yield Message("assistant" if message.role == "assistant" else "user", (Text(text),))


Choice = Callable[[Sequence[Message], int], str]
"""Function from the messages and the length of an answer in characters to the answer."""


@dataclass(frozen=True, slots=True)
class Extract:
    """A scripted model that answers with as many sentences of the given messages as fit: not a
    language model, but prose from which the same questions can be answered. Priced as a model."""

    choose: Choice

    def __call__(self, ask: Ask) -> Answer:
        """Return the answer with its usage and cost."""
        size, text = 5 * ask.max_tokens, ""
        while size > 40:
            text = self.choose(ask.messages, size)
            over = count_message(user(text)) / ask.max_tokens
            if over <= 1:
                break
            size = int(size / over * 0.98)
        usage = Usage(
            sum(map(count_message, (*ask.messages, user(ask.prompt)))), count_message(user(text))
        )
        return with_cost(Answer(text, usage=usage, model="scripted"), PRICES.row)


def sentences(text: str) -> list[str]:
    """Return the sentences of *text*, each cut to `LONGEST`."""
    return [" ".join(sentence.split())[:LONGEST] for sentence in SENTENCE.findall(text)]


def beginnings(messages: Sequence[Message], size: int) -> str:
    """Return the beginning of each turn, all cut to the same length; of too many turns every
    nth."""
    lines = [" ".join(message.text[:1_000].split()) for message in messages]
    each = max(60, size // max(1, len(lines)))
    step = max(1, round(each * len(lines) / size))
    return "\n".join(line[: each - 1] for line in lines[::step])


def typical(messages: Sequence[Message], size: int) -> str:
    """Return the sentences with the most frequent words (SumBasic: the mean probability of a
    sentence's words), in order."""
    unique = list(
        dict.fromkeys(sentence for message in messages for sentence in sentences(message.text))
    )
    split = [list(terms(sentence)) for sentence in unique]
    often = Counter(
        word for words in split for word in words if len(word) > 3 or not word.isascii()
    )
    worth = [sum(often[word] for word in words) / (len(words) + 2) for words in split]
    chosen, room = list[int](), size
    for at in sorted(range(len(unique)), key=lambda at: -worth[at]):
        if len(unique[at]) < room:
            chosen.append(at)
            room -= len(unique[at]) + 1
    return "\n".join(unique[at] for at in sorted(chosen))
