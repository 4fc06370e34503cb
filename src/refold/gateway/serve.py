"""Running the gateway: one process with uvicorn, or the application for any other server."""

import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import uvicorn

from refold.gateway.api.app import Api
from refold.gateway.api.desk import Desk
from refold.gateway.app import Application, Gateway
from refold.gateway.books.opening import clerk
from refold.gateway.config import Config, from_environment, load, upstream
from refold.gateway.counters import Counters
from refold.gateway.economy import rates_of
from refold.gateway.exchange import Exchange
from refold.gateway.logs import write_json_lines
from refold.gateway.protocol import guarded
from refold.stores import SQLiteStore

CONFIG = "REFOLD_CONFIG"
"""The file that `application` reads."""
UPSTREAMS = "REFOLD_UPSTREAMS"
"""Addresses or names of well-known providers, separated by spaces, where there is no file."""


def gateway(config: Config, inner: Application | None = None) -> Gateway:
    """The gateway with its store. Raises ValueError for what cannot be served, `StoreError`, OSError."""
    config = salted(config.checked())
    counters, settings = Counters(), config.settings
    books = clerk(config.store, config.record, partial(rates_of, settings), counters, settings.clock)
    exchange = Exchange(settings, SQLiteStore(config.store), counters, books)
    books.start()
    return Gateway(config, exchange, Api(Desk.of(exchange, config.salt), config.limits, inner))


def application(environment: Mapping[str, str] = os.environ) -> Gateway:
    """The gateway for servers that are given a factory: `uvicorn --factory refold.gateway.serve:application --workers 4`.

    Settings come from the file that REFOLD_CONFIG names, or upstreams alone from REFOLD_UPSTREAMS.
    Raises as `gateway` and `load` do. Which address such a server binds to is its own affair: without an
    admin token the admin paths answer this machine alone.
    """
    path = environment.get(CONFIG)
    config = load(path, environment) if path else from_environment(Config(), environment)
    named = tuple(upstream(one) for one in environment.get(UPSTREAMS, "").split())
    config = replace(config, upstreams=named or config.upstreams)
    write_json_lines(config.log)
    return gateway(config)


def server(config: Config, app: Application) -> uvicorn.Server:
    """A uvicorn server for *app*: `run()` it, or await `serve()`. It finishes streams when it is stopped."""
    limits = config.limits
    return uvicorn.Server(
        uvicorn.Config(
            app,
            host=config.host,
            port=config.port,
            http=guarded(limits),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=limits.idle_seconds,
            timeout_graceful_shutdown=limits.grace_seconds,
        )
    )


def run(config: Config) -> None:
    """Serve until stopped (SIGINT, SIGTERM). Raises as `gateway` does, and OSError where the port is taken."""
    app = gateway(config)
    write_json_lines(config.log)
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    with socket.create_server((config.host.strip("[]"), config.port), family=family, backlog=2_048) as listening:
        server(app.config, app).run(sockets=[listening])


def salted(config: Config) -> Config:
    """*config* with a salt: its own, else the one beside its store, which is made when it is first needed.
    Without a file for the store the salt is new each time, as the store is."""
    if config.salt:
        return config
    if config.store == ":memory:":
        return replace(config, salt=secrets.token_bytes(32))
    path = Path(f"{config.store}.salt")
    if not path.exists():
        _make(path)
    return replace(config, salt=path.read_bytes())


def _make(path: Path) -> None:
    """A new salt at *path*, unless another process was faster; nobody sees half of it."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(secrets.token_bytes(32))
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
