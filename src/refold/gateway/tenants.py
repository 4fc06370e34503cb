"""Whose request it is. A tenant is who sends it, not the bytes of a token that is renewed.

By default a caller with other keys is another tenant. A token or signature that an upstream is
known to check may say more: who it was issued to. What it says is a claim until that upstream has
accepted it, since the gateway cannot check its signature; until then nothing is kept under it, and
no answer is made with it (docs/decisions/0019-tenants.md).
"""

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

from refold.compactor.conversations import put_latest
from refold.gateway.exchange import RequestHead, decode_header
from refold.gateway.settings import Upstream
from refold.text.json_values import parse_or_none, text_at

CREDENTIAL, SINGLE, HEADER = "credential", "one", "header:"
"""Ways to tell tenants apart: by what they show, not at all, by a header that a proxy before the
gateway sets."""
AWS = "aws"
"""The issuer of signatures in the form of Amazon's, which are new with every request."""
MAX_ACCEPTED = 10_000
"""Tokens of which is remembered that their upstream took them."""
_LARGEST_TOKEN = 16_384
_SIGNED = re.compile(r"AWS4-[A-Z0-9-]+ +Credential=([^/,\s]+)/")


class Tenant(NamedTuple):
    """Who sends a request, as salted hashes."""

    credential: str
    """By the bytes of what is shown; empty if nothing is."""
    claimed: str = ""
    """By whom it was issued to; empty if nothing says so that the upstream checks."""
    is_reusable: bool = False
    """Will the same token come again?"""


@dataclass(eq=False)
class TenantResolver:
    """Tells who sends requests. *mode* is as in `refold.toml`, *key_headers* are further headers
    that hold keys."""

    salt: bytes = field(repr=False)
    mode: str = CREDENTIAL
    key_headers: frozenset[bytes] = frozenset()
    _accepted: OrderedDict[str, None] = field(default_factory=OrderedDict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def identify(self, head: RequestHead, upstreams: Iterable[Upstream]) -> Tenant:
        """Return who sends a request to one of these *upstreams*."""
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
        """Has the upstream accepted what *who* claims to be by this very token?"""
        return who.credential in self._accepted

    def accept(self, who: Tenant) -> None:
        """Note that the upstream has."""
        if not who.is_reusable:
            return
        with self._lock:
            put_latest(self._accepted, who.credential, None, MAX_ACCEPTED)

    def _identifying_parts(self, head: RequestHead) -> list[tuple[bytes, bytes]]:
        """Return all that says who sends a request, in the order of the names, so that a proxy may
        put headers in another."""
        parts = [(b"?" + name, value) for name, value in query_keys(head.query)]
        for name, value in head.headers:
            if name == b"cookie":
                if identifying := identifying_cookies(value):
                    parts.append((name, identifying))
            elif is_personal(name) or name in self.key_headers:
                parts.append((name, value))
        return sorted(parts)

    def _hash(self, shown: Sequence[tuple[bytes, bytes]]) -> str:
        """Return a salted BLAKE2b hash. Neither a key nor anything it could be found from without
        the salt is kept."""
        if not shown:
            return ""
        digest = hashlib.blake2b(key=self.salt[:64], digest_size=16)
        for name, value in shown:
            digest.update(b"%d:%s%d:%s" % (len(name), name, len(value), value))
        return digest.hexdigest()


def list_keys(head: RequestHead, key_headers: frozenset[bytes] = frozenset()) -> list[bytes]:
    """Return the keys that the request carries, as they stand there."""
    in_head = [value for name, value in head.headers if is_key(name) or name in key_headers]
    return in_head + [value for _, value in query_keys(head.query)]


def _find_claim(head: RequestHead, upstream: Upstream) -> tuple[str, str, str] | None:
    """Return the upstream's name, an issuer whose tokens it checks, and who the one token of the
    request was issued to."""
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
    """Return issuer and subject of a JSON Web Token, as it says, unchecked; None if it does not."""
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


# --- which parts of a request say who sends it: keys, tokens and cookies, by their names ----------

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
"""Words of names of headers that hold a key: `x-litellm-api-key`, `ocp-apim-subscription-key`,
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
"""The same, where several are written as one."""
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
"""Words of names that say for whom a key is used: `chatgpt-account-id`, `openai-organization`,
`x-forwarded-email`."""
_NO_KEYS = frozenset(
    {"agent", "cache", "csrf", "dpop", "idempotency", "nonce", "websocket", "xsrf"}
)
"""With one of these words a name holds nothing that says who sends it: most are new with every
request."""
_QUERY_NAMES = frozenset(
    {"key", "code", "sig", "auth", "token", "apikey", "access_token", "auth_token"}
)
_BALANCERS = re.compile(
    r"(?:__cf(?:_bm|lb|ruid|seq|waitingroom)?|_cfuvid|cf_clearance|awsalb(?:cors|tg|tgcors)?|route)$"
    r"|arraffinity|applicationgatewayaffinity|bigip|incap_ses_|visid_incap_"
)
"""Cookies of what stands before a server, by how their names begin: renewed as it likes, and
nobody's."""
_WORDS = re.compile(r"[-_.]")


@lru_cache(maxsize=512)  # of names as long as a head
def is_key(name: bytes) -> bool:
    """Does a header of this name, in lower case, hold a key of the caller's? When in doubt it
    does."""
    words = _words(name)
    return not _NO_KEYS.intersection(words) and any(
        word in _KEY_WORDS or word.endswith(_KEY_ENDS) for word in words
    )


@lru_cache(maxsize=512)
def is_personal(name: bytes) -> bool:
    """Does a header of this name, in lower case, say for whom it is, by a key or otherwise?"""
    words = _words(name)
    is_person = _PERSON_WORDS.intersection(words) and not _NO_KEYS.intersection(words)
    return is_key(name) or bool(is_person)


def query_keys(query: str) -> list[tuple[bytes, bytes]]:
    """Return the keys in a query, with their names in lower case and as a server reads them."""
    if not query:
        return []
    pairs = (pair.partition("=") for pair in query.split("&"))
    return [
        (name, value.encode()) for raw, _, value in pairs if is_query_key(name := _query_name(raw))
    ]


def is_query_key(name: bytes) -> bool:
    """Does a parameter of this name hold a key?"""
    return name.decode("ascii", "replace") in _QUERY_NAMES or is_key(name)


def redact_keys(target: str) -> str:
    """Return a path with its query, without the keys in it."""
    path, mark, query = target.partition("?")
    if not mark:
        return target
    return f"{path}?{'&'.join(map(_redact_pair, query.split('&')))}"


def identifying_cookies(cookies: bytes) -> bytes:
    """Return what a cookie header says of who sends it, whatever stands between."""
    pairs = (pair.strip() for pair in cookies.split(b";"))
    return b"; ".join(
        pair
        for pair in pairs
        if pair and not _BALANCERS.match(pair.partition(b"=")[0].decode("latin-1").lower())
    )


def _redact_pair(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    return f"{name}=" if equals and is_query_key(_query_name(name)) else pair


def _query_name(raw: str) -> bytes:
    return unquote(raw).lower().encode("utf-8", "replace")


def _words(name: bytes) -> list[str]:
    return _WORDS.split(name.decode("latin-1"))
