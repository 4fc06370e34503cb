"""Token usage of a call, from any provider's usage object. Every input token counts once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MOST_TOKENS = 10**9
"""Maximum tokens of one call. A larger figure counts as missing: its cost in picodollars would
overflow 64 bits."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one model call. Cached tokens are included in `input`."""

    input: int
    """All tokens of the request: read from a cache, written to one, or neither."""
    output: int = 0
    """Tokens of the answer, reasoning included."""
    cached: int = 0
    """Part of `input` that was read from a cache."""
    written: int = 0
    """Part of `input` that was written to a cache."""
    calls: int = 1
    """Number of model calls that the figures sum; 0 if the provider only says that it is a sum.
    Figures with anything but 1 do not measure a single request."""
    hour: int | None = None
    """Part of `written` that the cache keeps for an hour; None if the provider does not say."""

    @property
    def context(self) -> int:
        """Tokens that the next request starts from: this request and its answer."""
        return self.input + self.output

    def is_plausible(self, estimated: int, window: int | None = None) -> bool:
        """Return whether this can be the usage of one request with *estimated* tokens.

        It cannot if it is a sum of several calls, larger than the model's *window* in tokens, more
        than three times or less than a third of the estimate (some providers omit cached tokens),
        or zero, as aborted calls report. Differences of up to 2,000 tokens are accepted: tokenizers
        and hidden prompts differ.
        """
        if self.calls != 1 or self.input <= 0 or (window is not None and self.input > window):
            return False
        return (
            abs(self.input - estimated) <= _SLACK
            or estimated <= _FACTOR * self.input <= _FACTOR**2 * estimated
        )


_FACTOR = 3
_SLACK = 2_000
"""More than a hidden system prompt of a tool-using API (Anthropic's has 300 to 800 tokens)."""


def read_usage(usage: Any) -> Usage | None:
    """Read a usage object of Anthropic, OpenAI (Chat, Responses), Gemini, Bedrock's Converse,
    DeepSeek or LiteLLM, or as Codex, Gemini CLI, OpenCode and pi write it to their files.

    *usage* is the parsed object (`response["usage"]`, `usageMetadata`) or a `Usage`. Returns None
    if it is missing or has no input figure above zero, as for aborted calls. Never raises: figures
    that are not whole numbers, or above `MOST_TOKENS`, count as missing.

    - Anthropic: `input_tokens` excludes the cache, so `cache_creation_input_tokens` and
      `cache_read_input_tokens` are added. With `iterations` (server tools, compaction) the top
      level is a sum, so the model's own last iteration is read. `cache_creation` has the tokens
      written for five minutes and for an hour.
    - OpenAI Chat `prompt_tokens`, Responses `input_tokens` with details, Gemini `promptTokenCount`,
      Moonshot `cached_tokens`: the input includes the cache. Without `prompt_tokens`, DeepSeek's
      `prompt_cache_hit_tokens` and `prompt_cache_miss_tokens` add up.
    - LiteLLM: `prompt_tokens` includes Anthropic's cache fields beside it.
    - Converse: `inputTokens`, `cacheReadInputTokens`, `cacheWriteInputTokens` add up; not if
      `totalTokens` has no room for that, as in Strands for OpenAI and Gemini.
    - pi: `input`, `cacheRead`, `cacheWrite` add up. OpenCode: `input` and the fields of `cache`.
    - Codex's `cached_input_tokens` and Gemini CLI's `cached` are part of the input.
    """
    if isinstance(usage, Usage):
        return usage if usage.input > 0 else None
    if not isinstance(usage, Mapping):
        return None
    for names, read in _READERS:
        if not names.isdisjoint(usage):
            counts = read(usage)
            if counts.input > 0:
                return counts
    return None


def _anthropic(usage: Mapping[str, Any]) -> Usage:
    iterations = usage.get("iterations")
    if isinstance(iterations, list):
        own = [
            turn
            for turn in iterations
            if isinstance(turn, Mapping) and turn.get("type", "message") == "message"
        ]
        if own:
            return _anthropic_sum(own[-1])
        if iterations:
            return _anthropic_sum(usage, calls=0)
    return _anthropic_sum(usage)


def _anthropic_sum(usage: Mapping[str, Any], calls: int = 1) -> Usage:
    cached = _int(usage, "cache_read_input_tokens")
    written, hour = _read_cache_writes(usage, "cache_creation_input_tokens", "cache_creation")
    fresh = _int(usage, "input_tokens")
    return Usage(
        fresh + cached + written, _int(usage, "output_tokens"), cached, written, calls, hour
    )


