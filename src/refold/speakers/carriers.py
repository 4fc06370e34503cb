"""Carriers that agent clients use, recognised by tags and first words, and whose voice they hold.

Shapes are checked first (`refold.speakers.segments`); these names add what a shape cannot tell.
Texts that are in no list are kept, so an outdated list costs tokens but loses nothing.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

from refold.text.clip import one_line
from refold.text.json_values import parse_or_none

Voice = Literal["person", "instruction", "context", "summary", "tool"]
"""`person`; `instruction`: standing orders of an operator or person; `context`: the client about
the environment; `summary`: the client's summary of a compaction; `tool`: tool output or a
short-lived note, which may be dropped."""


class Carrier(NamedTuple):
    """Meaning of a text that begins in a certain way."""

    voice: Voice
    kind: str = ""
    """Subject; if empty, it is derived from the beginning of the text."""
    is_whole: bool = False
    """Whether it contains the whole state, so that it replaces earlier texts of its kind."""


PERSON, ORDER = Carrier("person"), Carrier("instruction")
NOTE, TOOL = Carrier("context"), Carrier("tool")
STATE, SUMMARY = Carrier("context", is_whole=True), Carrier("summary", "summary", is_whole=True)
EDITOR, STARTUP = Carrier("context", "editor"), Carrier("context", "startup", is_whole=True)
SKILL = Carrier("context", "skill", is_whole=True)
"""Text of a skill for the request that loads it. Each skill is a kind of its own."""
DATE = Carrier("context", "date", is_whole=True)
MODE = Carrier("context", "permission mode", is_whole=True)
EXAMPLE = Carrier("instruction", "example")
ASIDE = Carrier("tool", "aside")
"""Note for the moment, without information about the work."""
REFUSAL = Carrier("tool", "refusal")
"""Client's reply to a model message without anything usable."""
SELECTED, OPENED = Carrier("tool", "editor's text"), Carrier("tool", "editor's view")
"""Context of the person's editor sent with a request: selected text, and open files."""
TEMPLATE = "template"
"""Kind of texts that a client substitutes for a command or sends after a skill call."""


def _all(carrier: Carrier, *words: str) -> tuple[tuple[str, Carrier], ...]:
    return tuple((word, carrier) for word in words)


