"""What went wrong with a request, told without a word of what was sent."""

from refold.errors import StoreError
from refold.gateway.threads import Busy
from refold.gateway.workers import Late


def why(error: BaseException) -> str:
    """The reason (`refold.gateway.traffic.REASONS`) that a request passes through after *error*."""
    kinds = ((StoreError, "store"), (Late, "deadline"), (Busy, "busy"))
    return next((reason for kind, reason in kinds if isinstance(error, kind)), "internal")
