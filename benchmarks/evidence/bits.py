"""Bits of the next action: how much a real model gains from what a policy shows.

At points of recorded sessions every policy compacts the whole history once, to the tokens that the
default strategies leave. A language model then reads each view, followed by the recorded next
action. The fewer bits the action costs, the better the view predicts it.
"""

import json
import os
import random
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.evidence.equal import NEAR
from benchmarks.evidence.peers import Worker, all_policies
from benchmarks.evidence.policies import REFERENCE
from benchmarks.evidence.sessions import ROOT, Session, load_sessions
from benchmarks.evidence.visible import counted
from benchmarks.table import table
from refold.messages import Message
from refold.text.plain import readable_text

TARGET = 2_500
"""Target by the estimator; about 3,000 of the model's own tokens."""
SESSIONS = 6
OF_A_SESSION = 10
"""Points per session: calls at equal distances, once the history is `HISTORY` times the target."""
HISTORY = 3
LONGEST = 160
"""Tokens of an action that count."""
LAST = "the last tokens, to the token"
"""A tail cut anywhere, so that it has exactly as many model tokens as the first policy's view."""
FIRST_AND_LAST = "the first message and the last tokens"
"""The same after the whole first message, which is the task if the agent was given one."""
ROUNDS = (
    (REFERENCE, LAST),
    (FIRST_AND_LAST,),
    ("Refold 0.1",),
    ("CliffCompaction",),
    ("LangChain summarization, keeps half",),
    ("clear all results but 4", "OpenCode's prune"),
)
"""Each round is measured at all points before the next; the last cannot get down to the target."""
WORKER = Path(__file__).with_name("bits_worker.py")
STEP = 1.08
STEPS = sorted(range(-12, 13), key=abs)
"""Windows to try, in powers of `STEP`, until the size of a view is near enough to the first one."""
FAR = 1.5
"""Ratio to the first view above which a view is cut to the first one's tokens, keeping the
newest."""
RESAMPLES = 10_000


@dataclass(frozen=True)
class Measured:
    """Cost of the action at one point after one policy's view."""

    commit: str
    target: int
    session: str
    at: int
    policy: str
    bits: float
    tokens: int
    """Tokens of the view, as the model counts them."""
    action: int
    """Tokens of the action."""


def bits_python() -> Path:
    """Return the interpreter with llama-cpp-python: REFOLD_BITS, or the one that make installs."""
    return Path(os.environ.get("REFOLD_BITS", ROOT / ".bench-bits" / "bin" / "python"))


