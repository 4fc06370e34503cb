"""Carriers that clients of agents use: tags and first words, and whose voice is in them.

Shapes come first (`refold.speakers.segments`); these names add what a shape cannot tell. What is in
no list is kept, so a list that is out of date costs tokens and loses nothing.
"""

import re
from typing import Literal, NamedTuple

Voice = Literal["person", "instruction", "context", "summary", "tool"]
"""`person`; `instruction`: an operator or person in standing orders; `context`: the client, about
the surroundings; `summary`: the client, about what it compacted; `tool`: a tool or a short-lived
note, which may be dropped."""


class Carrier(NamedTuple):
    """What a text is that begins in a certain way."""

    voice: Voice
    kind: str = ""
    """What it is about, if its beginning does not say it: of a whole kind the newest is enough."""
    is_whole: bool = False
    """Does it give the whole state, so that it replaces earlier texts of its kind?"""


PERSON, ORDER, NOTE, TOOL = (
    Carrier("person"),
    Carrier("instruction"),
    Carrier("context"),
    Carrier("tool"),
)
STATE, SUMMARY = Carrier("context", is_whole=True), Carrier("summary", "summary", is_whole=True)
DATE, MODE = (
    Carrier("context", "date", is_whole=True),
    Carrier("context", "permission mode", is_whole=True),
)
EDITOR, STARTUP = Carrier("context", "editor"), Carrier("context", "startup", is_whole=True)
EXAMPLE = Carrier("instruction", "example")

STATES = (
    *("environment_context", "session_context", "environment_details", "env", "user_instructions"),
    *(
        "skills_instructions",
        "permissions",
        "collaboration_mode",
        "multi_agent_role",
        "multi_agent_mode",
    ),
    *("plan-mode-active", "background-tasks", "vibe_warning", "turn_aborted"),
    *("ide_opened_file", "ide_selection", "ide_diagnostics"),
)
"""Tags of elements that give the whole state of one thing."""
TAGS: dict[str, Carrier] = {
    # a person's own words inside a client's tag
    **dict.fromkeys(
        (
            "user_input",
            "user_command",
            "user_query",
            "user_message",
            "user-interrupt",
            "cron-fire",
            "feedback",
        ),
        PERSON,
    ),
    "goal_context": ORDER,
    "untrusted_objective": ORDER,
    "mode_notice": NOTE,
    "system-reminder": NOTE,
    "extension_context": NOTE,
    **{tag: Carrier("context", tag, is_whole=True) for tag in STATES},
    **dict.fromkeys(
        ("INSTRUCTIONS", "skill", "hook_context", "hook_result", "user-prompt-submit-hook"), STATE
    ),
    **dict.fromkeys(
        ("state_snapshot", "SYSTEM_NOTICE", "compaction_summary", "conversation_summary"), SUMMARY
    ),
    **dict.fromkeys(
        ("local-command-stdout", "local-command-stderr", "local-command-caveat", "bash-input"), TOOL
    ),
    **dict.fromkeys(
        ("bash-stdout", "bash-stderr", "user_shell_command", "task-notification"), TOOL
    ),
    **dict.fromkeys(
        ("subagent_notification", "notification", "file_content", "workspace_diagnostics"), TOOL
    ),
    **dict.fromkeys(
        ("untrusted_context", "total_tokens", "system", "command-name", "command-message"), TOOL
    ),
    **dict.fromkeys(("command-args", "returncode", "output", "error"), TOOL),
}
"""Elements by their tag. An element with another tag is context that is kept."""

INSIDE_PREFIXES: tuple[tuple[str, Carrier], ...] = (
    ("# Environment", STATE),
    ("You are powered by the model", STATE),
    ("gitStatus:", STATE),
    (
        "As you answer the user's questions, you can",
        Carrier("context", "project memory", is_whole=True),
    ),
    ("Attribution for git commits", STATE),
    ("Today's date is", DATE),
    ("The date has changed", DATE),
    ("The current date is", DATE),
    ("The following skills are available", STATE),
    ("Available agent types", STATE),
    ("The following tools are reachable", STATE),
    ("The following deferred tools are", STATE),
    ("This is the Gemini CLI. We are setting up", STARTUP),
    ("This is the Qwen Code. We are setting up", STARTUP),
    ("We are setting up the context", STARTUP),
    ("Auto permission mode is", MODE),
    ("Plan mode is", MODE),
    ("[This command modified", STATE),
    ("Earlier context was compacted.", SUMMARY),
    ("Result of calling the ", TOOL),
    ("Called the ", TOOL),
    ("The task tools haven't been used recently", TOOL),
    ("Context compaction is complete", TOOL),
)
"""Bodies of elements, and parts of system messages, by their first words.

A person may begin with the same words.
"""

