"""Identifiers that tool calls need: how many are still in the request, and at what price.

An identifier is needed if a call uses it for the first time and an earlier tool result introduced
it: `replay.STRUCTURED`, in tau2-bench `DOMAIN`.

python -m benchmarks.kept [datasets, by default ../shared/datasets or $REFOLD_SHARED/datasets]
"""

import os
import re
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from benchmarks.replay import Recording, Replay
from benchmarks.table import table
from refold.budget.budget import Budget
from refold.codecs.detect import open_payload
from refold.compactor.compactor import Compactor
from refold.core.strategy import Steps, Strategy
from refold.core.tool_groups import map_parts
from refold.core.view import View
from refold.messages import Part, Text, ToolResult, user
from refold.session_files import read, read_all, with_calls
from refold.strategies import (
    ClearThinking,
    ClearToolInputs,
    ClearToolResults,
    DropDuplicates,
    Summarize,
)
from refold.tokens.count import count_message

ROOT = Path(__file__).parent.parent
DOMAIN = re.compile(r"(?=[A-Za-z_-]*\d|[A-Za-z0-9-]*_)[A-Za-z0-9_-]{4,}")
"""Identifiers of domain tools: words of at least 4 characters with a digit or an underscore, such
as reservation and payment ids, flight numbers and dates."""


counted = lru_cache(maxsize=10_000)(count_message)
"""Token counter shared by all policies, which counts each message once."""


# --- policies -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class LastTokens:
    """Show the newest messages of at most *tokens* tokens, from a legal cut on, and a line for the
    rest.

    This is not a strategy, because the engine refuses to hide the current request and this hides
    it.
    """

    tokens: int

    def __call__(self, view: View) -> View:
        """Fold the older messages."""
        cut = cut_for(view.base.token_sums, sorted(view.cuts), len(view.transcript), self.tokens)
        if cut <= 1:
            return view
        left_out = user("[earlier messages left out]")
        return view.apply(view.fold(0, cut, left_out, by=repr(self)))


@dataclass(frozen=True)
class ClearAllBut:
    """Show `[cleared]` instead of the tool results of all messages but the newest *keep*, at every
    call."""

    keep: int = 4

    def __call__(self, view: View) -> Steps:
        """Replace each message with old results that is not cleared yet."""
        done = {placed.edit.start for placed in view.visible_edits}
        with_results = [
            at for at, message in enumerate(view.transcript.messages) if message.results
        ]
        for at in with_results[: -self.keep]:
            if at not in done:
                yield view.replace(
                    at, map_parts(view.transcript.messages[at], _clear), by=repr(self)
                )


def _clear(part: Part) -> Part:
    return replace(part, content=(Text("[cleared]"),)) if isinstance(part, ToolResult) else part


def cut_for(sums: Sequence[int], cuts: Sequence[int], end: int, tokens: int) -> int:
    """Return the earliest legal cut with at most *tokens* tokens after it, else the latest before
    the end."""
    first = bisect_left(sums, sums[end] - tokens, 0, end)
    at = min(bisect_left(cuts, first), bisect_left(cuts, end) - 1)
    return cuts[at]


