"""Servers that `benchmarks.gateway` measures, each in its own process: an upstream, two bare
pass-throughs, our own wire without its core, and the gateway.

python -m benchmarks.gateway_servers upstream PORT
python -m benchmarks.gateway_servers bare|lean|wire|gateway URL PORT [DIRECTORY]
"""

import json
import sys

import aiohttp
import uvicorn

from refold.gateway.app import Gateway
from refold.gateway.config import Config
from refold.gateway.http.client import HTTPClient
from refold.gateway.http.request import UpstreamRequest
from refold.gateway.serve import create_server, run
from refold.gateway.settings import Limits, Settings, Upstream
from refold.testing.scripted_gateway import ScriptedPipeline
from refold.tokens.model_table import Window

EVENTS = 16
USAGE = {"prompt_tokens": 100, "completion_tokens": 9, "total_tokens": 109}
ANSWER = json.dumps(
    {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "bench",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Done."},
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
    }
).encode()
CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "bench"}
PIECE = {**CHUNK, "choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": None}]}
STREAM = [f"data: {json.dumps(PIECE)}\n\n".encode()] * (EVENTS - 2)
STREAM += [
    f"data: {json.dumps({**CHUNK, 'choices': [], 'usage': USAGE})}\n\n".encode(),
    b"data: [DONE]\n\n",
]


async def upstream(scope, receive, send):
    """A provider that answers at once."""
    if scope["type"] != "http":
        return
    body, is_more = b"", True
    while is_more:
        message = await receive()
        body, is_more = body + message.get("body", b""), message.get("more_body", False)
    streams = b'"stream": true' in body[:200]
    kind = b"text/event-stream" if streams else b"application/json"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
    for piece in STREAM if streams else (ANSWER,):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


class Bare:
    """The minimal pass-through with the same libraries."""

    def __init__(self, url):
        self.url, self.session = url, None

    async def __call__(self, scope, receive, send):
        """Forward one request."""
        if scope["type"] != "http":
            return
        if self.session is None:
            connector = aiohttp.TCPConnector(limit=0)
            self.session = aiohttp.ClientSession(auto_decompress=False, connector=connector)
        pieces, is_more = [], True
        while is_more:
            message = await receive()
            pieces.append(message.get("body", b""))
            is_more = message.get("more_body", False)
        headers = [
            (n.decode(), v.decode())
            for n, v in scope["headers"]
            if n not in (b"host", b"content-length")
        ]
        async with self.session.request(
            scope["method"], self.url + scope["path"], headers=headers, data=b"".join(pieces)
        ) as reply:
            back = [(n, v) for n, v in reply.raw_headers if n.lower() != b"transfer-encoding"]
            await send({"type": "http.response.start", "status": reply.status, "headers": back})
            async for piece in reply.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


class Lean(Bare):
    """The same pass-through with the gateway's own client."""

    async def __call__(self, scope, receive, send):
        """Forward one request."""
        if scope["type"] != "http":
            return
        if self.session is None:
            self.session = HTTPClient(Limits())
        pieces, is_more = [], True
        while is_more:
            message = await receive()
            pieces.append(message.get("body", b""))
            is_more = message.get("more_body", False)
        headers = [(n, v) for n, v in scope["headers"] if n not in (b"host", b"content-length")]
        reply = await self.session.send(
            UpstreamRequest(self.url, scope["method"], scope["path"], headers, b"".join(pieces))
        )
        back = [(n, v) for n, v in reply.headers if n != b"transfer-encoding"]
        await send({"type": "http.response.start", "status": reply.status, "headers": back})
        while piece := await reply.read():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        reply.release()


def serve(app, port):
    uvicorn.run(
        app, port=port, log_level="error", access_log=False, lifespan="off", http="httptools"
    )


def serve_gateway(url, port, directory):
    settings = Settings(windows={"bench": Window(1_000_000)})
    ups = (Upstream(name="bench", url=url),)
    run(
        Config(
            upstreams=ups, port=port, settings=settings, store=f"{directory}/edits.db", log="error"
        )
    )


def serve_wire(url, port):
    """Run the gateway's HTTP side without its core."""
    config = Config(upstreams=(Upstream(name="bench", url=url),), port=port, salt=b"s", log="error")
    create_server(config, Gateway(config, ScriptedPipeline())).run()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["upstream", port]:
            serve(upstream, int(port))
        case ["bare", url, port]:
            serve(Bare(url), int(port))
        case ["lean", url, port]:
            serve(Lean(Upstream(name="bench", url=url)), int(port))
        case ["wire", url, port]:
            serve_wire(url, int(port))
        case ["gateway", url, port, directory]:
            serve_gateway(url, int(port), directory)