STATES = """
    environment_context session_context environment_details env user_instructions
    skills_instructions permissions collaboration_mode multi_agent_role multi_agent_mode
    plan-mode-active background-tasks vibe_warning turn_aborted environment_info
    workspace_info reminderInstructions repoContext project_layout user_info
"""
"""Tags of elements with the whole state of one thing."""
TAGS = {
    tag: carrier
    for carrier, tags in (
        # the person's own words in a client's tag
        (PERSON, "user_input user_command user_query user_message user-interrupt userRequest"),
        (PERSON, "cron-fire feedback task"),
        (Carrier("person", TEMPLATE), "agent_instructions"),
        (ORDER, "goal_context untrusted_objective"),
        (NOTE, "mode_notice system-reminder extension_context"),
        (STATE, "INSTRUCTIONS hook_context hook_result user-prompt-submit-hook"),
        (SKILL, "skill skill-context"),
        (SUMMARY, "state_snapshot SYSTEM_NOTICE compaction_summary conversation_summary"),
        (SUMMARY, "conversation-summary"),
        (TOOL, "local-command-stdout local-command-stderr bash-input bash-stdout bash-stderr"),
        (TOOL, "user_shell_command task-notification subagent_notification notification"),
        (TOOL, "file_content workspace_diagnostics untrusted_context system returncode output"),
        (TOOL, "error url_content folder_content terminal_output git_working_state git_commit"),
        (TOOL, "mcp-resource tool_response system_notification"),
        (ASIDE, "local-command-caveat total_tokens command-name command-message command-args"),
        (SELECTED, "ide_selection ide_diagnostics attachments attached_files"),
        (OPENED, "ide_opened_file editorContext toolReferences open_and_recently_viewed_files"),
        (OPENED, "in-app-browser-context current_datetime reminder"),
        *((Carrier("context", tag, is_whole=True), tag) for tag in STATES.split()),
    )
    for tag in tags.split()
}
"""Carriers of elements by tag."""
_PERSON_TAG = re.compile(
    r"(?:user|human)[_-]?(?:request|query|question|message|input|prompt|task)", re.IGNORECASE
)
"""Other tags that indicate a person's words."""
ENVELOPE = Carrier("tool", "message's envelope")
"""Metadata that a chat gateway puts before a person's message: the sender, and recent events."""
REQUEST_CONTEXT_KINDS = frozenset({SELECTED.kind, OPENED.kind, ENVELOPE.kind})
"""Kinds of texts that stay with their request as long as it is the current one."""
NAMED_SHARE = 2 / 3
"""Minimum fraction of one person's texts that begin with a name if a group writes them."""
LONGEST_NAME = 24
"""Maximum characters of a sender's name."""
IN_RESULT = "[at the end of a tool's result] "
"""Prefix of a person's words found in a tool result, which a tool can forge."""
FROM_SENDER = re.compile(r"\[from [^\]\n]{1,60}\] ")
"""Prefix of the words of one of several people (`mark_sender`)."""
UNQUOTED = frozenset({ASIDE.kind, REFUSAL.kind, OPENED.kind, ENVELOPE.kind})
"""Kinds of tool texts with nothing to quote."""
QUOTING_STATES = ("environment_details", "hook_context", "hook_result", "user_instructions")
"""Tags of states that quote the output of a program or hook, or a file."""
NOTES = tuple(f"<{tag}>" for tag, carrier in TAGS.items() if carrier is NOTE)
"""Opening tags of a client's notes about the context."""

INSIDE_PREFIXES = (
    *_all(
        Carrier("context", "project memory", is_whole=True),
        "As you answer the user's questions, you can",
    ),
    *_all(DATE, "Today's date is", "The date has changed", "The current date is"),
    *_all(
        STATE,
        "# Environment",
        "You are powered by the model",
        "gitStatus:",
        "Attribution for git commits",
        "[This command modified",
        "The following skills are available",
        "Available agent types",
        "The following tools are reachable",
        "The following deferred tools are",
    ),
    *_all(
        STARTUP,
        "This is the Gemini CLI. We are setting up",
        "This is the Qwen Code. We are setting up",
        "We are setting up the context",
    ),
    *_all(MODE, "Auto permission mode is", "Plan mode is"),
    *_all(SUMMARY, "Earlier context was compacted."),
    *_all(TOOL, "Result of calling the ", "Called the "),
    *_all(ASIDE, "The task tools haven't been used recently", "Context compaction is complete"),
    *_all(SELECTED, "The user selected the lines "),
    *_all(OPENED, "The user opened the file "),
)
"""Carriers of element bodies and parts of system messages, by words that a person may use too."""

