"""An answer's head goes out with the body behind it."""

import asyncio

import pytest

from refold.gateway.http.server_protocol import Together

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


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


def played(*steps: bytes | None) -> list[bytes]:
    """What is written, None standing for a turn of the event loop."""

    async def run() -> list[bytes]:
        wire = Wire()
        line = Together(wire, asyncio.get_running_loop(), 1.0)
        for step in steps:
            if step is None:
                await asyncio.sleep(0)
            else:
                line.write(step)
        line.close()
        assert line.is_closing()
        return wire.written

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("steps", "written"),
    [
        ((HEAD, b"ok"), [HEAD + b"ok"]),
        ((HEAD, None, b"ok"), [HEAD, b"ok"]),
        ((HEAD,), [HEAD]),
        ((HEAD, b"a", b"b", None, HEAD, b"c"), [HEAD + b"a", b"b", HEAD + b"c"]),
        ((b"HTTP/1.1 100 Continue\r\n\r\n", HEAD, b"ok"), [b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD, b"ok"]),
        ((b"piece", None, b""), [b"piece", b""]),
    ],
)
def test_nothing_is_lost_or_put_in_another_order(steps, written):
    assert played(*steps) == written


@pytest.mark.parametrize(
    ("left", "aborted"),
    [((), False), ((5,), False), ((5, 4, 3, 2, 1), False), ((5, 5), True), ((5, 4, 3, 3), True)],
)
def test_a_closed_connection_waits_only_for_a_client_that_takes_something(left: tuple[int, ...], *, aborted: bool):
    async def run() -> Wire:
        wire = Wire(*left)
        Together(wire, asyncio.get_running_loop(), 0.0).close()
        for _ in range(50):
            await asyncio.sleep(0)
        assert not wire.left
        return wire

    assert asyncio.run(run()).aborted is aborted
