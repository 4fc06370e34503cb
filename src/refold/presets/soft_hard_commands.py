"""The soft/hard preset as four commands: functions, one JSON dispatcher, an async client over any transport, and the
state of one chat (S2-32 to S2-37)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from inspect import isawaitable
from typing import Any, NamedTuple

from refold.errors import RefoldError, StoreError
from refold.memory import MemorySink
from refold.presets.soft_hard import CompactionCheck, CompactionResult, Overrides, SoftHardCompactor
from refold.presets.soft_hard_config import CompactionConfig
from refold.tokens.formulas import rather_over

Wire = dict[str, Any]
"""A JSON object."""
Transport = Callable[[Wire], Wire | Awaitable[Wire]]
"""Carries a request to a dispatcher and its response back, such as an HTTP call."""


def compactor_estimate_tokens(text: str) -> int:
    """Tokens of *text*, rather over than under (S2-33)."""
    return rather_over(text)


def compactor_estimate_messages_tokens(messages: Sequence[Any], *, by: SoftHardCompactor | None = None) -> int:
    """Tokens of *messages* with what each costs besides its text; 0 for none (S2-34). Raises `FormatError`."""
    return (by or SoftHardCompactor()).check_threshold(messages).current_tokens if messages else 0


def compactor_check_threshold(
    messages: Sequence[Any], config: Overrides = None, *, by: SoftHardCompactor | None = None
) -> CompactionCheck:
    """What is due for *messages* (S2-35). Raises `FormatError`, and ValueError for the configuration."""
    return (by or SoftHardCompactor()).check_threshold(messages, config)


def compactor_compact(
    messages: Sequence[Any],
    agent_id: str,
    conversation_id: str | None = None,
    config: Overrides = None,
    *,
    by: SoftHardCompactor | None = None,
) -> CompactionResult:
    """Compact *messages* (S2-36): by a `SoftHardCompactor` of yours, which has a model, a memory and a store,
    or by one with neither. Raises as `SoftHardCompactor.compact`."""
    return (by or SoftHardCompactor()).compact(list(messages), agent_id, conversation_id, config)


class _Command(NamedTuple):
    function: Callable[..., Any]
    needs: tuple[str, ...]
    takes: tuple[str, ...] = ()
    """Arguments that may be left out."""
    bound: bool = True
    """Whether it takes a compactor."""


COMMANDS: Mapping[str, _Command] = {
    "compactor_estimate_tokens": _Command(compactor_estimate_tokens, ("text",), bound=False),
    "compactor_estimate_messages_tokens": _Command(compactor_estimate_messages_tokens, ("messages",)),
    "compactor_check_threshold": _Command(compactor_check_threshold, ("messages",), ("config",)),
    "compactor_compact": _Command(compactor_compact, ("messages", "agent_id"), ("conversation_id", "config")),
}
_CAMEL = {"agentId": "agent_id", "conversationId": "conversation_id"}
"""How JavaScript spells arguments (S2-37)."""


@dataclass(frozen=True)
class Dispatcher:
    """Answers `{"command": ..., "arguments": {...}}` with `{"result": ...}` or `{"error": {"code", "message"}}`.
    JSON in, JSON out: put it behind HTTP, a pipe or a window's bridge."""

    compactor: SoftHardCompactor = field(default_factory=SoftHardCompactor)

    def call(self, request: Any) -> Wire:
        """The response. Codes: `unknown_command`, `bad_arguments`, `store_failed`. Never raises for what is
        in *request*."""
        given = request if isinstance(request, Mapping) else {}
        name = given.get("command")
        command = COMMANDS.get(name) if isinstance(name, str) else None
        if command is None:
            return _error("unknown_command", f"there is no command {name!r}; there are {', '.join(COMMANDS)}")
        try:
            result = command.function(**self._arguments(command, given.get("arguments", {})))
        except StoreError as error:
            return _error("store_failed", str(error))
        except (ValueError, TypeError, RefoldError) as error:
            return _error("bad_arguments", str(error))
        return {"result": result if isinstance(result, int) else asdict(result)}

    def _arguments(self, command: _Command, given: Any) -> dict[str, Any]:
        """Keyword arguments. Raises ValueError for what is missing, unknown or of another type."""
        if not isinstance(given, Mapping):
            raise ValueError("arguments must be an object")  # noqa: TRY004 - as the others
        named: dict[str, Any] = {_CAMEL.get(str(name), str(name)): value for name, value in given.items()}
        missing = [name for name in command.needs if name not in named]
        unknown = [name for name in named if name not in (*command.needs, *command.takes)]
        if missing:
            raise ValueError(f"missing: {', '.join(missing)}")
        if unknown:
            raise ValueError(f"unknown: {', '.join(unknown)}")
        for name, value in named.items():
            if not isinstance(value, _TYPES[name]):
                raise ValueError(f"{name} cannot be {type(value).__name__}")  # noqa: TRY004 - likewise
        return named | ({"by": self.compactor} if command.bound else {})


