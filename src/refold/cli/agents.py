"""Coding agents, and how each is pointed at a gateway for one session.

An agent gets its settings in the environment, in arguments, or in a file of the session. Files of
the user are read and never written. Nothing slow is imported here, because an agent waits.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from refold.text.json_values import JsonObject, dig, first_text, object_at, objects_at, text_at

# --- base URLs of providers -----------------------------------------------------------------------

_WELL_KNOWN = Path(__file__).parents[1] / "gateway/providers.toml"
_PROVIDERS = tomllib.loads(_WELL_KNOWN.read_text(encoding="utf-8"))
"""Well-known providers of the gateway, read here because its modules are slow to load."""


def _address(provider: str, path: str = "") -> str:
    """Return the base URL that clients use for a provider: its address and a *path*."""
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
"""Environment variables from which SDKs read their base URL, and the default URL."""
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
"""Base URLs of providers that agents have built in, by their names in pi and OpenCode."""


# --- the start of an agent ------------------------------------------------------------------------


@dataclass(slots=True)
class Routes:
    """Map from base URLs of an agent's providers to addresses of a gateway."""

    gateway: str
    is_shared: bool = False
    """Whether the gateway was running already, with its own upstreams."""
    urls: dict[str, str] = field(default_factory=dict)
    """Base URLs by upstream name, which is the first segment of the gateway's path."""

    def through(self, address: object) -> str:
        """Return the gateway's base URL for an address, and add that to `urls` unless the gateway
        is shared. Raises ValueError if it is no HTTP URL, or has a user, a query or a fragment."""
        url = str(address).rstrip("/")
        try:
            parts = urlsplit(url)
            is_http = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        except ValueError:  # the port is no number
            is_http = False
        if not is_http or url.split() != [url]:
            raise ValueError(f"{url[:100]!r} is no base URL that a gateway can stand before")
        if parts.username is not None or parts.query or parts.fragment:
            raise ValueError(
                f"the base URL of {parts.hostname} holds a user, a query or a fragment"
            )
        if self.is_shared:
            return self.gateway + parts.path.rstrip("/")
        name = re.sub(r"[^\w.]+", "-", f"{parts.netloc}{parts.path}").strip("-")
        while self.urls.get(name, url) != url:  # http://host and https://host, for example
            name += "-2"
        self.urls[name] = url
        return f"{self.gateway}/{name}"


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """The environment in which an agent is started."""

    environment: Mapping[str, str]
    home: Path
    directory: Path
    folder: Path
    """Temporary folder for files of this session."""
    routes: Routes
    arguments: Sequence[str] = ()
    """The user's arguments for the agent."""

    def first_variable(self, names: Iterable[str], default: str) -> str:
        """Return the value of the first of these variables that is not empty, or *default*."""
        return next(filter(None, map(self.environment.get, names)), default)

    def place(self, variable: str, *parts: str) -> Path:
        """Return the path in an environment variable, or if it is empty *parts* in the home."""
        return Path(self.environment.get(variable) or self.home.joinpath(*parts))


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Settings of an agent for one session."""

    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    """Arguments before those of the user."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Contents of files in the session's folder, by name."""
    mirrored: Path | None = None
    """A directory of the agent that the folder replaces. Its other entries are linked there."""
    left_running: str = ""
    """Name of the file in which the agent records a background process; empty for none."""


# --- files of agents ------------------------------------------------------------------------------

_STRING = r'("(?:[^"\\\n]|\\.)*"?)'
_COMMENT = re.compile(_STRING + r"|//[^\n]*|/\*[^*]*+(?:\*(?!/)[^*]*+)*(?:\*/)?")
_TRAILING_COMMA = re.compile(_STRING + r"|,(?=\s*+[}\]])")


def objects(value: Any) -> Iterable[tuple[str, JsonObject]]:
    """Return the members of a JSON object that are objects, with their names; else nothing."""
    members = value.items() if isinstance(value, dict) else ()
    return [(name, member) for name, member in members if isinstance(member, dict)]