TEMPLATES = (
    "User activated the skill",
    "## User Input\n\n```text\n",
    "A new session was started via /new or /reset.",
    "Pre-compaction memory flush.",
    "Read HEARTBEAT.md if it exists",
)
"""Beginnings of the text of a command or skill that a person called, combined with their input
(Kimi Code, Spec Kit, OpenClaw)."""
EXPANDED = "<command-message>"
"""Prefix of a command whose text the client sends next (Claude Code), unlike one that it runs."""
EXIT_CODE = ("<returncode>", "<exception>")
"""Beginnings of a command's output in elements of any name, in one text (mini-swe-agent)."""
NO_OUTPUT = "Your command ran successfully and did not produce any output."
OUTPUT_MARKS = ("Observation:\n", "OBSERVATION:\n", "EXECUTION RESULT of [", NO_OUTPUT)
"""Markers before the output, if any, of a command that an agent without native calls wrote as text.
They include the line break if a person might continue the line."""
REPORTS = (*EXIT_CODE, "<output>", "The last command <command>", *OUTPUT_MARKS)
"""Beginnings of a text with such output."""
TEXT_PREFIXES = (
    *_all(
        PERSON,
        "User steering update:",
        "User hints:",
        *TEMPLATES,
        "New task:",
        "[User message received",
    ),
    *_all(STATE, "# AGENTS.md instructions", "AGENTS.md instructions for", "# CLAUDE.md"),
    *_all(SKILL, "Base directory for this skill:"),  # Claude Code
    *_all(  # aider
        EXAMPLE,
        "Change get_factorial() to use math.factorial",
        "Refactor hello() into its own file",
        "I switched to a new code base. Please don't consider",
    ),
    *_all(STARTUP, "This is the Gemini CLI. We are setting up the context for our chat."),
    *_all(MODE, "User has manually exited Plan Mode."),  # Gemini CLI
    *_all(Carrier("context", "editor", is_whole=True), "Here is the user's editor context"),
    *_all(EDITOR, "Here is a summary of changes in the user's editor"),
    *_all(
        Carrier("context", "map of files", is_whole=True),
        "Here are summaries of some files present in my git",
    ),
    *_all(Carrier("context", "files to read", is_whole=True), "Here are some READ ONLY files"),
    *_all(
        Carrier("context", "files in the chat", is_whole=True),
        "I have *added these files to the chat*",
    ),
    *_all(
        SUMMARY,
        "This session is being continued from a previous",
        "Another language model started to solve this",
        "The conversation so far has been compacted",
        "The conversation history before this point",
        "You are in the middle of a conversation that",
        "I spoke to you previously about",
        "[以下是之前对话的摘要]",
    ),
    # Mistral Vibe
    *_all(
        Carrier("summary", "before requests", is_whole=True),
        "You are continuing a trajectory after",
    ),
    *_all(Carrier("summary", "behind requests", is_whole=True), "</previous_user_messages>"),
    *_all(
        TOOL,
        "<task-notification>",
        "OpenClaw runtime ",
        "Called the Read tool with the following",
        "System: Potential loop detected.",
        "I ran the following shell command:\n",
        "I committed the changes with git hash",
        "Manual `!` command result from the user.",
        "Recently accessed file (full current content",
        "Recent visual snapshots preserved",
        "Tool call error:",
        "Files attached by the user:\n\n<file_content",
        "The last command <command>",  # mini-swe-agent
        "Here is the content of http",  # aider, and the next two
        "# Fix any errors below, if possible.",
        "# 1 SEARCH/REPLACE block failed to match!",
        *OUTPUT_MARKS,
    ),
    *_all(
        ASIDE,
        "Caveat: The messages below were generated by the user while running local commands",
        "[Request interrupted by user",
        "[TASK RESUMPTION]",
        "# task_progress ",
        "# TODO LIST ",
        "[System] Your previous turn was interrupted",
        "[Image: original ",
        "[Image: source: ",
        "Unknown skill: ",
        "Unknown slash command: ",
        "[earlier conversation truncated for compaction retry]",
        "The previous request exceeded",
        "Continue if you have next",
    ),
    *_all(
        REFUSAL,
        "Please always provide EXACTLY ONE action in triple backticks",  # mini-swe-agent
        "Your output was not formatted correctly.",  # SWE-agent
        "[ERROR] You did not use a tool in your previous response",  # Cline, Roo Code
    ),
)
"""Carriers of whole texts by first words that no person uses."""

