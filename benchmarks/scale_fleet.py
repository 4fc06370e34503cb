"""Simulation of a fleet of gateways: many sessions, many replicas that die, and one database.

python -m benchmarks.scale_fleet [--terms TERMS.json] [--sessions N] [--replicas N] [--seconds S]
    [--routing session|any] ...

A discrete-event model. `python -m benchmarks.scale` measures the costs of turns, database calls and
compactions. The times of models, tools and restarts are options. Each seed gives the same run.
"""

import argparse
import json
import random
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, fields
from heapq import heappop, heappush, heapreplace
from itertools import count
from pathlib import Path

from benchmarks.table import table

ROUTES = ("session", "any")
"""How a load balancer chooses a process: always the same one for a session, or any."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Measured costs in seconds. Those of the database are seconds of one of its cores."""

    warm: float = 0.004
    """Gateway core for a turn of a session that the process knows, sockets included."""
    cold: float = 0.028
    """The same for a session that it does not know."""
    compaction: float = 0.026
    """Added for a turn that compacts."""
    version: float = 0.000_06
    load: float = 0.0006
    save: float = 0.001
    ledger: float = 0.0005
    """For a call that is recorded after its answer."""
    lock: float = 0.002
    """Time that a save locks the row that all saves change."""
    request_bytes: float = 490_000

    @classmethod
    def of(cls, terms):
        """Read the output of `benchmarks.scale`."""
        turns, server = terms["turns"]["300"], terms["postgresql"]
        warm = terms["sockets"]["cpu_ms"] / 1000
        return cls(
            warm=warm,
            cold=warm + max(0.0, turns["cold"]["cpu_ms"] - turns["known"]["cpu_ms"]) / 1000,
            compaction=terms["compaction"]["cpu_ms"] / 1000,
            version=server["version_cpu_ms"] / 1000,
            load=server["load_cpu_ms"] / 1000,
            save=server["save_cpu_ms"] / 1000,
            ledger=max(0.0, terms["database"]["cpu_ms"] - server["version_cpu_ms"]) / 1000,
            lock=1 / server["save_per_s"],
            request_bytes=terms["memory"]["request_bytes"],
        )


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The fleet, and assumptions about models, tools and machines. Times in seconds."""

    sessions: int = 100_000
    replicas: int = 50
    processes: int = 4
    """Processes per replica, with one core each."""
    database_cores: int = 16
    routing: str = "session"
    known_sessions: int = 256
    """`conversations` of each process."""
    known_bytes: int = 256 * 2**20
    model_waits: int = 256
    """Summaries that a process can wait for at once."""
    answer: float = 15.0
    """Mean time of an answer, which streams through the gateway."""
    pause: float = 15.0
    """Mean time of tools and people between answer and request."""
    turns_between: int = 40
    """Turns from one compaction to the next."""
    ahead: int = 4
    """Number of turns by which a summary is requested before its compaction is due."""
    summary: float = 20.0
    """Mean time of a summary."""
    death_every: float = 60.0
    """Mean time between two deaths of replicas in the whole fleet; 0: none."""
    restart: float = 30.0
    retry: float = 1.0
    """Time after which a client repeats a lost request."""


class Run:
    """One run of a fleet. Figures are counted from `warm` seconds on."""

    def __init__(self, fleet, costs, seconds, seed=1, warm=0.0):
        self.fleet, self.costs, self.seconds, self.warm = fleet, costs, seconds, warm
        self._random, self._order, self._events = random.Random(seed), count(), []
        self._fate = random.Random(seed)  # of replicas: independent of the sessions
        places = fleet.replicas * fleet.processes
        self._capacity = max(
            1, min(fleet.known_sessions, int(fleet.known_bytes / costs.request_bytes))
        )
        self._known = [OrderedDict() for _ in range(places)]
        self._free = [0.0] * places
        """Time at which each process is free again."""
        self._down_until = [0.0] * fleet.replicas
        self._busy_with = defaultdict(set)
        """Sessions with a request or answer in progress, by process."""
        self._summaries = [0] * places
        self._queued = [deque() for _ in range(places)]
        self._cores = [0.0] * fleet.database_cores
        self._lock_free = self._wrote_at = 0.0
        self._loaded_at = {}
        self._life = [0] * fleet.sessions
        """Generation of each session; older scheduled events are void."""
        turns = fleet.turns_between
        self._turn = [self._random.randrange(turns) for _ in range(fleet.sessions)]
        self._ready = {at: 0.0 for at, turn in enumerate(self._turn) if turn > turns - fleet.ahead}
        """Time at which a session's summary is ready."""
        self.waits, self.counts, self.spent = [], Counter(), Counter()
        self.most = Counter()

    def run(self):
        """Run to the end and return this."""
        fleet, random = self.fleet, self._random
        for session in range(fleet.sessions):
            self._plan(random.uniform(0, fleet.answer + fleet.pause), self._arrive, session, 0)
        if fleet.death_every:
            self._plan(self._fate.expovariate(1 / fleet.death_every), self._die)
        while self._events and self._events[0][0] <= self.seconds:
            now, _, act, values = heappop(self._events)
            act(now, *values)
        return self

    def _plan(self, when, act, *values):
        heappush(self._events, (when, next(self._order), act, values))

    def _count(self, now, name, amount=1):
        if now >= self.warm:
            self.counts[name] += amount

    def _spend(self, now, name, seconds):
        if now >= self.warm:
            self.spent[name] += seconds

    def _route(self, now, session):
        """Return a process of a live replica; None if none is found. The sessions of a dead replica
        are spread over all others, as by consistent hashing."""
        fleet, sticks = self.fleet, self.fleet.routing == "session"
        places = fleet.replicas * fleet.processes
        for attempt in range(20):
            place = hash((session, attempt)) % places if sticks else self._random.randrange(places)
            if self._down_until[place // fleet.processes] <= now:
                return place
        return None

    def _arrive(self, now, session, life):
        if life != self._life[session]:
            return
        place = self._route(now, session)
        if place is None:
            self._plan(now + self.fleet.retry, self._arrive, session, life)
            return
        self._count(now, "turns")
        recent, turn = self._known[place], self._turn[session]
        is_known, is_due = session in recent, turn >= self.fleet.turns_between
        recent[session] = None
        recent.move_to_end(session)
        if len(recent) > self._capacity:
            recent.popitem(last=False)
        self._count(now, "cold", not is_known)
        work = (self.costs.warm if is_known else self.costs.cold) + self.costs.compaction * is_due
        self._free[place] = max(now, self._free[place]) + work
        self._spend(now, "gateways", work)
        self._busy_with[place].add(session)
        if turn == self.fleet.turns_between - self.fleet.ahead:
            self._ask(now, place, session)
        ready = self._free[place]
        if is_due:
            if session not in self._ready:
                self._ask(now, place, session)
            ready = max(ready, self._ready.get(session, ready + self.fleet.summary))
        self._plan(ready, self._use_database, now, session, life, place, (is_known, is_due))

    def _use_database(self, now, began, session, life, place, turn):
        if life != self._life[session]:
            return
        is_known, is_due = turn
        costs = self.costs
        work = costs.version
        # Any write since the last load makes a process load again.
        if not is_known or self._wrote_at > self._loaded_at.get(session, -1.0):
            work += costs.load
            self._loaded_at[session] = now
            self._count(now, "loads")
        work += costs.save * is_due
        until = max(now, self._cores[0]) + work
        heapreplace(self._cores, until)
        self._spend(now, "database", work)
        if is_due:
            self._count(now, "saves")
            self._spend(now, "lock", costs.lock)
            self._lock_free = until = max(until, self._lock_free) + costs.lock
            self._wrote_at = until
            self._turn[session] = 0
            self._ready.pop(session, None)
        self._turn[session] += 1
        if now >= self.warm:
            self.waits.append(until - began)
        answered = until + self._random.expovariate(1 / self.fleet.answer)
        self._plan(answered, self._answer, session, life, place)

    def _answer(self, now, session, life, place):
        if life != self._life[session]:
            return
        self._busy_with[place].discard(session)
        self._count(now, "answers")
        heapreplace(self._cores, max(now, self._cores[0]) + self.costs.ledger)
        self._spend(now, "database", self.costs.ledger)
        self._plan(
            now + self._random.expovariate(1 / self.fleet.pause), self._arrive, session, life
        )

    def _ask(self, now, place, session):
        if self._summaries[place] >= self.fleet.model_waits:
            self._queued[place].append(session)
            self._count(now, "summaries_queued")
            return
        self._summaries[place] += 1
        self.most["summaries"] = max(self.most["summaries"], self._summaries[place])
        until = now + self._random.expovariate(1 / self.fleet.summary)
        self._ready[session] = until
        self._plan(until, self._finish_summary, place, self._down_until[place // self.fleet.processes])  # fmt: skip

    def _finish_summary(self, now, place, era):
        if era != self._down_until[place // self.fleet.processes]:
            return  # it died with its replica
        self._summaries[place] -= 1
        if self._queued[place]:
            self._ask(now, place, self._queued[place].popleft())

    def _die(self, now):
        """Kill a replica: its work in progress is lost, its saves are not."""
        fleet = self.fleet
        self._plan(now + self._fate.expovariate(1 / fleet.death_every), self._die)
        replica = self._fate.randrange(fleet.replicas)
        if self._down_until[replica] > now:
            return
        self._down_until[replica] = now + fleet.restart
        self._count(now, "deaths")
        for place in range(replica * fleet.processes, (replica + 1) * fleet.processes):
            for session in sorted(self._busy_with.pop(place, ())):
                self._count(now, "requests_lost")
                self._life[session] += 1
                self._plan(now + fleet.retry, self._arrive, session, self._life[session])
            self._count(now, "summaries_lost", self._summaries[place])
            self._known[place].clear()
            self._free[place], self._summaries[place] = now, 0
            self._queued[place].clear()

    # --- results ----------------------------------------------------------------------------------

    @property
    def under_way(self):
        """Return the number of requests and answers in progress at the end."""
        return sum(map(len, self._busy_with.values()))

    def loads(self):
        """Return the utilisation of each resource."""
        fleet, span = self.fleet, self.seconds - self.warm
        cores = {
            "gateways": fleet.replicas * fleet.processes,
            "database": fleet.database_cores,
            "lock": 1,
        }
        return {name: self.spent[name] / span / number for name, number in cores.items()}

    def wait(self, share):
        """Return a quantile of the seconds that a request waits in gateway and database."""
        ordered = sorted(self.waits)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def find_limits(fleet, costs):
    """Return the sessions at which each resource alone is full; the smallest is the bottleneck."""
    cycle, processes = fleet.answer + fleet.pause, fleet.replicas * fleet.processes
    room = min(fleet.known_sessions, fleet.known_bytes / costs.request_bytes)
    shared, between = costs.compaction / fleet.turns_between, cycle * fleet.turns_between
    stored = costs.version + costs.load + costs.ledger + costs.save / fleet.turns_between
    return {
        "gateways' cores, sessions known": processes * cycle / (costs.warm + shared),
        "gateways' cores, sessions not known": processes * cycle / (costs.cold + shared),
        "sessions that processes know": processes * room,
        "database's cores": fleet.database_cores * cycle / stored,
        "the row that saves change": between / costs.lock,
        "summaries waited for": processes * fleet.model_waits * between / fleet.summary,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--terms", default=".scale/terms.json")
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--seed", type=int, default=1)
    for field in fields(Fleet):
        choices = ROUTES if field.name == "routing" else None
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default, choices=choices)  # fmt: skip
    options = vars(parser.parse_args())
    path, seconds, seed = Path(options.pop("terms")), options.pop("seconds"), options.pop("seed")
    costs = Costs.of(json.loads(path.read_text())) if path.exists() else Costs()
    fleet = Fleet(**options)
    print(f"{costs}\n{fleet}\n")
    limits = sorted(find_limits(fleet, costs).items(), key=lambda item: item[1])
    print(
        table(
            ["full at so many sessions", "sessions"],
            [[name, f"{limit:,.0f}"] for name, limit in limits],
        )
    )
    run = Run(fleet, costs, seconds, seed, warm=seconds / 3).run()
    span = seconds - run.warm
    rows = [(f"{name} wanted", f"{share:.0%}") for name, share in run.loads().items()]
    rates = ("turns", "cold", "loads", "saves")
    rows += ((f"{name} a second", f"{run.counts[name] / span:,.1f}") for name in rates)
    waits = {share: run.wait(share) * 1000 for share in (0.5, 0.99, 0.999)}
    rows += ((f"a request waits, p{100 * share:g}", f"{ms:,.1f} ms") for share, ms in waits.items())
    losses = ("deaths", "requests_lost", "summaries_lost", "summaries_queued")
    rows += ((name.replace("_", " "), f"{run.counts[name]:,}") for name in losses)
    rows.append(("summaries waited for by a process at most", str(run.most["summaries"])))
    print("\n" + table([f"{span:g} s, seed {seed}", ""], rows))


if __name__ == "__main__":
    main()
