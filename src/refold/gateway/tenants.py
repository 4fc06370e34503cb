"""Identifies the sender of a request. A tenant is the sender, not the bytes of a token, which may
be renewed.

By default other keys mean another tenant. A token or signature that an upstream is known to check
may also name whom it was issued to. The gateway cannot check its signature, so that is a claim
until the upstream has accepted the token. Until then nothing is kept under it, and no answer uses
it (docs/decisions/0019-tenants.md)."""

import base64
import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from threading import Lock
from typing import NamedTuple
from urllib.parse import unquote

from refold.compactor.conversations import put_lru
from refold.gateway.exchange import RequestHead, decode_header
from refold.gateway.settings import Upstream
from refold.text.json_values import parse_or_none, text_at

CREDENTIAL, SINGLE, HEADER = "credential", "one", "header:"
"""Ways to tell tenants apart: by keys, not at all, by a header of a proxy in front of the
gateway."""
AWS = "aws"
"""Issuer of signatures in Amazon's form, which are new for every request."""
MAX_ACCEPTED = 10_000
"""Number of accepted tokens that are remembered."""
_LARGEST_TOKEN = 16_384
_SIGNED = re.compile(r"AWS4-[A-Z0-9-]+ +Credential=([^/,\s]+)/")


class Tenant(NamedTuple):
    """The sender of a request, as salted hashes."""

    credential: str
    """Hash of keys, tokens and cookies; empty without any."""
    claimed: str = ""
    """Hash of the upstream and of whom the token was issued to; empty if the upstream checks no
    such claim."""
    is_reusable: bool = False
    """Whether the same token can come again."""


