"""What a compaction takes out of sight: rules, requests, open work, facts, files and names that
stand nowhere in what would be sent."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from refold.core.view import View
from refold.edits import Loss, Losses, LossKind
from refold.messages import Message
from refold.summarizers.heuristic.earlier import join_states, read_given
from refold.summarizers.heuristic.identifiers import find_names, is_path
from refold.summarizers.heuristic.source import Step, read_steps
from refold.summarizers.heuristic.state import State, read_state
from refold.text.plain import readable_text
from refold.text.summary_wrapper import summary_in, without_summary

Value = TypeVar("Value")


def find_losses(before: View, after: View) -> Losses:
    """Return what *before* shows and *after*, a view of the same conversation, shows nowhere:
    neither in its messages nor in system prompt or tools. It is found by the rules of
    `refold.summarizers.heuristic.RuleSummary`."""
    hidden = _read_hidden(before, after)
    sent = _plain("\n".join(_texts_to_send(after)))
    in_summaries = set(read_given(filter(None, map(summary_in, after.messages))).state.files)

    def list_missing(texts: Iterable[str]) -> list[str]:
        return [text for text in texts if _plain(text.removesuffix("…")) not in sent]

    state = hidden.state
    names = [name for name in list_missing(hidden.names) if name not in in_summaries]
    paths = [path for path in list_missing(state.files) if path not in in_summaries]
    paths += [name for name in names if is_path(name)]
    path_set = set(paths)
    open_work = join_states(state, read_state(read_steps(after.messages)))
    texts: dict[LossKind, Iterable[str]] = {
        "constraints": list_missing(state.constraints),
        "requests": list_missing(state.requests),
        "open_work": list_missing(_list_open(open_work)),
        "facts": list_missing(sorted(state.decisions, key=lambda text: -state.decisions[text])),
        "paths": dict.fromkeys(paths),
        "identifiers": [name for name in names if name not in path_set],
    }
    losses = [Loss(kind, text, hidden.places.get(text)) for kind in texts for text in texts[kind]]
    return Losses(tuple(_find_lines(losses, before.transcript.messages)))


class _Hidden(NamedTuple):
    """What the messages that are gone say."""

    state: State
    names: Sequence[str]
    """Identifiers, the newest first."""
    places: Mapping[str, int]
    """Position of the message that says each of these last."""


def _read_hidden(before: View, after: View) -> _Hidden:
    """Return what the messages that are gone say; of earlier summaries, what they say. Words of
    ours, such as a stub with its edit's id, were never said and are not in it."""
    remaining, messages = set(after.messages), before.transcript.messages
    earlier, shown, originals = list[str](), list[Message](), list[int]()
    for item in before.iter_items():
        gone = [message for message in item.messages if message not in remaining]
        summaries = [text for text in map(summary_in, gone) if text is not None]
        earlier += summaries
        rest = [message for message in map(without_summary, gone) if message.parts]
        shown += rest
        if rest or (item.edit and summaries):
            originals += range(item.start, item.stop)
    whole = _read_messages([messages[at] for at in originals], originals)
    own = whole
    if shown != [messages[at] for at in originals]:
        own = _restrict_to(_read_messages(shown), whole, before)
    genuine = _genuine_names(whole, before)
    quoted = (name for text in earlier for name in find_names(text) if name in genuine)
    names = list(dict.fromkeys((*own.names, *quoted)))
    return own._replace(state=join_states(read_given(earlier).state, own.state), names=names)


def _genuine_names(originals: _Hidden, view: View) -> set[str]:
    """Return the names in messages, without the ids of the view's edits."""
    ids = {edit.id[:size] for edit in view.edits for size in (8, None)}
    return {*originals.state.files, *originals.names}.difference(ids)


def _read_messages(messages: Sequence[Message], positions: Sequence[int] = ()) -> _Hidden:
    steps = read_steps(messages)
    names = [find_names(step.text) for step in steps]
    places = dict[str, int]()
    if positions:
        for step, named in zip(steps, names, strict=True):
            places.update(dict.fromkeys((*_texts_of(step), *named), positions[step.at]))
    newest = dict.fromkeys(name for named in reversed(names) for name in named)
    return _Hidden(read_state(steps), list(newest), places)


def _texts_of(step: Step) -> Iterator[str]:
    """Yield what a step says that may be lost, but names."""
    state = read_state([step])
    yield from (*state.constraints, *state.requests, *state.decisions, *state.files)
    yield from _list_open(state)


def _list_open(state: State) -> list[str]:
    todos = [todo.text for todo in state.todos if todo.status != "done"]
    return [text for text in (*todos, state.error, state.next_step) if text]


def _restrict_to(shown: _Hidden, originals: _Hidden, view: View) -> _Hidden:
    """Return what both have, without the ids of the view's edits."""
    names = _genuine_names(originals, view)
    state, original = shown.state, originals.state
    return _Hidden(
        replace(
            state,
            requests=_common(state.requests, original.requests),
            constraints=_common(state.constraints, original.constraints),
            decisions=_common(state.decisions, original.decisions),
            files=_common(state.files, names),
            todos=tuple(todo for todo in state.todos if todo in original.todos),
            error=state.error if state.error == original.error else "",
            next_step=state.next_step if state.next_step == original.next_step else "",
        ),
        [name for name in shown.names if name in names],
        originals.places,
    )


def _common(values: Mapping[str, Value], names: Collection[str]) -> dict[str, Value]:
    return {name: value for name, value in values.items() if name in names}


def _find_lines(losses: Sequence[Loss], messages: Sequence[Message]) -> Iterator[Loss]:
    """Yield each loss with the line of its message in which it begins, if that can be found."""
    bodies = {loss.at: readable_text(messages[loss.at]) for loss in losses if loss.at is not None}
    for loss in losses:
        body = "" if loss.at is None else bodies[loss.at]
        start = body.find(loss.text.removesuffix("…"))
        yield loss._replace(line=body.count("\n", 0, max(0, start)) + 1)


def _plain(text: str) -> str:
    return " ".join(text.split())


def _texts_to_send(view: View) -> Iterator[str]:
    if view.source is not None:
        yield readable_text(Message("system", view.source.system))
        yield from view.source.tools
    yield from map(readable_text, view.messages)
