"""A connection that is closed is given up when its client takes nothing more."""

import asyncio

import pytest

from refold.gateway.http.server_protocol import StallAbortingTransport


class Wire:
    """A transport that keeps what is written."""

    def __init__(self, *left: int) -> None:
        self.written: list[bytes] = []
        self.closed = self.aborted = False
        self.left = [*left]
        """Bytes that the client has not taken, at each look."""

    def get_write_buffer_size(self) -> int:
        return self.left.pop(0) if self.left else 0

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
    ("left", "aborted"),
    [((), False), ((5,), False), ((5, 4, 3, 2, 1), False), ((5, 5), True), ((5, 4, 3, 3), True)],
)
def test_a_closed_connection_waits_only_for_a_client_that_takes_something(
    left: tuple[int, ...], *, aborted: bool
):
    async def run() -> Wire:
        wire = Wire(*left)
        StallAbortingTransport(wire, asyncio.get_running_loop(), 0.0).close()
        for _ in range(50):
            await asyncio.sleep(0)
        assert not wire.left
        return wire

    assert asyncio.run(run()).aborted is aborted
