"""Requests that web pages of other sites make a browser send to programs on its machine."""

import pytest

from refold.gateway.app import Gateway, OriginPolicy, check_origin, policy_for
from refold.gateway.config import Config, ConfigError, parse_config
from refold.gateway.settings import Upstream
from refold.testing.scripted_gateway import serving
from refold.testing.scripted_provider import ScriptedProvider
from tests.support.raw_http import statuses, talk

LOOPBACK = OriginPolicy(allows_local=True)
BODY = b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}'


def reason(sites: OriginPolicy = LOOPBACK, **headers: str) -> str:
    """Return why a request with these headers is refused, or an empty string."""
    named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    stranger = check_origin({b"host": b"localhost:8484", **named}, sites)
    return stranger.reason if stranger else ""


@pytest.mark.parametrize(
    "host",
    [
        *(
            "localhost",
            "LOCALHOST:8484",
            "localhost.",
            "127.0.0.1:8484",
            "127.1.2.3",
            "[::1]:8484",
            "app.localhost",
        ),
        *("refold", "refold:8484", "host.docker.internal:8484", "192.168.1.5", "[fd00::1]:80"),
    ],
)
def test_c13_host_names_that_cannot_be_public_are_accepted(host: str) -> None:
    assert reason(host=host) == ""


@pytest.mark.parametrize(
    "host",
    [
        *(
            "evil.example",
            "evil.example:8484",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "evil.internal.example",
        ),
        *(
            "[::1",
            "1.2.3.4.5",
            "evil.example.",
            "local\u0127ost.example",
            ".evil.example",
            "x@evil.example",
        ),
    ],
)
def test_c13_a_public_host_name_is_refused_against_dns_rebinding(host: str) -> None:
    """DNS rebinding: a page of such a site could read the answers of a local model without a
    key."""
    assert reason(host=host) == "foreign_host"
    assert (
        reason(OriginPolicy(allows_local=True, allowed_hosts=("models.example",)), host=host)
        == "foreign_host"
    )


def test_c13_configured_host_names_are_accepted_and_off_loopback_any_name_is() -> None:
    """A reverse proxy on the same machine forwards its public host name. On other addresses the
    names are unknown."""
    sites = OriginPolicy(allows_local=True, allowed_hosts=("models.example", "*.corp.example"))
    assert reason(sites, host="Models.example:443") == reason(sites, host="a.b.corp.example") == ""
    upstreams = (Upstream(name="u", url="http://127.0.0.1:9"),)
    here, away = {"server": ("127.0.0.1", 8484)}, {"server": ("10.0.0.1", 8484)}
    loopback, open_to_all = Config(upstreams=upstreams), Config(upstreams=upstreams, host="0.0.0.0")
    named = Config(upstreams=upstreams, host="0.0.0.0", allowed_hosts=("models.example",))
    for config, scope, expected in (
        (loopback, here, "foreign_host"),
        (loopback, away, ""),
        (open_to_all, here, ""),
        (open_to_all, away, ""),
        (named, away, "foreign_host"),
    ):
        assert reason(policy_for(config, scope), host="evil.example") == expected


@pytest.mark.parametrize(
    "origin",
    [
        *(
            "http://localhost:3000",
            "https://127.0.0.1",
            "http://[::1]:5173",
            "http://tauri.localhost",
            "http://localhost:8484",
        ),
        *(
            "vscode-webview://1f2e3d",
            "vscode-file://vscode-app",
            "app://obsidian.md",
            "file://",
            "tauri://localhost",
        ),
        *("capacitor://localhost", "chrome-extension://abcdef", "moz-extension://123-456"),
    ],
)
def test_c13_requests_from_local_pages_and_applications_are_accepted(origin: str) -> None:
    assert reason(origin=origin, sec_fetch_site="cross-site") == ""


@pytest.mark.parametrize(
    "origin",
    [
        *(
            "https://evil.example",
            "http://127.0.0.1.evil.example",
            "https://localhost.evil.example",
            "http://192.168.1.5",
        ),
        *(
            "http://refold.evil.example",
            "null",
            "NULL",
            "https://",
            "http://[::1",
            "https://evil.example:8484",
        ),
    ],
)
def test_c13_requests_from_pages_of_other_sites_are_refused(origin: str) -> None:
    assert reason(origin=origin) == "foreign_site"
    assert reason(origin=origin, content_type="text/plain;charset=UTF-8") == "foreign_site"
    assert (
        reason(
            OriginPolicy(allows_local=True, allowed_origins=("https://chat.example",)),
            origin=origin,
        )
        == "foreign_site"
    )


def test_c13_a_cross_site_request_without_an_origin_is_refused() -> None:
    """`cross-site` is an image or a GET form, `none` a typed address. Other programs send no such
    header."""
    assert reason(sec_fetch_site="cross-site") == "foreign_site"
    assert reason(sec_fetch_site="none") == reason(sec_fetch_site="same-origin") == reason() == ""


