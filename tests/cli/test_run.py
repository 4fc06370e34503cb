"""`refold run`: the settings of each agent, and a command with a real gateway that runs as long."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold.cli.agents import (
    AGENTS,
    PROVIDERS,
    LaunchContext,
    Routes,
    find_agent,
    prepare_by_variables,
)
from refold.cli.places import data_directory, user_store
from refold.cli.run import end_process
from refold.cli.run import main as run_main
from refold.gateway.ledger.entry import build_report, report_as_json
from refold.gateway.ledger.writer import open_ledger
from refold.testing.scripted_provider import Received, Reply, ScriptedProvider
from tests.support.certificates import write_certificate
from tests.support.command_line import REFOLD, refold, set_home
from tests.support.pages import ROOT

GATEWAY = "http://127.0.0.1:4000"
OWN = "https://models.example/team/v1"
LED = f"{GATEWAY}/models.example-team-v1"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def lead(name: str, home: Path, *arguments: str, **environment: str):
    """Return the settings of an agent, and the routes of its gateway."""
    agent = find_agent(name)
    assert agent is not None
    routes = Routes(GATEWAY)
    (home / "work").mkdir(exist_ok=True)
    places = home, home / "work", home / "session"
    start = LaunchContext(environment, *places, routes, arguments, root=home)
    return agent.prepare(start), routes.urls


# --- settings of each agent --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("claude", "ANTHROPIC_BASE_URL"),
        ("gemini", "GOOGLE_GEMINI_BASE_URL"),
        ("aider", "OPENAI_API_BASE"),
        ("mini", "ANTHROPIC_API_BASE"),
    ],
)
def test_an_agents_base_url_variable_points_to_the_gateway(
    name: str, variable: str, tmp_path: Path
) -> None:
    overlay, urls = lead(name, tmp_path, **{variable: OWN + "/"})
    assert overlay.environment[variable] == LED and urls["models.example-team-v1"] == OWN
    assert not overlay.files and not overlay.arguments
    overlay, urls = lead(name, tmp_path)
    address = overlay.environment[variable]
    assert urls[address.removeprefix(f"{GATEWAY}/")].startswith("https://")


def test_a_base_url_in_claudes_settings_is_replaced_by_the_gateways(tmp_path: Path) -> None:
    settings = tmp_path / ".claude/settings.json"
    write(settings, json.dumps({"env": {"ANTHROPIC_BASE_URL": OWN}}))
    overlay, _ = lead("claude", tmp_path)
    assert overlay.arguments[0] == "--settings"
    assert json.loads(overlay.arguments[1]) == {"env": {"ANTHROPIC_BASE_URL": LED}}


@pytest.mark.parametrize("cloud", ["BEDROCK", "VERTEX", "FOUNDRY", "ANTHROPIC_AWS"])
def test_claude_on_a_cloud_is_refused_since_its_requests_pass_no_gateway(
    cloud: str, tmp_path: Path
) -> None:
    variable = f"CLAUDE_CODE_USE_{cloud}"
    with pytest.raises(ValueError, match=variable):
        lead("claude", tmp_path, **{variable: "1"})
    lead("claude", tmp_path, **{variable: "0"})  # off
    write(tmp_path / ".claude/settings.json", json.dumps({"env": {variable: "true"}}))
    with pytest.raises(ValueError, match=variable):
        lead("claude", tmp_path)


@pytest.mark.parametrize(
    ("config", "login", "key", "url"),
    [
        ("", "{}", "openai_base_url", "https://api.openai.com/v1"),
        ("", '{"tokens": {}}', "openai_base_url", "https://api.openai.com/v1"),
        ("", '{"tokens": {"id_token": "t"}}', "openai_base_url", "https://chatgpt.com/backend-api/codex"),
        (f'openai_base_url = "{OWN}"', "{}", "openai_base_url", OWN),
        (f'profile = "p"\n[profiles.p]\nmodel_provider = "own"\n[model_providers.own]\nbase_url = "{OWN}"', "{}", "model_providers.own.base_url", OWN),
        (f'model_provider = "own"\n[model_providers.own]\nbase_url = "{OWN}"', "{}", "model_providers.own.base_url", OWN),
    ],
)  # fmt: skip
def test_codex_is_given_the_gateway_url_as_an_option_of_its_provider(
    config: str, login: str, key: str, url: str, tmp_path: Path
) -> None:
    write(tmp_path / ".codex/config.toml", config)
    write(tmp_path / ".codex/auth.json", login)
    overlay, urls = lead("codex", tmp_path)
    ((name, led),) = urls.items()
    assert led == url and overlay.arguments == ("-c", f'{key}="{GATEWAY}/{name}"')


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--profile", "p"], "own"),
        (["exec", "-p", "p", "Go."], "own"),
        (["--profile=p"], "own"),
        (["-c", 'model_provider="own"'], "own"),
        (["-c", 'projects./x y.trust_level="trusted"'], "other"),  # no key of TOML
        (["--config=model_provider=own"], "own"),
        (["-c", "profile='p'"], "own"),
        (["-c", 'profile="p"', "--profile", "q"], "other"),
        (["exec", "--", "--profile", "p"], "other"),
        ([], "other"),
    ],
)
def test_codex_is_led_where_its_arguments_say(
    arguments: list[str], name: str, tmp_path: Path
) -> None:
    profiles = '[profiles.p]\nmodel_provider = "own"\n[profiles.q]\n'
    urls = (
        f'[model_providers.own]\nbase_url = "{OWN}"\n[model_providers.other]\nbase_url = "http://o"'
    )
    write(tmp_path / ".codex/config.toml", f'model_provider = "other"\n{profiles}{urls}')
    overlay, _ = lead("codex", tmp_path, *arguments)
    assert overlay.arguments[1].startswith(f"model_providers.{name}.base_url=")


@pytest.mark.parametrize(
    ("option", "is_followed"),
    [
        ("model_providers.own.base_url=http://x/v1", True),
        ('model_providers.own={base_url="http://x/v1"}', True),
        ("model_providers.other.base_url=http://x/v1", False),
        ("model_providers.own.base_url_of=1", False),
        ("openai_base_url=http://x/v1", False),
    ],
)
def test_an_address_among_codexs_arguments_would_pass_by_the_gateway_and_is_refused(
    option: str, is_followed: bool, tmp_path: Path
) -> None:
    own = f'model_provider = "own"\n[model_providers.own]\nbase_url = "{OWN}"'
    write(tmp_path / ".codex/config.toml", own)
    if is_followed:
        with pytest.raises(
            ValueError, match=r"-c model_providers\.own.*its requests pass no gateway"
        ):
            lead("codex", tmp_path, "-c", option)
    else:
        lead("codex", tmp_path, "-c", option)
    with pytest.raises(ValueError, match="-c openai_base_url"):
        lead("codex", tmp_path, "-c", "model_provider=openai", "--config=openai_base_url=http://x")


def test_a_table_of_other_providers_among_codexs_arguments_is_no_obstacle(tmp_path: Path) -> None:
    """Those of the session's provider do not change."""
    table = 'model_providers={azure={base_url="https://x.openai.azure.com"}}'
    lead("codex", tmp_path, "-c", table, "--config", 'model="gpt-5.1"')
    for named in ('{openai={base_url="http://x"}}', '{"openai".base_url="http://x"}'):
        with pytest.raises(ValueError, match="-c model_providers="):
            lead("codex", tmp_path, "-c", f"model_providers={named}")
    lead("codex", tmp_path, "-c", "model_providers=5")  # Codex itself refuses that


