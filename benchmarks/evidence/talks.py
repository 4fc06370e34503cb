"""Long chats concatenated from recorded ones, and the facts that they state: values and their
names."""

import json
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from refold.messages import user
from refold.text.plain import fold
from refold.tokens.count import count_message

LEAST_TOKENS = 8_200
"""Conversations are concatenated until they have this number of tokens."""
LEAST_VALUE = 4
"""Minimum characters of a value that is not a code or a number; a shorter one appears in too many
places."""
FIGURE = re.compile(
    r"(?:[A-Z][\w-]+ |[$€£¥]\s?)?\d[\d,.:/\-]*\d(?:\s?%|\s?(?:[ap]\.?m\b))?|\d+\s?%"
)
PROPER = re.compile(r"\b[A-Z][\w'&-]+(?: (?:(?:of|the|and|for|de|la) )?[A-Z][\w'&-]+)+")
"""A proper name of two words or more."""


class Fact(NamedTuple):
    """A value that was stated about something."""

    kind: str
    """Kind of the thing: names of one kind may be confused with each other."""
    name: str
    value: str


@dataclass(frozen=True)
class Talk:
    """A conversation and its facts, all in folded spelling."""

    messages: list[dict[str, Any]]
    """In the format of Chat Completions."""
    facts: tuple[Fact, ...]
    names: dict[str, frozenset[str]]
    """All names by kind."""


class Part(NamedTuple):
    """One recorded conversation."""

    messages: list[dict[str, Any]]
    facts: list[Fact]
    names: list[tuple[str, str]]


def join(parts: Iterable[Part]) -> Iterator[Talk]:
    """Concatenate conversations until they are long enough, repeatedly."""
    row, tokens = list[Part](), 0
    for part in parts:
        row.append(part)
        tokens += sum(count_message(user(message["content"])) for message in part.messages)
        if tokens >= LEAST_TOKENS:
            yield as_talk(row)
            row, tokens = [], 0


def as_talk(row: Sequence[Part]) -> Talk:
    """Return one long conversation made of several."""
    names = dict[str, set[str]]()
    for kind, name in (pair for part in row for pair in part.names):
        names.setdefault(kind, set()).add(fold(name))
    facts = dict.fromkeys(
        Fact(fact.kind, fold(fact.name), fold(fact.value)) for part in row for fact in part.facts
    )
    return Talk(
        [message for part in row for message in part.messages],
        tuple(facts),
        {kind: frozenset(values) for kind, values in names.items()},
    )


# --- Chinese: what a place is like --------------------------------------------------------------


