"""Which model a request names: one answer for routing, windows, prices and logs (F12)."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from refold.gateway.http.body import parse_json

_VERBS = (
    *(
        "generateContent",
        "streamGenerateContent",
        "bidiGenerateContent",
        "batchGenerateContent",
        "generateAnswer",
    ),
    *(
        "countTokens",
        "computeTokens",
        "embedContent",
        "batchEmbedContents",
        "asyncBatchEmbedContent",
    ),
    *("predict", "predictLongRunning", "rawPredict", "streamRawPredict", "serverStreamingPredict"),
)
"""What Google's paths may end with, behind a colon. A name may hold colons of its own:
`ft:gpt-4o:acme`."""
_PLACES = ("/models/", "/tunedModels/", "/endpoints/")
_SIGNS = ("/models/", "/model/", "/tunedModels/", "/endpoints/", "/deployments/")
"""Only a path that has one of these names a model."""
_GOOGLE = re.compile(rf"/[a-zA-Z]+/(.+):(?:{'|'.join(_VERBS)})$")
_AZURE = re.compile(r"/deployments/([^/]+)")
_BEDROCK = re.compile(
    r"/model/([^/]+)/(?:converse|converse-stream|invoke|invoke-with-response-stream|count-tokens)$"
)
_LISTED = re.compile(r"/models/(.+)$")
_BEHIND = re.compile(r"/v1/.*|/(?:chat/completions|completions|responses|messages|embeddings)/?$")
"""What may follow a name that stands in the middle of a path."""


def request_model(path: str, body: Mapping[str, Any]) -> str:
    """Return the model that a request names; empty if it names none.

    A path that asks a model of Google's or of Bedrock's for something names it, whatever stands in
    the body; else the body's `model` counts, else the rest of the path: Azure's deployment,
    `/v1/models/NAME`. *path* may have a query and percent signs.
    """
    path = path.partition("?")[0]
    model = body.get("model")
    if not any(sign in path for sign in _SIGNS):
        return model if isinstance(model, str) else ""
    tail = path[
        max(0, *(path.rfind(place) for place in _PLACES)) :
    ]  # names hold slashes, so the last place counts
    if match := (tail.startswith(_PLACES) and _GOOGLE.match(tail)) or _BEDROCK.search(path):
        return unquote(match[1])
    if isinstance(model, str) and model:
        return model
    match = _AZURE.search(path) or _LISTED.match(_BEHIND.sub("", tail))
    return unquote(match[1]) if match else ""


def parse_object(text: bytes | None) -> Mapping[str, Any]:
    """Return the object that a JSON text holds; an empty one if it holds none."""
    value = parse_json(text or b"")
    return value if isinstance(value, dict) else {}