_EDITOR_HEADINGS = (
    "# Context from my IDE setup:",
    "# Selected text:",
    "# Files mentioned by the user:",
    "# Applications mentioned by the user:",
    "# Chrome tabs:",
    "# In app browser:",
    "# MCP app context:",
)
"""Beginnings of a text with an editor's context before the request (Codex in an editor)."""
_OPEN_FILES, _SELECTION = _EDITOR_HEADINGS[0], "\n## Active selection of the file:"
"""Below the first heading are only file names, unless the second follows."""
REQUEST_HEADINGS = ("## My request for Codex:", "## My request:")
"""Beginnings of the line between context and request."""
REQUEST_HEADING = re.compile(f"^(?:{'|'.join(map(re.escape, REQUEST_HEADINGS))})", re.MULTILINE)
FILES_BEGIN, FILES_END = "--- Content from referenced files ---", "--- End of content ---"
"""Delimiters of the texts of files that a person names, each in a part of its own (Gemini CLI)."""
UNTRUSTED = ("<<<EXTERNAL_UNTRUSTED_CONTENT", "<<<END_EXTERNAL_UNTRUSTED_CONTENT")
"""Delimiters of the text of a mail or webhook in a request (OpenClaw)."""
PART_FOLLOWS = ("Called the Read tool with the following input", "Reading MCP resource: ")
"""Beginnings of a text before a part with the text of a file or resource (OpenCode)."""
PARTS_FOLLOW = "Tool execution succeeded."
"""Whole text of a result whose contents follow as separate parts (Gemini CLI, Qwen Code)."""
_SHOWS_CALLS = "Here's a running example of how to perform a task"
_TASK_FOLLOWS, _TASK_ENDS = (
    "--- NEW TASK DESCRIPTION ---",
    "\n--------------------- END OF NEW TASK",
)
"""Beginning of a first text that shows the model how to write calls, and the delimiters of the task
in it (OpenHands)."""
RAN_COMMAND = ("I ran this command:", "And got this output:")
"""Markers of a command that a person ran, and of its output, in one text (aider)."""
STEERING_LINE = "The user sent "
"""First words of a line in a system message that reports a person's message (Claude Code)."""
STEERING_END = "\nThis is how Claude Code surfaces"
"""Beginning of the client's explanation after a person's words in the same text."""
SUMMARY_QUESTION = "What did we do so far?"
"""Whole text before a summary by the model (OpenCode)."""
SKILL_RESULT = "Launching skill:"
"""Beginning of a result after which the client sends the skill's text (Claude Code)."""
REFUSED = (
    "The user doesn't want to proceed with this tool use.",
    "The user rejected permission to use this",
    "exec command rejected by user",
    "[Operation Cancelled]",
    "The user denied this operation",
)
"""Beginnings of the results of calls that the person did not allow (Claude Code, OpenCode, Codex,
Gemini CLI, Cline)."""
NOT_RUN = (
    *REFUSED,
    "<tool_use_error>Sibling tool call errored",
    "<tool_use_error>Cancelled: parallel tool call",
)
"""Beginnings of results of calls that did not run, also if a parallel one failed (Claude Code)."""
ENDING_TOOLS = frozenset({"finish", "attempt_completion", "plan_mode_respond", "task_complete"})
"""Tools whose call ends the model's turn (OpenHands, Cline and Roo Code, Copilot CLI)."""
ENDING_WORDS = ("message", "result", "response", "summary")
"""Arguments of these calls with the model's final message."""
RESUME_LINE = "Resume the prior task using the"
"""Beginning of the last line of a summary by Qwen Code."""
CALL_ID = re.compile(r"Call id: \S{1,200}\n")
"""Line before a call's output or error in the same text (smolagents)."""
RETRY_MARKS = ("Error:\n", "\nNow let's retry: take care not to repeat previous errors")
"""Markers of a text that reports an error to an agent without native calls (smolagents)."""
NEW_TASK = "\nNew task:\n"
"""Separator between tool output and a person's words in one text (smolagents)."""
REMINDER = "\n# *SEARCH/REPLACE block* Rules:"
"""Beginning of a reminder after a person's words, repeated with each request (aider)."""

