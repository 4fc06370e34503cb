"""How tenants are identified: keys in any header, renewed tokens, and claims that nobody has
verified yet."""

import base64
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold.edits import Edit
from refold.gateway.config import Config, ConfigError, parse_config
from refold.gateway.exchange import RequestHead
from refold.gateway.serve import create_gateway
from refold.gateway.settings import Settings, Upstream
from refold.gateway.tenants import MAX_ACCEPTED, Tenant, TenantResolver, is_key, redact_keys
from refold.messages import user
from refold.stores.edit_json import load_edit
from refold.stores.sqlite import SQLiteStore
from refold.testing.scripted_gateway import Serving
from refold.testing.scripted_provider import Received, Reply, ScriptedProvider
from refold.tokens.model_table import Window

SALT = b"salt"
ISSUER = "https://auth.example"
HOME = Upstream(name="home", url="http://127.0.0.1:1", issuers=(ISSUER,))


def head(*headers: tuple[str, str], query: str = "") -> RequestHead:
    return RequestHead(
        "POST",
        "/v1/x",
        query,
        tuple((name.lower().encode(), value.encode()) for name, value in headers),
    )


def tenant(
    *headers: tuple[str, str], query: str = "", tenants: TenantResolver | None = None
) -> str:
    who = (tenants or TenantResolver(SALT)).identify(head(*headers, query=query), (HOME,))
    return who.claimed or who.credential


# --- keys in any header (C6) ----------------------------------------------------------------------

KEYS = (
    "Authorization", "x-api-key", "x-goog-api-key", "api-key", "Cookie", "Ocp-Apim-Subscription-Key", "x-litellm-api-key",
    "x-portkey-api-key", "x-portkey-virtual-key", "Helicone-Auth", "cf-aig-authorization", "x-functions-key", "x-bf-vk",
    "x-amz-security-token", "x-auth-token", "x-forwarded-access-token", "proxy-authorization", "chatgpt-account-id",
    "OpenAI-Organization", "OpenAI-Project", "x-forwarded-email", "x-openwebui-user-id", "x-apikey",
)  # fmt: skip
OTHERS = (
    "User-Agent",
    "Idempotency-Key",
    "x-request-id",
    "x-session-id",
    "x-title",
    "x-stainless-retry-count",
    "x-csrf-token",
    "dpop",
)
QUERIES = (
    "key",
    "api_key",
    "api-key",
    "access_token",
    "Subscription-Key",
    "code",
    "%6Bey",
    "KEY",
    "auth_token",
    "token",
    "sig",
)
VALUES = st.text(
    st.characters(codec="ascii", exclude_characters=";,&#%+ \t\v\f\r\n\0"), min_size=1, max_size=12
)


@pytest.mark.parametrize("name", KEYS)
def test_c6_callers_with_different_keys_in_any_header_are_different_tenants(name: str):
    """Only four headers used to count. With a cookie, a gateway key or a cloud key all callers were
    one tenant."""
    tenants = {
        tenant((name, "k=one")),
        tenant((name, "k=two")),
        tenant(),
        tenant(("authorization", "Bearer same")),
    }
    both = {
        tenant(("x-other-key", "same"), (name, "k=one")),
        tenant(("x-other-key", "same"), (name, "k=two")),
    }
    assert len(both) == 2
    assert len(tenants) == 4
    assert tenant((name, "k=one")) == tenant((name.upper(), "k=one"))


@pytest.mark.parametrize("name", QUERIES)
def test_c6_callers_with_different_keys_in_the_url_are_different_tenants(name: str):
    assert (
        len({tenant(query=f"{name}=one&a=1"), tenant(query=f"a=1&{name}=two"), tenant(query="a=1")})
        == 3
    )
    assert "secret" not in redact_keys(f"/v1/x?a=1&{name}=secret&b=2")


@pytest.mark.parametrize("name", OTHERS)
def test_c6_headers_that_change_with_every_request_do_not_change_the_tenant(name: str):
    assert tenant((name, "1"), ("x-api-key", "k")) == tenant((name, "2"), ("x-api-key", "k"))
    assert not is_key(name.lower().encode())


SHOWN = st.lists(st.tuples(st.sampled_from(KEYS), VALUES), max_size=4)


