"""Operations answered for all processes of a gateway by the one that is asked."""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from refold.gateway.api import listing
from refold.gateway.api.desk import Desk
from refold.gateway.api.operation import Operation
from refold.gateway.api.peers import Ask, Peers, Said
from refold.gateway.api.problems import Problem
from refold.gateway.api.table import OPERATIONS

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
