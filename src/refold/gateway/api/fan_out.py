"""Operations answered for all processes of a gateway by the one that is asked."""

import asyncio
import errno
import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from hmac import compare_digest
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from msgspec import convert, to_builtins

from refold.gateway.api.answers import Session
from refold.gateway.api.arguments import Arguments, SessionsArguments, check
from refold.gateway.api.context import ApiContext, Problem
from refold.gateway.api.operations import OPERATIONS, Operation
from refold.gateway.api.queries import with_booked_sessions

Json = dict[str, Any]
HEADER = b"x-refold-peer"
TIMEOUT_SECONDS = {"GET": 20.0, "POST": 120.0}
"""How long another process may take: a preview waits for a model."""
PAGE = 1_000
"""Sessions that a process is asked for at a time."""
HISTORY = next(operation for operation in OPERATIONS if operation.name == "history")


class PeerAnswer(NamedTuple):
    """What a process answered."""

    status: int
    body: Json


Peer = Callable[[Operation, Json], Awaitable[PeerAnswer]]
"""A process that answers an operation with these arguments: another one, or this one."""
ENDED = PeerAnswer(404, {"error": {"code": "no_session", "message": "No such session is known."}})
"""What a process that has ended knows."""
SILENT = PeerAnswer(
    503, {"error": {"code": "late", "message": "A process of the gateway does not answer."}}
)
_NOBODY_LISTENS = frozenset({errno.ENOENT, errno.ECONNREFUSED})


class Peers:
    """The processes that share *directory*. Only they know *secret*."""

    def __init__(self, directory: Path, secret: bytes) -> None:
        self._directory = directory
        digest = blake2b(
            str(directory).encode(), key=secret[:64], digest_size=32, person=b"refold peers"
        )
        self._token = digest.hexdigest()

    def listen(self) -> socket.socket:
        """Return a socket on which the other processes can reach this one. Raises OSError."""
        path = self._directory / f"{os.getpid()}.api"
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        listener.listen(64)
        return listener

    def is_peer(self, scope: Mapping[str, Any]) -> bool:
        """Does another process ask, for a caller who may?"""
        token = self._token.encode()
        return any(
            name == HEADER and compare_digest(value, token) for name, value in scope["headers"]
        )

    def list_peers(self) -> list[Peer]:
        """Return the other processes. One that has ended answers 404; one that does not answer
        counts as 503, since it may know what is asked for."""
        own = str(os.getpid())
        return [
            partial(self._ask, path)
            for path in sorted(self._directory.glob("*.api"))
            if path.stem != own
        ]

    async def _ask(self, path: Path, operation: Operation, arguments: Json) -> PeerAnswer:
        headers = {HEADER.decode(): self._token}
        sent: Json = {"params": arguments} if operation.method == "GET" else {"json": arguments}
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS[operation.method])
        try:
            async with (
                aiohttp.ClientSession(
                    connector=aiohttp.UnixConnector(str(path)), timeout=timeout
                ) as session,
                session.request(
                    operation.method, f"http://peer{operation.path}", headers=headers, **sent
                ) as answer,
            ):
                return PeerAnswer(answer.status, json.loads(await answer.read()))
        except (OSError, aiohttp.ClientError, ValueError) as error:  # a timeout is an OSError
            return ENDED if getattr(error, "errno", None) in _NOBODY_LISTENS else SILENT


async def answer_here(context: ApiContext, operation: Operation, arguments: Arguments) -> Json:
    """Return what this process alone answers. Raises as the operation does."""
    return await context.run_in_thread(lambda: to_builtins(operation.run(context, arguments)))