STEERING_WORDS = re.compile(
    r"\b(?:user|human)(?:'s)?\b[^.\n]{0,40}?"
    r"\b(?:sent|typed|wrote|said|interjected|steer\w*|hints?|messages?)\b"
    r"|\b(?:message|hint|steering|input)s? from the (?:user|human)\b"
    r"|(?:用户|使用者)[^。\n]{0,20}?(?:发送|發送|发来|發來|输入|輸入|说|說|消息|訊息)",
    re.IGNORECASE,
)
"""Phrases with which clients report that a person wrote while the model worked."""
STEERING_CHARS = 160
"""Characters at the beginning of a text that are searched for them."""

SUMMARY_WORDS = re.compile(
    r"\b(?:summar(?:y|ies|i[sz]ed?|i[sz]es|i[sz]ing)|compact(?:ed|ion)|hand-?off"
    r"|state_snapshot|ran out of context)\b"
    r"|摘要|压缩后的|壓縮後的",
    re.IGNORECASE,
)
"""Words that clients use for compaction.

A person may use them too: they only decide which of several texts is the request.
"""
SUMMARY_CHARS = 250
"""Characters at the beginning of a text that are searched for them."""


ABORTED = re.compile(
    r"Note: The previous agent run was aborted by the user\.[^\n]*|\[System: [^\[\]\n]{1,2000}\]"
)
"""Notice of the gateway (OpenClaw) about an interruption or failure, alone or beside a message."""
_ANNOUNCED = re.compile(
    r'A [a-z ]{3,30} "[^"\n]{1,300}" just [^\n]{1,300}\n\n(?:Findings|Result):\n'
)
"""Beginning of a text in which the gateway reports the result of another agent."""
RUNTIME = re.compile(
    r"<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>(?>(?:(?!<<<(?:BEGIN|END)_OPENCLAW)[\s\S])*)<<<END_OPENCLAW\w+>>>"
)
"""Report of the gateway about its own work, such as ended agents, alone or before a message."""


def is_runtime(text: str) -> bool:
    """Return whether a text is only the gateway's: about its work, or another agent's report."""
    return bool(RUNTIME.fullmatch(text) or _ANNOUNCED.match(text))


_ENVELOPE = re.compile(
    rf"\s*(?:{ABORTED.pattern}|"
    r"System(?: \(untrusted\))?: \[\d{4}-[^\]\n]{4,40}\] [^\n]*+(?>(?:\n[^\n]+)*)"
    r"|[A-Z][\w ]{2,60}\(untrusted[^)\n]{0,40}\):\n```json\n(?>(?:(?!```)[^\n]*\n)*)```"
    r"|\[message_id: [^\]\n]{1,200}\](?=\n)"
    r"|(?:\[Queued (?:announce )?messages while agent was busy\]\n\n)?---\nQueued #\d{1,4}(?=\n)"
    rf"|{RUNTIME.pattern}"
    r"|\[media attached[^:\n]{0,20}: [^\n]*+(?:\nTo send an image back, [^\n]*+)?"
    r")(?:\n+|\Z)"
    r"|\[[^\]\n]{1,200} \d{4}-\d\d-\d\d[ T]\d\d:\d\d(?: ?[A-Z]{1,5}[+-]?[\d:]{0,6})\] "
    r"|ou_[0-9a-f]{32}: "
)
"""One part of an envelope."""
_FIRST = re.compile(r"^[A-Z][\w ]{2,60}\(untrusted[^)\n]{0,40}\):\n```json$", re.MULTILINE)
"""Start of the first untrusted record. Plugins of the gateway may put text before it."""
QUEUED = re.compile(r"(?<=\n\n)(?=---\nQueued #(?!1\n)\d{1,4}\n)")
"""Starts of the second and later messages in a text of queued messages."""
STAMP = re.compile(
    r"(?:(?:\A|\n\n?)(?:\[(?:message_id|System): [^\]\n]{1,400}\]|(?:Current time|Reference UTC): [^\n]{1,200})){1,2}\Z"
)
"""Lines that the gateway appends to a message."""
STAMP_CHARS = 500
"""Characters at the end of a text that are searched for them."""
_ECHO = re.compile(r"^System: \[[^\]\n]*\] \S[^\n:]{0,80} from [^\n:]{1,80}: (.*)", re.MULTILINE)
"""Event of the gateway that repeats the message."""
ECHO_CHARS = 30
"""Number of characters of the event that must occur in the message."""


