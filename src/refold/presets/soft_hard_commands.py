"""The soft/hard preset as commands: functions, and one JSON dispatcher (S2-32 to S2-36), which also
previews and goes back (S2-51, S2-53). Their client is in `refold.presets.soft_hard_client`."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import partial
from inspect import signature
from secrets import token_hex
from threading import Lock
from typing import Any, NamedTuple

from refold.compactor.by_hand import Preview
from refold.compactor.conversations import put_latest
from refold.errors import RefoldError, StoreError
from refold.presets.measures import rather_over
from refold.presets.soft_hard import SoftHardCompactor
from refold.presets.soft_hard_client import (
    ChatStore,
    CommandError,
    CompactorClient,
    Intelligence,
    Transport,
    Wire,
)
from refold.presets.soft_hard_config import (
    CompactionCheck,
    CompactionResult,
    Overrides,
    PreviewResult,
)
from refold.stores.store import LedgerRow
from refold.text.json_values import object_at


def compactor_estimate_tokens(text: str) -> int:
    """Return tokens of *text*, rather over than under (S2-33)."""
    return rather_over(text)


def compactor_estimate_messages_tokens(
    messages: Sequence[Any], *, by: SoftHardCompactor | None = None
) -> int:
    """Return tokens of *messages* with what each costs besides its text; 0 for none (S2-34). Raises
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
    """Compact *messages* (S2-36): by a `SoftHardCompactor` of yours, which has a model, a memory
    and a store, or by one with neither. Raises as `SoftHardCompactor.compact`."""
    return (by or SoftHardCompactor()).compact(list(messages), agent_id, conversation_id, config)


MAX_PREVIEWS = 16
"""Previews that wait to be accepted at most; of more the oldest is forgotten."""
_CAMEL = {"agentId": "agent_id", "conversationId": "conversation_id", "previewId": "preview_id"}
"""How JavaScript spells arguments (S2-37)."""
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
    """A preview that waits to be accepted, and whose it is."""

    preview: Preview
    agent_id: str
    conversation_id: str | None


@dataclass(frozen=True)
class Dispatcher:
    """Answers `{"command": ..., "arguments": {...}}` with `{"result": ...}` or
    `{"error": {"code", "message"}}`. JSON in, JSON out: put it behind HTTP, a pipe or a window's
    bridge."""

    compactor: SoftHardCompactor = field(default_factory=SoftHardCompactor)
    _previews: OrderedDict[str, PendingPreview] = field(
        default_factory=OrderedDict, init=False, repr=False
    )
    """By ids that nobody can guess."""
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def commands(self) -> Mapping[str, Callable[..., Any]]:
        """Return the function behind each command; its positional parameters are the arguments."""
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
        """Return the response. Codes: `unknown_command`, `bad_arguments`, `store_failed`. Never
        raises for what is in *request*."""
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
        return {"result": _plain_result(result)}

    def _preview(
        self,
        messages: list[Any],
        agent_id: str,
        conversation_id: str | None = None,
        config: Overrides = None,
    ) -> PreviewResult:
        """Show what compacting *messages* would do (S2-51)."""
        preview = self.compactor.preview(messages, agent_id, conversation_id, config)
        id = token_hex(16)
        self._hold(id, PendingPreview(preview, agent_id, conversation_id))
        tokens = preview.before.tokens, preview.view.tokens
        return PreviewResult(id, list(preview.payload), preview.summaries(), len(messages), *tokens)

    def _accept(
        self, preview_id: str, summaries: Mapping[str, str] | None = None
    ) -> CompactionResult:
        """Keep a preview, once, with other texts for its *summaries*, if given. Raises ValueError
        and `EditError`."""
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
            put_latest(self._previews, id, pending, MAX_PREVIEWS)

    def _history(
        self, messages: list[Any], agent_id: str, conversation_id: str | None = None
    ) -> Sequence[LedgerRow]:
        """List what was done to *messages*, oldest first (S2-53)."""
        return self.compactor.history(messages, agent_id, conversation_id)

    def _revert(
        self,
        messages: list[Any],
        agent_id: str,
        conversation_id: str | None = None,
        edits: Sequence[str] = (),
    ) -> list[Any]:
        """Take compactions back: all, or these *edits* (S2-53). Raises `EditError`."""
        return self.compactor.revert(
            messages, *edits, agent_id=agent_id, conversation_id=conversation_id
        )


def _arguments(command: Callable[..., Any], given: Any) -> dict[str, Any]:
    """Return keyword arguments for *command*. Raises ValueError for what is missing, unknown or of
    another type."""
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
        raise ValueError(f"missing: {', '.join(missing)}")
    if unknown:
        raise ValueError(f"unknown: {', '.join(unknown)}")
    for name, value in named.items():
        if not isinstance(value, _TYPES[name]):
            raise ValueError(f"{name} cannot be {type(value).__name__}")  # noqa: TRY004 - as above
    return named


def _plain_result(result: Any) -> Any:
    if isinstance(result, list | tuple):
        return [_plain_result(item) for item in result]
    return asdict(result) if is_dataclass(result) else result  # type: ignore[arg-type]


def _error(code: str, message: str) -> Wire:
    return {"error": {"code": code, "message": message}}


def in_thread(dispatcher: Dispatcher) -> Transport:
    """Return a transport to a *dispatcher* in this process: each call runs in a thread, so that a
    model's answer holds nobody up."""

    async def carry(request: Wire) -> Wire:
        return await asyncio.to_thread(dispatcher.call, request)

    return carry


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
