"""Lints the Containerfile and compose.yaml, and runs the Containerfile's instructions without an
engine.

Its commands run in order in a directory that stands for the image's root: absolute paths are mapped
into it. The image's Python is a copy of one of this machine, without packages. The second stage
gets only what it copies from the first. Then the gateway is started with the image's environment,
user and command. It must report that it is healthy, answer, and stop in the middle of a stream.
"""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from urllib.request import Request, urlopen

from refold.testing.scripted_provider import Reply, ScriptedProvider
from release.environments import PLACE, ROOT, TOOLS, CheckError, megabytes, run, variables

FILE = ROOT / "Containerfile"
COMPOSE = ROOT / "compose.yaml"
PORT = "8484"
_PATH = re.compile(r"(?<![\w./:}])/(?=(?:opt|src|wheels|var/lib/refold)\b)")
"""Absolute paths that the Containerfile creates."""
_SKIPPED = (
    "config-*",
    "test",
    "tests",
    "__pycache__",
    "site-packages",
    "idlelib",
    "turtledemo",
    "*.a",
)
TOKEN = "a-token-for-this-check"


@dataclass(slots=True)
class Image:
    """The state of the image after the instructions so far."""

    root: Path
    port: str
    directory: str = "/"
    environment: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    """Last USER, HEALTHCHECK, ENTRYPOINT, CMD and STOPSIGNAL."""

    def here(self, text: str) -> str:
        """Return a text of the Containerfile with the paths and the port of this check."""
        return _PATH.sub(f"{self.root}/", text).replace(PORT, self.port)

    def variables(self) -> dict[str, str]:
        """Return the environment of a process in the image."""
        path = f"{self.root}/usr/local/bin:/usr/bin:/bin"
        index = {name: text for name, text in variables(self.root).items() if name != "HOME"}
        own = {name: text.replace("$PATH", path) for name, text in self.environment.items()}
        library = f"{self.root}/usr/local/lib"
        return {
            **index,
            "PATH": path,
            "HOME": f"{self.root}/root",
            "LD_LIBRARY_PATH": library,
            **own,
        }


def check_compose() -> str:
    """Check compose.yaml against its specification; return a line for the report. Raises
    `CheckError`."""
    run([TOOLS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE], PLACE)
    return "compose.yaml: valid by the schema of the Compose Specification"


def read_instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a Containerfile, each on one line."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in lines.replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name, rest.strip()


def check_container() -> list[tuple[str, str]]:
    """Run the Containerfile's instructions and return the findings. Raises `CheckError`."""
    run([TOOLS / "hadolint", "--strict-labels", FILE], PLACE)
    rows = [("hadolint", "no fault")]
    place = PLACE / "container"
    shutil.rmtree(place, ignore_errors=True)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        image = Image(place / "root", str(probe.getsockname()[1]))
    for name, rest in read_instructions(FILE.read_text(encoding="utf-8")):
        _INSTRUCTIONS.get(name, _keep)(image, name, rest)
        if name == "RUN":
            rows.append(("RUN", f"`{rest[:60]} ...` ends well"))
    size = megabytes(image.root / "opt")
    rows.append(("beside the Python of its image", f"{size:.0f} MB"))
    with ScriptedProvider([Reply("One two three four five six.", pause=0.3)]) as provider:
        rows += _try_gateway(image, provider.url)
    return rows


# --- instructions ---------------------------------------------------------------------------------


def _begin_stage(image: Image, _: str, rest: str) -> None:
    """Begin a stage with an image that has only Python. What came before is another stage."""
    if not rest.startswith("python:3."):
        raise CheckError(f"FROM {rest}: this check knows images of Python")
    earlier = image.root.with_name("build")
    if image.root.exists():
        image.root.rename(earlier)
    image.directory, image.environment, image.settings = "/", {}, {}
    _copy_python(image.root / "usr/local")


def _copy_python(home: Path) -> None:
    """Copy this Python, or that of REFOLD_PYTHON, without its packages but with pip."""
    python = os.environ.get("REFOLD_PYTHON") or sys.executable
    code = "import os, sys, sysconfig as s; print(os.path.realpath(sys.executable)); "
    code += "print(s.get_path('stdlib')); print(s.get_config_var('LIBDIR'))"
    lines = subprocess.check_output([python, "-c", code], text=True).splitlines()
    program, library, shared = map(Path, lines)
    target = home / "lib" / library.name
    shutil.copytree(library, target, ignore=shutil.ignore_patterns(*_SKIPPED))
    (target / "site-packages").mkdir()
    (home / "bin").mkdir()
    shutil.copy(program, home / "bin" / "python3")
    (home / "bin" / "python").symlink_to("python3")
    for file in shared.glob(f"lib{library.name}*.so*"):
        shutil.copy(file, home / "lib")
    run([home / "bin" / "python", "-m", "ensurepip", "--default-pip"], home)


