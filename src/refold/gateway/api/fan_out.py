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

from refold.gateway.api import listing
from refold.gateway.api.context import Desk, Problem
from refold.gateway.api.operation import Operation
from refold.gateway.api.routes import OPERATIONS

HEADER = b"x-refold-peer"
SECONDS = {"GET": 20.0, "POST": 120.0}
"""How long another process may take: a preview waits for a model."""


class Said(NamedTuple):
    """What another process answered."""

    status: int
    body: dict[str, Any]


Ask = Callable[[Operation, dict[str, Any]], Awaitable[Said]]
"""A process that may be asked."""
NOBODY = Said(404, {"error": {"code": "no_session", "message": "No such session is known."}})
"""What a process that has ended knows."""
SILENT = Said(503, {"error": {"code": "late", "message": "A process of the gateway does not answer."}})
_ENDED = frozenset({errno.ENOENT, errno.ECONNREFUSED})
"""How a socket fails that nobody listens at any more."""


class Peers:
    """The processes that share the directory *place*. *secret* is known to them alone."""

    def __init__(self, place: Path, secret: bytes) -> None:
        self._place = place
        self._word = blake2b(str(place).encode(), key=secret[:64], digest_size=32, person=b"refold peers").hexdigest()

    def listen(self) -> socket.socket:
        """A socket for the others, where they look for it. Raises OSError."""
        path = self._place / f"{os.getpid()}.api"
        path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(path))
        listening.listen(64)
        return listening

    def is_one(self, scope: Mapping[str, Any]) -> bool:
        """Does one of them ask, for somebody who may?"""
        word = self._word.encode()
        return any(name == HEADER and compare_digest(value, word) for name, value in scope["headers"])

    def others(self) -> list[Ask]:
        """Each of the others, to be asked. One that has ended knows nothing: 404; of one that does not answer it is not
        known what it knows: 503."""
        mine = str(os.getpid())
        return [partial(self._ask, path) for path in sorted(self._place.glob("*.api")) if path.stem != mine]

    async def _ask(self, path: Path, operation: Operation, arguments: Mapping[str, Any]) -> Said:
        headers = {HEADER.decode(): self._word}
        sent: dict[str, Any] = {"params": arguments} if operation.method == "GET" else {"json": arguments}
        limit = aiohttp.ClientTimeout(total=SECONDS[operation.method])
        try:
            async with (
                aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path)), timeout=limit) as session,
                session.request(operation.method, f"http://peer{operation.path}", headers=headers, **sent) as answer,
            ):
                return Said(answer.status, json.loads(await answer.read()))
        except (OSError, aiohttp.ClientError, ValueError) as error:  # of which a timeout is one
            return NOBODY if getattr(error, "errno", None) in _ENDED else SILENT


Json = dict[str, Any]
ALL = 1_000
"""Sessions that a process is asked for at a time."""
HISTORY = next(one for one in OPERATIONS if one.name == "history")


async def answered(desk: Desk, peers: Peers, operation: Operation, asked: Json) -> Json:
    """The answer of whoever knows. Raises as the operation does, and `Problem` where one of them could not say: a part is
    never told for the whole, and nothing is called unknown that one of them may know."""
    askers: list[Ask] = [partial(_mine, desk), *peers.others()]
    match operation.name:
        case "sessions" if asked.get("scope") != "remembered":
            rows = _latest(_known(await asyncio.gather(*(_listed(ask, operation) for ask in askers))))
            return await desk.aside(partial(listing.known, desk, rows, asked))
        case "history":
            said = await _all(askers, operation, asked)
            known = _known(said)
            return max(known, key=_last_seen) if known else _body(said[0])
        case "accept":
            return await _whoever(askers, operation, asked)
        case "words" if "preview" in asked:
            return await _whoever(askers, operation, asked)
        case "preview" | "revert" | "recall" | "words" if "session" in asked:
            return await _whoever(await _latest_first(askers, asked["session"]), operation, asked)
        case _:
            return await operation.run(desk, asked)


async def _whoever(askers: Sequence[Ask], operation: Operation, asked: Json) -> Json:
    """Of the first who knows. One is asked after the other, so that nothing is done twice and no model is paid twice."""
    said: list[Said] = []
    for ask in askers:
        said.append(await ask(operation, asked))
        if said[-1].status != 404:
            break
    found = said[-1] if said[-1].status != 404 else said[0]
    return _body(found)


async def _latest_first(askers: Sequence[Ask], session: str) -> list[Ask]:
    """Those who know the session, who saw it last first, since its history is the longest; all, where nobody does."""
    said = await _all(askers, HISTORY, {"session": session, "limit": 1})
    _known(said)
    known = [(_last_seen(one.body), ask) for one, ask in zip(said, askers, strict=True) if one.status == 200]
    return [ask for _, ask in sorted(known, key=lambda one: -one[0])] or list(askers)


async def _listed(ask: Ask, operation: Operation) -> Said:
    """Every session of one process. Where there are several pages the first is asked for again, since who sends a request
    meanwhile moves there."""
    found = dict[str, Json]()
    first = 0
    while True:
        said = await ask(operation, {"scope": "remembered", "limit": ALL, "offset": first})
        if said.status != 200:
            return said
        found |= {one["id"]: one for one in said.body["sessions"]}
        again, first = first > 0, first + ALL
        if first >= said.body["total"]:
            break
    if again and (said := await ask(operation, {"scope": "remembered", "limit": ALL})).status != 200:
        return said
    found |= {one["id"]: one for one in said.body["sessions"]}
    return Said(200, {"sessions": list(found.values())})


async def _all(askers: Iterable[Ask], operation: Operation, asked: Json) -> list[Said]:
    return await asyncio.gather(*(ask(operation, asked) for ask in askers))


async def _mine(desk: Desk, operation: Operation, asked: Json) -> Said:
    """What this process answers. Raises what is wrong with more than the question."""
    try:
        return Said(200, await operation.run(desk, asked))
    except Problem as problem:
        return Said(problem.status, {"error": {"code": problem.code, "message": problem.message}})


def _body(said: Said) -> Json:
    if said.status != 200:
        raise Problem(said.status, said.body["error"]["code"], said.body["error"]["message"])
    return said.body


def _known(said: Iterable[Said]) -> list[Json]:
    """What those say who know something. Raises `Problem` where one of all could not say."""
    return [_body(one) for one in said if one.status != 404]


def _last_seen(history: Json) -> float:
    return float(history["session"]["last_seen"])


def _latest(answers: Iterable[Json]) -> list[Json]:
    """The sessions of all, each once, as it was seen last."""
    found = dict[str, Json]()
    for one in (one for answer in answers for one in answer["sessions"]):
        other = found.get(one["id"], one)
        found[one["id"]] = max(one, other, key=lambda each: float(each["last_seen"]))
    return list(found.values())
