"""Send bytes that no HTTP client would send."""

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any


def talk(port: int, *pieces: bytes, wait: float = 60.0, close_write: bool = False) -> bytes:
    """Send *pieces* and return the bytes received until the server closes or is silent for *wait*
    seconds."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as line:
        for piece in pieces:
            with suppress(OSError):
                line.sendall(piece)
        if close_write:
            line.shutdown(socket.SHUT_WR)
        return read_rest(line)


def pour(line: socket.socket, piece: bytes, times: int, pause: float = 0.0) -> bool:
    """Send *piece* repeatedly and return whether the connection was closed before the end."""
    try:
        for _ in range(times):
            line.sendall(piece)
            time.sleep(pause)
    except OSError:
        return True
    return False


def read_rest(line: socket.socket) -> bytes:
    """Read until the end of the connection."""
    answer = bytearray()
    with suppress(OSError):
        while piece := line.recv(65_536):
            answer += piece
    return bytes(answer)


def statuses(answer: bytes) -> list[int]:
    """Return the status of every response in *answer*."""
    return [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]


def eventually(read: Callable[[], Any], within: float = 300.0) -> Any:
    """Return the first true value read within this many seconds, or the last value."""
    until = time.monotonic() + within
    while not (value := read()) and time.monotonic() < until:
        time.sleep(0.01)
    return value
