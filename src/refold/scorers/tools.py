"""Scorers of tool calls and results: unresolved errors, current file contents, references by later
messages."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from posixpath import normpath
from typing import NamedTuple

from refold.core.tool_groups import PairedCall, group_calls, tool_results
from refold.core.view import View
from refold.core.view_lines import path_of
from refold.messages import Message, Text, ToolCall, ToolResult
from refold.speakers import find_folder, view_segments
from refold.summarizers.heuristic.calls import effect_of_call
from refold.summarizers.heuristic.identifiers import find_names
from refold.summarizers.heuristic.shell_words import name_command
from refold.text.failures import is_failure
from refold.text.plain import arguments_of


class Exchange(NamedTuple):
    """A call that was answered."""

    call: ToolCall
    call_position: int
    result_position: int
    is_failure: bool
    """Whether the result reports a failure."""


def find_exchanges(view: View) -> list[Exchange]:
    """Return all answered calls of the transcript, oldest call first."""
    pairs = (pair for group in group_calls(view.transcript.messages) for pair in group)
    return [
        _read_exchange(view, pair, pair.result_at) for pair in pairs if pair.result_at is not None
    ]


def _read_exchange(view: View, pair: PairedCall, answered: int) -> Exchange:
    results = tool_results(view.transcript.messages[answered])
    failed = any(_has_failed(result) for result in results if result.id == pair.call.id)
    return Exchange(pair.call, pair.call_at, answered, failed)


def _has_failed(result: ToolResult) -> bool:
    return result.error or is_failure(result.text)


@dataclass(frozen=True)
class Errors:
    """1.0 for a failed tool result and its call, or *resolved* if the same was later tried with
    success; 0.5 for every other message.

    The same means the same tool with the same command (without set-up and trimming), files or
    arguments. If a message has several results, the highest score counts.
    """

    resolved: float = 0.0

    def __call__(self, view: View) -> Sequence[float]:
        """Return a score for each message."""
        scores = [
            1.0 if any(map(_has_failed, tool_results(message))) else 0.5
            for message in view.transcript.messages
        ]
        best: dict[int, float] = {}
        worked = set[tuple[str, ...]]()
        for exchange in reversed(find_exchanges(view)):
            key = _attempt_key(exchange)
            score = 0.5 if not exchange.is_failure else self.resolved if key in worked else 1.0
            for at in (exchange.call_position, exchange.result_position):
                best[at] = max(best.get(at, score), score)
            if not exchange.is_failure:
                worked.add(key)
        for at, score in best.items():
            scores[at] = score
        return scores


def _attempt_key(exchange: Exchange) -> tuple[str, ...]:
    """Return a key that is equal for retries of a call."""
    done = effect_of_call(exchange.call)
    if done.command:
        return (exchange.call.name, name_command(done.command))
    return (
        (exchange.call.name, *(path for path, _ in done.files))
        if done.files
        else (exchange.call.name, exchange.call.arguments)
    )


@dataclass(frozen=True)
class Freshness:
    """1.0 for current content; *written* for a read or write of files that were all written again
    later; *repeated* if the same call was repeated later, or the whole file was read.

    Failed calls replace nothing. If a message has several calls or results, the highest score
    counts. All other messages score 1.0.
    """

    written: float = 0.3
    repeated: float = 0.0

    def __call__(self, view: View) -> Sequence[float]:
        """Return a score for each message."""
        scores: dict[int, float] = {}
        later = _Later(find_folder(view_segments(view)))
        for exchange in reversed(find_exchanges(view)):
            score = self._of(exchange, later)
            for at in (exchange.call_position, exchange.result_position):
                scores[at] = max(scores.get(at, score), score)
            if not exchange.is_failure:
                later.note(exchange)
        return [scores.get(at, 1.0) for at in range(len(view.transcript))]

    def _of(self, exchange: Exchange, later: "_Later") -> float:
        if (exchange.call.name, exchange.call.arguments) in later.calls:
            return self.repeated
        paths = [path for path, _ in _files_of(exchange, later.folder)]
        return max((self._of_path(path, later) for path in paths), default=1.0)

    def _of_path(self, path: str, later: "_Later") -> float:
        if path in later.read:
            return self.repeated
        return self.written if path in later.written else 1.0


@dataclass(frozen=True, slots=True)
class _Later:
    """The calls after the current one."""

    folder: str
    """The session's working directory, if the client gives it."""
    calls: set[tuple[str, str]] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    """Files that were read as a whole."""
    written: set[str] = field(default_factory=set)

    def note(self, exchange: Exchange) -> None:
        self.calls.add((exchange.call.name, exchange.call.arguments))
        for path, state in _files_of(exchange, self.folder):
            if state != "read":
                self.written.add(path)
            elif _reads_whole_file(exchange):
                self.read.add(path)


_PART = re.compile(r"[\d\s,-]+|.*:\d{1,7}(?:-\d{1,7})?", re.DOTALL)
"""Pages or lines as a text (`pages: 1-5` in Claude Code), or after a path (`a.py:20-60`)."""


def _files_of(exchange: Exchange, folder: str) -> list[tuple[str, str]]:
    effect = effect_of_call(exchange.call, folder)
    return [(normpath(path), state) for path, state in effect.files]


def _reads_whole_file(exchange: Exchange) -> bool:
    """Return whether a tool reads a file without arguments such as line numbers. A shell command
    may print only a part."""
    given = arguments_of(exchange.call)
    return not effect_of_call(exchange.call).command and all(
        isinstance(value, str) and not _PART.fullmatch(value) for value in given.values()
    )


@dataclass(frozen=True)
class References:
    """How often later messages name an identifier or path in a tool result, or the path of its
    file.

    A reference counts for the latest result that contains the name. Its weight is 1.0 now and a
    half after *half* messages. The score is r / (r + *enough*) for a total weight of r. Raises
    ValueError for figures that are not positive.
    """

    half: float = 60.0
    enough: float = 3.0

    def __post_init__(self) -> None:
        if not (self.half > 0 and self.enough > 0):
            raise ValueError("half and enough must be positive")

    def __call__(self, view: View) -> Sequence[float]:
        """Return a score for each message."""
        messages = view.transcript.messages
        weights = [0.0] * len(messages)
        holder: dict[str, int] = {}
        about: dict[str, str] = {}
        for at, message in enumerate(messages):
            age = len(messages) - 1 - at
            for name in _identifiers_in(_own_texts(message)):
                if name in holder:
                    weights[holder[name]] += 1 / (1 + age / self.half)
            about.update(
                (part.id, path_of(part)) for part in message.parts if isinstance(part, ToolCall)
            )
            for result in tool_results(message):
                held = _identifiers_in([result.text, about.get(result.id, "")])
                holder.update((name, at) for name in held)
        return [weight / (weight + self.enough) for weight in weights]


def _own_texts(message: Message) -> list[str]:
    """Return the texts of a message and the arguments of its calls."""
    texts = [part.text for part in message.parts if isinstance(part, Text)]
    return texts + [part.arguments for part in message.parts if isinstance(part, ToolCall)]


def _identifiers_in(texts: Iterable[str]) -> list[str]:
    """Return the identifiers of texts, without duplicates."""
    return list(dict.fromkeys(name for text in texts for name in find_names(text)))
