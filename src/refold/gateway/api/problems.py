"""What is answered where an operation cannot be done."""

from refold.errors import EditError, FormatError, RefoldError, StoreError
from refold.gateway.threads import Busy
from refold.gateway.workers import Late


class Problem(Exception):  # noqa: N818 - it is an answer, not an error
    """An answer other than 200: a status, a word for programs and a sentence for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


STATUSES = {
    400: "The request is not what the document says: no JSON, a field missing, of another type, or unknown.",
    401: "The admin token is missing or wrong.",
    404: "This gateway knows no such session, preview or edit.",
    405: "The path takes another method.",
    408: "The body did not come.",
    409: "It contradicts what is there: the conversation is being worked on, has changed, or its history must be given.",
    413: "The body is larger than `limits.body_bytes`.",
    415: "A body is JSON, not compressed.",
    422: "The request is in order, but what it holds is not: no conversation of any API, figures that contradict one another.",
    503: "The store failed, it took too long, or too much is asked at once: try again.",
}
"""Every status that says that an operation was not done, and what it means."""


def problem_of(error: Exception) -> Problem | None:
    """The answer to what an operation raised; None for what nobody foresaw."""
    match error:
        case Problem():
            return error
        case EditError():
            return Problem(409, "conflict", str(error))
        case FormatError():
            return Problem(422, "unreadable", str(error))
        case StoreError():
            return Problem(503, "store_failed", "The store failed.")
        case Late():
            return Problem(503, "late", "It took too long.")
        case Busy():
            return Problem(409, "busy", "A request of this conversation is being worked on: try again.")
        case RefoldError():
            return Problem(422, "refused", str(error))
        case _:
            return None