def read_json(path: Path) -> JsonObject:
    """Return the JSON object in a file (see `parse_json`); empty if there is no file. Raises
    ValueError."""
    return parse_json(path.read_text(encoding="utf-8-sig"), str(path)) if path.is_file() else {}


def parse_json(text: str, name: str) -> JsonObject:
    """Return the JSON object in a text, which may have comments and trailing commas; empty for
    another value. Errors call the text *name*. Raises ValueError."""
    for ignored in (_COMMENT, _TRAILING_COMMA):
        text = ignored.sub(lambda found: found[1] or "", text)
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{name} is no JSON: {error}") from error
    return value if isinstance(value, dict) else {}


def read_toml(path: Path) -> JsonObject:
    """Return the content of a TOML file; empty if there is none. Raises ValueError."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig")) if path.is_file() else {}
    except ValueError as error:
        raise ValueError(f"{path} is no TOML: {error}") from error


# --- agents ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Agent:
    """A coding agent."""

    name: str
    program: str
    install: str
    """Command that installs it."""
    prepare: Callable[[LaunchContext], AgentSettings]
    """Returns the settings. Raises ValueError if its requests cannot pass a gateway."""


def find_agent(command: str) -> Agent | None:
    """Return the agent that a command starts, by name or path; None for any other program."""
    name = Path(command).name.lower().removesuffix(".exe").removesuffix(".cmd")
    return next((agent for agent in AGENTS if name in {agent.name, agent.program}), None)


def prepare_by_variables(start: LaunchContext) -> AgentSettings:
    """Return settings for programs that read base URLs from the environment, such as SDKs."""
    environment = dict[str, str]()
    for names, default in VARIABLES:
        url = start.routes.through(start.first_variable(names, default))
        environment |= dict.fromkeys(names, url)
    return AgentSettings(environment)


# --- an overlay for each agent --------------------------------------------------------------------


CLOUDS = ("BEDROCK", "VERTEX", "FOUNDRY", "ANTHROPIC_AWS")
"""Clouds to which Claude Code sends its requests if the variable CLAUDE_CODE_USE_... is on."""


def _prepare_claude(start: LaunchContext) -> AgentSettings:
    """Claude Code: `--settings` overrides its settings files, and these the environment."""
    name = "ANTHROPIC_BASE_URL"
    files = (
        start.directory / ".claude/settings.local.json",
        start.directory / ".claude/settings.json",
        start.place("CLAUDE_CONFIG_DIR", ".claude") / "settings.json",
    )
    settings = list(map(read_json, files))
    for variable in (f"CLAUDE_CODE_USE_{cloud}" for cloud in CLOUDS):
        value = first_text(settings, "env", variable) or start.environment.get(variable, "")
        if value.lower() not in {"", "0", "false", "no", "off"}:
            raise ValueError(f"{variable} is set: its requests pass no gateway")
    own = first_text(settings, "env", name)
    url = start.routes.through(own or start.first_variable([name], ANTHROPIC))
    arguments = ("--settings", json.dumps({"env": {name: url}})) if own else ()
    return AgentSettings({name: url}, arguments)


_KEYS = re.compile(r"(?<![\w./-])[\w-]++(?=[\"']?\s*[.=])")
"""Keys of a table in TOML."""


def _prepare_codex(start: LaunchContext) -> AgentSettings:
    """Codex: the `openai` provider has one address for API keys and another for ChatGPT logins.
    Other providers have theirs in config.toml."""
    place = start.place("CODEX_HOME", ".codex")
    settings = [text.partition("=") for text in _option_values(start.arguments, "-c", "--config")]
    options = {key.strip(): value.strip().strip("\"'") for key, _, value in settings}
    config = read_toml(place / "config.toml") | options  # only names are read, at the top level
    named = [text_at(config, "profile"), *_option_values(start.arguments, "-p", "--profile")]
    profile = object_at(config, "profiles", named[-1])
    name = text_at(profile, "model_provider") or text_at(config, "model_provider") or "openai"
    key = f"model_providers.{name}.base_url"
    addresses = (key, "openai_base_url") if name == "openai" else (key,)
    for option, value in options.items():  # these win over ours
        is_other = option == "model_providers" and name not in _KEYS.findall(value)
        if not is_other and any(f"{address}.".startswith(f"{option}.") for address in addresses):
            raise ValueError(f"-c {option}=... is given: its requests pass no gateway")
    url = dig(config, "model_providers", name, "base_url")
    if not url and name == "openai":
        is_chatgpt = bool(read_json(place / "auth.json").get("tokens"))
        default = f"{CHATGPT}/codex" if is_chatgpt else OPENAI
        key, own = "openai_base_url", config.get("openai_base_url")
        url = own or start.first_variable(["OPENAI_BASE_URL"], default)
    if not url:
        raise ValueError(f"config.toml has no base_url for the provider {name!r} of Codex")
    return AgentSettings(arguments=("-c", f"{key}={json.dumps(start.routes.through(url))}"))


def _option_values(arguments: Sequence[str], *names: str) -> Iterator[str]:
    """Yield the values of an option, which follow its name or `=`."""
    for word, following in zip(arguments, (*arguments, "")[1:], strict=True):
        if word == "--":
            return
        name, equals, value = word.partition("=")
        if name in names:
            yield value if equals else following


def _prepare_gemini(start: LaunchContext) -> AgentSettings:
    name = "GOOGLE_GEMINI_BASE_URL"
    return AgentSettings({name: start.routes.through(start.first_variable([name], GEMINI))})


def _prepare_qwen(start: LaunchContext) -> AgentSettings:
    """Qwen Code: its option overrides settings and environment."""
    settings = read_json(start.home / ".qwen/settings.json")
    own = text_at(settings, "security", "auth", "baseUrl")
    url = start.first_variable(["OPENAI_BASE_URL"], own or OPENAI)
    return AgentSettings(arguments=("--openai-base-url", start.routes.through(url)))


def _prepare_opencode(start: LaunchContext) -> AgentSettings:
    """OpenCode: a configuration in the environment is merged over its files."""
    content = parse_json(
        start.environment.get("OPENCODE_CONFIG_CONTENT") or "{}", "the environment"
    )
    share = start.place("XDG_DATA_HOME", ".local", "share") / "opencode"
    logins = {name for name in read_json(share / "auth.json") if name in PROVIDERS}
    keys = {name for name in PROVIDERS if start.environment.get(f"{name.upper()}_API_KEY")}
    urls = {name: _url_with_version(name) for name in sorted(logins | keys)}
    for document in (*map(read_json, _opencode_files(start)), content):
        for name, provider in objects(document.get("provider")):
            own = _with_variables(dig(provider, "options", "baseURL"), start.environment)
            if url := own or (name in PROVIDERS and _url_with_version(name)):
                urls[name] = url
    if not urls:
        raise ValueError("OpenCode has no provider with a base URL: opencode auth login adds one")
    providers = dict(object_at(content, "provider"))
    for name, url in urls.items():
        options = {**object_at(providers, name, "options"), "baseURL": start.routes.through(url)}
        providers[name] = {**object_at(providers, name), "options": options}
    content["provider"] = providers
    return AgentSettings({"OPENCODE_CONFIG_CONTENT": json.dumps(content)})


_ENV = re.compile(r"\{env:([^}\n]+)\}")
"""OpenCode's reference to an environment variable."""


