"""Duration of a call: real HTTP requests to a scripted model server of a stated speed."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock
from time import perf_counter

from benchmarks.baselines import turns
from refold.core.strategy import Ask
from refold.messages import Message, user
from refold.models import HTTPModel
from refold.testing.scripted_provider import Received, Reply, ScriptedProvider
from refold.tokens.count import count_message

HEADER = "x-conversation"


@dataclass(frozen=True, slots=True)
class Speed:
    """Speed of a model in seconds and tokens per second."""

    fixed: float = 0.3
    """Seconds that every call takes."""
    prefill: float = 20_000
    """New input."""
    cached: float = 200_000
    """Input that is read from a prompt cache."""
    output: float = 100
    answer: int = 50
    """Tokens of each answer."""

    def seconds(self, fresh: int, cached: int) -> float:
        """Return the duration of a call."""
        return self.fixed + fresh / self.prefill + cached / self.cached + self.answer / self.output

    def __str__(self) -> str:
        return (
            f"{self.fixed:g} s a call, {self.prefill:,.0f} tokens/s of new input, {self.cached:,.0f} of cached input, "
            f"{self.output:,.0f} of output, answers of {self.answer} tokens"
        )


@dataclass(frozen=True, slots=True)
class Request:
    """A system prompt and messages of text."""

    system: str
    messages: tuple[Message, ...]

    @classmethod
    def of(cls, system: str, messages: Sequence[Message]) -> "Request":
        """Convert messages of any kind to text."""
        return cls(system, tuple(turns(messages)))


@dataclass(slots=True)
class Model:
    """The server's script: waits as long as a model of this speed and keeps the previous request of
    each conversation."""

    speed: Speed
    before: dict[str, str] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def __call__(self, received: Received) -> Reply:
        """Return the reply, delayed by the rest of its time."""
        began = perf_counter()
        contents = [message["content"] for message in received.json["messages"]]
        tokens, text, name = (
            sum(map(_tokens, contents)),
            "\0".join(contents),
            received.header(HEADER),
        )
        with self.lock:
            before, self.before[name] = self.before.get(name, ""), text
        cached = tokens * count_shared(before, text) // max(1, len(text))
        seconds = self.speed.seconds(tokens - cached, cached)
        return Reply(
            "ok",
            usage=(tokens, self.speed.answer, cached),
            delay=max(0.0, began + seconds - perf_counter()),
        )


@lru_cache(maxsize=10_000)
def _tokens(text: str) -> int:
    return count_message(user(text))


def count_shared(a: str, b: str) -> int:
    """Return the length of the common prefix in characters."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle - 1)
    return low


def seconds_of(talks: Sequence[Sequence[Request]], speed: Speed, together: int = 24) -> list[float]:
    """Return the seconds of the last request of each conversation, whose requests are sent in
    sequence.

    *together* conversations run at the same time, each waiting for its own answers. Raises
    RuntimeError if one fails."""
    with ScriptedProvider(Model(speed)) as server, ThreadPoolExecutor(together) as pool:
        taken = pool.map(
            lambda at: time_requests(server, str(at), talks[at])[-1], range(len(talks))
        )
        return list(taken)


def time_requests(server: ScriptedProvider, name: str, requests: Sequence[Request]) -> list[float]:
    """Return the seconds of each request of the conversation *name*, sent in sequence. Raises
    RuntimeError if one fails."""
    model = HTTPModel(f"{server.url}/v1", model="scripted", headers={HEADER: name})
    return [_seconds(model, request) for request in requests]


def _seconds(model: HTTPModel, request: Request) -> float:
    ask = Ask("Go on.", system=request.system, messages=request.messages)
    began = perf_counter()
    answer = model(ask)
    seconds = perf_counter() - began
    if answer.finish != "stop":
        raise RuntimeError(f"the server did not answer: {answer.error}")
    return seconds
