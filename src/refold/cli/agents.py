"""Coding agents, and how each is pointed at a gateway for one session.

An agent gets its settings in the environment, in arguments, or in a file of the session. Files of
the user are read and never written. Nothing slow is imported here, because an agent waits.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from refold.text.json_values import JsonObject, dig, first_text, object_at, objects_at, text_at

# --- base URLs of providers -----------------------------------------------------------------------

_WELL_KNOWN = Path(__file__).parents[1] / "gateway/providers.toml"
_PROVIDERS = tomllib.loads(_WELL_KNOWN.read_text(encoding="utf-8"))
"""Well-known providers of the gateway, read here because its modules are slow to load."""


def _list_base_urls(field: str) -> dict[str, str]:
    """Return the base URLs that agents have built in, by their names for the providers."""
    providers = (provider.get(field, {}) for provider in _PROVIDERS.values())
    return {name: url for urls in providers for name, url in urls.items()}


PROVIDERS: Mapping[str, str] = _list_base_urls("agents")
"""Those of pi, OpenCode, Cline and Continue."""
OPENAI, ANTHROPIC = PROVIDERS["openai"], PROVIDERS["anthropic"]
GEMINI: str = _PROVIDERS["gemini"]["url"]
CHATGPT = "https://chatgpt.com/backend-api"

VARIABLES: Sequence[tuple[tuple[str, ...], str]] = (
    (("OPENAI_BASE_URL", "OPENAI_API_BASE"), OPENAI),
    (("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"), ANTHROPIC),
    (("GOOGLE_GEMINI_BASE_URL",), GEMINI),
)
"""Environment variables from which SDKs read their base URL, and the default URL."""


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
    root: Path = Path("/")
    """Root of the file system, for the settings of a whole machine."""

    def first_variable(self, names: Iterable[str], default: str) -> str:
        """Return the value of the first of these variables that is not empty, or *default*."""
        return next(filter(None, map(self.environment.get, names)), default)

    def place(self, variable: str, *parts: str) -> Path:
        """Return the path in an environment variable, or if it is empty *parts* in the home."""
        return Path(self.environment.get(variable) or self.home.joinpath(*parts))

    def values(self, *names: str) -> list[str]:
        """Return the values of an option among the arguments, which follow its name or `=`."""
        values, following = list[str](), (*self.arguments, "")[1:]
        for word, next_word in zip(self.arguments, following, strict=True):
            if word == "--":
                break
            name, equals, value = word.partition("=")
            if name in names:
                values.append(value if equals else next_word)
        return values


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
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is no JSON: {error}") from error
    return value if isinstance(value, dict) else {}


def read_toml(path: Path) -> JsonObject:
    """Return the content of a TOML file; empty if there is none. Raises ValueError."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig")) if path.is_file() else {}
    except (ValueError, RecursionError) as error:
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


CLOUDS = ("BEDROCK", "VERTEX", "FOUNDRY", "ANTHROPIC_AWS", "ANTHROPIC_GOOGLE_CLOUD", "MANTLE")
"""Clouds to which Claude Code sends its requests if the variable CLAUDE_CODE_USE_... is on."""
_PASSED = "its requests pass no gateway"


def _prepare_claude(start: LaunchContext) -> AgentSettings:
    """Claude Code: settings of the machine override `--settings`, that overrides its other settings
    files, and these the environment."""
    name = "ANTHROPIC_BASE_URL"
    machine = [
        read_json(start.root / folder / "managed-settings.json")
        for folder in ("etc/claude-code", "Library/Application Support/ClaudeCode")
    ]
    given = [
        parse_json(value, "--settings") if "{" in value else read_json(start.directory / value)
        for value in start.values("--settings")[-1:]
    ]
    files = (
        start.directory / ".claude/settings.local.json",
        start.directory / ".claude/settings.json",
        start.place("CLAUDE_CONFIG_DIR", ".claude") / "settings.json",
    )
    settings = [*machine, *given, *map(read_json, files)]
    for variable in (f"CLAUDE_CODE_USE_{cloud}" for cloud in CLOUDS):
        value = first_text(settings, "env", variable) or start.environment.get(variable, "")
        if value.lower() not in {"", "0", "false", "no", "off"}:
            raise ValueError(f"{variable} is set: {_PASSED}")
    own = first_text(settings, "env", name)
    url = start.routes.through(own or start.first_variable([name], ANTHROPIC))
    if own and (given or text_at(machine[0] | machine[1], "env", name)):  # these win over ours
        raise ValueError(f"{name} is in settings, and --settings cannot replace it: {_PASSED}")
    arguments = ("--settings", json.dumps({"env": {name: url}})) if own else ()
    return AgentSettings({name: url}, arguments)