@settings(max_examples=200)
@given(
    first=SHOWN,
    second=SHOWN,
    beside=st.lists(st.tuples(st.sampled_from(OTHERS), VALUES), max_size=3),
)
def test_c6_callers_share_a_tenant_only_if_they_show_the_same_credentials(first, second, beside):
    """Equal credentials in another header order are the same tenant."""
    alike = sorted((n.lower(), v) for n, v in first) == sorted((n.lower(), v) for n, v in second)
    assert (tenant(*first, *beside) == tenant(*beside, *second)) == alike


def test_c6_a_key_containing_the_name_of_another_header_is_not_read_as_two_keys():
    """Otherwise somebody who knows two keys, but not where the first ends, could send them as
    one."""
    assert tenant(("api-key", "a"), ("cookie", "b")) != tenant(("api-key", "acookieb"))
    assert tenant(("x-key-a", "b")) != tenant(("x-key", "-ab"))


@settings(max_examples=50)
@given(first=VALUES, second=VALUES)
def test_c6_credential_headers_can_be_added_by_configuration(first, second):
    tenants = parse_config(
        'credential_headers = ["X-Team"]\n[[upstream]]\nurl = "http://127.0.0.1:1"\n'
    ).tenants
    assert (
        tenant(("x-team", first), tenants=tenants) == tenant(("x-team", second), tenants=tenants)
    ) == (first == second)
    assert tenant(("x-team", first)) == ""


def test_c6_cookies_of_a_proxy_do_not_change_the_tenant():
    """Proxies renew them every half hour, and each time would begin a new tenant."""
    assert tenant(("cookie", "sid=1; __cf_bm=a; AWSALB=x")) == tenant(
        ("cookie", "__cf_bm=b; sid=1;AWSALB=y")
    )
    assert tenant(("cookie", "sid=1")) != tenant(("cookie", "sid=2"))
    assert tenant(("cookie", "__cf_bm=b")) == ""
    assert tenant(("cookie", "CF_Authorization=1")) != tenant(("cookie", "CF_Authorization=2"))


def test_c6_a_recorded_client_is_one_tenant_from_request_to_request(shared: Path):
    for path in sorted((shared / "fixtures/requests").glob("*.jsonl")):
        requests = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        shown = {
            tenant(*request["headers"].items(), query=request["path"].partition("?")[2])
            for request in requests
        }
        assert len(shown - {""}) <= 1, path.stem


# --- renewed tokens (C7) --------------------------------------------------------------------------


