"""What a process answers for all of a gateway, where another of them cannot say: never a part, never a false 404."""

import asyncio
import socket
from functools import partial
from pathlib import Path

import pytest

from refold.gateway.api.app import MAX_CONCURRENT, MAX_CONCURRENT_OF_PEERS, Api
from refold.gateway.api.arguments import check
from refold.gateway.api.context import Problem
from refold.gateway.api.fan_out import ENDED, PAGE, SILENT, PeerAnswer, Peers, answer_for_all
from refold.gateway.api.operations import OPERATIONS
from tests.support.api_gateway import ApiGateway, chat_request, serve_api

BY_NAME = {one.name: one for one in OPERATIONS}
BUSY = PeerAnswer(503, {"error": {"code": "busy", "message": "Too much is asked at once."}})


@pytest.fixture
def at():
    with serve_api() as here:
        yield here


class Others:
    """Processes that answer by a function of name and arguments."""

    def __init__(self, *answers) -> None:
        self._answers, self.asked = answers, []

    def list_peers(self):
        return [partial(self._ask, one) for one in self._answers]

    async def _ask(self, answer, operation, asked) -> PeerAnswer:
        self.asked.append((operation.name, asked))
        return answer(operation.name, asked) if callable(answer) else answer


def ask(at: ApiGateway, others, name: str, **asked) -> dict:
    context, operation = at.served.gateway._admin._inner._context, BY_NAME[name]
    return asyncio.run(
        answer_for_all(context, others, operation, check(asked, operation.arguments))
    )


def problem(at: ApiGateway, others, name: str, **asked) -> tuple[int, str]:
    with pytest.raises(Problem) as caught:
        ask(at, others, name, **asked)
    return caught.value.status, caught.value.code


@pytest.mark.parametrize(
    "silent", [BUSY, SILENT, PeerAnswer(500, {"error": {"code": "fault", "message": "x"}})]
)
def test_what_one_of_them_cannot_say_is_left_out_by_nobody(
    at: ApiGateway, silent: PeerAnswer
) -> None:
    at.say(chat_request(3))
    session, unknown = at.session(), "0" * 32
    wanted = silent.status, silent.body["error"]["code"]
    assert problem(at, Others(ENDED, silent), "sessions") == wanted
    assert problem(at, Others(ENDED, silent), "history", session=session) == wanted, (
        "it may have seen it later"
    )
    assert problem(at, Others(silent, ENDED), "history", session=unknown) == wanted, (
        "it may know it"
    )
    for name, more in (
        ("preview", {}),
        ("revert", {"edits": ["abcd"]}),
        ("recall", {"query": "x"}),
    ):
        others = Others(silent)
        assert problem(at, others, name, session=session, **more) == wanted
        assert [asked for asked, _ in others.asked] == ["history"], (
            "nothing is done by one who may not be the latest"
        )
    assert problem(at, Others(silent), "accept", preview=unknown) == wanted


def test_one_that_has_ended_knows_nothing(at: ApiGateway) -> None:
    at.say(chat_request(3))
    assert ask(at, Others(ENDED), "sessions")["total"] == 1
    assert ask(at, Others(ENDED), "history", session=at.session())["session"]["messages"] == 7
    assert problem(at, Others(ENDED), "history", session="0" * 32) == (404, "no_session")


def test_a_process_with_more_sessions_than_one_answer_holds_tells_all(at: ApiGateway) -> None:
    """One that moves to the front while they are read is not lost."""
    at.say(chat_request(3))
    one = at.get("sessions").json()["sessions"][0]
    all_of_them = [{**one, "id": f"{n:032x}", "last_seen": -n} for n in range(PAGE * 2 + 5)]

    def sessions(_, asked) -> PeerAnswer:
        first = asked.get("offset", 0)
        told = PeerAnswer(
            200,
            {"sessions": all_of_them[first : first + asked["limit"]], "total": len(all_of_them)},
        )
        if first == 0:
            all_of_them.insert(0, {**all_of_them.pop(), "last_seen": 1.0})
        return told

    found = ask(at, Others(sessions), "sessions", limit=10, offset=PAGE)
    assert found["total"] == len(all_of_them) + 1 and len(found["sessions"]) == 10
    assert (
        len({one["id"] for one in ask(at, Others(sessions), "sessions", limit=PAGE)["sessions"]})
        == PAGE
    )


# --- over their sockets -----------------------------------------------------------------------


def other(tmp_path: Path, word: bytes = b"salt") -> tuple[Peers, Path]:
    return Peers(tmp_path, word), tmp_path / "1.api"


async def _said(peers: Peers, name: str = "sessions") -> PeerAnswer:
    (asking,) = peers.list_peers()
    return await asking(BY_NAME[name], {})


def test_a_socket_without_anybody_is_one_that_has_ended(tmp_path: Path) -> None:
    peers, path = other(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen(1)
    assert asyncio.run(_said(peers)) == ENDED


def test_one_that_hangs_up_or_takes_too_long_is_not_called_ended(
    tmp_path: Path, monkeypatch
) -> None:
    """A timeout was told as 404."""
    peers, path = other(tmp_path)
    monkeypatch.setattr("refold.gateway.api.fan_out.TIMEOUT_SECONDS", {"GET": 0.2, "POST": 0.2})

    async def hung_up() -> PeerAnswer:
        server = await asyncio.start_unix_server(lambda _, writer: writer.close(), path)
        async with server:
            return await _said(peers)

    assert asyncio.run(hung_up()) == SILENT
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen(1)  # it takes the question and says nothing
        assert asyncio.run(_said(peers)) == SILENT


# --- limits -----------------------------------------------------------------------------------


async def _asked_at_once(api: Api, scope: dict, count: int) -> list[int]:
    """The statuses of so many requests, none of which is answered before all were asked."""
    found = []

    async def receive() -> dict:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict) -> None:
        if message["type"] == "http.response.start":
            found.append((message["status"], dict(message["headers"]).get(b"retry-after")))

    await asyncio.gather(*(api(scope, receive, send) for _ in range(count)))
    return found


@pytest.mark.parametrize(
    ("peer", "most"), [(False, MAX_CONCURRENT), (True, MAX_CONCURRENT_OF_PEERS)]
)
def test_what_peers_ask_does_not_count_against_people(
    at: ApiGateway, tmp_path: Path, peer: bool, most: int
) -> None:
    peers = Peers(tmp_path, b"salt")
    api = at.served.gateway._admin._inner
    api._peers = peers
    scope = {"path": "/refold/api/sessions", "method": "GET", "query_string": b"", "headers": []}
    if peer:
        scope["headers"] = [(b"x-refold-peer", peers._token.encode())]
    api._under_way[not peer] = 1_000  # the others are many, whoever they are
    found = asyncio.run(_asked_at_once(api, scope, most + 3))
    assert sorted(status for status, _ in found) == [200] * most + [503] * 3
    assert {again for status, again in found if status == 503} == {b"1"}
    assert api._under_way[peer] == 0