def _with_variables(value: Any, environment: Mapping[str, str]) -> Any:
    """Return a string of OpenCode's settings with the values of variables; others unchanged."""
    if not isinstance(value, str):
        return value
    return _ENV.sub(lambda found: environment.get(found[1].strip(), ""), value)


def _opencode_files(start: LaunchContext) -> Iterator[Path]:
    """Yield OpenCode's configuration files. Later ones override earlier ones."""
    config = start.place("XDG_CONFIG_HOME", ".config") / "opencode"
    for name in ("config.json", "opencode.json", "opencode.jsonc"):
        yield config / name
    if path := start.environment.get("OPENCODE_CONFIG"):
        yield Path(path)
    folders = (start.directory, *start.directory.parents)[::-1]
    for folder in (*folders, *(folder / ".opencode" for folder in folders)):
        yield folder / "opencode.json"
        yield folder / "opencode.jsonc"


def _url_with_version(provider: str) -> str:
    """Return a provider's base URL with its version, as OpenCode and Continue expect it."""
    url = PROVIDERS[provider]
    return f"{url}/v1" if provider in {"anthropic", "mistral"} else url


_PI_EXTENSION = """\
export default function (pi) {
  for (const [name, baseUrl] of Object.entries(%s)) pi.registerProvider(name, { baseUrl });
}
"""