def test_c13_origin_null_is_accepted_with_a_key_or_a_json_body() -> None:
    """Electron with its checks off sends the origin `null`, and any page can. A key or JSON from
    another site needs a preflight."""
    assert (
        reason(origin="null", authorization="Bearer k")
        == reason(origin="null", x_api_key="k")
        == ""
    )
    assert reason(origin="null", content_type="application/json") == ""
    assert reason(origin="null", access_control_request_method="POST") == "foreign_site", (
        "its preflight"
    )
    assert reason(OriginPolicy(allows_local=True, allowed_origins=("null",)), origin="null") == ""
    assert reason(origin="https://evil.example", content_type="application/json") == "foreign_site"


def test_c13_configured_origins_and_the_gateways_own_origin_are_accepted() -> None:
    sites = OriginPolicy(
        allows_local=True,
        allowed_origins=("https://chat.example", "https://*.corp.example"),
        checks_names=False,
    )
    assert (
        reason(sites, origin="https://chat.example")
        == reason(sites, origin="https://a.corp.example")
        == ""
    )
    assert reason(sites, origin="https://models.example", host="models.example") == ""
    assert reason(sites, origin="https://chat.example:444") == "foreign_site"
    assert reason(sites, origin="http://chat.example") == "foreign_site"


def test_c13_admin_rules_accept_only_loopback_hosts_and_origins() -> None:
    assert (
        reason(OriginPolicy(), host="refold")
        == reason(OriginPolicy(), host="10.0.0.1")
        == "foreign_host"
    )
    assert reason(OriginPolicy(), origin="vscode-webview://1f2e3d") == "foreign_site"
    assert reason(OriginPolicy(), origin="null", authorization="Bearer k") == "foreign_site"
    assert reason(OriginPolicy(), origin="http://localhost:1") == ""


def ask(port: int, method: bytes, *headers: bytes) -> bytes:
    head = b"\r\n".join(
        [method + b" /v1/chat/completions HTTP/1.1", b"Connection: close", *headers]
    )
    return talk(port, head + b"\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY, wait=60)


def test_c13_a_page_of_another_site_reaches_no_upstream() -> None:
    """A form posted by any site to a proxied server without a key used to be forwarded and
    answered."""
    here = b"Host: 127.0.0.1:8484"
    with ScriptedProvider() as upstream:
        config = Config(upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s")
        with serving(config) as gateway:
            for headers in (
                (
                    here,
                    b"Origin: https://evil.example",
                    b"Content-Type: text/plain",
                    b"Sec-Fetch-Site: cross-site",
                ),
                (here, b"Origin: null", b"Content-Type: text/plain"),
                (b"Host: rebound.evil.example:8484", b"Origin: http://rebound.evil.example:8484"),
                (here, b"Sec-Fetch-Site: cross-site"),
            ):
                answer = ask(gateway.port, b"POST", *headers)
                assert statuses(answer) == [403] and b"access-control" not in answer.lower()
            preflight = (
                here,
                b"Origin: https://evil.example",
                b"Access-Control-Request-Method: POST",
            )
            assert statuses(ask(gateway.port, b"OPTIONS", *preflight)) == [403]
            assert upstream.received == []
            assert 'reason="foreign_site"' in gateway.gateway.render_metrics().decode()
            for headers in (
                (here, b"Origin: http://localhost:3000"),
                (here, b"Origin: vscode-webview://x"),
                (here,),
            ):
                assert statuses(ask(gateway.port, b"POST", *headers)) == [200]
            assert statuses(
                ask(gateway.port, b"OPTIONS", here, b"Origin: http://localhost:3000")
            ) != [403]
        assert isinstance(gateway.gateway, Gateway) and len(upstream.received) == 4


def test_c13_allowed_hosts_and_origins_are_read_and_validated() -> None:
    start = '[[upstream]]\nurl = "http://127.0.0.1:9"\n'
    config = parse_config(
        f'allowed_hosts = ["models.example"]\nallowed_origins = ["https://chat.example", "null"]\n{start}'
    )
    assert config.allowed_hosts == ("models.example",) and config.allowed_origins == (
        "https://chat.example",
        "null",
    )
    for line, words in (
        ('allowed_hosts = ["https://models.example"]', "toml: allowed_hosts: write names"),
        ('allowed_hosts = ["models.example:443"]', "toml: allowed_hosts: write names"),
        ('allowed_hosts = "models.example"', "toml: allowed_hosts: a list of texts is needed"),
        ('allowed_origins = ["chat.example"]', "toml: allowed_origins: write origins"),
        ('allowed_origins = ["https://chat.example/"]', "toml: allowed_origins: write origins"),
    ):
        with pytest.raises(ConfigError) as error:
            parse_config(f"{line}\n{start}")
        assert words in str(error.value)
