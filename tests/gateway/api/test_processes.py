"""`refold serve --workers 2`: the API and the page work whichever process answers."""

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from refold.testing.scripted_provider import ScriptedProvider
from tests.support.api_gateway import ADMIN, KEY, TOKEN, answer_briefly, chat_request
from tests.support.examples import examples_at_night, nightly
from tests.support.gateway_processes import GatewayProcess, run_processes
from tests.support.raw_http import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path("/proc/self/task").exists(), reason="children are looked up in /proc"
    ),
]
CONFIG = """
admin_token = "{token}"
store = "{store}"
record = "{record}"
[windows]
local = 16_000
[[upstream]]
url = "{url}"
"""
ELSEWHERE = {"history_elsewhere", "preview_elsewhere"}
"""Error codes that ask for a retry because another process may have the data."""
MOST_TRIES = 300


@contextmanager
def workers(place: Path, record: str = "") -> Iterator[tuple[GatewayProcess, ScriptedProvider]]:
    with ScriptedProvider(answer_briefly) as upstream:
        store = place / "refold.db"
        config = CONFIG.format(token=TOKEN, store=store, url=upstream.url, record=record)
        process = GatewayProcess(place, "workers", config, "--workers", "2")
        with run_processes(process):
            yield process, upstream


@pytest.fixture(scope="module")
def gateway_process(tmp_path_factory):
    with workers(tmp_path_factory.mktemp("workers")) as started:
        yield started


def say(process: GatewayProcess, body: dict, **headers: str) -> None:
    """Send a request over a new connection, so that any process may answer it."""
    sent = httpx.post(
        f"{process.url}/v1/chat/completions", json=body, headers=KEY | headers, timeout=60
    )
    assert sent.status_code == 200


