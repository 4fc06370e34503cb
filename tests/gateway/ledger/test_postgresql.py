"""The ledger and transcripts in a real PostgreSQL database, beside the store's own tables."""

from threading import Thread
from time import time

from refold.errors import StoreError
from refold.gateway.ledger.calls import ADD, CallLog, Filters
from refold.gateway.ledger.entry import EntryKey, Sums
from refold.gateway.ledger.rows import ListedSession
from refold.gateway.ledger.sessions import Sessions
from refold.gateway.ledger.sql import MIGRATIONS, PAGE, Ledger
from refold.gateway.ledger.writer import open_ledger, open_transcripts
from refold.stores.postgresql import PostgreSQLPool, PostgreSQLStore
from tests.support.billed_calls import Clock, make_billed_call, text_messages

DAY = 86_400.0


def test_gateways_on_several_machines_add_to_one_ledger(url):
    """Each may be the first to open it. The version of the edits does not change, so no edit is
    read again."""
    key, sums = (
        EntryKey(3_600, "t", "s", "m\u4e2d", "reported"),
        Sums(calls=1, cost_read=2**40, would_cost=-(2**41)),
    )

    def work() -> None:
        ledger = open_ledger(url)
        for _ in range(20):
            ledger.add({key: sums, key._replace(basis="estimated"): sums})
        ledger.close()

    with PostgreSQLStore(url) as store:
        before = store.version()
        workers = [Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert store.version() == before
    ledger = open_ledger(url, create=False)
    entries = dict(ledger.entries())
    ledger.close()
    whole = Sums(calls=80, cost_read=80 * 2**40, would_cost=-80 * 2**41)
    assert entries == {key: whole, key._replace(basis="estimated"): whole}


def test_a_ledger_of_an_older_version_is_migrated(url):
    key, sums = EntryKey(3_600, "t", "s", "m", "reported"), Sums(calls=1, would_cost=2**62)
    before = Ledger(PostgreSQLPool(url, 10.0, 2, MIGRATIONS[:1], "ledger"))
    before.add({key: sums, key._replace(session="u"): sums})
    before.close()
    ledger = open_ledger(url)
    ledger.add({key._replace(hour=7_200): sums, key._replace(basis="estimated"): sums})
    booked = ledger.sum_sessions(["s", "s", "nobody", ""])
    assert list(booked) == ["s"] and (booked["s"].reported, booked["s"].unreported) == (
        sums + sums,
        sums,
    )  # exceeds a BIGINT
    assert all(type(figure) is int for figure in booked["s"].reported.values())
    with ledger._database.connection("read") as connection:
        assert connection.execute("SELECT to_regclass('refold_calls_by_latest')").fetchone() != (
            None,
        )
    ledger.close()


def test_a_ledger_of_many_pages_is_read_once_and_in_order(url):
    """The order is that of the database, also across pages."""
    ledger = open_ledger(url)
    booked = {
        EntryKey(n % 3, "tT"[n % 2], f"s{n}", "mM-_ é"[n % 6], "reported"): Sums(calls=n)
        for n in range(PAGE + 7)
    }
    ledger.add(booked)
    entries = list(ledger.entries())
    assert dict(entries) == booked and len(entries) == len(booked)
    assert [key.hour for key, _ in entries] == sorted(key.hour for key in booked)
    ledger.close()


def test_transcripts_grow_fork_and_expire(url):
    clock = Clock()
    transcripts = open_transcripts(url, DAY, clock)
    transcripts.record(make_billed_call(text_messages("a", "b\0\ud800中"), when=clock.now))
    transcripts.record(make_billed_call(text_messages("a", "c", "d"), when=clock.now))
    transcripts.record(make_billed_call(text_messages("other"), session="u", when=clock.now + 5))
    assert [message.text for message in transcripts.load("t", "s").messages] == ["a", "c", "d"]
    assert transcripts.load("another", "s") is None
    assert transcripts.is_recorded("t", "s") and not transcripts.is_recorded("another", "s")
    clock.now += DAY + 1
    assert transcripts.purge() == 1
    assert transcripts.load("t", "s") is None
    transcripts.close()
    later = open_transcripts(url, None, clock)
    clock.now += 10
    assert later.purge() == 1 and not later.is_recorded("t", "u")
    later.close()


def test_f16_both_databases_report_the_same_entries(url, tmp_path):
    """Sessions, their figures and the totals, as the page requests them."""
    key = EntryKey(3_600, "t", "s0", "m", "reported")
    lines = {
        key._replace(
            hour=3_600 * (n % 5),
            session=f"s{n % 4}" if n % 7 else "",
            model="mn"[n % 2],
            basis=basis,
        ): Sums(calls=n, fresh=n, would_fresh=3 * n, would_cost=2**59, unpriced=n % 2)
        for n in range(1, 40)
        for basis in ("reported", "estimated")
    }
    answers = []
    for place in (url, str(tmp_path / "refold.db")):
        ledger = open_ledger(place)
        ledger.add(lines)
        names = [f"s{n}" for n in range(5)]
        answers.append(
            (
                Sessions(ledger._database, time).list_latest(3, 0, is_booked_enough=True),
                ledger.sum_sessions(names),
                *CallLog(ledger._database).totals(0, Filters()),
                CallLog(ledger._database).totals(7_200, Filters()),
            )
        )
        nothing, unlisted, none = CallLog(ledger._database).totals(10**9, Filters())
        assert (none, unlisted, nothing.calls) == (0, 0, 0)
        ledger.close()
    assert answers[0] == answers[1]
    newest, booked, totals, unlisted, sessions, _ = answers[0]
    assert unlisted == 2 * sum(range(7, 40, 7)) < totals.calls
    assert len(newest[0]) == 3 and newest[1] == sessions == len(booked) == 4
    assert totals.calls == sum(sums.calls for sums in lines.values())
    assert totals.reported.would_cost == len(lines) // 2 * 2**59 > 2**63, "more than a BIGINT holds"


def list_session(number: int) -> tuple[str, ListedSession]:
    return ADD[ListedSession], ListedSession(f"s{number}", "t", "", "", "", "m", 1.0, 2.0, 3, 4, 0)


def test_the_number_of_round_trips_does_not_depend_on_the_number_of_rows(url, tmp_path):
    """A database may be far away."""
    ledger, waits, place = open_ledger(url), [], tmp_path / "trace"
    for count in (1, 300):
        with ledger._database.connection("trace") as connection:
            trace = connection.pgconn
        with place.open("wb") as file:
            trace.trace(file.fileno())
            ledger.add({}, None, list(map(list_session, range(count))))
            trace.untrace()
        waits.append(place.read_bytes().count(b"\tReadyForQuery\t"))
    ledger.close()
    assert waits[0] == waits[1] > 0


def test_concurrent_writers_of_the_same_sessions_do_not_fail(url):
    """Their calls may come in any order: a load balancer may send a session to any gateway."""
    rows, failures = list(map(list_session, range(2_000))), []

    def work(rows) -> None:
        ledger = open_ledger(url)
        try:
            ledger.add({}, None, rows)
        except StoreError as error:
            failures.append(error)
        ledger.close()

    open_ledger(url).close()
    workers = [Thread(target=work, args=(order,)) for order in (rows, rows[::-1])]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


def test_processes_that_record_one_session_at_once_keep_its_latest_history(url):
    """Consecutive turns of a fast agent reach two workers, which write within the same second."""
    connections = [open_transcripts(url, DAY, Clock()) for _ in range(4)]
    words, failures = [f"word {n}" for n in range(40)], []

    def work(transcripts, first: int) -> None:
        for n in range(first, len(words), len(connections)):
            try:
                transcripts.record(make_billed_call(text_messages(*words[: n + 1]), when=1e6 + n))
            except StoreError as error:
                failures.append(error)

    workers = [
        Thread(target=work, args=(transcripts, n)) for n, transcripts in enumerate(connections)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures
    assert [message.text for message in connections[0].load("t", "s").messages] == words
    for transcripts in connections:
        transcripts.close()
