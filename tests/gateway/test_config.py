"""refold.toml, flags and environment: accepted settings and error messages."""

import asyncio
import json
import logging
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold import gateway as gateways
from refold.core.strategy import Ask
from refold.gateway.config import (
    ADMIN_TOKEN,
    SALT,
    Config,
    ConfigError,
    is_loopback,
    load_config,
    parse_config,
    parse_upstream,
    with_environment,
)
from refold.gateway.logs import JSONFormatter, configure_logging
from refold.gateway.serve import create_app, with_salt
from refold.gateway.settings import Engine, Limits, Settings, Upstream, load_providers, match_prefix
from refold.strategies import ClearToolResults
from refold.testing.scripted_provider import ScriptedProvider
from refold.tokens.model_table import EngineProfile, Rates, Window
from tests.support.children import default_signals
from tests.support.command_line import refold
from tests.support.gateway_processes import free_port
from tests.support.raw_http import eventually
from tests.support.sources import FILES

WHOLE = """
host = "127.0.0.1"
port = 9000
store = ":memory:"
answer_headers = false
hold_seconds = 1

[[upstream]]
preset = "anthropic"
prefix = "/claude"

[[upstream]]
name = "here"
url = "http://127.0.0.1:8000/v1"
models = ["qwen*", "glm-?"]
apis = ["openai_chat"]

[limits]
body_bytes = 1_000_000
head_seconds = 2.5

[compaction]
soft = 0.5
hard = 0.8
target = 0.3
economy = false
refuse = ["thread", "previous_response_id"]
strategies = ["ClearToolResults(keep=2)"]

[compaction.native.anthropic.context_management]
edits = [{ type = "clear_tool_uses_20250919" }]

[prices.my-model]
input = 1
output = 5.0
read = 0.1
write = 1.25
hour = 2

[engines.here]
prefill_rate = 9_000
cache_blocks = 28_000
block_tokens = 32
protocol = "sglang"
kv_hints = true
end_after = "10m"
key_env = "ENGINE_KEY"

[windows]
"my-model" = 32_000
"other" = { context = 100_000, output = 8_000 }
"""


def test_a_whole_config_file_is_read() -> None:
    config = parse_config(WHOLE, environment={"ENGINE_KEY": "k"})
    assert config.port == 9000 and config.hold_seconds == 1.0 and not config.answer_headers
    claude, here = config.upstreams
    assert (claude.name, claude.prefix, claude.apis) == ("anthropic", "/claude", ("anthropic",))
    assert here.models == ("qwen*", "glm-?") and here.url == "http://127.0.0.1:8000/v1"
    assert config.limits == Limits(body_bytes=1_000_000, head_seconds=2.5)
    settings = config.settings
    assert (settings.soft, settings.hard, settings.target, settings.economy) == (
        0.5,
        0.8,
        0.3,
        False,
    )
    assert settings.refuse == {"thread", "previous_response_id"}
    assert settings.strategies == (ClearToolResults(keep=2),)
    assert settings.windows == {"my-model": Window(32_000), "other": Window(100_000, output=8_000)}
    assert settings.ask is None
    edits = [{"type": "clear_tool_uses_20250919"}]
    assert settings.native == {"anthropic": {"context_management": {"edits": edits}}}
    assert (
        settings.prices("my-model") == Rates(1.0, 5.0, 0.1, 1.25, hour=2.0)
        and settings.prices("other") is None
    )
    profile = EngineProfile(prefill_rate=9_000, cache_blocks=28_000, block_tokens=32)
    engine = Engine(profile=profile, protocol="sglang", kv_hints=True, end_seconds=600, key="k")
    assert settings.engines == {"here": engine}


def test_summaries_are_requested_from_the_configured_model() -> None:
    with ScriptedProvider(["A summary."]) as server:
        text = (
            f'[summaries]\nmodel = "gpt-6-sol"\nurl = "{server.url}/v1"\nkey_env = "SUMMARY_KEY"\n'
        )
        config = parse_config(text, environment={"SUMMARY_KEY": "k-1\n"})
        answer = asyncio.run(config.settings.ask.acall(Ask("Summarise.", 100)))
        assert answer.text == "A summary."
        assert server.received[0].json["model"] == "gpt-6-sol"
        assert server.received[0].header("authorization") == "Bearer k-1"
        assert answer.cost > 0, "by the table of prices"
        cooldown = config.settings.ask.breaker.cooldown
        assert cooldown <= 60, "a gateway runs for months: an outage of the model is no end of it"


