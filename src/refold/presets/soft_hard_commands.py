"""The soft/hard preset as commands: functions and a JSON dispatcher (S2-32 to S2-36), with previews
and reverts (S2-51, S2-53). Also an async client, and the state of one chat (S2-37, S2-41)."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import partial
from inspect import isawaitable, signature
from secrets import token_hex
from threading import Lock
from typing import Any, NamedTuple

from refold.compactor.by_hand import Preview
from refold.compactor.conversations import put_lru
from refold.errors import RefoldError, StoreError
from refold.memory import MemorySink
from refold.models.driver import call_in_thread
from refold.presets.measures import rather_over
from refold.presets.soft_hard import (
    CompactionCheck,
    CompactionResult,
    Overrides,
    PreviewResult,
    SoftHardCompactor,
)
from refold.stores.store import LedgerRow
from refold.text.json_values import object_at

Wire = dict[str, Any]
"""A JSON object."""


# --- the commands ---------------------------------------------------------------------------------


def compactor_estimate_tokens(text: str) -> int:
    """Return the tokens of *text*, rather too many than too few (S2-33)."""
    return rather_over(text)


def compactor_estimate_messages_tokens(
    messages: Sequence[Any], *, by: SoftHardCompactor | None = None
) -> int:
    """Return the tokens of *messages*, overhead included, or 0 without messages (S2-34). Raises
    `FormatError`."""
    return (by or SoftHardCompactor()).check_threshold(messages).current_tokens if messages else 0


def compactor_check_threshold(
    messages: Sequence[Any], config: Overrides = None, *, by: SoftHardCompactor | None = None
) -> CompactionCheck:
    """Return what is due for *messages* (S2-35). Raises `FormatError`, and ValueError for the
    configuration."""
    return (by or SoftHardCompactor()).check_threshold(messages, config)


def compactor_compact(
    messages: Sequence[Any],
    agent_id: str,
    conversation_id: str | None = None,
    config: Overrides = None,
    *,
    by: SoftHardCompactor | None = None,
) -> CompactionResult:
    """Compact *messages* (S2-36) by your `SoftHardCompactor`, which may have a model, a memory and
    a store, or by a default one. Raises as `SoftHardCompactor.compact`."""
    return (by or SoftHardCompactor()).compact(list(messages), agent_id, conversation_id, config)


# --- the dispatcher -------------------------------------------------------------------------------


MAX_PREVIEWS = 16
"""Maximum number of waiting previews. Beyond it the oldest is forgotten."""
_CAMEL = {"agentId": "agent_id", "conversationId": "conversation_id", "previewId": "preview_id"}
"""JavaScript spelling of arguments (S2-37)."""
_TYPES: Mapping[str, Any] = {
    "text": str,
    "messages": list,
    "agent_id": str,
    "conversation_id": str | None,
    "config": Mapping | None,
    "preview_id": str,
    "summaries": Mapping | None,
    "edits": list,
}


class PendingPreview(NamedTuple):
    """A preview that waits to be accepted, and its owner."""

    preview: Preview
    agent_id: str
    conversation_id: str | None


@dataclass(frozen=True)
class Dispatcher:
    """Answers `{"command": ..., "arguments": {...}}` with `{"result": ...}` or
    `{"error": {"code", "message"}}`. Serve it over HTTP, a pipe or a window's bridge."""

    compactor: SoftHardCompactor = field(default_factory=SoftHardCompactor)
    _previews: OrderedDict[str, PendingPreview] = field(
        default_factory=OrderedDict, init=False, repr=False
    )
    """Waiting previews by unguessable id."""
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def commands(self) -> Mapping[str, Callable[..., Any]]:
        """Return the function of each command. Its positional parameters are the arguments."""
        by = self.compactor
        return {
            "compactor_estimate_tokens": compactor_estimate_tokens,
            "compactor_estimate_messages_tokens": partial(
                compactor_estimate_messages_tokens, by=by
            ),
            "compactor_check_threshold": partial(compactor_check_threshold, by=by),
            "compactor_compact": partial(compactor_compact, by=by),
            "compactor_preview": self._preview,
            "compactor_accept": self._accept,
            "compactor_history": self._history,
            "compactor_revert": self._revert,
        }

    def call(self, request: Any) -> Wire:
        """Return the response. Error codes: `unknown_command`, `bad_arguments`, `store_failed`. An
        invalid *request* never raises."""
        fields = object_at(request)
        name, commands = fields.get("command"), self.commands()
        if not isinstance(name, str) or name not in commands:
            return _error(
                "unknown_command", f"there is no command {name!r}; there are {', '.join(commands)}"
            )
        try:
            result = commands[name](**_arguments(commands[name], fields.get("arguments", {})))
        except StoreError as error:
            return _error("store_failed", str(error))
        except (ValueError, TypeError, RefoldError) as error:
            return _error("bad_arguments", str(error))
        return {"result": _plain(result)}

    def _preview(
        self,
        messages: list[Any],
        agent_id: str,
        conversation_id: str | None = None,
        config: Overrides = None,
    ) -> PreviewResult:
        """Return what compacting *messages* would do (S2-51)."""
        preview = self.compactor.preview(messages, agent_id, conversation_id, config)
        id = token_hex(16)
        self._hold(id, PendingPreview(preview, agent_id, conversation_id))
        tokens = preview.before.tokens, preview.view.tokens
        return PreviewResult(id, list(preview.payload), preview.summaries(), len(messages), *tokens)

    def _accept(
        self, preview_id: str, summaries: Mapping[str, str] | None = None
    ) -> CompactionResult:
        """Save a preview, once, with other texts for its *summaries* if given. Raises ValueError
        and `EditError`."""
        if not all(isinstance(text, str) for text in (summaries or {}).values()):
            raise ValueError("each of the summaries must be a text")
        with self._lock:
            pending = self._previews.pop(preview_id, None)
        if pending is None:
            raise ValueError(
                f"no preview {preview_id!r} waits to be accepted: "
                "it was accepted before, or is forgotten"
            )
        try:
            preview = pending.preview
            for edit, text in (summaries or {}).items():
                preview = preview.amend(edit, text)
            return self.compactor.accept(preview, pending.agent_id, pending.conversation_id)
        except RefoldError:
            self._hold(preview_id, pending)
            raise

    def _hold(self, id: str, pending: PendingPreview) -> None:
        with self._lock:
            put_lru(self._previews, id, pending, MAX_PREVIEWS)

    def _history(
        self, messages: list[Any], agent_id: str, conversation_id: str | None = None
    ) -> Sequence[LedgerRow]:
        """Return the ledger rows about *messages*, oldest first (S2-53)."""
        return self.compactor.history(messages, agent_id, conversation_id)

    def _revert(
        self,
        messages: list[Any],
        agent_id: str,
        conversation_id: str | None = None,
        edits: Sequence[str] = (),
    ) -> list[Any]:
        """Revert all compactions, or these *edits* (S2-53). Raises `EditError`."""
        return self.compactor.revert(
            messages, *edits, agent_id=agent_id, conversation_id=conversation_id
        )


