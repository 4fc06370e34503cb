"""Measure how sessions continue: `python -m benchmarks.fit_sessions` writes
`src/refold/budget/sessions.json`.

Reads sizes and times of recorded sessions (`claude_code_traces` in the folder of datasets) and
writes only means: remaining calls by the tokens of a request, what a call adds, and the length of
the pauses between calls.
"""

import json
from bisect import bisect_left
from itertools import pairwise
from statistics import fmean

from benchmarks.evidence.traces import load_traces
from refold.budget.planner import PRIOR_PATH

SIZES = (50_000, 100_000, 150_000, 200_000)
"""Upper bounds of the groups by tokens of a request; the last group is unbounded."""
PAUSES = (60, 300, 600, 1_800, 3_600)
DATE = "2026-07-12"
SOURCE = "692 sessions of Claude Code with 45,542 calls: callanjfox/kv-cache-tester, commit 94f6046, Apache-2.0"


def main() -> None:
    """Write the file."""
    traces = load_traces()
    remaining: list[list[int]] = [[] for _ in (*SIZES, None)]
    pauses, grown = list[float](), list[int]()
    for trace in traces:
        for at, call in enumerate(trace.calls):
            remaining[bisect_left(SIZES, call.tokens)].append(len(trace.calls) - at)
        pauses += [call.pause for call in trace.calls[1:] if call.pause is not None]
        grown += [b.tokens - a.tokens for a, b in pairwise(trace.calls) if b.tokens >= a.tokens]
    data = {
        "date": DATE,
        "source": SOURCE,
        "remaining": [
            [size, round(fmean(calls), 1)]
            for size, calls in zip((*SIZES, None), remaining, strict=True)
        ],
        "growth": round(fmean(grown)),
        "output": round(fmean(call.output for trace in traces for call in trace.calls)),
        "pauses": [
            [seconds, round(fmean(pause > seconds for pause in pauses), 4)] for seconds in PAUSES
        ],
    }
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in data.items())
    PRIOR_PATH.write_text(f"{{\n{lines}\n}}\n", "utf-8")
    print(PRIOR_PATH.read_text("utf-8"))


if __name__ == "__main__":
    main()
