"""What lists say of sessions, calls and messages: which agent, how large, at what cost, which words
first."""

import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Literal, NamedTuple

from refold.compactor.hooks import (
    CompactionEnded,
    CompactionStarted,
    EditsReverted,
    Event,
    OnEvent,
    PreviewAccepted,
)
from refold.gateway.conversations.conversations import count_unedited
from refold.gateway.exchange import Incoming
from refold.gateway.ledger.accounting import BilledCall, SummaryCost
from refold.gateway.ledger.entry import Entry, clean_name
from refold.messages import Media, Message, Text, Thinking, ToolCall, ToolResult
from refold.speakers import is_report, request_text
from refold.text.failures import is_markup
from refold.text.plain import call_gist
from refold.tokens.count import count_message

EventKind = Literal["compact", "accept", "revert", "fault"]
"""A compaction that made edits; a preview that was accepted; edits taken back; a request that
passed unchanged since the gateway failed."""


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
    """Tokens of the request as it was sent, as its provider is expected to count."""
    edits: int
    """How many showed in it."""
    input: int
    """Tokens of the request as the upstream reported them; 0 if it did not."""
    read: int
    """Of these, those read from a cache."""
    would_read: int
    """Those that would have been without edits."""
    cost: int
    would_cost: int


class ListedSession(NamedTuple):
    """A session, as lists show it."""

    session: str
    tenant: str
    client: str = ""
    """The agent's name; empty if it is not known."""
    project: str = ""
    """The last part of the directory that the agent works in; empty if it does not say."""
    api: str = ""
    model: str = ""
    """Of the latest call."""
    began: float = 0.0
    latest: float = 0.0
    """Seconds since 1970."""
    original: int = 0
    """Tokens of the latest call as it came, as its provider is expected to count."""
    sent: int = 0
    """As it was sent."""
    failed: int = 0
    """Calls that the upstream answered with an error."""


class ClientName(NamedTuple):
    """What a client calls a session, as a hash: by that the client's own file is known."""

    session: str
    name: str


class SessionEvent(NamedTuple):
    """Something that was done to a session."""

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
    ("kimi-code-cli", "Kimi CLI"),
)
"""How the headers `user-agent` and `originator` of clients begin, in lower case."""
CLIENT_NAMES = ("thread-id", "x-session-id", "x-claude-code-session-id", "session_id")
"""Headers in which clients send what they call a session in their own files."""
_DIRECTORY = re.compile(
    rb"(?:orking directory(?:: | is `?)|in the directory: |<cwd>|Workspace Directories:[*]{0,2}\\n {0,4}- )"
    rb"((?:/|~|[A-Za-z]:)[^\s\"<>`\]]{1,400}?)(?=[\"<>`\]\s]|\\[nr]|\.[\s\\]|$)"
)
"""How the prompts of Claude Code, OpenCode, Gemini CLI and Codex name the directory."""
DIRECTORY_BYTES = 400_000
"""Where in a request the directory is looked for; prompts come first, or right after the tools."""


def client_of(incoming: Incoming) -> str:
    """Return the name of the agent that sent a request; the first word of its header if it is not
    known by name, empty if it has none."""
    agent = incoming.header("originator") or incoming.header("user-agent")
    lowered = agent.lower()
    for start, name in CLIENTS:
        if lowered.startswith(start):
            return name
    return re.split(r"[/\s(]", agent, maxsplit=1)[0][:40]


def project_of(incoming: Incoming) -> str:
    """Return the last part of the directory that the agent says it works in; empty if it does not
    say."""
    match = _DIRECTORY.search(incoming.body, 0, DIRECTORY_BYTES)
    if match is None:
        return ""
    path = match[1].decode("utf-8", "replace").replace("\\\\", "/").rstrip("/\\")
    return re.split(r"[/\\]", path)[-1][:100].replace("\0", "")


def client_name_of(incoming: Incoming) -> str:
    """Return what the client calls the session, as `hash_client_name` has it; empty if it does not
    say, and for a sub-agent, which has its session's name."""
    names = filter(None, map(incoming.header, CLIENT_NAMES))
    name = "" if incoming.header("x-claude-code-agent-id") else next(names, "")
    return hash_client_name(name) if name else ""


def hash_client_name(name: str) -> str:
    """Return a hash of what a client calls a session. Such names are drawn at random."""
    return blake2b(name.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def describe_call(
    call: BilledCall, entry: Entry, names: tuple[str, str]
) -> tuple[ListedSession, CallRow]:
    """Return the rows of an answered call: of its session, whose client and project are *names*,
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
    """Return the row that counts a call which the upstream answered with an error."""
    return ListedSession(session, tenant, api=incoming.api, began=when, latest=when, failed=1)


# --- what is done to a conversation --------------------------------------------------------------


def ledger_listener(
    book: Callable[[SummaryCost | SessionEvent], None],
    tenant: str,
    session: str,
    then: OnEvent | None,
) -> OnEvent:
    """Return a listener that books what is done to one conversation and what that costs, and calls
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
    """What a row of a timeline says of a message."""

    speaker: str
    """`you` for a person, `result` for what tools returned or a client reports of a command, else
    the role."""
    lines: list[str]
    """The first ones."""
    line_count: int
    """How many there are in all."""
    calls: list[tuple[str, str, str]]
    """Of each call the tool, what it is about, and the call's id."""
    answers: list[str]
    """Ids of the calls whose results are in it."""
    kinds: list[str]
    """Of its media and thinking."""
    tokens: int
    """As estimated."""
    place: int = 0


BRIEF_LINES, BRIEF = 3, 300
"""Lines of a text that a row shows, and characters of each."""


def find_title(messages: Sequence[Message]) -> str:
    """Return the words of the first request of a person, in one line, as any database can hold
    it."""
    requests = (request_text(message) for message in messages[:50] if message.role == "user")
    return clean_name(" ".join(next(filter(None, requests), "").split()))


def describe_message(message: Message) -> MessageBrief:
    """Return the row of a message: what it says first, and which tools it calls."""
    is_result = bool(message.results) or is_report(message)
    request = request_text(message) if message.role == "user" and not is_result else ""
    texts = [part.text for part in message.parts if isinstance(part, Text | ToolResult)]
    lines = (request or "\n".join(texts)).splitlines()
    if is_result:  # a row has room for its first words, which no tag and no exit code is
        lines = [line for line in lines if not is_markup(line)] or lines
    shown = [line[:BRIEF] for line in lines if line.strip()][:BRIEF_LINES]
    speaker = "result" if is_result else "you" if request else message.role
    return MessageBrief(
        speaker=speaker,
        lines=shown[:1] if is_result else shown,
        line_count=len(lines),
        calls=[
            (part.name, call_gist(part, 200), part.id)
            for part in message.parts
            if isinstance(part, ToolCall)
        ],
        answers=list(filter(None, message.results)),
        tokens=count_message(message),
        kinds=[
            part.kind if isinstance(part, Media) else "thinking"
            for part in message.parts
            if isinstance(part, Media | Thinking)
        ],
    )
