"""Routing of requests to upstreams: a key is sent only to the provider that it is for."""

import asyncio
import gzip
import json
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from functools import partial
from sys import getrefcount
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.gateway.config import Config
from refold.gateway.exchange import APIS, HTTPException, RequestHead
from refold.gateway.http.request import candidate_apis, generation_api
from refold.gateway.http.response import Tracing
from refold.gateway.logs import AccessLogEntry
from refold.gateway.relay import Relay
from refold.gateway.settings import (
    Limits,
    Upstream,
    choose_upstream,
    find_provider,
    identify_providers,
)
from refold.gateway.tenants import list_keys
from refold.testing.scripted_gateway import serving
from refold.testing.scripted_provider import ScriptedProvider

OPENAI = ("openai_chat", "openai_responses")


def up(name: str, *models: str, apis: tuple[str, ...] = ()) -> Upstream:
    return Upstream(name=name, url=f"https://{name}.example", models=models, apis=apis)


def choose(
    upstreams: list[Upstream], apis: tuple[str, ...], model: str = "", *, keyed: bool = True
) -> str:
    try:
        return choose_upstream(upstreams, apis, model, keyed=keyed).name
    except HTTPException:
        return ""


CLAUDE, FREE, QWEN = up("claude", "claude-*"), up("free"), up("qwen", "qwen*")
ANTHROPIC, BOTH, CHAT = (
    up("anthropic", apis=("anthropic",)),
    up("openai", apis=OPENAI),
    up("chat", apis=OPENAI[:1]),
)
TEAM = up("team", "claude-*", apis=("anthropic",))

CASES = [
    ([CLAUDE, FREE], ("anthropic",), "claude-opus-5-5", "claude"),
    ([CLAUDE, FREE], ("anthropic",), "other", "free"),
    ([CLAUDE, FREE], ("anthropic",), "", ""),  # the key fits both
    ([CLAUDE], ("anthropic",), "", "claude"),
    ([CLAUDE], ("anthropic",), "other", ""),
    ([CLAUDE, QWEN], OPENAI, "", ""),
    ([QWEN, ANTHROPIC], ("anthropic",), "", "anthropic"),
    ([QWEN, ANTHROPIC], OPENAI, "", "qwen"),
    ([QWEN, ANTHROPIC], ("gemini",), "", "qwen"),
    ([BOTH, ANTHROPIC], ("gemini",), "", ""),
    ([BOTH, ANTHROPIC], OPENAI, "", "openai"),
    ([CHAT, BOTH], OPENAI, "", "openai"),
    ([CHAT, BOTH], ("openai_chat",), "", "chat"),
    ([CHAT, up("responses", apis=OPENAI[1:])], OPENAI, "", ""),
    ([TEAM, ANTHROPIC], ("anthropic",), "", ""),
    ([TEAM, BOTH], ("anthropic",), "", "team"),
    ([TEAM, FREE], ("anthropic",), "", "team"),
    ([FREE, up("second")], OPENAI, "", "free"),
    ([ANTHROPIC], OPENAI, "gpt-5.1", "anthropic"),  # a single upstream takes everything
    ([], OPENAI, "", ""),
]


@pytest.mark.parametrize("case", CASES)
def test_a_request_with_a_key_is_routed_by_its_api_and_model(case) -> None:
    upstreams, apis, model, name = case
    assert choose(upstreams, apis, model) == name


def test_without_a_key_the_first_upstream_for_all_models_of_the_api_is_preferred() -> None:
    assert choose([CLAUDE, FREE], ("anthropic",), keyed=False) == "free"
    assert choose([CLAUDE, QWEN], OPENAI, keyed=False) == "claude"
    assert choose([TEAM, ANTHROPIC], ("anthropic",), keyed=False) == "anthropic"


def test_an_ambiguous_request_is_refused_with_the_candidates_and_a_hint() -> None:
    with pytest.raises(
        HTTPException,
        match=r"names no model and could be for any of claude, free: .* Bind them by apis",
    ) as no:
        choose_upstream([CLAUDE, FREE], ("anthropic",), keyed=True)
    assert no.value.status == 404
    with pytest.raises(HTTPException, match=r"^The request could be for any of chat, responses: "):
        choose_upstream(
            [CHAT, up("responses", apis=OPENAI[1:])], OPENAI, "text-embedding-3", keyed=True
        )