def read_crosswoz(root: Path, split: str) -> Iterator[Talk]:
    """Yield dialogues about places. Alternate groups of twenty are for tuning, as in
    `benchmarks.questions`."""
    for path in sorted(root.glob("crosswoz_zh/*.zip")):
        with zipfile.ZipFile(path) as archive:
            dialogues = list(json.loads(archive.read(archive.namelist()[0])).values())
        ours = [d for at, d in enumerate(dialogues) if at // 20 % 2 == (split == "test")]
        yield from map(without_repeated, join(map(read_dialogue, ours)))


def read_dialogue(dialogue: dict[str, Any]) -> Part:
    """Return a dialogue about places; a value belongs to the last named place of its domain."""
    messages, facts, names = list[dict[str, Any]](), list[Fact](), list[tuple[str, str]]()
    named = dict[str, str]()
    for message in dialogue["messages"]:
        role = "user" if message["role"] == "usr" else "assistant"
        messages.append({"role": role, "content": message["content"]})
        informed = [act[1:] for act in message["dialog_act"] if act[0] == "Inform"]
        new = [(domain, value) for domain, slot, value in informed if slot == "名称"]
        named.update(new)
        names += new
        facts += (
            Fact(domain, named[domain], value)
            for domain, slot, value in informed
            if role == "assistant" and slot != "名称" and domain in named
            if value in message["content"]
        )
    return Part(messages, facts, names)


def without_repeated(talk: Talk) -> Talk:
    """Keep only values that appear in exactly one message."""
    texts = [fold(message["content"]) for message in talk.messages]
    once = {
        fact
        for fact in talk.facts
        if len(fact.value) >= LEAST_VALUE and sum(fact.value in text for text in texts) == 1
    }
    return Talk(talk.messages, tuple(fact for fact in talk.facts if fact in once), talk.names)


# --- English: flights and reservations ----------------------------------------------------------


def read_tau2(root: Path, split: str) -> Iterator[Talk]:
    """Yield concatenated cases of airline customers. Tasks with even numbers are for tuning."""
    for path in sorted(root.glob("tau2_bench/*.json")):
        runs = json.loads(path.read_text("utf-8"))["simulations"]
        ours = [run for run in runs if int(run["task_id"]) % 2 == (split == "test")]
        yield from join(read_run(run["messages"]) for run in ours)


def read_run(messages: Sequence[dict[str, Any]]) -> Part:
    """Return a customer's case; a fact is a field of a record that the agent mentions later."""
    facts, names = list[Fact](), list[tuple[str, str]]()
    later = [
        fold(f"{m['content'] or ''} {json.dumps(m.get('tool_calls') or '')}")
        if m["role"] == "assistant"
        else ""
        for m in messages
    ]
    latest = dict[tuple[str, str, str], str]()
    for at, message in enumerate(messages):
        if message["role"] != "tool":
            continue
        rest = "\n".join(later[at + 1 :])
        for kind, name, field, value in iter_fields(message["content"]):
            names.append((kind, name))
            if has_word(rest, fold(value)) and has_word(rest, fold(name)):
                latest[kind, name, field] = value
    facts += (Fact(kind, name, value) for (kind, name, _), value in latest.items())
    return Part([as_chat(message) for message in messages], facts, names)


def as_chat(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message in the format of Chat Completions."""
    if message["role"] == "tool":
        return {"role": "tool", "tool_call_id": message["id"], "content": message["content"]}
    calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
        }
        for call in message.get("tool_calls") or []
    ]
    chat = {"role": message["role"], "content": message["content"] or ""}
    return {**chat, "tool_calls": calls} if calls else chat


def iter_fields(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the kind and name of each record, and the name and value of each of its fields."""
    try:
        pending = [("", "", json.loads(text))]
    except ValueError:
        return
    while pending:
        kind, name, value = pending.pop()
        if isinstance(value, list):
            pending += [(kind, name, item) for item in value]
        elif isinstance(value, dict):
            for key, field in value.items():
                if isinstance(field, str) and key.endswith(("_id", "_number")) and field:
                    kind, name = key, field
                    break
            for key, field in value.items():
                if isinstance(field, list | dict):
                    pending.append((kind, name, field))
                elif name and field not in (name, None) and is_telling(str(field)):
                    yield kind, name, key, str(field)


def is_telling(value: str) -> bool:
    """Return whether a value is distinctive: a longer word, a code, a number of two digits."""
    return value.isupper() or len(value) >= LEAST_VALUE or sum(map(str.isdigit, value)) > 1


def has_word(text: str, word: str) -> bool:
    """Return whether *text* contains *word*, not as part of a longer word or number."""
    return re.search(rf"(?<![\w.]){re.escape(word)}(?!\w|\.\d)", text, re.ASCII) is not None


# --- English: what a person told an assistant ---------------------------------------------------


def read_realmem(root: Path, split: str) -> Iterator[Talk]:
    """Yield concatenated sessions of each person. Every second person is for tuning."""
    paths = sorted(root.glob("realmem/*.json"))[split == "test" :: 2]
    for path in paths:
        dialogues = json.loads(path.read_text("utf-8"))["dialogues"]
        yield from join(read_session(session) for session in dialogues)


def read_session(session: dict[str, Any]) -> Part:
    """Return a session; a fact is a figure in a memory taken from it, with the name before it."""
    messages = [
        {"role": turn["speaker"].lower(), "content": turn["content"] or "..."}
        for turn in session["dialogue_turns"]
    ]
    facts = [
        Fact("name", name, value)
        for memory in session["extracted_memory"]
        if isinstance(memory["content"], str)  # one of 1,831 is a table
        for name, value in iter_figures(memory["content"], memory["source_content_snapshot"])
    ]
    return Part(messages, facts, [(fact.kind, fact.name) for fact in facts])


def iter_figures(memory: str, source: str) -> Iterator[tuple[str, str]]:
    """Yield the figures of a memory that its source contains, and the proper name before each."""
    statement = memory.rpartition("】")[2]
    for figure in FIGURE.finditer(statement):
        before = [
            match[0]
            for match in PROPER.finditer(statement, 0, figure.start())
            if match[0] in source and not statement[match.end() :].lstrip("*").startswith(":")
        ]
        if before and has_word(source, figure[0]):
            yield before[-1], figure[0]


DATASETS: dict[str, Callable[[Path, str], Iterator[Talk]]] = {
    "CrossWOZ (Chinese)": read_crosswoz,
    "tau2-bench (English)": read_tau2,
    "RealMem (English)": read_realmem,
}