def _copy(image: Image, _: str, rest: str) -> None:
    words = shlex.split(rest)
    options = dict(word[2:].split("=") for word in words if word.startswith("--"))
    *sources, target = [word for word in words if not word.startswith("--")]
    base = ROOT
    if "from" in options:
        base = image.root.with_name("build")
    elif missing := set(sources) - _context(sources):
        raise CheckError(f".dockerignore leaves {sorted(missing)} out")
    for source in sources:
        origin = base / source.lstrip("/")
        goal = Path(image.here(target) if target.startswith("/") else f"{image.directory}/{target}")
        if target.endswith("/"):
            goal /= origin.name
        goal.parent.mkdir(parents=True, exist_ok=True)
        if origin.is_dir():
            caches = shutil.ignore_patterns("__pycache__") if base == ROOT else None
            shutil.copytree(origin, goal, symlinks=True, ignore=caches)
        else:
            shutil.copy(origin, goal)
        if "chown" in options and os.getuid() == 0:
            os.chown(goal, *map(int, options["chown"].split(":")))


def _context(sources: Sequence[str]) -> set[str]:
    """Return the *sources* that .dockerignore lets in."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    wanted = {line[1:] for line in lines if line.startswith("!")}
    return {source for source in sources if source.partition("/")[0] in wanted}


def _run(image: Image, _: str, rest: str) -> None:
    place = Path(image.here(image.directory))
    run(["/bin/sh", "-ec", image.here(rest)], place, image.variables())


def _change_directory(image: Image, _: str, rest: str) -> None:
    image.directory = image.here(rest)
    Path(image.directory).mkdir(parents=True, exist_ok=True)


def _set_variables(image: Image, _: str, rest: str) -> None:
    pairs = (word.split("=", 1) for word in shlex.split(rest))
    image.environment |= {name: image.here(text) for name, text in pairs}


def _keep(image: Image, name: str, rest: str) -> None:
    image.settings[name] = image.here(rest)


_INSTRUCTIONS = {
    "FROM": _begin_stage,
    "COPY": _copy,
    "RUN": _run,
    "WORKDIR": _change_directory,
    "ENV": _set_variables,
}

# --- the gateway of the image ---------------------------------------------------------------------


def _try_gateway(image: Image, upstream: str) -> list[tuple[str, str]]:
    """Start, call and stop the gateway in the middle of a stream. Raises `CheckError`."""
    command = json.loads(image.settings["ENTRYPOINT"]) + json.loads(image.settings["CMD"])
    health = json.loads(image.settings["HEALTHCHECK"].partition("CMD ")[2])
    refused = _end_of(image, command)
    if "REFOLD_ADMIN_TOKEN" not in refused or refused.count("\n") > 1:
        raise CheckError(f"without an admin token: {refused}")
    command = command[
        : command.index("--upstream")
    ]  # the providers, which this check does not call
    start = time.monotonic()
    with _start(image, [*command, "--upstream", upstream]) as process:
        while subprocess.run(
            health, env=image.variables(), capture_output=True, check=False
        ).returncode:
            if process.poll() is not None or time.monotonic() - start > 60:
                raise CheckError(f"it is not healthy: {_log(image)}")
            time.sleep(0.1)
        healthy = time.monotonic() - start
        answers = list[bytes]()
        streaming = Thread(target=lambda: answers.append(_stream(image.port)))
        streaming.start()
        time.sleep(0.6)
        process.send_signal(getattr(signal, image.settings["STOPSIGNAL"]))
        streaming.join(60)
        code = process.wait(60)
    if code not in {0, -signal.SIGTERM} or not answers or b"[DONE]" not in answers[0]:
        raise CheckError(f"stopped in a stream: exit {code}, {answers}\n{_log(image)}")
    return [
        ("without REFOLD_ADMIN_TOKEN", refused.strip()),
        ("HEALTHCHECK", f"exit 0 after {healthy:.1f} s, as {_user(image) or 'this user'}"),
        (f"{image.settings['STOPSIGNAL']} in a stream", "the stream ends whole, then the gateway"),
    ]


def _user(image: Image) -> dict[str, int]:
    """Return the user of a process: the image's user, if the current user may switch to it."""
    names = ("user", "group")
    ids = zip(names, map(int, image.settings["USER"].split(":")), strict=True)
    return dict(ids) if os.getuid() == 0 else {}


@contextmanager
def _start(
    image: Image, command: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    program = shutil.which(command[0], path=image.variables()["PATH"]) or command[0]
    token = {"REFOLD_ADMIN_TOKEN": TOKEN} if environment is None else environment
    with (image.root.parent / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, *command[1:]],
            cwd=image.directory,
            env={**image.variables(), **token},
            stdout=log,
            stderr=log,
            extra_groups=[] if os.getuid() == 0 else None,
            **_user(image),
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _end_of(image: Image, command: Sequence[str]) -> str:
    """Return the output of a command that ends on its own."""
    with _start(image, command, {}) as process:
        process.wait(60)
    return _log(image)


def _log(image: Image) -> str:
    return (image.root.parent / "log").read_text(encoding="utf-8", errors="replace")


def _stream(port: str) -> bytes:
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Count."}]}
    request = Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json", "authorization": "Bearer none"},
    )
    with urlopen(request, timeout=60) as answer:
        whole: bytes = answer.read()
        return whole