def last_tokens(recording: Recording, sent: int) -> LastTokens:
    """Return the window that sends *sent* tokens over all calls, as nearly as cuts allow."""
    view = compactor(recording, [], 2, 2)(recording.payload)
    sums, cuts = view.base.token_sums, sorted(view.cuts)

    def total(window: int) -> int:
        starts = ((at, cut_for(sums, cuts, at, window)) for at in recording.calls)
        return sum(sums[at] - sums[start] for at, start in starts)

    low, high = 0, sums[-1]
    while high - low > max(20, sums[-1] // 1_000):
        middle = (low + high) // 2
        low, high = (low, middle) if total(middle) > sent else (middle, high)
    return LastTokens(min(low, high, key=lambda window: abs(total(window) - sent)))


def ours(size: int) -> list[Strategy]:
    """Return Refold's strategies for a session of *size* tokens. The summary is capped at a tenth
    of it, at least 600 and at most 4,000 tokens."""
    cap = max(600, min(4_000, size // 10))
    return [
        DropDuplicates(),
        ClearThinking(),
        Summarize(0.3, cap),
        ClearToolResults(),
        ClearToolInputs(),
    ]


TRIGGERS = (0.40, 0.24, 0.18)
"""Shares of a session's full size at which Refold compacts, chosen once for all sessions so that at
most about 1/2, 1/3 and 1/4 of the tokens are sent."""
TARGET = 0.75
"""Target as a share of the trigger."""


def compactor(
    recording: Recording, strategies: Sequence[Strategy], trigger: float, target: float
) -> Compactor:
    """Return a compactor for one replay; trigger and target are shares of the session's full
    size."""
    codec = open_payload(recording.payload).codec
    size, fixed = recording.size, recording.fixed
    at_every_call = {"progress": 0.0, "hysteresis": 0.0} if trigger == 0 else {}
    budget = Budget(fixed + int(trigger * size), fixed + int(target * size), **at_every_call)
    return Compactor(strategies, budget, format=codec.NAME, count=counted)


def measure(recording: Recording) -> dict[str, Replay]:
    """Run every policy on one recording."""

    def run(strategies: Sequence[Strategy], trigger: float, target: float) -> Replay:
        return recording.replay(compactor(recording, strategies, trigger, target))

    rows = {"everything kept": run([], 2, 2), "clear all but 4": run([ClearAllBut(4)], 0, 0)}
    for trigger in TRIGGERS:
        mine = run(ours(recording.size), trigger, trigger * TARGET)
        rows[f"last N tokens, as many as at {trigger:.0%}"] = recording.replay(
            compactor(recording, [], 2, 2), last_tokens(recording, mine.tokens)
        )
        rows[f"ours, trigger {trigger:.0%}"] = mine
    return rows


# --- datasets -----------------------------------------------------------------------------------


def datasets(root: Path) -> Iterator[tuple[str, list[Recording]]]:
    """Yield the name and recordings of each dataset; an absent one has no recordings."""
    for path in [root / "pi_sessions/large-session.jsonl"]:
        yield "pi", [Recording(read(path).payload)] if path.exists() else []
    for name in ("258c7280-ae70-4798-800f-63464d01a85d", "ae4a77f8-aedd-4bc1-888f-c94edc91af04"):
        path = root / f"claude_code_spotter/{name}.jsonl"
        yield f"Claude Code {name[:8]}", [Recording(read(path).payload)] if path.exists() else []
    paths = sorted(root.glob("miniswe_gemini3/trajs/*.json"))
    yield "mini-swe-agent", [Recording(with_calls(read(path)).payload) for path in paths]
    paths = sorted(root.glob("tau2_bench/*.json"))
    runs = (session for path in paths for session in read_all(path))
    yield "tau2-bench", [Recording(session.payload, DOMAIN) for session in runs]


# --- the page -----------------------------------------------------------------------------------


def cells(name: str, row: Replay, full: Replay) -> list[str]:
    """Return one row of the table."""
    survivors = " / ".join(str(row.survived.get(place, 0)) for place in ("tail", "stub", "summary"))
    return [
        name,
        f"{row.tokens / 1e6:.2f} M",
        f"{row.tokens / full.tokens:.0%}",
        f"{row.recall:.1%}",
        survivors,
        str(row.breaks),
    ]


def sum_by_policy(runs: Iterable[dict[str, Replay]]) -> dict[str, Replay]:
    """Return the sums over all recordings of a dataset by policy."""
    total: dict[str, Replay] = {}
    for rows in runs:
        for policy, row in rows.items():
            total[policy] = total.get(policy, Replay()) + row
    return total


def report(name: str, many: int, rows: dict[str, Replay]) -> str:
    """Return the heading and the table of a dataset."""
    full = rows["everything kept"]
    summary = f"{many} conversation{'s' * (many > 1)}, {full.calls:,} calls, {full.needed:,} identifiers needed"
    head = ["policy", "tokens sent", "of all", "recall", "in tail / stub / summary", "cache breaks"]
    return f"{name}: {summary}\n\n" + table(
        head, [cells(policy, row, full) for policy, row in rows.items()]
    )


def main() -> None:
    """Print a table for each dataset."""
    shared = Path(os.environ.get("REFOLD_SHARED", ROOT.parent / "shared"))
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else shared / "datasets"
    with ProcessPoolExecutor(2) as pool:
        for name, recordings in datasets(root):
            if recordings:
                rows = sum_by_policy(pool.map(measure, recordings))
                print(f"\n{report(name, len(recordings), rows)}", flush=True)
            else:
                print(f"\n{name}: not there, skipped")


if __name__ == "__main__":
    main()
