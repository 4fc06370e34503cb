"""The soft/hard preset as commands: functions, and one JSON dispatcher (S2-32 to S2-36); to look first and to go back as
well (S2-51, S2-53). The client of them and the state of one chat are in `refold.presets.soft_hard_client`."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from secrets import token_hex
from threading import Lock
from typing import Any, NamedTuple

from refold.compactor.preview import Preview
from refold.errors import RefoldError, StoreError
from refold.presets.soft_hard import CompactionCheck, CompactionResult, Overrides, SoftHardCompactor
from refold.presets.soft_hard_client import (
    ChatStore,
    CommandError,
    CompactorClient,
    Intelligence,
    Transport,
    Wire,
)
from refold.presets.soft_hard_results import PreviewResult
from refold.presets.token_formulas import rather_over
from refold.stores.store import LedgerRow


def compactor_estimate_tokens(text: str) -> int:
    """Tokens of *text*, rather over than under (S2-33)."""
    return rather_over(text)


def compactor_estimate_messages_tokens(
    messages: Sequence[Any], *, by: SoftHardCompactor | None = None
) -> int:
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


@dataclass
class Offers:
    """Previews that wait to be accepted, by ids that nobody can guess; of more than *most* the oldest is forgotten."""

    most: int = 16
    _kept: OrderedDict[str, tuple[Preview, str, str | None]] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def put(self, preview: Preview, agent_id: str, conversation_id: str | None) -> str:
        """The id to accept it by."""
        with self._lock:
            self._kept[id := token_hex(16)] = preview, agent_id, conversation_id
            while len(self._kept) > self.most:
                self._kept.popitem(last=False)
        return id

    def put_back(
        self, id: str, preview: Preview, agent_id: str, conversation_id: str | None
    ) -> None:
        """It waits again."""
        with self._lock:
            self._kept[id] = preview, agent_id, conversation_id

    def take(self, id: str) -> tuple[Preview, str, str | None]:
        """The preview, once, and whose it is. Raises ValueError."""
        with self._lock:
            preview = self._kept.pop(id, None)
        if preview is None:
            raise ValueError(
                f"no preview {id!r} waits to be accepted: it was accepted before, or is forgotten"
            )
        return preview


def compactor_preview(
    by: SoftHardCompactor,
    offers: Offers,
    messages: Sequence[Any],
    agent_id: str,
    conversation_id: str | None = None,
    config: Overrides = None,
) -> PreviewResult:
    """What compacting *messages* would do (S2-51). Raises as `SoftHardCompactor.preview`."""
    preview = by.preview(list(messages), agent_id, conversation_id, config)
    id = offers.put(preview, agent_id, conversation_id)
    tokens = preview.before.tokens, preview.view.tokens
    return PreviewResult(id, list(preview.payload), preview.summaries(), len(messages), *tokens)


def compactor_accept(
    by: SoftHardCompactor,
    offers: Offers,
    preview_id: str,
    summaries: Mapping[str, str] | None = None,
) -> CompactionResult:
    """Keep a preview, with other texts for its *summaries*, if given. Raises ValueError and `EditError`."""
    offer, agent_id, conversation_id = offers.take(preview_id)
    try:
        preview = offer
        for edit, text in (summaries or {}).items():
            preview = preview.amend(edit, text)
        return by.accept(preview, agent_id, conversation_id)
    except RefoldError:
        offers.put_back(preview_id, offer, agent_id, conversation_id)
        raise


def compactor_history(
    by: SoftHardCompactor,
    messages: Sequence[Any],
    agent_id: str,
    conversation_id: str | None = None,
) -> list[LedgerRow]:
    """What was done to *messages*, oldest first (S2-53)."""
    return list(by.history(list(messages), agent_id, conversation_id))


def compactor_revert(
    by: SoftHardCompactor,
    messages: Sequence[Any],
    agent_id: str,
    conversation_id: str | None = None,
    edits: Sequence[str] = (),
) -> list[Any]:
    """The messages with compactions of them taken back: all, or these *edits* (S2-53). Raises `EditError`."""
    return by.revert(list(messages), *edits, agent_id=agent_id, conversation_id=conversation_id)


class _Command(NamedTuple):
    function: Callable[..., Any]
    needs: tuple[str, ...]
    takes: tuple[str, ...] = ()
    """Arguments that may be left out."""
    given: tuple[str, ...] = ("by",)
    """What the dispatcher adds: its compactor, its previews."""


COMMANDS: Mapping[str, _Command] = {
    "compactor_estimate_tokens": _Command(compactor_estimate_tokens, ("text",), given=()),
    "compactor_estimate_messages_tokens": _Command(
        compactor_estimate_messages_tokens, ("messages",)
    ),
    "compactor_check_threshold": _Command(compactor_check_threshold, ("messages",), ("config",)),
    "compactor_compact": _Command(
        compactor_compact, ("messages", "agent_id"), ("conversation_id", "config")
    ),
    "compactor_preview": _Command(
        compactor_preview, ("messages", "agent_id"), ("conversation_id", "config"), ("by", "offers")
    ),
    "compactor_accept": _Command(
        compactor_accept, ("preview_id",), ("summaries",), ("by", "offers")
    ),
    "compactor_history": _Command(
        compactor_history, ("messages", "agent_id"), ("conversation_id",)
    ),
    "compactor_revert": _Command(
        compactor_revert, ("messages", "agent_id"), ("conversation_id", "edits")
    ),
}
_CAMEL = {"agentId": "agent_id", "conversationId": "conversation_id", "previewId": "preview_id"}
"""How JavaScript spells arguments (S2-37)."""


@dataclass(frozen=True)
class Dispatcher:
    """Answers `{"command": ..., "arguments": {...}}` with `{"result": ...}` or `{"error": {"code", "message"}}`.
    JSON in, JSON out: put it behind HTTP, a pipe or a window's bridge."""

    compactor: SoftHardCompactor = field(default_factory=SoftHardCompactor)
    offers: Offers = field(default_factory=Offers)
    """Previews that wait to be accepted."""

    def call(self, request: Any) -> Wire:
        """The response. Codes: `unknown_command`, `bad_arguments`, `store_failed`. Never raises for what is
        in *request*."""
        given = request if isinstance(request, Mapping) else {}
        name = given.get("command")
        command = COMMANDS.get(name) if isinstance(name, str) else None
        if command is None:
            return _error(
                "unknown_command", f"there is no command {name!r}; there are {', '.join(COMMANDS)}"
            )
        try:
            result = command.function(**self._arguments(command, given.get("arguments", {})))
        except StoreError as error:
            return _error("store_failed", str(error))
        except (ValueError, TypeError, RefoldError) as error:
            return _error("bad_arguments", str(error))
        return {"result": _as_json(result)}

    def _arguments(self, command: _Command, given: Any) -> dict[str, Any]:
        """Keyword arguments. Raises ValueError for what is missing, unknown or of another type."""
        if not isinstance(given, Mapping):
            raise ValueError("arguments must be an object")  # noqa: TRY004 - as the others
        named: dict[str, Any] = {
            _CAMEL.get(str(name), str(name)): value for name, value in given.items()
        }
        missing = [name for name in command.needs if name not in named]
        unknown = [name for name in named if name not in (*command.needs, *command.takes)]
        if missing:
            raise ValueError(f"missing: {', '.join(missing)}")
        if unknown:
            raise ValueError(f"unknown: {', '.join(unknown)}")
        for name, value in named.items():
            if not isinstance(value, _TYPES[name]):
                raise ValueError(f"{name} cannot be {type(value).__name__}")  # noqa: TRY004 - likewise
        added = {"by": self.compactor, "offers": self.offers}
        return named | {name: added[name] for name in command.given}


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


def _as_json(result: Any) -> Any:
    if isinstance(result, int):
        return result
    return (
        [asdict(item) if isinstance(item, LedgerRow) else item for item in result]
        if isinstance(result, list)
        else asdict(result)
    )


def _error(code: str, message: str) -> Wire:
    return {"error": {"code": code, "message": message}}


def in_thread(dispatcher: Dispatcher) -> Transport:
    """A transport to a *dispatcher* in this process: each call runs in a thread, so that a model's answer holds
    nobody up."""

    async def carry(request: Wire) -> Wire:
        return await asyncio.to_thread(dispatcher.call, request)

    return carry


__all__ = [
    "COMMANDS",
    "ChatStore",
    "CommandError",
    "CompactorClient",
    "Dispatcher",
    "Intelligence",
    "Offers",
    "Transport",
    "Wire",
    "compactor_accept",
    "compactor_check_threshold",
    "compactor_compact",
    "compactor_estimate_messages_tokens",
    "compactor_estimate_tokens",
    "compactor_history",
    "compactor_preview",
    "compactor_revert",
    "in_thread",
]
