"""The way out of the machine, which leads nowhere: a proxy that refuses, and notes who was asked for."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class WayOut:
    """`environment` sends a program's requests for other machines here; `asked` are those machines."""

    def __init__(self, port: int) -> None:
        proxy = f"http://127.0.0.1:{port}"
        names = ("http_proxy", "https_proxy", "all_proxy")
        self.environment = {name: proxy for lower in names for name in (lower, lower.upper())}
        self.environment |= {"no_proxy": "127.0.0.1,localhost", "NO_PROXY": "127.0.0.1,localhost"}
        self.asked: set[str] = set()


@contextmanager
def refuse_way_out() -> Iterator[WayOut]:
    """Refuse, until the end of the block."""

    class Refuse(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            way.asked.add(self.path)
            self.send_error(502, "no way out")

        do_GET = do_POST = do_HEAD = do_CONNECT  # noqa: N815 - the names of the server

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refuse)
    way = WayOut(server.server_port)
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield way
    finally:
        server.shutdown()
        server.server_close()
