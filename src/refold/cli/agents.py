"""Coding agents, and how each is led through a gateway for one session.

What an agent is given is in its environment, its arguments, or a file of the session's own; its
user's files are read and never written. Nothing here is imported that takes time: an agent waits.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

OPENAI = "https://api.openai.com/v1"
ANTHROPIC = "https://api.anthropic.com"
GEMINI = "https://generativelanguage.googleapis.com"
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
    "google": f"{GEMINI}/v1beta",
    "openrouter": "https://openrouter.ai/api/v1",
    "deepseek": "https://api.deepseek.com",
    "groq": "https://api.groq.com/openai/v1",
    "mistral": "https://api.mistral.ai",
    "moonshotai": "https://api.moonshot.ai/v1",
    "xai": "https://api.x.ai/v1",
    "zai": "https://api.z.ai/api/coding/paas/v4",
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

    def through(self, url: str) -> str:
        """Return the base URL that leads to *url* through the gateway. Raises ValueError for what
        is no address of a server, or holds a user or a query."""
        url, parts = url.rstrip("/"), urlsplit(url)
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


@dataclass(frozen=True, slots=True)
class Agent:
    """A coding agent."""

    name: str
    program: str
    install: str
    """The command that installs it."""
    prepare: Callable[[Start], Overlay]
    """Raises ValueError if there is no way through a gateway."""


def find_agent(command: str) -> Agent | None:
    """Return the agent whose program a command is, by name or path; None for any other program."""
    name = Path(command).name.lower().removesuffix(".exe").removesuffix(".cmd")
    return next((agent for agent in AGENTS if name in {agent.name, agent.program}), None)


def lead_variables(start: Start) -> Overlay:
    """Lead whatever reads its base URLs from the environment: SDKs and what is built on them."""
    environment = dict[str, str]()
    for names, default in VARIABLES:
        url = start.routes.through(start.first_variable(names, default))
        environment |= dict.fromkeys(names, url)
    return Overlay(environment)


# --- each agent --------------------------------------------------------------------------------


def _lead_claude(start: Start) -> Overlay:
    """Claude Code. An address in its settings wins over the environment, and one in `--settings`
    over both."""
    name = "ANTHROPIC_BASE_URL"
    for cloud in ("BEDROCK", "VERTEX"):
        if start.environment.get(f"CLAUDE_CODE_USE_{cloud}"):
            raise ValueError(f"CLAUDE_CODE_USE_{cloud} is set: its requests pass no gateway")
    files = (
        start.directory / ".claude/settings.local.json",
        start.directory / ".claude/settings.json",
        start.place("CLAUDE_CONFIG_DIR", ".claude") / "settings.json",
    )
    settings = (_read_json(path).get("env") for path in files)
    urls = (env.get(name) for env in settings if isinstance(env, dict))
    own = next((url for url in urls if isinstance(url, str) and url), "")
    url = start.routes.through(own or start.first_variable([name], ANTHROPIC))
    arguments = ("--settings", json.dumps({"env": {name: url}})) if own else ()
    return Overlay({name: url}, arguments)


def _lead_codex(start: Start) -> Overlay:
    """Codex: its own provider has one address for keys and another for who is logged in to ChatGPT;
    others have theirs in config.toml."""
    place = start.place("CODEX_HOME", ".codex")
    config = _read_toml(place / "config.toml")
    name = config.get("model_provider") or "openai"
    provider = (config.get("model_providers") or {}).get(name) or {}
    if url := provider.get("base_url"):
        url = start.routes.through(url)
        return Overlay(arguments=_codex_option(f"model_providers.{name}.base_url", url))
    if name != "openai":
        raise ValueError(f"config.toml has no base_url for the provider {name!r} of Codex")
    is_chatgpt = bool(_read_json(place / "auth.json").get("tokens"))
    default = f"{CHATGPT}/codex" if is_chatgpt else OPENAI
    url = config.get("openai_base_url") or start.first_variable(["OPENAI_BASE_URL"], default)
    return Overlay(arguments=_codex_option("openai_base_url", start.routes.through(url)))


def _codex_option(key: str, url: str) -> tuple[str, str]:
    return "-c", f"{key}={json.dumps(url)}"


def _lead_gemini(start: Start) -> Overlay:
    name = "GOOGLE_GEMINI_BASE_URL"
    return Overlay({name: start.routes.through(start.first_variable([name], GEMINI))})


def _lead_qwen(start: Start) -> Overlay:
    """Qwen Code: its option wins over settings and environment."""
    settings = _read_json(start.home / ".qwen/settings.json")
    own = ((settings.get("security") or {}).get("auth") or {}).get("baseUrl")
    url = start.first_variable(["OPENAI_BASE_URL"], own or OPENAI)
    return Overlay(arguments=("--openai-base-url", start.routes.through(url)))


def _lead_opencode(start: Start) -> Overlay:
    """OpenCode merges a configuration in the environment over its files."""
    content = _parse_json(
        start.environment.get("OPENCODE_CONFIG_CONTENT") or "{}", "the environment"
    )
    share = start.place("XDG_DATA_HOME", ".local", "share") / "opencode"
    config = start.place("XDG_CONFIG_HOME", ".config") / "opencode"
    files = [config / name for name in ("config.json", "opencode.json", "opencode.jsonc")]
    files += [Path(path) for path in [start.environment.get("OPENCODE_CONFIG")] if path]
    for folder in reversed((start.directory, *start.directory.parents)):
        files += [folder / "opencode.json", folder / "opencode.jsonc"]
    logins = {name for name in _read_json(share / "auth.json") if name in PROVIDERS}
    keys = {name for name in PROVIDERS if start.environment.get(f"{name.upper()}_API_KEY")}
    urls = {name: _opencode_url(name) for name in sorted(logins | keys)}
    for document in (*map(_read_json, files), content):
        for name, provider in _objects(document.get("provider")):
            options = provider.get("options")
            own = options.get("baseURL") if isinstance(options, dict) else None
            if url := own or (name in PROVIDERS and _opencode_url(name)):
                urls[name] = url
    for name, url in urls.items():
        provider = content.setdefault("provider", {}).setdefault(name, {})
        provider.setdefault("options", {})["baseURL"] = start.routes.through(url)
    if not urls:
        raise ValueError("OpenCode has no provider with a base URL: opencode auth login adds one")
    return Overlay({"OPENCODE_CONFIG_CONTENT": json.dumps(content)})


def _opencode_url(provider: str) -> str:
    """Return a provider's base URL as OpenCode has it: with the version for Anthropic, too."""
    url = PROVIDERS[provider]
    return f"{url}/v1" if provider in {"anthropic", "mistral"} else url


