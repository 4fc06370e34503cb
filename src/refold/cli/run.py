"""`refold run`: run a command with its own gateway. The gateway starts in parallel with the
command, whose first request waits in the socket's queue, and ends with it.

An agent waits for this file. It imports nothing slow before the gateway has its own process.
"""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import urlsplit

import click

from refold import gateway
from refold.cli.agents import (
    AGENTS,
    Agent,
    AgentSettings,
    LaunchContext,
    Routes,
    find_agent,
    prepare_by_variables,
    read_json,
)
from refold.cli.places import LOCATION_TYPE, data_directory, flag, option, user_store
from refold.errors import StoreError, install_hint

# --- the gateway of a command ---------------------------------------------------------------------

RECORD = "30d"
"""How long transcripts are kept, for the web page."""
RESTARTS = 3
"""Number of times that a crashed gateway is restarted."""
END_SECONDS = 5.0
"""Seconds that the gateway has to write pending data before it is killed."""
LOG_BYTES = 1_000_000
"""Size of a log from which the next gateway begins a new one."""
STORE_ERROR_PREFIX = "refold: nothing is kept: "
"""Prefix of the gateway's log line that says why its store cannot be used."""
IS_POSIX = os.name == "posix"


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """Settings for the gateway's process."""

    urls: Mapping[str, str]
    """Base URLs by the first segment of the path that leads to them."""
    store: str
    config: str = ""
    """Path of a refold.toml; empty for none."""
    shadow: bool = False