def _prepare_codex(start: LaunchContext) -> AgentSettings:
    """Codex: the `openai` provider has one address for API keys and another for ChatGPT logins.
    Other providers have theirs in config.toml, or in the file of a profile."""
    place, profiles = start.place("CODEX_HOME", ".codex"), start.values("-p", "--profile")[-1:]
    options = dict(map(_read_toml_option, start.values("-c", "--config")))
    config = read_toml(place / "config.toml")
    for profile in profiles:
        config = _lay_over(config, read_toml(place / f"{profile}.config.toml"))
    for option, value in options.items():  # cut at every dot, as Codex does: no key of TOML
        table = reduce(lambda inner, key: {key: inner}, reversed(option.split(".")), value)
        config = _lay_over(config, table)
    (profile,) = profiles or [text_at(config, "profile")]
    own = text_at(config, "profiles", profile, "model_provider")
    name = own or text_at(config, "model_provider") or "openai"
    key = f"model_providers.{name}.base_url"
    addresses = (key, "openai_base_url") if name == "openai" else (key,)
    for option, value in options.items():  # these win over ours
        is_other = option == "model_providers" and name not in object_at(value)
        if not is_other and any(f"{address}.".startswith(f"{option}.") for address in addresses):
            raise ValueError(f"-c {option}=... is given: {_PASSED}")
    url = dig(config, "model_providers", name, "base_url")
    if not url and name == "openai":
        is_chatgpt = bool(read_json(place / "auth.json").get("tokens"))
        default = f"{CHATGPT}/codex" if is_chatgpt else OPENAI
        key, own_url = "openai_base_url", config.get("openai_base_url")
        url = own_url or start.first_variable(["OPENAI_BASE_URL"], default)
    if not url:
        raise ValueError(f"config.toml has no base_url for the provider {name!r} of Codex")
    return AgentSettings(arguments=("-c", f"{key}={json.dumps(start.routes.through(url))}"))


def _read_toml_option(text: str) -> tuple[str, Any]:
    """Return key and value of `KEY=VALUE`. A value that is no TOML is a string, as in Codex."""
    key, _, value = text.partition("=")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        return key.strip(), value.strip().strip("\"'")