def _prepare_pi(start: LaunchContext) -> AgentSettings:
    """Pi: an extension overrides the address of providers, and nothing else."""
    models = read_json(start.place("PI_CODING_AGENT_DIR", ".pi", "agent") / "models.json")
    own = {
        name: provider["baseUrl"]
        for name, provider in objects(models.get("providers"))
        if isinstance(provider.get("baseUrl"), str)
    }
    urls = {**PROVIDERS, "openai-codex": CHATGPT, **own}
    addresses = {name: start.routes.through(url) for name, url in urls.items()}
    extension = _PI_EXTENSION % json.dumps(addresses, indent=2)
    return AgentSettings(
        arguments=("--extension", str(start.folder / "refold.js")), files={"refold.js": extension}
    )


_BASE_URL = re.compile(
    r"""^([ \t]*base_url[ \t]*=[ \t]*)(["'])((?:(?!\2)[^\n])*)\2""", re.MULTILINE
)


def _prepare_kimi(start: LaunchContext) -> AgentSettings:
    """Kimi Code: addresses can only be set in a file in its directory."""
    place = start.place("KIMI_CODE_HOME", ".kimi-code")
    path = place / "config.toml"
    read_toml(path)
    text = path.read_text(encoding="utf-8-sig") if path.is_file() else ""
    text, count = _BASE_URL.subn(
        lambda found: f'{found[1]}"{start.routes.through(found[3])}"', text
    )
    if not count:
        raise ValueError(f"{path} has no base_url: kimi login adds one")
    return AgentSettings(
        {"KIMI_CODE_HOME": str(start.folder)}, files={"config.toml": text}, mirrored=place
    )


VIBE = {
    "name": "mistral",
    "api_base": _url_with_version("mistral"),
    "api_key_env_var": "MISTRAL_API_KEY",
    "backend": "mistral",
}
"""Built-in provider of Mistral Vibe."""


def _prepare_vibe(start: LaunchContext) -> AgentSettings:
    """Mistral Vibe: providers in the environment override those of the same name in its files."""
    name = "VIBE_PROVIDERS"
    own = parse_json(f'{{"providers": {start.environment.get(name) or "[]"}}}', name)
    home = start.place("VIBE_HOME", ".vibe")
    files = (home / "config.toml", start.directory / ".vibe/config.toml")
    providers: dict[Any, JsonObject] = {"mistral": VIBE}
    for document in (*map(read_toml, files), own):
        for provider in objects_at(document, "providers"):
            if isinstance(provider.get("api_base"), str):
                providers[text_at(provider, "name")] = provider
    given = [
        {**provider, "api_base": start.routes.through(provider["api_base"])}
        for provider in providers.values()
    ]
    return AgentSettings({name: json.dumps(given, default=str)})


CLINE: Mapping[str, str] = {"openai-native": OPENAI, "gemini": GEMINI}
"""Base URLs of providers that have other names in Cline."""