def read_envelope(text: str) -> tuple[str, Carrier] | None:
    """Return the envelope that a chat gateway puts before a person's message, with its carrier, or
    None. If the message is only in an event that repeats it, the envelope ends before it."""
    end, is_header = _skip_parts(text, 0)
    first = None if is_header else _FIRST.search(text, end)
    end = _skip_parts(text, first.start())[0] if first and not _FIRST.search(text, 0, end) else end
    words = "".join(text[end:].split())
    echo = next(reversed([*_ECHO.finditer(text, 0, end)]), None)
    if echo and not words:
        end = echo.start(1)
    elif not (words and "".join(echo[1].split() if echo else "")[:ECHO_CHARS] in words):
        end *= not words and "\n[System: " in text  # a system notice in a queue
    return (text[:end], ENVELOPE) if end else None


def _skip_parts(text: str, at: int) -> tuple[int, bool]:
    """Return the end of the envelope parts at *at* (*at* itself without any), and whether the last
    one names the sender. Everything after that one is the sender's."""
    while part := _ENVELOPE.match(text, at):
        at = part.end()
        if _FROM.match(part[0].lstrip()):
            return at, True
    return at, False


def has_queue(text: str) -> bool:
    """Return whether a text begins with an envelope that announces several queued messages."""
    envelope = read_envelope(text)
    return bool(envelope and "---\nQueued #1\n" in _FIRST.split(envelope[0], 1)[0])


DIRECTIVE = re.compile(r"\[\[(?:reply_to|audio_as|tts)\w{0,20}(?::[^\]\n]{0,200})?\]\] ?")
"""Directive of the model to the gateway, which is not part of its answer."""
_RECORD = re.compile(
    r"^([A-Z][\w ]{2,60}) \(untrusted[^)\n]{0,40}\):\n```json\n((?>(?:(?!```)[^\n]*\n)*))```",
    re.MULTILINE,
)
"""Envelope part in JSON: its title and text."""
_FROM = re.compile(
    r"\[[A-Z]\w{1,20} ([^\]\n]{1,160}?)(?: id:\S{1,40})?(?: \+\d{1,5}[a-z])?(?: [A-Z][a-z]{2})?"
    r" \d{4}-\d\d-\d\d[^\]\n]{0,40}\] \Z|(ou_[0-9a-f]{32}): \Z"
)
"""End of an envelope in the line of the message: the sender or, in a group, the chat."""
_BRACKETS = str.maketrans("[]", "()")
"""Replaces brackets in names, so that a name cannot begin or end a marker."""


def read_sender(envelope: str) -> str:
    """Return the sender of a message by its envelope, or an empty string. Of records with one title
    only the first is trusted: the sender can add others."""
    about = dict[str, dict[str, Any]]()
    for title, text in _RECORD.findall(envelope):
        value = parse_or_none(text)
        about.setdefault(title, value if isinstance(value, dict) else {})
    sender, talk = about.get("Sender", {}), about.get("Conversation info", {})
    header = _FROM.match(envelope.rpartition("\n")[2])
    rows = (*map(sender.get, ("name", "label")), *map(talk.get, ("sender", "sender_id")))
    names = (row for row in rows if isinstance(row, str) and row.strip())
    name = next(names, header[1] or header[2] if header else "")
    if name.startswith(("openclaw-", "system")) and not (header or talk.get("is_group_chat")):
        return ""  # the gateway itself, or its window
    return read_name(name)


def read_name(name: str) -> str:
    """Return a sender's name for a marker: one line of at most `LONGEST_NAME` characters, with
    parentheses instead of brackets."""
    return one_line(name, LONGEST_NAME).translate(_BRACKETS)


