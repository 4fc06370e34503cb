"""Sessions on a history, as koog's `llm.readSession` and `llm.writeSession` (S3-12).

A read session sees the history as it is. Only one write session runs at a time, and its changes
apply when it ends without an error.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, NamedTuple

from refold.budget.budget import Budget
from refold.budget.triggers import LastAttempt, Trigger
from refold.codecs.codec import Codec
from refold.codecs.detect import open_payload
from refold.compactor.run import compact_to
from refold.core.profile import Profile
from refold.core.strategy import Ask, Strategy
from refold.core.view import View
from refold.edits import Attempt
from refold.errors import RefoldError
from refold.messages import Message, Part, Text, ToolCall, ToolResult, user
from refold.models.driver import adrive, as_model
from refold.presets.koog import HistoryCompressionStrategy, Listed, WholeHistory
from refold.rules.openai_chat import RULES
from refold.rules.rule import Rules
from refold.summarizers.model.prompt import DETAILS, record_elements
from refold.summarizers.placement import MessageFilter, TaggedOrBeginning, find_kept, keep_before
from refold.summarizers.tail import find_unanswered
from refold.text.summary_wrapper import CONTINUE, summary_in
from refold.tokens.count import Counter, count_fixed, count_message


def as_ask(messages: Sequence[Message], head: int, max_tokens: int) -> Ask:
    """Return *messages*, of which the first *head* are the system prompt, as an `Ask`. The prompt
    is the last message if it is the user's, else a request to go on."""
    system = "\n\n".join(message.text for message in messages[:head])
    turns = [as_text(message) for message in messages[head:]]
    turns = [message for message in turns if message.text.strip()]
    last = turns.pop() if turns and turns[-1].role == "user" else user(CONTINUE)
    return Ask(last.text, max_tokens, "request", system, tuple(turns))


def as_text(message: Message) -> Message:
    """Return a message with text only, in the role of the user or the assistant."""
    if not message.calls and not message.results and message.role in ("user", "assistant"):
        return Message(message.role, (Text(message.text),))
    text = "\n".join(element.render() for element in record_elements([(0, message)], DETAILS[0]))
    return Message("assistant" if message.role == "assistant" else "user", (Text(text),))


class NoAnswer(RefoldError):  # noqa: N818 - what happened, as with `StopIteration`
    """A model gave no usable answer."""


class Prompt(NamedTuple):
    """A history as Refold's messages, leading system messages included."""

    messages: tuple[Message, ...]

    @property
    def head(self) -> tuple[Message, ...]:
        """The system prompt: leading system messages without a summary."""
        return tuple(
            takewhile(lambda m: m.role == "system" and summary_in(m) is None, self.messages)
        )


@dataclass
class ReadSession:
    """A session that reads a history."""

    prompt: Prompt
    model: Any = None
    """A model of `refold.models`, or any function from an `Ask` to an `Answer`."""
    rules: Rules = Rules(RULES)
    count: Counter = count_message
    memory: MessageFilter = field(default_factory=TaggedOrBeginning)
    mark: LastAttempt = field(default_factory=LastAttempt)
    """When the history was last compressed, or first seen."""
    clock: Callable[[], float] = time.time

    @property
    def view(self) -> View:
        """The prompt as a view, with its tokens and legal cuts."""
        return self.view_of(self.prompt)

    def view_of(self, prompt: Prompt) -> View:
        """Return a prompt as a view. The system prompt is counted, but not part of its
        transcript."""
        head = prompt.head
        fixed = count_fixed([part for message in head for part in message.parts], ())
        return View.of(prompt.messages[len(head) :], profile=Profile(self.count, self.rules, fixed))

    def is_due(self, trigger: Trigger, window: int | None = None) -> bool:
        """Return whether *trigger* (`refold.budget.triggers`) fires for this history. For
        conditions of edges (S3-05, C3-7)."""
        budget = Budget(trigger, 0, window=window)
        moment = budget.observe(self.view, last=self.mark, now=self.clock())
        return budget.judge(moment).level == "hard"

    def memory_messages(self) -> tuple[Message, ...]:
        """Return the memory messages, without duplicates (S3-26)."""
        return tuple(dict.fromkeys(filter(self.memory, self.prompt.messages)))

    async def request_llm_without_tools(self, max_tokens: int = 2_000) -> Message:
        """Return the model's answer to the history, without tools. Tool calls and results are sent
        as text, since many providers refuse them without tools (S3-23). Raises `NoAnswer`."""
        answer = None
        if self.model is not None:
            ask = as_ask(self.prompt.messages, len(self.prompt.head), max_tokens)
            answer = await as_model(self.model).acall(ask)
        if answer is None or answer.finish == "error" or not answer.text.strip():
            reason = "there is no model to ask" if answer is None else answer.error
            raise NoAnswer(reason or "the answer is empty")
        return Message("assistant", (Text(answer.text),))


