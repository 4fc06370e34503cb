"""Numbers and texts of `/refold/api`: every process returns the same, and none are truncated
silently."""

import json
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold.gateway.api.files import FileRow
from refold.gateway.api.queries import Page, Place, list_page
from refold.gateway.ledger.calls import CallLog, Filters
from refold.gateway.ledger.entry import DOLLAR, build_report
from refold.gateway.ledger.rows import ListedSession
from refold.gateway.ledger.writer import open_ledger, open_ledger_database
from refold.gateway.logs import JSONFormatter
from refold.gateway.serve import create_gateway
from refold.session_files import FoundSession
from refold.strategies import ClearToolResults, Summarize
from refold.testing.scripted_gateway import Serving
from refold.testing.scripted_provider import ScriptedProvider
from refold.tokens.model_table import Rates, Window
from tests.support.api_gateway import (
    ADMIN,
    KEY,
    SECRET,
    ApiGateway,
    answer_briefly,
    build_config,
    chat_request,
    serve_api,
)
from tests.support.examples import examples_at_night
from tests.support.raw_http import eventually

RATES = Rates(input=2.0, output=9.0, read=0.2, write=2.5)


class Fleet:
    """Gateways that share one store file. Each can be restarted."""

    def __init__(self, folder: Path, upstream: ScriptedProvider, stack: ExitStack) -> None:
        self._config = replace(
            build_config(upstream, prices=RATES), store=str(folder / "refold.db")
        )
        self._upstream, self._stack = upstream, stack
        self.books, self.running = Path(f"{self._config.store}.ledger"), {}

    def at(self, name: int) -> ApiGateway:
        """Return the gateway of this name, starting it if it is not running."""
        if name not in self.running:
            served = self._stack.enter_context(Serving(create_gateway(self._config)))
            client = self._stack.enter_context(httpx.Client(base_url=served.url, timeout=60))
            self.running[name] = ApiGateway(self._upstream, served, client)
        return self.running[name]

    def stop(self, name: int) -> None:
        """Stop a gateway as its process manager would. It writes its unsaved entries to the
        ledger."""
        if place := self.running.pop(name, None):
            place.served.__exit__(None, None, None)


def read_books(books: Path) -> dict[str, tuple[int, int, int]]:
    """Read each session's calls, tokens and picodollars saved directly from the database."""
    would = "would_fresh + would_read + would_written - fresh - read - written"
    money = "would_cost - refetch_cost - summary_cost - cost_fresh - cost_read - cost_written - cost_output"
    query = (
        f"SELECT session, SUM(calls), SUM({would}), SUM({money}) FROM refold_calls GROUP BY session"
    )
    with closing(sqlite3.connect(books)) as connection:
        return {name: figures for name, *figures in connection.execute(query)}


STEPS = st.lists(
    st.tuples(st.sampled_from(["say", "say", "say", "stop"]), st.integers(0, 1), st.integers(0, 2)),
    min_size=1,
    max_size=8,
)


