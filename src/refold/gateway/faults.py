"""What went wrong with a request, told without a word of what was sent."""

from traceback import walk_tb

from refold.errors import StoreError
from refold.gateway.threads import Busy
from refold.gateway.workers import Late


def where(error: BaseException) -> str:
    """The module and line that raised: enough to find it, and nothing that was sent."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return f"{frames[-1].f_globals.get('__name__')}:{frames[-1].f_lineno}" if frames else "?"


def why(error: BaseException) -> str:
    """The reason (`refold.gateway.traffic.REASONS`) that a request passes through after *error*."""
    kinds = ((StoreError, "store"), (Late, "deadline"), (Busy, "busy"))
    return next((reason for kind, reason in kinds if isinstance(error, kind)), "internal")