def _prepare_cline(start: LaunchContext) -> AgentSettings:
    """Cline: its providers are in one file, which an environment variable names."""
    variable, name = "CLINE_PROVIDER_SETTINGS_PATH", "providers.json"
    data = start.place("CLINE_DATA_DIR", ".cline", "data")
    path = start.place(variable, str(data), "settings", name)
    document, has_url = read_json(path), False
    for provider, entry in objects(document.get("providers")):
        settings = entry.get("settings")
        default = CLINE.get(provider) or PROVIDERS.get(provider)
        if isinstance(settings, dict) and (url := settings.get("baseUrl") or default):
            settings["baseUrl"], has_url = start.routes.through(url), True
    if not has_url:
        raise ValueError(f"{path} has no provider with a base URL: cline auth adds one")
    hub = start.folder / "hub.json"  # a separate hub: a running one has other settings
    environment = {variable: str(start.folder / name), "CLINE_HUB_DISCOVERY_PATH": str(hub)}
    return AgentSettings(environment, files={name: json.dumps(document)}, left_running=hub.name)


_API_BASE = re.compile(
    r"""^([ \t]*(?:-[ \t]+)?apiBase:[ \t]*)["']?([^\s"'#]+)["']?""", re.MULTILINE
)
_PROVIDER = re.compile(
    r"""^([ \t]*(?:-[ \t]+)?)provider:[ \t]*["']?([\w-]+)["']?[^\n]*""", re.MULTILINE
)
_ITEM = re.compile(r"^[ \t]*-[ \t]", re.MULTILINE)


def _prepare_continue(start: LaunchContext) -> AgentSettings:
    """Continue: an option names another configuration. Models without an address get one."""
    path = start.place("CONTINUE_GLOBAL_DIR", ".continue") / "config.yaml"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    pieces, at = list[str](), 0
    models = list(_PROVIDER.finditer(text))
    ends = [*(model.start() for model in models[1:]), len(text)]
    for model, end in zip(models, ends, strict=False):
        item = max((mark.start() for mark in _ITEM.finditer(text, at, model.end())), default=at)
        pieces.append(text[at : model.end()])
        at = model.end()
        if model[2] in PROVIDERS and "apiBase:" not in text[item:end]:
            indent = model[1].replace("-", " ")
            pieces.append(f"\n{indent}apiBase: {_url_with_version(model[2])}")
    text, count = _API_BASE.subn(
        lambda found: f'{found[1]}"{start.routes.through(found[2])}"', "".join([*pieces, text[at:]])
    )
    if not count:
        raise ValueError(f"{path} has no model with an apiBase, or of a provider that is known")
    return AgentSettings(
        arguments=("--config", str(start.folder / path.name)), files={path.name: text}
    )


AGENTS = (
    Agent("claude", "claude", "npm install -g @anthropic-ai/claude-code", _prepare_claude),
    Agent("codex", "codex", "npm install -g @openai/codex", _prepare_codex),
    Agent("gemini", "gemini", "npm install -g @google/gemini-cli", _prepare_gemini),
    Agent("opencode", "opencode", "npm install -g opencode-ai", _prepare_opencode),
    Agent("pi", "pi", "npm install -g @mariozechner/pi-coding-agent", _prepare_pi),
    Agent("qwen", "qwen", "npm install -g @qwen-code/qwen-code", _prepare_qwen),
    Agent("kimi", "kimi", "npm install -g @moonshot-ai/kimi-code", _prepare_kimi),
    Agent("vibe", "vibe", "pip install mistral-vibe", _prepare_vibe),
    Agent("cline", "cline", "npm install -g cline", _prepare_cline),
    Agent("continue", "cn", "npm install -g @continuedev/cli", _prepare_continue),
    Agent("aider", "aider", "pip install aider-chat", prepare_by_variables),
    Agent("mini-swe-agent", "mini", "pip install mini-swe-agent", prepare_by_variables),
)
