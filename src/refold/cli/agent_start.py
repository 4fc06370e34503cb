"""What a coding agent is started with: the addresses that lead through a gateway, and the files
that say where it sends requests else. These are read and never written.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_WELL_KNOWN = Path(__file__).parents[1] / "gateway/providers.toml"
_PROVIDERS = tomllib.loads(_WELL_KNOWN.read_text(encoding="utf-8"))
"""The gateway's well-known providers, read here because its modules take longer to load."""


def _address(provider: str, path: str = "") -> str:
    """Return the base URL that clients have of a provider: its address and a *path* of theirs."""
    return f"{_PROVIDERS[provider]['url']}{path}"


OPENAI = _address("openai", "/v1")
ANTHROPIC = _address("anthropic")
GEMINI = _address("gemini")
CHATGPT = "https://chatgpt.com/backend-api"

VARIABLES: Sequence[tuple[tuple[str, ...], str]] = (
    (("OPENAI_BASE_URL", "OPENAI_API_BASE"), OPENAI),
    (("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"), ANTHROPIC),
    (("GOOGLE_GEMINI_BASE_URL",), GEMINI),
)
"""Environment variables that SDKs read their base URL from, and where they send requests else."""
PROVIDERS: Mapping[str, str] = {
    "anthropic": ANTHROPIC,
    "openai": OPENAI,
    "google": _address("gemini", "/v1beta"),
    "openrouter": _address("openrouter", "/v1"),
    "deepseek": _address("deepseek"),
    "groq": _address("groq", "/v1"),
    "mistral": _address("mistral"),
    "moonshotai": _address("moonshot", "/v1"),
    "xai": _address("xai", "/v1"),
    "zai": _address("zai", "/coding/paas/v4"),
}
"""Base URLs of providers that agents know by themselves, as pi and OpenCode call them."""
_COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*"?)|//[^\n]*')


@dataclass(slots=True)
class Routes:
    """The addresses of a gateway that lead to the base URLs of an agent's providers."""

    gateway: str
    is_shared: bool = False
    """Does the gateway run already, with upstreams of its own?"""
    urls: dict[str, str] = field(default_factory=dict)
    """Base URLs by the name of their upstream, which is the first part of the gateway's path."""

    def through(self, address: object) -> str:
        """Return the base URL that leads to an address through the gateway. Raises ValueError for
        what is no address of a server, or holds a user or a query."""
        url = str(address).rstrip("/")
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"{url[:100]!r} is no base URL that a gateway can stand before")
        if parts.username is not None or parts.query or parts.fragment:
            raise ValueError(
                f"the base URL of {parts.hostname} holds a user, a query or a fragment"
            )
        if self.is_shared:
            return self.gateway + parts.path.rstrip("/")
        name = re.sub(r"[^\w.]+", "-", f"{parts.netloc}{parts.path}").strip("-")
        self.urls[name] = url
        return f"{self.gateway}/{name}"


@dataclass(frozen=True, slots=True)
class Start:
    """Where an agent is started."""

    environment: Mapping[str, str]
    home: Path
    directory: Path
    folder: Path
    """For files of this session; it is gone at its end."""
    routes: Routes

    def first_variable(self, names: Iterable[str], default: str) -> str:
        """Return the first of these environment variables that is set, else *default*."""
        return next(filter(None, map(self.environment.get, names)), default)

    def place(self, variable: str, *parts: str) -> Path:
        """Return the directory that an environment variable names, else one in the user's home."""
        return Path(self.environment.get(variable) or self.home.joinpath(*parts))


@dataclass(frozen=True, slots=True)
class Overlay:
    """What an agent is given for one session."""

    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    """Before the user's own."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Contents by name, in the session's folder."""
    mirrored: Path | None = None
    """A directory of the agent's that the folder stands for: what else is in it is linked there."""
    left_running: str = ""
    """The file in the folder in which the agent notes a process that it leaves running."""


# --- files of others ---------------------------------------------------------------------------


def objects(value: Any) -> Iterable[tuple[str, dict[str, Any]]]:
    """Return the members of a JSON object that are objects."""
    members = value.items() if isinstance(value, dict) else ()
    return [(name, member) for name, member in members if isinstance(member, dict)]


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, which may have `//` comments; empty if there is no file.
    Raises ValueError."""
    return parse_json(path.read_text(encoding="utf-8"), str(path)) if path.is_file() else {}


def parse_json(text: str, name: str) -> dict[str, Any]:
    """Return the JSON object in a text, which *name* calls in errors. Raises ValueError."""
    try:
        value = json.loads(_COMMENT.sub(lambda found: found[1] or "", text))
    except ValueError as error:
        raise ValueError(f"{name} is no JSON: {error}") from error
    return value if isinstance(value, dict) else {}


def read_toml(path: Path) -> dict[str, Any]:
    """Return what is in a TOML file; empty if there is none. Raises ValueError."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise ValueError(f"{path} is no TOML: {error}") from error