def _arguments(command: Callable[..., Any], given: Any) -> dict[str, Any]:
    """Return keyword arguments for *command*. Raises ValueError for missing, unknown or mistyped
    ones."""
    if not isinstance(given, Mapping):
        raise ValueError("arguments must be an object")  # noqa: TRY004 - as the others
    named = {_CAMEL.get(str(name), str(name)): value for name, value in given.items()}
    taken = {
        name: parameter.default is parameter.empty
        for name, parameter in signature(command).parameters.items()
        if parameter.kind is not parameter.KEYWORD_ONLY
    }
    missing = [name for name, is_needed in taken.items() if is_needed and name not in named]
    unknown = [name for name in named if name not in taken]
    if missing:
        raise ValueError(f"arguments are missing: {', '.join(missing)}")
    if unknown:
        raise ValueError(f"there are no such arguments: {', '.join(unknown)}")
    for name, value in named.items():
        if not isinstance(value, _TYPES[name]):
            raise ValueError(f"{name} cannot be {type(value).__name__}")  # noqa: TRY004 - as above
    return named


def _plain(value: Any) -> Any:
    """Return an argument or a result as plain JSON."""
    if is_dataclass(value):
        return asdict(value)  # type: ignore[arg-type]
    if isinstance(value, Mapping):
        return dict(value)
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return [_plain(item) for item in value] if is_list else value