def test_settings_too_deep_to_read_are_an_error_of_one_line(tmp_path: Path) -> None:
    write(tmp_path / ".gemini/settings.json", "[" * 100_000)
    with pytest.raises(ValueError, match=r"settings\.json is no JSON"):
        lead("gemini", tmp_path)
    lead("codex", tmp_path, "-c", "x=" + "[" * 100_000)
    write(tmp_path / ".codex/config.toml", "x = " + "[" * 100_000)
    with pytest.raises(ValueError, match=r"config\.toml is no TOML"):
        lead("codex", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["-c", "profiles.p.model_provider=own", "-p", "p"], "own"),
        (["-c", 'profiles.q={model_provider="own"}', "--profile", "q"], "own"),
        (["--profile", "layer"], "own"),
        (["--profile", "p"], "other"),
    ],
)
def test_codex_is_led_where_the_options_or_the_file_of_its_profile_say(
    arguments: list[str], name: str, tmp_path: Path
) -> None:
    """The provider of a profile that an option or `NAME.config.toml` sets was not seen: requests to
    it passed no gateway."""
    write(
        tmp_path / ".codex/config.toml",
        f'model_provider = "other"\n[model_providers.own]\nbase_url = "{OWN}"\n'
        '[model_providers.other]\nbase_url = "http://o"',
    )
    write(tmp_path / ".codex/layer.config.toml", 'model_provider = "own"')
    overlay, _ = lead("codex", tmp_path, *arguments)
    assert overlay.arguments[1].startswith(f"model_providers.{name}.base_url=")


def test_a_base_url_that_claudes_settings_keep_is_refused(tmp_path: Path) -> None:
    """The settings of the machine and a second `--settings` win over ours."""
    own = json.dumps({"env": {"ANTHROPIC_BASE_URL": OWN}})
    lead("claude", tmp_path, "--settings", '{"model": "opus"}')
    with pytest.raises(ValueError, match="pass no gateway"):
        lead("claude", tmp_path, "--settings", own)
    write(tmp_path / "work/mine.json", '{"env": {"CLAUDE_CODE_USE_MANTLE": "1"}}')
    with pytest.raises(ValueError, match="MANTLE"):
        lead("claude", tmp_path, "--settings=mine.json")
    machine = tmp_path / "etc/claude-code/managed-settings.json"
    write(machine, json.dumps({"permissions": {}}))
    lead("claude", tmp_path)
    write(machine, own)
    with pytest.raises(ValueError, match="pass no gateway"):
        lead("claude", tmp_path)
    write(tmp_path / ".claude/settings.json", own)
    machine.unlink()
    with pytest.raises(ValueError, match="pass no gateway"):
        lead("claude", tmp_path, "--settings", "{}")


