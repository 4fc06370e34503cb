"""Answers of the gateway's own, in the words of the API that the caller speaks."""

import json
from typing import Any

Headers = tuple[tuple[str, str], ...]


class Refused(Exception):  # noqa: N818 - it is an answer, not an error
    """A request that the gateway answers itself, with this status and message."""

    def __init__(
        self, status: int, message: str, *, headers: Headers = (), close: bool = False, reason: str = ""
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.close = status, message, close
        self.headers = (*headers, ("connection", "close")) if close else headers
        self.reason = reason or f"http_{status}"


def refusal(api: str, error: Refused) -> tuple[int, Headers, bytes]:
    """Status, headers and body that say *error* as the API's provider would."""
    body = json.dumps(_shape(api, error.status, error.message)).encode()
    fixed = (("content-type", "application/json"), ("content-length", str(len(body))))
    return error.status, (*fixed, *error.headers), body


def _shape(api: str, status: int, message: str) -> dict[str, Any]:
    if api == "anthropic":
        return {"type": "error", "error": {"type": _ANTHROPIC.get(status, _kind(status)), "message": message}}
    if api == "gemini":
        return {"error": {"code": status, "message": message, "status": _GEMINI.get(status, _rpc(status))}}
    code = _OPENAI_CODES.get(status)
    return {"error": {"message": message, "type": _OPENAI.get(status, _kind(status)), "param": None, "code": code}}


def _kind(status: int) -> str:
    return "api_error" if status >= 500 else "invalid_request_error"


def _rpc(status: int) -> str:
    return "INTERNAL" if status >= 500 else "INVALID_ARGUMENT"


_ANTHROPIC = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
    504: "timeout_error",
}
_GEMINI = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_OPENAI = {
    401: "authentication_error",
    403: "permission_error",
    500: "server_error",
    502: "server_error",
    503: "server_error",
    504: "server_error",
}
_OPENAI_CODES = {404: "not_found", 413: "request_too_large", 502: "upstream_unreachable", 504: "upstream_timeout"}
