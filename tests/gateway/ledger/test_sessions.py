"""The table of sessions, in SQLite and in a real PostgreSQL database."""

import gc
import json
import weakref
from collections.abc import Iterator

import pytest

from refold import Budget, Compactor, Edit, Message, Text
from refold.errors import StoreError
from refold.gateway.conversations.conversations import Conversation, LatestRequest
from refold.gateway.ledger.entry import EntryKey, Sums
from refold.gateway.ledger.sessions import KEPT_SECONDS, MAX_WAITING, Sessions
from refold.gateway.ledger.sql import NAMES_PER_QUERY, EditTextCache, Ledger
from refold.gateway.ledger.writer import open_ledger

NOW = 1_790_000_000.0


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(request, tmp_path) -> Iterator[Ledger]:
    is_server = request.param == "postgresql"
    opened = open_ledger(
        request.getfixturevalue("url") if is_server else str(tmp_path / "refold.db")
    )
    yield opened
    opened.close()


def conversation(
    name: str,
    words: str = "Hello.",
    when: float = NOW,
    edited: float = 0.0,
    by: str = "",
    more: str = "",
) -> Conversation:
    """Return a conversation with one request: a user message, a long answer and another message, or
    *more*."""
    compactor = Compactor((), Budget(10**6, 10**6), salt="salt")
    view = compactor.show(
        [
            {"role": "user", "content": words},
            {"role": "assistant", "content": "Long. " * 50},
            {"role": "user", "content": "Go on."},
            *([{"role": "assistant", "content": more}] if more else []),
        ]
    )
    if by:
        short = Message("assistant", (Text("[\ud800 short\0]"),))
        view = view.apply(view.fold(1, 2, short, by=by))
    dialogue = Conversation(name, "family", f"tenant of {name}", compactor)
    dialogue.latest = LatestRequest("m", "up", when, view, 7, edited)
    return dialogue


def sessions(ledger: Ledger, now: float = NOW) -> Sessions:
    return Sessions(ledger._database, lambda: now)


def test_a_session_saved_by_one_process_is_found_by_another(ledger: Ledger) -> None:
    here, there = sessions(ledger), sessions(ledger)
    here.note(conversation("s", by="by hand"))
    assert there.find("s") is None, "nothing is written before it is asked for"
    mine = here.find("s")
    assert mine is not None and there.find("s") == mine
    assert (mine.tenant, mine.salt, mine.messages, mine.edits) == ("tenant of s", "salt", 3, 1)
    (edit,) = mine.list_edits()
    assert (edit.by, edit.start, edit.stop, edit.text) == ("by hand", 1, 2, "[\ud800 short\0]")
    assert mine.tokens_before - mine.tokens_after == edit.tokens_before - edit.tokens_after
    assert mine.fixed_tokens == 7 and len(mine.tips) == 4 and len(set(mine.tips)) == 4
    assert "Long." not in json.dumps(mine), "no message is kept"


def test_a_late_write_does_not_replace_newer_session_data(ledger: Ledger) -> None:
    """A process that writes a second later replaces neither the request nor the edits shown."""
    here, there = sessions(ledger), sessions(ledger)
    here.note(conversation("s", "Newer.", NOW + 1))
    here.save()
    there.note(conversation("s", "Older.", NOW))
    row = there.find("s")
    assert row is not None and row.last_seen == NOW + 1
    here.note(conversation("s", "Newer.", NOW, edited=NOW + 3))  # reverted by hand there
    here.save()
    there.note(conversation("s", "Newer.", NOW + 2, by="before the revert"))
    row = there.find("s")
    assert row is not None and row.edits == 0
    there.note(conversation("s", "Another.", NOW + 2))
    row = there.find("s")
    assert row is not None and row.last_seen == NOW + 2, "another history is news all the same"
    here.note(conversation("s", "Newer.", NOW + 1, edited=NOW + 4))
    row = here.find("s")
    assert row is not None and row.last_seen == NOW + 2, "an edit of an older one is not"


def test_a_longer_history_replaces_a_shorter_one_with_a_later_time(ledger: Ledger) -> None:
    """A gateway whose clock was hours behind used to change nothing in a session that another had
    seen."""
    here, there = sessions(ledger), sessions(ledger)
    here.note(conversation("s", when=NOW))
    here.save()
    there.note(conversation("s", when=NOW - 7_200, more="Done."))
    row = there.find("s")
    assert row is not None and row.messages == 4