ERRORS = {
    "port = ": "Invalid value (at end of document)",
    "port = 1\nport = 2": "Cannot overwrite a value (at end of document)",
    'prot = 9000\nhost = "x"': "prot: unknown; did you mean port?",
    '\n\nport = "9000"': "port: a whole number is needed, not '9000'",
    "port = true": "port: a whole number is needed, not true",
    'answer_headers = "yes"': "answer_headers: true or false is needed, not 'yes'",
    "[limits]\n\nbody_bytes = -1": "limits.body_bytes must be a number above 0, not -1",
    "[limits]\nheaders = 5\nhead_seconds = nan": "limits.head_seconds must be a number above 0, not nan",
    "[compaction]\nsoft = 0.5\nhard = 1.5": "compaction.hard must be a number from 0.01 to 1, not 1.5",
    "[compaction]\nhard = -1": "compaction.hard must be a number from 0.01 to 1, not -1.0",
    "[compaction]\n\ntarget = 0.0": "compaction.target must be a number from 0.01 to 1, not 0.0",
    "[compaction]\nhard = 0.5\nsoft = 0.9": "compaction.soft must not be above hard, and 0.9 is above 0.5",
    "[compaction]\nhard = 0.8\ntarget = 0.9": "compaction.target must not be above hard, and 0.9 is above 0.8",
    "[compaction]\nconversations = 0": "compaction.conversations must be a whole number of at least 1, not 0",
    "[compaction]\nread_above_bytes = 0\ncompute_threads = 0": "compaction.compute_threads must be a whole number of at least 1, not 0",
    "[compaction]\nreserve_tokens = -1": "compaction.reserve_tokens must be a whole number of at least 0, not -1",
    "[compaction]\ndecide_timeout_seconds = 0": "compaction.decide_timeout_seconds must be a number of at least 0.01, not 0.0",
    "[compaction]\nstore_cooldown_seconds = inf": "compaction.store_cooldown_seconds must be a number of at least 0, not inf",
    "[compaction]\nrefuse = ['threads']": "compaction.refuse may name thread, previous_response_id, not 'threads'",
    "[compaction.native.antropic]\nx = 1": "compaction.native.antropic: unknown; did you mean anthropic?",
    "[compaction.native]\nopenai_chat = 3": "compaction.native.openai_chat: a table is needed",
    "host = '::1'\nhold_seconds = -1": "hold_seconds must be a number of at least 0, not -1.0",
    "host = '::1'\nport = 65536": "port must be a number from 0 to 65535, not 65536",
    "host = '::1'\nworkers = 0": "workers must be a whole number of at least 1, not 0",
    "host = '::1'\nworkers = 1000000": "workers must be a number from 1 to 1000, not 1000000",
    "[[upstream]]\nname = ''\nurl = 'https://a.example'": "upstream[0].name is empty: write one",
    "host = '::1'\nlog = 'loud'": "log must be one of debug, info, warning, error, not 'loud'",
    "host = '::1'\nrecord = '7x'": "record: '7x' is no time: write it as 7d, 12h or 30m",
    "[prices.m]\noutput = 1\ninput = -1": "prices.m.input must be a number of at least 0, not -1.0",
    "[prices.m]\noutput = 1\ninput = 1": "prices.m: read is missing",
    "[windows]\nm = 'big'": "windows.m: a whole number is needed, not 'big'",
    "[windows]\nm = true": "windows.m: a whole number is needed, not true",
    "[limits]\nbody = 1": "limits.body: unknown; did you mean body_bytes?",
    "limits = 3": "limits: a table is needed",
    "[upstream]\nurl = 'https://a.example'": "upstream: write [[upstream]] for each",
    "[[upstream]]\nname = 'a'": "upstream[0]: an upstream needs a url or a preset",
    "[[upstream]]\nurl = 'https://a.example'\n\n[[upstream]]\nname = 'b'\nurl = 'ftp://b.example'": "upstream[1].url begins with http:// or https://, and 'ftp://b.example' does not",
    "[[upstream]]\npreset = 'openay'": "upstream[0].preset: no provider is called 'openay'; there are openai",
    "[[upstream]]\nurl = 'https://a.example'\nmodels = 'gpt'": "upstream[0].models: a list of texts is needed, not 'gpt'",
    "[[upstream]]\nurl = 'https://a.example'\napis = ['chat']": "upstream[0].apis: none is called 'chat'; there are anthropic",
    "[[upstream]]\nurl = 'https://a.example'\nprefix = 'a'": "upstream[0].prefix begins with a slash and does not end with one, and 'a' does not",
    "[[upstream]]\nurl = 'https://a.example'\nprefix = '/refold/x'": "upstream[0].prefix: the gateway answers /refold/x itself",
    "[[upstream]]\nurl = 'https://a.example'\n[[upstream]]\nurl = 'https://b.example'": "two upstreams are called 'default'",
    "port = 1\n[compaction]\nstrategies = ['Nothing()']": "compaction.strategies: no strategy is called 'Nothing'; there are Chunked",
    "[compaction]\nclock = 1": "compaction.clock: unknown; there are strategies",
    "[compaction]\nwindows = 1": "compaction.windows: unknown; there are strategies",
    "[prices.m]\ninput = '1'": "prices.m.input: a number is needed, not '1'",
    "[windows]\nm = { context = 0 }": "windows.m.context must be a whole number of at least 1, not 0",
    "[windows]\nm = {}": "windows.m: context is missing",
    "[engines.e]\ncache_blocks = 9": "engines.e: prefill_rate is missing",
    "[engines.e]\nprefill_rate = 9": "engines.e: cache_blocks is missing",
    "[engines.e]\nblocks = 9": "engines.e.blocks: unknown; did you mean cache_blocks?",
    "[engines.e]\ncache_blocks = 9\nprefill_rate = 0": "engines.e.prefill_rate must be a number of at least 0.001, not 0.0",
    "[engines.e]\nprefill_rate = 9\ncache_blocks = 9\nprotocol = 'vlm'": "engines.e.protocol may name vllm, sglang, dynamo, not 'vlm'",
    "[engines.e]\nprefill_rate = 9\ncache_blocks = 9\nkv_hints = true": "engines.e.kv_hints: only vllm and sglang have a form for them: set protocol",
    "[engines.e]\nprefill_rate = 9\ncache_blocks = 9\nprotocol = 'vllm'\nend_after = '5m'": "engines.e.end_after: only sglang and dynamo can be told: set protocol",
    "[engines.e]\nprefill_rate = 9\ncache_blocks = 9\nend_after = '5'": "engines.e.end_after: '5' is no time",
    "[engines.e]\nprefill_rate = 9\ncache_blocks = 9\nkey_env = 'NONE'": "engines.e.key_env: the environment has no NONE",
    "[[upstream]]\nurl = 'http://x:99999'": "upstream[0].url: 'http://x:99999' is no address",
    "[[upstream]]\nurl = 'http://u:secret@[::1'": "upstream[0].url: '[::1' is no address",
    "[[upstream]]\nurl = 'https://api..example'": "upstream[0].url: 'https://api..example' is no address",
    "[[upstream]]\nurl = 'http://a.example'\nproxy = 'http://p:99999'": "upstream[0].proxy must be an address",
    "[[upstream]]\nurl = 'http://a.example'\nproxy = 'http://u:secret@[::1'": "upstream[0].proxy must be an address",
    "store = ''": "store must be a file, postgresql://... or :memory:, not ''",
    "store = 'mysql://u:secret@x/y'": "store must be a file, postgresql://... or :memory:, not 'mysql'",
    "tenant = 'header:x user'": "tenant must be credential, one or header:NAME",
    "credential_headers = ['x team']": "credential_headers: 'x team' is no name of a header",
    "[summaries]\nmodel = ''": "summaries: model is missing",
    "[summaries]\nmodel = 'm'\nwindow_tokens = 0": "summaries.window_tokens must be a whole number of at least 1, not 0",
    "[summaries]\nmodel = 'm'\ntimeout_seconds = 0": "summaries.timeout_seconds must be a number of at least 0.01, not 0.0",
    "[summaries]\nurl = 'http://x.example'": "summaries: model is missing",
    "[summaries]\nmodel = 'm'\nkey_env = 'NONE'": "summaries.key_env: the environment has no NONE",
    "[summaries]\nmodel = 'm'\nurl = 'x.example'": "summaries.url: an endpoint's address begins with http:// or https://",
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors_name_file_and_key_and_what_to_write_instead(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_config(text, "refold.toml", {})
    assert str(error.value).startswith(f"refold.toml: {ERRORS[text]}")


@pytest.mark.parametrize("old", ["workers", "threads"])
def test_f13_a_key_of_another_table_is_refused(old: str) -> None:
    """`workers` meant processes in one table and threads in another. `threads` meant
    conversations."""
    with pytest.raises(ConfigError) as error:
        parse_config(f"workers = 2\n\n[compaction]\n{old} = 1\n", "refold.toml", {})
    assert str(error.value).startswith(f"refold.toml: compaction.{old}: unknown; ")


def test_f13_each_key_changes_its_own_setting() -> None:
    text = "workers = 2\n[compaction]\ncompute_threads = 3\nconversations = 7\nreserve_tokens = 9\nlower_output_cap = false\n"
    config = parse_config(text, "refold.toml", {})
    settings = config.settings
    assert (config.workers, settings.compute_threads, settings.conversations) == (2, 3, 7)
    assert (settings.reserve_tokens, settings.lower_output_cap) == (9, False)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"hard": True}, "hard must be a number"),
        ({"target": "0.4"}, "target must be a number"),
        ({"reserve_tokens": 0.5}, "reserve_tokens must be a whole number"),
        ({"refuse": "thread"}, "refuse must be a list of names"),
        ({"native": {"chat": {}}}, "native may name anthropic,"),
        ({"native": {"gemini": 3}}, "native must give fields for gemini, not 3"),
    ],
)
def test_settings_in_python_are_validated_too(wrong: dict, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Settings(**wrong)


@pytest.mark.parametrize("value", ["1", True, 0, float("nan")])
def test_limits_that_are_not_positive_numbers_are_refused(value) -> None:
    with pytest.raises(ValueError, match="headers must be a number above 0"):
        Limits(headers=value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: No such file"):
        load_config(tmp_path / "none.toml")
    (tmp_path / "odd.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"odd\.toml: not UTF-8"):
        load_config(tmp_path / "odd.toml")
    (tmp_path / "marked.toml").write_text("\ufeffport = 9000\n", encoding="utf-8")
    assert load_config(tmp_path / "marked.toml").port == 9000


@pytest.mark.parametrize("key", ["admin_token", "salt", "store"])
def test_a_secret_of_the_wrong_type_is_not_shown_in_the_error(key):
    """A token of digits without quotation marks used to appear in the journal."""
    with pytest.raises(ConfigError, match=rf"^refold.toml: {key}: a text is needed$"):
        parse_config(f"{key} = 1234567890123456")


@pytest.mark.parametrize(
    "table", ["[summaries]\nmodel = 'm'", "[engines.e]\nprefill_rate = 9\ncache_blocks = 9"]
)
def test_a_key_in_place_of_the_name_of_its_variable_is_not_shown_in_the_error(table: str) -> None:
    with pytest.raises(ConfigError, match="key_env: the environment has no such variable") as error:
        parse_config(f"{table}\nkey_env = 'sk-ant-secret'", "refold.toml", {})
    assert "secret" not in str(error.value)


def read_error(text: str) -> str:
    try:
        parse_config(text, "refold.toml", {})
    except ConfigError as error:
        return str(error)
    return "refold.toml: fine"


@given(st.text(max_size=200))
def test_any_text_is_settings_or_an_error_that_names_the_file(text: str) -> None:
    assert read_error(text).startswith("refold.toml:")


def test_secrets_come_from_the_environment_and_are_not_shown() -> None:
    config = with_environment(Config(admin_token="from file"), {ADMIN_TOKEN: "t" * 16, SALT: "s"})
    assert (config.admin_token, config.salt) == ("t" * 16, b"s")
    assert "t" * 16 not in repr(config) and "b's'" not in repr(config)


LONG = "t" * 16


@pytest.mark.parametrize(
    ("host", "token", "fine"),
    [
        ("127.0.0.1", "", True),
        ("127.1.2.3", "", True),
        ("::1", "", True),
        ("localhost", "", True),
        ("0.0.0.0", "", False),
        ("0.0.0.0", "short", False),
        ("0.0.0.0", LONG, True),
        ("::", "", False),
        ("192.168.1.2", "", False),
        ("example.com", "", False),
        ("", "", False),
    ],
)
def test_other_machines_may_reach_it_only_with_a_token(host: str, token: str, fine: bool) -> None:
    config = Config(
        upstreams=(Upstream(name="u", url="https://a.example"),), host=host, admin_token=token
    )
    if fine:
        assert config.check_servable() is config
    else:
        with pytest.raises(ValueError, match="other machines"):
            config.check_servable()


@pytest.mark.parametrize("token", [f"{LONG} ", f" {LONG}", f"{LONG}\n"])
def test_an_admin_token_that_no_header_can_carry_is_refused(token: str) -> None:
    """One with a blank at its end used to be taken, and then nobody could administer. Secrets in
    files often end with a newline."""
    config = Config(upstreams=(Upstream(name="u", url="https://a.example"),), admin_token=token)
    with pytest.raises(ValueError, match="REFOLD_ADMIN_TOKEN begins or ends with white space"):
        config.check_servable()


def test_names_that_only_begin_like_a_loopback_name_are_not_loopback() -> None:
    assert not is_loopback("localhost.evil.example") and not is_loopback("127.0.0.1.evil.example")


def test_upstreams_on_the_command_line_are_parsed_or_refused() -> None:
    assert parse_upstream("https://a.example/x") == Upstream(
        name="default", url="https://a.example/x"
    )
    assert parse_upstream("anthropic").apis == ("anthropic",)
    assert parse_upstream("local=http://127.0.0.1:1").prefix == "/local"
    for wrong in (
        "nobody",
        "https://user:secret@a.example",
        "https://a.example?key=secret",
        "http://",
        "ftp://a",
        "http://a ",
        "http://a/b c",
    ):
        with pytest.raises(ValueError) as error:  # noqa: PT011 - the text is checked below
            parse_upstream(wrong)
        assert "secret" not in str(error.value)


def test_every_provider_preset_is_a_valid_upstream() -> None:
    for name, preset in load_providers().items():
        assert Upstream(name=name, url=preset["url"], apis=tuple(preset.get("apis", ()))).url


def test_provider_hosts_are_written_only_in_providers_toml() -> None:
    hosts = {urlsplit(provider["url"]).netloc for provider in load_providers().values()}
    texts = {path.name: path.read_text(encoding="utf-8") for path in FILES}
    twice = {name: host for name, text in texts.items() for host in hosts if host in text}
    assert twice == {}, "providers.toml has it"


@given(
    st.lists(st.sampled_from(["", "/a", "/a/b", "/ab"]), max_size=4),
    st.sampled_from(["/a", "/a/b/c", "/ab", "/x"]),
)
def test_the_longest_prefix_wins(prefixes: list[str], path: str) -> None:
    ups = [
        Upstream(name=str(n), url="https://a.example", prefix=prefix)
        for n, prefix in enumerate(prefixes)
    ]
    matches, rest = match_prefix(ups, path)
    assert rest.startswith("/")
    assert len({upstream.prefix for upstream in matches}) <= 1
    fitting = [
        prefix
        for prefix in prefixes
        if prefix and (path == prefix or path.startswith(prefix + "/"))
    ]
    assert {upstream.prefix for upstream in matches} <= (
        {max(fitting, key=len)} if fitting else {""}
    )


def test_a_salt_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    config = Config(store=str(tmp_path / "edits.db"))
    first = with_salt(config)
    assert len(first.salt) == 32 and with_salt(config).salt == first.salt
    assert stat.S_IMODE((tmp_path / "edits.db.salt").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["edits.db.salt"]
    assert with_salt(Config(salt=b"own")).salt == b"own"
    assert with_salt(Config(store=":memory:")).salt != with_salt(Config(store=":memory:")).salt


@pytest.mark.usefixtures("loggers")
def test_create_app_reads_its_configuration_from_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "refold.toml"
    path.write_text(
        f'store = "{tmp_path}/e.db"\nlog = "error"\n[[upstream]]\nurl = "https://a.example"\n'
    )
    app = create_app({"REFOLD_CONFIG": str(path)})
    assert app.config.upstreams[0].url == "https://a.example"
    named = create_app({"REFOLD_CONFIG": str(path), "REFOLD_UPSTREAMS": "openai gemini"})
    assert [upstream.name for upstream in named.config.upstreams] == ["openai", "gemini"]
    with pytest.raises(ValueError, match="no log level is called 'loud'"):
        configure_logging("loud")


def test_a_log_line_has_the_type_and_location_of_an_error_but_no_message() -> None:
    def fail() -> None:
        raise RuntimeError("SECRET")

    try:
        fail()
    except RuntimeError:
        record = logging.LogRecord(
            "refold", logging.ERROR, __file__, 1, "it failed", (), sys.exc_info()
        )
    record.fields = {"status": 500}
    line = json.loads(JSONFormatter().format(record))
    assert line["error"] == "RuntimeError" and line["status"] == 500 and line["level"] == "error"
    assert line["at"][-1].startswith("test_config.py:") and "SECRET" not in json.dumps(line)


def test_every_public_name_of_the_package_can_be_imported() -> None:
    assert all(getattr(gateways, name) for name in gateways.__all__)
    assert set(gateways.__all__) <= set(dir(gateways))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        gateways.nothing  # noqa: B018 - reading it is the test


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "refold", "serve", *arguments]


def test_refold_serve_reports_configuration_errors_in_one_line(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.toml").write_text("prot = 1\n")
    for arguments, error in (
        ((), "no upstream"),
        (("--config", "bad.toml"), "bad.toml: prot: unknown; did you mean port?"),
        (("--upstream", "https://a.example", "--host", "0.0.0.0"), ADMIN_TOKEN),
    ):
        done = refold("serve", *arguments)
        assert done.code == 2 and error in done.err and len(done.err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["bad.toml"]


@pytest.mark.slow
def test_refold_serve_serves_and_stops(tmp_path: Path) -> None:
    """The real command in its own process: one flag is enough, and SIGTERM stops it cleanly."""
    port = str(free_port())
    with ScriptedProvider(["Hello."]) as upstream_server:
        with default_signals():
            process = subprocess.Popen(
                command("--upstream", upstream_server.url, "--port", port),
                cwd=tmp_path,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": ""},
            )
        try:
            url = f"http://127.0.0.1:{port}"
            assert eventually(lambda: answers(f"{url}/refold/ready"))
            body = {"model": "m", "messages": [{"role": "user", "content": "SECRET CONTENT"}]}
            answer = httpx.post(
                f"{url}/v1/chat/completions",
                json=body,
                headers={"authorization": "Bearer SECRET KEY"},
            )
            assert answer.json()["choices"][0]["message"]["content"] == "Hello."
        finally:
            process.send_signal(signal.SIGTERM)
            log = process.communicate(timeout=300)[1]
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    request = next(line for line in lines if line["event"] == "request")
    assert (request["api"], request["status"], request["usage"]["input"]) == (
        "openai_chat",
        200,
        100,
    )
    assert "SECRET" not in log
    contents = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    data = tmp_path / ".local" / "share" / "refold"
    assert b"SECRET" not in contents and (data / "refold.db.salt").exists()
    assert stat.S_IMODE(data.stat().st_mode) == 0o700


def answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


def test_unset_soft_and_target_levels_are_lowered_to_the_hard_level():
    settings = Settings(hard=0.3)
    assert (settings.soft, settings.target) == (0.3, 0.3)
    assert (Settings().soft, Settings().target) == (0.7, 0.4)


@pytest.mark.parametrize("token", ["密码" * 8, "token with a line\nbreak"])
def test_an_admin_token_that_no_browser_can_send_is_refused(token: str):
    config = Config(upstreams=(Upstream(name="u", url="https://a.example"),), admin_token=token)
    with pytest.raises(ValueError, match="printable ASCII"):
        config.check_servable()
