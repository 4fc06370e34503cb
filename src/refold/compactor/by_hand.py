"""Operations that a user starts. A preview shows a compaction and what it hides. It can be changed
and accepted. Stored edits can be reverted."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from refold.codecs.codec import Payload
from refold.compactor.conversations import ConversationCache, ConversationState
from refold.compactor.hooks import EditsReverted, PreviewAccepted, build_manual_rows
from refold.compactor.late_edits import (
    edits_after_revert,
    edits_dropping_thinking,
    find_thinking_copies,
)
from refold.compactor.loading import Schedule, load
from refold.compactor.run import TurnSteps, flush_memory, force_turn, new_edits, run_turn
from refold.compactor.settings import Settings
from refold.core.view import View
from refold.edits import Attempt, Edit, Loss, Losses, LossKind
from refold.errors import EditError
from refold.messages import Message
from refold.models.driver import Asker, drive
from refold.stores.store import LedgerRow, rows_about
from refold.summarizers.heuristic.earlier import read_earlier_summaries
from refold.summarizers.heuristic.identifiers import find_names, is_in_folder
from refold.summarizers.heuristic.state import Failure, State, read_state
from refold.summarizers.heuristic.steps import Step, read_steps
from refold.text.plain import readable_text
from refold.text.summary_wrapper import summary_in, without_summary, wrap_summary

# --- previews -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Preview:
    """A compaction that is computed but not saved. Immutable. `Compactor.accept` saves exactly its
    edits."""

    before: View
    """The current view."""
    view: View
    """The view after the compaction. Its `payload` can also be sent once, without accepting."""
    edits: tuple[Edit, ...]
    """The edits that `Compactor.accept` saves."""

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """How the run of each strategy ended."""
        return self.view.attempts

    @property
    def payload(self) -> Any:
        """The request after the compaction."""
        return self.view.payload

    @property
    def tokens_saved(self) -> int:
        """Tokens by which each later request would be smaller."""
        return self.before.tokens - self.view.tokens

    @property
    def calls(self) -> int:
        """Number of model calls that the preview made. Accepting repeats none."""
        return sum(attempt.calls for attempt in self.attempts)

    @property
    def cost(self) -> float:
        """Cost of those calls in US dollars, as far as prices are known."""
        return sum(attempt.cost for attempt in self.attempts)

    def cost_saved(self, price: float) -> float:
        """Return the US dollars saved on each later request at *price* dollars per million input
        tokens."""
        return self.tokens_saved * price / 1_000_000

    @cached_property
    def losses(self) -> Losses:
        """Text that the current request contains and the compacted one would not."""
        return find_losses(self.before, self.view)

    def summaries(self) -> dict[str, str]:
        """Return the text of each summary among the edits, by edit id."""
        texts = ((edit.id, _summary_of(edit)) for edit in self.edits)
        return {id: text for id, text in texts if text is not None}

    def amend(self, id: str | Edit, text: str) -> "Preview":
        """Return this preview with *text* in place of the summary that the edit *id* (or a unique
        prefix of it) shows. The edit keeps its id.

        Raises `EditError` if no new edit has this id, if the edit shows no summary, if the text is
        empty, or if the result is not smaller than the messages it replaces.
        """
        edit = self.view.find(id)
        if edit not in self.edits:
            raise EditError(
                f"edit {edit.id} is kept already: only what this preview made can be changed"
            )
        if _summary_of(edit) is None:
            raise EditError(f"edit {edit.id} shows no summary")
        if not text.strip():
            raise EditError("a summary must say something")
        amended = replace(
            edit, insert=tuple(_replace_summary(message, text) for message in edit.insert)
        )

        def swap(each: Edit) -> Edit:
            return amended if each == edit else each

        view = self.view.revert().apply_valid(map(swap, self.view.edits))
        if view.estimate >= self.view.revert(edit.id).estimate:
            raise EditError("the summary is not smaller than what it stands for")
        view = replace(view, goal=self.view.goal)
        return replace(self, view=view, edits=tuple(map(swap, self.edits)))


def _summary_of(edit: Edit) -> str | None:
    return next((text for text in map(summary_in, edit.insert) if text is not None), None)


def _replace_summary(message: Message, text: str) -> Message:
    if summary_in(message) is None:
        return message
    return replace(message, parts=(*wrap_summary(text).parts, *without_summary(message).parts))


# --- operations -----------------------------------------------------------------------------------

SHOWN_ORIGINAL_BY = "as said"
"""Prefix of `by` in edits that show the original message in place of a reverted local edit."""


def preview(
    settings: Settings, cache: ConversationCache, history: Any, to: int | None, actor: str
) -> TurnSteps[Preview]:
    """Compact *history* without saving any edit, see `Compactor.preview`."""
    options = force_turn(to, actor=actor, keep=False)
    payload, cached = cache.open(history)
    before = yield from load(settings, cached, payload)
    settings = settings.fit(before.view)
    after = yield from run_turn(settings, Schedule.of(settings), before, options)
    return Preview(before.view, after.view, tuple(new_edits(before, after)))


def list_rows(settings: Settings, cache: ConversationCache, history: Any) -> tuple[LedgerRow, ...]:
    """Return the ledger rows about *history*, see `Compactor.ledger_rows`."""
    if settings.ledger is None:
        return ()
    payload, cached = cache.open(history)
    view = _load(settings, cached, payload).view
    count = view.profile.calibrate
    return tuple(
        replace(row, before=count(row.before), after=count(row.after))
        for row in rows_about(settings.ledger, view.transcript.tips)
    )


def accept(
    settings: Settings, cache: ConversationCache, preview: Preview, actor: str, ask: Asker | None
) -> View:
    """Save the edits of *preview*, see `Compactor.accept`."""
    if not isinstance(preview, Preview) or (payload := preview.view.source) is None:
        raise ValueError(f"accept takes what `preview` has made, not a {type(preview).__name__}")
    cached = cache.match(payload)
    base = _load(settings, cached, payload)
    base.stored.apply(*preview.edits)
    failures = drive(flush_memory(settings.memory, base.view, preview.view), ask)
    late = {
        edit.id: edit
        for state in cache.continuations_of(preview.edits)
        for edit in edits_dropping_thinking(state.stored, preview.edits)
    }
    settings.store.save((*preview.edits, *late.values()))
    when, attempts = settings.clock(), (*preview.attempts, *failures)
    settings.record(build_manual_rows("accept", when, actor, preview.view, preview.edits, attempts))
    ids = tuple(edit.id for edit in preview.edits)
    settings.emit(PreviewAccepted(when=when, actor=actor, edits=ids))
    view = _finish(settings, cache, cached, payload, when)
    failures = tuple(failure.calibrate(view.profile.calibrate) for failure in failures)
    return replace(view, attempts=failures) if failures else view


def revert(
    settings: Settings,
    cache: ConversationCache,
    history: Any,
    ids: Sequence[str | Edit],
    actor: str,
) -> View:
    """Remove stored edits of *history*, see `Compactor.revert`."""
    store, (payload, cached) = settings.store, cache.open(history)
    view = _load(settings, cached, payload).view
    if ids:
        edits = view.find_all(ids)
    else:
        edits = [edit for edit in view.edits if not edit.by.startswith(SHOWN_ORIGINAL_BY)]
    edits += find_thinking_copies(view, edits)
    store.remove(edit.id for edit in edits)
    messages = view.transcript.messages
    store.save(
        view.replace(edit.start, messages[edit.start], by=f"{SHOWN_ORIGINAL_BY} ({edit.by})")
        for edit in edits
        if edit.by in settings.local_names
    )
    cache.clear()
    stripping = edits_after_revert(_load(settings, None, payload).view, view)
    store.save(stripping)
    staying = {edit.id for edit in stripping}  # a removed edit may be made anew
    gone = [edit for edit in edits if edit.id not in staying]
    when = settings.clock()
    if gone:
        settings.record(build_manual_rows("revert", when, actor, view, gone))
        settings.emit(EditsReverted(when=when, actor=actor, edits=tuple(edit.id for edit in gone)))
    return _finish(settings, cache, None, payload, when)


def _finish(
    settings: Settings,
    cache: ConversationCache,
    cached: ConversationState | None,
    payload: Payload,
    when: float,
) -> View:
    """Return the view with the edits now stored. Automatic compaction waits until the history has
    grown."""
    state = Schedule.of(settings).mark_attempt(_load(settings, cached, payload), when)
    cache.remember(state, cached)
    return state.view


def _load(
    settings: Settings, cached: ConversationState | None, payload: Payload
) -> ConversationState:
    return drive(load(settings, cached, payload))


# --- losses ---------------------------------------------------------------------------------------

Value = TypeVar("Value")
_INSTALLED = re.compile(r"(?:^|/)(?:node_modules|site-packages|\.?venv)/")
"""Folders of installed packages, whose files no task is about."""
_NO_NAME = re.compile(
    r"^(?:diff --git a/.*? b/|--- a/|\+\+\+ b/)"
    r"|(?<![^\s\\\"'(])(?:node_modules|site-packages|\.?venv)\\\S*+",
    re.MULTILINE,
)
"""Prefixes of a diff, and paths of Windows in these folders, which are read as several names."""


def find_losses(before: View, after: View) -> Losses:
    """Return the text that *before* shows and *after*, a view of the same conversation, does not,
    in messages, system prompt or tools. `refold.summarizers.heuristic.RuleSummary` has the
    rules."""
    hidden = _read_hidden(before, after)
    sent = _plain("\n".join(_texts_to_send(after)))
    in_summaries = set(
        read_earlier_summaries(filter(None, map(summary_in, after.messages))).state.files
    )

    def list_missing(texts: Iterable[str]) -> list[str]:
        return [text for text in texts if _plain(text.removesuffix("…")) not in sent]

    state = hidden.state
    names = [name for name in list_missing(hidden.names) if name not in in_summaries]
    text = "\n".join(map(readable_text, before.transcript.messages))  # rules may join paths
    paths = [
        path for path in list_missing(state.files) if path not in in_summaries and path in text
    ]
    names = [name for name in names if not _INSTALLED.search(name)]
    paths += [name for name in names if is_in_folder(name)]
    path_set = set(paths)
    open_work = read_state(read_steps(after.messages), deepcopy(state))
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
    """The content of the messages that are no longer shown."""

    state: State
    names: Sequence[str]
    """Identifiers, newest first."""
    places: Mapping[str, int]
    """Position of the last message that contains each text."""


def _read_hidden(before: View, after: View) -> _Hidden:
    """Return the content of messages and earlier summaries that are no longer shown. Text that
    Refold inserted, such as a stub with an edit id, is left out."""
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
    genuine = _original_identifiers(whole, before)
    quoted = (name for text in earlier for name in find_names(text) if name in genuine)
    names = list(dict.fromkeys((*own.names, *quoted)))
    return own._replace(state=_join(read_earlier_summaries(earlier).state, own.state), names=names)


def _join(old: State, new: State) -> State:
    """Return *new* with *old*'s requests, constraints, files and decisions added, and with its
    plan, failure and next step if *new* has none."""
    return replace(
        new,
        requests=old.requests | new.requests,
        constraints=old.constraints | new.constraints,
        files=old.files | new.files,
        decisions=old.decisions | new.decisions,
        todos=new.todos or old.todos,
        failure=new.failure if new.failure.error else old.failure,
        next_step=new.next_step or old.next_step,
    )


def _original_identifiers(originals: _Hidden, view: View) -> set[str]:
    """Return the paths and identifiers of the messages, without the ids of the view's edits."""
    ids = {edit.id[:size] for edit in view.edits for size in (8, None)}
    return {*originals.state.files, *originals.names}.difference(ids)