@pytest.mark.parametrize("login", ["oauth-personal", "vertex-ai"])
def test_a_login_of_gemini_that_passes_the_gateway_by_is_refused(
    login: str, tmp_path: Path
) -> None:
    write(
        tmp_path / ".gemini/settings.json",
        json.dumps({"security": {"auth": {"selectedType": login}}}),
    )
    with pytest.raises(ValueError, match=f"{login}.*pass no gateway"):
        lead("gemini", tmp_path)
    write(
        tmp_path / "work/.gemini/settings.json",
        '{"security": {"auth": {"selectedType": "gemini-api-key"}}}',
    )
    lead("gemini", tmp_path, GOOGLE_GENAI_USE_VERTEXAI="true")
    (tmp_path / "new").mkdir()
    with pytest.raises(ValueError, match="GOOGLE_GENAI_USE_GCA"):
        lead("gemini", tmp_path / "new", GOOGLE_GENAI_USE_GCA="true")


def test_a_model_of_opencode_or_pi_without_a_base_url_is_refused(tmp_path: Path) -> None:
    config = {"model": "amazon-bedrock/claude", "provider": {"own": {"options": {"baseURL": OWN}}}}
    write(tmp_path / ".config/opencode/opencode.json", json.dumps(config))
    with pytest.raises(ValueError, match=r"amazon-bedrock.*pass no gateway"):
        lead("opencode", tmp_path)
    lead("opencode", tmp_path, "--model", "own/m")
    overlay, _ = lead("opencode", tmp_path, "-m", "google/gemini-3-pro")  # built in, with any login
    assert "google" in json.loads(overlay.environment["OPENCODE_CONFIG_CONTENT"])["provider"]
    write(tmp_path / ".pi/agent/settings.json", '{"defaultProvider": "github-copilot"}')
    with pytest.raises(ValueError, match=r"github-copilot.*pass no gateway"):
        lead("pi", tmp_path)
    lead("pi", tmp_path, "--provider", "anthropic")
    _, urls = lead("pi", tmp_path, "--model", "kimi-coding/k3")
    assert "https://api.kimi.com/coding/v1" in urls.values() and "" not in urls.values()
    with pytest.raises(ValueError, match=r"opencode-go.*pass no gateway"):
        lead("pi", tmp_path, "--provider=anthropic", "--model", "x/y", "--provider", "opencode-go")
    write(tmp_path / ".pi/agent/settings.json", "{}")
    with pytest.raises(ValueError, match=r"opencode.*pass no gateway"):
        lead("pi", tmp_path, "--model", "opencode/claude")
    lead("pi", tmp_path, "--model", "meta-llama/llama")  # a pattern of names, of no provider


def test_copilot_is_led_to_the_gateway_if_its_provider_is_the_users_own(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"COPILOT_PROVIDER_BASE_URL.*pass no gateway"):
        lead("copilot", tmp_path)
    settings = {"COPILOT_PROVIDER_BASE_URL": OWN, "COPILOT_PROVIDER_TRANSPORT": "websockets"}
    overlay, urls = lead("copilot", tmp_path, **settings)
    assert list(urls.values()) == [OWN]
    assert overlay.environment == {
        "COPILOT_PROVIDER_BASE_URL": LED,
        "COPILOT_PROVIDER_TRANSPORT": "http",
    }


def test_opencode_providers_use_the_gateway_and_keep_the_users_settings(tmp_path: Path) -> None:
    write(
        tmp_path / ".config/opencode/opencode.jsonc",
        json.dumps({"provider": {"own": {"options": {"baseURL": OWN}}}}) + " // mine",
    )
    write(
        tmp_path / ".local/share/opencode/auth.json", '{"anthropic": {"type": "api", "key": "k"}}'
    )
    content = json.dumps({"theme": "dark", "provider": {"own": {"name": "Own"}}})
    overlay, _ = lead("opencode", tmp_path, OPENCODE_CONFIG_CONTENT=content)
    given = json.loads(overlay.environment["OPENCODE_CONFIG_CONTENT"])
    assert given["theme"] == "dark" and given["provider"]["own"]["name"] == "Own"
    assert given["provider"]["own"]["options"]["baseURL"] == LED
    assert given["provider"]["anthropic"]["options"]["baseURL"].endswith("/api.anthropic.com-v1")
    assert "openai" not in given["provider"]


