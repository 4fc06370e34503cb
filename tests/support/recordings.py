"""Read the recorded requests of real clients."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from refold.gateway import Incoming


def api_of(path: str) -> str:
    """Return the format of a request *path*, or an empty string."""
    path = path.partition("?")[0]
    ends = {
        "/messages": "anthropic",
        "/chat/completions": "openai_chat",
        "/responses": "openai_responses",
        "enerateContent": "gemini",
    }
    return next((api for end, api in ends.items() if path.endswith(end)), "")


def read_requests(shared: Path, names: str) -> Iterator[Incoming]:
    """Yield the requests of the recordings *names*, separated by spaces."""
    for name in names.split():
        for line in (
            (shared / "fixtures/requests" / f"{name}.jsonl").read_text("utf-8").splitlines()
        ):
            request = json.loads(line)
            if isinstance(request["body"], dict):
                headers = tuple((key.lower(), value) for key, value in request["headers"].items())
                body = json.dumps(request["body"]).encode()
                yield Incoming(
                    api_of(request["path"]), "up", request["path"], headers, body, "tenant"
                )


def read_bodies(file: Path) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield position, path and body of each recorded request with a conversation."""
    for n, line in enumerate(file.read_text(encoding="utf-8").splitlines()):
        record = json.loads(line)
        body = (
            json.loads(record["body"])
            if isinstance(record["body"], str) and record["body"]
            else record["body"]
        )
        if isinstance(body, dict) and any(
            field in body for field in ("messages", "input", "contents")
        ):
            yield n, record["path"], body
