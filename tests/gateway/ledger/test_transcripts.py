"""`--record`: what is kept of conversations, of whom, and that it is deleted at its time."""

import json
import re
import sqlite3
import stat
import time
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.codecs.detect import open_payload
from refold.edits import Edit
from refold.errors import StoreError
from refold.gateway.config import Config, ConfigError, parse_config
from refold.gateway.ledger.accounting import Accounting, BilledCall
from refold.gateway.ledger.calls import CallLog, PastCalls
from refold.gateway.ledger.rows import describe_message
from refold.gateway.ledger.sessions import Sessions
from refold.gateway.ledger.sql import Ledger
from refold.gateway.ledger.transcripts import MIGRATIONS, RetentionLimits, Transcripts
from refold.gateway.ledger.writer import (
    RECORDS_ID,
    LedgerWriter,
    create_writer,
    open_ledger_database,
    open_transcripts,
)
from refold.gateway.metrics import Counters
from refold.gateway.settings import parse_duration
from refold.messages import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult, user
from refold.stores.edit_json import dump_edit
from refold.text.json_values import canonicalize
from refold.transcript import Transcript
from tests.support.billed_calls import KEY, Clock, make_billed_call, text_messages

DAY = 86_400.0


def load_texts(transcripts: Transcripts, tenant: str = "t", session: str = "s") -> list[str] | None:
    transcript = transcripts.load(tenant, session)
    return [message.text for message in transcript.messages] if transcript else None


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def transcripts(tmp_path, clock):
    recorder = open_transcripts(str(tmp_path / "refold.db"), 7 * DAY, clock)
    yield recorder
    recorder.close()


TEXT = st.text(max_size=12)
PARTS = st.one_of(
    st.builds(Text, TEXT.filter(bool)),
    st.builds(Thinking, TEXT, TEXT),
    st.builds(ToolCall, TEXT, TEXT, TEXT),
    st.builds(ToolResult, TEXT, st.tuples(st.builds(Text, TEXT)), st.booleans()),
    st.builds(Media, st.sampled_from(["image", "document"]), TEXT, TEXT),
    st.builds(Opaque, TEXT, TEXT),
)
MESSAGES = st.builds(Message, st.sampled_from(["user", "assistant", "tool"]), st.lists(PARTS, min_size=1, max_size=3).map(tuple))  # fmt: skip
HISTORIES = st.lists(
    st.tuples(st.lists(MESSAGES, min_size=1, max_size=6), st.integers(0, 3)), min_size=1, max_size=6
)


@given(HISTORIES)
def test_the_latest_history_is_kept_word_for_word(histories):
    """Grown, rewound or begun anew: what is kept is the history of the last call. Thinking is no part of a message's
    identity, so of messages that differ in it alone the first is kept."""
    transcripts = open_transcripts(":memory:", DAY, lambda: 1_000_000.0)
    before: list[Message] = []
    for messages, keep in histories:
        before = [*before[:keep], *messages]
        transcripts.record(make_billed_call(before))
        transcript = transcripts.load("t", "s")
        assert (
            transcript is not None
            and Transcript.of(transcript.messages).tips == Transcript.of(before).tips
        )
        assert transcript.info.length == len(before) and transcript.info.model == "m"
    transcripts.record(make_billed_call(before, session="another"))
    assert list(transcripts.load("t", "another").messages) == before
    transcripts.close()


def test_text_with_surrogates_or_nul_is_recorded_and_cleaned_in_the_title(transcripts):
    """Half an emoji, or a NUL, in the first request of a session: its title holds neither."""
    messages = text_messages("Mend \ud83d the\0 build", "Done.")
    transcripts.record(make_billed_call(messages))
    assert list(transcripts.load("t", "s").messages) == messages
    assert transcripts.titles(["s"]) == {"s": "Mend ? the build"}


@pytest.fixture(params=["sqlite", "postgresql"])
def searched(request, tmp_path, clock):
    address = str(tmp_path / "a") if request.param == "sqlite" else request.getfixturevalue("url")
    with closing(open_transcripts(address, 7 * DAY, clock)) as recorder:
        yield recorder


WRITTEN_PARTS = (
    Text('Mend "the build"\nin C:\\temp, 50%_A'),
    Text("修复登录错误"),
    ToolCall("c1", "Bash", canonicalize({"command": 'echo "hi"\nls src\\new', "note": "提交"})),
    ToolCall("c2", "apply_patch", "*** Begin Patch: Ärger"),
    ToolResult("c1", (Text("exit code 1\tДа"), Opaque("card", '{"title": "An opaque card"}'))),
    Thinking("Perhaps the parser.", "c2lnbmF0dXJl"),
)


