"""The laws of a store, as a check for the tests of its author."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from refold.edits import Edit
from refold.messages import Media, Message, Opaque, Part, Text, Thinking, ToolCall, ToolResult, user
from refold.stores.store import LedgerRow, Store, as_claim_store, as_ledger_store, rows_about

PARTS: tuple[Part, ...] = (
    Text("a line\nanother, 中文 \x00 \u2028 \ud800 \ude00\ud83d\ude00 😀"),
    Text("x" * 300_000),
    Thinking("hm", "signature=="),
    ToolCall("call_1", "read", '{"path":"a\\"b.py"}'),
    ToolResult(
        "call_1",
        (Text("done"), Media("image", "image/png", "hash", 640, 480, 12_345)),
        error=True,
        name="read",
    ),
    Media("document", ref="file_1"),
    Opaque("server_tool", '{"n":12345678901234567890}', opens="s1", closes="s0"),
)
"""Parts of every kind, some of them hard to store."""


ODD_TIPS = (
    "",
    "a",
    "null",
    "NULL",
    "中文",
    "a\x00b",
    "a\x00",
    "\ud800",
    "\ud83d" + "\ude00",
    '"',
    "{a,b}",
    "\\",
    "%",
    "' OR 1=1 --",
)
"""Tips that no transcript has, and that a database might misread."""


S = TypeVar("S", bound=Store)


def check_store(make: Callable[[], S], again: Callable[[S], Store] | None = None) -> None:
    """Check the laws of the `Store` protocol. *make* returns a new, empty store at each call.

    *again*, for a persistent store, opens the same storage again, as another process would. Raises
    AssertionError with the broken law. Exceptions of the store are not caught.
    """
    for law in LAWS:
        law(make())
    if again is not None:
        store = make()
        _is_shared(store, again(store))


def _starts_empty(store: Store) -> None:
    _expect("a new store is empty", store.load(["a", "b", ""]), [])
    _expect("load of no tips gives no edits", store.load([]), [])
    store.save([])
    store.remove([])
    store.remove(["unknown"])
    _expect("saving and removing nothing changes nothing", store.load(["a"]), [])


def _loads_by_tip(store: Store) -> None:
    edits = [_edit(n, tip * 2) for n, tip in enumerate("abcab")]
    store.save(edits)
    _expect(
        "load gives the edits of the tips asked for, as saved",
        store.load(["bb", "aa"]),
        [edits[n] for n in (0, 1, 3, 4)],
    )
    _expect("a tip asked for twice gives its edits once", store.load(["cc", "cc"]), [edits[2]])
    _expect("a tip that is only a beginning gives nothing", store.load(["a"]), [])
    _expect("a quote in a tip is a character", store.load(["' OR 1=1 --", '"', "%"]), [])


def _keeps_order(store: Store) -> None:
    first, second, third = _edit(1), _edit(2), _edit(3)
    store.save(iter([second, third]))
    store.save([first])
    _expect("load gives edits in the order of saving", store.load(["a"]), [second, third, first])


def _later_wins(store: Store) -> None:
    first, two = _edit(1), _edit(2)
    amended = Edit(first.start, first.stop, (user("amended"),), first.tip, first.by)
    store.save([first, two])
    store.save([amended])
    _expect(
        "an id saved again is kept once, the later, and counts as last",
        store.load(["a"]),
        [two, amended],
    )
    store.save([first, amended, first])
    _expect("likewise within one save", store.load(["a"]), [two, first])


def _removes(store: Store) -> None:
    first, two = _edit(1), _edit(2)
    store.save([first, two])
    store.remove([first.id[:8], "unknown", "' OR 1=1 --", two.id + "\x00"])
    _expect(
        "remove takes full ids only and passes over unknown ones", store.load(["a"]), [first, two]
    )
    store.remove(iter([first.id, "unknown", first.id]))
    _expect("remove forgets the edit", store.load(["a"]), [two])
    store.save([first])
    _expect("an edit removed and saved again is last", store.load(["a"]), [two, first])


def _is_exact(store: Store) -> None:
    edit = Edit(
        0,
        10**9,
        tuple(Message("assistant", (part,)) for part in PARTS),
        "a",
        "Summarize(keep=8, 中=' \ud800')",
    )
    bare = Edit(0, 1, (), "b")
    store.save([edit, bare])
    _expect(
        "what was saved comes back exactly, every kind of part and any text",
        store.load(["a", "b"]),
        [edit, bare],
    )


def _is_all_or_nothing(store: Store) -> None:
    def broken() -> Iterator[Edit]:
        yield _edit(1)
        raise LookupError

    try:
        store.save(broken())
    except LookupError:
        pass
    else:
        raise AssertionError("an error while save reads its argument reaches the caller")
    _expect("a save that fails keeps nothing", store.load(["a"]), [])


def _tells_changes(store: Store) -> None:
    seen = [store.version()]
    store.save([_edit(1)])
    seen.append(store.version())
    store.remove([_edit(1).id])
    seen.append(store.version())
    _expect(f"version changes with every write: {seen}", [len(set(seen))], [len(seen)])
    store.load(["a"])
    _expect("version stays while nothing is written", [store.version()], seen[-1:])


def _holds_many(store: Store) -> None:
    edits = [_edit(n, str(n)) for n in range(0, 10_000, 100)]
    store.save(edits)
    _expect(
        "load finds a hundred edits for ten thousand tips",
        store.load([str(n) for n in range(10_000)]),
        edits,
    )


def _serves_threads(store: Store) -> None:
    batches = [[_edit(10 * n + k, str(n)) for k in range(3)] for n in range(20)]
    _run_together([partial(_save_all, store, batches[k::4]) for k in range(4)])
    for n, batch in enumerate(batches):
        _expect("edits saved by several threads are all kept", store.load([str(n)]), batch)


def _holds_claims(store: Store) -> None:
    """Check claims, if the store supports them (`refold.stores.store.ClaimStore`)."""
    claims = as_claim_store(store)
    if claims is None:
        return
    _expect(
        "a claim is had once",
        [claims.claim("a", who, 60) for who in ("one", "two", "one")],
        [True, False, True],
    )
    claims.release("a", "two")
    _expect("nobody can release another's claim", [claims.claim("a", "two", 60)], [False])
    _expect("claims do not touch one another", [claims.claim("b", "two", 60)], [True])
    claims.release("a", "one")
    _expect("a claim that was released is free", [claims.claim("a", "two", -1)], [True])
    _expect(
        "a claim whose time is over is free",
        [claims.claim("a", who, 60) for who in ("one", "two")],
        [True, False],
    )
    taken = list[bool]()

    def claim(who: str) -> None:
        taken.append(claims.claim("c", who, 60))

    _run_together([partial(claim, str(n)) for n in range(8)])
    _expect("of eight who claim at once one has it", sorted(taken), [False] * 7 + [True])


def _finds_rows(store: Store) -> None:
    """Check the ledger, if the store has one (`refold.stores.store.LedgerStore`)."""
    ledger = as_ledger_store(store)
    if ledger is None:
        return
    _expect("a new ledger is empty", rows_about(ledger, ["a", ""]), [])
    rows = [LedgerRow(when=float(n), outcome="noop", tip=tip) for n, tip in enumerate(ODD_TIPS * 2)]
    ledger.record(iter(rows[:-1]))
    ledger.record([])
    ledger.record(rows[-1:])
    _expect("the ledger gives its rows in the order of recording", ledger.ledger(), rows)
    for tip in ODD_TIPS:
        _expect(
            f"the rows of the tip {tip!r}, exactly",
            rows_about(ledger, [tip]),
            [row for row in rows if row.tip == tip],
        )
    _expect(
        "the rows of all tips, each once, as recorded",
        rows_about(ledger, [*reversed(ODD_TIPS), *ODD_TIPS]),
        rows,
    )
    _expect("the rows of no tips are none", rows_about(ledger, []), [])
    _expect(
        "the rows of unknown tips are none", rows_about(ledger, ["b", "aa", "a\x00c", "\udfff"]), []
    )
    asked = [*map(str, range(10_000)), "中文", "a"]
    wanted = [row for row in rows if row.tip in asked]
    _expect("the rows of ten thousand tips", rows_about(ledger, asked), wanted)


def _is_shared(store: Store, second: Store) -> None:
    before = second.version()
    store.save([_edit(1)])
    _expect("an edit is there when the place is opened again", second.load(["a"]), [_edit(1)])
    _expect("version changes when another object has saved", [second.version() != before], [True])
    middle = store.version()
    second.remove([_edit(1).id])
    _expect("a removal is seen by the first", store.load(["a"]), [])
    _expect("version changes when another object has removed", [store.version() != middle], [True])


LAWS: tuple[Callable[[Store], None], ...] = (
    _starts_empty,
    _loads_by_tip,
    _keeps_order,
    _later_wins,
    _removes,
    _is_exact,
    _is_all_or_nothing,
    _tells_changes,
    _holds_many,
    _serves_threads,
    _holds_claims,
    _finds_rows,
)
"""Checks of `check_store`, each run on a new store."""


def _edit(n: int, tip: str = "a") -> Edit:
    return Edit(n, n + 2, (user(f"summary {n}"),), tip, "check_store")


def _run_together(works: Iterable[Callable[[], object]]) -> None:
    """Run *works* at once, each in a thread of its own. Raise the first error of one."""
    own = list(works)
    with ThreadPoolExecutor(len(own)) as pool:
        for result in [pool.submit(work) for work in own]:
            result.result()


def _save_all(store: Store, batches: Iterable[list[Edit]]) -> None:
    for batch in batches:
        store.save(batch)


def _expect(law: str, actual: Iterable[object], expected: Sequence[object]) -> None:
    got = list(actual)
    if got != expected:
        raise AssertionError(
            f"{law}: expected {len(expected)} {_short(expected)}, got {len(got)} {_short(got)}"
        )


def _short(values: Sequence[object]) -> str:
    return ", ".join(
        f"{value.id} ({value.start}:{value.stop})" if isinstance(value, Edit) else repr(value)
        for value in values[:8]
    )


__all__ = ["LAWS", "check_store"]
