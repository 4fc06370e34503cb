"""The other processes of `refold serve --workers N`: each knows conversations of its own, and any may be asked.

They reach one another by sockets in a directory that only their user can enter, and say by a secret that they have
checked who asks.
"""

import errno
import json
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from hashlib import blake2b
from hmac import compare_digest
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from refold.gateway.api.operation import Operation

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