_PI_EXTENSION = """\
export default function (pi) {
  for (const [name, baseUrl] of Object.entries(%s)) pi.registerProvider(name, { baseUrl });
}
"""


def _lead_pi(start: Start) -> Overlay:
    """Pi: an extension gives providers another address and leaves all else of them."""
    models = _read_json(start.place("PI_CODING_AGENT_DIR", ".pi", "agent") / "models.json")
    own = {
        name: provider["baseUrl"]
        for name, provider in _objects(models.get("providers"))
        if isinstance(provider.get("baseUrl"), str)
    }
    urls = {**PROVIDERS, "openai-codex": CHATGPT, **own}
    addresses = {name: start.routes.through(url) for name, url in urls.items()}
    extension = _PI_EXTENSION % json.dumps(addresses, indent=2)
    return Overlay(
        arguments=("--extension", str(start.folder / "refold.js")), files={"refold.js": extension}
    )


_BASE_URL = re.compile(r'^([ \t]*base_url[ \t]*=[ \t]*)"([^"\n]*)"', re.MULTILINE)


def _lead_kimi(start: Start) -> Overlay:
    """Kimi Code has its addresses in one file of its directory alone."""
    place = start.place("KIMI_CODE_HOME", ".kimi-code")
    path = place / "config.toml"
    _read_toml(path)
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if not _BASE_URL.search(text):
        raise ValueError(f"{path} has no base_url: kimi login adds one")
    text = _BASE_URL.sub(lambda found: f'{found[1]}"{start.routes.through(found[2])}"', text)
    return Overlay(
        {"KIMI_CODE_HOME": str(start.folder)}, files={"config.toml": text}, mirrored=place
    )


AGENTS = (
    Agent("claude", "claude", "npm install -g @anthropic-ai/claude-code", _lead_claude),
    Agent("codex", "codex", "npm install -g @openai/codex", _lead_codex),
    Agent("gemini", "gemini", "npm install -g @google/gemini-cli", _lead_gemini),
    Agent("opencode", "opencode", "npm install -g opencode-ai", _lead_opencode),
    Agent("pi", "pi", "npm install -g @mariozechner/pi-coding-agent", _lead_pi),
    Agent("qwen", "qwen", "npm install -g @qwen-code/qwen-code", _lead_qwen),
    Agent("kimi", "kimi", "npm install -g @moonshot-ai/kimi-code", _lead_kimi),
    Agent("aider", "aider", "pip install aider-chat", lead_variables),
    Agent("mini-swe-agent", "mini", "pip install mini-swe-agent", lead_variables),
)


# --- files of others ---------------------------------------------------------------------------


def _objects(value: Any) -> Iterable[tuple[str, dict[str, Any]]]:
    """Return the members of a JSON object that are objects."""
    members = value.items() if isinstance(value, dict) else ()
    return [(name, member) for name, member in members if isinstance(member, dict)]


def _read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, which may have `//` comments; empty if there is no file.
    Raises ValueError."""
    return _parse_json(path.read_text(encoding="utf-8"), str(path)) if path.is_file() else {}


def _parse_json(text: str, name: str) -> dict[str, Any]:
    try:
        value = json.loads(_COMMENT.sub(lambda found: found[1] or "", text))
    except ValueError as error:
        raise ValueError(f"{name} is no JSON: {error}") from error
    return value if isinstance(value, dict) else {}


def _read_toml(path: Path) -> dict[str, Any]:
    """Return what is in a TOML file; empty if there is none. Raises ValueError."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise ValueError(f"{path} is no TOML: {error}") from error
