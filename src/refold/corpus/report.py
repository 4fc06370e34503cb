"""What unrolling a corpus came to: figures, and a page with plots that loads nothing."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from math import log2

from refold.core.view_html import STYLE
from refold.corpus.segments import Segment
from refold.text.json_values import JsonObject, Record

BAR, HEIGHT = 34, 150
"""Pixels of a bar's place and of a plot."""
MOST = 24
"""Bars of a plot; what is beyond counts in the last."""


@dataclass
class SegmentCount:
    """What is counted of one conversation while its segments come."""

    recorded: int = 0
    after: list[int] = field(default_factory=list)
    """Tokens of each segment."""
    edits: dict[str, JsonObject] = field(default_factory=dict)

    def add(self, segment: Segment) -> None:
        """Count a segment."""
        self.recorded = segment.recorded
        self.after.append(segment.row["tokens"])
        self.edits.update((edit["id"], edit) for edit in segment.row["edits"])

    def tally(self) -> Counter[str]:
        """Return the counts, of the table and the report at the end."""
        after, before = self.after, self.recorded
        tally = Counter(sessions=1, segments=len(after), before=before, after=sum(after))
        tally[f"length before/{_bucket_of(before)}"] += 1
        tally[f"segments of one/{len(after)}"] += 1
        for tokens in after:
            tally[f"length after/{_bucket_of(tokens)}"] += 1
        for edit in self.edits.values():
            name = edit["by"].partition("(")[0]
            tally[f"edits/{name}"] += 1
            tally[f"messages cut/{name}"] += edit["stop"] - edit["start"]
            tally[f"tokens cut/{name}"] += edit["saved"]
        return tally


def _bucket_of(tokens: int) -> int:
    """Return the bucket of a length: two to a doubling."""
    return int(2 * log2(max(1, tokens)))


def summarize(tally: Counter[str]) -> dict[str, int]:
    """Return the figures of a run: `sessions`, `segments`, `bad` (rows that could not be read),
    `tokens_before` (of the sessions as recorded) and `tokens_after` (of all segments)."""
    return {
        **{name: tally[name] for name in ("sessions", "segments", "bad")},
        "tokens_before": tally["before"],
        "tokens_after": tally["after"],
    }


def list_cuts(tally: Counter[str]) -> list[Record]:
    """Return what each strategy cut: `strategy`, `edits`, `messages` and `tokens`, most first."""
    names = [key.partition("/")[2] for key in tally if key.startswith("edits/")]
    cuts = [
        {
            "strategy": name,
            "edits": tally[f"edits/{name}"],
            "messages": tally[f"messages cut/{name}"],
            "tokens": tally[f"tokens cut/{name}"],
        }
        for name in names
    ]
    return sorted(cuts, key=lambda cut: (-cut["tokens"], cut["strategy"]))


def report_page(tally: Counter[str], title: str) -> str:
    """Return a whole page about a run."""
    lengths = [
        (f"Tokens of a {noun}", _bars(tally, f"length {when}", _length_label))
        for noun, when in (("session as recorded", "before"), ("segment", "after"))
    ]
    plots = [*lengths, ("Segments of a session", _bars(tally, "segments of one", str))]
    figures = "".join(
        f"<tr><td>{escape(name.replace('_', ' '))}</td><td>{value:,}</td></tr>"
        for name, value in summarize(tally).items()
    )
    rows = "".join(
        f"<tr><td>{escape(str(cut['strategy']))}</td>"
        + "".join(f"<td>{cut[name]:,}</td>" for name in ("edits", "messages", "tokens"))
        + "</tr>"
        for cut in list_cuts(tally)
    )
    drawn = "".join(f"<h2>{name}</h2>{_draw(bars)}" for name, bars in plots)
    head = "<tr><th>strategy</th><th>edits</th><th>messages</th><th>tokens</th></tr>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}{_STYLE}</style></head>"
        f'<body class="refold"><h1>{escape(title)}</h1><table>{figures}</table>{drawn}'
        f"<h2>What was cut</h2><table>{head}{rows}</table></body></html>\n"
    )


_STYLE = """\
.refold td:not(:first-child),.refold th:not(:first-child){text-align:right}
.refold td,.refold th{padding:2px 14px 2px 0;font-variant-numeric:tabular-nums;text-align:left}
.refold svg{max-width:100%;height:auto;overflow:visible;font-size:9px}
.refold rect{fill:var(--accent)}.refold text{fill:var(--ink3);text-anchor:middle}
"""


def _bars(tally: Counter[str], name: str, label: Callable[[int], str]) -> list[tuple[str, int]]:
    """Return the bars of a plot, with those between that are empty."""
    counts = Counter[int]()
    for key, count in tally.items():
        head, _, number = key.partition("/")
        if head == name:
            counts[int(number)] += count
    if not counts:
        return []
    first = min(counts)
    last = min(max(counts), first + MOST - 1)
    bars = [(label(at), counts[at]) for at in range(first, last + 1)]
    beyond = sum(count for at, count in counts.items() if at > last)
    return [*bars[:-1], (f"{label(last)}+", counts[last] + beyond)] if beyond else bars


def _length_label(bucket: int) -> str:
    """Return the tokens from which a bucket counts."""
    tokens = 2 ** (bucket / 2)
    return f"{tokens / 1_000:.3g}k" if tokens >= 1_000 else f"{tokens:.0f}"


def _draw(bars: Sequence[tuple[str, int]]) -> str:
    most = max((count for _, count in bars), default=1)
    width = max(1, len(bars)) * BAR
    return (
        f'<svg width="{width}" height="{HEIGHT + 30}" viewBox="0 -12 {width} {HEIGHT + 30}">'
        + "".join(_draw_bars(bars, most))
        + "</svg>"
    )


def _draw_bars(bars: Sequence[tuple[str, int]], most: int) -> Iterator[str]:
    for at, (label, count) in enumerate(bars):
        height = round(HEIGHT * count / most)
        middle, top = at * BAR + BAR // 2, HEIGHT - height
        yield f'<rect x="{at * BAR + 2}" y="{top}" width="{BAR - 4}" height="{height}"/>'
        yield f'<text x="{middle}" y="{HEIGHT + 12}">{label}</text>'
        if count:
            yield f'<text x="{middle}" y="{top - 3}">{count:,}</text>'