def encode(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def token(
    subject: str = "anna", issuer: str = ISSUER, number: int = 0, secret: str = "the issuer's"
) -> str:
    """Return a token as an issuer signs it. Without the issuer's secret it is a forgery."""
    claims = f"{encode({'alg': 'HS256'})}.{encode({'iss': issuer, 'sub': subject, 'exp': number})}"
    return f"{claims}.{blake2b((claims + secret).encode(), digest_size=16).hexdigest()}"


def bearer(credential: str) -> tuple[str, str]:
    return "authorization", f"Bearer {credential}"


def test_c7_a_renewed_token_keeps_its_caller_in_the_same_tenant():
    assert tenant(bearer(token())) == tenant(bearer(token(number=1)))
    assert tenant(bearer(token())) != tenant(bearer(token("bob")))
    assert tenant(bearer(token())) != tenant(bearer(token(issuer="https://other.example")))
    assert tenant(bearer(token()), ("chatgpt-account-id", "1")) != tenant(
        bearer(token()), ("chatgpt-account-id", "2")
    )
    assert tenant(bearer(token()), ("x-api-key", "1")) != tenant(
        bearer(token(number=1)), ("x-api-key", "2")
    )


def test_c7_requests_signed_with_one_access_key_have_one_tenant():
    def sign(key: str, number: int) -> tuple[str, str]:
        scope = f"{key}/20261122/us-east-1/bedrock/aws4_request"
        return (
            "authorization",
            f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature={number:064x}",
        )

    tenants, amazon = (
        TenantResolver(SALT),
        Upstream(name="a", url="https://bedrock-runtime.us-east-1.amazonaws.com"),
    )
    who = [
        tenants.identify(head(sign(*key)), (amazon,))
        for key in (("AKIA1", 1), ("AKIA1", 2), ("AKIA2", 1))
    ]
    assert who[0].claimed == who[1].claimed != who[2].claimed
    assert len({identity.credential for identity in who}) == 3
    assert (
        not TenantResolver(SALT).identify(head(sign("AKIA1", 1)), (HOME,)).claimed
    )  # a server that does not check signatures


@pytest.mark.parametrize(
    "credential",
    [
        "opaque",
        "a.b.c",
        f"x.{encode([])}.y",
        f"x.{encode({'iss': ISSUER})}.y",
        f"x.{encode({'iss': ISSUER, 'sub': 7})}.y",
        "." * 9,
    ],
)
def test_c7_a_credential_without_claims_is_identified_by_its_bytes(credential: str):
    who = TenantResolver(SALT).identify(head(bearer(credential)), (HOME,))
    assert who.credential and not who.claimed


def test_c7_a_token_claim_is_ignored_if_the_upstream_does_not_check_it():
    unchecking = Upstream(name="other", url="http://127.0.0.1:1")
    assert not TenantResolver(SALT).identify(head(bearer(token())), (unchecking,)).claimed
    stranger = head(bearer(token(issuer="https://other.example")))
    assert (
        not TenantResolver(SALT).identify(stranger, (HOME,)).claimed
    )  # of an issuer whose tokens it does not verify
    twice = head(bearer(token()), bearer(token("bob")))
    assert (
        not TenantResolver(SALT).identify(twice, (HOME,)).claimed
    )  # which one is verified is unknown


def test_c7_a_claim_checked_by_one_upstream_is_not_valid_at_another():
    """Each upstream may have a different user with the same subject."""
    away = Upstream(name="away", url="http://127.0.0.1:1", issuers=(ISSUER,))
    here, there = (
        TenantResolver(SALT).identify(head(bearer(token())), (upstream,)).claimed
        for upstream in (HOME, away)
    )
    assert here and there and here != there


def test_c7_a_token_that_one_upstream_has_accepted_is_still_a_claim_at_another():
    """It used to count as accepted everywhere. At an upstream that checks no tokens, token counts
    were then made for the tenant without a key."""
    away = Upstream(name="away", url="http://127.0.0.1:1", issuers=(ISSUER,))
    unchecking = Upstream(name="other", url="http://127.0.0.1:1")
    tenants = TenantResolver(SALT)
    tenants.accept(tenants.identify(head(bearer(token())), (HOME,)))
    who = [tenants.identify(head(bearer(token())), (each,)) for each in (HOME, away, unchecking)]
    assert [tenants.is_accepted(each) for each in who] == [True, False, False]


@settings(max_examples=100)
@given(
    first=st.tuples(VALUES, VALUES, st.integers(0, 3)),
    second=st.tuples(VALUES, VALUES, st.integers(0, 3)),
)
def test_c7_tokens_share_a_claim_only_if_issuer_and_subject_are_equal(first, second):
    anyone = Upstream(name="home", url="http://127.0.0.1:1", issuers=("*.example",))
    identities = [
        TenantResolver(SALT).identify(
            head(bearer(token(subject, f"{issuer}.example", number))), (anyone,)
        )
        for issuer, subject, number in (first, second)
    ]
    assert (identities[0].claimed == identities[1].claimed) == (first[:2] == second[:2])
    assert (
        identities[0].claimed != identities[0].credential
        and identities[1].claimed != identities[0].credential
    )


def test_c7_the_number_of_remembered_accepted_tokens_is_limited():
    tenants = TenantResolver(SALT)
    who = [Tenant(str(n), "claimed", is_reusable=True) for n in range(MAX_ACCEPTED + 1)]
    for each in who:
        tenants.accept(each)
    assert tenants.is_accepted(who[-1]) and not tenants.is_accepted(who[0])
    tenants.accept(Tenant("new with every request", "claimed"))
    assert not tenants.is_accepted(Tenant("new with every request"))


# --- through the whole gateway --------------------------------------------------------------------

SECRET = "purple elephants dance"


def session(steps: int, last: str = "Go on.") -> dict:
    messages: list[dict] = [{"role": "user", "content": f"Find the bug. Remember: {SECRET}."}]
    for i in range(steps):
        call = {
            "id": f"c{i}",
            "type": "function",
            "function": {"name": "read", "arguments": json.dumps({"n": i})},
        }
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append(
            {"role": "tool", "tool_call_id": f"c{i}", "content": f"file {i}: " + "text " * 500}
        )
    return {"model": "m", "messages": [*messages, {"role": "user", "content": last}]}


def checking(asked: Received) -> Reply:
    """An upstream that verifies its tokens and quotes refused content."""
    shown = {name.lower(): value for name, value in asked.headers}.get("authorization", "")
    claims, _, signature = shown.removeprefix("Bearer ").rpartition(".")
    if signature == blake2b((claims + "the issuer's").encode(), digest_size=16).hexdigest():
        return Reply("Hello.")
    quoted = {"error": {"message": "bad token", "request": asked.body.decode()}}
    return Reply(status=401, body=json.dumps(quoted))


class Place:
    def __init__(self, url: str, upstream: ScriptedProvider) -> None:
        self.url, self.upstream = url, upstream

    def say(self, credential: str, body: dict) -> httpx.Response:
        headers = {"authorization": f"Bearer {credential}"}
        return httpx.post(f"{self.url}/v1/chat/completions", json=body, headers=headers, timeout=60)


@contextmanager
def place(file: Path, **changes: object) -> Iterator[Place]:
    with ScriptedProvider(checking) as upstream:
        home = Upstream(name="home", url=upstream.url, issuers=(ISSUER,))
        settings = Settings(windows={"m": Window(16_000)}, economy=False, decide_timeout_seconds=60)
        config = Config(upstreams=(home,), store=str(file), salt=SALT, settings=settings, **changes)  # type: ignore[arg-type]
        with Serving(create_gateway(config)) as served:
            yield Place(served.url, upstream)


def edits(file: Path) -> list[Edit]:
    connection = sqlite3.connect(file)
    try:
        return [load_edit(text) for (text,) in connection.execute("SELECT json FROM edits")]
    finally:
        connection.close()


def test_c7_a_session_keeps_its_edits_with_a_renewed_token(tmp_path: Path):
    """A subscription client renews its token every few hours. It used to lose all edits, its cache
    and its signed thinking."""
    with place(tmp_path / "a.db") as at:
        at.say(token(), session(1))
        first = at.say(token(), session(60))
        assert first.status_code == 200 and first.headers["refold-edits"] != "0"
        renewed = at.say(token(number=1), session(60, "Go on with another token."))
        assert renewed.headers["refold-edits"] == first.headers["refold-edits"]
        before, after = (json.loads(asked.body)["messages"] for asked in at.upstream.received[-2:])
        assert after[:-1] == before[:-1]


def test_c7_a_session_that_begins_with_a_long_request_is_compacted_once(tmp_path: Path):
    with place(tmp_path / "a.db") as at:
        at.say(token(), session(60))
        first_edits = edits(tmp_path / "a.db")
        assert first_edits
        at.say(token(number=1), session(60))
        at.say(token(number=1), session(60))
        assert edits(tmp_path / "a.db") == first_edits


def test_c7_a_forged_token_reads_no_edits_of_others_and_stores_none(tmp_path: Path):
    """Issuer and subject are Anna's, but the signature is forged. No response contains her
    amendments, though this upstream quotes refused content, and the requests leave no trace."""
    with place(tmp_path / "a.db") as at:
        at.say(token(), session(1))
        at.say(token(), session(60))
        hers = edits(tmp_path / "a.db")
        amended = [replace(edit, insert=(user("HERS ALONE"),)) for edit in hers]
        with SQLiteStore(tmp_path / "a.db") as store:
            store.save(amended)
        anna = at.say(token(number=1), session(60))
        assert anna.status_code == 200
        assert b"HERS ALONE" in at.upstream.received[-1].body
        for steps in (60, 60, 61):
            forged = at.say(token(secret="guessed"), session(steps))
            assert forged.status_code == 401
            assert "HERS ALONE" not in forged.text + str(forged.headers)
            assert SECRET in forged.text  # text of the request itself is quoted
        tips = {edit.tip for edit in hers}
        assert {edit.id for edit in edits(tmp_path / "a.db") if edit.tip in tips} == {
            e.id for e in (*hers, *amended)
        }
        assert (
            at.say(token(number=1), session(60)).headers["refold-edits"]
            == anna.headers["refold-edits"]
        )


def test_c7_a_refused_request_that_shows_nothing_of_another_tenant_is_sent_once(tmp_path: Path):
    """Every error used to be asked for twice, also a rate limit: it was the same request again."""
    with place(tmp_path / "a.db") as at:
        assert at.say(token(secret="guessed"), session(1)).status_code == 401
        assert len(at.upstream.received) == 1


def test_c7_no_edit_is_stored_for_a_request_with_a_forged_token(tmp_path: Path):
    """Otherwise anybody could write into the conversations of others, or fill the store."""
    with place(tmp_path / "hers.db") as at:
        assert at.say(token(), session(60)).status_code == 200
    with place(tmp_path / "forged.db") as at:
        assert at.say(token(secret="guessed"), session(60)).status_code == 401
    assert edits(tmp_path / "hers.db") and not edits(tmp_path / "forged.db")


def test_c7_a_session_whose_requests_are_signed_is_compacted_once(tmp_path: Path):
    """Each request has another signature and used to be compacted anew. A refused request leaves
    nothing."""

    def sign(number: int, key: str = "AKIA1") -> dict[str, str]:
        scope = f"{key}/20261122/us-east-1/bedrock/aws4_request"
        return {
            "authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature={number:064x}",
            "x-amz-content-sha256": "UNSIGNED-PAYLOAD",
        }

    def verifying(asked: Received) -> Reply:
        shown = {name.lower(): value for name, value in asked.headers}["authorization"]
        return Reply("no", status=403) if shown.endswith("f") else Reply("Hello.")

    with ScriptedProvider(verifying) as upstream:
        home = Upstream(name="home", url=upstream.url, issuers=("aws",))
        windows = Settings(windows={"m": Window(16_000)}, economy=False, decide_timeout_seconds=60)
        config = Config(
            upstreams=(home,), store=str(tmp_path / "a.db"), salt=SALT, settings=windows
        )
        with Serving(create_gateway(config)) as served:

            def say(steps: int, headers: dict[str, str]) -> httpx.Response:
                url = f"{served.url}/v1/chat/completions"
                return httpx.post(url, json=session(steps), headers=headers, timeout=60)

            first = say(60, sign(1))
            first_edits = edits(tmp_path / "a.db")
            assert first_edits and first.headers["refold-edits"] != "0"
            for number in (2, 3, 4):
                assert (
                    say(60, sign(number)).headers["refold-edits"] == first.headers["refold-edits"]
                )
            assert edits(tmp_path / "a.db") == first_edits
            assert say(62, sign(0xF)).status_code == 403
            tips = {edit.tip for edit in first_edits}
            assert [edit for edit in edits(tmp_path / "a.db") if edit.tip in tips] == first_edits
            assert say(60, sign(5, "AKIA2")).status_code == 200
            assert len({edit.tip for edit in edits(tmp_path / "a.db")}) > len(
                tips
            )  # another key is another tenant


def test_c7_a_single_tenant_can_be_configured_only_on_a_loopback_host(tmp_path: Path):
    """This is for a single user whose client signs each request or sends opaque tokens."""
    with place(tmp_path / "a.db", tenant="one") as at:
        first, first_edits = at.say(token("x"), session(60)), edits(tmp_path / "a.db")
        second = at.say(token("y"), session(60))
        assert first.headers["refold-edits"] == second.headers["refold-edits"] != "0"
        assert edits(tmp_path / "a.db") == first_edits  # nothing was decided anew
    upstream = '[[upstream]]\nurl = "http://127.0.0.1:1"\n'
    open_ = f'host = "0.0.0.0"\nadmin_token = "sixteen characters"\ntenant = "one"\n{upstream}'
    with pytest.raises(ValueError, match="their edits would mix"):
        parse_config(open_).check_servable()
    for wrong in ("two", "header:", "header:X-User"):
        with pytest.raises(ConfigError, match="tenant must be"):
            parse_config(f'tenant = "{wrong}"\n{upstream}')
    with pytest.raises(ConfigError, match="is anybody"):
        parse_config(f'{upstream}issuers = ["*"]\n')


def test_c7_a_configured_proxy_header_identifies_the_caller():
    tenants = TenantResolver(SALT, "header:x-forwarded-user")
    first = tenants.identify(head(("x-forwarded-user", "anna"), bearer(token())), (HOME,))
    assert first == tenants.identify(
        head(("x-forwarded-user", "anna"), bearer(token(number=1))), (HOME,)
    )
    assert first != tenants.identify(head(("x-forwarded-user", "bob"), bearer(token())), (HOME,))
    assert tenants.identify(head(bearer("1")), (HOME,)) != tenants.identify(
        head(bearer("2")), (HOME,)
    )