ups = st.builds(
    Upstream,
    name=st.uuids().map(str),
    url=st.just("https://a.example"),
    models=st.sampled_from([(), ("claude-*",), ("*",)]),
    apis=st.sampled_from([(), ("anthropic",), OPENAI, APIS]),
)


@given(
    st.lists(ups, min_size=2, max_size=4), st.sampled_from([("anthropic",), OPENAI, ("gemini",)])
)
def test_a_key_is_refused_if_several_upstreams_fit_and_one_is_for_some_models(
    upstreams: list[Upstream], apis: tuple[str, ...]
) -> None:
    """It is never sent to an upstream of other APIs, nor to a default upstream beside one for some
    models."""
    name = choose(upstreams, apis)
    bound = [upstream for upstream in upstreams if set(apis) & set(upstream.apis)]
    fitting = bound or [upstream for upstream in upstreams if not upstream.apis]
    if name:
        assert name in [upstream.name for upstream in fitting]
        assert len(fitting) == 1 or not any(upstream.models for upstream in fitting)
    else:
        assert not fitting or any(upstream.models for upstream in fitting)


def head(path: str, *headers: tuple[bytes, bytes], query: str = "") -> RequestHead:
    return RequestHead("GET", path, query, headers)


SPOKEN = [
    (head("/v1/messages/count_tokens"), "anthropic"),
    (head("/v1/messages/batches/b"), "anthropic"),
    (head("/api/hello", (b"x-api-key", b"k")), "anthropic"),
    (head("/v1/files", (b"x-api-key", b"k")), "anthropic"),
    (head("/v1/files", (b"anthropic-beta", b"files")), "anthropic"),
    (head("/api/oauth/profile", (b"authorization", b"Bearer sk-ant-oat01-x")), "anthropic"),
    (head("/v1/threads/t/messages", (b"authorization", b"Bearer k")), "openai_chat"),
    (head("/v1beta/openai/chat/completions"), "gemini"),
    (head("/v1beta/cachedContents"), "gemini"),
    (head("/v1beta1/projects/p/locations/l/cachedContents"), "gemini"),  # Google's token
    (head("/v1beta1/publishers/google/models"), "gemini"),
    (head("/v1/publishers/google/models"), "gemini"),
    (head("/v1/projects/p/locations/l/publishers/anthropic/models/c:rawPredict"), "gemini"),
    (head("/v1/publishers/google/models/m:countTokens"), "gemini"),
    (head("/v1/models/m:streamGenerateContent"), "gemini"),
    (head("/v1/models", query="key=k"), "gemini"),
    (head("/v1/models", query="a=b&key=k"), "gemini"),
    (head("/v1/responses/compact"), "openai_responses"),
    (head("/v1/responses/input_tokens", (b"x-api-key", b"k")), "openai_responses"),
    (head("/v1/chat/completions/c"), "openai_chat"),
]


@pytest.mark.parametrize("case", SPOKEN)
def test_the_api_of_a_request_is_guessed_from_path_headers_and_query(case) -> None:
    assert candidate_apis(case[0])[0] == case[1]


def test_a_request_without_hints_could_be_for_either_openai_api() -> None:
    assert candidate_apis(head("/v1/files", (b"authorization", b"Bearer sk-x"))) == OPENAI
    assert generation_api("POST", "/v1/threads/t/messages") == "", "not Anthropic's"


def test_keys_in_headers_and_query_are_found() -> None:
    assert list_keys(head("/x", (b"api-key", b"k"), query="key=q")) == [b"k", b"q"]
    assert not list_keys(head("/x", (b"x", b"k"), query="keys=k"))


def preset(name: str, **fields) -> Upstream:
    return Upstream(**{"name": name, **(find_provider(name) or {}), **fields})


SIGNED = b"AWS4-HMAC-SHA256 Credential=AKIA1/20261129/eu-west-1/bedrock/aws4_request, Signature=0"
BEDROCK = Upstream(name="bedrock", url="https://bedrock-runtime.eu-west-1.amazonaws.com")
AZURE = Upstream(name="azure", url="https://a.openai.azure.com")
PRESETS = [preset("openai"), preset("anthropic"), preset("openrouter")]


