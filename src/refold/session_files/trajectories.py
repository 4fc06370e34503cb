"""Trajectories of benchmarks and data sets of agents: mini-swe-agent (`*.traj.json`) and SWE-agent
(`*.traj`), results of tau-bench (a list of runs) and tau2-bench (one file of simulations),
ShareGPT, the Agent Data Protocol, ATIF and OpenHands.

Models in mini-swe-agent write commands in their text; `with_calls` converts these to tool calls. In
tau2-bench the simulated user may have tools, which the agent never saw. The agent's policy is a
separate field and becomes the system message. A record of a data set is one conversation: a file, a
line of JSONL or a row of a table.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from refold.session_files.reader import (
    Compaction,
    Entry,
    Reader,
    Session,
    SessionBuilder,
    StoredSession,
    file_reader,
    join_content,
    write_call,
)
from refold.session_files.source import IDS, Source, record_id
from refold.text.json_values import (
    Record,
    int_at,
    list_at,
    object_at,
    objects_at,
    objects_in,
    parse_or_none,
    text_at,
    without_empty,
    without_keys,
)

# --- mini-swe-agent and SWE-agent -----------------------------------------------------------------


MINI_SWE = "mini_swe"
ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
SENT_FIELDS = (
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "name",
    "reasoning_content",
    "thinking_blocks",
)
"""Fields of a message that are sent. The others are the agent's bookkeeping."""


def trajectory_mismatch(source: Source) -> str:
    """Return why this is no trajectory; empty if it is one."""
    document = source.document
    is_named = text_at(document, "trajectory_format").startswith("mini-swe-agent")
    if is_named and "messages" in document:
        return ""
    if any("role" in message for message in objects_at(document, "history")):
        return ""
    return "no trajectory_format mini-swe-agent, and no history of messages"


def read_trajectory(session: SessionBuilder) -> None:
    """Read a trajectory. Only mini-swe-agent names the format in the file."""
    document, field = session.source.document, "messages"
    session.id = text_at(document, "instance_id")
    if "history" in document and "trajectory_format" not in document:
        session.client, field = "swe_agent", "history"
        session.id = session.source.path.name.removesuffix(".traj")
    session.model = text_at(document, "info", "config", "model", "model_name")
    session.cwd = text_at(document, "info", "config", "environment", "cwd")
    for at, message in enumerate(objects_at(document, field), 1):
        role, response = text_at(message, "role"), object_at(message, "extra", "response")
        if role in ROLES:
            session.add(_strip_bookkeeping(message))
            if (created := int_at(response, "created")) > 0:
                session.note_time(created)
            if int_at(response, "usage", "prompt_tokens") >= 0:
                session.add_usage(object_at(response, "usage"))
        elif role != "exit" and session.client == MINI_SWE:
            # version 2 ends with an exit, and may hold Responses objects
            session.note(f"message {at} has no role that is sent")


def _strip_bookkeeping(message: Record) -> Entry:
    """Return the sent fields of a message. SWE-agent has a result's call id in a list of one."""
    wire = {
        key: message[key]
        for key in SENT_FIELDS
        if key in message and not (key == "tool_calls" and not message[key])
    }
    ids = [id for id in list_at(message, "tool_call_ids") if isinstance(id, str)]
    if wire.get("role") == "tool" and ids and "tool_call_id" not in wire:
        wire["tool_call_id"] = ids[0]
    return wire


MINI_SWE_READER = file_reader(MINI_SWE, "openai_chat", trajectory_mismatch, read_trajectory)


# --- tau-bench and tau2-bench ---------------------------------------------------------------------


TAU = "tau"


def tau_mismatch(source: Source) -> str:
    """Return why this is no result file or single run; empty if it is one."""
    if any(_tau_runs(source.document)):
        return ""
    if any("messages" in run for run in objects_at(source.document, "simulations")):
        return ""
    return "no list of runs with a traj, and no simulations with messages"


def tau_sessions(source: Source) -> Sequence[StoredSession]:
    """Return a session for each run, in file order, with task and trial as its id."""
    runs, read = list(_tau_runs(source.document)), _read_tau
    if not runs:
        runs, read = list(objects_at(source.document, "simulations")), _read_tau2
    return [StoredSession(_run_id(run), partial(read, source, run)) for run in runs]