_SPEAKER = re.compile(
    r"\s{0,9}(?:【[^】\n]{1,20}】\s?)?([^\W\d][^:：\n\[\]【】.!?。！？]{0,23}?)[:：](?!//)\s*"
)
"""Beginning of a text with the name of a group member: `Anna: `, `【群聊】小周：`."""


def read_speaker(text: str) -> str:
    """Return the name before a colon at the beginning of a text, or an empty string."""
    return read_name(match[1]) if (match := _SPEAKER.match(text)) else ""


def find_speakers(texts: Sequence[str]) -> set[str]:
    """Return the names in a group whose words come as one person's, or an empty set. At least two
    names must be repeated, and two thirds of the texts must begin with one of these."""
    counts = Counter(filter(None, map(read_speaker, texts)))
    names = {name for name, count in counts.items() if count > 1}
    is_group = len(names) > 1 and sum(map(counts.__getitem__, names)) >= NAMED_SHARE * len(texts)
    return names if is_group else set()


def mark_sender(sender: str, words: str) -> str:
    """Return *words* with a marker of the *sender*, if any, instead of that name before them."""
    match = _SPEAKER.match(words) if sender else None
    words = words[match.end() :] if match and read_name(match[1]) == sender else words
    return f"[from {sender}] {words}" if sender else words


def split_marker(words: str) -> tuple[str, str]:
    """Return the marker before words, of a tool result or sender or empty, and the words after."""
    if sender := FROM_SENDER.match(words):
        return sender[0], words[sender.end() :]
    return (IN_RESULT if words.startswith(IN_RESULT) else "", words.removeprefix(IN_RESULT))


def read_earlier_messages(envelope: str) -> str:
    """Return earlier messages of others from an envelope, as lines `sender: words`: in a group
    those since the model's last answer, and the message that is replied to."""
    values = [parse_or_none(text) for _, text in _RECORD.findall(envelope)]
    rows = chain.from_iterable(value if isinstance(value, list) else [value] for value in values)
    lines = [
        f"{row.get('sender') or row.get('sender_label') or '?'}: {row['body']}"
        for row in rows
        if isinstance(row, dict) and isinstance(row.get("body"), str)
    ]
    return "\n".join(lines)


def carrier_of_tag(tag: str) -> Carrier:
    """Return the carrier of an element by its tag. Unknown tags are context, which is kept."""
    return TAGS.get(tag) or (PERSON if _PERSON_TAG.fullmatch(tag) else NOTE)


def read_ran_command(text: str) -> tuple[str, str] | None:
    """Return a command that the person ran, and its output; None if a text is not such a report."""
    bare = text.strip()
    command, separator, output = bare.removeprefix(RAN_COMMAND[0]).partition(RAN_COMMAND[1])
    return (
        (command.strip(), output.strip()) if bare.startswith(RAN_COMMAND[0]) and separator else None
    )


def read_framed_task(text: str) -> tuple[str, str, str] | None:
    """Return the text before a person's task, the task, and the text after it, if a client shows
    how calls are written, else None."""
    begin, end = text.find(_TASK_FOLLOWS), text.rfind(_TASK_ENDS)
    if not text.lstrip().startswith(_SHOWS_CALLS) or begin < 0:
        return None
    start = text.find("\n", begin) + 1 or len(text)
    stop = max(start, end) if end >= 0 else len(text)
    return text[:start], text[start:stop], text[stop:]


def read_editor_text(text: str) -> tuple[str, Carrier] | None:
    """Return an editor's text before the heading of the person's request, with its carrier. Return
    None without a heading or if nothing follows it: the person's comments are above it then."""
    bare = text.lstrip()
    headings = list(REQUEST_HEADING.finditer(text)) if bare.startswith(_EDITOR_HEADINGS) else []
    heading = headings[-1] if headings else None  # the editor's text may contain a heading too
    if not heading or not text[heading.end() :].strip():
        return None
    before = text[: heading.start()]
    has_text = not bare.startswith(_OPEN_FILES) or _SELECTION in before
    return before, SELECTED if has_text else OPENED