TEXT_PREFIXES: tuple[tuple[str, Carrier], ...] = (
    # the person, through a client
    ("User steering update:", PERSON),
    ("User hints:", PERSON),
    ("User activated the skill", PERSON),
    ("New task:", PERSON),
    ("[User message received", PERSON),
    # standing orders, and what is given as such
    ("# AGENTS.md instructions", STATE),
    ("AGENTS.md instructions for", STATE),
    ("# CLAUDE.md", STATE),
    ("Base directory for this skill:", STATE),
    ("Change get_factorial() to use math.factorial", EXAMPLE),  # aider
    ("Refactor hello() into its own file", EXAMPLE),
    ("I switched to a new code base. Please don't consider", EXAMPLE),
    # the surroundings
    ("This is the Gemini CLI. We are setting up the context for our chat.", STARTUP),
    ("[Request interrupted by user", Carrier("context", "interruption", is_whole=True)),
    ("Here is the user's editor context", EDITOR._replace(is_whole=True)),
    ("Here is a summary of changes in the user's editor", EDITOR),
    (
        "Here are summaries of some files present in my git",
        Carrier("context", "map of files", is_whole=True),
    ),
    ("Here are some READ ONLY files", Carrier("context", "files to read", is_whole=True)),
    (
        "I have *added these files to the chat*",
        Carrier("context", "files in the chat", is_whole=True),
    ),
    # what a client compacted
    ("This session is being continued from a previous", SUMMARY),
    ("Another language model started to solve this", SUMMARY),
    ("The conversation so far has been compacted", SUMMARY),
    ("The conversation history before this point", SUMMARY),
    ("You are in the middle of a conversation that", SUMMARY),
    ("I spoke to you previously about", SUMMARY),
    ("[以下是之前对话的摘要]", SUMMARY),
    (
        "You are continuing a trajectory after",
        Carrier("summary", "before requests", is_whole=True),
    ),  # Mistral Vibe
    ("</previous_user_messages>", Carrier("summary", "behind requests", is_whole=True)),
    # tools, and notes that pass
    ("Caveat: The messages below were generated by the user while running local commands", TOOL),
    ("Please always provide EXACTLY ONE action in triple backticks", TOOL),
    ("Called the Read tool with the following", TOOL),
    ("System: Potential loop detected.", TOOL),
    ("I ran the following shell command:\n", TOOL),
    ("I committed the changes with git hash", TOOL),
    ("Manual `!` command result from the user.", TOOL),
    ("Recently accessed file (full current content", TOOL),
    ("Recent visual snapshots preserved", TOOL),
    ("--- Content from referenced files ---", TOOL),
    ("[TASK RESUMPTION]", TOOL),
    ("Tool call error:", TOOL),
    ("Observation:", TOOL),
    ("OBSERVATION:", TOOL),
    ("EXECUTION RESULT", TOOL),
    ("The previous request exceeded", TOOL),
    ("Continue if you have next", TOOL),
)
"""Whole texts, by first words that no person uses."""

RAN_COMMAND = ("I ran this command:", "And got this output:")
"""Around a command that a person ran, and its output, in one text (aider)."""
STEERING_LINE = "The user sent "
"""First words of a line in a system message that reports what a person said (Claude Code)."""
RESUME_LINE = "Resume the prior task using the"
"""At the end of a summary by Qwen Code."""
RETRY_MARKS = ("Error:\n", "\nNow let's retry: take care not to repeat previous errors")
"""In a text that tells an agent without calls what failed (smolagents)."""
NEW_TASK = "\nNew task:\n"
"""Between a tool's words and a person's in one text (smolagents)."""
REMINDER = "\n# *SEARCH/REPLACE block* Rules:"
"""After a person's words in one text (aider): repeated with each request."""

STEERING_WORDS = re.compile(
    r"\b(?:user|human)(?:'s)?\b[^.\n]{0,40}?"
    r"\b(?:sent|typed|wrote|said|interjected|steer\w*|hints?|messages?)\b"
    r"|\b(?:message|hint|steering|input)s? from the (?:user|human)\b"
    r"|(?:用户|使用者)[^。\n]{0,20}?(?:发送|發送|发来|發來|输入|輸入|说|說|消息|訊息)",
    re.IGNORECASE,
)
"""Words in which clients say that a person spoke while the model worked."""
STEERING_CHARS = 160
"""Characters at the beginning of a text in which they may be."""

SUMMARY_WORDS = re.compile(
    r"\b(?:summar(?:y|ies|i[sz]ed?|i[sz]es|i[sz]ing)|compact(?:ed|ion)|hand-?off"
    r"|state_snapshot|ran out of context)\b"
    r"|摘要|压缩后的|壓縮後的",
    re.IGNORECASE,
)
"""Words in which clients speak of compaction.

A person may use them, too: they only decide which of several texts is the request.
"""
SUMMARY_CHARS = 250
"""Characters at the beginning of a text in which they may be."""
