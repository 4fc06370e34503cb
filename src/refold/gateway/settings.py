"""Settings of the gateway's core, its limits and its upstreams."""

import math
import re
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.resources import files
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from refold.compactor.hooks import OnEvent
from refold.compactor.settings import list_strategies
from refold.core.strategy import Strategy
from refold.errors import is_number, require_int, require_number
from refold.gateway.exchange import APIS, HTTPException
from refold.models.driver import AsyncAsker
from refold.models.fallback import Fallback
from refold.tokens.model_table import EngineProfile, Prices, Rates, Window

REFUSABLE_DELTAS = ("thread", "previous_response_id")
"""Ways to send only new messages (delta transports) that can be refused."""

ENGINES = ("vllm", "sglang", "dynamo")
"""Engines whose way of naming sessions is known (docs/decisions/0028-engines.md)."""

SOFT, TARGET = 0.7, 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An inference engine of the operator: its tokens' costs, and what it is told of sessions.

    Raises ValueError for settings that its protocol does not support."""

    profile: EngineProfile
    protocol: str = ""
    """`vllm`, `sglang` or `dynamo`. Empty: the engine is told nothing."""
    kv_hints: bool = False
    """Whether it is told which part of a request to keep, or which a compaction made useless."""
    end_seconds: float | None = None
    """Seconds without a request after which it is told that a session has ended."""
    key: str = field(default="", repr=False)
    """API key for telling it of ended sessions; empty if it needs none."""

    def __post_init__(self) -> None:
        if self.protocol:
            _require_known("protocol", [self.protocol], ENGINES)
        if self.kv_hints and self.protocol not in {"vllm", "sglang"}:
            raise ValueError("kv_hints: only vllm and sglang have a form for them: set protocol")
        if self.end_seconds is not None and self.protocol not in {"sglang", "dynamo"}:
            raise ValueError("end_after: only sglang and dynamo can be told: set protocol")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """When and how requests are compacted. Figures in tokens, shares of the window, seconds.

    Raises ValueError for invalid figures, for *soft* or *target* above *hard*, and for unknown
    names."""

    strategies: tuple[Strategy, ...] | None = None
    """None: first duplicates, long results and old thinking; then a summary down to *target*, by
    *ask* once if there is one, else by rules in two steps; then clearing and shorter summaries
    (docs/gateway-decisions.md)."""
    windows: Mapping[str, Window] = field(default_factory=dict)
    """Context windows by model name. Others are looked up in `refold.tokens.model_table`."""
    ask: Fallback | AsyncAsker | None = None
    """Model that writes summaries: a `Fallback`, whose models the page names, or any coroutine
    function of an `Ask`. None: rules do."""
    soft: float = SOFT
    """Share of the usable window (without the answer's reserve) from which a summary is prepared in
    the background. Unless set, it and *target* are lowered with *hard*."""
    hard: float = 0.95
    """Share of the usable window from which compaction is due whatever it costs."""
    target: float = TARGET
    """Share of the usable window to come down to."""
    reserve_tokens: int = 20_000
    """Tokens of the window reserved for the answer, at most a fifth of the window."""
    economy: bool = True
    """Whether to compact below the hard level if that pays (`refold.budget.planner`)."""
    hour_cache: bool = False
    """Whether to have Anthropic's cache keep a conversation for an hour if its size and pauses make
    that cheaper than five minutes. Only the client's own cache marks are changed."""
    prices: Rates | Prices | None = None
    """Prices of all models, or a function of a model's name; if that returns None, the table of
    `refold.tokens.model_table` counts. Without prices nothing pays."""
    engines: Mapping[str, Engine] = field(default_factory=dict)
    """The operator's engines, by model or upstream. Their prefill seconds and held blocks replace
    prices."""
    native: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Fields, by API, that request a provider's own clearing or compaction, added to requests that
    lack them: `{"anthropic": {"context_management": {"edits": [...]}}}`. Below the hard level the
    gateway then compacts nothing."""
    on_event: OnEvent | None = None
    """Callback for every compaction (`refold.compactor.hooks`), called in a worker thread."""
    clock: Callable[[], float] = time.time
    """Seconds since 1970."""
    decide_timeout_seconds: float = 2.0
    """Seconds for everything but a summary. After that the request is sent with the edits shown
    before, if they are in memory, else as it came."""
    summary_timeout_seconds: float = 60.0
    """Seconds that a request waits for a summary."""
    older_accounts: frozenset[str] = frozenset()
    """Upstreams whose keys all belong to Anthropic accounts created before 2026-08-31. Thinking is
    bound there only in requests that ask for the check (AN-8)."""
    refuse: frozenset[str] = frozenset({"thread"})
    """Delta transports to refuse so that the client sends its full history: `thread`,
    `previous_response_id`. Others pass untouched."""
    store_cooldown_seconds: float = 30.0
    """Seconds for which the store is not used after it failed or was late three times in a row."""
    conversations: int = 256
    """Conversations kept in memory by each process. A forgotten one is decoded again at its next
    request and shown with its stored edits."""
    known_bytes: int = 256 * 1024 * 1024
    """Maximum total bytes of their latest requests. Each takes up to twice its size in memory."""
    compute_threads: int = 16
    """Threads per process that decide about requests."""
    read_above_bytes: int = 4_096
    """Bytes up to which a request without tool results and signed thinking passes unread, since
    nothing in it is worth an edit. With 0, or with custom *strategies*, which may edit anything,
    every request is read."""
    shadow: bool = False
    """Whether to send every request as it came and record in the ledger what it would have been. No
    model is asked for summaries."""
    lower_output_cap: bool = True
    """Whether to lower a request's cap of output tokens to what the window leaves."""

    def __post_init__(self) -> None:
        if self.strategies is not None:
            object.__setattr__(self, "strategies", list_strategies(self.strategies))
        if not isinstance(self.windows, Mapping):
            raise ValueError(  # noqa: TRY004 - as for all settings
                f"windows must map names of models to a Window, not {self.windows!r}"
            )
        require_number(0.01, 1, soft=self.soft, hard=self.hard, target=self.target)
        for name, default in (("soft", SOFT), ("target", TARGET)):
            if getattr(self, name) == default > self.hard:
                object.__setattr__(self, name, self.hard)
        if max(self.soft, self.target) > self.hard:
            name = "soft" if self.soft > self.hard else "target"
            raise ValueError(
                f"{name} must not be above hard, and {getattr(self, name):g} is above {self.hard:g}"
            )
        require_number(0.01, math.inf, decide_timeout_seconds=self.decide_timeout_seconds)
        require_number(
            0,
            math.inf,
            summary_timeout_seconds=self.summary_timeout_seconds,
            store_cooldown_seconds=self.store_cooldown_seconds,
        )
        require_int(
            0,
            reserve_tokens=self.reserve_tokens,
            known_bytes=self.known_bytes,
            read_above_bytes=self.read_above_bytes,
        )
        require_int(1, conversations=self.conversations, compute_threads=self.compute_threads)
        _require_known("refuse", self.refuse, REFUSABLE_DELTAS)
        _require_known("native", self.native, APIS)
        strange = next(
            (api for api, fields in self.native.items() if not isinstance(fields, Mapping)), None
        )
        if strange is not None:
            raise ValueError(f"native must give fields for {strange}, not {self.native[strange]!r}")

    def find_engine(self, upstream: str, model: str) -> Engine | None:
        """Return the engine configured for *model*, else that for *upstream*; None without one."""
        return self.engines.get(model) or self.engines.get(upstream)


def _require_known(setting: str, names: Iterable[str], known_names: tuple[str, ...]) -> None:
    if isinstance(names, str):
        raise ValueError(  # noqa: TRY004 - as for every other setting
            f"{setting} must be a list of names, not {names!r}"
        )
    strange = next((name for name in names if name not in known_names), None)
    if strange is not None:
        raise ValueError(f"{setting} may name {', '.join(known_names)}, not {strange!r}")


MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits in bytes, seconds and counts. Raises ValueError for one that is not above 0."""

    body_bytes: int = 64 * MIB
    """Body of a request for an answer, compressed or not. It is held in memory."""
    upload_bytes: int = 1024 * MIB
    """Any other request's body. It is passed on as it arrives."""
    head_bytes: int = 64 * 1024
    """Request line and all headers together."""
    headers: int = 200
    requests: int = 1_000
    """Concurrent requests in one process."""
    head_seconds: float = 20.0
    """Time for the request line and headers."""
    body_seconds: float = 60.0
    """Silence while a body is awaited."""
    body_bytes_per_second: float = 500.0
    """Bytes that restore a second of `body_seconds`, so that a body cannot trickle in forever."""
    connect_seconds: float = 10.0
    silence_seconds: float = 900.0
    """Silence of an upstream, before or within its answer, or of a client that reads nothing."""
    idle_seconds: int = 75
    """Time that a client's idle connection is kept."""
    parting_seconds: float = 1.0
    """The same while the gateway stops: a load balancer may just have sent something."""
    grace_seconds: int = 300
    """Time for streams to end when the gateway stops."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if not is_number(value) or value <= 0:
                raise ValueError(f"{name} must be a number above 0, not {value!r}")


# --- durations ------------------------------------------------------------------------------------


UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")


def parse_duration(text: str) -> float:
    """Return `7d`, `12h`, `30m`, `90s` or `2w` in seconds. Raises ValueError for anything else, and
    for zero."""
    match = _SPAN.fullmatch(text.strip().lower())
    if match is None or not float(match[1]):
        raise ValueError(f"{text!r} is no time: write it as 7d, 12h or 30m")
    return float(match[1]) * UNITS[match[2]]


# --- hosts ----------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def is_loopback(host: str) -> bool:
    """Return whether *host* can only be this machine."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


# --- upstreams ------------------------------------------------------------------------------------
# The upstreams, and which of them a request goes to. No other server can be reached.

_OWN_PATHS = ("/refold", "/metrics")
"""The gateway's own paths. No upstream's prefix may be one of them."""
_REMEDY = (
    "its key is sent to none of them. Bind them by apis, or give one a prefix, in refold.toml."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A server that requests are sent to. Raises ValueError for an invalid address or prefix."""

    name: str
    url: str
    """Base URL, with a path or without: `https://api.example.com`."""
    prefix: str = ""
    """Path prefix of its requests, removed from them: `/openai` sends `/openai/v1/models` on as
    `/v1/models`."""
    models: tuple[str, ...] = ()
    """Patterns of the models that it serves: `gpt-*`. Empty: any."""
    apis: tuple[str, ...] = ()
    """Request formats that it serves (`APIS`). Empty: any."""
    issuers: tuple[str, ...] = ()
    """Patterns of issuers whose tokens this server checks: a caller whose token one of them renews
    stays the same. `aws` stands for signatures in Amazon's form."""
    older_account: bool = False
    """Whether all keys that come here belong to Anthropic accounts created before 2026-08-31
    (AN-8)."""
    proxy: str = ""
    """HTTP proxy for its connections: `http://host:port`, or `http://user:password@host:port`."""

    def __post_init__(self) -> None:
        _check_address(self.url)
        if not self.name:
            raise ValueError("name is empty: write one, by which the log and the metrics call it")
        if self.prefix and (not self.prefix.startswith("/") or self.prefix.endswith("/")):
            raise ValueError(
                f"prefix begins with a slash and does not end with one, and {self.prefix!r} does not"
            )
        if self.proxy and not (self.proxy.startswith("http://") and _has_host(self.proxy)):
            raise ValueError("proxy must be an address, as http://proxy.example:3128")
        if is_own_path(self.prefix):
            raise ValueError(f"prefix: the gateway answers {self.prefix} itself")
        if unclear := next((issuer for issuer in self.issuers if issuer.strip("*") == ""), None):
            raise ValueError(f"issuers must name who issues tokens, and {unclear!r} is anybody")
        strange = [api for api in self.apis if api not in APIS]
        if strange:
            raise ValueError(f"apis: none is called {strange[0]!r}; there are {', '.join(APIS)}")

    @property
    def issuer_patterns(self) -> tuple[str, ...]:
        """Its issuers, and `aws` for Amazon, which checks its own signatures."""
        parts = urlsplit(self.url)
        is_amazon = parts.scheme == "https" and (parts.hostname or "").endswith(".amazonaws.com")
        return (*self.issuers, "aws") if is_amazon else self.issuers

    @property
    def provider(self) -> str:
        """Well-known provider at its address; empty for any other, which may be anybody's proxy."""
        host = urlsplit(self.url).hostname or ""
        return next(
            (each.name for each in load_known_providers() if _matches(host, each.hosts)), ""
        )


def identify_providers(keys: Sequence[bytes], path: str) -> frozenset[str]:
    """Return the providers that alone check these *keys*, else those that alone have the *path*;
    empty if neither decides, or without a key."""
    bare = [part.strip(b"\"'") for key in keys for part in (key, *key.split(maxsplit=1)[1:])]
    path = f"/{path.strip('/')}"
    by_key = {
        each.name
        for each in load_known_providers()
        if any(key.startswith(each.keys) for key in bare)
    }
    by_path = {each.name for each in load_known_providers() if keys and _matches(path, each.paths)}
    return frozenset(by_key or by_path)


def match_prefix(upstreams: Sequence[Upstream], path: str) -> tuple[tuple[Upstream, ...], str]:
    """Return the upstreams that *path* can go to, and the path without their prefix. The longest
    prefix wins; if none fits, the upstreams without one are returned."""
    prefixes = {upstream.prefix for upstream in upstreams if _is_below(path, upstream.prefix)}
    prefix = max(prefixes - {""}, key=len, default="")
    matches = tuple([upstream for upstream in upstreams if upstream.prefix == prefix])
    return matches, path[len(prefix) :] or "/"


def choose_upstream(
    upstreams: Sequence[Upstream],
    apis: Sequence[str],
    model: str = "",
    *,
    keyed: bool = False,
    owners: frozenset[str] = frozenset(),
) -> Upstream:
    """Return the upstream for a request in one of these *apis*: by model, else by API, else the
    first that is bound to neither.

    Without a *model*, upstreams with `models` are candidates too. A key (*keyed*) is never sent on
    a guess, nor from its *owners* to another provider. Raises `HTTPException` (404) if no upstream
    fits, and if several do and there is a key."""
    upstream = _choose_by_request(upstreams, apis, model, keyed=keyed)
    if len(upstreams) == 1 or not upstream.provider or owners <= {upstream.provider}:
        return upstream
    own = [each for each in upstreams if owners == {each.provider}]
    if own:
        return _choose_by_request(own, apis, model, keyed=keyed)
    whose, names = " and ".join(sorted(owners)), ", ".join(each.name for each in upstreams)
    raise HTTPException(
        404,
        f"The request is for {whose}, by its key or path, and none of {names} is: its key is sent "
        f"to none of them. Add an upstream for {whose}, with a prefix, in refold.toml.",
        reason="no_upstream",
    )


def _choose_by_request(
    upstreams: Sequence[Upstream], apis: Sequence[str], model: str, *, keyed: bool
) -> Upstream:
    if len(upstreams) == 1 and not (model and upstreams[0].models):
        return upstreams[0]
    for upstream in upstreams:
        if model and any(fnmatchcase(model, pattern) for pattern in upstream.models):
            return upstream
    candidates = [upstream for upstream in upstreams if not (model and upstream.models)]
    fitting = _filter_by_api(candidates, apis)
    if not fitting:
        raise HTTPException(404, "No upstream is configured for this path.", reason="no_upstream")
    of_any_model = [upstream for upstream in fitting if not upstream.models]
    if not keyed or len(fitting) == 1:
        return (of_any_model or fitting)[0]
    if len(of_any_model) == len(fitting):
        for upstream in fitting:
            if not upstream.apis or set(apis) <= set(upstream.apis):
                return upstream
    names = ", ".join(upstream.name for upstream in fitting)
    unnamed = "" if model else "names no model and "
    raise HTTPException(
        404,
        f"The request {unnamed}could be for any of {names}: {_REMEDY}",
        reason="no_upstream",
    )


def _filter_by_api(upstreams: Sequence[Upstream], apis: Sequence[str]) -> Sequence[Upstream]:
    """Return the upstreams that are bound to one of *apis*; if there are none, those bound to no
    API."""
    bound = [upstream for upstream in upstreams if not set(apis).isdisjoint(upstream.apis)]
    return bound or [upstream for upstream in upstreams if not upstream.apis]


def is_own_path(path: str) -> bool:
    """Return whether the gateway answers this path itself. Case and leading slashes are ignored: no
    spelling of it reaches an upstream."""
    path = f"/{path.lstrip('/').lower()}"
    return path.startswith(_OWN_PATHS) and any(_is_below(path, own) for own in _OWN_PATHS)


def find_provider(name: str) -> dict[str, Any] | None:
    """Return a well-known provider as fields of an `Upstream`; None for any other name."""
    settings = load_providers().get(name)
    return dict(settings) if settings else None


@cache
def load_providers() -> dict[str, dict[str, Any]]:
    """Return the providers of `providers.toml` that have an address, as fields of an `Upstream`, by
    name."""
    return {
        name: {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in raw.items()
            if key not in {*KnownProvider._fields, "agents", "pi"}
        }
        for name, raw in _read_providers().items()
        if "url" in raw
    }


class KnownProvider(NamedTuple):
    """A provider with the hosts, keys and paths that only it has."""

    name: str
    hosts: tuple[str, ...]
    """`*` is a wildcard, as in *paths*."""
    keys: tuple[bytes, ...]
    """Prefixes of keys."""
    paths: tuple[str, ...]


@cache
def load_known_providers() -> tuple[KnownProvider, ...]:
    """Return the providers of `providers.toml` that are not local servers (`http://`)."""
    return tuple(
        KnownProvider(
            raw.get("name", name),
            tuple(raw.get("hosts", [urlsplit(raw.get("url", "")).hostname])),
            tuple(key.encode() for key in raw.get("keys", ())),
            tuple(raw.get("paths", ())),
        )
        for name, raw in _read_providers().items()
        if not raw.get("url", "").startswith("http://")
    )


@cache
def _read_providers() -> dict[str, dict[str, Any]]:
    text = files("refold.gateway").joinpath("providers.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _matches(text: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")


def _check_address(url: str) -> None:
    shown = url.rpartition("@")[2].partition("?")[0][:100]  # without what may be a secret
    if not url.lower().startswith(("http://", "https://")):
        raise ValueError(f"url begins with http:// or https://, and {shown!r} does not")
    if not _has_host(url):
        raise ValueError(f"url: {shown!r} is no address: its host or port is invalid")
    parts = urlsplit(url)
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("url holds no user, query or fragment: clients bring their own keys")
    if url.split() != [url]:
        raise ValueError("url holds no blanks")


def _has_host(url: str) -> bool:
    """Return whether an address has a host name that can be looked up, and no invalid port."""
    try:
        parts = urlsplit(url)
        _ = parts.port
        return bool((parts.hostname or "").encode("idna"))
    except ValueError:
        return False