@pytest.mark.parametrize("words", ["mend", '"the build"', 'build"\nin', "c:\\TEMP", "50%_a", "登录", "提交", 'echo "hi"', '"hi"\nLS', "src\\new", "bash", "ÄRGER", "ärger", "ДА", "code 1\tда", "the title", "note: 提交", 'command: echo "hi"', "bash command: "])  # fmt: skip
def test_words_of_people_models_and_tools_are_found_as_they_stand(searched, words):
    """In any case, whatever letters a database knows, and however JSON spells them."""
    title, written = user("The title"), Message("assistant", WRITTEN_PARTS)
    searched.record(make_billed_call([title, written]))
    assert searched.find_sessions(words, 9) == ["s"]


@pytest.mark.parametrize("words", ["role", "assistant", "type", "text", "tool_call", "recorded", "parts", "c1", "50__A", "\\u", '":"', "c2lnbm", 'build\\"'])  # fmt: skip
def test_what_only_the_stored_form_holds_is_not_found(searched, words):
    searched.record(make_billed_call([user("Hi."), Message("assistant", WRITTEN_PARTS)]))
    assert searched.find_sessions(words, 9) == []


def test_the_latest_sessions_are_found_and_none_that_expired(searched, clock):
    """And words only in the title or only in the messages of a session, once each."""
    for at in range(4):
        call = make_billed_call(text_messages("needle", "needle"), session=f"s{at}", when=1e6 + at)
        searched.record(call)
    assert searched.find_sessions("needle", 2) == ["s3", "s2"]
    clock.now += 7 * DAY + 2.5
    assert searched.find_sessions("needle", 9) == ["s3"]


def test_a_late_write_does_not_replace_a_newer_history(transcripts):
    """Two processes write once a second each, whichever had the earlier request."""
    transcripts.record(make_billed_call(text_messages("a", "b", "c"), when=1e6 + 2))
    transcripts.record(make_billed_call(text_messages("a"), when=1e6 + 1))
    assert load_texts(transcripts) == ["a", "b", "c"]
    assert transcripts.past_calls.find("t", "s", 1e6 + 1).length == 1


def test_a_longer_history_replaces_a_shorter_one_with_a_later_time(transcripts):
    """Of two gateways whose clocks differ by hours, or where a clock was set back, one kept nothing."""
    transcripts.record(make_billed_call(text_messages("a"), when=1e6))
    transcripts.record(make_billed_call(text_messages("a", "b", "c"), when=1e6 - 7_200))
    assert load_texts(transcripts) == ["a", "b", "c"]
    transcripts.record(make_billed_call(text_messages("a", "b"), when=1e6 - 1))  # written late
    assert load_texts(transcripts) == ["a", "b", "c"]


def test_a_grown_history_is_recorded_with_its_new_time_and_size(transcripts):
    transcripts.record(make_billed_call(text_messages("a", "b")))
    first = transcripts.load("t", "s").info
    transcripts.record(make_billed_call(text_messages("a", "b", "c"), when=1_000_005.0))
    then = transcripts.load("t", "s").info
    assert load_texts(transcripts) == ["a", "b", "c"] and (then.began, then.latest) == (
        first.began,
        1_000_005.0,
    )
    again = open_transcripts(":memory:", DAY, lambda: 1_000_000.0)
    again.record(make_billed_call(text_messages("a", "b", "c")))
    assert again.load("t", "s").info.size == then.size, "what was cut and what was added is counted"
    transcripts.record(make_billed_call(text_messages("a", "x")))
    transcripts.record(make_billed_call(text_messages("a", "b", "c")))
    assert transcripts.load("t", "s").info.size == then.size
    again.close()


def test_only_the_new_messages_of_a_grown_history_are_written(transcripts, tmp_path):
    transcripts.record(make_billed_call(text_messages("a", "b")))
    with closing(sqlite3.connect(tmp_path / "refold.db.transcripts")) as connection:
        connection.execute("CREATE TABLE written (place)")
        connection.execute(
            "CREATE TRIGGER note AFTER INSERT ON refold_transcript_messages "
            "BEGIN INSERT INTO written VALUES (NEW.place); END"
        )
        for words in (("a", "b", "c"), ("a", "b", "c"), ("a", "x", "y")):
            transcripts.record(make_billed_call(text_messages(*words)))
        rows = connection.execute("SELECT place FROM written ORDER BY rowid").fetchall()
    assert [place for (place,) in rows] == [2, 1, 2]


