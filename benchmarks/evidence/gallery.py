"""Summaries to read: `python -m benchmarks.evidence gallery > gallery.md`.

They quote the recordings, which are no part of this repository; so neither is the page.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from benchmarks.evidence.needs import iter_blocks
from benchmarks.evidence.policies import POLICIES, REFERENCE
from benchmarks.evidence.sessions import Session, datasets, load_sessions
from benchmarks.evidence.talks import DATASETS
from benchmarks.evidence.visible import History, Request, counted
from refold.messages import user

TARGETS = (4_000, 12_000)
LEAST_SESSION = 50_000
OF_A_CLIENT = 2
"""Sessions of one client, or talks of one data set."""


def iter_sessions(split: str) -> Iterator[Session]:
    """Yield some sessions of each client and some talks of each data set."""
    counts: dict[str, int] = {}
    for session in load_sessions(split, at_least=LEAST_SESSION):
        counts[session.client] = counts.get(session.client, 0) + 1
        if counts[session.client] <= OF_A_CLIENT:
            yield session
    for name, read in DATASETS.items():
        for at, talk in enumerate(islice(read(datasets(), split), OF_A_CLIENT)):
            yield Session(f"{name} {at}", "chat", {"messages": talk.messages})


def summarize(session: Session, target: int) -> Iterator[str]:
    """Yield what stands instead of messages after one compaction of the whole session."""
    sent = POLICIES[REFERENCE](session, 2 * target)(session.payload, session.messages)
    originals = frozenset(block for m in session.messages for block in iter_blocks(m))
    yield from Request.of(sent, History(originals, {})).made


def print_gallery(split: str, targets: Sequence[int] = ()) -> None:
    """Print the summaries of some sessions at each target as Markdown."""
    print("# Summaries of recorded sessions\n\nThe default strategies, one compaction each.")
    for session in iter_sessions(split):
        print(f"\n## {session.name} ({session.client}, {session.size:,} tokens)")
        for target in targets or TARGETS:
            texts = list(summarize(session, target)) if session.size >= 2 * target else []
            longest = max(texts, key=len, default="")
            if longest:
                tokens = counted(user(longest))
                print(f"\n### To {target:,} tokens: a summary of {tokens:,}\n")
                print(f"`````text\n{longest}\n`````", flush=True)