def _tau_runs(document: Any) -> Iterator[Record]:
    """Yield the runs in a list, or a single run."""
    runs = [document] if isinstance(document, dict) else document
    return (run for run in objects_in(runs) if isinstance(run.get("traj"), list))


def _run_id(run: Record) -> str:
    return f"{run.get('task_id')}.{run.get('trial')}"


def _read_tau(source: Source, run: Record) -> Session:
    session = SessionBuilder(source, "tau", "openai_chat", _run_id(run))
    session.messages += objects_at(run, "traj")
    session.title = text_at(run, "info", "task", "instruction")
    return session.build()


def _read_tau2(source: Source, run: Record) -> Session:
    session = SessionBuilder(source, "tau2", "openai_chat", _run_id(run))
    info = object_at(source.document, "info")
    session.model = text_at(info, "agent_info", "llm")
    session.note_time(run.get("start_time"))
    session.note_time(run.get("end_time"))
    if policy := text_at(info, "environment_info", "policy"):
        session.say("system", policy)
    for message in objects_at(run, "messages"):
        parts = objects_at(message, "tool_messages") if "tool_messages" in message else [message]
        for part in parts:
            _add_message(session, part)
        if message.get("role") == "assistant" and int_at(message, "usage", "prompt_tokens") >= 0:
            session.add_usage(object_at(message, "usage"))
    return session.build()


def _add_message(session: SessionBuilder, message: Record) -> None:
    """Add a message in Chat Completions format, unless it belongs to the user's tools."""
    content, role = message.get("content"), text_at(message, "role")
    if role == "tool" and message.get("requestor") != "user":
        id = text_at(message, "id")
        session.add({"role": role, "tool_call_id": id, "content": content or ""})
    elif role == "assistant":
        calls = [
            write_call(text_at(call, "id"), text_at(call, "name"), call.get("arguments") or {})
            for call in objects_at(message, "tool_calls")
        ]
        session.say(role, content, tool_calls=calls)
    elif role in {"user", "system"} and content:
        session.say(role, content)


TAU_READER = Reader(TAU, tau_mismatch, tau_sessions)


# --- ShareGPT -------------------------------------------------------------------------------------
# Its calls have no ids; ids are made from positions.

SHAREGPT = "sharegpt"
TURNS = ("conversations", "conversation", "trajectory")
"""Fields that hold the turns."""
_SPEAKERS = {
    "system": ("system",),
    "user": ("human", "user"),
    "assistant": ("gpt", "assistant", "ai", "model", "bot", "chatgpt", "bing", "bard"),
    "call": ("function_call", "tool_call"),
    "result": ("observation", "tool", "function", "function_response"),
}
_SPEAKER_ROLES = {name: role for role, names in _SPEAKERS.items() for name in names}


def _turns(document: Any) -> tuple[str, Sequence[Record]]:
    """Return the field of the turns and the turns; both empty if they have another form."""
    for field in TURNS:
        turns = list(objects_at(document, field))
        if turns and all(
            _speaker(turn) in _SPEAKER_ROLES and ("content" in turn or _words(turn) is not None)
            for turn in turns
        ):
            return field, turns
    return "", []


def _speaker(turn: Record) -> str:
    return (text_at(turn, "from") or text_at(turn, "role")).lower()


def _words(turn: Record) -> str | None:
    texts = (turn.get(key) for key in ("value", "text", "content", "system_prompt"))
    return next((text for text in texts if isinstance(text, str)), None)


def sharegpt_mismatch(source: Source) -> str:
    """Return why this is no ShareGPT conversation; empty if it is one."""
    return "" if _turns(source.document)[1] else f"no turns of known speakers in {', '.join(TURNS)}"