def test_transcripts_of_an_older_version_are_migrated(tmp_path, clock):
    """Their tables had other names."""
    row = ("t", "s", "tip", 1, "openai_chat", "m", 0, clock.now, clock.now, clock.now + DAY, 5)
    message = ("t", "s", 0, "tip", dump_edit(Edit(0, 1, (Message("user"),), "", "")))
    with closing(sqlite3.connect(tmp_path / "refold.db.transcripts")) as connection, connection:
        for statement in (
            *MIGRATIONS[0],
            f"PRAGMA application_id = {RECORDS_ID}",
            "PRAGMA user_version = 1",
        ):
            connection.execute(statement)
        connection.execute(f"INSERT INTO refold_heads VALUES ({', '.join('?' * 11)})", row)
        connection.execute("INSERT INTO refold_said VALUES (?, ?, ?, ?, ?)", message)
    transcripts = open_transcripts(str(tmp_path / "refold.db"), DAY, clock)
    transcript = transcripts.load("t", "s")
    assert (transcript.info.model, transcript.messages, transcript.tips) == (
        "m",
        (Message("user"),),
        ("tip",),
    )
    assert transcripts.purge() == 0
    transcripts.close()


def test_a_tenant_sees_its_own_and_nothing_else(transcripts, clock):
    transcripts.record(make_billed_call(text_messages("mine"), tenant="a", when=clock.now))
    transcripts.record(make_billed_call(text_messages("yours"), tenant="b", when=clock.now))
    assert load_texts(transcripts, "a") == ["mine"] and load_texts(transcripts, "b") == ["yours"]
    assert load_texts(transcripts, "c") is None and load_texts(transcripts, "a", "other") is None
    assert transcripts.is_recorded("a", "s")
    assert not transcripts.is_recorded("a", "other") and not transcripts.is_recorded("c", "s")


def test_a_transcript_is_deleted_after_its_retention_time(transcripts, clock, tmp_path):
    transcripts.record(
        make_billed_call(text_messages("geheimnis-eins"), session="old", when=clock.now)
    )
    clock.now += 3 * DAY
    transcripts.record(
        make_billed_call(text_messages("geheimnis-zwei"), session="new", when=clock.now)
    )
    assert transcripts.purge() == 0
    clock.now += 4 * DAY
    assert load_texts(transcripts, session="old") is None, "not even read after its time"
    assert not transcripts.is_recorded("t", "old") and transcripts.is_recorded("t", "new")
    assert transcripts.purge() == 1
    assert transcripts.purge() == 0
    assert transcripts.is_recorded("t", "new")
    raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"geheimnis-eins" not in raw and b"geheimnis-zwei" in raw


def test_expired_transcripts_are_looked_for_once_an_hour(transcripts, clock):
    assert transcripts.purge() == 0
    transcripts.record(make_billed_call(text_messages("x"), when=clock.now - 8 * DAY))
    clock.now += 3_599
    assert transcripts.purge() == 0
    clock.now += 2
    assert transcripts.purge() == 1


def test_a_clock_that_is_set_back_does_not_delay_deletion(transcripts, clock):
    """Ahead by a year for a moment, it held up all deletion for that year."""
    clock.now += 365 * DAY
    transcripts.purge()
    clock.now -= 365 * DAY
    transcripts.record(make_billed_call(text_messages("x"), when=clock.now))
    clock.now += 8 * DAY
    assert transcripts.purge() == 1


def test_a_call_whose_transcript_is_deleted_while_it_is_read_is_not_kept(transcripts, clock):
    """By another process, between two statements."""

    class Interrupted(PastCalls):
        def _read(self, *query):
            rows = super()._read(*query)
            transcripts.purge()
            return rows

    call = make_billed_call(text_messages("a", "b", "c"), when=clock.now)
    edit = call.view.fold(0, 2, user("[a and b]"), by="by hand")
    transcripts.record(call._replace(view=call.view.apply(edit)))
    who = "t", "s", call.when
    assert len(transcripts.past_calls.find(*who).edits) == 1
    clock.now += 8 * DAY
    assert Interrupted(transcripts._database).find(*who) is None


def test_a_gateway_that_stopped_recording_deletes_expired_transcripts(tmp_path, clock):
    store = str(tmp_path / "refold.db")
    before = open_transcripts(store, DAY, clock)
    before.record(make_billed_call(text_messages("geheimnis"), when=clock.now))
    before.close()
    after = open_transcripts(store, None, clock)
    after.record(make_billed_call(text_messages("nothing more"), session="later", when=clock.now))
    assert after.is_recorded("t", "s") and not after.is_recorded("t", "later")
    clock.now += DAY + 1
    assert after.purge() == 1
    after.close()
    with closing(open_transcripts(str(tmp_path / "other.db"), None, clock)) as empty:
        assert not empty.is_recorded("t", "s")
    assert not (tmp_path / "other.db.transcripts").exists()


def test_the_ledger_writer_deletes_expired_transcripts_at_its_start(tmp_path, clock):
    store = str(tmp_path / "refold.db")
    before = open_transcripts(store, DAY, clock)
    before.record(make_billed_call(text_messages("geheimnis"), when=clock.now))
    before.close()
    clock.now += 2 * DAY
    counters = Counters()
    keeper = create_writer(store, "", lambda model, body: None, counters, clock)
    keeper.start()
    keeper.close()
    assert counters.get("records_purged") == 1


