"""Children that tests start."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def default_signals() -> Iterator[None]:
    """Give a child that is started within it the signals as a shell gives them to a program in the foreground, whatever
    `nohup` or `&` made of ours."""
    numbers = [
        signal.SIGINT,
        signal.SIGTERM,
        *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []),
    ]
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