def _error(code: str, message: str) -> Wire:
    return {"error": {"code": code, "message": message}}


# --- the client -----------------------------------------------------------------------------------


Transport = Callable[[Wire], Wire | Awaitable[Wire]]
"""Function that sends a request to a dispatcher and returns its response, such as an HTTP call."""


def in_thread(dispatcher: Dispatcher) -> Transport:
    """Return a transport to a *dispatcher* in this process. Each call runs in a thread, so that
    waiting for a model blocks nobody."""

    async def carry(request: Wire) -> Wire:
        return await call_in_thread(dispatcher.call, request)

    return carry


class CommandError(Exception):
    """A command was refused. `code` is the error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class CompactorClient:
    """The commands for async code, over any transport (S2-37). Raises `CommandError`."""

    transport: Transport

    async def estimate_tokens(self, text: str) -> int:
        """Return the tokens of *text*."""
        return int(await self._call("compactor_estimate_tokens", text=text))

    async def estimate_messages_tokens(self, messages: Sequence[Any]) -> int:
        """Return the tokens of *messages*."""
        return int(await self._call("compactor_estimate_messages_tokens", messages=messages))

    async def check_threshold(
        self, messages: Sequence[Any], config: Overrides = None
    ) -> CompactionCheck:
        """Return what is due."""
        answer = await self._call("compactor_check_threshold", messages=messages, config=config)
        return CompactionCheck(**answer)

    async def compact(
        self,
        messages: Sequence[Any],
        agent_id: str,
        conversation_id: str | None = None,
        config: Overrides = None,
    ) -> CompactionResult:
        """Compact *messages*."""
        whose = {"agent_id": agent_id, "conversation_id": conversation_id}
        answer = await self._call("compactor_compact", messages=messages, config=config, **whose)
        return CompactionResult(**answer)

    async def preview(
        self,
        messages: Sequence[Any],
        agent_id: str,
        conversation_id: str | None = None,
        config: Overrides = None,
    ) -> PreviewResult:
        """Return what compacting would do (S2-51)."""
        whose = {"agent_id": agent_id, "conversation_id": conversation_id}
        answer = await self._call("compactor_preview", messages=messages, config=config, **whose)
        return PreviewResult(**answer)

    async def accept(
        self, preview_id: str, summaries: Mapping[str, str] | None = None
    ) -> CompactionResult:
        """Save a preview, with other texts for its summaries if given."""
        answer = await self._call("compactor_accept", preview_id=preview_id, summaries=summaries)
        return CompactionResult(**answer)

    async def history(
        self, messages: Sequence[Any], agent_id: str, conversation_id: str | None = None
    ) -> Sequence[LedgerRow]:
        """Return the ledger rows, oldest first (S2-53)."""
        whose = {"agent_id": agent_id, "conversation_id": conversation_id}
        rows = await self._call("compactor_history", messages=messages, **whose)
        return [LedgerRow(**row) for row in rows]

    async def revert(
        self,
        messages: Sequence[Any],
        *edits: str,
        agent_id: str,
        conversation_id: str | None = None,
    ) -> list[Any]:
        """Revert all compactions of *messages*, or these *edits*, and return the messages
        (S2-53)."""
        whose = {"agent_id": agent_id, "conversation_id": conversation_id}
        return list(await self._call("compactor_revert", messages=messages, edits=edits, **whose))

    async def _call(self, command: str, **arguments: Any) -> Any:
        plain = {name: _plain(value) for name, value in arguments.items()}
        response = self.transport({"command": command, "arguments": plain})
        answer = await response if isawaitable(response) else response
        if "error" in answer:
            raise CommandError(answer["error"]["code"], answer["error"]["message"])
        return answer["result"]


# --- a chat ---------------------------------------------------------------------------------------


class Intelligence(NamedTuple):
    """Entry point of the published scenarios: `intelligence.compactor`, `intelligence.memory`."""

    compactor: CompactorClient
    memory: MemorySink


@dataclass
class ChatStore:
    """The state of one chat that compacts itself (S2-23, S2-38, S2-41). Before a message is sent, a
    hard check compacts and a soft one suggests it. Its messages are the compacted ones. The
    compactor knows the originals by the conversation's id, which is random unless given."""

    compactor: CompactorClient
    agent_id: str
    conversation_id: str | None = None
    config: Overrides = None
    suggest: Callable[[CompactionCheck], object] = lambda _check: None
    """Callback for when compaction is suggested."""
    messages: list[Any] = field(default_factory=list)
    _previewed: list[Any] = field(default_factory=list, init=False, repr=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False, repr=False, compare=False)
    """Held while the messages are being replaced. They may be added to meanwhile."""

    def __post_init__(self) -> None:
        self.conversation_id = self.conversation_id or token_hex(16)

    async def add(self, message: Any) -> CompactionResult | None:
        """Add a message and return the result of the compaction that it triggered, if any. Raises
        `CommandError`."""
        self.messages.append(message)
        check = await self.compactor.check_threshold(self.messages, self.config)
        if check.urgency == "hard":
            return await self.compact()
        if check.urgency == "soft":
            self.suggest(check)
        return None

    async def compact(self, config: Overrides = None) -> CompactionResult:
        """Compact now, at the user's request (S2-39). Raises `CommandError`."""
        async with self._turn:
            sent = len(self.messages)
            result = await self.compactor.compact(
                self.messages, self.agent_id, self.conversation_id, self._config_or_default(config)
            )
            self._show(result.compacted_messages, sent)
            return result

    async def preview(self, config: Overrides = None) -> PreviewResult:
        """Return what `compact` would do, without saving (S2-51). Raises `CommandError`."""
        self._previewed = list(self.messages)
        return await self.compactor.preview(
            self._previewed, self.agent_id, self.conversation_id, self._config_or_default(config)
        )

    async def accept(
        self, preview: PreviewResult, summaries: Mapping[str, str] | None = None
    ) -> CompactionResult:
        """Save the latest *preview* of these messages, with other texts for its summaries if given.
        Messages added since stay after it. Raises `CommandError`."""
        async with self._turn:
            if self.messages[: len(self._previewed)] != self._previewed:
                raise CommandError(
                    "stale", "these messages are others than those that the preview was made of"
                )
            result = await self.compactor.accept(preview.preview_id, summaries)
            self._show(result.compacted_messages, preview.original_count)
            return result

    async def history(self) -> Sequence[LedgerRow]:
        """Return the ledger rows about this chat, oldest first (S2-53). Raises `CommandError`."""
        return await self.compactor.history(self.messages, self.agent_id, self.conversation_id)

    async def revert(self, *edits: str) -> list[Any]:
        """Revert all compactions of this chat, or these *edits*, and return its messages (S2-53).
        Raises `CommandError`, also if no compaction is known."""
        async with self._turn:
            sent = len(self.messages)
            messages_now = await self.compactor.revert(
                self.messages, *edits, agent_id=self.agent_id, conversation_id=self.conversation_id
            )
            self._show(messages_now, sent)
        return self.messages

    def _config_or_default(self, config: Overrides) -> Overrides:
        return self.config if config is None else config

    def _show(self, messages: list[Any], sent: int) -> None:
        """Put *messages* in place of the first *sent*."""
        self.messages = [*messages, *self.messages[sent:]]


__all__ = [
    "ChatStore",
    "CommandError",
    "CompactorClient",
    "Dispatcher",
    "Intelligence",
    "Transport",
    "Wire",
    "compactor_check_threshold",
    "compactor_compact",
    "compactor_estimate_messages_tokens",
    "compactor_estimate_tokens",
    "in_thread",
]
