"""Runs the gateway: in one process with uvicorn, in several that are looked after, or as the
application for any other server."""

import asyncio
import gc
import glob
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from errno import ENOENT
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread, current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING, cast

import uvicorn

from refold.errors import StoreError
from refold.gateway.api.app import Api
from refold.gateway.api.context import ApiContext
from refold.gateway.app import Application, Gateway
from refold.gateway.config import SALT, Config, load_config, parse_upstream, with_environment
from refold.gateway.http.server_protocol import create_protocol
from refold.gateway.ledger.sql import Retention
from refold.gateway.ledger.writer import create_writer
from refold.gateway.logs import WRITER, configure_logging, log
from refold.gateway.metrics import Counters, SharedMetrics
from refold.gateway.pipeline.pipeline import Pipeline
from refold.gateway.settings import parse_duration
from refold.memory import SQLiteMemories
from refold.stores import file_path, is_server, open_store
from refold.stores.sidecar import write_new
from refold.stores.sql import DatabaseClient
from refold.stores.sqlite import MEMORY
from refold.stores.store import Store
from refold.tokens.model_table import find_rates

if TYPE_CHECKING:
    from refold.stores.postgresql import PostgreSQLStore


# --- the gateway and its server -------------------------------------------------------------------


GC_THRESHOLD = 20_000
"""So many more objects that may hold one another are made than let go before they are looked at."""
CONFIG = "REFOLD_CONFIG"
"""The file that `create_app` reads."""
UPSTREAMS = "REFOLD_UPSTREAMS"
"""Addresses or names of well-known providers, separated by spaces, where there is no file."""


def create_gateway(config: Config) -> Gateway:
    """Return the gateway with its store. Raises ValueError for what cannot be served, `StoreError`,
    OSError."""
    config = with_salt(config.check_servable())
    older = frozenset(upstream.name for upstream in config.upstreams if upstream.older_account)
    settings = replace(config.settings, older_accounts=older | config.settings.older_accounts)
    if config.record:
        settings = replace(settings, read_above_bytes=0)  # what is recorded is read
    if settings.shadow:  # asks no model, and decides nothing that a later run would show
        settings = replace(settings, ask=None)
    counters, rates_of = Counters(), partial(find_rates, given=settings.prices)
    WRITER.counters = counters
    ledger_writer = create_writer(config.store, config.record, rates_of, counters, settings.clock)
    store = open_checked_store(MEMORY if settings.shadow else config.store)
    warn_if_locked(config.store)
    memories = SQLiteMemories(config.memory) if config.memory else None
    keep = partial(restore_salt, config, store)
    closes: list[Callable[[], None]] = [keep]
    closes += [client.close for client in (store, memories) if isinstance(client, DatabaseClient)]
    if config.retention and not settings.shadow:
        seconds = parse_duration(config.retention)
        retention = Retention(store, ledger_writer.ledger, seconds, counters, settings.clock)
        retention.start()
        closes.insert(0, retention.close)
    pipeline = Pipeline(settings, store, counters, ledger_writer, closes=closes, keep=keep)
    ledger_writer.start()
    context = ApiContext.build(pipeline, config, memories.within if memories else None)
    return Gateway(config, pipeline, Api(context, config.limits))


def create_app(environment: Mapping[str, str] = os.environ) -> Gateway:
    """Return the gateway for servers that are given a factory: `uvicorn --factory
    refold.gateway.serve:create_app --workers 4`.

    Settings come from the file that REFOLD_CONFIG names, or upstreams alone from REFOLD_UPSTREAMS.
    Raises as `create_gateway` and `load_config` do. Which address such a server binds to is its own
    affair: without an admin token the admin paths answer this machine alone.
    """
    path = environment.get(CONFIG)
    config = load_config(path, environment) if path else with_environment(Config(), environment)
    upstreams = tuple(parse_upstream(text) for text in environment.get(UPSTREAMS, "").split())
    config = replace(config, upstreams=upstreams or config.upstreams)
    configure_logging(config.log)
    return create_gateway(config)


