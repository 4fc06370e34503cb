"""An async client of the soft/hard preset's commands over any transport, and the state of one chat
(S2-37, S2-41)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from inspect import isawaitable
from secrets import token_hex
from typing import Any, NamedTuple

from refold.memory import MemorySink
from refold.presets.soft_hard_config import (
    CompactionCheck,
    CompactionConfig,
    CompactionResult,
    Overrides,
    PreviewResult,
)
from refold.stores.store import LedgerRow

Wire = dict[str, Any]
"""A JSON object."""
Transport = Callable[[Wire], Wire | Awaitable[Wire]]
"""Carries a request to a dispatcher and its response back, such as an HTTP call."""


class CommandError(Exception):
    """A command was refused. `code` says of what sort that is."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class CompactorClient:
    """The commands for async code, over any transport (S2-37). Raises `CommandError`."""

    transport: Transport

    async def estimate_tokens(self, text: str) -> int:
        """Return tokens of *text*."""
        return int(await self._call("compactor_estimate_tokens", text=text))

    async def estimate_messages_tokens(self, messages: Sequence[Any]) -> int:
        """Return tokens of *messages*."""
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
        """Compact."""
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
        """Keep a preview, with other texts for its summaries, if given."""
        answer = await self._call("compactor_accept", preview_id=preview_id, summaries=summaries)
        return CompactionResult(**answer)

    async def history(
        self, messages: Sequence[Any], agent_id: str, conversation_id: str | None = None
    ) -> Sequence[LedgerRow]:
        """Return what was done, oldest first (S2-53)."""
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
        """Return the messages with compactions of them taken back: all, or these *edits*
        (S2-53)."""
        whose = {"agent_id": agent_id, "conversation_id": conversation_id}
        return list(await self._call("compactor_revert", messages=messages, edits=edits, **whose))

    async def _call(self, command: str, **arguments: Any) -> Any:
        plain = {name: _plain_argument(value) for name, value in arguments.items()}
        response = self.transport({"command": command, "arguments": plain})
        answer = await response if isawaitable(response) else response
        if "error" in answer:
            raise CommandError(answer["error"]["code"], answer["error"]["message"])
        return answer["result"]


def _plain_argument(argument: Any) -> Any:
    if isinstance(argument, CompactionConfig):
        return asdict(argument)
    if isinstance(argument, Mapping):
        return dict(argument)
    return argument if argument is None or isinstance(argument, str) else list(argument)


class Intelligence(NamedTuple):
    """What the scenarios reach everything by: `intelligence.compactor`, `intelligence.memory`."""

    compactor: CompactorClient
    memory: MemorySink


@dataclass
class ChatStore:
    """The state of one chat that compacts itself (S2-23, S2-38, S2-41): before a message is sent,
    hard compacts and soft suggests. Its messages are the compacted ones; what they were before is
    known to the compactor by the conversation's id, one that nobody else has unless it is given."""

    compactor: CompactorClient
    agent_id: str
    conversation_id: str | None = None
    config: Overrides = None
    suggest: Callable[[CompactionCheck], object] = lambda _check: None
    """Told when compaction is worth a thought."""
    messages: list[Any] = field(default_factory=list)
    _previewed: list[Any] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        self.conversation_id = self.conversation_id or token_hex(16)

    async def add(self, message: Any) -> CompactionResult | None:
        """Add a message; the result of the compaction that this set off, if it did. Raises
        `CommandError`."""
        self.messages.append(message)
        check = await self.compactor.check_threshold(self.messages, self.config)
        if check.urgency == "hard":
            return await self.compact()
        if check.urgency == "soft":
            self.suggest(check)
        return None

    async def compact(self, config: Overrides = None) -> CompactionResult:
        """Compact now, because the user wants it (S2-39). Raises `CommandError`."""
        sent = len(self.messages)
        result = await self.compactor.compact(
            self.messages, self.agent_id, self.conversation_id, self._config_or_default(config)
        )
        self._show(result.compacted_messages, sent)
        return result

    async def preview(self, config: Overrides = None) -> PreviewResult:
        """Return what `compact` would do; nothing of it is kept (S2-51). Raises `CommandError`."""
        self._previewed = list(self.messages)
        return await self.compactor.preview(
            self._previewed, self.agent_id, self.conversation_id, self._config_or_default(config)
        )

    async def accept(
        self, preview: PreviewResult, summaries: Mapping[str, str] | None = None
    ) -> CompactionResult:
        """Keep the latest *preview* of these messages, with other texts for its summaries, if
        given; what was added since it was made stays behind it. Raises `CommandError`."""
        if self.messages[: len(self._previewed)] != self._previewed:
            raise CommandError(
                "stale", "these messages are others than those that the preview was made of"
            )
        result = await self.compactor.accept(preview.preview_id, summaries)
        self._show(result.compacted_messages, preview.original_count)
        return result

    async def history(self) -> Sequence[LedgerRow]:
        """Return what was done to this chat, oldest first (S2-53). Raises `CommandError`."""
        return await self.compactor.history(self.messages, self.agent_id, self.conversation_id)

    async def revert(self, *edits: str) -> list[Any]:
        """Take compactions of this chat back, all or these *edits* (S2-53): its messages. Raises
        `CommandError`, also where none is known."""
        sent = len(self.messages)
        messages_now = await self.compactor.revert(
            self.messages, *edits, agent_id=self.agent_id, conversation_id=self.conversation_id
        )
        self._show(messages_now, sent)
        return self.messages

    def _config_or_default(self, config: Overrides) -> Overrides:
        return self.config if config is None else config

    def _show(self, messages: list[Any], sent: int) -> None:
        """Go on with *messages* in place of the first *sent*: others may have been added
        meanwhile."""
        self.messages = [*messages, *self.messages[sent:]]