def send(upstreams: list[Upstream], path: str, key: bytes, model: str = "") -> str:
    """Return the upstream of a request with this key, or an empty string if it is refused."""
    asked = head(path, (b"authorization", key))
    keys = list_keys(asked)
    try:
        return choose_upstream(
            upstreams,
            candidate_apis(asked),
            model,
            keyed=bool(keys),
            owners=identify_providers(keys, path),
        ).name
    except HTTPException:
        return ""


CHAT_PATH, CONVERSE = "/v1/chat/completions", "/model/anthropic.claude-opus-5-5/converse"
ANTHROPIC_CALL = "/v1/messages", b"Bearer sk-ant-api03-1"
KEYS = [
    (PRESETS, CONVERSE, b"Bearer ABSKQmVk", ""),
    (PRESETS, CONVERSE, b"Bearer of-any-form", ""),
    (PRESETS, CONVERSE, SIGNED, ""),
    (PRESETS, "/v1/messages", SIGNED, ""),
    (PRESETS, CHAT_PATH, b"bearer ya29.a0Af", ""),
    (PRESETS, "/v2/chat", b"Bearer of-any-form", ""),
    (PRESETS, "/v1/fim/completions", b"Bearer of-any-form", ""),
    (PRESETS, CHAT_PATH, b"Bearer gsk_1", ""),
    (PRESETS, CHAT_PATH, b"Bearer\tgsk_1", ""),
    (PRESETS, CHAT_PATH, b'Bearer "gsk_1"', ""),
    (PRESETS, f"/{CONVERSE}/", b"Bearer of-any-form", ""),
    (PRESETS, "/openai/deployments/d/chat/completions", b"of-any-form", ""),
    (PRESETS, "/v1/messages", b"Bearer sk-kimi-1", ""),
    (PRESETS, CHAT_PATH, b"Bearer gho_1", ""),
    (PRESETS, CHAT_PATH, b"Bearer hf_1", ""),
    ([*PRESETS, AZURE], "/openai/deployments/d/chat/completions", b"of-any-form", "azure"),
    (PRESETS, CHAT_PATH, b"Bearer sk-or-v1-1", "openrouter"),
    (PRESETS, CHAT_PATH, b"Bearer sk-proj-1", "openai"),
    (PRESETS, CHAT_PATH, b"Bearer sk-1", "openai"),
    (PRESETS, "/v1/messages", b"Bearer sk-ant-api03-1", "anthropic"),
    ([*PRESETS, BEDROCK], CONVERSE, SIGNED, "bedrock"),
    ([*PRESETS, BEDROCK], "/v1/messages", b"Bearer ABSKQmVk", "bedrock"),
    ([preset("openai"), up("proxy", apis=("anthropic",))], "/v1/messages", SIGNED, "proxy"),
    *(
        (
            [Upstream(name="proxy", url=url, apis=("anthropic",)), preset("openai")],
            *ANTHROPIC_CALL,
            "proxy",
        )
        for url in ("https://gateway.ai.cloudflare.com/v1/a/g/x", "https://ai-gateway.vercel.sh")
    ),  # which pass the providers' own keys on
    ([preset("openai")], CONVERSE, SIGNED, "openai"),  # a single upstream is the user's choice
]


@pytest.mark.parametrize("case", KEYS)
def test_a_key_is_not_sent_to_another_provider(case) -> None:
    upstreams, path, key, name = case
    assert send(upstreams, path, key) == name


def test_a_key_is_not_sent_to_another_provider_that_serves_the_model() -> None:
    both = [preset("openrouter", models=("claude-*",)), preset("anthropic")]
    assert send(both, "/v1/messages", b"Bearer sk-ant-1", "claude-opus-5") == "anthropic"
    assert send(both, "/v1/messages", b"Bearer sk-or-v1-1", "claude-opus-5") == "openrouter"


def test_a_refusal_names_the_provider_of_the_key_and_a_remedy() -> None:
    config = Config(upstreams=tuple(PRESETS), salt=b"s")
    with serving(config) as gateway:
        status, error = ask(gateway, CONVERSE, b"{}", authorization="Bearer ABSKQmVk")
    assert status == 404
    assert b"The request is for Amazon, by its key or path, and none of openai, anthropic" in error
    assert b"Add an upstream for Amazon, with a prefix" in error
    assert b"ABSK" not in error