def test_opencodes_base_url_may_be_in_an_environment_variable(tmp_path: Path) -> None:
    provider = {"options": {"baseURL": "{env:OWN}/v1"}}
    write(tmp_path / ".config/opencode/opencode.json", json.dumps({"provider": {"own": provider}}))
    _, urls = lead("opencode", tmp_path, OWN="http://own.example")
    assert list(urls.values()) == ["http://own.example/v1"]
    with pytest.raises(ValueError, match="no base URL"):
        lead("opencode", tmp_path)


def test_opencodes_settings_in_the_project_override_the_users(tmp_path: Path) -> None:
    for folder, url in ((".config/opencode", "http://a"), ("work/.opencode", OWN)):
        provider = {"own": {"options": {"baseURL": url}}}
        write(tmp_path / folder / "opencode.json", json.dumps({"provider": provider}))
    _, urls = lead("opencode", tmp_path)
    assert list(urls.values()) == [OWN]


def test_opencodes_files_may_have_comments_and_trailing_commas(tmp_path: Path) -> None:
    text = (
        '\ufeff{ /* mine * */ "provider": {"own": {"options": {"baseURL": "OWN", }, /**/ }, }, // }'
    )
    write(tmp_path / ".config/opencode/opencode.jsonc", text.replace("OWN", f"{OWN}/*,}}") + "\n}")
    _, urls = lead("opencode", tmp_path)
    assert f"{OWN}/*,}}" in urls.values()  # in a string it is neither


def test_an_extension_makes_pis_providers_use_the_gateway(tmp_path: Path) -> None:
    write(tmp_path / ".pi/agent/models.json", json.dumps({"providers": {"own": {"baseUrl": OWN}}}))
    overlay, urls = lead("pi", tmp_path)
    ((name, text),) = overlay.files.items()
    assert overlay.arguments == ("--extension", str(tmp_path / "session" / name))
    assert f'"own": "{LED}"' in text and all(f'"{provider}":' in text for provider in PROVIDERS)
    assert OWN in urls.values()


def test_kimi_is_given_a_mirrored_config_directory_with_the_gateway_url(tmp_path: Path) -> None:
    place = tmp_path / ".kimi-code"
    write(place / "config.toml", f'[providers.own]\nbase_url = "{OWN}" # mine\napi_key = "k"\n')
    overlay, _ = lead("kimi", tmp_path)
    assert (
        overlay.files["config.toml"]
        == f'[providers.own]\nbase_url = "{LED}" # mine\napi_key = "k"\n'
    )
    assert overlay.mirrored == place
    with pytest.raises(ValueError, match="kimi login"):
        lead("kimi", tmp_path, KIMI_CODE_HOME=str(tmp_path / "none"))


@pytest.mark.parametrize("quote", ["'", '"'])
def test_kimis_settings_may_have_single_quotes_and_a_byte_order_mark(
    quote: str, tmp_path: Path
) -> None:
    text = f"\ufeff[providers.own]\nbase_url = {quote}{OWN}{quote}\nname = 'a'\n"
    write(tmp_path / ".kimi-code/config.toml", text)
    overlay, _ = lead("kimi", tmp_path)
    expected = f"[providers.own]\nbase_url = \"{LED}\"\nname = 'a'\n"
    assert overlay.files["config.toml"] == expected


def test_an_environment_variable_makes_vibes_providers_use_the_gateway(tmp_path: Path) -> None:
    own = f'[[providers]]\nname = "own"\napi_base = "{OWN}"\napi_key_env_var = "KEY"\n'
    write(tmp_path / ".vibe/config.toml", own)
    overlay, urls = lead("vibe", tmp_path)
    given = {item["name"]: item for item in json.loads(overlay.environment["VIBE_PROVIDERS"])}
    assert (given["own"]["api_base"], given["own"]["api_key_env_var"]) == (LED, "KEY")
    assert given["mistral"]["api_base"].endswith("/api.mistral.ai-v1")
    assert set(urls.values()) == {OWN, "https://api.mistral.ai/v1"}
    with pytest.raises(ValueError, match="VIBE_PROVIDERS"):
        lead("vibe", tmp_path, VIBE_PROVIDERS="{")


def test_cline_is_given_a_providers_file_with_the_gateway_url(tmp_path: Path) -> None:
    providers = {
        "openai-compatible": {"settings": {"apiKey": "k", "baseUrl": OWN}},
        "anthropic": {"settings": {"apiKey": "k"}},
        "cline": {"settings": {}},
    }
    write(tmp_path / ".cline/data/settings/providers.json", json.dumps({"providers": providers}))
    overlay, _ = lead("cline", tmp_path)
    given = json.loads(overlay.files["providers.json"])["providers"]
    assert given["openai-compatible"]["settings"] == {"apiKey": "k", "baseUrl": LED}
    assert given["anthropic"]["settings"]["baseUrl"].endswith("/api.anthropic.com")
    assert given["cline"]["settings"] == {}
    place = overlay.environment["CLINE_PROVIDER_SETTINGS_PATH"]
    assert place == str(tmp_path / "session/providers.json")
    with pytest.raises(ValueError, match="cline auth"):
        lead("cline", tmp_path, CLINE_DATA_DIR=str(tmp_path / "none"))


