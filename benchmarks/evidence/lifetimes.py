"""Bills of sessions if the cache lasts five minutes, an hour, or as long as the planner chooses."""

from collections.abc import Callable, Sequence

from benchmarks.evidence.traces import Trace, load_traces
from benchmarks.table import table
from refold.budget.planner import estimate_remaining_calls, is_hour_cheaper
from refold.tokens.model_table import Rates

READ = (0.025, 0.05, 0.1)
Choose = Callable[[int, int, Sequence[float], Rates], bool]
"""Whether to ask for an hour, by tokens, calls so far, pauses in seconds, and prices."""


def choose(tokens: int, past: int, pauses: Sequence[float], rates: Rates) -> bool:
    """Ask the planner, as the gateway does with `hour_cache`."""
    return is_hour_cheaper(tokens, pauses, rates, estimate_remaining_calls(past, tokens=tokens))


WAYS: dict[str, Choose] = {
    "five minutes": lambda *_: False,
    "an hour": lambda *_: True,
    "chosen": choose,
}


def bill_of(trace: Trace, rates: Rates, choose: Choose) -> float:
    """Return the cost of a session's input, in tokens of plain input."""
    total, cached, prices, pauses = 0.0, 0, rates, list[float]()
    for past, call in enumerate(trace.calls):
        if call.pause is not None:
            pauses.append(call.pause)
        if call.pause is None or call.pause > prices.lifetime:
            is_hour = choose(call.tokens, past, pauses, rates)
            cached, prices = 0, rates.for_an_hour() if is_hour else rates
        read = min(cached, call.tokens)
        total += prices.r * read + prices.w * (call.tokens - read)
        cached = call.tokens
    return total


def print_tables(_: str, __: Sequence[int] = ()) -> None:
    """Print the change of the bill in each way, and how many sessions become more expensive."""
    traces, rows = load_traces(), []
    for read in READ:
        rates = Rates(1.0, 5.0, read, 1.25, hour=2.0)
        bills = {name: [bill_of(t, rates, way) for t in traces] for name, way in WAYS.items()}
        short = bills["five minutes"]
        best = list(map(min, short, bills["an hour"]))
        for name, costs in {**bills, "the cheaper one of each session": best}.items():
            dearer = sum(cost > 1.01 * base for cost, base in zip(costs, short, strict=True))
            change = 100 * (sum(costs) / sum(short) - 1)
            share = 100 * dearer / len(traces)
            rows.append([f"{read:g}", name, f"{change:+.1f}", f"{share:.1f}"])
    print(f"\nthe cache's lifetime, {len(traces)} sessions, input only, no compaction\n")
    print(table(["r", "cache", "bill, %", "over +1 %, % of sessions"], rows), flush=True)