_TYPES: Mapping[str, Any] = {
    "text": str,
    "messages": list,
    "agent_id": str,
    "conversation_id": str | None,
    "config": Mapping | None,
}


def _error(code: str, message: str) -> Wire:
    return {"error": {"code": code, "message": message}}


class CommandError(Exception):
    """A command was refused. `code` says of what sort that is."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class CompactorClient:
    """The four commands for async code, over any transport (S2-37). Raises `CommandError`."""

    transport: Transport

    async def estimate_tokens(self, text: str) -> int:
        """Tokens of *text*."""
        return int(await self._call("compactor_estimate_tokens", text=text))

    async def estimate_messages_tokens(self, messages: Sequence[Any]) -> int:
        """Tokens of *messages*."""
        return int(await self._call("compactor_estimate_messages_tokens", messages=list(messages)))

    async def check_threshold(self, messages: Sequence[Any], config: Overrides = None) -> CompactionCheck:
        """What is due."""
        found = await self._call("compactor_check_threshold", messages=list(messages), config=_plain(config))
        return CompactionCheck(**found)

    async def compact(
        self, messages: Sequence[Any], agent_id: str, conversation_id: str | None = None, config: Overrides = None
    ) -> CompactionResult:
        """Compact."""
        found = await self._call(
            "compactor_compact",
            messages=list(messages),
            agent_id=agent_id,
            conversation_id=conversation_id,
            config=_plain(config),
        )
        return CompactionResult(**found)

    async def _call(self, command: str, **arguments: Any) -> Any:
        response = self.transport({"command": command, "arguments": arguments})
        answer = await response if isawaitable(response) else response
        if "error" in answer:
            raise CommandError(answer["error"]["code"], answer["error"]["message"])
        return answer["result"]


def in_thread(dispatcher: Dispatcher) -> Transport:
    """A transport to a *dispatcher* in this process: each call runs in a thread, so that a model's answer holds
    nobody up."""

    async def carry(request: Wire) -> Wire:
        return await asyncio.to_thread(dispatcher.call, request)

    return carry


class Intelligence(NamedTuple):
    """What the scenarios reach everything by: `intelligence.compactor`, `intelligence.memory`."""

    compactor: CompactorClient
    memory: MemorySink


@dataclass
class ChatStore:
    """The state of one chat that compacts itself (S2-23, S2-38, S2-41): before a message is sent, hard compacts and
    soft suggests."""

    compactor: CompactorClient
    agent_id: str
    conversation_id: str | None = None
    config: Overrides = None
    suggest: Callable[[CompactionCheck], object] = lambda _check: None
    """Told when compaction is worth a thought."""
    messages: list[Any] = field(default_factory=list)

    async def add(self, message: Any) -> CompactionResult | None:
        """Add a message; the result of the compaction that this set off, if it did. Raises `CommandError`."""
        self.messages.append(message)
        check = await self.compactor.check_threshold(self.messages, self.config)
        if check.urgency == "hard":
            return await self.compact()
        if check.urgency == "soft":
            self.suggest(check)
        return None

    async def compact(self, config: Overrides = None) -> CompactionResult:
        """Compact now, because the user wants it (S2-39). Raises `CommandError`."""
        wanted = self.config if config is None else config
        result = await self.compactor.compact(self.messages, self.agent_id, self.conversation_id, wanted)
        self.messages = result.compacted_messages
        return result


def _plain(config: Overrides) -> Wire | None:
    if isinstance(config, CompactionConfig):
        return asdict(config)
    return None if config is None else dict(config)
