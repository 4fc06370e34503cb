"""Compaction of one session by `compact` and `accept`, the savings of each strategy, and drafts:
compactions that are made now and kept later, without asking a model again.

Drafts are in a file beside the edits (`session.jsonl.refold-draft`), one line per session, so that
they outlive the process and no store loads them as edits. Like edits, a draft is found by the
content of the conversation.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import click

from refold.cli import terminal
from refold.cli.options import ModelOptions
from refold.cli.read_output import arguments_of
from refold.compactor.by_hand import Preview
from refold.compactor.loading import make_local_edits
from refold.compactor.pins import pin_messages
from refold.compactor.settings import parse_strategy
from refold.core.strategy import Strategy, is_local
from refold.core.view import View
from refold.core.view_lines import Saving, tokens_saved
from refold.corpus.output import lock
from refold.edits import Attempt, Edit
from refold.errors import EditError, RefoldError, StoreError
from refold.models.driver import Asker
from refold.scorers.scorer import Says
from refold.session_files.edited import (
    EditedSession,
    read_only_compactor,
    record_rows,
    subtract_edits,
    try_strategies,
)
from refold.session_files.export import Exported
from refold.stores.edit_json import FORMAT, dump, edit_fields, load, read_edit
from refold.stores.sidecar import open_private
from refold.stores.store import Action
from refold.strategies import Summarize, SummarizeTo
from refold.tokens.model_table import find_window

WINDOW_SHARE = 0.5
"""Default target as a share of the model's window."""
SUMMARY_FACTORS = {"brief": 0.4, "normal": 1.0, "full": 2.0}
"""Factors for the length of summaries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactOptions:
    """Options of `refold compact`. Raises `click.UsageError` if some exclude one another."""

    to: int | None
    """Target in tokens; None for a share of the model's window (`WINDOW_SHARE`)."""
    strategies: tuple[Strategy, ...] = ()
    dry_run: bool = False
    preview: bool = False
    edit: bool = False
    price: float | None = None
    """US dollars per million input tokens."""
    actor: str = ""
    detail: str = "normal"
    """A key of `SUMMARY_FACTORS`."""
    pins: tuple[str, ...] = ()
    """Texts whose messages must not be hidden."""
    verbose: bool = False
    output: str | None = None
    """File to which the request is also written; `-` is standard output."""
    resume: bool = False
    """Whether the session is also exported to a new file that its client resumes."""

    def __post_init__(self) -> None:
        if self.dry_run and self.preview:
            raise click.UsageError(
                "--dry-run and --preview exclude one another: a preview keeps a draft"
            )
        if (self.edit or self.price is not None) and not self.preview:
            raise click.UsageError("--edit and --price go with --preview")
        if self.resume and (self.dry_run or self.preview):
            raise click.UsageError(
                "--resume goes on with what is kept: not with --dry-run or --preview"
            )
        if self.dry_run and self.output and self.output != "-":
            raise click.UsageError(
                "--dry-run writes no file: leave out --output, "
                "or have the request on standard output with -o -"
            )

    def target(self, edited: EditedSession) -> int:
        """Return the target in tokens. Raises `click.UsageError` if it is unknown."""
        if self.to is not None:
            return self.to
        model = edited.view.profile.model
        window = find_window(model).window
        if window is None:
            why = f"no window is known of {model}" if model else "its file names no model"
            raise click.UsageError(f"{edited.name}: {why}: say how large it may be, as in --to 60k")
        return int(WINDOW_SHARE * window.room)

    def check_pins(self, views: Sequence[View]) -> None:
        """Raise `click.UsageError` for a pin that no message of *views* contains."""
        messages = [message for view in views for message in view.transcript.messages]
        for text in self.pins:
            if not any(map(Says((text,)), messages)):
                raise click.UsageError(
                    f"--pin {text!r}: no message says this word for word, so it would keep nothing"
                )

    def adapt(self, strategies: Iterable[Strategy], view: View) -> tuple[Strategy, ...]:
        """Return *strategies* with summaries of the length `detail`, sparing messages that are
        pinned, now or by an earlier compaction."""
        factor = SUMMARY_FACTORS[self.detail]
        adapted = (_with_room(strategy, factor) for strategy in strategies)
        pins = tuple(dict.fromkeys((*_earlier_pins(view), *self.pins)))
        return tuple(pin_messages(each, Says(pins)) if pins else each for each in adapted)


def _with_room(strategy: Strategy, factor: float) -> Strategy:
    if factor != 1 and isinstance(strategy, SummarizeTo):
        share = min(0.9, strategy.share * factor)
        return replace(strategy, share=share, most=int(strategy.most * factor))
    if factor != 1 and isinstance(strategy, Summarize):
        return replace(strategy, max_tokens=int(strategy.max_tokens * factor))
    return strategy