def test_continue_is_given_a_config_file_with_the_gateway_urls(tmp_path: Path) -> None:
    config = (
        "models:\n"
        f"  - name: mine # apiBase\n    provider: openai\n    apiBase: '{OWN}' # mine\n"
        f"  - apiBase: {OWN}\n    provider: anthropic\n    roles:\n      - chat\n"
        "  - name: theirs\n    provider: anthropic\n    model: claude-opus-5-5\n"
        "  - name: unknown\n    provider: unheard\n"
    )
    write(tmp_path / ".continue/config.yaml", config)
    overlay, urls = lead("continue", tmp_path)
    assert overlay.arguments == ("--config", str(tmp_path / "session/config.yaml"))
    (name,) = (name for name, url in urls.items() if url == "https://api.anthropic.com/v1")
    expected = config.replace(f"'{OWN}'", f'"{LED}"').replace(
        f"apiBase: {OWN}", f'apiBase: "{LED}"'
    )
    theirs = "theirs\n    provider: anthropic\n"
    expected = expected.replace(theirs, f'{theirs}    apiBase: "{GATEWAY}/{name}"\n')
    assert overlay.files["config.yaml"] == expected
    with pytest.raises(ValueError, match="apiBase"):
        lead("continue", tmp_path, CONTINUE_GLOBAL_DIR=str(tmp_path / "none"))


def test_qwen_is_given_the_gateway_url_as_an_option(tmp_path: Path) -> None:
    write(tmp_path / ".qwen/settings.json", json.dumps({"security": {"auth": {"baseUrl": OWN}}}))
    overlay, _ = lead("qwen", tmp_path)
    assert overlay.arguments == ("--openai-base-url", LED)
    home = tmp_path / "qwen"
    write(
        home / "settings.json", json.dumps({"security": {"auth": {"selectedType": "qwen-oauth"}}})
    )
    with pytest.raises(ValueError, match=r"qwen-oauth.*pass no gateway"):
        lead("qwen", tmp_path, QWEN_HOME=str(home))
    overlay, urls = lead("qwen", tmp_path, "--auth-type", "anthropic", QWEN_HOME=str(home))
    assert list(urls.values()) == ["https://api.anthropic.com"]
    with pytest.raises(ValueError, match="pass no gateway"):
        lead("qwen", tmp_path, "--openai-base-url", OWN)


def test_qwens_list_of_models_is_replaced_by_one_with_the_gateways_url(tmp_path: Path) -> None:
    """Its base URLs win over the option, so requests passed no gateway."""
    models = {"openai": [{"id": "a", "baseUrl": OWN, "envKey": "K"}, {"id": "b"}]}
    write(tmp_path / ".qwen/settings.json", json.dumps({"modelProviders": models}))
    write(tmp_path / "etc/qwen-code/settings.json", '{"ui": {"theme": "x"}}')
    overlay, _ = lead("qwen", tmp_path)
    place = tmp_path / "session/settings.json"
    assert overlay.environment == {"QWEN_CODE_SYSTEM_SETTINGS_PATH": str(place)}
    given = json.loads(overlay.files["settings.json"])
    assert given["ui"] == {"theme": "x"}
    assert given["modelProviders"]["openai"] == [
        {"id": "a", "baseUrl": LED, "envKey": "K"},
        {"id": "b"},
    ]


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://a.example", "https://", "https://u:p@a.example", "http://a/?k=1"),
        *("http://localhost:port", "http://a:99999", "http://[::1", "http://a b"),
    ],
)
def test_a_base_url_that_the_gateway_cannot_forward_to_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="base URL"):
        lead("gemini", tmp_path, GOOGLE_GEMINI_BASE_URL=url)


@pytest.mark.parametrize(
    ("name", "file", "text"),
    [
        ("codex", ".codex/config.toml", "= ="),
        ("opencode", ".config/opencode/opencode.json", "{"),
        ("claude", ".claude/settings.json", '{"env": '),
    ],
)
def test_an_agents_file_that_cannot_be_parsed_is_named_in_the_error(
    name: str, file: str, text: str, tmp_path: Path
) -> None:
    write(tmp_path / file, text)
    with pytest.raises(ValueError, match=Path(file).name):
        lead(name, tmp_path)


FIELDS = (
    "env providers provider security auth baseUrl baseURL options settings model_provider a openai"
)
VALUES = st.recursive(
    st.none() | st.integers(0, 9) | st.sampled_from([OWN, "nonsense", "http://[", ""]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(FIELDS.split()), inner, max_size=3)
    ),
    max_leaves=8,
)
FILES = {
    "claude": ".claude/settings.json",
    "codex": ".codex/auth.json",
    "qwen": ".qwen/settings.json",
    "opencode": ".config/opencode/opencode.json",
    "pi": ".pi/agent/models.json",
    "cline": ".cline/data/settings/providers.json",
}


