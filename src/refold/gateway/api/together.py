"""Operations answered for all processes of a gateway by the one that is asked."""

from collections.abc import Iterable
from typing import Any

from refold.gateway.api.desk import Desk
from refold.gateway.api.operation import Operation
from refold.gateway.api.peers import Peers, Said
from refold.gateway.api.problems import Problem

Json = dict[str, Any]
ALL = 1_000
"""Sessions that each process is asked for."""


async def answered(desk: Desk, peers: Peers, operation: Operation, asked: Json) -> Json:
    """The answer of whoever knows. Raises as the operation does."""
    match operation.name:
        case "sessions":
            every = {"limit": ALL}
            mine = await operation.run(desk, every)
            return _merged([mine, *_done(await peers.ask(operation, every))], asked)
        case "history":
            return await _latest(desk, peers, operation, asked)
        case "preview" | "accept" | "revert" | "recall" if "session" in asked or "preview" in asked:
            return await _whoever(desk, peers, operation, asked)
        case _:
            return await operation.run(desk, asked)


async def _whoever(desk: Desk, peers: Peers, operation: Operation, asked: Json) -> Json:
    """Of this process, else of another: a session or a preview is known where it was made."""
    try:
        return await operation.run(desk, asked)
    except Problem as problem:
        if problem.status != 404:
            raise
        return _first(await peers.ask(operation, asked), problem)


async def _latest(desk: Desk, peers: Peers, operation: Operation, asked: Json) -> Json:
    """Of the process that saw the session last."""
    problem, found = Problem(404, "", ""), list[Json]()
    try:
        found.append(await operation.run(desk, asked))
    except Problem as error:
        problem = error
    found += _done(await peers.ask(operation, asked))
    if not found:
        raise problem
    return max(found, key=lambda one: float(one["session"]["last_seen"]))


def _first(said: Iterable[Said], problem: Problem) -> Json:
    known = [one for one in said if one.status != 404]
    if not known:
        raise problem
    status, body = known[0]
    if status != 200:
        raise Problem(status, body["error"]["code"], body["error"]["message"])
    return body


def _done(said: Iterable[Said]) -> list[Json]:
    return [one.body for one in said if one.status == 200]


def _merged(answers: Iterable[Json], asked: Json) -> Json:
    """The sessions of all, each once, as it was seen last; what it sent through any of them is summed up."""
    found = dict[str, Json]()
    for one in (one for answer in answers for one in answer["sessions"]):
        other = found.get(one["id"])
        found[one["id"]] = _both(one, other) if other else one
    listed = sorted(found.values(), key=lambda one: -float(one["last_seen"]))
    first = asked.get("offset", 0)
    return {"sessions": listed[first : first + asked.get("limit", 100)], "total": len(listed)}


def _both(one: Json, other: Json) -> Json:
    later = max(one, other, key=lambda each: float(each["last_seen"]))
    return later | {name: one[name] + other[name] for name in ("requests", "saved_tokens")}