def read_sharegpt(session: SessionBuilder) -> None:
    """Read a conversation. Calls and results are turns of their own."""
    document = session.source.document
    session.id = record_id(document)
    field, turns = _turns(document)
    tools = parse_or_none(text_at(document, "tools")) or document.get("tools")
    session.body = without_keys(document, field, "system", "tools", *IDS)
    if isinstance(tools, list):
        session.body["tools"] = tools
    if text := text_at(document, "system"):
        session.say("system", text)
    for turn in turns:
        if "role" in turn and "content" in turn:  # a chat message under another name
            session.add(turn)
            continue
        role, text = _SPEAKER_ROLES[_speaker(turn)], _words(turn) or ""
        value = parse_or_none(text) if role == "call" else None
        calls = list(objects_in([value] if isinstance(value, dict) else value))
        if calls and all(text_at(call, "name") for call in calls):
            session.call(None, [("", call["name"], call.get("arguments")) for call in calls])
        elif role == "result":
            session.answer(text)
        else:
            session.say("assistant" if role == "call" else role, text)


SHAREGPT_READER = file_reader(SHAREGPT, "openai_chat", sharegpt_mismatch, read_sharegpt)


# --- Agent Data Protocol --------------------------------------------------------------------------


ADP = "adp"


def adp_mismatch(source: Source) -> str:
    """Return why this is no trajectory of the Agent Data Protocol; empty if it is one."""
    steps = list(objects_at(source.document, "content"))
    is_match = steps and all(text_at(step, "class_") for step in steps)
    return "" if is_match else "no content of actions and observations"


def read_adp(session: SessionBuilder) -> None:
    """Read a trajectory. Consecutive actions form one assistant message."""
    document = session.source.document
    session.id = record_id(document)
    before = ""
    for step in objects_at(document, "content"):
        kind, content = text_at(step, "class_"), step.get("content")
        thought, reasoning = text_at(step, "description"), text_at(step, "reasoning_content")
        id = text_at(step, "tool_call_id")
        if kind in {"api_action", "code_action"}:
            name, arguments = text_at(step, "function"), object_at(step, "kwargs")
            if kind == "code_action":
                name, arguments = text_at(step, "language") or "code", {"code": content}
            if before in {"api_action", "code_action"} and not thought:
                session.add_call(id, name, arguments)
            else:
                session.call(thought, [(id, name, arguments)], reasoning)
        elif kind == "message_action":
            text = "\n\n".join(filter(None, (thought, text_at(step, "content"))))
            session.say("assistant", text, reasoning_content=reasoning)
        elif kind == "text_observation" and step.get("source") != "environment" and not id:
            session.say("user", content)
        else:
            texts = (text_at(step, key) for key in ("axtree", "html", "url"))
            page = next(filter(None, texts), f"[{kind}]")
            session.answer(content if isinstance(content, str) else page, id)
        before = kind
    session.body = without_keys(document, "content", "id")


ADP_READER = file_reader(ADP, "openai_chat", adp_mismatch, read_adp)


# --- Agent Trajectory Interchange Format ----------------------------------------------------------
# Up to version 1.8.

ATIF = "atif"


def atif_mismatch(source: Source) -> str:
    """Return why this is no trajectory of the Agent Trajectory Interchange Format; empty if it is
    one."""
    is_match = text_at(source.document, "schema_version").startswith("ATIF")
    return "" if is_match else "no schema_version ATIF"


def list_atif(source: Source) -> list[StoredSession]:
    """Return the trajectories of subagents in a trajectory, then its own."""
    subagents = objects_at(source.document, "subagent_trajectories")
    inner = [each for agent in subagents for each in list_atif(replace(source, document=agent))]
    id = text_at(source.document, "trajectory_id") or text_at(source.document, "session_id")
    return [*inner, StoredSession(id, partial(_read_atif, source, id))]


def _read_atif(source: Source, id: str) -> Session:
    """Read a trajectory. Steps that were copied as context keep their mark."""
    document, session = source.document, SessionBuilder(source, ATIF, "openai_chat", id)
    for step in objects_at(document, "steps"):
        text, speaker = _atif_text(step.get("message")), text_at(step, "source")
        if speaker == "agent":
            calls = [
                (
                    text_at(call, "tool_call_id"),
                    text_at(call, "function_name"),
                    call.get("arguments"),
                )
                for call in objects_at(step, "tool_calls")
            ]
            session.call(text, calls, text_at(step, "reasoning_content"))
            if step.get("is_copied_context"):
                session.messages[-1]["is_copied_context"] = True
        elif text:
            session.say("system" if speaker == "system" else "user", text)
        for result in objects_at(step, "observation", "results"):
            session.answer(_atif_text(result.get("content")), text_at(result, "source_call_id"))
    agent = object_at(document, "agent")
    model, tools = text_at(agent, "model_name"), list_at(agent, "tool_definitions")
    session.body = without_empty({"model": model, "tools": tools})
    return session.build()