@given(name=st.sampled_from(sorted(FILES)), value=VALUES, own=VALUES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_json_in_an_agents_file_gives_the_gateway_url_or_a_value_error(
    name, value, own, tmp_path
) -> None:
    write(tmp_path / FILES[name], json.dumps(value))
    content = json.dumps({"provider": own, "model_providers": own})
    with suppress(ValueError):
        overlay, _ = lead(name, tmp_path, OPENCODE_CONFIG_CONTENT=content)
        assert GATEWAY in f"{overlay}"


@pytest.mark.parametrize(
    "text",
    [
        "model_providers = 3",
        "model_provider = [1]",
        "[model_providers.openai]\nbase_url = 7",
        "providers = 3",
        f'providers = [{{name = [1], api_base = "{OWN}"}}]',
    ],
)
@pytest.mark.parametrize("name", ["codex", "kimi", "vibe"])
def test_invalid_toml_settings_give_the_gateway_url_or_a_value_error(
    name: str, text: str, tmp_path: Path
) -> None:
    for home in (".codex", ".kimi-code", ".vibe"):
        write(tmp_path / home / "config.toml", text)
    with suppress(ValueError):
        overlay, _ = lead(name, tmp_path)
        assert GATEWAY in f"{overlay}"


def test_a_running_gateway_keeps_the_path_of_the_base_url(tmp_path: Path) -> None:
    start = LaunchContext(
        {"OPENAI_BASE_URL": OWN}, tmp_path, tmp_path, tmp_path, Routes(GATEWAY, is_shared=True)
    )
    assert prepare_by_variables(start).environment["OPENAI_API_BASE"] == f"{GATEWAY}/team/v1"


def test_two_addresses_never_share_a_name() -> None:
    routes = Routes(GATEWAY)
    urls = ["http://a.example/v1", "https://a.example/v1", "https://a.example-v1"]
    assert {routes.through(url): url for url in [*urls, *urls]} == {
        f"{GATEWAY}/{name}": url for name, url in routes.urls.items()
    }
    assert sorted(routes.urls.values()) == sorted(urls)


def test_agents_are_found_by_their_programs() -> None:
    for agent in AGENTS:
        assert find_agent(agent.name) is find_agent(f"/opt/bin/{agent.program}") is agent
    assert find_agent("claude.exe") is find_agent("claude.cmd") is find_agent("claude")
    assert find_agent("python") is None


@pytest.mark.parametrize(
    ("platform", "environment", "place"),
    [
        ("linux", {}, ".local/share/refold"),
        ("linux", {"XDG_DATA_HOME": "/data"}, "/data/refold"),
        ("darwin", {}, "Library/Application Support/refold"),
        ("win32", {}, "AppData/Local/refold"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/refold"),
    ],
)
def test_the_data_directory_follows_the_conventions_of_the_platform(
    platform: str, environment, place: str
) -> None:
    home = Path("/home/mika")
    assert data_directory(home, environment, platform) == home / place
    assert user_store({"REFOLD_STORE": "edits.db"}) == "edits.db"


def test_refold_run_imports_few_modules() -> None:
    """An annotation once loaded the gateway's settings and so the compactor: 58 modules, 100 ms."""
    code = "import sys, refold.cli.run; print(*(n for n in sys.modules if n.startswith('refold')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert len(done.stdout.split()) <= 12, done.stdout


# --- a real gateway ----------------------------------------------------------------------------

CLIENT = """
import json, os, sys, urllib.request
words = "one two three four five six seven eight nine ten " * 400
messages = [{"role": "user", "content": "Fix the bug."}]
for n in range(12):
    call = {"id": f"c{n}", "type": "function", "function": {"name": "read", "arguments": json.dumps({"n": n})}}
    messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
    messages.append({"role": "tool", "tool_call_id": f"c{n}", "content": f"file {n} {words}"})
    body = json.dumps({"model": "m", "messages": messages}).encode()
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, body, {"content-type": "application/json", "authorization": "Bearer k"})
    urllib.request.urlopen(request).read()
print(sys.argv[1:])
sys.exit(7)
"""


def environment_of(home: Path, upstream: str = "http://127.0.0.1:9") -> dict[str, str]:
    paths = {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "PATH": os.environ["PATH"],
    }
    return {"HOME": str(home), "OPENAI_BASE_URL": f"{upstream}/v1", **paths}


def answer(received: Received) -> Reply:
    return Reply("Read on.", usage=(len(received.body) // 4, 10, 0))


@pytest.mark.parametrize("shadow", [False, True])
def test_a_command_runs_with_a_gateway_that_ends_with_it(
    shadow: bool, tmp_path: Path, monkeypatch
) -> None:
    (tmp_path / "refold.toml").write_text('log = "warning"\n[windows]\nm = 20_000\n')
    with ScriptedProvider(answer) as provider:
        environment = environment_of(tmp_path, provider.url)
        words = ["run", "--config", "refold.toml", *(["--shadow"] * shadow), sys.executable]
        done = subprocess.run(
            [*REFOLD, *words, "-c", CLIENT, "--port", "x"],
            env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (7, "['--port', 'x']\n"), done.stderr
    (line,) = done.stderr.splitlines()
    port = int(line.rpartition("127.0.0.1:")[2].partition("/")[0])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 1)
    ledger = open_ledger(
        user_store({"XDG_DATA_HOME": str(tmp_path / ".local/share")}), create=False
    )
    total = report_as_json(build_report(ledger.entries()))["total"]
    ledger.close()
    booked = total["shadow"] if shadow else total
    assert booked["calls"] == len(provider.received) == 12 and booked["edited"] > 0
    longest = max(len(received.body) for received in provider.received)
    assert (longest > 200_000) is shadow
    assert sorted(path.name for path in tmp_path.iterdir()) == [".local", "refold.toml"]
    if not shadow:
        set_home(monkeypatch, tmp_path)
        work_on_what_the_gateway_recorded()


def work_on_what_the_gateway_recorded() -> None:
    """Run all commands on a session of a gateway, with its edits in the gateway's store."""
    (session,) = refold("stats", "--last", "--json").json["sessions"]
    name, tokens = session["id"], session["tokens"]
    assert (session["client"], session["messages"]) == ("gateway", 25)
    assert tokens["sent"] < tokens["unedited"] / 2
    edits = refold("view", name[:8], "--json").json["sessions"][0]["items"]
    edit = next(item["edit"]["id"] for item in edits if item["edit"])
    assert "one two three" in refold("unfold", name[:8], edit).out
    assert refold("recall", "--last", "file 1 one two").code == 0
    assert refold("check", name, "--sent").code == 0
    assert refold("compact", name, "--to", "8k").code == 0
    assert refold("stats", name, "--json").json["sessions"][0]["tokens"]["sent"] <= 8_000
    assert refold("revert", name).code == 0
    tokens = refold("stats", name, "--json").json["sessions"][0]["tokens"]
    assert tokens["sent"] == tokens["unedited"]
    refused = refold("export", name)
    assert refused.code == 2 and "sessions of gateway are not written" in refused.err
    assert refold("stats", "--last", "--project", "/nowhere").code == 2


def test_a_command_runs_even_if_the_data_directory_cannot_be_created(tmp_path: Path) -> None:
    write(tmp_path / ".local/share/refold", "")
    done = subprocess.run(
        [*REFOLD, "run", "sh", "-c", "exit 3"],
        env=environment_of(tmp_path), capture_output=True, text=True, check=False,
    )  # fmt: skip
    warning, line = done.stderr.splitlines()
    assert warning == f"refold: {tmp_path}/.local/share/refold: File exists: nothing is kept"
    assert done.returncode == 3 and line.startswith("refold: sh runs through a gateway")


@pytest.mark.parametrize(
    ("store", "reason"),
    [
        (".", ".: cannot open: it is a directory"),
        ("postgresql://a.example/x", "a PostgreSQL store needs psycopg"),
    ],
)
def test_an_unusable_store_is_reported_after_the_command_has_ended(
    store: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "psycopg.py").write_text("raise ModuleNotFoundError('psycopg')")
    environment = environment_of(tmp_path)
    path = os.pathsep.join((str(tmp_path), environment.get("PYTHONPATH", "")))
    ask = (
        "import os, urllib.request as u; base = os.environ['OPENAI_BASE_URL'].split('/')[2];"
        "u.urlopen(f'http://{base}/refold/health')"
    )
    done = subprocess.run(
        [*REFOLD, "run", "--store", store, sys.executable, "-c", ask],
        env={**environment, "PYTHONPATH": path}, cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    _, trouble = done.stderr.splitlines()
    assert trouble.startswith("refold: nothing was kept: ") and reason.removeprefix(".") in trouble


def test_signals_reach_the_command_and_end_the_gateway(tmp_path: Path) -> None:
    waits = "import sys, time; print('up', flush=True); time.sleep(3_600)"
    process = subprocess.Popen(
        [*REFOLD, "run", sys.executable, "-c", waits],
        env=environment_of(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout and process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM
    port = int(errors.rpartition("127.0.0.1:")[2].partition("/")[0])
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except ConnectionRefusedError:
            return
    pytest.fail("the gateway goes on")


def test_a_process_that_an_agent_left_running_is_ended_and_no_other(tmp_path: Path) -> None:
    hub, since = tmp_path / "hub.json", "2026-11-23T12:00:00"
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3_600)"]) as process:
        for text in ("{", "[]", '{"pid": "x"}', '{"pid": -1, "startedAt": "2027"}'):
            write(hub, text)
            end_process(hub, since)
        write(hub, json.dumps({"pid": process.pid, "startedAt": "2026-11-23T11:59:59.999Z"}))
        end_process(hub, since)
        end_process(tmp_path / "none.json", since)
        assert process.poll() is None
        write(hub, json.dumps({"pid": process.pid, "startedAt": "2026-11-23T12:00:00.001Z"}))
        end_process(hub, since)
        assert process.wait(300) == -signal.SIGTERM
    end_process(hub, since)  # its process has ended


AGENT = """#!{python}
import os, subprocess, sys, time
from pathlib import Path
folder = Path(os.environ["CLINE_HUB_DISCOVERY_PATH"]).parent
if len(sys.argv) > 1:
    until = time.monotonic() + 5
    while time.monotonic() < until and folder.exists():
        (folder / str(time.monotonic_ns())).touch()
else:
    subprocess.Popen([sys.executable, __file__, "linger"])
    while len(list(folder.iterdir())) < 9:
        time.sleep(0.01)
    sys.exit(5)
"""


def test_a_child_process_that_writes_after_its_agent_has_ended_causes_no_error(
    tmp_path: Path,
) -> None:
    provider = {"settings": {"provider": "own", "baseUrl": OWN}}
    write(
        tmp_path / ".cline/data/settings/providers.json",
        json.dumps({"providers": {"own": provider}}),
    )
    write(tmp_path / "bin/cline", AGENT.format(python=sys.executable))
    (tmp_path / "bin/cline").chmod(0o755)
    environment = {**environment_of(tmp_path), "TMPDIR": str(tmp_path)}
    environment["PATH"] = os.pathsep.join([str(tmp_path / "bin"), environment["PATH"]])
    done = subprocess.run(
        [*REFOLD, "run", "cline"], env=environment, stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 5, done.stderr


class Ready(BaseHTTPRequestHandler):
    """Answers a gateway's readiness check, below a path."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/llm/refold/ready" else 404)
        self.end_headers()

    def log_message(self, *_) -> None:
        pass


class IPv6Server(HTTPServer):
    address_family = socket.AF_INET6


@pytest.mark.parametrize("place", ["http://127.0.0.1", "https://127.0.0.1", "http://[::1]"])
def test_a_running_gateway_may_be_behind_tls_and_a_path(
    place: str, tmp_path: Path, monkeypatch, capfd
) -> None:
    kind = IPv6Server if "::" in place else HTTPServer
    monkeypatch.setenv("SSL_CERT_FILE", str(write_certificate(tmp_path / "both.pem")))
    with kind((urlsplit(place).hostname, 0), Ready) as server:
        if place.startswith("https"):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tmp_path / "both.pem")
            server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"{place}:{server.server_port}/llm"
        assert run_main(["--gateway", url, "true"]) == 0, capfd.readouterr().err
        assert run_main(["--gateway", url + "/else", "true"]) == 2
        server.shutdown()


def test_ctrl_c_before_the_command_runs_prints_no_traceback(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [*REFOLD, "run", "--gateway", url, "true"],
            env=environment_of(tmp_path), stderr=subprocess.PIPE,
        )  # fmt: skip
        with silent.accept()[0] as line:
            assert line.recv(1) == b"G"  # it waits for the answer now
            process.send_signal(signal.SIGINT)
            assert process.communicate()[1].strip() == b""
    assert process.returncode == 130


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["nosuch"], 127, "nosuch is not installed"),
        (["./bad.toml"], 126, "./bad.toml is no program that can be started"),
        (["--config", "none.toml", "true"], 2, "--config none.toml: there is no such file"),
        (["--config", "bad.toml", "true"], 2, "--config bad.toml: x: unknown"),
        (["--gateway", "http://127.0.0.1:1", "true"], 2, "no gateway of Refold answers at http://127.0.0.1:1"),
        (["--gateway", "localhost:8484", "true"], 2, "--gateway localhost:8484: an address begins with http:// or https://"),
        (["--gateway", GATEWAY, "--shadow", "true"], 2, "--shadow, --port, --store and --config"),
        (["--gateway", GATEWAY, "--port", "8484", "true"], 2, "--shadow, --port, --store and --config"),
        (["codex"], 127, "codex is not installed; npm install -g @openai/codex installs it"),
        ([], 2, "Missing argument 'CLIENT'"),
    ],
)  # fmt: skip
def test_misuse_is_reported_in_one_line(
    words, code: int, line: str, tmp_path: Path, monkeypatch, capfd
) -> None:
    for name, value in environment_of(tmp_path).items():
        monkeypatch.setenv(name, "/bin:/usr/bin" if name == "PATH" else value)
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "bad.toml", "x = 1")
    assert run_main(words) == code
    (written,) = capfd.readouterr().err.splitlines()
    assert written.startswith(f"refold: {line}")


def test_another_port_is_used_if_the_given_one_is_taken(tmp_path: Path, monkeypatch, capfd) -> None:
    for name, value in environment_of(tmp_path).items():
        monkeypatch.setenv(name, value)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert run_main(["--port", port, "--print", "true"]) == 0
    printed = capfd.readouterr()
    assert printed.err == f"refold: port {port} is taken: another one is used\n"
    assert "OPENAI_BASE_URL=http://127.0.0.1:" in printed.out and f":{port}/" not in printed.out
    assert not (tmp_path / ".local").exists()