def create_server(config: Config, app: Application) -> uvicorn.Server:
    """Return a uvicorn server for *app*: `run()` it, or await `serve()`. It finishes streams when
    it is stopped."""
    limits = config.limits
    note = app.note_refusal if isinstance(app, Gateway) else id
    return PartingServer(
        uvicorn.Config(
            app,
            host=config.host,
            port=config.port,
            http=create_protocol(limits, note),
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


ACCEPT_SECONDS, NOTE_SECONDS = 1.0, 10.0
"""From a connection that could not be taken to the next attempt, and to the next word of it."""


class PartingServer(uvicorn.Server):
    """A server that answers, when it is stopped, whoever has connected before: a client waits
    behind its connection until a process takes it, and would find it reset.

    It takes connections itself. Without descriptors for them uvloop closes them, or its socket, and
    says nothing; here they wait, also for another process."""

    _listening: Sequence[socket.socket] = ()
    _silent_until = 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does; Windows' loop takes connections in its own way."""
        self._listening = sockets or () if hasattr(os, "fork") else ()
        await super().startup([] if self._listening else sockets)
        for listening in self._listening:
            listening.setblocking(False)
            self._watch(listening)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take the connections that wait, and no more; then end as uvicorn does."""
        app, loop = self.config.app, asyncio.get_running_loop()
        if isinstance(app, Gateway):
            app.stopping = True
        for listening in self._listening:
            loop.remove_reader(listening)
            for connection in _take_waiting(listening):
                await self._connect(connection)
        await super().shutdown(sockets)

    def _watch(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        loop, app = asyncio.get_running_loop(), self.config.app
        try:
            connection = listening.accept()[0]
        except (BlockingIOError, ConnectionAbortedError):  # another process was faster, or it left
            return
        except OSError as error:
            loop.remove_reader(listening)
            loop.call_later(ACCEPT_SECONDS, self._watch, listening)
            if isinstance(app, Gateway):
                app.pipeline.counters.add("http_accept_failures")
            if loop.time() > self._silent_until:
                self._silent_until = loop.time() + NOTE_SECONDS
                log("connections wait: none can be taken", logging.ERROR, why=error.strerror)
            return
        tasks, task = self.server_state.tasks, loop.create_task(self._connect(connection))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _connect(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(self._create_protocol, connection)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Write the log before uvicorn raises the signal again, which ends the process."""
        with super().capture_signals():
            yield
            WRITER.flush()

    def _create_protocol(self) -> asyncio.Protocol:
        create = cast("Callable[..., asyncio.Protocol]", self.config.http_protocol_class)
        state = self.server_state
        return create(config=self.config, server_state=state, app_state=self.lifespan.state)


def _take_waiting(listening: socket.socket) -> list[socket.socket]:
    """Return the connections that nobody has taken yet, and close the socket that is *listening*
    at once."""
    waiting = list[socket.socket]()
    with listening, suppress(OSError):  # there are no more
        while True:
            waiting.append(listening.accept()[0])
    return waiting


def run(config: Config, bound: socket.socket | None = None) -> None:
    """Serve until stopped (SIGINT, SIGTERM; not SIGHUP), with as many processes as `config.workers`
    says; or in this one on a socket that is *bound* already. Raises as `create_gateway` does,
    and OSError if the port is taken."""
    config = config.check_servable()
    configure_logging(config.log)
    if bound is not None:
        _serve(config, bound)
        return
    with ignore_hangup(), _listen(config) as listening:
        with remove_new_files(config.store):
            config = with_salt(config)
            first = open_checked_store(config.store)  # what is wrong with it is said once
            if isinstance(first, DatabaseClient):
                first.close()
        if config.workers == 1:
            _serve(config, listening)
            return
        with TemporaryDirectory(prefix="refold-") as figures:
            # A socket that is still open here would take connections that nobody answers.
            Supervisor(
                config.workers, partial(_serve, config, listening, figures), listening.close
            ).run()


def _listen(config: Config) -> socket.socket:
    """Return a socket at the configured address. Raises OSError, which names it."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    address = config.host.strip("[]"), config.port
    try:
        return socket.create_server(address, family=family, backlog=2_048)
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (while")[0]
        words = f"cannot listen there (host, port): {why}"
        raise OSError(error.errno, words, f"{config.host}:{config.port}") from error


@contextmanager
def remove_new_files(store: str) -> Iterator[None]:
    """Take away the files beside a *store* that came within it, if it fails: a start that fails
    leaves nothing."""
    path = file_path(store)

    def files() -> set[Path]:
        return set(path.parent.glob(f"{glob.escape(path.name)}*")) if path else set()

    before = files()
    try:
        yield
    except BaseException:
        for file in files() - before:
            file.unlink(missing_ok=True)
        raise


def _serve(config: Config, listening: socket.socket, figures: str = "") -> None:
    app = create_gateway(config)
    if figures:
        app.scrape = SharedMetrics(Path(figures), app.read_metrics)
        app.scrape.start()
    _tune_garbage_collector()
    create_server(config, app).run(sockets=[listening])


def _tune_garbage_collector() -> None:
    """Have the collector of garbage look past what the process begins with, which is none, and less
    often at what a request's JSON is made of, which goes by itself: a request of 200,000 tokens
    waited 40 ms for it now and then."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)


def open_checked_store(address: str) -> Store:
    """Return the store at *address*. A server that does not answer may do so later: until then
    requests pass as they came, and the log says so. Raises `StoreError` for a file that cannot be
    used and an address that is none."""
    store = open_store(address, connect=False)
    try:
        store.version()
    except StoreError as error:
        if not is_server(address):
            raise
        log("the store does not answer", store=str(error))
    return store


def warn_if_locked(address: str) -> None:
    """Log that the file of the store at *address* may not be written; it can be read then."""
    file = file_path(address)
    if file is not None and file.exists() and not os.access(file, os.W_OK):
        log("the store may not be written: what is decided is not kept", store=str(file))


# --- several processes ----------------------------------------------------------------------------


RESTART_SECONDS = 1.0
"""Seconds before a process takes the place of one that has died."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def ignore_hangup() -> Iterator[None]:
    """Ignore SIGHUP within it, in this process and in those that it forks: a terminal that is
    closed ends nothing.

    Outside the main thread, and where the system has no such signal, nothing is changed.
    """
    if not hasattr(signal, "SIGHUP") or current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


class Supervisor:
    """*count* processes that *work*, each forked from this one, which does nothing else.

    One that dies is replaced. SIGINT and SIGTERM are passed on, after *stop* is called, and waited
    for. When this process is killed, the others end as they do on SIGTERM.
    """

    def __init__(
        self, count: int, work: Callable[[], None], stop: Callable[[], None] = lambda: None
    ) -> None:
        self._work, self._count, self._stop = work, count, stop
        self._context = get_context("fork")
        self._alive, self._life = os.pipe()
        self._running, self._signals = list[BaseProcess](), list[int]()
        self._stopping = False

    def run(self) -> None:
        """Go on until a signal stops it and all have ended. Call it in the main thread."""
        before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        try:
            while self._running or not self._stopping:
                self._start_missing()
                wait([process.sentinel for process in self._running], timeout=0.2)
                self._forward_signals()
                self._drop_dead()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._alive)
            os.close(self._life)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._stopping = True
        self._signals.append(number)

    def _forward_signals(self) -> None:
        if self._signals:
            self._stop()
        while self._signals:
            number = self._signals.pop(0)
            for process in self._running:
                if process.pid is not None and process.exitcode is None:
                    # One that has ended was not waited for yet, so its id is its own.
                    os.kill(process.pid, number)

    def _start_missing(self) -> None:
        while len(self._running) < self._count and not self._stopping:
            process = self._context.Process(target=self._run_child)
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the process minds them
            process.start()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            self._running.append(process)

    def _drop_dead(self) -> None:
        dead = [process for process in self._running if process.exitcode is not None]
        self._running = [process for process in self._running if process.exitcode is None]
        for process in dead if not self._stopping else ():
            log("a worker is replaced", logging.ERROR, pid=process.pid, exit=process.exitcode)
        if dead and not self._stopping:
            time.sleep(RESTART_SECONDS)

    def _run_child(self) -> None:
        """Work in a group of its own, so that Ctrl-C comes once: from the process that looks after
        it."""
        os.setpgrp()
        os.close(self._life)
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        Thread(target=_stop_with_parent, args=(self._alive,), daemon=True).start()
        try:
            with suppress(KeyboardInterrupt):
                self._work()
        finally:
            WRITER.flush()


def _stop_with_parent(alive: int) -> None:
    """Stop this process when the one that looks after it is gone: only that one holds the pipe's
    other end."""
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGTERM)


# --- the salt -------------------------------------------------------------------------------------
# Made once however many processes start at once: in a file beside the gateway's store, or in its
# database.

WAIT_SECONDS = 5.0
"""Seconds that another process may take to write the salt that it is making."""


def with_salt(config: Config) -> Config:
    """Return *config* with a salt: its own, else that of its store, which is made when it is first
    needed: in a file beside it, or in its database, which must answer then. Without a place for the
    store the salt is new each time, as the store is. Raises `StoreError`, OSError."""
    if config.salt:
        return config
    try:
        salt = _keep_salt(config.store, random_salt)
    except StoreError as error:
        if "connection" not in str(error) or "FATAL" in str(error):  # it is wrong, and not away
            raise
        raise StoreError(f"{error}; with {SALT} set the gateway can start without it") from error
    return replace(config, salt=salt or random_salt(), is_salt_stored=salt is not None)


def restore_salt(config: Config, store: Store) -> None:
    """Put the salt back where it was deleted with the store, or alone: nobody finds an edit again
    without it. Says in the log if that fails, and if another salt is there."""
    if not config.is_salt_stored:
        return
    stored: bytes | None = config.salt
    try:
        stored = _keep_salt(config.store, lambda: config.salt, 0.0, store)
    except (OSError, StoreError) as error:
        log("the salt cannot be kept", error=str(error))
    if stored != config.salt:
        log("another salt stands beside the store: what is saved now is not found after a restart")


def _keep_salt(
    address: str,
    make: Callable[[], bytes],
    wait_seconds: float = WAIT_SECONDS,
    store: Store | None = None,
) -> bytes | None:
    """Return the salt that is kept with the store at *address*, made if there is none; None if it
    has no place. *store* is that store, if it is open. Raises as `with_salt` does."""
    if is_server(address):
        database = cast("PostgreSQLStore", open_store(address) if store is None else store)
        with database if store is None else nullcontext():
            return database.get_or_create("salt", make)
    file = file_path(address)
    if file is None:
        return None
    if not file.parent.is_dir():
        raise FileNotFoundError(ENOENT, f"there is no directory {file.parent}", str(file))
    path = file.with_name(f"{file.name}.salt")
    return read_or_create_salt(path, wait_seconds=wait_seconds, make=make)


def random_salt() -> bytes:
    """Return 32 random bytes."""
    return secrets.token_bytes(32)


def read_or_create_salt(
    path: Path,
    link: Callable[[Path, Path], None] = os.link,
    wait_seconds: float = WAIT_SECONDS,
    make: Callable[[], bytes] = random_salt,
) -> bytes:
    """Return the salt at *path*, made if there is none, for only the owner to read. *link* makes a
    hard link. Raises OSError, also if the file stays empty for *wait_seconds* seconds."""
    if not path.exists():
        _create_salt_file(path, link, make())
    until = time.monotonic() + wait_seconds
    while not (salt := path.read_bytes()):  # another process may just be writing it
        if time.monotonic() > until:
            raise OSError(
                f"{path} is empty, so that no salt can be read from it: delete it, and a new one "
                "is made"
            )
        time.sleep(0.01)
    return salt


def _create_salt_file(path: Path, link: Callable[[Path, Path], None], salt: bytes) -> None:
    """Write *salt* at *path*, unless another process was faster. It appears with its content, where
    there are hard links."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    write_new(draft, salt)
    try:
        link(draft, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without them, as those of memory cards
        with suppress(FileExistsError):
            write_new(path, salt)
    finally:
        draft.unlink()
