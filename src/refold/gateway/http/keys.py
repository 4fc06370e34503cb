"""Which parts of a request say who sends it: keys, tokens and cookies, by their names."""

import re
from functools import lru_cache
from urllib.parse import unquote

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


@lru_cache(maxsize=4_096)
def is_key(name: bytes) -> bool:
    """Does a header of this name, in lower case, hold a key of the caller's? When in doubt it does
    (C6)."""
    words = _words(name)
    return not _NO_KEYS.intersection(words) and any(
        word in _KEY_WORDS or word.endswith(_KEY_ENDS) for word in words
    )


@lru_cache(maxsize=4_096)
def is_personal(name: bytes) -> bool:
    """Does a header of this name, in lower case, say for whom it is, by a key or otherwise?"""
    words = _words(name)
    return is_key(name) or (
        bool(_PERSON_WORDS.intersection(words)) and not _NO_KEYS.intersection(words)
    )


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
