"""`refold serve --workers 3`: whichever process is asked, the API and the page answer for all."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from refold.gateway.api.fan_out import Peers
from refold.testing.scripted_upstream import ScriptedUpstream
from tests.support.api_gateway import ADMIN, KEY, TOKEN, answer_briefly, chat_request
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
[windows]
local = 16_000
[[upstream]]
url = "{url}"
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    place = tmp_path_factory.mktemp("workers")
    with ScriptedUpstream(answer_briefly) as upstream:
        config = CONFIG.format(token=TOKEN, store=place / "refold.db", url=upstream.url)
        process = GatewayProcess(place, "workers", config, "--workers", "3")
        with run_processes(process):
            yield process, upstream


def say(process: GatewayProcess, body: dict, **headers: str) -> None:
    """Over a connection of its own, so that any process may be the one."""
    said = httpx.post(
        f"{process.url}/v1/chat/completions", json=body, headers=KEY | headers, timeout=60
    )
    assert said.status_code == 200


def get(process: GatewayProcess, name: str, **arguments) -> dict:
    found = httpx.get(
        f"{process.url}/refold/api/{name}", params=arguments, headers=ADMIN, timeout=60
    )
    assert found.status_code == 200, found.text
    return found.json()


def post(process: GatewayProcess, name: str, **arguments) -> httpx.Response:
    return httpx.post(f"{process.url}/refold/api/{name}", json=arguments, headers=ADMIN, timeout=60)


def test_sessions_of_all_processes_are_told_by_any(served) -> None:
    process, _ = served
    for n in range(12):
        say(process, chat_request(30), **{"x-session-id": f"s{n}"})
    eventually(
        lambda: (
            sum(session["requests"] or 0 for session in get(process, "sessions")["sessions"]) == 12
        )
    )  # all are booked
    told = {json.dumps(get(process, "sessions"), sort_keys=True) for _ in range(10)}
    assert len(told) == 1
    (all_of_them,) = map(json.loads, told)
    assert all_of_them["total"] == 12 and len(all_of_them["sessions"]) == 12
    two = get(process, "sessions", limit=2, offset=1)
    assert two == {"sessions": all_of_them["sessions"][1:3], "total": 12}


def test_asked_by_many_at_once_they_tell_all_or_say_that_it_is_too_much(served) -> None:
    """Sessions of a busy process were left out of a 200, and its sessions called unknown."""
    process, _ = served
    ids = [one["id"] for one in get(process, "sessions")["sessions"]]

    def looked(n: int) -> tuple[int, int | None, str | None]:
        path = "sessions" if n % 2 else f"history?session={ids[n % len(ids)]}"
        answer = httpx.get(f"{process.url}/refold/api/{path}", headers=ADMIN, timeout=60)
        return (
            answer.status_code,
            answer.json().get("total", len(ids)),
            answer.headers.get("retry-after"),
        )

    with ThreadPoolExecutor(16) as threads:
        told = set(threads.map(looked, range(160)))
    assert (200, len(ids), None) in told and told <= {(200, len(ids), None), (503, len(ids), "1")}


def test_one_session_through_several_processes_is_one(served) -> None:
    process, _ = served
    for n in range(12):
        say(process, chat_request(30 + n), **{"x-session-id": "wandering"})
    assert eventually(lambda: get(process, "sessions", limit=1)["sessions"][0]["requests"] == 12)
    first = get(process, "sessions", limit=1)["sessions"][0]
    assert first["messages"] == 2 * 41 + 1
    for _ in range(5):
        assert get(process, "history", session=first["id"])["session"] == first, (
            "of all, not of one"
        )


def test_a_preview_is_accepted_and_undone_by_whichever_is_asked(served) -> None:
    process, upstream = served
    for n in range(6):
        name = {"x-session-id": f"mine{n}"}
        say(process, chat_request(8), **name)
        session = get(process, "sessions", limit=1)["sessions"][0]["id"]
        preview = post(process, "preview", session=session, to=500).json()
        assert preview["session"] == session
        accepted = post(process, "accept", preview=preview["preview"])
        assert accepted.status_code == 200, accepted.text
        say(process, chat_request(8), **name)
        assert len(json.loads(upstream.asked[-1].body)["messages"]) < 10
        undone = post(process, "revert", session=session, edits=accepted.json()["edits"])
        assert undone.status_code == 200, undone.text
        say(process, chat_request(8), **name)
        assert json.loads(upstream.asked[-1].body) == chat_request(8)


def test_what_is_asked_is_done_once_however_many_know_the_session(served) -> None:
    """Two who knew both did it: models were paid twice, and of two reverts one came too late."""
    process, _ = served
    for n in range(8):
        for length in (20, 21):
            body = chat_request(length)
            body["messages"][1]["content"] += (
                f" Task {n}."  # equal histories of one tenant share their attempts
            )
            say(process, body, **{"x-session-id": f"once{n}"})
        session = get(process, "sessions", limit=1)["sessions"][0]["id"]
        for _ in range(5):
            assert post(process, "preview", session=session, to=500).status_code == 200
        rows = get(process, "history", session=session, limit=1_000)["attempts"]
        assert len({row["run"] for row in rows if row["action"] == "preview"}) == 5


def test_what_nobody_knows_is_404_and_one_that_was_killed_is_done_without(served) -> None:
    process, _ = served
    unknown = "0" * 32
    refused = httpx.get(
        f"{process.url}/refold/api/history", params={"session": unknown}, headers=ADMIN, timeout=60
    )
    assert refused.status_code == 404 and refused.json()["error"]["code"] == "no_session"
    assert post(process, "accept", preview=unknown).status_code == 404
    pid = process.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children")
    os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
    assert eventually(lambda: len(children.read_text().split()) == 3)
    say(process, chat_request(30), **{"x-session-id": "after"})
    for _ in range(6):
        assert get(process, "sessions", limit=1)["sessions"][0]["messages"] == 61


def test_no_word_of_a_client_makes_it_a_peer(served, tmp_path: Path) -> None:
    process, _ = served
    for word in ("", "x", Peers(tmp_path, b"salt")._token):
        headers = {"x-refold-peer": word}
        assert httpx.get(f"{process.url}/refold/api/sessions", headers=headers).status_code == 401
