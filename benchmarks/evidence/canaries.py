"""Twenty planted instructions of the user, and how many of them a request still shows."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product

from benchmarks.evidence.items import plain
from benchmarks.evidence.needs import iter_blocks
from benchmarks.evidence.peers import all_policies
from benchmarks.evidence.sessions import Session, load_sessions
from benchmarks.evidence.visible import counted
from benchmarks.table import table
from refold.codecs.detect import open_payload

CANARIES = (
    "Never edit anything under legacy/billing, because that code is frozen until March.",
    "All amounts must be stored in cents, not in floating point.",
    "Always run `make smoke` before you say that something is done.",
    "Do not add new dependencies without asking me first.",
    "The public API has to stay compatible with clients of version 3.4.",
    "Only use the staging database, and its name is orders_stage.",
    "You need to keep every log message in English.",
    "Use tabs in Makefiles and four spaces everywhere else.",
    "Please leave the copyright headers as they are.",
    "Commit messages begin with the ticket number, such as PAY-2041.",
    "From now on answer in short sentences, without lists.",
    "Avoid recursion in the parser: the stack on the device is small.",
    "Make sure that the export works offline, too.",
    "We deploy on Fridays at noon, so nothing risky goes in on that day.",
    "Ask before you delete a branch.",
    "Timeouts should be 30 seconds, no matter what the old config says.",
    "不要修改 migrations 目录下的任何文件。",
    "所有时间都必须用 UTC 保存。",
    "回复里请始终使用中文标点。",
    "提交之前务必先运行 lint 检查。",
)
TARGETS = (10_000, 5_000)
LEAST_SESSION = 50_000
SPREAD = 0.6
"""Share of a session, from its beginning, over which single instructions are spread."""
LATER_REQUEST = "Please go on with the task."
"""Sent after all instructions, so that none of them is the current request."""


def plant_each(session: Session) -> Session:
    """Put each instruction before a different call, as a user message."""
    early = session.calls[: int(SPREAD * len(session.calls))]
    places = [early[at * len(early) // len(CANARIES)] for at in range(len(CANARIES))]
    return plant(session, [*zip(places, CANARIES, strict=True), (early[-1], LATER_REQUEST)])


def plant_all(session: Session) -> Session:
    """Put all instructions into one message, before a call early in the session."""
    first, later = (session.calls[int(share * len(session.calls))] for share in (0.1, SPREAD))
    return plant(session, [(first, "\n".join(CANARIES)), (later, LATER_REQUEST)])


def plant(session: Session, texts: Sequence[tuple[int, str]]) -> Session:
    """Insert user messages before the given positions, which are in order."""
    payload = open_payload(session.payload)
    entries = list(session.payload[payload.codec.FIELD])
    for at, text in reversed(texts):
        entries.insert(payload.head + at, {"role": "user", "content": text})
    return Session(session.name, session.client, {**session.payload, payload.codec.FIELD: entries})


WAYS: dict[str, Callable[[Session], Session]] = {
    "a message each": plant_each,
    "all in one message": plant_all,
}


def measure(job: tuple[Session, str, str, int]) -> tuple[int, int]:
    """Return the number of instructions that the last request shows, and its tokens."""
    session, way, name, target = job
    planted = WAYS[way](session)
    policy, sent = all_policies()[name](planted, 2 * target), planted.messages
    for at, body in planted.requests():
        sent = policy(body, planted.messages[:at])
    line = plain("\n".join(block for message in sent for block in iter_blocks(message)))
    return sum(plain(text) in line for text in CANARIES), sum(map(counted, sent))


def print_tables(split: str, targets: Sequence[int] = ()) -> None:
    """Print how many instructions survive to the end of a session, on average."""
    sessions = list(load_sessions(split, at_least=LEAST_SESSION))
    columns = list(product(targets or TARGETS, WAYS))
    rows = []
    with ProcessPoolExecutor(2) as pool:
        for name in all_policies():
            cells = []
            for target, way in columns:
                ends = list(pool.map(measure, [(s, way, name, target) for s in sessions]))
                shown, tokens = (sum(column) / len(sessions) for column in zip(*ends, strict=True))
                cells.append(f"{shown:.1f} in {tokens:,.0f}")
            rows.append([name, *cells])
    print(
        f"\n{len(CANARIES)} planted instructions, {split}: {len(sessions)} sessions; "
        "shown in the last request, on average, and its tokens\n"
    )
    print(table(["policy", *(f"{target:,}, {way}" for target, way in columns)], rows), flush=True)