@pytest.mark.parametrize("part", ["a ", "Bearer ", " ", "/model/", "/v2/", "/converse/"])
def test_long_keys_and_paths_are_checked_without_delay(part: str) -> None:
    long = part * (100_000 // len(part))
    assert not identify_providers([long.encode()], long)


@contextmanager
def place(*specs: dict, **limits):
    """Return a gateway in front of upstreams with these settings."""
    with ExitStack() as stack:
        servers = {spec["name"]: stack.enter_context(ScriptedProvider()) for spec in specs}
        upstreams = tuple(Upstream(url=servers[spec["name"]].url, **spec) for spec in specs)
        gateway = stack.enter_context(
            serving(Config(upstreams=upstreams, salt=b"s", limits=Limits(**limits)))
        )
        yield gateway, servers


def ask(
    gateway, path: str, body: Any = None, method: str = "POST", **headers: str
) -> tuple[int, bytes]:
    fields = {
        "content-type": "application/json",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    request = urllib.request.Request(gateway.url + path, body, fields, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def body(model: str) -> bytes:
    return b' {"model" : "%b",  "messages": [], "input": "hi"}\n' % model.encode()


compress = partial(gzip.compress, mtime=0)
"""Compress to the same bytes at any time."""

TWO = ({"name": "a", "models": ("claude-*", "gemini-*", "gpt-*")}, {"name": "b"})
CONTENTS = json.dumps({"contents": [{"role": "user", "parts": [{"text": "x"}]}]}).encode()


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/v1/messages/count_tokens?beta=true", body("claude-opus-5-5")),
        ("/v1/responses/compact", body("gpt-5.1")),
        ("/v1/responses/input_tokens", body("gpt-5.1")),
        ("/v1/embeddings", body("gpt-embedding")),
        ("/v1beta/models/gemini-2.5-pro:countTokens", CONTENTS),
    ],
)
def test_side_requests_are_routed_by_model_and_sent_byte_for_byte(path: str, sent: bytes) -> None:
    """They are sent unchanged, compressed or not. Requests for other models go to the other
    upstream."""
    with place(*TWO) as (gateway, servers):
        assert ask(gateway, path, sent, x_api_key="KEY")[0] == 200
        assert (
            ask(gateway, path, compress(sent), x_api_key="KEY", content_encoding="gzip")[0] == 200
        )
        first, second = servers["a"].received
        assert (first.target, first.body, first.all("x-api-key")) == (path, sent, ["KEY"])
        assert (second.body, second.all("content-encoding")) == (compress(sent), ["gzip"])
        assert second.all("content-length") == [str(len(compress(sent)))]
        unlisted = path.replace("gemini-2.5", "other")
        named = {b"claude-opus-5-5", b"gpt-5.1", b"gpt-embedding"}
        for name in named:
            sent = sent.replace(name, b"other")
        assert ask(gateway, unlisted, sent, x_api_key="KEY")[0] == 200
        assert len(servers["a"].received) == 2 and len(servers["b"].received) == 1


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
def test_a_key_is_not_sent_on_a_guess(method: str) -> None:
    with place(*TWO) as (gateway, servers):
        status, text_sent = ask(gateway, "/v1/files", method=method, x_api_key="KEY")
        assert status == 404 and (method == "HEAD" or b"could be for any of a, b" in text_sent)
        assert ask(gateway, "/v1/files", method=method)[0] == 200
        assert not servers["a"].received and len(servers["b"].received) == 1
        assert ask(gateway, "/v1/models/claude-x", method=method, x_api_key="KEY")[0] == 200
        assert servers["a"].received[0].target == "/v1/models/claude-x"


def test_an_azure_deployment_is_routed_as_a_model() -> None:
    path = "/openai/deployments/gpt-x/chat/completions?api-version=1"
    with place(*TWO) as (gateway, servers):
        assert ask(gateway, path, b'{"messages": []}', api_key="KEY")[0] == 200
        assert (
            ask(
                gateway,
                path.replace("chat/completions", "embeddings"),
                b'{"input": "x"}',
                api_key="KEY",
            )[0]
            == 200
        )
        assert len(servers["a"].received) == 2 and not servers["b"].received


def test_a_single_upstream_with_models_takes_requests_that_name_no_model() -> None:
    with place({"name": "a", "models": ("claude-*",)}) as (gateway, servers):
        assert ask(gateway, "/v1/models", method="GET", x_api_key="KEY")[0] == 200
        assert (
            ask(gateway, "/v1/messages/count_tokens", body("claude-x"), x_api_key="KEY")[0] == 200
        )
        assert ask(gateway, "/v1/messages/count_tokens", body("gpt-x"), x_api_key="KEY")[0] == 404
        assert len(servers["a"].received) == 2


def test_an_anthropic_key_is_sent_to_the_upstream_bound_to_its_api() -> None:
    with place({"name": "o", "apis": OPENAI}, {"name": "a", "apis": ("anthropic",)}) as (
        gateway,
        servers,
    ):
        for method, path in (("HEAD", "/api/hello"), ("GET", "/v1/files"), ("GET", "/v1/models")):
            assert ask(gateway, path, method=method, x_api_key="KEY")[0] == 200
        assert not servers["o"].received and len(servers["a"].received) == 3
        assert ask(gateway, "/v1/files", method="GET", authorization="Bearer sk-x")[0] == 200
        assert len(servers["o"].received) == 1
        assert ask(gateway, "/v1/files", method="GET", x_goog_api_key="KEY")[0] == 404


def test_a_too_large_body_is_routed_without_its_model() -> None:
    """On paths that ask for no answer it was refused."""
    large = b'{"model": "claude-x", "input": "%b"}' % (b"x" * 2_000)
    with place({"name": "a", "models": ("claude-*",)}, {"name": "b"}, body_bytes=1_000) as (
        gateway,
        servers,
    ):
        assert ask(gateway, "/v1/messages/count_tokens", large)[0] == 200
        assert ask(gateway, "/v1/embeddings", large)[0] == 200
        assert ask(gateway, "/v1/embeddings", large, authorization="Bearer k")[0] == 404
        assert [asked.body for asked in servers["b"].received] == [large, large]
        assert ask(gateway, "/v1/messages", large)[0] == 413
        pieces = [large[at : at + 300] for at in range(0, len(large), 300)]
        for path, status in (("/count_tokens", 200), ("", 413)):
            assert ask(gateway, f"/v1/messages{path}", iter(pieces))[0] == status
        assert ask(gateway, "/v1/embeddings", iter(pieces))[0] == 200
        assert [asked.body for asked in servers["b"].received[2:]] == [large, large]


def test_a_limit_of_uploads_below_that_of_bodies_holds_for_uploads_alone() -> None:
    """A count of tokens above it was refused."""
    large = b'{"model": "claude-x", "input": "%b"}' % (b"x" * 2_000)
    with place({"name": "a"}, body_bytes=3_000, upload_bytes=1_000) as (gateway, _):
        assert ask(gateway, "/v1/messages/count_tokens", large)[0] == 200
        assert ask(gateway, "/v1/messages/count_tokens", iter([large, large]))[0] == 413
        assert ask(gateway, "/v1/files", large)[0] == 413


def test_a_body_in_pieces_is_held_once_while_its_upstream_answers() -> None:
    piece, held = b"x" * 1_000, list[int]()

    class Watched(Relay):
        async def _answer_read(self, *_: Any) -> None:
            held.append(getrefcount(piece))

    messages = [{"type": "http.request", "body": piece, "more_body": True} for _ in range(3)]

    async def receive() -> Any:
        return messages.pop() if messages else {"type": "http.request"}

    async def answer() -> None:
        writer: Any = SimpleNamespace(log_entry=AccessLogEntry(), on_disconnect=lambda _: int)
        config, nothing = Config(upstreams=(CLAUDE,), salt=b"s"), SimpleNamespace()
        relay: Any = Watched(config, nothing, nothing, Tracing(), nothing)  # type: ignore[arg-type]
        await relay.answer(RequestHead("POST", "/v1/messages", "", []), receive, writer)

    before = getrefcount(piece)
    asyncio.run(answer())
    assert held == [before - 3]
