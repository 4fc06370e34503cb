"""How much a client may send and how long anything may take."""

from dataclasses import dataclass

from refold.figures import is_number

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bytes, seconds and counts. Raises ValueError for a limit that is no number above 0."""

    body_bytes: int = 64 * MIB
    """Of a request for an answer, compressed or not; such bodies are held in memory."""
    upload_bytes: int = 1024 * MIB
    """Of any other request's body; those are passed on as they arrive."""
    head_bytes: int = 64 * 1024
    """Of the request line and all headers together."""
    headers: int = 200
    """How many."""
    requests: int = 1_000
    """Under way at once, in one process."""
    head_seconds: float = 20.0
    """For the request line and the headers."""
    body_seconds: float = 60.0
    """Of silence while a body is awaited."""
    connect_seconds: float = 10.0
    """For a connection to an upstream."""
    silence_seconds: float = 900.0
    """Of silence of an upstream, before its answer or within it; and of a client that takes nothing of its answer."""
    idle_seconds: int = 75
    """That a client's unused connection is kept."""
    grace_seconds: int = 300
    """For streams to end when the gateway is stopped."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if not is_number(value) or value <= 0:
                raise ValueError(f"{name} must be a number above 0, not {value!r}")
