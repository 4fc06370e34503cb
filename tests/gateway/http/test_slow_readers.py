"""A closed connection is aborted if its client stops reading."""

import asyncio
import socket

import pytest

from refold.gateway.config import Config
from refold.gateway.http.response import StallAbortingTransport
from refold.gateway.settings import Upstream
from refold.testing.scripted_gateway import serving
from tests.support.raw_http import eventually


class Wire:
    """A transport that records what is written."""

    def __init__(self, *remainders: int) -> None:
        self.written: list[bytes] = []
        self.closed = self.aborted = False
        self.remainders = [*remainders]
        """Number of unread bytes at each check."""

    def get_write_buffer_size(self) -> int:
        return self.remainders.pop(0) if self.remainders else 0

    def abort(self) -> None:
        self.aborted = True

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


@pytest.mark.parametrize(
    ("remainders", "aborted"),
    [((), False), ((5,), False), ((5, 4, 3, 2, 1), False), ((5, 5), True), ((5, 4, 3, 3), True)],
)
def test_a_closing_connection_is_aborted_if_the_client_stops_reading(
    remainders: tuple[int, ...], *, aborted: bool
):
    async def run() -> Wire:
        wire = Wire(*remainders)
        StallAbortingTransport(wire, asyncio.get_running_loop(), 0.0).close()
        for _ in range(50):
            await asyncio.sleep(0)
        assert not wire.remainders
        return wire

    assert asyncio.run(run()).aborted is aborted


def test_accepted_connections_have_tcp_nodelay():
    """If the listening socket came from `socket.create_server`, each response took 40 ms longer."""
    config = Config(upstreams=(Upstream(name="up", url="http://127.0.0.1:9"),), salt=b"s")
    with serving(config) as gateway:
        connections = gateway.server.server_state.connections
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=60):
            assert eventually(lambda: connections)
            (connection,) = connections
            accepted = connection.transport.get_extra_info("socket")
            assert eventually(lambda: accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