class SessionGateway:
    """A gateway started by this process. The socket stays open here, so that a crashed gateway is
    restarted at the same address."""

    def __init__(self, data: Path, port: int) -> None:
        """Listen on *port*, 0 for any. Raises OSError if it is taken."""
        self._data, self._is_ending = data, threading.Event()
        self._listening = socket.create_server(("127.0.0.1", port), backlog=128)
        self._process: subprocess.Popen[bytes] | None = None
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = data / "gateway.log"
        self._log_begins = 0

    def start(self, order: GatewayOptions) -> None:
        """Start the gateway and watch it for crashes. Raises OSError."""
        self._log_begins = self.log.stat().st_size if self.log.exists() else 0
        self._process = process = self._spawn(order)
        threading.Thread(target=self._watch, args=(process, order), daemon=True).start()

    @property
    def trouble(self) -> str:
        """Reason from the log why nothing is kept; empty if there is none so far."""
        with suppress(OSError):
            log = self.log.read_bytes()
            begin = self._log_begins if self._log_begins <= len(log) else 0  # else it is new
            for line in log[begin:].decode("utf-8", "replace").splitlines():
                if line.startswith(STORE_ERROR_PREFIX):
                    return line.removeprefix(STORE_ERROR_PREFIX)
        return ""

    def close(self) -> None:
        """Stop the gateway after it has written pending data."""
        self._is_ending.set()
        if (process := self._process) is not None:
            with suppress(OSError):
                cast("IO[bytes]", process.stdin).close()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._listening.close()

    def _spawn(self, order: GatewayOptions) -> subprocess.Popen[bytes]:
        """Start the process in a new session, so that it gets no signals of the terminal."""
        if not IS_POSIX:  # sockets cannot be inherited there: the process
            self._listening.close()
        is_long = self.log.exists() and self.log.stat().st_size > LOG_BYTES
        paths = (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", ""))
        with self.log.open("wb" if is_long else "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "refold.cli.run"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self._data,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
                pass_fds=[self._listening.fileno()] if IS_POSIX else [],
                start_new_session=True,
            )
        place = {"socket": self._listening.fileno() if IS_POSIX else -1, "port": self.port}
        pipe = cast("IO[bytes]", process.stdin)
        with suppress(OSError):  # it has ended already, which the watching thread sees
            pipe.write(json.dumps({**place, **asdict(order)}).encode() + b"\n")
            pipe.flush()
        if not IS_POSIX:
            _await_port(self.port, process)
        return process

    def _watch(self, process: subprocess.Popen[bytes], order: GatewayOptions) -> None:
        for _ in range(RESTARTS):
            process.wait()
            if self._is_ending.is_set():
                return
            _print_error(f"the gateway crashed and is restarting; see {self.log}")
            self._process = process = self._spawn(order)
        process.wait()
        if not self._is_ending.is_set():
            _print_error("the gateway crashed again: requests fail from now on")
            self._listening.close()


def _await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return


# --- the gateway's process ------------------------------------------------------------------------


def serve_session() -> None:
    """Serve until standard input ends, with the process that wrote the order to it. If the store
    cannot be used, serve without it."""
    order = json.loads(sys.stdin.buffer.readline())
    number, port = order.pop("socket"), order.pop("port")
    if number >= 0:
        listening = socket.socket(fileno=number)
    else:
        listening = socket.create_server(("127.0.0.1", port))
    config = _make_config(GatewayOptions(**order), port)
    threading.Thread(target=_stop_at_end, daemon=True).start()
    try:
        gateway.run(config, listening)
    except (StoreError, OSError, ImportError) as error:  # ImportError: no client of its database
        sys.stderr.write(f"{STORE_ERROR_PREFIX}{error}\n")
        gateway.run(replace(config, store=":memory:", record=""), listening)


def _stop_at_end() -> None:
    sys.stdin.buffer.read()
    signal.raise_signal(signal.SIGTERM)


def _make_config(order: GatewayOptions, port: int) -> "gateway.Config":
    """Return the user's settings, adapted for one user on this machine."""
    config = gateway.load_config(order.config) if order.config else gateway.Config(log="warning")
    config = gateway.with_environment(config)
    upstreams = [
        gateway.Upstream(name=name, url=url, prefix=f"/{name}") for name, url in order.urls.items()
    ]
    return replace(
        config,
        host="127.0.0.1",
        port=port,
        upstreams=tuple(upstreams),
        store=order.store,
        tenant="one",
        workers=1,
        record=config.record or RECORD,
        files=config.files is not False,
        settings=replace(config.settings, shadow=order.shadow or config.settings.shadow),
        limits=replace(config.limits, grace_seconds=1),
    )


# --- the command ----------------------------------------------------------------------------------

NOT_INSTALLED = 127
"""Exit code if there is no such program, as in shells."""
NOT_STARTED = 126
"""Exit code if the program cannot be started."""
INTERRUPTED = 130
"""Exit code after Ctrl-C before the program runs."""
_FORWARDED = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
_LEFT_TO_CLIENT = [getattr(signal, name) for name in ("SIGINT", "SIGQUIT") if hasattr(signal, name)]


@click.command(
    context_settings={
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
    },
    epilog="Example: refold run claude --resume",
)
@click.argument(
    "command",
    metavar="CLIENT",
    shell_complete=lambda _, __, typed: [a.name for a in AGENTS if a.name.startswith(typed)],
)
@click.argument("arguments", nargs=-1, metavar="[ARGS]...", type=click.UNPROCESSED)
@flag("--shadow", "Change no request; only record what would have been done.")
@flag(
    "--print only_print",
    "Print the variables, command line and files that the client would get, and exit.",
)
@option("--gateway url", "URL", "Use the gateway that is already running at this URL.")
@option(
    "--port",
    "N",
    "Port of the gateway. Default: a free port.",
    type=click.IntRange(0, 65_535),
    default=0,
)
@option(
    "--store",
    "PLACE",
    "Store of the edits. Default: $REFOLD_STORE, else refold.db in your data folder.",
    type=LOCATION_TYPE,
)
@option("--config", "FILE", "Read settings of the gateway from this TOML file.", type=LOCATION_TYPE)
def run(command: str, arguments: tuple[str, ...], **options: Any) -> int:
    """Run a coding agent and send its model calls through a gateway.

    CLIENT is claude, codex, gemini, opencode, pi, qwen, kimi, vibe, cline, continue, copilot,
    aider, mini-swe-agent or any other command, which gets the base URLs of OpenAI's, Anthropic's
    and Google's SDKs in its environment. None of your files is changed. The gateway ends with the
    command. The exit code is the command's.
    """
    if command.startswith("-"):  # only arguments after CLIENT may be unknown options
        raise click.NoSuchOption(command.partition("=")[0], possibilities=_OPTIONS)
    agent = find_agent(command) or Agent(command, command, "", prepare_by_variables)
    name = agent.program if command == agent.name else command
    program = shutil.which(name)
    if program is None and os.sep in name and Path(name).exists():
        _print_error(f"{name} is no program that can be started")
        return NOT_STARTED
    if program is None:
        hint = f"; {agent.install} installs it" if agent.install else ""
        _print_error(f"{name} is not installed{hint}")
        return NOT_INSTALLED
    chosen = Options(**options)
    chosen.check()
    agent = replace(agent, name=Path(name).name, program=program)
    # a process that an agent leaves running may still write there
    with tempfile.TemporaryDirectory(prefix="refold-run-", ignore_cleanup_errors=True) as folder:
        return _run(agent, arguments, chosen, Path(folder))


_OPTIONS = [name for parameter in run.params for name in parameter.opts if name.startswith("-")]


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code. Errors are one line on standard error."""
    try:
        return run.main(list(arguments), prog_name="refold run", standalone_mode=False) or 0
    except click.ClickException as error:
        _print_error(error.format_message())
    except click.Abort:  # click's form of Ctrl-C
        return INTERRUPTED
    except OSError as error:
        _print_error(f"{error.filename or 'the gateway'}: {error.strerror}")
    return 2


def _print_error(text: str) -> None:
    sys.stderr.write(f"refold: {text}\n")
    sys.stderr.flush()


def _print_overlay(overlay: AgentSettings, words: Sequence[str]) -> None:
    lines = [f"{name}={shlex.quote(value)}" for name, value in overlay.environment.items()]
    lines.append(shlex.join(words))
    for name, content in overlay.files.items():
        lines += [f"# {name}", content.rstrip()]
    sys.stdout.write("\n".join(lines) + "\n")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `refold run`."""

    shadow: bool
    only_print: bool
    url: str | None
    port: int
    store: str | None
    config: str | None

    def check(self) -> None:
        """Raise `click.UsageError` for conflicting options and for missing files or packages."""
        if self.url and (self.shadow or self.store or self.config or self.port):
            raise click.UsageError(
                "--shadow, --port, --store and --config are for a gateway that is started: "
                "not with --gateway"
            )
        if self.url and not self.url.startswith(("http://", "https://")):
            raise click.UsageError(
                f"--gateway {self.url}: an address begins with http:// or https://"
            )
        if self.config:
            _check_config(self.config)
        if self.url and not self.only_print:
            _check_gateway(self.url)
        elif not self.url and (missing := [name for name in gateway.NEEDED if not find_spec(name)]):
            raise click.UsageError(f"the gateway needs {missing[0]}: {install_hint('gateway')}")

    def order(self, urls: Mapping[str, str]) -> GatewayOptions:
        """Return the settings for a gateway to start."""
        store = self.store or user_store()
        config = str(Path(self.config).absolute()) if self.config else ""
        is_file = "://" not in store and store != ":memory:"
        place = str(Path(store).absolute()) if is_file else store
        return GatewayOptions(urls, place, config, shadow=self.shadow)


def _check_config(path: str) -> None:
    """Raise `click.UsageError` if a gateway could not start with this file."""
    if not Path(path).is_file():
        raise click.UsageError(f"--config {path}: there is no such file")
    with suppress(ImportError):  # missing packages are reported later
        try:
            gateway.load_config(path)
        except ValueError as error:
            raise click.UsageError(f"--config {error}") from error


def _check_gateway(url: str) -> None:
    """Raise `click.UsageError` unless a gateway answers at *url*."""
    http, status = import_module("http.client"), 0
    with suppress(OSError, LookupError, ValueError, http.HTTPException):
        parts = urlsplit(url)
        kind = {"http": http.HTTPConnection, "https": http.HTTPSConnection}[parts.scheme]
        with closing(kind(parts.hostname, parts.port, timeout=2)) as connection:
            connection.request("GET", f"{parts.path.rstrip('/')}/refold/ready")
            status = connection.getresponse().status
    if status != 200:
        raise click.UsageError(f"no gateway of Refold answers at {url}")


def _run(agent: Agent, arguments: Sequence[str], options: Options, folder: Path) -> int:
    """Run the command with a new or a running gateway. Return its exit code."""
    data = data_directory(Path.home())
    data = data if options.url or options.only_print else _make_place(data, folder)
    own = None if options.url else _listen(data, options.port)
    routes = Routes(own.url) if own else Routes((options.url or "").rstrip("/"), is_shared=True)
    with closing(own) if own else nullcontext():
        try:
            overlay = _prepare(agent, routes, folder, arguments)
        except (ValueError, OSError) as error:
            raise click.UsageError(f"{agent.name}: {error}") from error
        words = [agent.program, *overlay.arguments, *arguments]
        if options.only_print:
            _print_overlay(overlay, words)
            return 0
        if own:
            own.start(options.order(routes.urls))
        shadow = ", in shadow" if options.shadow else ""
        _print_error(
            f"{agent.name} runs through a gateway{shadow}; web page: {routes.gateway}/refold/"
        )
        since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        try:
            return _run_client(words, overlay)
        finally:
            if overlay.left_running:
                end_process(folder / overlay.left_running, since)
            if overlay.mirrored is not None:
                _move_back(folder, overlay.mirrored, overlay.files)
            if own and data != folder and (trouble := own.trouble):
                _print_error(f"nothing was kept: {trouble}")


def _make_place(data: Path, folder: Path) -> Path:
    """Return the user's data directory, created if missing; *folder* if that fails."""
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        _print_error(f"{data}: {error.strerror}: nothing is kept")
        return folder
    return data


def _listen(data: Path, port: int) -> SessionGateway:
    try:
        return SessionGateway(data, port)
    except OSError:
        if not port:
            raise
        _print_error(f"port {port} is taken: another one is used")
        return SessionGateway(data, 0)


def _prepare(agent: Agent, routes: Routes, folder: Path, arguments: Sequence[str]) -> AgentSettings:
    """Return the command's settings and write its files. Raises ValueError, OSError."""
    places = Path.home(), Path.cwd(), folder
    overlay = agent.prepare(LaunchContext(os.environ, *places, routes, arguments))
    for name, content in overlay.files.items():
        (folder / name).write_text(content, encoding="utf-8")
    if overlay.mirrored is not None and overlay.mirrored.is_dir():
        for entry in overlay.mirrored.iterdir():
            if entry.name not in overlay.files:
                (folder / entry.name).symlink_to(entry)
    return overlay


def _run_client(words: Sequence[str], overlay: AgentSettings) -> int:
    """Run the command to its end. The terminal sends its signals to it directly; forward others."""
    try:
        client = subprocess.Popen(  # noqa: S603 - the user asks for it
            words, env={**os.environ, **overlay.environment}
        )
    except OSError as error:
        _print_error(f"{words[0]}: {error.strerror}")
        return NOT_STARTED
    for number in _LEFT_TO_CLIENT:
        signal.signal(number, lambda *_: None)
    for number in _FORWARDED:
        signal.signal(number, lambda number, _: client.send_signal(number))
    status = client.wait()
    return status if status >= 0 else 128 - status


def end_process(path: Path, since: str) -> None:
    """End the process named by the JSON in *path* (`pid`) if it started at or after *since*
    (`startedAt`, in UTC). An older one belongs to the user."""
    with suppress(OSError, ValueError):
        document = read_json(path)
        pid, began = document.get("pid"), document.get("startedAt")
        if isinstance(pid, int) and pid > 1 and isinstance(began, str) and began >= since:
            os.kill(pid, signal.SIGTERM)


def _move_back(folder: Path, home: Path, ours: Mapping[str, str]) -> None:
    """Move new files of the client from *folder*, which replaced *home*, to *home*."""
    for entry in folder.iterdir():
        target = home / entry.name
        if not (entry.is_symlink() or entry.name in ours or target.is_dir()):
            shutil.move(entry, target)


if __name__ == "__main__":
    serve_session()