def _atif_text(content: Any) -> str:
    """Return the text of a message; for other media, their path."""
    if isinstance(content, str):
        return content
    parts = objects_in(content)
    return "\n".join(
        text_at(part, "text") or f"[{text_at(part, 'source', 'path')}]" for part in parts
    )


ATIF_READER = Reader(ATIF, atif_mismatch, list_atif)


# --- OpenHands ------------------------------------------------------------------------------------
# A list of events, or a record that holds one, in the older form or that of the SDK. A recorded
# model response is used as the answer. Otherwise, in the older form, the action is the call.


OPENHANDS = "openhands"
_ROOT = "__root__"
"""The SDK's parent id of an event that starts a new conversation."""
_UNSENT = frozenset({"agent_state_changed", "change_agent_state", "null", "recall", "condensation"})
"""Actions and observations that were not sent to a model."""
_BOOK_KEEPING = ("action", "source", "id", "timestamp", "message", "thought", "keep_prompt")
_CONFIRMATION = ("is_confirmed", "confirmation_state", "security_risk", "action_risk", "hidden")


def _events(document: Any) -> list[Record]:
    """Return the latest branch of a record's or list's events. Older files hold events in pairs."""
    for items in (
        document,
        *(list_at(document, key) for key in ("history", "events", "trajectory")),
    ):
        flat = [
            event
            for item in (items if isinstance(items, list) else ())
            for event in (item if isinstance(item, list) else [item])
        ]
        if flat and all(is_event(event) for event in flat):
            return _latest_branch(flat)
    return []


_RUNNING = -1
"""Exit code of a command that is still running."""


def _latest_branch(events: list[Record]) -> list[Record]:
    """Return the events that led to the latest, without those that were undone. An SDK event may
    name its parent; otherwise, as in part of a log, the parent is the previous event."""
    places = {text_at(event, "id"): at for at, event in enumerate(events)}
    branch, at = list[Record](), len(events) - 1
    while at >= 0:
        branch.append(events[at])
        parent = text_at(events[at], "parent_id")
        at = -1 if parent == _ROOT else min(places.get(parent, at), at - 1)
    return branch[::-1]


def is_event(value: Any) -> bool:
    """Return whether a JSON value looks like an event."""
    keys = ("action", "observation", "kind")
    return "role" not in object_at(value) and any(text_at(value, key) for key in keys)


def openhands_mismatch(source: Source) -> str:
    """Return why these are no events of OpenHands; empty if they are."""
    return (
        "" if _events(source.document) else "no list of events with an action, observation or kind"
    )


def read_openhands(session: SessionBuilder) -> None:
    """Read a list of events, or a record that has one. Calls of one response form one message."""
    document = session.source.document
    session.id = record_id(document)
    for number, event in enumerate(_events(document)):
        read, place = _read_sdk_event if "kind" in event else _read_event, session.position
        read(session, {"id": number, **event})
        if session.position > place:
            session.index[text_at(event, "id")] = place


def _read_event(session: SessionBuilder, event: Record) -> None:
    kind = text_at(event, "action") or text_at(event, "observation")
    arguments, call = object_at(event, "args") or event, object_at(event, "tool_call_metadata")
    if kind in _UNSENT:
        return
    if "observation" in event:
        cause = f"call_{event['cause']}" if isinstance(event.get("cause"), int) else ""
        session.answer(_read_observation(event), text_at(call, "tool_call_id") or cause)
    elif kind in {"system", "message"}:
        is_answer = text_at(event, "source") == "agent" and kind == "message"
        role = "assistant" if is_answer else "system" if kind == "system" else "user"
        session.say(role, text_at(arguments, "content") or text_at(event, "message"))
        if tools := list_at(arguments, "tools"):
            session.body["tools"] = tools
    elif response := object_at(call, "model_response"):
        if (id := text_at(response, "id")) not in session.index:
            session.index[id] = session.position
            _add_response(session, response)
    elif text_at(event, "source") != "user":
        fields = without_keys(arguments, *_BOOK_KEEPING, *_CONFIRMATION)
        id = f"call_{event['id']}"
        session.call(text_at(arguments, "thought"), [(id, kind, fields)])


