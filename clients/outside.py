"""A proxy that refuses every connection to other machines and records their names."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class WayOut:
    """A proxy: `environment` directs a program's requests here, `asked` has the other machines'
    names."""

    def __init__(self, port: int) -> None:
        proxy = f"http://127.0.0.1:{port}"
        names = ("http_proxy", "https_proxy", "all_proxy")
        self.environment = {name: proxy for lower in names for name in (lower, lower.upper())}
        self.environment |= {"no_proxy": "127.0.0.1,localhost", "NO_PROXY": "127.0.0.1,localhost"}
        self.asked: set[str] = set()


@contextmanager
def refuse_way_out() -> Iterator[WayOut]:
    """Run a refusing proxy for the `with` block."""

    class Refuse(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            way.asked.add(self.path)
            self.send_error(502, "no way out")

        do_GET = do_POST = do_HEAD = do_CONNECT  # noqa: N815 - the names of the server

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refuse)
    way = WayOut(server.server_port)
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield way
    finally:
        server.shutdown()
        server.server_close()
