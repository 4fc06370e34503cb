"""Rows of lists of sessions, calls and messages: agent, size, cost and first words."""

import json
import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Literal, NamedTuple
from zlib import crc32

from refold.compactor.hooks import (
    CompactionEnded,
    CompactionStarted,
    EditsReverted,
    Event,
    OnEvent,
    PreviewAccepted,
)
from refold.core.view_lines import call_gist
from refold.gateway.conversations.conversations import count_unedited
from refold.gateway.exchange import Incoming
from refold.gateway.ledger.accounting import BilledCall, SummaryCost
from refold.gateway.ledger.entry import Entry, clean_name
from refold.messages import Media, Message, Text, Thinking, ToolCall, ToolResult
from refold.speakers import is_report, request_text
from refold.text.failures import is_markup
from refold.text.plain import readable_text
from refold.tokens.count import count_message

EventKind = Literal["compact", "accept", "revert", "fault"]
"""A compaction that made edits, an accepted preview, reverted edits, or a request that passed
unchanged because the gateway failed."""


class CallRow(NamedTuple):
    """One answered call. Money in picodollars."""

    session: str
    tenant: str
    at: float
    """Seconds since 1970."""
    model: str
    original: int
    """Tokens of the request as it came, as its provider is expected to count."""
    sent: int
    """The same, as it was sent."""
    edits: int
    """Edits that showed."""
    input: int
    """Tokens of the request as the upstream reported them; 0 if it did not."""
    read: int
    """Of these, read from a cache."""
    would_read: int
    """Read from a cache without edits."""
    cost: int
    would_cost: int


class ListedSession(NamedTuple):
    """A session in a list."""

    session: str
    tenant: str
    client: str = ""
    """Name of the agent; empty if unknown."""
    project: str = ""
    """Last part of the agent's working directory; empty if unknown."""
    api: str = ""
    model: str = ""
    """Of the latest call."""
    began: float = 0.0
    latest: float = 0.0
    """Seconds since 1970."""
    original: int = 0
    """Tokens of the latest call as it came, as its provider is expected to count."""
    sent: int = 0
    """The same, as it was sent."""
    failed: int = 0
    """Calls that the upstream answered with an error."""


class ClientName(NamedTuple):
    """Hash of a client's own name for a session, by which the client's file is recognised."""

    session: str
    name: str


class SessionEvent(NamedTuple):
    """An event of a session."""

    session: str
    tenant: str
    at: float
    kind: EventKind


CLIENTS = (
    ("claude-cli", "Claude Code"),
    ("codex", "Codex"),
    ("geminicli", "Gemini CLI"),
    ("gemini-cli", "Gemini CLI"),
    ("qwencode", "Qwen Code"),
    ("opencode", "OpenCode"),
    ("pi-coding-agent", "pi"),
    ("pi/", "pi"),
    ("anthropic/", "Anthropic SDK"),
    ("asyncanthropic/", "Anthropic SDK"),
    ("openai/", "OpenAI SDK"),
    ("asyncopenai/", "OpenAI SDK"),
    ("google-genai", "Google Gen AI SDK"),
    ("kimi-code-cli", "Kimi Code"),
)
"""Prefixes of clients' `user-agent` and `originator` headers, in lower case, and names."""
CLIENT_NAMES = ("thread-id", "x-session-id", "x-claude-code-session-id", "session_id")
"""Headers with clients' own names for sessions, as in their files."""
_DIRECTORY = re.compile(
    rb"(?:orking directory(?:: | is `?)|in the directory: |<cwd>|Workspace Directories:[*]{0,2}\\n {0,4}- )"
    rb"((?:/|~|[A-Za-z]:)(?:[^\s\"<>`\]\\]|\\\\|\\u[0-9A-Fa-f]{4}){1,400}?)"
    rb"(?=[\"<>`\]\s]|\\[nr]|\.[\s\\]|$)"
)
"""Regex for the working directory in prompts of Claude Code, OpenCode, Gemini CLI and Codex, as
JSON has it: a path of Windows has two backslashes for each."""
DIRECTORY_BYTES = 400_000
"""Bytes of a request that are searched for it. Prompts come first, or right after the tools."""


def client_of(incoming: Incoming) -> str:
    """Return the name of the agent that sent a request. If unknown, return the first word of its
    header; empty without one."""
    agent = incoming.header("originator") or incoming.header("user-agent")
    lowered = agent.lower()
    for start, name in CLIENTS:
        if lowered.startswith(start):
            return name
    return re.split(r"[/\s(]", agent, maxsplit=1)[0][:40]


def project_of(incoming: Incoming) -> str:
    """Return the last part of the agent's working directory; empty if the request does not name
    it."""
    match = _DIRECTORY.search(incoming.body, 0, DIRECTORY_BYTES)
    if match is None:
        return ""
    path = json.loads(f'"{match[1].decode("utf-8", "replace")}"', strict=False).rstrip("/\\")
    return clean_name(re.split(r"[/\\]", path)[-1])[:100]