def _earlier_pins(view: View) -> Iterator[str]:
    """Yield the pins of earlier compactions, which are in their edits' `by`."""
    for edit in view.edits:
        if "Says(" in edit.by:
            with suppress(ValueError):
                pin = getattr(parse_strategy(edit.by), "pin", None)
                yield from pin.texts if isinstance(pin, Says) else ()


@dataclass(frozen=True, slots=True)
class CompactedSession:
    """A session and the outcome of compacting it."""

    edited: EditedSession
    """The session before."""
    options: CompactOptions
    to: int
    """Target in tokens."""
    preview: Preview
    savings: Sequence[Saving]
    file: str = ""
    """File of the kept edits; empty if none were kept, or in a database on a server."""
    draft: str | None = None
    """File of the draft; empty if there is nothing to keep, None without --preview."""
    aborted: bool = False
    """Whether the user left the summary empty."""
    exported: Exported | None = None
    """The exported session, if there is one."""

    @property
    def fits(self) -> bool:
        """Whether the target is met."""
        return self.preview.view.tokens <= self.to

    @property
    def prices(self) -> dict[str, float] | None:
        """Input cost of one request in US dollars, before and after; None without --price."""
        if self.options.price is None:
            return None
        views = {"before": self.edited.view, "after": self.preview.view}
        return {name: view.tokens * self.options.price / 1e6 for name, view in views.items()}


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A session and its accepted draft."""

    before: EditedSession
    after: EditedSession
    edits: tuple[Edit, ...]
    grown: int
    """Number of messages added since the preview."""


def compact_session(
    edited: EditedSession, options: CompactOptions, model: ModelOptions, ask: Asker | None
) -> CompactedSession:
    """Compact one session. Save its edits, or only a draft (`preview`), or nothing (`dry_run`).
    *ask* answers for the *model*, if there is one."""
    to = options.target(edited)
    strategies = options.adapt(model.strategies(options.strategies, to), edited.view)
    action: Action = "preview" if options.preview else "compact"
    preview, rows = try_strategies(
        edited, strategies, to, ask=ask, actor=options.actor, action=action
    )
    savings = find_savings(edited.view, preview.view, strategies)
    compaction = CompactedSession(edited, options, to, preview, savings)
    if options.dry_run:
        return compaction
    if preview.edits and not options.preview:
        edited.store.save(preview.edits)
    record_rows(edited, rows)
    if options.preview:
        return _keep_draft(compaction)
    return replace(compaction, file=str(edited.place or "") if preview.edits else "")


def _keep_draft(compaction: CompactedSession) -> CompactedSession:
    """Write the draft before and after editing, since it may have cost a model call."""
    edited, preview, options = compaction.edited, compaction.preview, compaction.options
    if not preview.edits:
        delete_draft(edited)
        return replace(compaction, draft="")
    path = str(write_draft(edited, preview))
    amended = edit_summaries(edited, preview, options.actor) if options.edit else preview
    if amended is None:
        return replace(compaction, draft=path, aborted=True)
    if amended is not preview:
        write_draft(edited, amended)
    return replace(compaction, preview=amended, draft=path)


def accept_draft(
    before: EditedSession, preview: Preview, grown: int, *, edit: bool, actor: str
) -> Acceptance | None:
    """Keep a draft's edits and delete the draft. Return None if its summary was left empty."""
    amended = edit_summaries(before, preview, actor) if edit else preview
    if amended is None:
        return None
    view = read_only_compactor(before).accept(amended, actor=actor)
    delete_draft(before)
    return Acceptance(before, replace(before, view=view), amended.edits, grown)


def find_savings(before: View, after: View, strategies: Iterable[Strategy]) -> list[Saving]:
    """Return what each strategy saved between two views, in order of running. The savings sum to
    the difference of the views. Those of a replaced local edit count for its successor."""
    new = {edit.id for edit in subtract_edits(after, before)}
    local = [strategy for strategy in strategies if new and is_local(strategy)]
    rows = [_local_saving(before, strategy, new) for strategy in local]
    rows += [
        Saving(
            attempt.by,
            attempt.edits_applied,
            attempt.tokens_before - attempt.tokens_after,
            attempt.outcome,
            attempt.reason,
        )
        for attempt in after.attempts
    ]
    rest = before.tokens - after.tokens - sum(saving.saved for saving in rows)
    last = max((at for at, saving in enumerate(rows) if saving.edits), default=None)
    if last is not None:
        rows[last] = rows[last]._replace(saved=rows[last].saved + rest)
    return rows


def _local_saving(before: View, strategy: Strategy, new: set[str]) -> Saving:
    """Return what a local strategy saves in the end. Later edits may replace its edits."""
    edits = make_local_edits(before, [strategy])
    savings = [tokens_saved(before, edit) for edit in edits if edit.id in new]
    reason = "" if savings else "later strategies took over" if edits else "nothing to do"
    return Saving(
        repr(strategy), len(savings), sum(savings), "applied" if edits else "noop", reason
    )