@settings(
    max_examples=examples_at_night(2, 40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(STEPS)
def test_f16_figures_match_the_store_after_any_sequence_of_restarts(
    tmp_path_factory, steps
) -> None:
    """Law: after any requests, restarts and processes, the web page, `refold report` and SQL on the
    store agree. After a restart the page used to report no requests although the store had $5.06
    saved."""
    with ScriptedProvider(answer_briefly) as upstream, ExitStack() as stack:
        fleet, lengths = Fleet(tmp_path_factory.mktemp("fleet"), upstream, stack), [0, 0, 0]
        for action, process, session in steps:
            if action == "stop":
                fleet.stop(process)
                continue
            lengths[session] += 30
            fleet.at(process).say(chat_request(lengths[session]), **{"x-session-id": f"s{session}"})
        for process in list(fleet.running)[:1]:
            fleet.stop(process)  # the others write their entries within a second
        calls, here = sum(lengths) // 30, fleet.at(9)
        assert eventually(lambda: here.get("overview").json()["totals"]["calls"] == calls)
        totals, books = here.get("overview").json()["totals"], read_books(fleet.books)
        ledger = open_ledger(str(fleet.books).removesuffix(".ledger"))
        total = build_report(ledger.entries()).total
        ledger.close()
        sums, rest = total.sums, total.unreported
        assert totals["sessions"] == total.sessions and totals["calls"] == sums.calls + rest.calls
        assert totals["edited"] == sums.edited + rest.edited
        assert totals["sent"] == sums.input + rest.input
        assert totals["original"] == sums.would_input + rest.would_input
        assert totals["spent"] == pytest.approx((sums.cost + sums.summary_cost) / DOLLAR)
        assert totals["saved"] == pytest.approx(sums.saved / DOLLAR)
        for place in {id(running): running for running in fleet.running.values()}.values():
            sessions = place.get("sessions").json()
            rows = {row["id"]: row for row in sessions["sessions"]}
            assert len(rows) == len(sessions["sessions"]) == sessions["total"] == len(books)
            for name, (requests, tokens, saved) in books.items():
                assert rows[name]["requests"] == requests and rows[name]["saved_tokens"] == tokens
                assert rows[name]["saved_dollars"] == pytest.approx(saved / 1e12)
            assert sum(row["saved_dollars"] for row in rows.values()) == pytest.approx(
                totals["saved"]
            )


def test_the_cost_of_calls_in_shadow_mode_stays_in_the_session_total(tmp_path) -> None:
    """The session's row used to count only what was billed since."""
    paid = 0.0
    with ScriptedProvider(answer_briefly) as upstream:
        for calls, shadow in enumerate((True, False), 1):
            config = build_config(upstream, prices=RATES, shadow=shadow)
            config = replace(config, store=str(tmp_path / "refold.db"))
            with (
                Serving(create_gateway(config)) as served,
                httpx.Client(base_url=served.url, timeout=60) as client,
            ):
                at = ApiGateway(upstream, served, client)
                at.say(chat_request(40 + calls))
                assert eventually(lambda: at.get("overview").json()["totals"]["calls"] == calls)  # noqa: B023
                overview = at.get("overview").json()
                at_calls = at.get("session", session=at.session()).json()["calls"]
                (listed,) = at.get("sessions").json()["sessions"]
                usage = len(upstream.received[-1].body) // 4
            (row,), totals = overview["sessions"], overview["totals"]
            assert listed["requests"] == row["calls"] == calls
            assert at_calls[-1][4] == usage, "what the provider counted"
            assert row["spent"] == pytest.approx(totals["spent"])
            assert row["saved"] == pytest.approx(totals["would_save" if shadow else "saved"])
            paid += at_calls[-1][7]
            assert paid == pytest.approx(row["spent"]), "what its chart and table say"


def test_f16_a_session_keeps_all_its_figures_after_a_restart(tmp_path: Path) -> None:
    with ScriptedProvider(answer_briefly) as upstream, ExitStack() as stack:
        fleet = Fleet(tmp_path, upstream, stack)
        fleet.at(0).say(chat_request(40))
        session = fleet.at(0).session()
        assert eventually(lambda: fleet.at(0).get("sessions").json()["sessions"][0]["requests"])
        pages = [
            lambda at: at.get("sessions").json(),
            lambda at: at.get("history", session=session).json(),
        ]
        before = [page(fleet.at(0)) for page in pages]
        (edit,) = before[1]["edits"]
        words = fleet.at(0).get("edit_text", session=session, edit=edit["id"]).json()
        fleet.stop(0)
        assert [page(fleet.at(1)) for page in pages] == before
        assert fleet.at(1).get("edit_text", session=session, edit=edit["id"]).json() == words
        for name, arguments in (
            ("preview", {}),
            ("revert", {"edits": [edit["id"]]}),
        ):
            refused = fleet.at(1).post(name, session=session, **arguments)
            assert refused.json()["error"]["code"] == "history_elsewhere", "it was in memory alone"
            assert "wait for the session's next call" in refused.json()["error"]["message"]
            sent = fleet.at(1).post(name, session=session, request=chat_request(40), **arguments)
            assert sent.status_code == 200 and sent.json()["session"] == session
        assert fleet.at(1).get("history", session=session).json()["edits"] == []


def test_f16_a_session_idle_for_over_a_week_is_listed_with_its_ledger_figures(
    tmp_path: Path,
) -> None:
    with ScriptedProvider(answer_briefly) as upstream, ExitStack() as stack:
        fleet = Fleet(tmp_path, upstream, stack)
        fleet.at(0).say(chat_request(40))
        fleet.stop(0)
        with closing(sqlite3.connect(fleet.books)) as connection, connection:
            connection.execute("UPDATE refold_sessions SET last_seen = last_seen - 8 * 86400")
        assert eventually(
            lambda: not fleet.at(1).get("sessions").json()["sessions"][0]["remembered"]
        )
        (row,) = fleet.at(1).get("sessions").json()["sessions"]
        assert (row["requests"], row["model"]) == (1, "local")
        assert (
            row["saved_dollars"] > 0 and row["tokens_before"] is row["edits"] is row["api"] is None
        )
        assert fleet.at(1).get("history", session=row["id"]).status_code == 404
        assert fleet.at(1).get("sessions", scope="remembered").json() == {
            "sessions": [],
            "total": 0,
        }
        books = fleet.at(1).get("overview").json()["totals"]
        assert (books["sessions"], books["calls"]) == (1, 1) and books["saved"] == pytest.approx(
            row["saved_dollars"]
        )
        fleet.at(1).say(chat_request(41))
        (again,) = fleet.at(1).get("sessions").json()["sessions"]
        assert again["id"] == row["id"] and again["remembered"] and again["requests"] >= 1


def test_f16_remembered_and_forgotten_sessions_are_listed_page_by_page(tmp_path: Path) -> None:
    with ScriptedProvider(answer_briefly) as upstream, ExitStack() as stack:
        fleet = Fleet(tmp_path, upstream, stack)
        for n in range(5):
            fleet.at(0).say(chat_request(3), **{"x-session-id": f"old{n}"})
        fleet.stop(0)
        with closing(sqlite3.connect(fleet.books)) as connection, connection:
            connection.execute("UPDATE refold_sessions SET last_seen = 0")
        assert eventually(
            lambda: fleet.at(1).get("sessions", scope="remembered").json()["total"] == 0
        )
        for n in range(3):
            fleet.at(1).say(chat_request(3), **{"x-session-id": f"new{n}"})
        pages = [
            fleet.at(1).get("sessions", limit=3, offset=first).json() for first in (0, 3, 6, 9)
        ]
        assert [page["total"] for page in pages] == [8] * 4
        listed = [session for page in pages for session in page["sessions"]]
        assert len({session["id"] for session in listed}) == len(listed) == 8
        assert [session["remembered"] for session in listed] == [True] * 3 + [False] * 5


# --- one counter ------------------------------------------------------------------------------


def consistent(at: ApiGateway, session: str) -> dict:
    """Return a session's figures from `history` after comparing them with one another. Each figure
    is rounded, so a sum may be off by one for each of them."""
    history = at.get("history", session=session).json()
    figures, shown = history["session"], at.get("session", session=session).json()
    hidden = sum(edit["tokens_before"] - edit["tokens_after"] for edit in history["edits"])
    assert abs(hidden - (figures["tokens_before"] - figures["tokens_after"])) <= 1 + len(
        history["edits"]
    )
    assert (shown["original"], shown["sent"]) == (figures["tokens_before"], figures["tokens_after"])
    for edit in history["edits"]:
        assert (
            edit["tokens_before"] <= figures["tokens_before"]
            and edit["tokens_after"] <= figures["tokens_after"]
        )
    return history


@settings(max_examples=examples_at_night(4, 100), deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.integers(100, 9_000),
    st.sampled_from([2, 3, 4, 7, 12]),
)
def test_f17_all_figures_on_one_screen_use_the_same_token_count(
    grows: list[int], to: int, letters: int
) -> None:
    """Laws: an edit hides at most the session's tokens; accept saves what the preview promised;
    undo restores the earlier count; a session has the tokens of its latest response headers (B12).
    This holds however the provider counts. Previously a session of 22,241 tokens had an edit of
    23,473, a preview said 2,357, accepting it 1,999 and undoing it 2,037."""

    def counts(asked):
        return replace(answer_briefly(asked), usage=(len(asked.body) // letters, 20, 0))

    with (
        ScriptedProvider(counts) as upstream,
        Serving(create_gateway(build_config(upstream))) as served,
        httpx.Client(base_url=served.url, timeout=60) as client,
    ):
        at, steps = ApiGateway(upstream, served, client), 0
        for added in grows:
            steps += added
            headers = at.say(chat_request(steps)).headers
            now = consistent(at, at.session())["session"]
            for end in ("before", "after"):
                assert now[f"tokens_{end}"] == int(headers[f"refold-tokens-{end}"])
        session = at.session()
        preview = at.post("preview", session=session, to=to).json()
        shown = consistent(at, session)["session"]
        assert preview["tokens_before"] == shown["tokens_after"]
        assert preview["saved_tokens"] == preview["tokens_before"] - preview["tokens_after"]
        assert all(edit["tokens_before"] <= shown["tokens_before"] for edit in preview["edits"])
        if preview["preview"] is None:
            return
        accepted = at.post("accept", preview=preview["preview"]).json()
        assert accepted["tokens_after"] == preview["tokens_after"]
        assert consistent(at, session)["session"]["tokens_after"] == preview["tokens_after"]
        undone = at.post(
            "revert", session=session, edits=[edit["id"] for edit in preview["edits"]]
        ).json()
        assert undone["tokens_before"] == preview["tokens_after"]
        assert undone["tokens_after"] == preview["tokens_before"]
        assert consistent(at, session)["session"]["tokens_after"] == preview["tokens_before"]


def test_a_failure_before_its_session_is_known_is_counted_too() -> None:
    """The page listed no failure while /metrics counted those that came before their session was
    found."""
    with serve_api(decide_timeout_seconds=0.01) as at:
        assert at.say(chat_request(4_000)).status_code == 200
        assert eventually(lambda: at.get("overview").json()["totals"]["calls"] == 1)
        totals = at.get("overview").json()["totals"]
        assert (totals["faults"], totals["unlisted"]) == (1, 1)
        metrics = at.client.get("/metrics", headers=ADMIN).text
        assert 'outcome="failed",reason="deadline"} 1' in metrics
        assert at.get("events").json()["changes"] == []


def test_b12_api_token_counts_equal_those_in_the_response_headers() -> None:
    """The API used its own count, 39,273 tokens for a model of 20,000. The headers had 27,995."""

    def counts(asked):
        return replace(answer_briefly(asked), usage=(len(asked.body) // 6, 20, 0))

    with (
        ScriptedProvider(counts) as upstream,
        Serving(create_gateway(build_config(upstream, record="1d"))) as served,
        httpx.Client(base_url=served.url, timeout=60) as client,
    ):
        at = ApiGateway(upstream, served, client)
        for steps in (30, 31, 60):
            headers = at.say(chat_request(steps)).headers
        sizes = [int(headers[f"refold-tokens-{end}"]) for end in ("before", "after")]
        session = at.session()
        assert eventually(lambda: len(at.get("session", session=session).json()["calls"]) == 3)
        shown, history = (at.get(name, session=session).json() for name in ("session", "history"))
        assert [shown["original"], shown["sent"]] == shown["calls"][-1][1:3] == sizes
        assert [history["session"][f"tokens_{end}"] for end in ("before", "after")] == sizes
        assert history["attempts"][-1]["after"] == shown["log"][-1]["after"] == sizes[1]
        parts = [sum(share[side] for share in shown["shares"]) for side in ("original", "sent")]
        assert parts == pytest.approx([size - shown["fixed"] for size in sizes], rel=0.02)
        preview = at.post("preview", session=session, to=4_000).json()
        assert preview["tokens_before"] == sizes[1] and 3_000 < preview["tokens_after"] <= 4_000
        assert preview["attempts"][-1]["tokens_after"] == preview["tokens_after"]


def test_f17_token_counts_of_attempts_match_the_rest_of_the_screen() -> None:
    def counts(asked):
        return replace(answer_briefly(asked), usage=(len(asked.body) // 2, 20, 0))

    with (
        ScriptedProvider(counts) as upstream,
        Serving(create_gateway(build_config(upstream))) as served,
        httpx.Client(base_url=served.url, timeout=60) as client,
    ):
        at = ApiGateway(upstream, served, client)
        for steps in (6, 7, 8):
            at.say(chat_request(steps))
        session = at.session()
        preview = at.post("preview", session=session, to=1_500).json()
        at.post("accept", preview=preview["preview"])
        at.post("revert", session=session, edits=[edit["id"] for edit in preview["edits"]])
        rows = at.get("history", session=session).json()["attempts"]
        for action, saved in (("preview", 1), ("accept", 1), ("revert", -1)):
            chain = [row for row in rows if row["action"] == action]
            came = sum(row["before"] - row["after"] for row in chain)
            assert abs(came - saved * preview["saved_tokens"]) <= 1, action
            assert all(row["after"] == following["before"] for row, following in pairwise(chain))


def test_f17_a_listed_compaction_has_the_tokens_saved_by_all_its_strategies() -> None:
    """A compaction that saved 118,257 tokens was listed with 4,971: only those of its second
    strategy, which had replaced the edits of the first."""
    strategies = (ClearToolResults(keep=1), Summarize(keep=2, max_tokens=400))
    with serve_api(windows={"small": Window(16_000)}, strategies=strategies, target=0.1) as at:
        for steps in range(4, 64, 3):
            at.say(chat_request(steps, "small"))
        session, replaced = at.session(), 0
        rows = at.get("history", session=session, limit=1_000).json()["attempts"]
        listed = at.get("session", session=session).json()["log"]
        for run in {row["run"] for row in listed}:
            attempts = [row for row in rows if row["run"] == run]
            replaced += sum(row["after"] < row["before"] and not row["edit"] for row in attempts)
            ours = [row for row in listed if row["run"] == run]
            assert ours[0]["before"] == attempts[0]["before"]
            assert ours[-1]["after"] == attempts[-1]["after"]
        assert replaced


# --- truncation is always reported -----------------------------------------------------------


def read_on(at: ApiGateway, **which: str) -> str:
    """Read a text of an edit in parts, from its beginning to its end."""
    text, offset = "", 0
    while offset is not None:
        part = at.get("edit_text", offset=offset, **which).json()
        text, offset = text + part["text"], part["next"]
        assert part["total"] >= len(text)
    assert len(text) == part["total"]
    return text


def test_f21_hidden_text_of_any_length_can_be_read_in_parts() -> None:
    """Only 20,000 of 800,000 characters were shown, and the truncation was not mentioned."""
    with serve_api(record="1d") as at:
        body = chat_request(40)
        body["messages"][3]["content"] = "".join(f"line {n} 行\n" for n in range(20_000))
        at.say(body)
        session = at.session()
        assert eventually(lambda: at.get("history", session=session).json()["edits"][-1]["hidden"])
        edit = at.get("history", session=session).json()["edits"][-1]
        whole = read_on(at, session=session, edit=edit["id"], of="hidden")
        assert body["messages"][3]["content"] in whole and f"{SECRET} 1 " in whole
        assert (
            edit["hidden"] == whole[:20_000]
            and edit["hidden_more"] == len(whole) - 20_000 > 200_000
        )
        text = read_on(at, session=session, edit=edit["id"], of="text")
        assert text.startswith(edit["text"]) and edit["text_more"] == len(text) - len(edit["text"])
        some = at.get(
            "edit_text", session=session, edit=edit["id"], of="hidden", offset=5, limit=7
        ).json()
        assert (some["text"], some["next"]) == (whole[5:12], 12)
        beyond = at.get(
            "edit_text", session=session, edit=edit["id"], of="hidden", offset=10**9
        ).json()
        assert (beyond["text"], beyond["next"], beyond["total"]) == ("", None, len(whole))


def test_f21_text_hidden_by_a_preview_is_readable_only_if_it_was_sent_along(at: ApiGateway) -> None:
    body = chat_request(40)
    body["messages"][3]["content"] = "a log line of many\n" * 5_000
    at.say(body)
    posted = at.post("preview", request=body, headers=KEY, to=2_000).json()
    edit = next(edit for edit in posted["edits"] if edit["hidden_more"])
    whole = read_on(
        at, session=posted["session"], preview=posted["preview"], edit=edit["id"], of="hidden"
    )
    assert body["messages"][3]["content"] in whole
    names = posted["losses"]["identifiers"]
    assert names["count"] == len(names["names"])

    own = at.post("preview", session=at.session(), to=2_000).json()
    for which in ({"session": at.session(), "preview": own["preview"]}, {"session": at.session()}):
        edits = (
            own["edits"]
            if "preview" in which
            else at.get("history", session=at.session()).json()["edits"]
        )
        hidden = at.get("edit_text", edit=edits[0]["id"], of="hidden", **which)
        assert hidden.status_code == 409 and SECRET not in hidden.text, "nobody has sent it along"
        assert at.get("edit_text", edit=edits[0]["id"], **which).status_code == 200
    for session, preview, status in (
        (at.session(), "0" * 32, 409),
        ("0" * 32, own["preview"], 404),
    ):
        asked = at.get("edit_text", session=session, preview=preview, edit="abcd")
        assert asked.status_code == status
    assert at.get("edit_text", session=at.session(), edit="abcd").status_code == 404
    assert at.get("edit_text", edit="abcd").status_code == 400


def test_f21_attempts_can_be_read_page_by_page(at: ApiGateway) -> None:
    at.say(chat_request(10))
    session = at.session()
    for _ in range(5):
        at.post("preview", session=session, to=500)
    whole = at.get("history", session=session).json()
    assert whole["attempts_total"] == len(whole["attempts"]) >= 5
    pages = [
        at.get("history", session=session, limit=2, offset=first).json()["attempts"]
        for first in range(0, whole["attempts_total"] + 2, 2)
    ]
    assert [attempt for page in reversed(pages) for attempt in page] == whole["attempts"]
    assert (
        at.get("history", session=session, limit=2).json()["attempts_total"]
        == whole["attempts_total"]
    )


# --- no leaks of text -----------------------------------------------------------------------


class Heard(logging.Handler):
    """A log handler that records every line as it would be written."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.DEBUG)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(JSONFormatter().format(record))

    def close(self) -> None:
        logging.getLogger("refold.gateway").removeHandler(self)
        super().close()


_NAMES = st.lists(st.sampled_from("abcd"), min_size=2, max_size=4, unique=True)


@settings(max_examples=examples_at_night(2, 40), deadline=None)
@given(_NAMES, st.integers(3, 30))
def test_no_word_of_one_conversation_is_shown_in_another(names: list[str], steps: int) -> None:
    """Each tenant has its own marker words. Only the list of figures mentions more than one
    tenant."""
    lines = list[str]()
    logging.getLogger("refold.gateway").addHandler(handler := Heard(lines))
    with serve_api() as at, closing(handler):
        words, sessions = {name: f"wort{name}{ord(name):04d}" for name in names}, {}
        for name in names:
            body = chat_request(steps)
            body["messages"][1]["content"] = (
                f"Mend src/{words[name]}.py. Never touch {words[name]}_ledger."
            )
            at.say(body, authorization=f"Bearer sk-{name}")
            sessions[name] = at.session()
        assert len(set(sessions.values())) == len(names)
        listed = (
            at.get("sessions").text
            + at.get("overview").text
            + at.client.get("/metrics", headers=ADMIN).text
        )
        assert not any(word in listed for word in words.values())
        for name in names:
            preview = at.post("preview", session=sessions[name], to=800)
            texts = at.get("history", session=sessions[name]).text + preview.text
            for edit in preview.json()["edits"]:
                which = {"session": sessions[name], "preview": preview.json()["preview"]}
                texts += at.get("edit_text", edit=edit["id"], **which).text
            if preview.json()["preview"]:
                texts += at.post("accept", preview=preview.json()["preview"]).text
            texts += at.get("history", session=sessions[name]).text
            assert not any(word in texts for owner, word in words.items() if owner != name)
        assert all(f"sk-{name}" not in texts for name in names)
        assert not any(word in line for line in lines for word in words.values())


def test_edits_reverted_in_one_session_are_gone_in_others_with_the_same_history() -> None:
    with serve_api(record="7d") as at:
        for name in ("one", "two", "two"):
            at.say(chat_request(40), **{"x-session-id": name})
        assert eventually(lambda: at.get("overview").json()["totals"]["calls"] == 3)
        first, second = (row["id"] for row in at.get("overview").json()["sessions"])
        before = at.get("session", session=second).json()
        edits = [edit["id"] for edit in before["edits"]]
        assert edits and edits == [
            e["id"] for e in at.get("session", session=first).json()["edits"]
        ]
        assert at.post("revert", session=first, edits=edits).json()["reverted"] == edits
        after = at.get("session", session=second).json()
        assert after["edits"] == [] == at.get("history", session=second).json()["edits"]
        assert after["sent"] == after["original"] == before["original"] > before["sent"]


# --- pages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sort", ["latest", "session", "tokens", "saved", "calls"])
@pytest.mark.parametrize("up", ["false", "true"])
def test_cursor_pages_list_each_session_once_and_invalid_cursors_are_refused(
    many: ApiGateway, sort: str, up: str
) -> None:
    whole = many.get("overview", sort=sort, ascending=up).json()["sessions"]
    page, ids = {"next": ""}, []
    while page["next"] or not ids:
        page = many.get("overview", sort=sort, ascending=up, limit=2, after=page["next"]).json()
        ids += [row["id"] for row in page["sessions"]]
    assert ids == [row["id"] for row in whole] and len(ids) == 7
    forged = "[1]", "[null, -1]", f'[[1{"0" * 20}, 1, "a"], 0]', '[[1, 1, "\\ud800"], 0]'
    for after in forged:
        assert many.get("overview", after=after).status_code == 422
    wrong = many.get("overview", sort="session", after='[1, 2, "a"]')
    assert wrong.status_code == 422 and "after" in wrong.json()["error"]["message"]


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Iterator[CallLog]:
    """Sessions, some of them with equal times of their last call."""
    with closing(open_ledger_database(str(tmp_path_factory.mktemp("log") / "refold.db"))) as base:
        with base.transaction(edits=False) as connection:
            marks = ", ".join("?" * len(ListedSession._fields))
            for n, at in enumerate((1, 2, 2, 3, 5, 5)):
                row = ListedSession(f"{n}", "t", "pi", f"p{n % 2}", "", "m", at, at, n % 3, 0, 0)
                connection.execute(f"INSERT INTO refold_listed VALUES ({marks})", row)
        yield CallLog(base)


@given(
    times=st.lists(st.integers(0, 6), max_size=6),
    sort=st.sampled_from(["latest", "latest", "session", "tokens"]),
    descending=st.booleans(),
    limit=st.integers(1, 4),
)
@settings(max_examples=examples_at_night(15, 300))
def test_session_files_are_listed_once_among_the_sessions_with_any_paging(
    log: CallLog, times: list[int], sort: str, descending: bool, limit: int
) -> None:
    session_of_file = FoundSession("pi", Path("a"), 1, datetime.now(UTC))
    newest = sorted(times, reverse=True)
    files = [FileRow(f"f{n}", "", "", "", at, session_of_file) for n, at in enumerate(newest)]

    def pages(window: tuple[int, int], place: Place | None = None) -> Page:
        return list_page(log, Filters(), files, sort, window, descending=descending, place=place)

    whole = pages((100, 0)).rows
    assert len({row[0] for row in whole}) == len(whole) == 6 + len(files)
    if sort == "latest":
        assert [row.latest for row in whole] == sorted(
            (row.latest for row in whole), reverse=descending
        )
    rows, page = [], pages((limit, 0))
    while rows.extend(page.rows) or page.next:
        cursor, taken = json.loads(page.next)
        ahead = pages((2, 1), (cursor and tuple(cursor), taken)).rows
        assert ahead == whole[len(rows) + 1 : len(rows) + 3], "an offset counts from the cursor"
        page = pages((limit, 0), (cursor and tuple(cursor), taken))
    assert rows == whole
    for offset in range(len(whole)):
        assert pages((limit, offset)).rows == whole[offset : offset + limit]


@pytest.fixture(scope="module")
def many() -> Iterator[ApiGateway]:
    """Seven sessions, three of them equal except for their names."""
    with serve_api(prices=RATES) as at:
        for n in range(7):
            steps = 40 if n == 3 else 1 + n // 3
            at.say(chat_request(steps), **{"x-session-id": f"s{n}", "user-agent": f"a{n % 2}/1"})
        assert eventually(lambda: at.get("overview").json()["totals"]["calls"] == 7)
        yield at
