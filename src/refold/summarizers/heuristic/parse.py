"""The text of a rule summary back into the values it was made of."""

import json
import re
from collections.abc import Callable, Iterable, Iterator

from refold.summarizers.heuristic.chat import read_lines, split_count
from refold.summarizers.heuristic.digest import Digest, Todo, count_repeats
from refold.summarizers.heuristic.layout import MARKS
from refold.summarizers.heuristic.names import Entry
from refold.text.summary_wrapper import split_record

TITLES = (
    "Requests", "Constraints", "Decisions", "Open work", "Notes", "Files", "Commands", "Talk", "Listed", "Ids", "Names", "Counts",
)  # fmt: skip
MAX_FOLDER = 1_000
"""Characters of a folder that is written out before each of its names: one of 50,000 before as many names would take 2 GB."""

_STATUS = {mark: status for status, mark in MARKS.items()}
_TODO = re.compile(r"\[([ ~x])\] (.+)", re.DOTALL)
_COMMAND = re.compile(r"\[(ok|error|exit -?\d+)\] (.+)", re.DOTALL)
_QUOTED = r"\"(?:[^\"\\]|\\.?)*+\"?"
"""A JSON string; one that never closes goes to the end, so that no character is looked at again (C3)."""
_TOKEN = re.compile(rf"{_QUOTED}|[^\s\"{{}}]*+\{{[^\s\"{{}}]*+\}}|[^\s\"]+", re.DOTALL)
_COUNT = re.compile(rf"(?:\A|(?<=, ))({_QUOTED}|[^\s\",]++) (\d{{1,15}})(?=, |\Z)", re.DOTALL)
_MESSAGES = re.compile(r"messages (\d{1,15})(?:; calls (.*))?")


def parse_summary(text: str) -> Digest:
    """The digest that *text* shows. What is in no form of ours (a model's words, a user's
    amendment) becomes a note and is kept as it is. Never raises.
    """
    words, record = split_record(text) or ("", text)
    sections = _sections(record)
    get: Callable[[str], list[str]] = lambda title: list(_items(sections.get(title, "")))  # noqa: E731 - one name for three words
    opened = get("Open work")
    todos = tuple(Todo(m[2], _STATUS[m[1]]) for m in map(_TODO.fullmatch, opened) if m)
    requests = _requests(get("Requests"))
    messages, calls = _counts(sections.get("Counts", ""))
    return Digest(
        requests=tuple(requests),
        repeats=count_repeats(requests),
        constraints=tuple(get("Constraints")),
        decisions=tuple(get("Decisions")),
        todos=todos or None,
        open=tuple(text for text in opened if not _TODO.fullmatch(text)),
        files=dict(_files(sections.get("Files", ""))),
        commands={m[2]: m[1] for m in map(_COMMAND.fullmatch, get("Commands")) if m},
        index=tuple(_index(sections)),
        messages=messages,
        calls=calls,
        talk=tuple(read_lines(get("Talk"))),
        notes=tuple(note for note in (words, *get("Notes"), sections.get("", "")) if note),
    )


def _sections(text: str) -> dict[str, str]:
    """Section text by title; under the empty title what stands in no section of ours."""
    sections: dict[str, list[str]] = {"": []}
    title = ""
    for line in text.split("\n"):
        if line.startswith("## "):
            title = line[3:].strip() if line[3:].strip() in TITLES else ""
            if title:
                sections.setdefault(title, [])
                continue
        sections[title].append(line)
    return {title: "\n".join(lines).strip("\n") for title, lines in sections.items()}


def _items(body: str) -> Iterator[str]:
    """List items with their indented lines."""
    now: list[str] | None = None
    for line in body.split("\n"):
        if line.startswith("- ") or (line.strip() and not line.startswith("  ")):
            if now:
                yield "\n".join(now).rstrip()
            now = [line.removeprefix("- ")]
        elif now is not None:
            now.append(line.removeprefix("  "))
    if now and "\n".join(now).strip():
        yield "\n".join(now).rstrip()


def _requests(items: Iterable[str]) -> dict[str, int]:
    """How often each request was made, in the order of the latest."""
    requests = dict[str, int]()
    for text, times in map(split_count, items):
        requests[text] = requests.pop(text, 0) + times
    return requests


def _files(body: str) -> Iterator[tuple[str, str]]:
    for line in body.split("\n"):
        state, colon, rest = line.partition(": ")
        if colon and state in {"read", "created", "modified", "deleted"}:
            yield from ((path, state) for path in read_paths(rest))


def read_paths(line: str) -> Iterator[str]:
    """The paths of a line, groups written out."""
    for token in _TOKEN.findall(line):
        if token.startswith('"'):
            yield _unquote(token)
        elif token.endswith("}") and 0 <= token.find("{") <= MAX_FOLDER:
            folder, _, names = token[:-1].partition("{")
            yield from (folder + name for name in names.split(","))
        else:
            yield token


def _index(sections: dict[str, str]) -> Iterator[Entry]:
    yield from (Entry("path", path) for path in read_paths(sections.get("Listed", "")))
    for line in sections.get("Ids", "").split("\n"):
        field, colon, rest = line.partition(": ")
        if colon:
            yield from (Entry("value", value, field) for value in rest.split())
    yield from (Entry("name", name) for name in sections.get("Names", "").split())


def _counts(body: str) -> tuple[int, dict[str, int]]:
    match = _MESSAGES.match(body)
    if not match:
        return 0, {}
    return int(match[1]), {
        _unquote(tool): int(count) for tool, count in _COUNT.findall(match[2] or "")
    }


def _unquote(token: str) -> str:
    try:
        return str(json.loads(token)) if token.startswith('"') else token
    except ValueError:
        return token.strip('"')