async def answer_for_all(
    context: ApiContext, peers: Peers, operation: Operation, arguments: Arguments
) -> Json:
    """Return the answer of whichever process knows. Raises as the operation does, and `Problem` if
    one of them cannot tell: a part is never given for the whole, and nothing is called unknown that
    one of them may know."""
    processes: list[Peer] = [partial(_ask_here, context), *peers.list_peers()]
    asked = to_builtins(arguments)
    match operation.name:
        case "sessions" if isinstance(arguments, SessionsArguments) and arguments.scope == "all":
            answers = await asyncio.gather(*(_list_sessions(ask, operation) for ask in processes))
            sessions = _latest_of_each(_bodies_without_404(answers))
            work = partial(with_booked_sessions, context, sessions, arguments)
            return await context.run_in_thread(lambda: to_builtins(work()))
        case "history":
            answers = await _ask_all(processes, operation, asked)
            histories = _bodies_without_404(answers)
            return max(histories, key=_last_seen) if histories else _body(answers[0])
        case "accept":
            return await _ask_in_turn(processes, operation, asked)
        case "words" if "preview" in asked:
            return await _ask_in_turn(processes, operation, asked)
        case "preview" | "revert" | "recall" | "words" if "session" in asked:
            return await _ask_in_turn(
                await _latest_first(processes, asked["session"]), operation, asked
            )
        case _:
            return await answer_here(context, operation, arguments)


async def _ask_here(context: ApiContext, operation: Operation, asked: Json) -> PeerAnswer:
    """Ask this process. Raises what is wrong with more than the question."""
    try:
        return PeerAnswer(
            200, await answer_here(context, operation, check(asked, operation.arguments))
        )
    except Problem as problem:
        return PeerAnswer(
            problem.status, {"error": {"code": problem.code, "message": problem.message}}
        )


async def _ask_all(
    processes: Iterable[Peer], operation: Operation, asked: Json
) -> list[PeerAnswer]:
    return await asyncio.gather(*(ask(operation, asked) for ask in processes))


async def _ask_in_turn(processes: Sequence[Peer], operation: Operation, asked: Json) -> Json:
    """Return the answer of the first that knows. They are asked one after the other, so that
    nothing is done twice and no model is paid twice."""
    first: PeerAnswer | None = None
    for ask in processes:
        answer = await ask(operation, asked)
        if answer.status != 404:
            return _body(answer)
        first = first or answer
    return _body(first or ENDED)


async def _latest_first(processes: Sequence[Peer], session: str) -> list[Peer]:
    """Return those that know the session, who saw it last first, since its history is the longest;
    all of them if nobody does."""
    answers = await _ask_all(processes, HISTORY, {"session": session, "limit": 1})
    _bodies_without_404(answers)
    seen = [
        (_last_seen(answer.body), ask)
        for answer, ask in zip(answers, processes, strict=True)
        if answer.status == 200
    ]
    return [ask for _, ask in sorted(seen, key=lambda pair: -pair[0])] or list(processes)


async def _list_sessions(ask: Peer, operation: Operation) -> PeerAnswer:
    """Return every session of one process. If there are several pages the first is asked for again,
    since a session that sends a request meanwhile moves there."""
    sessions = dict[str, Json]()
    offsets = [0]
    for offset in offsets:
        answer = await ask(operation, {"scope": "remembered", "limit": PAGE, "offset": offset})
        if answer.status != 200:
            return answer
        sessions |= {session["id"]: session for session in answer.body["sessions"]}
        if offset == 0 and len(offsets) == 1 and answer.body["total"] > PAGE:
            offsets += [*range(PAGE, answer.body["total"], PAGE), 0]
    return PeerAnswer(200, {"sessions": list(sessions.values())})


def _body(answer: PeerAnswer) -> Json:
    if answer.status != 200:
        error = answer.body["error"]
        raise Problem(answer.status, error["code"], error["message"])
    return answer.body


def _bodies_without_404(answers: Iterable[PeerAnswer]) -> list[Json]:
    """Return the bodies that are no 404. Raises `Problem` if a process cannot tell."""
    return [_body(answer) for answer in answers if answer.status != 404]


def _last_seen(history: Json) -> float:
    return float(history["session"]["last_seen"])


def _latest_of_each(answers: Iterable[Json]) -> list[Session]:
    """Return the sessions of all answers, each once, as it was seen last."""
    sessions = dict[str, Session]()
    for row in (row for answer in answers for row in answer["sessions"]):
        session = convert(row, Session)
        seen = sessions.get(session.id, session)
        sessions[session.id] = max(session, seen, key=lambda item: item.last_seen)
    return list(sessions.values())
