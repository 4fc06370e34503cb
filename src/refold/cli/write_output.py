"""What the commands that change edits print for people."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from refold.cli import terminal
from refold.cli.compaction import Acceptance, Compaction, dollars, summaries
from refold.cli.edited_session import EditedSession, Share
from refold.cli.message_lines import gist, span_text
from refold.cli.read_output import title
from refold.cli.terminal import bar, clean, grid, plural, print_line, short, tokens
from refold.compactor.preview import Preview
from refold.core.view import View
from refold.edits import Edit

MOST = 10
"""Things of a kind that are listed one by one."""


def show_compactions(compactions: Sequence[Compaction], console: Console) -> None:
    """Print the outcome of each compaction."""
    if len(compactions) == 1:
        _show_compaction(compactions[0], console)
        return
    for compaction in compactions:
        print_line(console, f"{_outcome(compaction)}  {title(compaction.edited)}")
    before = sum(compaction.edited.view.tokens for compaction in compactions)
    after = sum(compaction.preview.view.tokens for compaction in compactions)
    total = f"{tokens(before)} → {tokens(after)} tokens in {len(compactions):,} sessions"
    console.print(Text(total, style="bold"))


def _show_compaction(compaction: Compaction, console: Console) -> None:
    before, after = compaction.edited.view, compaction.preview.view
    print_line(console, title(compaction.edited), "bold")
    for label, count in (
        ("said", before.tokens_unedited),
        ("before", before.tokens),
        ("after", after.tokens),
    ):
        drawn = (
            bar(count, max(before.tokens_unedited, 1), 40),
            "green" if label == "after" else "cyan",
        )
        console.print(Text.assemble((f"{label:<7}", "dim"), f"{count:>11,} ", drawn))
    if compaction.shares:
        console.print()
        console.print(strategy_table(compaction.shares))
    if compaction.draft is not None:
        _show_preview(compaction.preview, console)
    console.print()
    for text in _costs(compaction):
        print_line(console, text)
    fits = after.tokens <= compaction.to
    console.print(Text(_outcome(compaction), style="bold green" if fits else "bold yellow"))
    if place := _place(compaction):
        print_line(console, place)


def _place(compaction: Compaction) -> str:
    """Return where the result is."""
    name = clean(compaction.edited.name)
    if compaction.dry_run:
        return "nothing was written (--dry-run)"
    if compaction.draft:
        return f"the draft is in {clean(compaction.draft)}; keep it: refold accept {name}"
    if compaction.draft is not None:
        return "there is nothing to keep"
    return f"edits are in {clean(compaction.file)}; {name} is as it was" if compaction.file else ""


def _costs(compaction: Compaction) -> Iterator[str]:
    preview = compaction.preview
    if preview.calls:
        cost = f", {dollars(preview.cost)}" if preview.cost else ""
        yield f"{plural(preview.calls, 'model call')}{cost}"
    if compaction.prices:
        before, after = map(dollars, compaction.prices)
        yield f"each further request: {before} → {after} of input"


def _outcome(compaction: Compaction) -> str:
    to = compaction.to
    before, after = compaction.edited.view.tokens, compaction.preview.view.tokens
    if before <= to:
        return f"{before:,} tokens: fits {to:,} as it is"
    result = f"fits {to:,}" if after <= to else f"target of {to:,} not met, {after - to:,} over"
    return f"{before:,} → {after:,} tokens: {result}"


def strategy_table(shares: Sequence[Share]) -> Table:
    """Return what each strategy did, as a table."""
    rows = grid("strategy~", "edits>", "saved>", "~")
    for share in shares:
        outcome = "" if share.outcome == "applied" else share.outcome
        note = ": ".join(filter(None, (outcome, share.reason)))
        rows.add_row(clean(share.by), f"{share.edits:,}", f"{share.saved:,}", note)
    return rows


# --- previews --------------------------------------------------------------------------------


def _show_preview(preview: Preview, console: Console) -> None:
    """Print each edit, each summary in full, and the losses."""
    shown = [placed.edit for placed in preview.view.visible_edits if placed.edit in preview.edits]
    if shown:
        console.print()
    for edit in shown:
        print_line(console, _edit_line(preview.view, edit))
    if hidden := len(preview.edits) - len(shown):
        print_line(console, f"… and {hidden:,} more under these", "dim")
    for id, text in summaries(preview).items():
        console.print()
        print_line(console, f"the summary that edit {id[:8]} shows", "bold")
        for line in clean(text).split("\n"):
            print_line(console, f"    {line}")
    for kind in ("requests", "constraints", "paths", "identifiers"):
        _show_losses(kind, getattr(preview.losses, kind), console)


def _edit_line(view: View, edit: Edit) -> str:
    hidden = view.base.tokens(edit.start, edit.stop)
    shown = sum(map(view.profile.count, edit.insert))
    place, by = span_text(edit.start, edit.stop), short(edit.by, 60)
    return f"{edit.id[:8]} {place} {hidden:,} → {shown:,} tokens  {by}"


def _show_losses(kind: str, texts: Sequence[str], console: Console) -> None:
    if not texts:
        return
    console.print()
    print_line(console, f"{kind} that no longer appear", "bold yellow")
    for text in texts[:MOST]:
        print_line(console, f"    {short(text, 160)}", "yellow")
    if len(texts) > MOST:
        print_line(console, f"    … and {len(texts) - MOST:,} more (--json lists all)", "dim")


# --- accept, discard, revert -----------------------------------------------------------------


def show_acceptances(acceptances: Sequence[Acceptance], actor: str) -> None:
    """Print which edits are kept, and who accepted them."""
    console = terminal.out()
    for acceptance in acceptances:
        step = _step(acceptance.before, acceptance.after)
        edits = f"{plural(len(acceptance.edits), 'edit')} accepted by {clean(actor)}"
        print_line(console, f"{clean(acceptance.before.name)}: {edits}, {step}")
        if acceptance.grown:
            grown = f"{acceptance.grown:,} messages were said since the preview"
            print_line(console, f"{grown}; they are shown as they were said", "dim")
        print_line(console, f"edits are in {clean(acceptance.file)}", "dim")


def show_discards(rows: Sequence[tuple[EditedSession, bool]]) -> None:
    """Print whose drafts are gone."""
    for edited, existed in rows:
        result = "the draft is discarded" if existed else "no draft to discard"
        print_line(terminal.out(), f"{clean(edited.name)}: {result}")


def show_reverts(rows: Sequence[tuple[EditedSession, Sequence[Edit], EditedSession]]) -> None:
    """Print which edits were taken back."""
    console = terminal.out()
    for before, edits, after in rows:
        for edit in edits[:MOST]:
            beginning = gist(before.view.transcript.messages[edit.start], 60)
            line = f"{edit.id[:8]} {span_text(edit.start, edit.stop)} {beginning}"
            console.print(Text(line, style="dim"), no_wrap=True)
        if len(edits) > MOST:
            rest = f"… and {len(edits) - MOST:,} more (--json lists all)"
            console.print(Text(rest, style="dim"))
        result = f"{plural(len(edits), 'edit')} taken back, {_step(before, after)}"
        result = result if edits else "no edits to take back"
        print_line(console, f"{clean(before.name)}: {result}")


def _step(before: EditedSession, after: EditedSession) -> str:
    return f"{before.view.tokens:,} → {after.view.tokens:,} tokens"
