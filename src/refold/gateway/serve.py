"""Runs the gateway: in one process with uvicorn, in several supervised ones, or as an application
for any other server."""

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
"""Container allocations minus deallocations before the garbage collector runs."""
CONFIG_VARIABLE = "REFOLD_CONFIG"
"""Variable that names the file for `create_app`."""
UPSTREAMS_VARIABLE = "REFOLD_UPSTREAMS"
"""Variable with addresses or names of well-known providers, separated by spaces."""


def create_gateway(config: Config) -> Gateway:
    """Return the gateway with its store. Raises ValueError for an unservable config, `StoreError`,
    OSError."""
    config = with_salt(config.check_servable())
    older = frozenset(upstream.name for upstream in config.upstreams if upstream.older_account)
    settings = replace(config.settings, older_accounts=older | config.settings.older_accounts)
    if config.record:
        settings = replace(settings, read_above_bytes=0)  # a recorded request has to be read
    if settings.shadow:  # asks no model, keeps no edits for a later run
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
    """Return the gateway for servers that take a factory: `uvicorn --factory
    refold.gateway.serve:create_app --workers 4`.

    Settings come from the file that REFOLD_CONFIG names; upstreams in REFOLD_UPSTREAMS replace its
    own. Raises as `create_gateway` and `load_config` do. The server chooses its address itself:
    without an admin token the admin paths answer only this machine."""
    path = environment.get(CONFIG_VARIABLE)
    config = load_config(path, environment) if path else with_environment(Config(), environment)
    upstreams = tuple(
        parse_upstream(text) for text in environment.get(UPSTREAMS_VARIABLE, "").split()
    )
    config = replace(config, upstreams=upstreams or config.upstreams)
    configure_logging(config.log)
    return create_gateway(config)


