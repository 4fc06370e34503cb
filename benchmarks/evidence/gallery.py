"""Summaries to read: `python -m benchmarks.evidence gallery > gallery.md`.

They quote the recordings, which are not part of this repository, so the page is not either.
`gallery demo` prints what the model sees of the demo session, which is ours, under each policy:
docs/gallery.md.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from benchmarks.evidence.bits import size_of, spell, view_of
from benchmarks.evidence.handover import KINDS, Point, Shown, count_shown
from benchmarks.evidence.items import read_items
from benchmarks.evidence.needs import iter_blocks
from benchmarks.evidence.peers import all_policies
from benchmarks.evidence.policies import POLICIES, REFERENCE
from benchmarks.evidence.sessions import Session, datasets, load_sessions
from benchmarks.evidence.talks import DATASETS
from benchmarks.evidence.visible import History, Request, counted
from benchmarks.table import table
from refold.messages import Message, user
from refold.session_files import demo_session

TARGETS = (4_000, 12_000)
LEAST_SESSION = 50_000
OF_A_CLIENT = 2
"""Number of sessions per client, or of conversations per data set."""
COMPARED = (
    REFERENCE,
    "Refold 0.1",
    "last N, sliding",
    "CliffCompaction",
    "LangChain summarization, keeps half",
    "clear all results but 4",
    "OpenCode's prune",
)
DEMO_SHARE = 0.75
"""Share of the calls of the demo session after which it is compacted."""
QUOTED = 3_000
"""Characters quoted from the beginning of each view; the first view is quoted whole."""


def iter_sessions(split: str) -> Iterator[Session]:
    """Yield some sessions of each client and some conversations of each data set."""
    counts: dict[str, int] = {}
    for session in load_sessions(split, at_least=LEAST_SESSION):
        counts[session.client] = counts.get(session.client, 0) + 1
        if counts[session.client] <= OF_A_CLIENT:
            yield session
    for name, read in DATASETS.items():
        for at, talk in enumerate(islice(read(datasets(), split), OF_A_CLIENT)):
            yield Session(f"{name} {at}", "chat", {"messages": talk.messages})


def summarize(session: Session, target: int) -> Iterator[str]:
    """Yield the texts that replace messages after one compaction of the whole session."""
    sent = POLICIES[REFERENCE](session, 2 * target)(session.payload, session.messages)
    originals = frozenset(block for m in session.messages for block in iter_blocks(m))
    yield from Request.of(sent, History(originals, {})).rewritten


def print_demo(target: int) -> None:
    """Print what each policy shows of the demo session, and which items of the state are in it."""
    session = Session("demo", "demo", {"messages": demo_session()})
    at = session.calls[int(DEMO_SHARE * len(session.calls))]
    history, views = session.messages[:at], dict[str, Sequence[Message]]()
    for name in COMPARED:
        if name in all_policies():
            wanted = size_of(views[REFERENCE]) if views else 0
            views[name] = view_of(session, at, name, wanted, target)
    point, rows = Point(1, at, read_items(history), frozenset()), []
    for name, view in views.items():
        counts = count_shown(point, Shown(view, history))
        kinds = [kind for kind in KINDS if counts[kind, "all"]]
        cells = [f"{counts[kind, 'shown']} of {counts[kind, 'all']}" for kind in kinds]
        rows.append([name, str(len(view)), f"{size_of(view):,}", *cells])
    print(
        f"The demo's session up to call {session.calls.index(at)} of {len(session.calls)}: "
        f"{len(history)} messages, {size_of(history):,} tokens. All were asked for {target:,}.\n"
    )
    print(table(["policy", "messages", "tokens", *kinds], rows))
    for name, view in views.items():
        text = spell(view)
        if name != REFERENCE and len(text) > QUOTED:
            text = f"{text[:QUOTED]}\n\n[... {len(text) - QUOTED:,} characters more]"
        print(f"\n## {name}\n\n`````text\n{text.rstrip()}\n`````")


def print_gallery(split: str, targets: Sequence[int] = ()) -> None:
    """Print the summaries of some sessions at each target as Markdown, or views of the demo
    session."""
    if split == "demo":
        print_demo(*(targets or TARGETS[:1]))
        return
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