def test_the_transcripts_file_is_private_and_contains_no_key(transcripts, tmp_path):
    transcripts.record(make_billed_call(text_messages("hello")))
    path = tmp_path / "refold.db.transcripts"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    raw = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"hello" in raw and KEY.encode() not in raw


def test_too_large_transcripts_are_not_kept_and_the_oldest_are_deleted_first(tmp_path, clock):
    large = open_transcripts(str(tmp_path / "refold.db"), 7 * DAY, clock)
    small = Transcripts(
        large._database, 7 * DAY, clock, RetentionLimits(session=2_000, total=3_000)
    )
    small.record(make_billed_call(text_messages("x" * 3_000), session="huge", when=clock.now))
    assert not small.is_recorded("t", "huge")
    for n in range(4):
        small.record(
            make_billed_call(text_messages("x" * 1_000), session=f"s{n}", when=clock.now + n)
        )
    assert small.purge() == 2
    assert [n for n in range(4) if small.is_recorded("t", f"s{n}")] == [2, 3]
    small.record(
        make_billed_call(text_messages("x" * 1_000, "y" * 3_000), session="s3", when=clock.now + 9)
    )
    is_kept = [small.is_recorded("t", f"s{n}") for n in range(4)]
    assert is_kept == [False, False, True, False], "one that grew too large goes"
    large.close()


def test_expired_transcripts_do_not_count_against_the_limit_of_all(clock):
    with closing(open_transcripts(":memory:", DAY, clock)) as recorder:
        small = Transcripts(recorder._database, DAY, clock, RetentionLimits(total=3_000))
        for session, ago in (("old", 2 * DAY), ("a", 2.0), ("b", 1.0)):
            messages = text_messages("x" * 1_000)
            small.record(make_billed_call(messages, session=session, when=clock.now - ago))
        assert small.purge() == 1
        assert small.is_recorded("t", "a") and small.is_recorded("t", "b")


def test_a_failing_transcript_store_is_counted_and_stops_nothing():
    class Broken:
        def record(self, call: BilledCall) -> None:
            raise StoreError("the disk is full")

        def purge(self) -> int:
            raise StoreError("the disk is full")

        def close(self) -> None:
            raise StoreError("the disk is full")

    counters = Counters()
    database = open_ledger_database(":memory:")
    tables = Ledger(database), Sessions(database, time.time), CallLog(database)
    keeper = LedgerWriter(Accounting(lambda model: None), *tables, counters, Broken(), pause=0.0)
    keeper.book(make_billed_call(text_messages("a")))
    keeper.close()
    assert counters.get("ledger_failures", doing="record") == 1
    assert counters.get("ledger_failures", doing="purge") >= 1
    assert counters.get("ledger_failures", doing="close") == 1


def test_a_recorded_transcript_has_the_tips_of_its_conversation(transcripts):
    """Its tips are those of the conversation, so its edits still hold."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi 你好"}, {"role": "assistant", "content": "Yes \ud83d"}]}  # fmt: skip
    messages = open_payload(json.dumps(body).encode()).decode()
    transcripts.record(make_billed_call(messages, salt="pepper"))
    transcript = transcripts.load("t", "s")
    assert (
        Transcript.of(transcript.messages, "pepper").tips == Transcript.of(messages, "pepper").tips
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7d", 604_800), ("12h", 43_200), ("1.5 H", 5_400), ("90s", 90), ("2w", 1_209_600)],
)
def test_durations_with_units_are_parsed(text: str, seconds: float):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "0d", "-1d", "7 days", "1e9d"])
def test_an_invalid_duration_is_refused(text: str):
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        parse_duration(text)


def test_recording_is_off_unless_the_configuration_asks_for_it():
    assert Config().record == ""
    assert parse_config('record = "7d"', environment={}).record == "7d"
    with pytest.raises(ConfigError, match="7 days"):
        parse_config('record = "7 days"', environment={})


@pytest.mark.parametrize(
    ("text", "speaker", "line"),
    [
        ("<returncode>0</returncode>\n<output>\n9 passed\n</output>", "result", "9 passed"),
        ("Observation:\n5", "result", "Observation:"),
        (
            "<system-reminder>\nToday's date is now.\n</system-reminder>",
            "user",
            "<system-reminder>",
        ),
        ("What is <output>?", "you", "What is <output>?"),
    ],
)
def test_command_output_in_a_user_message_is_shown_as_a_result(
    text: str, speaker: str, line: str
) -> None:
    brief = describe_message(user(text))
    assert (brief.speaker, brief.lines[0]) == (speaker, line)