def create_server(config: Config, app: Application) -> uvicorn.Server:
    """Return a uvicorn server for *app*: call `run()`, or await `serve()`. When it is stopped, it
    finishes streams for up to `grace_seconds`."""
    limits = config.limits
    note = app.note_refusal if isinstance(app, Gateway) else id
    return DrainingServer(
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
"""Seconds from a failed accept to the next attempt, and to the next log line about it."""


class DrainingServer(uvicorn.Server):
    """A uvicorn server that, when stopped, still answers clients that have connected. Connections
    that no process has accepted yet would otherwise be reset.

    It accepts connections itself. Without free file descriptors uvloop silently closes connections
    or its socket; here they wait, also for another process."""

    _listening: Sequence[socket.socket] = ()
    _silent_until = 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does. On Windows the event loop accepts connections."""
        self._listening = sockets or () if hasattr(os, "fork") else ()
        await super().startup([] if self._listening else sockets)
        for listening in self._listening:
            listening.setblocking(False)
            self._watch(listening)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept the connections that wait, and no more. Then shut down as uvicorn does."""
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
                log("connections wait: none can be accepted", logging.ERROR, why=error.strerror)
            return
        tasks, task = self.server_state.tasks, loop.create_task(self._connect(connection))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _connect(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(self._create_protocol, connection)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Flush the log before uvicorn raises the signal again, which ends the process."""
        with super().capture_signals():
            yield
            WRITER.flush()

    def _create_protocol(self) -> asyncio.Protocol:
        create = cast("Callable[..., asyncio.Protocol]", self.config.http_protocol_class)
        state = self.server_state
        return create(config=self.config, server_state=state, app_state=self.lifespan.state)


def _take_waiting(listening: socket.socket) -> list[socket.socket]:
    """Return the connections that nobody has accepted yet, and close the socket *listening*."""
    waiting = list[socket.socket]()
    with listening, suppress(OSError):  # there are no more
        while True:
            waiting.append(listening.accept()[0])
    return waiting


def run(config: Config, bound: socket.socket | None = None) -> None:
    """Serve until stopped (SIGINT, SIGTERM; not SIGHUP), with `config.workers` processes, or in
    this one on a socket that is already *bound*. Raises as `create_gateway` does, and OSError if
    the port is taken."""
    config = config.check_servable()
    configure_logging(config.log)
    if bound is not None:
        _serve(config, bound)
        return
    with ignore_hangup(), _listen(config) as listening:
        with remove_new_files(config.store):
            config = with_salt(config)
            first = open_checked_store(config.store)  # so that an error is reported once
            if isinstance(first, DatabaseClient):
                first.close()
        if config.workers == 1:
            _serve(config, listening)
            return
        with TemporaryDirectory(prefix="refold-") as figures:
            # A socket left open here would accept connections that nobody answers.
            Supervisor(
                config.workers, partial(_serve, config, listening, figures), listening.close
            ).run()


def _listen(config: Config) -> socket.socket:
    """Return a socket that listens at the configured address. Raises OSError, which names it."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    address = config.host.strip("[]"), config.port
    is_dual = address[0] == "::" and socket.has_dualstack_ipv6()  # IPv4 as well
    try:
        return socket.create_server(address, family=family, backlog=2_048, dualstack_ipv6=is_dual)
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (while")[0]
        words = f"cannot listen there (host, port): {why}"
        raise OSError(error.errno, words, f"{config.host}:{config.port}") from error


@contextmanager
def remove_new_files(store: str) -> Iterator[None]:
    """On failure within this context, remove the new files beside a *store*: a failed start leaves
    nothing."""
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
    """Exclude startup objects from garbage collection and collect less often. A request's JSON is
    freed without it; one of 200,000 tokens sometimes waited 40 ms for it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)


def open_checked_store(address: str) -> Store:
    """Return the store at *address*. A server that does not answer is logged; until it does,
    requests pass as they came. Raises `StoreError` for an unusable file or invalid address."""
    store = open_store(address, connect=False)
    try:
        store.version()
    except StoreError as error:
        if not is_server(address):
            raise
        log("the store does not answer", store=str(error))
    return store


def warn_if_locked(address: str) -> None:
    """Log a warning if the store at *address* is a file that cannot be written."""
    file = file_path(address)
    if file is not None and file.exists() and not os.access(file, os.W_OK):
        log("the store cannot be written: edits are not saved", store=str(file))


# --- several processes ----------------------------------------------------------------------------


RESTART_SECONDS = 1.0
"""Seconds before a process that has died is replaced."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def ignore_hangup() -> Iterator[None]:
    """Ignore SIGHUP within this context, here and in forks, so that closing a terminal ends
    nothing.

    Nothing is changed outside the main thread or on systems without this signal."""
    if not hasattr(signal, "SIGHUP") or current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


class Supervisor:
    """Runs *work* in *count* processes, each forked from this one, which does nothing else.

    A process that dies is replaced, as soon as one can be started. On SIGINT and SIGTERM it calls
    *stop*, passes the signal on and waits for the processes. If it is killed itself, they end as on
    SIGTERM."""

    def __init__(
        self, count: int, work: Callable[[], None], stop: Callable[[], None] = lambda: None
    ) -> None:
        self._work, self._count, self._stop = work, count, stop
        self._context = get_context("fork")
        self._alive, self._life = os.pipe()
        self._running, self._signals = list[BaseProcess](), list[int]()
        self._stopping = False

    def run(self) -> None:
        """Run until a signal stops it and all processes have ended. Call it in the main thread."""
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
                    # One that has ended was not reaped yet, so its id is not reused.
                    os.kill(process.pid, number)

    def _start_missing(self) -> None:
        while len(self._running) < self._count and not self._stopping:
            process = self._context.Process(target=self._run_child)
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the child handles them
            try:
                process.start()
            except OSError as error:  # for lack of memory, processes or descriptors
                if not self._running:
                    raise
                log("no worker can be started", logging.ERROR, why=error.strerror)
                time.sleep(RESTART_SECONDS)
                return
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            self._running.append(process)

    def _drop_dead(self) -> None:
        dead = [process for process in self._running if process.exitcode is not None]
        self._running = [process for process in self._running if process not in dead]
        for process in dead if not self._stopping else ():
            log("a worker is replaced", logging.ERROR, pid=process.pid, exit=process.exitcode)
        if dead and not self._stopping:
            time.sleep(RESTART_SECONDS)

    def _run_child(self) -> None:
        """Work in a process group of its own, so that Ctrl-C comes once, from the supervisor."""
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
    """Stop this process when the supervisor is gone: only that one holds the pipe's other end."""
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGTERM)


# --- the salt -------------------------------------------------------------------------------------
# Created once, however many processes start, in a file beside the gateway's store or its database.

WAIT_SECONDS = 5.0
"""Seconds that another process may take to write a new salt."""


def with_salt(config: Config) -> Config:
    """Return *config* with a salt: its own, else its store's, created on first use in a file beside
    the store or in its database, which must answer then. A store that is not kept gets a new salt
    each time. Raises `StoreError`, OSError."""
    if config.salt:
        return config
    try:
        salt = _keep_salt(config.store, random_salt)
    except StoreError as error:
        if "connection" not in str(error) or "FATAL" in str(error):  # wrong, not unreachable
            raise
        raise StoreError(f"{error}; with {SALT} set the gateway can start without it") from error
    return replace(config, salt=salt or random_salt(), is_salt_stored=salt is not None)


def restore_salt(config: Config, store: Store) -> None:
    """Restore a salt that was deleted, alone or with the store: without it no edit is found again.
    Log a failure, or another salt that is there."""
    if not config.is_salt_stored:
        return
    stored: bytes | None = config.salt
    try:
        stored = _keep_salt(config.store, lambda: config.salt, 0.0, store)
    except (OSError, StoreError) as error:
        log("the salt cannot be kept", error=str(error))
    if stored != config.salt:
        log("another salt is kept with the store: edits saved now are not found after a restart")


def _keep_salt(
    address: str,
    make: Callable[[], bytes],
    wait_seconds: float = WAIT_SECONDS,
    store: Store | None = None,
) -> bytes | None:
    """Return the salt kept with the store at *address*, created if there is none; None if the store
    has no place for it. *store* is that store, if open. Raises as `with_salt` does."""
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
    """Return the salt at *path*, created if missing, readable only by the owner. *link* makes a
    hard link. Raises OSError, also if the file stays empty for *wait_seconds* seconds."""
    if not path.exists():
        _create_salt_file(path, link, make())
    until = time.monotonic() + wait_seconds
    while not (salt := path.read_bytes()):  # another process may be writing it
        if time.monotonic() > until:
            raise OSError(
                f"{path} is empty, so that no salt can be read from it: delete it, and a new one "
                "is made"
            )
        time.sleep(0.01)
    return salt


def _create_salt_file(path: Path, link: Callable[[Path, Path], None], salt: bytes) -> None:
    """Write *salt* at *path*, unless another process was faster. With hard links the file appears
    complete."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    write_new(draft, salt)
    try:
        link(draft, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links, such as FAT
        with suppress(FileExistsError):
            write_new(path, salt)
    finally:
        draft.unlink()
