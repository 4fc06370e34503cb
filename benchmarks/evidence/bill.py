"""Bills of sessions with a prompt cache by policy: `python -m benchmarks.evidence bill`.

The unit is the price of a token of plain input: a cache write costs 1.25, a cache read r, an output
token 5. Policies see what a gateway would see. The oracle also knows the future calls.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import accumulate, product, takewhile
from math import inf, isnan, nan, sqrt
from typing import Any, NamedTuple

from benchmarks.billing import common
from benchmarks.evidence.names import percent
from benchmarks.evidence.replay import replay
from benchmarks.evidence.sessions import Session, load_sessions
from benchmarks.evidence.traces import Trace, load_traces
from benchmarks.evidence.visible import Score, counted
from benchmarks.table import table
from refold.budget.budget import Budget, count_refetched, read_figures
from refold.budget.planner import DEFAULT_GOAL, Figures, find_plan
from refold.budget.triggers import Never
from refold.compactor.compactor import Compactor
from refold.compactor.settings import default_strategies
from refold.core.strategy import Strategy
from refold.core.view import View
from refold.messages import Message
from refold.strategies import ClearThinking, ClearToolInputs, ClearToolResults
from refold.tokens.model_table import Rates

READ = (0.025, 0.05, 0.1)
"""Prices of reading a token from the cache."""
CUTS = (50, 100, 200)
"""Numbers of calls at which long enough sessions are cut off, as if they ended there."""


class Call(NamedTuple):
    """One call of a session that is never compacted."""

    new: int
    """Tokens added since the previous call."""
    output: int
    """Tokens of the answer."""
    pause: float | None = 0.0
    """Seconds since the previous call; None for the first."""


class Sizes(NamedTuple):
    """The sizes of a session in tokens."""

    fixed: int
    """Tokens of system prompt and tools."""
    calls: Sequence[Call]


def undo_compactions(trace: Trace) -> Sizes:
    """Return a trace as if the client had never compacted: a request smaller than the previous one
    has no new tokens."""
    before, calls = trace.fixed, list[Call]()
    for call in trace.calls:
        calls.append(Call(max(0, call.tokens - before), call.output, call.pause))
        before = call.tokens
    return Sizes(trace.fixed, calls)


@dataclass(slots=True)
class Meter:
    """Bills the calls of one session in order."""

    rates: Rates

    def call(self, same: int, tokens: int, call: Call) -> float:
        """Return the bill for *tokens* if the first *same* equal the previous request."""
        is_cold = call.pause is None or call.pause > self.rates.lifetime
        read = 0 if is_cold else same
        rates = self.rates
        return rates.r * read + rates.w * (tokens - read) + rates.o * call.output


Decide = Callable[[Figures, Rates], int | None]
"""Function from a request to the tokens that it is compacted to, or None."""


def never(_: Figures, __: Rates) -> None:
    """Never compact."""


def at_size(trigger: int, goal: int) -> Decide:
    """Compact requests of *trigger* tokens to *goal* of conversation at any cost."""

    def decide(figures: Figures, _: Rates) -> int | None:
        return figures.fixed + goal if figures.tokens >= trigger else None

    return decide


def first_version(figures: Figures, rates: Rates) -> int | None:
    """Decide as version 0.1 did: expect as many calls as there were so far and keep a quarter of
    the conversation, at least 30,000 tokens."""
    goal = figures.fixed + max(30_000, (figures.tokens - figures.fixed) // 4)
    removed, grown = figures.tokens - goal, figures.tokens - (figures.floor or figures.fixed)
    if figures.past == 0 or min(removed, grown) < 0.1 * figures.tokens:
        return None
    alive = not figures.is_cold
    cost = (rates.w - rates.r) * (goal - figures.fixed if alive else -removed)
    growth = (figures.unedited - figures.fixed) / figures.past
    best = sqrt(2 * growth * (rates.w - rates.r) * (goal - figures.fixed) / rates.r) if alive else 0
    after = (cost + 0.05 * removed * rates.w) / (rates.r * removed)
    return goal if grown >= best and after < min(max(figures.past, 5), 200) else None


def planner(figures: Figures, rates: Rates) -> int | None:
    """Decide as `refold.budget.planner` does."""
    plan = find_plan(figures, rates)
    return plan.goal if plan is not None else None


POLICIES: dict[str, Decide] = {
    "never": never,
    "version 0.1": first_version,
    "50,000 to 30,000": at_size(50_000, 30_000),
    "80,000 to 30,000": at_size(80_000, 30_000),
    "150,000 to 30,000, as clients do": at_size(150_000, 30_000),
    "planner": planner,
}


class Bills(NamedTuple):
    """Bills of a session, call by call."""

    calls: list[float]
    compactions: int


def bill_sizes(session: Sizes, rates: Rates, decide: Decide) -> Bills:
    """Return the bills of a session whose text is unknown."""
    meter, bills, compactions = Meter(rates), list[float](), 0
    shown = unedited = session.fixed
    floor = 0
    for past, call in enumerate(session.calls):
        before, shown, unedited = shown, shown + call.new, unedited + call.new
        figures = Figures(
            tokens=shown,
            unedited=unedited,
            fixed=session.fixed,
            past=past,
            floor=floor,
            is_cold=call.pause is not None and call.pause > rates.lifetime,
        )
        goal = decide(figures, rates)
        if goal is not None and session.fixed < goal < shown:
            before, shown, floor = session.fixed, goal, goal
            compactions += 1
        bills.append(meter.call(before, shown, call))
    return Bills(bills, compactions)


def bill_oracle(session: Sizes, rates: Rates, goal: int, cut: int | None = None) -> float:
    """Return the lowest possible bill of a session of *cut* calls if every compaction leaves *goal*
    tokens of conversation and all later calls are known."""
    meter, calls = Meter(rates), session.calls[:cut]
    least = [inf] * len(calls)
    """Lowest bill up to each call if the session is compacted at that call."""
    best = inf
    for last in range(-1, len(calls)):
        cost, shown = (0.0, session.fixed) if last < 0 else (least[last], session.fixed + goal)
        if cost == inf:
            continue
        for at in range(last + 1, len(calls)):
            before, shown = shown, shown + calls[at].new
            if shown - session.fixed > goal:
                compacted = meter.call(session.fixed, session.fixed + goal, calls[at])
                least[at] = min(least[at], cost + compacted)
            cost += meter.call(before, shown, calls[at])
        best = min(best, cost)
    return best


class Row(NamedTuple):
    """Results of a policy over many sessions."""

    changes: list[float]
    """Change of the bill at each cut, and for whole sessions."""
    dearer: list[float]
    """Share of whole sessions that cost over 1 % and over 3 % more, and the worst change."""
    compactions: float
    """Compactions per session."""


def compare(plain: Sequence[Bills], bills: Sequence[Bills]) -> Row:
    """Compare sessions with the same sessions without compaction."""
    pairs = [
        (list(accumulate(a.calls)), list(accumulate(b.calls)))
        for a, b in zip(plain, bills, strict=True)
    ]
    changes = []
    for cut in (*CUTS, None):
        ends = [
            (a[(cut or len(a)) - 1], b[(cut or len(a)) - 1])
            for a, b in pairs
            if len(a) >= (cut or 1)
        ]
        changes.append(sum(b for _, b in ends) / sum(a for a, _ in ends) - 1 if ends else nan)
    ratios = [b[-1] / a[-1] - 1 for a, b in pairs]
    dearer = [sum(ratio > most for ratio in ratios) / len(ratios) for most in (0.01, 0.03)]
    return Row(changes, [*dearer, max(ratios)], sum(b.compactions for b in bills) / len(bills))


# --- recorded sessions ----------------------------------------------------------------------------


@dataclass(slots=True)
class Compacted:
    """The requests of a session as a policy sends them, compacted by the default strategies at the
    size that it chooses."""

    session: Session
    rates: Rates
    decide: Decide
    bills: list[float]
    compactor: Compactor
    compactions: int = 0
    floor: int = 0
    sent: tuple[Message, ...] = ()
    tokens: int = 0

    @classmethod
    def of(cls, session: Session, rates: Rates, decide: Decide) -> "Compacted":
        """Start a session."""
        quiet = Budget(Never(), 60_000)
        return cls(session, rates, decide, [], Compactor(budget=quiet, count=counted))

    def __call__(self, body: dict[str, Any], messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages that are sent for a request, and bill them."""
        view = self.compactor.show(body)
        figures = replace(read_figures(view, self.floor), refetched=count_refetched(view))
        goal = self.decide(figures, self.rates)
        if goal is not None and goal < view.tokens:
            self.compactor = self.compactor.with_settings(
                strategies=strategies_of(self.decide, goal)
            )
            before, view = view, self.compactor.compact_now(body, to=goal)
            self.floor = view.tokens
            self.compactions += view.tokens < before.tokens
        self._bill(view, len(messages))
        return view.messages

    def _bill(self, view: View, at: int) -> None:
        same = common(self.sent, view.messages)
        read = self.tokens if same == len(self.sent) else self._tokens_of(view.messages[:same])
        answer = takewhile(lambda message: message.role == "assistant", self.session.messages[at:])
        call = Call(0, sum(map(counted, answer)), 0.0 if self.sent else None)
        self.bills.append(Meter(self.rates).call(read, view.tokens, call))
        self.sent, self.tokens = view.messages, view.tokens

    def _tokens_of(self, messages: Sequence[Message]) -> int:
        return self.session.fixed + sum(map(counted, messages))