@dataclass
class WriteSession(ReadSession):
    """A session that changes a history, one at a time. *prompt* and *model* may be set. The model
    applies to this session only (S3-24)."""

    original: Prompt = field(default_factory=lambda: Prompt(()))
    """The prompt before the current compression, to compose from (C3-1)."""
    attempts: tuple[Attempt, ...] = ()
    """How the runs of Refold's strategies ended."""

    def append(self, *messages: Message) -> None:
        """Add *messages* at the end of the prompt."""
        self.prompt = Prompt((*self.prompt.messages, *messages))

    @contextmanager
    def using(self, model: Any) -> Iterator[None]:
        """Use another model within a `with` block. The previous one is always restored (S3-24)."""
        before, self.model = self.model, model
        try:
            yield
        finally:
            self.model = before

    async def request_llm_without_tools(self, max_tokens: int = 2_000) -> Message:
        """As in a read session. The answer is appended."""
        answer = await super().request_llm_without_tools(max_tokens)
        self.append(answer)
        return answer

    async def compact(self, *strategies: Strategy) -> View:
        """Run strategies of Refold on the prompt and set it to the result. A failed strategy
        changes nothing, see *attempts*."""
        done = await adrive(compact_to(self.view, strategies, 0), self.model)
        self.attempts += done.attempts
        self.prompt = Prompt((*self.prompt.head, *done.view.messages))
        return done.view

    async def replace_history_with_tldr(
        self,
        strategy: HistoryCompressionStrategy | None = None,
        preserve_memory: bool = True,
        model: Any = None,
    ) -> tuple[Attempt, ...]:
        """Compress the history by *strategy* (default `WholeHistory()`), asking *model* if one is
        given. Afterwards the session has its model again, and if the strategy raised, its history
        too (S3-12, S3-13, S3-24)."""
        before, tried = self.prompt, len(self.attempts)
        self.original = before
        memory = self.memory_messages() if preserve_memory else ()
        with self.using(self.model if model is None else model):
            try:
                await (strategy or WholeHistory()).compress(self, preserve_memory, memory)
            except BaseException:
                self.prompt = before
                raise
        self.mark = LastAttempt(len(self.view.transcript), self.clock(), self.view.tokens)
        return self.attempts[tried:]