def test_sessions_are_listed_once_latest_first_with_those_only_in_the_ledger(
    ledger: Ledger,
) -> None:
    key = EntryKey(int(NOW // 3_600) * 3_600, "t", "", "m", "reported")
    table = sessions(ledger)
    ledger.add(
        {key._replace(session=name): Sums(calls=1) for name in ("a", "booked", "")}
        | {key._replace(session="booked", hour=0): Sums(calls=1)}
    )
    for name, when in (("a", NOW - 10_000), ("b", NOW), ("c", NOW - 9_000)):
        table.note(conversation(name, when=when))
    everything = [("b", NOW), ("booked", float(key.hour)), ("c", NOW - 9_000), ("a", NOW - 10_000)]
    assert table.list_latest(10, 0, is_booked_enough=True) == (everything, 4)
    assert table.list_latest(2, 1, is_booked_enough=True) == (everything[1:3], 4)
    assert table.list_latest(10, 9, is_booked_enough=True) == ([], 4)
    remembered = [item for item in everything if item[0] != "booked"]
    assert table.list_latest(10, 0, is_booked_enough=False) == (remembered, 3)
    assert set(table.read(["a", "b", "booked", "none", ""])) == {"a", "b"}
    assert table.read([]) == {}


def test_sessions_that_were_not_seen_for_long_are_purged(ledger: Ledger) -> None:
    table = sessions(ledger, NOW + KEPT_SECONDS)
    for name, when in (("old", NOW - 1), ("young", NOW + 1)):
        table.note(conversation(name, when=when))
    table.save()
    table.purge()
    assert [name for name, _ in table.list_latest(9, 0, is_booked_enough=True)[0]] == ["young"]


def test_many_sessions_are_read_in_several_queries(ledger: Ledger) -> None:
    table = sessions(ledger)
    names = [f"s{n}" for n in range(MAX_WAITING)]
    for name in names:
        table.note(conversation(name))
    assert len(names) > NAMES_PER_QUERY and set(table.read(names)) == set()
    table.save()
    assert set(table.read(names)) == set(names)


def test_unwritten_sessions_wait_for_the_database_up_to_a_limit(tmp_path) -> None:
    ledger = open_ledger(str(tmp_path / "none" / "refold.db"))
    table = sessions(ledger)
    for n in range(MAX_WAITING + 5):
        table.note(conversation(f"s{n}"))
    with pytest.raises(StoreError):
        table.save()
    (tmp_path / "none").mkdir()
    assert table.list_latest(1, 0, is_booked_enough=True)[1] == MAX_WAITING
    assert table.find("s4") is None and table.find("s5") is not None
    ledger.close()


def test_sessions_waiting_for_the_database_do_not_keep_their_history(tmp_path) -> None:
    """A thousand waiting sessions used to keep megabytes of history each."""
    table, noted = sessions(open_ledger(str(tmp_path / "none" / "refold.db"))), conversation("s")
    table.note(noted)
    with pytest.raises(StoreError):
        table.save()
    gone = weakref.ref(noted)
    del noted
    gc.collect()
    assert gone() is None
    (tmp_path / "none").mkdir()
    assert table.find("s") is not None
    table.close()


def test_sessions_can_be_read_while_the_database_refuses_writes(tmp_path) -> None:
    """On a full disk existing sessions are listed, and new ones wait."""
    ledger = open_ledger(str(tmp_path / "refold.db"))
    table = sessions(ledger)
    table.note(conversation("s"))
    table.save()
    table.note(conversation("t"))
    with ledger._database.connection("write") as connection:
        connection.execute(
            "CREATE TEMP TRIGGER full BEFORE INSERT ON main.refold_sessions "
            "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
        )
    assert table.find("s") is not None
    assert table.list_latest(9, 0, is_booked_enough=True)[1] == 1
    with ledger._database.connection("write") as connection:
        connection.execute("DROP TRIGGER full")
    assert table.list_latest(9, 0, is_booked_enough=True)[1] == 2
    ledger.close()


def test_the_stored_text_of_an_amended_summary_is_updated(ledger: Ledger) -> None:
    """The edit keeps its id."""
    table, texts = sessions(ledger), []
    for text in ("[first]", "[second]"):
        noted = conversation("s")
        assert noted.latest is not None
        view = noted.latest.view
        edit = view.fold(1, 2, Message("assistant", (Text(text),)), by="by hand")
        noted.latest = noted.latest._replace(view=view.apply(edit))
        table.note(noted)
        row = table.find("s")
        assert row is not None
        texts += [edit.text for edit in row.list_edits()]
    assert texts == ["[first]", "[second]"]


def test_the_cache_of_edit_texts_is_limited_by_size_and_not_by_count():
    """Ten thousand summaries used to stay in the memory of each process, in addition to
    `known_bytes`."""
    words, read = EditTextCache(most=20_000), []

    def ask(number: int, by: str = "A()") -> tuple[str, str]:
        edit = Edit(start=0, stop=1, insert=(), tip=f"{number:032x}", by=by)
        return words.get(edit, lambda: (read.append(number), ("whole", f"{number:1500}"))[1])

    for number in range(100):
        assert ask(number) == ask(number) == ("whole", f"{number:1500}")
    assert read == [*range(100)]
    read.clear()
    for number in (99, 95, 0, 99):
        ask(number)
    assert read == [0]
