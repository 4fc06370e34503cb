"""Context errors: how providers say that a request is too long, and saying it in the caller's dialect."""

Headers = tuple[tuple[str, str], ...]


def is_context_error(api: str, status: int, body: bytes) -> bool:
    """Does this reply of an upstream say that the request is too long for the model's window?"""
    return False


def context_error(api: str, tokens: int = 0, limit: int = 0) -> tuple[int, Headers, bytes]:
    """Status, headers and body with which the provider itself would say that a request of *tokens* exceeds *limit*."""
    return 400, (("content-type", "application/json"),), b"{}"
