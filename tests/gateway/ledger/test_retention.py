"""Deletion by age: never what an active session needs, and no sum."""

import json
import time
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold.edits import Edit
from refold.gateway.ledger.calls import ADD, CallLog, Filters
from refold.gateway.ledger.entry import EntryKey, Sums
from refold.gateway.ledger.rows import ListedSession
from refold.gateway.ledger.sql import Retention, prune
from refold.gateway.ledger.writer import open_ledger
from refold.gateway.metrics import Counters
from refold.messages import user
from refold.stores import MemoryStore, SQLiteStore, open_store
from refold.stores.sql import MIN_SECONDS, SQLStore
from refold.stores.store import LedgerRow
from refold.strategies import ClearToolResults
from tests.support.agent_requests import read_files
from tests.support.command_line import refold
from tests.support.pipeline_driver import Driver

DAY = 24
"""A day in hours."""
TIPS = ("a", "b", "c")


def edit(number, tip):
    return Edit(number, number + 1, (user("summary"),), tip, "test")


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def place(request, tmp_path_factory):
    if request.param == "sqlite":
        return str(tmp_path_factory.mktemp("store") / "refold.db")
    return request.getfixturevalue("server").database()


def execute(store: SQLStore, statement: str) -> None:
    """Execute a statement on tables whose names differ between the databases only by a prefix."""
    with store._database.transaction(edits=False) as connection:
        prefix = "refold_" if store._database.placeholder == "%s" else ""
        connection.execute(statement.format(prefix=prefix))


def let_hours_pass(store: SQLStore, hours: int) -> None:
    execute(store, f"UPDATE {{prefix}}edits SET used = used - {hours}")


def clear(store: SQLStore) -> None:
    for table in ("edits", "ledger"):
        execute(store, f"DELETE FROM {{prefix}}{table}")


STEPS = st.one_of(
    st.tuples(st.just("use"), st.sampled_from(TIPS)),
    st.tuples(st.just("save"), st.tuples(st.sampled_from(TIPS), st.integers(0, 3))),
    st.tuples(st.just("pass"), st.integers(1, 60)),
    st.tuples(st.just("prune"), st.integers(1, 3)),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(STEPS, max_size=20))
def test_law_used_edits_are_kept_and_unused_edits_are_pruned(place, steps):
    """An edit is kept if it was saved or found since the limit, up to the hours for which a use may
    go unrecorded."""
    with closing(open_store(place)) as store:
        clear(store)
        ages = dict[Edit, int]()
        for step, value in steps:
            if step == "use":
                there = {each for each in ages if each.tip == value}
                assert set(store.load([value])) == there
                ages |= dict.fromkeys(there, 0)
            elif step == "save":
                store.save([edit(value[1], value[0])])
                ages[edit(value[1], value[0])] = 0
            elif step == "pass":
                let_hours_pass(store, value)
                ages = {each: age + value for each, age in ages.items()}
            else:
                store.prune(value * MIN_SECONDS)
                everything = set(store.load(TIPS))
                for each, age in ages.items():
                    assert each in everything or age > value * DAY - 7
                    assert each not in everything or age <= value * DAY + 1
                ages = dict.fromkeys(everything, 0)


def test_an_edit_that_is_pruned_while_it_is_loaded_is_not_shown(place):
    class Interrupted(type(open_store(place, connect=False))):
        def _note_use(self, *values):
            with closing(open_store(place)) as pruning:
                assert pruning.prune(MIN_SECONDS).edits == 2
            return super()._note_use(*values)

    with closing(Interrupted(place)) as store:
        clear(store)
        store.save([edit(1, "a"), edit(2, "a")])
        let_hours_pass(store, 100)
        assert store.load(["a"]) == store.load(["a"]) == ()


def test_pruning_covers_many_pages_of_rows(place, monkeypatch):
    monkeypatch.setattr("refold.stores.sql.PAGE_ROWS", 7)
    with closing(open_store(place)) as store:
        clear(store)
        store.save([edit(n, "a") for n in range(20)])
        let_hours_pass(store, 100)
        store.save([edit(n, "b") for n in range(20)])
        store.record(
            LedgerRow(when=1.0, outcome="applied", edit=each.id, tip=each.tip, reason='"when":9e99')
            for tip in "ab"
            for each in (edit(n, tip) for n in range(20))
        )
        store.record(
            [LedgerRow(when=time.time(), outcome="noop"), LedgerRow(when=2.0, outcome="noop")]
        )
        assert store.prune(MIN_SECONDS) == (20, 21)
        assert len(store.load(["a", "b"])) == 20
        assert {row.tip for row in store.ledger()} == {"b", ""}


