"""One counter for everything that the operations tell of messages: Refold's own, never scaled to what a provider
reported. So figures can be compared: an edit hides at most what its session has, what is accepted is what was
previewed, and a history that grows never counts for less (finding F17)."""

from refold.view import View


def said(view: View, beside: int = 0) -> int:
    """Tokens of the request without any edit, *beside* being those of system prompt and tools that *view* lacks."""
    return view.lens.fixed + beside + view.ground.sums[-1]


def sent(view: View, beside: int = 0) -> int:
    """Tokens of the request as *view* shows it; *beside* likewise."""
    return view.counted + beside
