"""What a compaction would take out of sight: names, paths, constraints and requests that stand
nowhere in what would be sent."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from refold.core.view import View
from refold.messages import Message
from refold.summarizers.heuristic.earlier import join_states, read_given
from refold.summarizers.heuristic.identifiers import find_names, is_path
from refold.summarizers.heuristic.state import State, read_state
from refold.summarizers.heuristic.steps import read_steps
from refold.text.plain import readable_text
from refold.text.summary_wrapper import summary_in, without_summary

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Losses:
    """What no longer appears, each list in the order of the conversation or by weight. What appears
    in other words counts as lost: only the words can be looked for."""

    requests: tuple[str, ...] = ()
    """What the user asked for, whole; line breaks and spaces make no difference."""
    constraints: tuple[str, ...] = ()
    """Sentences of the user that say what must or must not be done."""
    paths: tuple[str, ...] = ()
    """Files that were read, written or listed."""
    identifiers: tuple[str, ...] = ()
    """Other names and values out of calls and results, the most likely to be needed first."""

    def __bool__(self) -> bool:
        return bool(self.requests or self.constraints or self.paths or self.identifiers)


def find_losses(before: View, after: View) -> Losses:
    """Return what *before* shows and *after*, a view of the same conversation, shows nowhere:
    neither in its messages nor in system prompt or tools. It is found by the rules of
    `refold.summarizers.heuristic.RuleSummary`."""
    hidden = _read_hidden(before, after)
    sent = _plain("\n".join(_texts_to_send(after)))
    in_summaries = set(read_given(filter(None, map(summary_in, after.messages))).state.files)
    missing = [name for name in hidden.names if name not in sent and name not in in_summaries]
    paths = [path for path in hidden.state.files if path not in sent and path not in in_summaries]
    paths += [name for name in missing if is_path(name)]
    return Losses(
        requests=tuple(text for text in hidden.state.requests if _plain(text) not in sent),
        constraints=tuple(text for text in hidden.state.constraints if _plain(text) not in sent),
        paths=tuple(dict.fromkeys(paths)),
        identifiers=tuple(name for name in missing if name not in paths),
    )


class _Hidden(NamedTuple):
    """What the messages that are gone say."""

    state: State
    names: Sequence[str]
    """Identifiers, the newest first."""


def _read_hidden(before: View, after: View) -> _Hidden:
    """Return what the messages that are gone say; of earlier summaries, what they say. Words of
    ours, such as a stub with its edit's id, were never said and are not in it (F18)."""
    remaining = set(after.messages)
    earlier, shown, originals = list[str](), list[Message](), list[Message]()
    for item in before.iter_items():
        gone = [message for message in item.messages if message not in remaining]
        earlier += [text for text in map(summary_in, gone) if text is not None]
        rest = [message for message in map(without_summary, gone) if message.parts]
        shown += rest
        if item.edit and rest:
            originals += before.transcript.messages[item.start : item.stop]
        else:
            originals += rest
    own = _read_messages(shown)
    if shown != originals:
        own = _restrict_to(own, _read_messages(originals), before)
    return own._replace(state=join_states(read_given(earlier).state, own.state))


def _read_messages(messages: Sequence[Message]) -> _Hidden:
    steps = read_steps(messages)
    names = dict.fromkeys(name for step in reversed(steps) for name in find_names(step.text))
    return _Hidden(read_state(steps), list(names))


def _restrict_to(shown: _Hidden, originals: _Hidden, view: View) -> _Hidden:
    """Return what both have, without the ids of the view's edits."""
    ids = {edit.id[:size] for edit in view.edits for size in (8, None)}
    names = {*originals.state.files, *originals.names}.difference(ids)
    state = shown.state
    return _Hidden(
        replace(
            state,
            requests=_common(state.requests, originals.state.requests),
            constraints=_common(state.constraints, originals.state.constraints),
            files=_common(state.files, names),
        ),
        [name for name in shown.names if name in names],
    )


def _common(values: Mapping[str, Value], names: Collection[str]) -> dict[str, Value]:
    return {name: value for name, value in values.items() if name in names}


def _plain(text: str) -> str:
    return " ".join(text.split())


def _texts_to_send(view: View) -> Iterator[str]:
    if view.source is not None:
        yield readable_text(Message("system", view.source.system))
        yield from view.source.tools
    yield from map(readable_text, view.messages)
