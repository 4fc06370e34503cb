"""A long agent session of our own making, and a trial run over it (`refold demo`)."""

from refold.demo.story import session

__all__ = ["session"]
