"""What the commands that change edits print for people."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from refold.cli import terminal
from refold.cli.compaction import WINDOW_SHARE, Acceptance, Compaction
from refold.cli.drafts import summaries
from refold.cli.read_output import argument_of, title
from refold.cli.terminal import (
    Line,
    bar,
    clean,
    dollars,
    plural,
    short,
    table,
    tokens,
)
from refold.compactor.by_hand import Preview
from refold.core.view import View
from refold.core.view_lines import Saving, describe_strategy, first_words, span_text
from refold.edits import Edit, Losses
from refold.session_files.edited import EditedSession
from refold.session_files.export import CLIENTS, Exported

MOST = 10
"""Things of a kind that are listed one by one."""


def show_compactions(compactions: Sequence[Compaction]) -> Iterator[Line]:
    """Show the outcome of each compaction."""
    if len(compactions) == 1:
        yield from _compaction(compactions[0])
    else:
        for compaction in compactions:
            yield Line(f"{_outcome(compaction)}  {title(compaction.edited)}")
        before = sum(compaction.edited.view.tokens for compaction in compactions)
        after = sum(compaction.preview.view.tokens for compaction in compactions)
        total = f"{tokens(before)} → {tokens(after)} tokens in {len(compactions):,} sessions"
        yield Line(total, "bold")
    for compaction in compactions:
        if compaction.exported:
            yield from show_export(compaction.exported)


def _compaction(compaction: Compaction) -> Iterator[Line]:
    before, after = compaction.edited.view, compaction.preview.view
    yield Line(title(compaction.edited), "bold")
    room = max(10, min(40, terminal.out().width - 24))
    sizes = [("before", before.tokens, "cyan"), ("after", after.tokens, "green")]
    if before.edits:
        sizes.insert(0, ("unedited", before.tokens_unedited, "cyan"))
    for label, count, style in sizes:
        drawn = bar(count, max(before.tokens_unedited, 1), room)
        yield Line.assemble((f"{label:<8}", "dim"), f"{count:>11,}  ", (drawn, style))
    if lines := list(strategy_table(compaction.savings, verbose=compaction.plan.verbose)):
        yield Line()
        yield from lines
    if compaction.draft is not None:
        yield from _preview(compaction.preview)
    yield Line()
    yield from map(Line, _costs(compaction))
    yield Line(_outcome(compaction), "bold green" if compaction.fits else "bold yellow")
    yield from (Line(line, "dim") for line in _next_steps(compaction))
    edited = compaction.edited
    if compaction.file and not compaction.exported and edited.session.client in CLIENTS:
        name = argument_of(edited)
        yield Line(f"refold export {name}    writes a session that its client goes on with")


def show_export(exported: Exported) -> Iterator[Line]:
    """Show where a session was written, and how to go on with it."""
    yield Line(f"written to {exported.path}")
    yield Line(f"go on with: {exported.command}")


def _next_steps(compaction: Compaction) -> Iterator[str]:
    """Yield where the result is, and what one can do with it."""
    edited = compaction.edited
    name = argument_of(edited)
    if compaction.plan.dry_run:
        yield "nothing was written (--dry-run)"
    elif compaction.draft:
        yield f"the draft is in {terminal.argument(compaction.draft)}"
        yield f"refold accept {name}    keeps it; --edit opens the summary first"
        yield f"refold discard {name}   drops it"
    elif not compaction.preview.edits and edited.view.tokens <= compaction.to:
        if compaction.plan.pins:
            yield f"nothing was compacted, so --pin keeps nothing yet: refold revert {name} takes earlier edits back"
        half = max(1, edited.view.tokens // 2_000)
        yield f"refold compact {name} --to {half}k --preview    what half of it would lose"
    elif compaction.draft is not None:
        yield "there is nothing to keep"
    elif compaction.file:
        yield f"edits are in {terminal.argument(compaction.file)}; the session is as it was"
        yield f"refold diff {name}      what the model would see now"
        yield f"refold revert {name}    takes it back"


def _costs(compaction: Compaction) -> Iterator[str]:
    preview = compaction.preview
    if preview.calls:
        cost = f", {dollars(preview.cost)}" if preview.cost else ""
        yield f"{plural(preview.calls, 'model call')}{cost}"
    if prices := compaction.prices:
        before, after = map(dollars, prices)
        yield f"each further request: {before} → {after} of input"


def _outcome(compaction: Compaction) -> str:
    to, plan = compaction.to, compaction.plan
    before, after = compaction.edited.view.tokens, compaction.preview.view.tokens
    goal = f"{to:,}" if plan.to is not None else f"{to:,}, {WINDOW_SHARE:.0%} of the window"
    if before <= to:
        return f"{before:,} tokens: fits {goal} as it is"
    result = f"fits {goal}" if after <= to else f"target of {goal} not met, this is the least"
    less = f" ({1 - after / before:.0%} less)" if after < before else ""
    return f"{before:,} → {after:,} tokens{less}: {result}"


def strategy_table(savings: Sequence[Saving], *, verbose: bool = False) -> Iterator[Line]:
    """Show in words what each strategy did; if *verbose* all of them, with their settings."""
    rows = [
        _saving_row(saving, verbose=verbose)
        for saving in savings
        if verbose or saving.edits or saving.outcome not in ("applied", "noop")
    ]
    return table(("edits>", "saved>", "what"), rows)


def _saving_row(saving: Saving, *, verbose: bool) -> tuple[str, ...]:
    outcome = "" if saving.outcome == "applied" else saving.outcome
    if saving.outcome == "no_headroom":
        return "", "", clean(f"all together: {saving.reason}")
    words = (
        f"{describe_strategy(saving.by)} [{saving.by}]" if verbose else describe_strategy(saving.by)
    )
    text = ": ".join(filter(None, (words, outcome, saving.reason)))
    return f"{saving.edits:,}", f"{saving.saved:,}", clean(text)


# --- previews --------------------------------------------------------------------------------


def _preview(preview: Preview) -> Iterator[Line]:
    """Show each edit, each summary in full, and the losses."""
    shown = [placed.edit for placed in preview.view.visible_edits if placed.edit in preview.edits]
    if shown:
        yield Line()
    for edit in shown:
        yield Line(_edit_line(preview.view, edit))
    if hidden := len(preview.edits) - len(shown):
        yield Line(f"… and {hidden:,} more under these", "dim")
    counts = Counter(edit.by for edit in preview.edits)
    runs = (attempt.edits_applied - counts[attempt.by] for attempt in preview.attempts)
    if dropped := sum(count for count in runs if count > 0):
        yield Line(f"… {dropped:,} more, in what these hide, are not kept", "dim")
    for id, text in summaries(preview).items():
        yield Line()
        yield Line(f"the summary that edit {id[:8]} shows", "bold")
        for line in clean(text).split("\n"):
            yield Line(f"    {line}")
    yield from loss_lines(preview.losses)


def _edit_line(view: View, edit: Edit) -> str:
    hidden = view.base.tokens(edit.start, edit.stop)
    shown = sum(map(view.profile.count, edit.insert))
    place, by = span_text(edit.start, edit.stop), describe_strategy(edit.by)
    return f"{edit.id[:8]} {place} {hidden:,} → {shown:,} tokens  {by}"


def loss_lines(losses: Losses) -> Iterator[Line]:
    """Show what no longer appears, by kind, with message and line."""
    for kind, items in groupby(losses.items, lambda loss: loss.kind):
        texts = list(items)
        yield Line()
        yield Line(f"{kind.replace('_', ' ')} that no longer appear", "bold yellow")
        for loss in texts[:MOST]:
            place = "" if loss.at is None else f"#{loss.at}:{loss.line}"
            yield Line(f"    {place:<9} {short(loss.text, 160)}", "yellow")
        if len(texts) > MOST:
            yield Line(f"    … and {len(texts) - MOST:,} more (--json lists all)", "dim")


# --- accept, discard, revert -----------------------------------------------------------------


def show_acceptances(acceptances: Iterable[Acceptance], actor: str) -> Iterator[Line]:
    """Show which edits are kept, and who accepted them."""
    for acceptance in acceptances:
        step = _step(acceptance.before, acceptance.after)
        edits = f"{plural(len(acceptance.edits), 'edit')} accepted by {clean(actor)}"
        yield Line(f"{argument_of(acceptance.before)}: {edits}, {step}")
        if acceptance.grown:
            grown = f"{acceptance.grown:,} messages were said since the preview"
            yield Line(f"{grown}; they are shown as they were said", "dim")
        yield Line(f"edits are in {terminal.argument(acceptance.file)}", "dim")


def show_discards(rows: Iterable[tuple[EditedSession, bool]]) -> Iterator[Line]:
    """Show whose drafts are gone."""
    for edited, existed in rows:
        result = "the draft is discarded" if existed else "no draft to discard"
        yield Line(f"{argument_of(edited)}: {result}")


def show_reverts(
    rows: Iterable[tuple[EditedSession, Sequence[Edit], EditedSession]],
) -> Iterator[Line]:
    """Show which edits were taken back."""
    for before, edits, after in rows:
        for edit in edits[:MOST]:
            beginning = clean(first_words(before.view.transcript.messages[edit.start], 60))
            yield Line(f"{edit.id[:8]} {span_text(edit.start, edit.stop)} {beginning}", "dim")
        if len(edits) > MOST:
            yield Line(f"… and {len(edits) - MOST:,} more (--json lists all)", "dim")
        result = f"{plural(len(edits), 'edit')} taken back, {_step(before, after)}"
        result = result if edits else "no edits to take back"
        yield Line(f"{argument_of(before)}: {result}")


def _step(before: EditedSession, after: EditedSession) -> str:
    return f"{before.view.tokens:,} → {after.view.tokens:,} tokens"