@dataclass(eq=False)
class TenantResolver:
    """Identifies senders of requests. *mode* is `Config.tenant`; *key_headers* are further headers
    that hold keys, in lower case."""

    salt: bytes = field(repr=False)
    mode: str = CREDENTIAL
    key_headers: frozenset[bytes] = frozenset()
    _accepted: OrderedDict[Tenant, None] = field(default_factory=OrderedDict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def identify(self, head: RequestHead, upstreams: Iterable[Upstream]) -> Tenant:
        """Return the sender of a request to one of these *upstreams*."""
        if self.mode == SINGLE:
            return Tenant("")
        shown = self._identifying_parts(head)
        if self.mode.startswith(HEADER):
            name = self.mode.removeprefix(HEADER).encode()
            values = [value for key, value in head.headers if key == name]
            return Tenant(self._hash([(name, value) for value in values] or shown))
        if not shown:
            return Tenant("")
        claim = next(
            (claim for upstream in upstreams if (claim := _find_claim(head, upstream))), None
        )
        if claim is None:
            return Tenant(self._hash(shown))
        beside = [pair for pair in shown if pair[0] != b"authorization"]
        claimed = self._hash(
            [(b"claim", part.encode("utf-8", "replace")) for part in claim] + beside
        )
        return Tenant(self._hash(shown), claimed, is_reusable=claim[1] != AWS)

    def is_accepted(self, who: Tenant) -> bool:
        """Return whether the upstream that the claim is for has accepted this very token."""
        return who in self._accepted

    def accept(self, who: Tenant) -> None:
        """Record that the upstream has accepted the token, unless it cannot come again."""
        if not who.is_reusable:
            return
        with self._lock:
            put_lru(self._accepted, who, None, MAX_ACCEPTED)

    def _identifying_parts(self, head: RequestHead) -> list[tuple[bytes, bytes]]:
        """Return all that identifies the sender, sorted by name, since proxies may reorder
        headers."""
        parts = [(b"?" + name, value) for name, value in query_keys(head.query)]
        for name, value in head.headers:
            if name == b"cookie":
                if identifying := identifying_cookies(value):
                    parts.append((name, identifying))
            elif is_personal(name) or name in self.key_headers:
                parts.append((name, value))
        return sorted(parts)

    def _hash(self, shown: Sequence[tuple[bytes, bytes]]) -> str:
        """Return a salted BLAKE2b hash, from which no key can be found without the salt."""
        if not shown:
            return ""
        digest = hashlib.blake2b(key=self.salt[:64], digest_size=16)
        for name, value in shown:
            digest.update(b"%d:%s%d:%s" % (len(name), name, len(value), value))
        return digest.hexdigest()


def list_keys(head: RequestHead, key_headers: frozenset[bytes] = frozenset()) -> list[bytes]:
    """Return the keys that the request carries, verbatim."""
    in_head = [value for name, value in head.headers if is_key(name) or name in key_headers]
    return in_head + [value for _, value in query_keys(head.query)]


def _find_claim(head: RequestHead, upstream: Upstream) -> tuple[str, str, str] | None:
    """Return the upstream's name, an issuer whose tokens it checks, and whom the request's only
    token was issued to; None if the upstream checks no such claim."""
    if not (issuers := upstream.issuer_patterns):
        return None
    tokens = [value for name, value in head.headers if name == b"authorization"]
    if len(tokens) != 1 or len(tokens[0]) > _LARGEST_TOKEN:
        return None
    scheme, _, token = decode_header(tokens[0]).partition(" ")
    if AWS in issuers and (signed := _SIGNED.match(decode_header(tokens[0]))):
        return upstream.name, AWS, signed[1]
    if scheme.lower() != "bearer" or (claim := _parse_token(token.strip())) is None:
        return None
    issuer, subject = claim
    is_trusted = any(fnmatchcase(issuer, pattern) for pattern in issuers if pattern != AWS)
    return (upstream.name, f"issuer {issuer}", subject) if is_trusted else None


def _parse_token(token: str) -> tuple[str, str] | None:
    """Return issuer and subject of a JSON Web Token, unverified; None if it lacks them."""
    parts = token.split(".")
    if len(parts) != 3 or not all(parts):
        return None
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
    except ValueError:
        return None
    claims = parse_or_none(payload)
    issuer, subject = text_at(claims, "iss"), text_at(claims, "sub")
    return (issuer, subject) if issuer and subject else None


# --- parts of a request that identify its sender: keys, tokens and cookies, by name ---------------

_KEY_WORDS = frozenset(
    [
        "assertion",
        "auth",
        "authorization",
        "bearer",
        "cookie",
        "credential",
        "credentials",
        "jwt",
        "key",
        "password",
        "secret",
        "token",
        "vk",
    ]
)
"""Words in header names that hold a key: `x-litellm-api-key`, `ocp-apim-subscription-key`,
`helicone-auth`."""
_KEY_ENDS = (
    "accesskey",
    "accesstoken",
    "apikey",
    "apitoken",
    "authkey",
    "authtoken",
    "secretkey",
    "subscriptionkey",
)
"""The same for several words written as one."""
_PERSON_WORDS = frozenset(
    {
        "user",
        "email",
        "account",
        "organization",
        "org",
        "project",
        "principal",
        "identity",
        "tenant",
    }
)
"""Words in header names that say for whom a key is used: `chatgpt-account-id`,
`openai-organization`, `x-forwarded-email`."""
_NON_IDENTIFYING_WORDS = frozenset(
    {"agent", "cache", "csrf", "dpop", "idempotency", "nonce", "websocket", "xsrf"}
)
"""Words in names of headers that identify no sender: most are new with every request."""
_QUERY_NAMES = frozenset(
    {"key", "code", "sig", "auth", "token", "apikey", "access_token", "auth_token"}
)
_BALANCER_COOKIES = re.compile(
    r"(?:__cf(?:_bm|lb|ruid|seq|waitingroom)?|_cfuvid|cf_clearance|awsalb(?:cors|tg|tgcors)?|route)$"
    r"|arraffinity|applicationgatewayaffinity|bigip|incap_ses_|visid_incap_"
)
"""Beginnings of names of load balancers' cookies, which are renewed at any time and identify
nobody."""
_WORDS = re.compile(r"[-_.]")


@lru_cache(maxsize=512)  # names may be very long
def is_key(name: bytes) -> bool:
    """Return whether a header of this name, in lower case, holds a key of the caller. If in doubt
    it does."""
    words = _words(name)
    return not _NON_IDENTIFYING_WORDS.intersection(words) and any(
        word in _KEY_WORDS or word.endswith(_KEY_ENDS) for word in words
    )


@lru_cache(maxsize=512)
def is_personal(name: bytes) -> bool:
    """Return whether a header of this name, in lower case, identifies the caller, by a key or
    otherwise."""
    words = _words(name)
    is_person = _PERSON_WORDS.intersection(words) and not _NON_IDENTIFYING_WORDS.intersection(words)
    return is_key(name) or bool(is_person)


def query_keys(query: str) -> list[tuple[bytes, bytes]]:
    """Return name (decoded, lower case) and raw value of query parameters that hold API keys."""
    if not query:
        return []
    pairs = (pair.partition("=") for pair in query.split("&"))
    return [
        (name, value.encode()) for raw, _, value in pairs if is_query_key(name := _query_name(raw))
    ]


def is_query_key(name: bytes) -> bool:
    """Return whether a parameter of this name holds a key."""
    return name.decode("ascii", "replace") in _QUERY_NAMES or is_key(name)


def redact_keys(target: str) -> str:
    """Return a path and query without the values of keys."""
    path, mark, query = target.partition("?")
    if not mark:
        return target
    return f"{path}?{'&'.join(map(_redact_pair, query.split('&')))}"


def identifying_cookies(cookies: bytes) -> bytes:
    """Return a cookie header without load balancers' cookies."""
    pairs = (pair.strip() for pair in cookies.split(b";"))
    return b"; ".join(
        pair
        for pair in pairs
        if pair and not _BALANCER_COOKIES.match(pair.partition(b"=")[0].decode("latin-1").lower())
    )


def _redact_pair(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    return f"{name}=" if equals and is_query_key(_query_name(name)) else pair


def _query_name(raw: str) -> bytes:
    return unquote(raw).lower().encode("utf-8", "replace")


def _words(name: bytes) -> list[str]:
    return _WORDS.split(name.decode("latin-1"))