def strategies_of(decide: Decide, goal: int) -> tuple[Strategy, ...]:
    """Return the strategies: version 0.1 clears, all others use the defaults."""
    if decide is first_version:
        return ClearThinking(keep=2), ClearToolResults(keep=3), ClearToolInputs(keep=3)
    return default_strategies(goal)


def replay_session(job: tuple[Session, str, float]) -> tuple[str, Bills, Score]:
    """Replay one session under one policy and score what its calls see."""
    session, name, read = job
    run = Compacted.of(session, rates_of(read), POLICIES[name])
    score = replay(session, lambda *_: run, 0)
    return name, Bills(run.bills, run.compactions), score


def sizes_of(session: Session) -> Sizes:
    """Return the sizes of a recorded session."""
    calls, grown = list[Call](), 0
    for at in session.calls:
        answer = takewhile(lambda message: message.role == "assistant", session.messages[at:])
        new = sum(map(counted, session.messages[grown:at]))
        calls.append(Call(new, sum(map(counted, answer)), 0.0 if calls else None))
        grown = at
    return Sizes(session.fixed, calls)


def rates_of(read: float) -> Rates:
    """Return prices in units of plain input."""
    return Rates(1.0, 5.0, read, 1.25)


# --- tables ---------------------------------------------------------------------------------------

