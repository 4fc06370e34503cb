"""A chart of tied recall against cost, as SVG: `docs/evidence.svg`."""

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from benchmarks.evidence.peers import all_policies
from benchmarks.evidence.policies import REFERENCE
from benchmarks.evidence.replay import replay
from benchmarks.evidence.sessions import ROOT, Session, load_sessions
from benchmarks.evidence.visible import Score

PLACE = ROOT / "docs" / "evidence.svg"
WINDOWS = (15_000, 30_000)
LEAST_SESSION = 45_000
WIDTH, HEIGHT = 960, 560
LEFT, TOP, RIGHT, BOTTOM = 60, 50, 310, 60
"""Margins; the right one holds the names."""
BILLS = (40, 50, 60, 70, 80, 90, 100, 120, 150, 200, 250, 300)
"""Labels of the logarithmic axis: a cache that breaks at every call is expensive."""
LINE = 17
"""Pixels between two names."""
STYLE = """
text { font: 12px sans-serif; fill: #57606a } .title { font-size: 15px; fill: #24292f }
.axis { stroke: #8c959f } .grid { stroke: #d0d7de; stroke-width: .5 } .lead { stroke: #8c959f; stroke-width: .5 }
.line { fill: none; stroke: #8c959f } .dot { fill: #8c959f }
.ours .line { stroke: #0969da; stroke-width: 2.5 } .ours .dot { fill: #0969da }
.ours text { fill: #0969da; font-weight: bold }
@media (prefers-color-scheme: dark) {
  text { fill: #9198a1 } .title { fill: #f0f6fc } .axis { stroke: #656c76 } .grid { stroke: #3d444d }
  .line { stroke: #656c76 } .dot { fill: #656c76 }
  .ours .line { stroke: #4493f8 } .ours .dot { fill: #4493f8 } .ours text { fill: #4493f8 }
}
"""


class Place(NamedTuple):
    """Bill of a policy in % of no compaction, and its tied recall in %."""

    bill: float
    tied: float


Curves = Mapping[str, Sequence[Place]]
"""Places by policy, from the smallest window to the largest."""


def measure(job: tuple[Sequence[Session], str, int]) -> Place:
    """Replay all sessions under one policy at one window."""
    sessions, name, window = job
    total = Score()
    for session in sessions:
        total += replay(session, all_policies()[name], window)
    return Place(100 * total.dollars / total.full_dollars, 100 * total.tied / total.names)


class Scale(NamedTuple):
    """A linear scale from values to pixels."""

    lowest: float
    highest: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        share = (value - self.lowest) / (self.highest - self.lowest)
        return round(self.start + share * (self.stop - self.start), 1)


def spread(heights: Sequence[float]) -> list[float]:
    """Move names apart that are too close, downwards, and up again if they leave the chart."""
    order = sorted(range(len(heights)), key=lambda at: heights[at])
    places, last = list(heights), float("-inf")
    for at in order:
        places[at] = last = max(heights[at], last + LINE)
    last = HEIGHT - BOTTOM + LINE
    for at in reversed(order):
        places[at] = last = min(places[at], last - LINE)
    return places


def draw(curves: Curves, title: str) -> str:
    """Draw the curves, with the names at the right at the height of their last place."""
    every = [place for places in curves.values() for place in places]
    bills, ties = [math.log(place.bill) for place in every], [place.tied for place in every]
    x = Scale(min(bills) - 0.05, max(bills) + 0.05, LEFT, WIDTH - RIGHT)
    y = Scale(min(ties) - 1, max(ties) + 1, HEIGHT - BOTTOM, TOP)
    heights = spread([y(places[-1].tied) for places in curves.values()])
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
            f"<title>{escape(title)}</title><style>{STYLE}</style>",
            f'<text class="title" x="{LEFT}" y="24">{escape(title)}</text>',
            *draw_axes(x, y),
            *(
                line
                for (name, places), height in zip(curves.items(), heights, strict=True)
                for line in draw_curve(
                    name, [(x(math.log(p.bill)), y(p.tied)) for p in places], height
                )
            ),
            "</svg>\n",
        )
    )


def draw_axes(x: Scale, y: Scale) -> Iterator[str]:
    """Yield both axes with their values."""
    for value in range(5 * math.ceil(y.lowest / 5), math.ceil(y.highest), 5):
        at = y(value)
        yield f'<line class="grid" x1="{x.start}" x2="{x.stop}" y1="{at}" y2="{at}"/>'
        yield f'<text x="{LEFT - 8}" y="{at + 4}" text-anchor="end">{value}</text>'
    for value in BILLS:
        if not x.lowest <= math.log(value) <= x.highest:
            continue
        yield f'<text x="{x(math.log(value))}" y="{y.start + 18}" text-anchor="middle">{value}</text>'
    yield f'<line class="axis" x1="{x.start}" x2="{x.stop}" y1="{y.start}" y2="{y.start}"/>'
    yield f'<text x="{x.start}" y="{y.start + 40}">input bill with a prompt cache, % of no compaction</text>'
    yield f'<text x="{LEFT - 40}" y="{TOP - 10}">tied, %</text>'


def draw_curve(name: str, places: Sequence[tuple[float, float]], height: float) -> Iterator[str]:
    """Yield a line with a dot for each window, and its name."""
    points = " ".join(f"{x},{y}" for x, y in places)
    x, y = places[-1]
    end = WIDTH - RIGHT + 12
    yield f'<g class="{"ours" if name == REFERENCE else "peer"}">'
    yield f'<polyline class="line" points="{points}"/>'
    yield from (f'<circle class="dot" cx="{a}" cy="{b}" r="3.5"/>' for a, b in places)
    yield f'<polyline class="lead" fill="none" points="{x},{y} {end - 6},{height} {end},{height}"/>'
    yield f'<text x="{end + 4}" y="{height + 4}">{escape(name)}</text></g>'


def print_tables(split: str, windows: Sequence[int] = ()) -> None:
    """Write the chart and print the place of each policy."""
    sessions = list(load_sessions(split, at_least=LEAST_SESSION))
    jobs = list(product(all_policies(), windows or WINDOWS))
    with ProcessPoolExecutor(2) as pool:
        places = list(pool.map(measure, [(sessions, name, window) for name, window in jobs]))
    curves: dict[str, list[Place]] = {}
    for (name, _), place in zip(jobs, places, strict=True):
        curves.setdefault(name, []).append(place)
    widths = ", ".join(f"{window:,}" for window in windows or WINDOWS)
    write_chart(
        PLACE, curves, f"What is tied, at windows of {widths} tokens: {len(sessions)} sessions"
    )


def write_chart(path: Path, curves: Curves, title: str) -> None:
    """Write the chart to *path*."""
    path.write_text(draw(curves, title), "utf-8")
    for name, places in curves.items():
        figures = ", ".join(f"{place.bill:.1f}: {place.tied:.1f}" for place in places)
        print(f"{name}: {figures}", flush=True)