def commit_of() -> str:
    """Return the measured commit."""
    words = ["git", "-C", str(ROOT), "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def spell_each(messages: Sequence[Message]) -> str:
    """Return messages as plain text."""
    return "".join(
        f"[{'result' if message.results else message.role}]\n{readable_text(message)}\n\n"
        for message in messages
    )


def spell(messages: Sequence[Message]) -> str:
    """Return messages as plain text, ready to be continued by the assistant."""
    return f"{spell_each(messages)}[assistant]\n"


def choose_sessions(split: str) -> list[Session]:
    """Return the longest sessions, alternating between clients."""
    clients = defaultdict[str, list[Session]](list)
    for session in load_sessions(split):
        clients[session.client].append(session)
    ranked = sorted(
        (rank, -session.size, session)
        for sessions in clients.values()
        for rank, session in enumerate(sorted(sessions, key=lambda s: -s.size))
    )
    return [session for _, _, session in ranked[:SESSIONS]]


def choose_points(session: Session, target: int) -> list[int]:
    """Return calls at equal distances among those with enough history before them.

    Messages since the previous call stay under every policy, so they take at most half of the
    target.
    """
    late, last = list[int](), 0
    for at in session.calls:
        newest, last = size_of(session.messages[last:at]), at
        is_long = size_of(session.messages[:at]) >= HISTORY * target
        if is_long and newest <= target // 2 and action_at(session, at).strip():
            late.append(at)
    return [late[n * len(late) // OF_A_SESSION] for n in range(min(len(late), OF_A_SESSION))]


def action_at(session: Session, at: int) -> str:
    """Return what the model did next: its text and its calls."""
    answer = list[Message]()
    for message in session.messages[at:]:
        if message.role != "assistant":
            break
        answer.append(message)
    return "\n".join(map(readable_text, answer))


def view_of(session: Session, at: int, policy: str, wanted: int, target: int) -> Sequence[Message]:
    """Return what *policy* shows of the history before *at*, near *wanted* tokens if that is not
    0."""
    messages = session.messages[:at]
    if policy in (LAST, FIRST_AND_LAST):
        return messages
    body = next(body for call, body in session.requests() if call == at)

    nearest: Sequence[Message] = ()
    for step in STEPS if wanted else (0,):
        window = int(2 * target * STEP**step)
        view = all_policies()[policy](session, window)(body, messages)
        nearest = min((nearest, view), key=lambda v: abs(size_of(v) - wanted)) if nearest else view
        if abs(size_of(nearest) - wanted) <= NEAR * wanted:
            break
    return nearest


def size_of(messages: Sequence[Message]) -> int:
    """Count the tokens of messages."""
    return sum(map(counted, messages))


def iter_jobs(split: str, target: int) -> Iterator[tuple[str, Session, int]]:
    """Yield policies with the points to measure them at, the first point of each session first."""
    places = [(session, choose_points(session, target)) for session in choose_sessions(split)]
    order = [(s, points[n]) for n in range(OF_A_SESSION) for s, points in places if n < len(points)]
    known_policies = {LAST, FIRST_AND_LAST, *all_policies()}
    for policies in ROUNDS:
        for session, at in order:
            yield from ((policy, session, at) for policy in policies if policy in known_policies)


@dataclass(frozen=True)
class Bench:
    """Measures policies at a target with one model, and knows earlier measurements."""

    worker: Worker
    commit: str
    target: int
    measurements: dict[tuple[str, str, int], Measured]

    def measure(self, policy: str, session: Session, at: int) -> Measured:
        """Measure a policy at a call where the first policy has been measured."""
        view = first = view_of(session, at, REFERENCE, 0, self.target)
        most = None
        if policy != REFERENCE:
            view = view_of(session, at, policy, size_of(first), self.target)
            if size_of(view) > FAR * size_of(first):
                most = self.measurements[REFERENCE, session.name, at].tokens
        head = spell_each(session.messages[:1]) if policy == FIRST_AND_LAST else ""
        question = {"head": head, "prompt": spell(view), "action": action_at(session, at)}
        answer = self.worker.ask({**question, "longest": LONGEST, "most": most})
        return Measured(self.commit, self.target, session.name, at, policy, **answer)

    def run(self, split: str, path: Path) -> None:
        """Append missing measurements to a file, one line of JSON each."""
        with path.open("a", encoding="utf-8") as file:
            for policy, session, at in iter_jobs(split, self.target):
                if (policy, session.name, at) not in self.measurements:
                    measured = self.measure(policy, session, at)
                    self.measurements[policy, session.name, at] = measured
                    print(json.dumps(asdict(measured)), file=file, flush=True)


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the mean by resampling."""
    chance = random.Random(len(differences))
    means = sorted(fmean(chance.choices(differences, k=len(differences))) for _ in range(RESAMPLES))
    return means[RESAMPLES // 40], means[-RESAMPLES // 40]


def row_of(policy: str, points: Sequence[Measured], base: Sequence[Measured]) -> list[str]:
    """Compare a policy with the first one at the same points."""
    changes = [point.bits - first.bits for point, first in zip(points, base, strict=True)]
    low, high = interval(changes)
    by_session = defaultdict[str, list[float]](list)
    for point, difference in zip(points, changes, strict=True):
        by_session[point.session].append(difference)
    dearer = sum(fmean(differences) > 0 for differences in by_session.values())
    return [
        policy,
        str(len(points)),
        f"{fmean(point.tokens for point in points):,.0f}",
        f"{fmean(point.bits for point in points):.1f}",
        f"{fmean(changes):+.1f}",
        f"{low:+.1f} to {high:+.1f}",
        f"{dearer} of {len(by_session)}",
    ]


def print_results(results: Mapping[tuple[str, str, int], Measured]) -> None:
    """Print the mean of each policy and how much more it costs than the first, point by point."""
    rows = []
    for policy in dict.fromkeys(policy for policy, _, _ in results):
        points = [measured for (name, _, _), measured in results.items() if name == policy]
        base = [results[REFERENCE, point.session, point.at] for point in points]
        rows.append(row_of(policy, points, base))
    head = ("policy", "points", "tokens", "bits", "more", "95 %", "sessions with more")
    print(f"\n{table(head, rows)}", flush=True)


def print_tables(split: str, targets: Sequence[int], model: Path, path: Path) -> None:
    """Measure into a file, resume an earlier run of the same commit, and print the results."""
    commit = commit_of()
    for target in targets or (TARGET,):
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        every = (Measured(**json.loads(line)) for line in lines)
        measurements = {
            (m.policy, m.session, m.at): m
            for m in every
            if (m.commit, m.target) == (commit, target)
        }
        worker = Worker(bits_python(), WORKER)
        worker.ask({"model": str(model)})
        bench = Bench(worker, commit, target, measurements)
        bench.run(split, path)
        worker.close()
        print(f"\n{split}, {target:,} tokens, {model.name}, commit {commit}")
        print_results(bench.measurements)