HEAD = [
    "policy",
    *(f"{cut} calls" for cut in CUTS),
    "all",
    "over +1 %",
    "over +3 %",
    "worst",
    "compactions",
]


def change(value: float) -> str:
    """Format a change in percent."""
    return "-" if isnan(value) else f"{100 * value:+.1f}"


def cells(name: str, row: Row) -> list[str]:
    """Return one row of a table."""
    dearer = [f"{100 * share:.1f}" for share in row.dearer[:2]]
    return [
        name,
        *map(change, row.changes),
        *dearer,
        change(row.dearer[2]),
        f"{row.compactions:.1f}",
    ]


def oracle_cells(
    goal: int, sessions: Sequence[Sizes], plain: Sequence[Bills], rates: Rates
) -> list[str]:
    """Return the row of an oracle."""
    changes = []
    for cut in (*CUTS, None):
        pairs = [
            (sum(bills.calls[:cut]), bill_oracle(session, rates, goal, cut))
            for session, bills in zip(sessions, plain, strict=True)
            if len(bills.calls) >= (cut or 1)
        ]
        total = sum(a for a, _ in pairs)
        changes.append(sum(b for _, b in pairs) / total - 1 if pairs else nan)
    return [f"oracle, to {goal:,}", *map(change, changes), "0.0", "0.0", change(0.0), "-"]


ORACLES = (DEFAULT_GOAL, 30_000)


def print_traces() -> None:
    """Print the bills of sessions with known sizes and times but no text."""
    sessions = [undo_compactions(trace) for trace in load_traces()]
    if not sessions:
        return
    calls = sum(len(session.calls) for session in sessions)
    counts = ", ".join(
        f"{sum(len(s.calls) >= cut for s in sessions)} of {cut} calls and more" for cut in CUTS
    )
    for read in READ:
        rates = rates_of(read)
        plain = [bill_sizes(session, rates, never) for session in sessions]
        rows = [
            cells(name, compare(plain, [bill_sizes(s, rates, decide) for s in sessions]))
            for name, decide in POLICIES.items()
        ]
        rows += [oracle_cells(goal, sessions, plain, rates) for goal in ORACLES]
        print(
            f"\nSizes and pauses of {len(sessions)} sessions, {calls:,} calls ({counts}), r = {read}\n"
        )
        print(table(HEAD, rows), flush=True)


def print_recorded(split: str, read: Sequence[float]) -> None:
    """Print the bills of recorded sessions, and what later calls still see of them."""
    sessions = list(load_sessions(split))
    sizes = [sizes_of(session) for session in sessions]
    counts = ", ".join(
        f"{sum(len(s.calls) >= cut for s in sizes)} of {cut} calls and more" for cut in CUTS
    )
    with ProcessPoolExecutor(2) as pool:
        for price in read:
            runs = dict[str, list[Bills]]()
            scores = defaultdict[str, Score](Score)
            for name, bills, score in pool.map(
                replay_session, [(s, name, price) for name, s in product(POLICIES, sessions)]
            ):
                runs.setdefault(name, []).append(bills)
                scores[name] += score
            rows = [
                [*cells(name, compare(runs["never"], bills)), *recall_cells(scores[name])]
                for name, bills in runs.items()
            ]
            rows += [
                [*oracle_cells(goal, sizes, runs["never"], rates_of(price)), "-", "-", "-"]
                for goal in ORACLES
            ]
            print(f"\n{split}: {len(sessions)} recorded sessions ({counts}), r = {price}\n")
            print(table([*HEAD, "plain", "tied", "edits"], rows), flush=True)


def recall_cells(score: Score) -> list[str]:
    """Return the cells for what later calls still see."""
    return [
        percent(score.plain, score.names),
        percent(score.tied, score.names),
        percent(score.editable, score.edits),
    ]


def print_tables(split: str, prices: Sequence[int] = ()) -> None:
    """Print all tables. *prices* of cache reads are in thousandths."""
    print_traces()
    print_recorded(split, [price / 1_000 for price in prices] or READ)