def _lay_over(below: Any, above: Any) -> Any:
    """Return the settings *below* with those *above* in their place; tables are merged."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {key: _lay_over(below.get(key), value) for key, value in above.items()}


def _prepare_gemini(start: LaunchContext) -> AgentSettings:
    """Gemini CLI: a Google login and Vertex AI have addresses of their own."""
    name, environment = "GOOGLE_GEMINI_BASE_URL", start.environment
    home = start.place("GEMINI_CLI_HOME") / ".gemini"
    settings = _read_settings(start, "GEMINI_CLI_SYSTEM_SETTINGS_PATH", "gemini-cli", home)
    login = first_text(settings, "security", "auth", "selectedType")
    switches = (f"GOOGLE_GENAI_USE_{kind}" for kind in ("GCA", "VERTEXAI"))
    login = login or next((switch for switch in switches if environment.get(switch) == "true"), "")
    if login not in {"", "gemini-api-key", "gateway"}:
        raise ValueError(f"{login} has an address of its own: {_PASSED}")
    return AgentSettings({name: start.routes.through(start.first_variable([name], GEMINI))})


def _read_settings(start: LaunchContext, variable: str, name: str, home: Path) -> list[JsonObject]:
    """Return the settings of Gemini CLI or Qwen Code: of the machine (a *variable* may name the
    file), the project and the user. Earlier ones override later ones."""
    machine = start.environment.get(variable) or start.root / "etc" / name / "settings.json"
    places = start.directory / home.name, home
    return [read_json(Path(machine)), *(read_json(place / "settings.json") for place in places)]


_QWEN_LOGINS = dict(zip(("openai", "anthropic", "gemini"), VARIABLES, strict=True))


def _prepare_qwen(start: LaunchContext) -> AgentSettings:
    """Qwen Code: its option overrides settings and environment, but not the base URLs of a list of
    models. Settings of the machine replace that list."""
    variable, name = "QWEN_CODE_SYSTEM_SETTINGS_PATH", "settings.json"
    settings = _read_settings(start, variable, "qwen-code", start.place("QWEN_HOME", ".qwen"))
    login = first_text(settings, "security", "auth", "selectedType")
    login = [login, *start.values("--auth-type")][-1]
    if start.values("--openai-base-url") or login in {"qwen-oauth", "vertex-ai"}:
        raise ValueError(f"{login or 'openai'} has an address of its own: {_PASSED}")
    variables, default = _QWEN_LOGINS.get(login, VARIABLES[0])
    own = first_text(settings, "security", "auth", "baseUrl")
    url = start.routes.through(start.first_variable(variables, own or default))
    arguments = ("--openai-base-url", url)
    lists = next((doc["modelProviders"] for doc in settings if doc.get("modelProviders")), None)
    if not isinstance(lists, dict):
        return AgentSettings(arguments=arguments)
    for model in (model for each in lists for model in objects_at(lists, each)):
        if model.get("baseUrl"):
            model["baseUrl"] = start.routes.through(model["baseUrl"])
    text = json.dumps({**settings[0], "modelProviders": lists})
    return AgentSettings({variable: str(start.folder / name)}, arguments, {name: text})


def _prepare_opencode(start: LaunchContext) -> AgentSettings:
    """OpenCode: a configuration in the environment is merged over its files."""
    content = parse_json(
        start.environment.get("OPENCODE_CONFIG_CONTENT") or "{}", "the environment"
    )
    share = start.place("XDG_DATA_HOME", ".local", "share") / "opencode"
    logins = {name for name in read_json(share / "auth.json") if name in PROVIDERS}
    keys = {name for name in PROVIDERS if start.environment.get(f"{name.upper()}_API_KEY")}
    urls = {name: _url_with_version(name) for name in sorted(logins | keys)}
    documents = [*map(read_json, _opencode_files(start)), content]
    for document in documents:
        for name, provider in objects(document.get("provider")):
            own = _with_variables(dig(provider, "options", "baseURL"), start.environment)
            if url := own or (name in PROVIDERS and _url_with_version(name)):
                urls[name] = url
    model = [first_text(documents[::-1], "model"), *start.values("-m", "--model")][-1]
    maker, slash, _ = model.partition("/")
    if maker in PROVIDERS:
        urls.setdefault(maker, _url_with_version(maker))
    if not urls:
        raise ValueError("OpenCode has no provider with a base URL: opencode auth login adds one")
    if slash and maker not in urls:
        raise ValueError(f"{model} is of a provider without a base URL: {_PASSED}")
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
    place = start.place("PI_CODING_AGENT_DIR", ".pi", "agent")
    own = {
        name: provider["baseUrl"]
        for name, provider in objects(read_json(place / "models.json").get("providers"))
        if isinstance(provider.get("baseUrl"), str)
    }
    built_in = {**PROVIDERS, **_list_base_urls("pi"), "openai-codex": CHATGPT}
    urls = {name: url for name, url in {**built_in, **own}.items() if url}
    default = text_at(read_json(place / "settings.json"), "defaultProvider")
    makers = [model.partition("/")[0] for model in start.values("--model") if "/" in model]
    named = [maker for maker in makers if maker in {**built_in, **own}]
    provider = [default, *named, *start.values("--provider")][-1]
    if provider and provider not in urls:
        raise ValueError(f"the provider {provider} has no base URL in models.json: {_PASSED}")
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


def _prepare_copilot(start: LaunchContext) -> AgentSettings:
    """Copilot CLI: a provider of the user's own has its base URL in the environment."""
    name = "COPILOT_PROVIDER_BASE_URL"
    if not (url := start.environment.get(name)):
        raise ValueError(f"{name} is not set, so Copilot asks GitHub's models: {_PASSED}")
    return AgentSettings({name: start.routes.through(url), "COPILOT_PROVIDER_TRANSPORT": "http"})


AGENTS = (
    Agent("claude", "claude", "npm install -g @anthropic-ai/claude-code", _prepare_claude),
    Agent("codex", "codex", "npm install -g @openai/codex", _prepare_codex),
    Agent("gemini", "gemini", "npm install -g @google/gemini-cli", _prepare_gemini),
    Agent("opencode", "opencode", "npm install -g opencode-ai", _prepare_opencode),
    Agent("pi", "pi", "npm install -g @earendil-works/pi-coding-agent", _prepare_pi),
    Agent("qwen", "qwen", "npm install -g @qwen-code/qwen-code", _prepare_qwen),
    Agent("kimi", "kimi", "npm install -g @moonshot-ai/kimi-code", _prepare_kimi),
    Agent("vibe", "vibe", "pip install mistral-vibe", _prepare_vibe),
    Agent("cline", "cline", "npm install -g cline", _prepare_cline),
    Agent("continue", "cn", "npm install -g @continuedev/cli", _prepare_continue),
    Agent("copilot", "copilot", "npm install -g @github/copilot", _prepare_copilot),
    Agent("aider", "aider", "pip install aider-chat", prepare_by_variables),
    Agent("mini-swe-agent", "mini", "pip install mini-swe-agent", prepare_by_variables),
)
