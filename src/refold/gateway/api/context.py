"""What the operations work with: the gateway's pipeline, pending previews, payloads for histories
whose requests are gone, and error answers."""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from secrets import token_hex
from threading import Lock
from typing import NamedTuple, TypeVar

from msgspec import UNSET

from refold.codecs.blocks import as_opaque
from refold.codecs.codec import Codec, Payload
from refold.codecs.detect import CODECS, open_payload
from refold.compactor.by_hand import Preview
from refold.compactor.conversations import put_lru
from refold.core.view import View
from refold.errors import EditError, FormatError, RefoldError, StoreError
from refold.gateway.api.api_types import ConversationArguments
from refold.gateway.api.files import ClientSessions, OpenedFile
from refold.gateway.config import Config
from refold.gateway.conversations.conversations import Conversation, ConversationBusy
from refold.gateway.conversations.workers import DeadlineExceeded
from refold.gateway.exchange import HTTPException, RequestHead
from refold.gateway.ledger.calls import CallLog
from refold.gateway.ledger.sessions import Sessions
from refold.gateway.ledger.sql import BookedCalls
from refold.gateway.ledger.transcripts import Transcripts
from refold.gateway.ledger.writer import LedgerWriter
from refold.gateway.pipeline.pipeline import Pipeline
from refold.memory import MemorySink
from refold.messages import Content, Media, Message, Part, ToolResult
from refold.presets.in_place import Conversations
from refold.presets.soft_hard import SoftHardCompactor
from refold.presets.soft_hard_commands import Dispatcher
from refold.session_files.edited import EditedSession

T = TypeVar("T")
P = TypeVar("P", Content, Part)
STORE_FAILED = "The gateway's store cannot be read or written: the gateway's log says why."
PENDING_PREVIEWS = 16
"""Maximum number of pending previews, each of which holds a conversation. The oldest are
forgotten."""


class PendingPreview(NamedTuple):
    """A preview that was shown and may be accepted."""

    conversation: Conversation
    preview: Preview
    unseen_tokens: int = 0
    """Estimated tokens of system prompt and tools that the preview's views lack."""
    is_readable: bool = False
    """Whether the caller may read what the edits hide."""
    model: str = ""
    """The conversation's model."""
    file: EditedSession | None = None
    """Session in a client's file, beside which its edits are kept."""
    ratio: float = 1.0
    """Factor from estimated to expected tokens, of the session's latest request."""
    is_latest: bool = False
    """Whether its history was the session's latest, not sent along by the caller."""

    def count(self, view: View) -> int:
        """Return the expected tokens of a request with *view*, one of the preview's."""
        return round(self.ratio * (view.tokens_uncalibrated + self.unseen_tokens))