# --- drafts ---------------------------------------------------------------------------------------

SUFFIX = ".refold-draft"
"""Not `.jsonl`: agents take every `*.jsonl` in their folders for a session."""
LOCK_SECONDS = 10.0
"""Seconds to wait for another process that changes the same drafts."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A compaction of one session that is not accepted yet."""

    tip: str
    """Tip of the transcript when it was made."""
    session: tuple[str, str]
    """Absolute path and id of the session."""
    base: tuple[str, ...]
    """Ids of the session's edits when it was made."""
    edits: tuple[Edit, ...]
    """The new edits, in order."""
    attempts: tuple[Attempt, ...] = ()


def draft_path(edited: EditedSession) -> Path | None:
    """Return the file of drafts, `FILE.refold-draft` beside the edits, if those have a file."""
    return edited.place and edited.place.with_name(
        edited.place.name.removesuffix(".refold") + SUFFIX
    )


def protect_edits(output: str | None, sessions: Iterable[EditedSession]) -> None:
    """Raise `click.UsageError` if *output* is a file of edits or drafts."""
    if not output or output == "-":
        return
    target = os.path.realpath(output)
    for edited in sessions:
        if target in {
            os.path.realpath(path) for path in (edited.place, draft_path(edited)) if path
        }:
            raise click.UsageError(f"{output} is where edits or drafts are kept")


def find_draft(edited: EditedSession) -> tuple[Preview, int] | None:
    """Return the draft of a session as a preview of it now, and the number of messages added since,
    which it leaves as they are; None if there is no draft.

    If no draft names this file and id, it is the latest draft for a history that the session
    continues. Raises `EditError` if the history or edits have changed since, `StoreError`.
    """
    draft, transcript = _find_match(edited, read_drafts(draft_path(edited))), edited.view.transcript
    if draft is None:
        return None
    if draft.tip not in transcript.tips:
        raise EditError(
            f"the history in {edited.name} has changed since the preview; preview it again"
        )
    if {edit.id for edit in edited.view.edits} != set(draft.base):
        raise EditError(
            f"the edits of {edited.name} have changed since the preview; preview it again"
        )
    view = replace(edited.view.apply(*draft.edits), attempts=draft.attempts)
    grown = len(transcript) - transcript.tips.index(draft.tip)
    return Preview(edited.view, view, draft.edits), grown


def find_drafts(sessions: Sequence[EditedSession]) -> list[tuple[EditedSession, Preview, int]]:
    """Return the sessions that have a draft, with it and the number of messages added since.

    Raises `EditError` if there is none, or one that no longer fits.
    """
    ready = [(edited, *draft) for edited in sessions if (draft := find_draft(edited))]
    if not ready:
        compact = f"refold compact {arguments_of(sessions[0])} --preview"
        raise EditError(f"there is no draft of {sessions[0].name}: {compact} makes one")
    return ready


def write_draft(edited: EditedSession, preview: Preview) -> Path:
    """Write a preview as a draft, in place of any of its session or history. Raises
    `StoreError`."""
    path = draft_path(edited)
    if path is None:
        raise StoreError(f"{edited.name}: there is no place for a draft; name a store")
    tip, base = edited.view.transcript.tips[-1], tuple(edit.id for edit in edited.view.edits)
    draft = Draft(tip, _session_key(edited), base, preview.edits, preview.attempts)
    with _lock_drafts(path):
        rest = [
            entry
            for entry in read_drafts(path)
            if entry.session != draft.session and entry.tip != draft.tip
        ]
        _write_drafts(path, [*rest, draft])
    return path


def delete_draft(edited: EditedSession) -> bool:
    """Delete the draft of a session, even an outdated one. Return whether it existed.

    Raises `StoreError`.
    """
    path = draft_path(edited)
    if path is None or not path.exists():
        return False
    with _lock_drafts(path):
        drafts = read_drafts(path)
        gone = _find_match(edited, drafts)
        if gone:
            _write_drafts(path, [draft for draft in drafts if draft != gone])
    return gone is not None


def _find_match(edited: EditedSession, drafts: Sequence[Draft]) -> Draft | None:
    session, tips = _session_key(edited), set(edited.view.transcript.tips)
    own = [draft for draft in drafts if draft.session == session]
    matches = own or [draft for draft in drafts if draft.tip in tips]
    return matches[-1] if matches else None


def _session_key(edited: EditedSession) -> tuple[str, str]:
    """Return the key of a session. One from standard input is identified by its content alone."""
    if edited.session.path == Path("-"):
        return "-", edited.view.transcript.tips[-1]
    return str(edited.session.path.resolve()), edited.session.id