def _read_observation(event: Record) -> str:
    """Return a command's output as the model got it: with prefix and suffix, working directory,
    Python interpreter and exit code."""
    content, metadata = text_at(event, "content"), object_at(event, "extras", "metadata")
    place, python = text_at(metadata, "working_dir"), text_at(metadata, "py_interpreter_path")
    code = metadata.get("exit_code", _RUNNING)
    rows = (
        text_at(metadata, "prefix") + content + text_at(metadata, "suffix"),
        f"[Current working directory: {place}]" if place else "",
        f"[Python interpreter: {python}]" if python else "",
        "" if code == _RUNNING else f"[Command finished with exit code {code}]",
    )
    return "\n".join(filter(None, rows))


def _add_response(session: SessionBuilder, response: Record) -> None:
    """Add a recorded response of the model."""
    message = next((object_at(choice, "message") for choice in objects_at(response, "choices")), {})
    calls = [
        (text_at(call, "id"), text_at(call, "function", "name"), call["function"].get("arguments"))
        for call in objects_at(message, "tool_calls")
        if text_at(call, "function", "name")
    ]
    session.body.setdefault("model", text_at(response, "model"))
    session.call(message.get("content"), calls, text_at(message, "reasoning_content"))


def _read_sdk_event(session: SessionBuilder, event: Record) -> None:
    id, kind = text_at(event, "tool_call_id"), text_at(event, "kind")
    if kind == "SystemPromptEvent":
        session.say("system", text_at(event, "system_prompt", "text"))
        if tools := [_read_tool(tool) for tool in objects_at(event, "tools")]:
            session.body["tools"] = tools
    elif kind == "MessageEvent":
        message = object_at(event, "llm_message")
        role, content = text_at(message, "role") or "user", join_content(message.get("content"))
        session.say(role, content, reasoning_content=text_at(message, "reasoning_content"))
    elif kind == "ActionEvent":
        call, response = object_at(event, "tool_call"), text_at(event, "llm_response_id")
        function = object_at(call, "function") or call
        name = text_at(event, "tool_name") or text_at(function, "name")
        if response and response in session.index:
            session.add_call(id, name, function.get("arguments"))
            return
        session.index[response] = session.position
        reasoning = text_at(event, "reasoning_content")
        calls = [(id, name, function.get("arguments"))]
        session.call(join_content(event.get("thought")), calls, reasoning)
    elif kind == "Condensation":
        _add_condensation(session, event)
    elif id:
        seen = object_at(event, "observation")
        texts = (join_content(seen.get("content")), text_at(seen, "output"), text_at(seen, "error"))
        reasons = (text_at(event, "error"), text_at(event, "rejection_reason"))
        session.answer(next((text for text in (*texts, *reasons) if text), ""), id)


def _add_condensation(session: SessionBuilder, event: Record) -> None:
    """Add a condensation: a summary that replaces events, and the summary right before them."""
    ids = (id for id in list_at(event, "forgotten_event_ids") if isinstance(id, str))
    forgotten = {session.index[id] for id in ids if id in session.index}
    starts = sorted(at for at in forgotten if at - 1 not in forgotten)
    stops = sorted(at + 1 for at in forgotten if at + 1 not in forgotten)
    before = session.compactions[-1] if session.compactions else None
    if before and starts and before.start <= starts[0] <= before.stop:
        starts[0] = before.start
    summary = text_at(event, "summary")
    insert = ({"role": "user", "content": summary},) if summary else ()
    for start, stop in zip(starts, stops, strict=True):
        shown = insert if start == starts[0] else ()
        session.compactions.append(
            Compaction(start, stop, shown, "condensation", at=session.position)
        )


def _read_tool(tool: Record) -> Record:
    """Return a tool definition as it was sent. Newer events omit the parameters."""
    if "function" in tool:
        return tool
    function = {"name": text_at(tool, "title"), "description": text_at(tool, "description")}
    return {"type": "function", "function": function}


OPENHANDS_READER = file_reader(OPENHANDS, "openai_chat", openhands_mismatch, read_openhands)
