"""The JSON state: entries with ids that a model updates by deltas and code merges (S1-37)."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

from refold.summarizers.forms.form import find_objects
from refold.summarizers.forms.sections import comparison_key, has_content
from refold.text.json_values import without_empty

Kind = Literal["topic", "entity", "action", "constraint", "decision", "file", "open"]
KINDS: tuple[Kind, ...] = get_args(Kind)
KEYS: dict[Kind, str] = {
    "topic": "topics", "entity": "entities", "action": "action_items", "constraint": "constraints",
    "decision": "decisions", "file": "files", "open": "open_items",
}  # fmt: skip
"""The JSON key of each kind of entry."""
_DONE = frozenset({"done", "completed", "finished", "cancelled", "已完成", "完成"})

TEMPLATE = """\
The state is a JSON object with a "goal" and lists of entries: "topics", "entities", "action_items",
"constraints", "decisions", "files", "open_items". Each entry has an "id", a "text" and, where it helps, a "status"
(action items: todo, in progress, done; files: created, read, modified, deleted).
Answer with one JSON object that says what changed, and nothing else. Leave out what did not change.

{
  "goal": "only if it is new or has changed",
  "add": {"topics": [{"text": "..."}], "action_items": [{"text": "...", "status": "todo"}], "files": [{"text": "path", "status": "modified"}]},
  "update": [{"id": "a1", "status": "done"}],
  "remove": ["t2"]
}