@dataclass(frozen=True)
class ApiContext:
    """The gateway's pipeline, as the operations see it."""

    pipeline: Pipeline
    ledger_writer: LedgerWriter = field(repr=False)
    """Writer of the ledger, the sessions and recorded transcripts."""
    tenant_of: Callable[[RequestHead], str] = field(repr=False)
    """Function from a request's head to the tenant of its conversation."""
    commands: Dispatcher
    """The four commands of the soft/hard preset."""
    recording: str = ""
    """How long transcripts are kept: `7d`. Empty: not at all."""
    files: ClientSessions | None = None
    """Sessions that clients keep on this machine, if they are listed."""
    previews: OrderedDict[str, PendingPreview] = field(default_factory=OrderedDict, repr=False)
    process: str = field(default_factory=partial(token_hex, 4), repr=False)
    """Prefix of the names of this process's previews."""
    _lock: Lock = field(default_factory=Lock, repr=False)

    @classmethod
    def build(
        cls, pipeline: Pipeline, config: Config, memory: Callable[[str], MemorySink] | None = None
    ) -> "ApiContext":
        """Return the context of *pipeline*. *memory* is a function from an agent's id to the sink
        for what `compact` hides. Raises ValueError for a pipeline without a ledger."""
        if pipeline.ledger_writer is None:
            raise ValueError("the API needs a pipeline with a net ledger")
        model = pipeline.workers.ask if pipeline.settings.ask is not None else None
        no_messages = Conversations(most=0)  # the gateway keeps none
        compactor = SoftHardCompactor(
            store=pipeline.store, model=model, memory=memory, conversations=no_messages
        )
        tenants, upstreams = config.tenants, config.upstreams

        def tenant_of(head: RequestHead) -> str:
            tenant = tenants.identify(head, upstreams)
            return tenant.claimed or tenant.credential  # believed: the caller has the admin token

        files = ClientSessions() if config.files else None
        commands, writer = Dispatcher(compactor), pipeline.ledger_writer
        return cls(pipeline, writer, tenant_of, commands, config.record, files)

    async def run_in_thread(self, work: Callable[[], T]) -> T:
        """Run *work* in a thread and return its result. Raises `DeadlineExceeded`, and what *work*
        raises."""
        return await self.pipeline.background.run(work)

    # --- previews -------------------------------------------------------------------------------

    def add_preview(self, preview: PendingPreview) -> str:
        """Keep *preview* until it is accepted, and return its name."""
        name = self.process + token_hex(12)
        self.put_back(name, preview)
        return name

    def take_preview(self, name: str) -> PendingPreview:
        """Remove and return a preview, for one caller only. Raises `Problem` 404, and 409 if
        another process made it."""
        with self._lock:
            preview = self.previews.pop(name, None)
        return self._check_preview(name, preview)

    def find_preview(self, name: str, session: str) -> PendingPreview:
        """Return a preview, which stays. Raises as `take_preview`, and `Problem` 404 if it is of
        another session."""
        preview = self.previews.get(name)
        is_of_session = preview is not None and preview.conversation.name == session
        return self._check_preview(name, preview if is_of_session else None)

    def put_back(self, name: str, preview: PendingPreview) -> None:
        """Keep *preview* again, as the latest."""
        with self._lock:
            put_lru(self.previews, name, preview, PENDING_PREVIEWS)

    def _check_preview(self, name: str, preview: PendingPreview | None) -> PendingPreview:
        if preview is not None:
            return preview
        if not name.startswith(self.process):
            raise Problem(
                409,
                "preview_elsewhere",
                "Another process of the gateway made this preview, and may have ended: try again, "
                "since that process may answer, or make another preview.",
            )
        raise Problem(
            404,
            "no_preview",
            "There is no such preview: it was accepted, or newer ones replaced it.",
        )

    # --- the ledger -----------------------------------------------------------------------------

    def sum_sessions(self, sessions: Iterable[str]) -> Mapping[str, BookedCalls] | None:
        """Return the booked calls of *sessions*, by name; None if the ledger fails, so that the
        rest is answered all the same."""
        with suppress(StoreError):
            return self.ledger_writer.ledger.sum_sessions(sessions)
        return None

    @property
    def sessions(self) -> Sessions:
        """The table of sessions."""
        return self.ledger_writer.sessions

    @property
    def call_log(self) -> CallLog:
        """The tables of sessions and their calls."""
        return self.ledger_writer.calls

    def find_file(self, session: str) -> OpenedFile | None:
        """Return the session in a client's file with this id; None if it is a gateway's or unknown,
        or if files are not listed. Raises `FormatError`, `StoreError`."""
        if self.files is None or self.call_log.find(session) or self.sessions.find(session):
            return None
        return self.files.open(session)

    def find_named_file(self, arguments: ConversationArguments) -> OpenedFile | None:
        """Return the session in a file that `session` names, if no history is sent along. Raises as
        `find_file`."""
        if not arguments.session or arguments.request is not UNSET:
            return None
        return self.find_file(arguments.session)

    @property
    def transcripts(self) -> Transcripts:
        """Recorded transcripts, which an administrator may read."""
        return self.ledger_writer.transcripts


@dataclass(frozen=True, slots=True)
class HistoryPayload(Payload):
    """A payload in the place of a request that is not available. It decodes to *messages*; its
    entries only distinguish these. It can be compacted, not sent."""

    messages: Sequence[Message] = ()

    def read_by(self, codec: Codec, head: int, *, is_named: bool = False) -> "HistoryPayload":
        """Return this payload with *codec*."""
        return replace(self, codec=codec, head=head, is_named=is_named)

    def decode(self, start: int = 0, prior: Sequence[Message] = ()) -> list[Message]:  # noqa: ARG002
        """Return the messages from position *start* on, unchanged: an edit fits exactly one
        history."""
        return list(self.messages[start:])


def make_payload(messages: Sequence[Message], api: str, model: str) -> Payload:
    """Return a payload in the place of a request of *model* with *messages*, in *api*'s format. It
    names images and does not hold them."""
    codec = next(codec for codec in CODECS if api == codec.NAME)
    entries = [codec.encode(_name_media(message)) for message in messages]
    opened = open_payload(json.dumps({"model": model, codec.FIELD: entries}), codec)
    fields = opened.field, opened.body, opened.raw_entries, opened.rebuild
    return HistoryPayload(*fields, opened.codec, messages=messages)


def _name_media(message: Message) -> Message:
    """Return *message* with names in the place of its media's bytes."""
    parts = [
        replace(part, content=tuple(map(_name_medium, part.content)))
        if isinstance(part, ToolResult)
        else _name_medium(part)
        for part in message.parts
    ]
    return replace(message, parts=tuple(parts))


def _name_medium(part: P) -> P:
    return as_opaque({"type": part.kind, **asdict(part)}) if isinstance(part, Media) else part


class Problem(Exception):  # noqa: N818 - it is an answer, not an error
    """An answer other than 200: a status, a code for programs and a message for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def as_problem(error: Exception) -> Problem | None:
    """Return the answer for an exception of an operation; None for an unexpected one."""
    match error:
        case Problem():
            return error
        case HTTPException():
            return Problem(error.status, error.reason, error.message)
        case EditError():
            return Problem(409, "conflict", str(error))
        case FormatError():
            return Problem(422, "unreadable", str(error))
        case StoreError():
            return Problem(503, "store_failed", STORE_FAILED)
        case DeadlineExceeded():
            return Problem(503, "late", "The operation took too long: try again.")
        case ConversationBusy():
            return Problem(
                409, "busy", "A request of this conversation is being worked on: try again."
            )
        case RefoldError():
            return Problem(422, "refused", str(error))
        case _:
            return None