def get(process: GatewayProcess, name: str, **arguments) -> dict:
    answer = httpx.get(
        f"{process.url}/refold/api/{name}", params=arguments, headers=ADMIN, timeout=60
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def post(process: GatewayProcess, name: str, **arguments) -> httpx.Response:
    return httpx.post(f"{process.url}/refold/api/{name}", json=arguments, headers=ADMIN, timeout=60)


def post_anywhere(process: GatewayProcess, name: str, **arguments) -> httpx.Response:
    """Retry until the process with the data answers. Each earlier response must ask for the
    retry."""
    for _ in range(MOST_TRIES):
        answer = post(process, name, **arguments)
        if answer.status_code != 409:
            return answer
        assert answer.json()["error"]["code"] in ELSEWHERE, answer.text
        assert "try again" in answer.json()["error"]["message"]
        assert answer.headers["connection"] == "close", "so that another process may answer"
    raise AssertionError(answer.text)


def wait_for_session(process: GatewayProcess, messages: int, before: set[str] = frozenset()) -> str:
    """Return the id of the latest session that is not in *before*, once its latest request is
    listed."""

    def is_listed() -> bool:
        latest = get(process, "sessions", limit=1)["sessions"]
        return [session["messages"] for session in latest] == [messages] and (
            latest[0]["id"] not in before
        )

    assert eventually(is_listed)
    return get(process, "sessions", limit=1)["sessions"][0]["id"]


def test_any_process_lists_the_sessions_of_all_processes(gateway_process) -> None:
    process, _ = gateway_process
    for n in range(12):
        say(process, chat_request(30), **{"x-session-id": f"s{n}"})
    assert eventually(
        lambda: (
            sum(session["requests"] or 0 for session in get(process, "sessions")["sessions"]) == 12
            and all(session["remembered"] for session in get(process, "sessions")["sessions"])
        )
    )
    answers = {json.dumps(get(process, "sessions"), sort_keys=True) for _ in range(10)}
    assert len(answers) == 1
    (all_of_them,) = map(json.loads, answers)
    assert all_of_them["total"] == 12 and len(all_of_them["sessions"]) == 12
    two = get(process, "sessions", limit=2, offset=1)
    assert two == {"sessions": all_of_them["sessions"][1:3], "total": 12}


def test_concurrent_requests_get_the_full_list_or_a_503_with_retry_after(gateway_process) -> None:
    """Sessions of a busy process were missing from a 200 response, and its sessions were called
    unknown."""
    process, _ = gateway_process
    before = get(process, "sessions")["total"]
    say(process, chat_request(30), **{"x-session-id": "asked by many"})
    assert eventually(lambda: get(process, "sessions")["total"] == before + 1)
    ids = [session["id"] for session in get(process, "sessions")["sessions"]]

    def look(n: int) -> tuple[int, int | None, str | None]:
        path = "sessions" if n % 2 else f"history?session={ids[n % len(ids)]}"
        answer = httpx.get(f"{process.url}/refold/api/{path}", headers=ADMIN, timeout=60)
        return (
            answer.status_code,
            answer.json().get("total", len(ids)),
            answer.headers.get("retry-after"),
        )

    with ThreadPoolExecutor(16) as threads:
        answers = set(threads.map(look, range(160)))
    assert (200, len(ids), None) in answers
    assert answers <= {(200, len(ids), None), (503, len(ids), "1")}


def test_a_session_served_by_several_processes_is_listed_once(gateway_process) -> None:
    process, _ = gateway_process
    for n in range(12):
        say(process, chat_request(30 + n), **{"x-session-id": "wandering"})
    wait_for_session(process, 2 * 41 + 1)
    assert eventually(lambda: get(process, "sessions", limit=1)["sessions"][0]["requests"] == 12)
    first = get(process, "sessions", limit=1)["sessions"][0]
    assert first["messages"] == 2 * 41 + 1
    for _ in range(5):
        history = get(process, "history", session=first["id"])
        assert history["session"] == first, "of all, not of one"
        assert len(history["edits"]) == first["edits"] and history["attempts"]


def check_preview(process: GatewayProcess, upstream: ScriptedProvider, sessions: int) -> None:
    """Preview, accept and undo in new sessions through any process."""
    before = {session["id"] for session in get(process, "sessions")["sessions"]}
    for n in range(sessions):
        name = {"x-session-id": f"mine{n}"}
        say(process, chat_request(8), **name)
        session = wait_for_session(process, 17, before)
        before.add(session)
        preview = post_anywhere(process, "preview", session=session, to=500).json()
        assert preview["session"] == session
        accepted = post_anywhere(process, "accept", preview=preview["preview"])
        assert accepted.status_code == 200, accepted.text
        shown = accepted.json()["edits"]
        history = get(process, "history", session=session)
        assert [edit["id"] for edit in history["edits"]] == shown, "every process knows"
        assert post_anywhere(process, "accept", preview=preview["preview"]).status_code == 404
        say(process, chat_request(8), **name)
        assert len(json.loads(upstream.received[-1].body)["messages"]) < 10
        undone = post_anywhere(process, "revert", session=session, edits=shown)
        assert undone.status_code == 200, undone.text
        assert get(process, "history", session=session)["edits"] == []
        say(process, chat_request(8), **name)
        assert json.loads(upstream.received[-1].body) == chat_request(8)


def test_a_preview_is_accepted_and_undone(gateway_process) -> None:
    """The process with the data does it."""
    check_preview(*gateway_process, sessions=2)


@nightly
def test_with_transcripts_a_preview_is_accepted_and_undone_too(tmp_path: Path) -> None:
    """Every process can then read the history, also after a restart."""
    with workers(tmp_path, "7d") as (process, upstream):
        check_preview(process, upstream, sessions=6)


def test_an_operation_runs_once_if_several_processes_know_the_session(gateway_process) -> None:
    """Two processes used to run it: models were paid twice, and one of two reverts came too
    late."""
    process, _ = gateway_process
    before = set()
    for n in range(examples_at_night(2, 8)):
        for length in (20, 21):
            body = chat_request(length)
            body["messages"][1]["content"] += (
                f" Task {n}."  # equal histories of one tenant share their attempts
            )
            say(process, body, **{"x-session-id": f"once{n}"})
        session = wait_for_session(process, 43, before)
        before.add(session)
        previews = examples_at_night(3, 5)
        for _ in range(previews):
            asked = post_anywhere(process, "preview", session=session, to=500)
            assert asked.status_code == 200
        rows = get(process, "history", session=session, limit=1_000)["attempts"]
        assert len({row["run"] for row in rows if row["action"] == "preview"}) == previews


def test_unknown_sessions_get_404_and_those_of_a_killed_process_are_listed(gateway_process) -> None:
    process, _ = gateway_process
    unknown = "0" * 32
    refused = httpx.get(
        f"{process.url}/refold/api/history", params={"session": unknown}, headers=ADMIN, timeout=60
    )
    assert refused.status_code == 404 and refused.json()["error"]["code"] == "no_session"
    accepted = post(process, "accept", preview=unknown)
    assert accepted.status_code == 409 and accepted.json()["error"]["code"] == "preview_elsewhere"

    def list_ids() -> set[str]:
        """Without the figures, which are booked a second later."""
        return {row["id"] for row in get(process, "sessions")["sessions"]}

    before = list_ids()
    pid = process.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children")
    os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
    assert eventually(lambda: len(children.read_text().split()) == 2)
    assert list_ids() == before
    say(process, chat_request(30), **{"x-session-id": "after"})
    wait_for_session(process, 61)
    for _ in range(6):
        assert get(process, "sessions", limit=1)["sessions"][0]["messages"] == 61
