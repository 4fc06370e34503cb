"""Bytes on a socket, for what no HTTP client would send."""

import socket
import time
from collections.abc import Callable
from contextlib import suppress


def talk(port: int, *pieces: bytes, wait: float = 60.0, close_write: bool = False) -> bytes:
    """Send *pieces*, and everything that comes back until the server closes or is silent for *wait* seconds."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as line:
        for piece in pieces:
            with suppress(OSError):
                line.sendall(piece)
        if close_write:
            line.shutdown(socket.SHUT_WR)
        return rest(line)


def pour(line: socket.socket, piece: bytes, times: int, pause: float = 0.0) -> bool:
    """Send *piece* again and again. Was the connection closed before the end?"""
    try:
        for _ in range(times):
            line.sendall(piece)
            time.sleep(pause)
    except OSError:
        return True
    return False


def rest(line: socket.socket) -> bytes:
    got = bytearray()
    with suppress(OSError):
        while piece := line.recv(65_536):
            got += piece
    return bytes(got)


def statuses(answer: bytes) -> list[int]:
    """The status of every response in *answer*."""
    return [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]


def eventually(true: Callable[[], bool], within: float = 300.0) -> bool:
    """Does it become true?"""
    until = time.monotonic() + within
    while not true() and time.monotonic() < until:
        time.sleep(0.01)
    return true()