def _read_cache_writes(usage: Mapping[str, Any], total: str, terms: str) -> tuple[int, int | None]:
    """Return the tokens written to a cache, and the part of them that is kept for an hour; None for
    the latter if the *terms* are missing or zero."""
    counts = {name: _whole(count) for name, count in _object(usage, terms).items()}
    written = _int(usage, total) or sum(counts.values())
    if not any(counts.values()):
        return written, None
    return written, min(counts.get("ephemeral_1h_input_tokens", 0), written)


def _responses(usage: Mapping[str, Any]) -> Usage:
    details = _object(usage, "input_tokens_details")
    cached = _int(details, "cached_tokens") or _int(usage, "cached_input_tokens")
    written = _int(details, "cache_write_tokens")
    return Usage(_int(usage, "input_tokens"), _int(usage, "output_tokens"), cached, written)


def _chat(usage: Mapping[str, Any]) -> Usage:
    details = _object(usage, "prompt_tokens_details")
    cached = _int(details, "cached_tokens") or _int(
        usage, "prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens"
    )
    written, hour = _read_cache_writes(
        details, "cache_creation_tokens", "cache_creation_token_details"
    )
    written = (
        _int(details, "cache_write_tokens") or written or _int(usage, "cache_creation_input_tokens")
    )
    total = _int(usage, "prompt_tokens") or _int(usage, "prompt_cache_hit_tokens") + _int(
        usage, "prompt_cache_miss_tokens"
    )
    # xAI and Google omit reasoning from the completion figure; the total includes it.
    output = max(_int(usage, "total_tokens") - total, _int(usage, "completion_tokens"))
    return Usage(total, output, cached, written, hour=hour)


def _gemini(usage: Mapping[str, Any]) -> Usage:
    total = _int(usage, "promptTokenCount", "prompt_token_count") + _int(
        usage, "toolUsePromptTokenCount", "tool_use_prompt_token_count"
    )
    output = _int(usage, "candidatesTokenCount", "candidates_token_count")
    thoughts = _int(usage, "thoughtsTokenCount", "thoughts_token_count")
    return Usage(
        total,
        output + thoughts,
        _int(usage, "cachedContentTokenCount", "cached_content_token_count"),
    )


def _converse(usage: Mapping[str, Any]) -> Usage:
    cached, written = _int(usage, "cacheReadInputTokens"), _int(usage, "cacheWriteInputTokens")
    read, output = _int(usage, "inputTokens"), _int(usage, "outputTokens")
    is_whole = cached + written <= read and _int(usage, "totalTokens") == read + output
    return Usage(read if is_whole else read + cached + written, output, cached, written)


def _pi(usage: Mapping[str, Any]) -> Usage:
    cached, written = _int(usage, "cacheRead"), _int(usage, "cacheWrite")
    return Usage(_int(usage, "input") + cached + written, _int(usage, "output"), cached, written)


def _opencode(usage: Mapping[str, Any]) -> Usage:
    cache = _object(usage, "cache")
    cached, written = _int(cache, "read"), _int(cache, "write")
    total = _int(usage, "input") + cached + written
    # Whether the output figure includes reasoning depends on the provider; the total includes it.
    return Usage(total, max(_int(usage, "total") - total, _int(usage, "output")), cached, written)


def _gemini_cli(usage: Mapping[str, Any]) -> Usage:
    output = _int(usage, "output") + _int(usage, "thoughts")
    return Usage(_int(usage, "input"), output, _int(usage, "cached"))


_READERS = (
    (frozenset({"prompt_tokens", "prompt_cache_hit_tokens"}), _chat),
    (frozenset({"input_tokens_details"}), _responses),
    (
        frozenset(
            {
                "cache_read_input_tokens",
                "cache_creation_input_tokens",
                "cache_creation",
                "iterations",
            }
        ),
        _anthropic,
    ),
    (frozenset({"input_tokens"}), _responses),
    (frozenset({"promptTokenCount", "prompt_token_count"}), _gemini),
    (frozenset({"inputTokens"}), _converse),
    (frozenset({"cache"}), _opencode),
    (frozenset({"cached", "thoughts"}), _gemini_cli),
    (frozenset({"input", "cacheRead"}), _pi),
)
"""Fields that identify each format, most specific first. The first with an input figure is read."""


def _object(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = usage.get(name)
    return value if isinstance(value, Mapping) else {}


def _int(usage: Mapping[str, Any], *names: str) -> int:
    for name in names:
        if name in usage:
            return _whole(usage[name])
    return 0


def _whole(value: Any) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
    return value if is_count else 0