class LLM:
    """A history, its model, and sessions on it.

    *history* is a list in any format that Refold knows, or of `refold.Message`. *codec* names its
    format if detection should not decide (`refold.adapters.langchain` for LangChain's). Entries
    that no session changes stay the same objects. *memory* is a predicate of memory messages
    (C3-5). *clock* returns seconds since 1970.
    """

    def __init__(
        self,
        history: Sequence[Any] = (),
        ask: Any = None,
        *,
        codec: str | Codec | None = None,
        memory: MessageFilter | None = None,
        count: Counter = count_message,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.history, self.model = list(history), ask
        own = codec is None and all(isinstance(entry, Message) for entry in history)
        self._codec = None if own else open_payload(self.history, codec).codec
        self._settings: dict[str, Any] = {
            "rules": self._codec.rules({}) if self._codec else Rules(RULES),
            "count": count,
            "memory": memory or TaggedOrBeginning(),
            "clock": clock,
        }
        self._mark, self._writing = LastAttempt(0, clock()), asyncio.Lock()

    @asynccontextmanager
    async def read_session(self) -> AsyncIterator[ReadSession]:
        """Read the history as it is now, whatever a write session is doing to it."""
        yield self.look()

    @asynccontextmanager
    async def write_session(self) -> AsyncIterator[WriteSession]:
        """Change the history. Another write session waits until this one has ended. A nested one in
        the same task would wait for ever. Entries added to `history` meanwhile stay at its end."""
        async with self._writing:
            before = self.look()
            session = WriteSession(**vars(before), original=before.prompt)
            yield session
            added = self.history[len(before.prompt.messages) :]
            self.history = self._entries(before.prompt, session.prompt) + added
            self._mark = session.mark

    def look(self) -> ReadSession:
        """Return a read session, for code that is not async."""
        return ReadSession(self._prompt(), self.model, mark=self._mark, **self._settings)

    def _prompt(self) -> Prompt:
        if self._codec is None:
            return Prompt(tuple(self.history))
        payload = replace(open_payload(self.history, self._codec), head=0)
        return Prompt(tuple(payload.decode()))

    def _entries(self, before: Prompt, after: Prompt) -> list[Any]:
        """Return the entries of *after*. Messages that were there before keep their entries."""
        if self._codec is None:
            return list(after.messages)
        entries, staying = defaultdict[Any, list[Any]](list), {*map(id, after.messages)}
        for m, entry in zip(before.messages, self.history, strict=False):
            entries[id(m) if id(m) in staying else (m, m.sender)].append(entry)
        unused = (entries[id(m)] or entries[m, m.sender] for m in after.messages)
        encode = self._codec.encode
        return [
            own.pop(0) if own else encode(m) for m, own in zip(after.messages, unused, strict=True)
        ]


def compose_prompt_with_required_messages(
    llm_session: WriteSession,
    messages: Sequence[Message],
    preserve_memory: bool = True,
    memory_messages: Sequence[Message] = (),
) -> None:
    """Set the session's prompt to *messages* and what a history must not lose (S3-22).

    System messages, memory, the first and the current request surround *messages*, and calls that
    wait for their results stay at the end. All are as they were before the compression, whatever
    the strategy has done to the prompt since (C3-1, C3-3). Unpaired calls and results in *messages*
    are left out (C3-6). A history that cannot be shortened stays.
    """
    original = llm_session.original
    view = llm_session.view_of(original)
    originals, stop = view.transcript.messages, find_unanswered(view)
    memory = Listed(tuple(memory_messages)) if preserve_memory else None
    staying = [
        *original.head,
        *(originals[at] for at in find_kept(view, 0, stop, memory)),
        *originals[stop:],
    ]
    fresh = [m for m in memory_messages if m not in original.messages] if preserve_memory else []
    prompt = drop_unpaired(
        [*fresh, *(m for m in messages if not any(m is required for required in staying))]
    )
    shown = keep_before(view, 0, stop, memory).around(*prompt)
    if stop:
        view = view.apply(view.fold(0, stop, *shown, by="compose_prompt_with_required_messages"))
    llm_session.prompt = Prompt((*original.head, *view.messages))


def drop_unpaired(messages: Sequence[Message]) -> list[Message]:
    """Return *messages* without unpaired calls and results, and without messages left empty
    (C3-6)."""
    calls = {id for message in messages for id in message.calls}
    both = calls & {id for message in messages for id in message.results}

    def is_paired(part: Part) -> bool:
        return not isinstance(part, ToolCall | ToolResult) or part.id in both

    out = list[Message]()
    for message in messages:
        rest = Message(message.role, tuple(filter(is_paired, message.parts)))
        if rest.parts:
            out.append(message if rest == message else rest)
    return out