Use ids of the state you were given in "update" and "remove"; new entries get their ids from us. Identifiers, paths and figures verbatim.
Nothing that still holds is removed. If nothing changed, answer {"add": {}}."""


class Entry(NamedTuple):
    """One known item."""

    kind: Kind
    text: str
    status: str = ""
    id: str = ""
    """A letter for its kind and a number. Empty until it is added to a state."""


@dataclass(frozen=True, slots=True)
class State:
    """Everything known. Entries without a text or an id, or with an id used before, are left
    out."""

    goal: str = ""
    entries: tuple[Entry, ...] = ()
    """Sorted by kind, the oldest first within a kind."""

    def __post_init__(self) -> None:
        stripped = (
            Entry(e.kind, e.text.strip(), e.status.strip(), e.id.strip()) for e in self.entries
        )
        by_id = dict[str, Entry]()
        for entry in stripped:
            if entry.text and entry.id:
                by_id.setdefault(entry.id, entry)
        object.__setattr__(self, "goal", self.goal.strip())
        object.__setattr__(self, "entries", _sort_by_kind(by_id.values()))

    def of(self, kind: Kind) -> tuple[Entry, ...]:
        """Return the entries of one kind."""
        return tuple(entry for entry in self.entries if entry.kind == kind)


def _sort_by_kind(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(entries, key=lambda entry: KINDS.index(entry.kind)))


class Change(NamedTuple):
    """Changes to an entry. None means unchanged."""

    id: str
    text: str | None = None
    status: str | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """The changes since a state was written."""

    goal: str = ""
    add: tuple[Entry, ...] = ()
    """Sorted by kind. Their ids are ignored, because `apply_delta` gives new ones."""
    update: tuple[Change, ...] = ()
    remove: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "add", _sort_by_kind(self.add))


@dataclass(frozen=True, slots=True)
class StateForm:
    """The JSON state as a form: a model answers with a `Delta`, and code applies it.

    Entries that a delta does not name stay the same byte for byte, over any number of rounds. An
    invalid delta is refused as a whole (`find_problems` says why).
    """

    name = "json_state"
    template = TEMPLATE

    def parse(self, text: str) -> State | Delta | None:
        """Return the last object in *text* that is a delta or a state, or None if there is none.
        Objects with fields of another shape do not count."""
        values = [value for value in map(_read_value, find_objects(text)) if value is not None]
        return values[-1] if values and values[-1] != State() else None

    def render(self, value: State | Delta) -> str:
        """Return the value as JSON, one entry per line."""
        return _dump(_value_json(value))

    def merge(self, previous: State | Delta | None, new: State | Delta) -> State | None:
        """Return *previous* with *new* applied, or None if that is impossible."""
        state = apply_delta(State(), previous) if isinstance(previous, Delta) else previous
        if previous is None:
            return new if isinstance(new, State) else apply_delta(State(), new)
        if state is None:
            return None
        delta = _delta_between(state, new) if isinstance(new, State) else new
        return apply_delta(state, delta)

    def shorten(self, value: State | Delta) -> State | None:
        """Return the state without its oldest finished action item, topic, file that was only read,
        entity or decision, in this order. Return None for a delta, or if only goal, constraints,
        changed files, open items and actions are left."""
        if isinstance(value, Delta):
            return None
        least = next(_droppable(value), None)
        return least and replace(value, entries=tuple(e for e in value.entries if e != least))


def find_problems(state: State, delta: Delta) -> tuple[str, ...]:
    """Return why *delta* cannot be applied to *state*, for a second question, or an empty tuple."""
    ids = {entry.id for entry in state.entries}
    changed = [change.id for change in delta.update]
    return (
        *(f"there is no entry {id!r} to update" for id in changed if id not in ids),
        *(f"there is no entry {id!r} to remove" for id in delta.remove if id not in ids),
        *(f"entry {id!r} is both updated and removed" for id in changed if id in delta.remove),
        *(
            f"entry {change.id!r} would be left without text"
            for change in delta.update
            if change.text is not None and not has_content(change.text.strip())
        ),
    )


def apply_delta(state: State, delta: Delta) -> State | None:
    """Return *state* with *delta* applied, or None if that is impossible (see `find_problems`). An
    added entry with the same words as an existing one only updates its status."""
    if find_problems(state, delta):
        return None
    changes = dict[str, dict[str, Any]]()
    for change in delta.update:  # an id may be named more than once
        changes.setdefault(change.id, {}).update(_change_json(change))
    stay = (entry for entry in state.entries if entry.id not in delta.remove)
    entries = [entry._replace(**changes.get(entry.id, {})) for entry in stay]
    last = {
        kind: max((_id_number(e.id) for e in state.entries if e.id[0] == kind[0]), default=0)
        for kind in KINDS
    }
    places = {(entry.kind, comparison_key(entry.text)): at for at, entry in enumerate(entries)}
    for entry in (entry for entry in delta.add if has_content(entry.text.strip())):
        at = places.setdefault((entry.kind, comparison_key(entry.text)), len(entries))
        if at < len(entries):
            entries[at] = entries[at]._replace(status=entry.status or entries[at].status)
        else:
            last[entry.kind] += 1
            entries.append(entry._replace(id=f"{entry.kind[0]}{last[entry.kind]}"))
    return State(delta.goal.strip() or state.goal, tuple(entries))


def _delta_between(state: State, new: State) -> Delta:
    """Return a whole state as a delta that removes nothing."""
    ids = {(entry.kind, entry.id) for entry in state.entries}
    updated = (e for e in new.entries if (e.kind, e.id) in ids)
    update = tuple(Change(e.id, e.text, e.status or None) for e in updated)
    return Delta(new.goal, tuple(e for e in new.entries if (e.kind, e.id) not in ids), update)


def _id_number(id: str) -> int:
    digits = id[1:]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0


def _droppable(state: State) -> Iterator[Entry]:
    yield from (entry for entry in state.of("action") if entry.status.casefold() in _DONE)
    yield from state.of("topic")
    yield from (entry for entry in state.of("file") if entry.status.casefold() in {"read", ""})
    yield from state.of("entity")
    yield from state.of("decision")


def _dump(value: Mapping[str, Any]) -> str:
    """Return JSON with one line per field and per list item."""
    fields = list[str]()
    for key, item in value.items():
        is_list = isinstance(item, list) and bool(item)
        text = (
            "[\n  " + ",\n  ".join(map(_dump_text, item)) + "\n ]" if is_list else _dump_text(item)
        )
        fields.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(fields) + "\n}"


def _dump_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _lists_json(entries: tuple[Entry, ...]) -> dict[str, Any]:
    return without_empty(
        {KEYS[kind]: [_entry_json(e) for e in entries if e.kind == kind] for kind in KINDS}
    )


def _entry_json(entry: Entry) -> dict[str, str]:
    return without_empty({"id": entry.id, "text": entry.text, "status": entry.status})


def _change_json(change: Change) -> dict[str, Any]:
    return {key: value for key, value in change._asdict().items() if value is not None}


def _value_json(value: State | Delta) -> dict[str, Any]:
    if isinstance(value, State):
        return {"goal": value.goal, **_lists_json(value.entries)}
    return {
        "goal": value.goal,
        "add": _lists_json(value.add),
        "update": list(map(_change_json, value.update)),
        "remove": list(value.remove),
    }


def _read_value(fields: dict[str, Any]) -> State | Delta | None:
    """Return an object as a state or delta, or None if a field does not fit the template."""
    try:
        goal = _read(fields, "goal", str)
        if fields.keys() & {"add", "update", "remove"}:
            added = _read(fields, "add", dict)
            changes = tuple(map(_read_change, _read(fields, "update", list)))
            removed = tuple(_require(id, str) for id in _read(fields, "remove", list))
            is_known = added.keys() <= set(KEYS.values())
            return Delta(goal, _read_entries(added), changes, removed) if is_known else None
        if fields and fields.keys() <= {"goal", *KEYS.values()}:
            entries = _read_entries(fields)
            ids = {entry.id.strip() for entry in entries}  # often each list is numbered from 1
            is_state = "" not in ids and len(ids) == len(entries)
            return State(goal, entries) if is_state else Delta(goal, entries)
    except TypeError:
        pass
    return None


def _read_entries(lists: Mapping[str, Any]) -> tuple[Entry, ...]:
    return tuple(
        _read_entry(kind, item) for kind in KINDS for item in _read(lists, KEYS[kind], list)
    )


def _read_entry(kind: Kind, item: Any) -> Entry:
    if isinstance(item, str):
        return Entry(kind, item)
    fields = _require(item, dict)
    return Entry(kind, *(_read(fields, key, str) for key in ("text", "status", "id")))


def _read_change(item: Any) -> Change:
    fields = _require(item, dict)
    texts = (fields.get(key) for key in ("text", "status"))
    news = (None if text is None else _require(text, str) for text in texts)
    return Change(_require(fields.get("id"), str), *news)


def _read(fields: Mapping[str, Any], key: str, kind: type) -> Any:
    """Return a field, or an empty value if it is missing or null."""
    return _require(fields.get(key) or kind(), kind)


def _require(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