def client_name_of(incoming: Incoming) -> str:
    """Return the client's name for the session (`hash_client_name`); empty if it sends none, and
    for a sub-agent, which has its session's name."""
    names = filter(None, map(incoming.header, CLIENT_NAMES))
    name = "" if incoming.header("x-claude-code-agent-id") else next(names, "")
    return hash_client_name(name) if name else ""


def hash_client_name(name: str) -> str:
    """Return a hash of a client's name for a session, without salt: such names are random."""
    return blake2b(name.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def describe_call(
    call: BilledCall, entry: Entry, names: tuple[str, str]
) -> tuple[ListedSession, CallRow]:
    """Return the rows of an answered call: that of its session, with client and project *names*,
    and its own."""
    (key, sums), outgoing = entry, call.outgoing
    original, sent = outgoing.tokens_before, outgoing.tokens_after
    if call.view is not None and not call.shadow:
        original, sent = count_unedited(call.view), call.view.tokens
    listed = ListedSession(
        key.session,
        key.tenant,
        *names,
        call.incoming.api,
        key.model,
        call.when,
        call.when,
        original,
        sent,
    )
    tokens, read, cost = sums.input, sums.read, sums.cost
    if call.shadow:  # it is billed as it came
        tokens, read, cost = sums.would_input, sums.would_read, sums.would_cost
    row = CallRow(
        key.session,
        key.tenant,
        call.when,
        key.model,
        original,
        sent,
        len(outgoing.edits),
        tokens if key.basis != "estimated" else 0,
        read,
        sums.would_read,
        cost,
        sums.would_cost,
    )
    return listed, row


def describe_failure(incoming: Incoming, session: str, tenant: str, when: float) -> ListedSession:
    """Return the row that counts a call that the upstream answered with an error."""
    return ListedSession(session, tenant, api=incoming.api, began=when, latest=when, failed=1)


# --- what is done to a conversation --------------------------------------------------------------


def ledger_listener(
    book: Callable[[SummaryCost | SessionEvent], None],
    tenant: str,
    session: str,
    then: OnEvent | None,
) -> OnEvent:
    """Return a listener that books the events of a conversation and their cost, and calls
    *then*."""
    models = dict[str, str]()

    def listen(event: Event) -> None:
        if isinstance(event, CompactionStarted):
            models[event.run] = event.model
        elif isinstance(event, CompactionEnded):
            model = models.pop(event.run, "")
            if event.calls:
                book(SummaryCost(event.ended_at, tenant, session, model, event.calls, event.cost))
            if event.action == "compact" and event.edits:
                book(SessionEvent(session, tenant, event.ended_at, "compact"))
        elif isinstance(event, PreviewAccepted):
            book(SessionEvent(session, tenant, event.when, "accept"))
        elif isinstance(event, EditsReverted):
            book(SessionEvent(session, tenant, event.when, "revert"))
        if then is not None:
            then(event)

    return listen


# --- out of messages --------------------------------------------------------------------------


class MessageBrief(NamedTuple):
    """A message in a row of a timeline."""

    speaker: str
    """`you` for a person, `result` for tool results and reported output of commands, else the
    role."""
    lines: list[str]
    """First lines with text; of a result only one."""
    line_count: int
    """Number of all lines, without markup of a result."""
    calls: list[tuple[str, str, str]]
    """Tool, gist and id of each call."""
    answers: list[str]
    """Ids of the calls whose results it holds."""
    kinds: list[str]
    """Kinds of its media and thinking."""
    tokens: int
    """Estimated."""
    place: int = 0
    """Position in the transcript."""
    digest: int = 0
    """Checksum of its text; 0 if it was written before there was one."""


BRIEF_LINES, BRIEF_LINE_CHARACTERS = 3, 300
"""Maximum lines in a row, and characters of each."""


def find_title(messages: Sequence[Message]) -> str:
    """Return the first request of a person in one line, in a form that any database can store;
    empty if the first 50 messages have none."""
    requests = (request_text(message) for message in messages[:50] if message.role == "user")
    return clean_name(" ".join(next(filter(None, requests), "").split()))


def describe_message(message: Message) -> MessageBrief:
    """Return the timeline row of a message."""
    is_result = bool(message.results) or is_report(message)
    request = request_text(message) if message.role == "user" and not is_result else ""
    texts = [part.text for part in message.parts if isinstance(part, Text | ToolResult)]
    lines = (request or "\n".join(texts)).splitlines()
    if is_result:  # tags and exit codes say little
        lines = [line for line in lines if not is_markup(line)] or lines
    shown = [line[:BRIEF_LINE_CHARACTERS] for line in lines if line.strip()][:BRIEF_LINES]
    speaker = "result" if is_result else "you" if request else message.role
    calls = (part for part in message.parts if isinstance(part, ToolCall))
    return MessageBrief(
        speaker=speaker,
        lines=shown[:1] if is_result else shown,
        line_count=len(lines),
        calls=[(call.name, call_gist(call, 200), call.id) for call in calls],
        answers=list(filter(None, message.results)),
        tokens=count_message(message),
        digest=crc32(readable_text(message).encode("utf-8", "surrogatepass")),
        kinds=[
            part.kind if isinstance(part, Media) else "thinking"
            for part in message.parts
            if isinstance(part, Media | Thinking)
        ],
    )