def test_law_nothing_of_an_active_session_is_pruned():
    """A process that knows the session, one that does not, and a client that rewrites the beginning
    of its history much later all show each result as before."""
    times, steps = [NOW], 60

    def request(first="Fix it."):
        messages = [{"role": "user", "content": first}, *read_files(steps)]
        return json.dumps({"model": "m", "messages": messages}).encode()

    settings = {"strategies": (ClearToolResults(keep=3),), "clock": lambda: times[0]}
    with SQLiteStore(":memory:") as store, Driver(store, **settings) as driver:
        before = driver(request(), "openai_chat")
        assert before.edits
        (conversation,) = driver.pipeline.conversations
        assert conversation.pins is not None
        pin = conversation.pins.add(0, user("Fix it."))
        count = len(list(store._database._connection.execute("SELECT id FROM edits")))
        for _ in range(8):
            times[0] += 20 * 3_600
            let_hours_pass(store, 20)
            steps += 1
            again = driver(request(), "openai_chat")
            assert store.prune(MIN_SECONDS).edits == 0
            assert again.edits == before.edits
        assert list(conversation.pins.load()) == [pin]
        assert len(list(store._database._connection.execute("SELECT id FROM edits"))) >= count
        with Driver(store, **settings) as second:
            assert second(request(), "openai_chat").edits == before.edits
            second(request("Fix that."), "openai_chat")
            assert second.count("decided_again") > 0


NOW = 1_000_000_000.0
SESSIONS = {"old": NOW - 40 * 86_400, "live": NOW - 3_600, "": NOW - 50 * 86_400}


def book(books, names=SESSIONS, tenant="t"):
    began = int(NOW - 60 * 86_400) // 3600 * 3600
    lines = {
        EntryKey(began + hour, tenant, name, "m", "reported"): Sums(calls=1, fresh=7, would_fresh=9)
        for name in names
        for hour in (0, 3600)
    }
    rows = [
        (ADD[ListedSession], ListedSession(name, tenant, "", "", "", "m", began, latest, 0, 0, 0))
        for name, latest in names.items()
        if name
    ]
    books.add(lines, {}, rows)


def test_ended_sessions_are_merged_and_the_totals_stay_the_same(place):
    with closing(open_ledger(place)) as books, closing(open_store(place)) as store:
        book(books)
        calls = CallLog(books._database)
        (sums, before, _), live = calls.totals(0, Filters()), books.sum_sessions(["live"])
        old = books.sum_sessions(["old"])["old"].calls
        assert prune(store, books, 30 * 86_400, NOW).sessions == 1
        assert calls.totals(0, Filters()) == (sums, before + old, 1)
        assert books.sum_sessions(["live"]) == live
        assert not books.sum_sessions(["old"])
        assert {key.tenant for key, _ in books.entries()} == {"t"}
        assert prune(store, books, 30 * 86_400, NOW).sessions == 0


def test_only_one_of_several_processes_prunes_a_shared_store(place):
    counters = Counters()
    with closing(open_store(place)) as store, closing(open_ledger(place)) as books:
        clear(store)
        store.save([edit(1, "a")])
        let_hours_pass(store, 100)
        keepers = [Retention(store, books, MIN_SECONDS, counters, lambda: NOW) for _ in range(3)]
        for keeper in keepers:
            keeper.prune_if_due()
        assert counters.get("pruned", what="edits") == 1
        assert len([key for key in counters.values() if key[0] == "pruned"]) == 3


def test_pruning_requires_an_age_of_a_day_and_an_sql_store(tmp_path):
    with SQLiteStore(":memory:") as store, pytest.raises(ValueError, match="24 hours at least"):
        store.prune(MIN_SECONDS - 1)
    with pytest.raises(ValueError, match="SQLite and PostgreSQL"):
        prune(MemoryStore(), None, MIN_SECONDS, NOW)


def test_refold_prune_reports_what_it_deleted(tmp_path):
    path = str(tmp_path / "refold.db")
    with SQLiteStore(path) as store:
        store.save([edit(1, "a"), edit(2, "b")])
        let_hours_pass(store, 100 * DAY)
        store.load(["b"])
    done = refold("prune", "--store", path, "--older", "90d", "--json")
    assert done.json == {"edits": 1, "attempts": 0, "sessions": 0}
    assert refold("prune", "--store", path, "--older", "90d").out == (
        "deleted 0 edits, 0 attempts, 0 sessions\n"
    )
    for arguments in (["--older", "1h"], ["--older", "soon"]):
        assert refold("prune", "--store", path, *arguments).code == 2
    assert refold("prune", "--store", str(tmp_path / "none.db"), "--older", "9d").code == 2
    assert not (tmp_path / "none.db").exists()