def _read_messages(messages: Sequence[Message], positions: Sequence[int] = ()) -> _Hidden:
    steps = read_steps(messages)
    names = [find_names(_NO_NAME.sub("", step.text)) for step in steps]
    places = dict[str, int]()
    if positions:
        for step, named in zip(steps, names, strict=True):
            places.update(dict.fromkeys((*_texts_of(step), *named), positions[step.at]))
    newest = dict.fromkeys(name for named in reversed(names) for name in named)
    return _Hidden(read_state(steps), list(newest), places)


def _texts_of(step: Step) -> Iterator[str]:
    """Yield every text of a step that can be lost, except identifiers."""
    state = read_state([step])
    yield from (*state.constraints, *state.requests, *state.decisions, *state.files)
    yield from _list_open(state)


def _list_open(state: State) -> list[str]:
    todos = [todo.text for todo in state.todos if todo.status != "done"]
    return [text for text in (*todos, state.failure.error, state.next_step) if text]


def _restrict_to(shown: _Hidden, originals: _Hidden, view: View) -> _Hidden:
    """Return the content of *shown* that *originals* have too, without the ids of the view's
    edits."""
    names = _original_identifiers(originals, view)
    state, original = shown.state, originals.state
    return _Hidden(
        replace(
            state,
            requests=_common(state.requests, original.requests),
            constraints=_common(state.constraints, original.constraints),
            decisions=_common(state.decisions, original.decisions),
            files=_common(state.files, names),
            todos=tuple(todo for todo in state.todos if todo in original.todos),
            failure=state.failure if state.failure.error == original.failure.error else Failure(),
            next_step=state.next_step if state.next_step == original.next_step else "",
        ),
        [name for name in shown.names if name in names],
        originals.places,
    )


def _common(values: Mapping[str, Value], names: Collection[str]) -> dict[str, Value]:
    return {name: value for name, value in values.items() if name in names}


def _find_lines(losses: Sequence[Loss], messages: Sequence[Message]) -> Iterator[Loss]:
    """Yield each loss with the line where it begins in its message; 1 if it is not found there."""
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