# --- the file --------------------------------------------------------------------------------


def read_drafts(path: Path | None) -> list[Draft]:
    """Return the drafts in a file, latest last; none if it is missing. Raises `StoreError`."""
    try:
        lines = path.read_bytes().splitlines() if path else []
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{path}: cannot read: {error.strerror or error}") from error
    try:
        return [_read_draft(line) for line in lines]
    except (StoreError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{path}: not a Refold draft, or a damaged one: {error}") from error


def _read_draft(line: bytes) -> Draft:
    value = load(line)["draft"]
    path, id = value["session"]
    names = {field.name for field in fields(Attempt)}
    return Draft(
        tip=str(value["tip"]),
        session=(path, id),
        base=tuple(value["base"]),
        edits=tuple(read_edit(edit) for edit in value["edits"]),
        attempts=tuple(
            Attempt(**{k: v for k, v in attempt.items() if k in names})
            for attempt in value["attempts"]
        ),
    )


def _dump_draft(draft: Draft) -> bytes:
    value = {**asdict(draft), "edits": [edit_fields(edit) for edit in draft.edits]}
    return dump({"refold": FORMAT, "draft": value}).encode() + b"\n"


@contextmanager
def _lock_drafts(path: Path) -> Iterator[None]:
    """Keep other processes from changing a file of drafts during the block. Raises `StoreError`,
    `RefoldError` if another one does so for long."""
    try:
        with lock(path, LOCK_SECONDS):
            yield
    except OSError as error:
        raise StoreError(f"{path}: cannot write: {error.strerror or error}") from error


def _write_drafts(path: Path, drafts: Sequence[Draft]) -> None:
    """Replace the file atomically by these drafts, or delete it if there are none."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        if not drafts:
            path.unlink(missing_ok=True)
            return
        write_private(beside, b"".join(map(_dump_draft, drafts)))
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise StoreError(f"{path}: cannot write: {error.strerror or error}") from error


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, since sessions are private. Raises `OSError`."""
    with open(path, "wb", opener=open_private) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


# --- the user's editor -----------------------------------------------------------------------


def summaries(preview: Preview) -> dict[str, str]:
    """Return the visible summaries of a preview, by edit id."""
    shown = {placed.edit.id for placed in preview.view.visible_edits}
    return {id: text for id, text in preview.summaries().items() if id in shown}


def edit_summaries(edited: EditedSession, preview: Preview, actor: str) -> Preview | None:
    """Open the summaries in the user's editor, one by one. Return the amended preview, or None once
    one is left empty.

    Unchanged summaries stay. Raises `EditError` if there is none, or for an invalid summary (the
    text then stays in its file), `click.ClickException` if the editor fails.
    """
    texts = summaries(preview)
    if not texts:
        raise EditError(f"{edited.name}: nothing to edit: no summary is among these edits")
    path = _editor_file(edited)
    for id, text in texts.items():
        before = text.encode("utf-8", "backslashreplace").strip()
        after = _open_editor(path, before)
        if after and after != before:
            try:
                preview = amend_summary(preview, id, after.decode("utf-8", "replace"), actor)
            except RefoldError as error:
                raise EditError(f"{error}; your text is in {path}") from error
        path.unlink(missing_ok=True)
        if not after:
            return None
    return preview


def amend_summary(preview: Preview, id: str, text: str, actor: str) -> Preview:
    """Return *preview* with *text* as the summary of edit *id*. The reason of the edit's attempt
    names *actor*. Raises `EditError`."""
    amended, edit = preview.amend(id, text), preview.view.find(id)
    attempts, note = list(preview.attempts), f"amended by {actor}"
    for at, attempt in enumerate(attempts):
        if attempt.by == edit.by and note not in attempt.reason.split("; "):
            reason = "; ".join(filter(None, (attempt.reason, note)))
            attempts[at] = replace(attempt, reason=reason)
    return replace(amended, view=replace(amended.view, attempts=tuple(attempts)))


def _open_editor(path: Path, text: bytes) -> bytes:
    write_private(path, text + b"\n")
    click.edit(filename=str(path))
    return path.read_bytes().strip() if path.exists() else b""


def _editor_file(edited: EditedSession) -> Path:
    """Return the file for the editor. Raises `click.UsageError` if no editor can be used."""
    path = draft_path(edited)
    if path is None:
        raise click.UsageError(
            "a session from standard input has no place for what is edited: name a --store"
        )
    has_editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not (has_editor or (sys.stdin and sys.stdin.isatty())):
        raise click.UsageError("--edit needs a terminal, or an editor in $VISUAL or $EDITOR")
    if terminal.err().is_terminal:
        terminal.warn("opening the summary; leave it empty to keep nothing")
    return path.with_name(path.name + ".md")
