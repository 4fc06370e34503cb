"""Context errors: how providers say that a request is too long, and saying it in the caller's dialect."""

import json
import re
from typing import Any, NamedTuple

from refold.gateway.http.sse import error_body
from refold.gateway.policy.error_text import error_sentences

Headers = tuple[tuple[str, str], ...]

_CONTEXT_WORDS = re.compile(
    r"context_length_exceeded|context_?window_?exceeded|model_context_window|exceed_context_size"
    r"|(?:prompt|input) (?:is )?too long|exceeds? (?:the |this model'?s? |its )?(?:maximum |max )?context"
    r"|exceed context limit|maximum context length|context (?:size|window) (?:of|is|exceed)"
    r"|context (?:size|window|length) (?:has been |was )?(?:exceeded|overflow)|context the overflows"
    r"|context length of only|(?:longer|greater|larger) than the (?:model'?s )?(?:max(?:imum)? )?(?:context|model) (?:length|size)"
    r"|configured context size is|exceed the configured limit of \d"
    r"|maximum prompt length is \d|exceeded model token limit|too large for model with \d|current length is \d+ while limit is"
    r"|input token count.{0,60}exceeds|token count of \d+ exceeds the limit|exceeds the maximum number of tokens"
    r"|input length.{0,40}exceeds? |prompt exceeds max(?:imum)? length|range of input length should be"
    r"|tokens \+ .{0,20} must be <= ?\d|must have less than \d+ tokens|too many (?:input )?tokens"
    r"|reduce the length of the (?:messages|prompt|input)|request_too_large|request entity too large|exceeds the available context size",
    re.IGNORECASE,
)
_RATE_WORDS = re.compile(
    r"rate[ _-]?limit|too many requests|tokens per (?:minute|day|hour)|throttl|please wait",
    re.IGNORECASE,
)
"""What has to do with time, and no fewer tokens of a request would help."""
_STATUSES = frozenset({400, 413, 422, 500})
"""Statuses with which it is said; 500 by some servers of open models."""

_FIGURE_PATTERNS = tuple(
    re.compile(
        words.replace("{T}", r"(?P<tokens>\d{1,12})")
        .replace("{O}", r"(?P<output>\d{1,12})")
        .replace("{L}", r"(?P<limit>\d{1,12})"),
        re.DOTALL | re.IGNORECASE,
    )
    for words in (
        r"{T} \+ {O} > {L}",  # Anthropic
        r"{T} tokens > {L}",
        r"too long: {T},? model maximum context length: {L}",  # Fireworks, Ollama
        r"too large: {O}.{0,60}?maximum context length is {L}.{0,60}?has {T} input tokens",  # vLLM
        r"maximum context length is {L}.{0,60}?requested {O} output tokens.{0,40}?(?:contains|has) {T} (?:input )?tokens",
        r"maximum context length is {L}.{0,60}?requested {O} output tokens.{0,40}?contains (?P<least>at least ){T} (?:input )?tokens",
        r"(?:length|input|prompt) \(?(?:length )?{T}(?: tokens)?\) is (?:longer|too long).{0,60}?(?:length|limit)(?: of)? \(?{L}",  # vLLM, Together
        r"must be <= ?{L}(?:\. Given: {T} .{0,20}?tokens and {O})?",  # text-generation-inference, Together
        r"must have less than {L} tokens(?:\. Given: {T})?",
        r"maximum prompt length is {L} but the request contains {T}",  # xAI
        r"model token limit: ?{L}(?: \(requested: ?{T})?",  # Moonshot
        r"current length is {T} while limit is {L}",  # Cerebras
        r"contains {T} tokens.{0,60}?too large for model with {L}",  # Mistral
        r"\({T} tokens\) (?:exceeds the available|is larger than the max) context size \({L}",  # llama.cpp
        r"n_prompt_tokens={T}\nn_ctx={L}",
        r"n_ctx={L}",
        r"tokens \({T}\) exceed context window of {L}",  # llama-cpp-python
        r"has {T} tokens?,? but the configured context size is {L}",
        r"context size exceeded: requested {T} tokens.{0,40}?supports {L}",  # MLX
        r"(?P<least>keep the first ){T} tokens.{0,80}?context length of only {L}",  # LM Studio
        r"token count (?:of )?\(?{T}\)? exceeds .{0,60}?\(?{L}",  # Copilot, Gemini
        r"range of input length should be \[\d+,? ?{L}\]",  # Qwen
        r"input length {T} exceeds the maximum.{0,30}?length(?: of)? {L}",
        r"configured limit of {L} tokens.{0,40}?resulted in {T}",
        r"maximum context length (?:is|of) {L}.{0,160}?(?:resulted in|requested|has|contains?|total of) (?:about )?{T}(?!\d| output| characters)",
        r"(?:maximum context length|context window|context length|context size) (?:is|of)(?: only)? \(?{L}",
    )
)
"""Where the tokens of the request, those kept for the answer, and the limit stand. The first that fits counts."""
_SHARES = re.compile(
    r"(\d{1,12}) (?:tokens )?(?:in|of|for|from) (?:the |your )?(?:[a-z]+ )?(messages?|functions?|input|prompt|tools?|completion|output)\b",
    re.IGNORECASE,
)
"""`(8000 in the messages, 500 in the functions, and 1000 in the completion)`, in the words of OpenAI, OpenRouter and SGLang."""
_OUTPUT_WORDS = ("completion", "output")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


class Figures(NamedTuple):
    """What an error says of the request; 0 where it does not say."""

    tokens: int = 0
    output: int = 0
    limit: int = 0
    is_minimum: bool = False
    """The request has so many tokens at least: the server stopped counting there."""

    def answer_room(self, sent: int) -> int:
        """Tokens that the limit leaves for the answer to a request that is estimated at *sent* tokens; 0 where that is
        not known. A little less than that: servers count in part before their template is applied, or "about"."""
        tokens = max(self.tokens, int(sent * ESTIMATE_MARGIN)) if self.is_minimum else self.tokens
        room = self.limit - tokens if tokens else 0
        return max(0, room - min(1_000, room // 20))

    def scale(self, before: int, after: int) -> "Figures":
        """The figures for the request when it is estimated at *after* tokens where it was at *before*."""
        return self._replace(tokens=self.tokens * after // before) if before else self


ESTIMATE_MARGIN = 1.25
"""How much larger a request may be than it is estimated."""


def is_context_error(api: str, status: int, body: bytes) -> bool:
    """Does this reply of an upstream say that the request is too long for the model's window?

    For Responses also a stream that begins with status 200 and a `response.failed` event. What the error quotes
    (`refold.gateway.policy.error_text`) does not count: a request's text says anything.
    """
    if status == 200:
        failed = api == "openai_responses" and b"response.failed" in body
        return failed and "context_length_exceeded" in error_sentences(error_body(body))
    if status not in _STATUSES:
        return False
    said = error_sentences(body)
    if status == 413 and not said.strip():  # Cerebras, and servers that stand before others
        return True
    return _CONTEXT_WORDS.search(said) is not None and _RATE_WORDS.search(said) is None


def read_figures(body: bytes) -> Figures:
    """The numbers of a context error; none of those that it quotes."""
    said = _THOUSANDS.sub("", error_sentences(body))
    for pattern in _FIGURE_PATTERNS:
        if found := pattern.search(said):
            named = found.groupdict(default="")
            least = bool(named.pop("least", ""))
            read = Figures(
                **{name: int(value) for name, value in named.items() if value}, is_minimum=least
            )
            return read if least else _add_shares(read, said)
    return Figures()


def _add_shares(read: Figures, said: str) -> Figures:
    """The figures with the tokens of the request and of its answer apart, where the error says them so."""
    shares = [
        (int(tokens), what.lower() in _OUTPUT_WORDS) for tokens, what in _SHARES.findall(said)
    ]
    tokens = sum(share for share, is_answer in shares if not is_answer)
    output = sum(share for share, is_answer in shares if is_answer)
    return read._replace(tokens=tokens, output=output) if tokens else read


def context_error(api: str, tokens: int = 0, limit: int = 0) -> tuple[int, Headers, bytes]:
    """Status, headers and body with which the provider itself would say that a request of *tokens* exceeds
    *limit*, so that clients recognise it and recover as they do. No figure is told where the limit is not known."""
    status, error = _error_body(api, tokens, limit)
    return status, (("content-type", "application/json"),), json.dumps(error).encode()


def _error_body(api: str, tokens: int, limit: int) -> tuple[int, Any]:
    tokens = max(tokens, limit + 1)
    if api == "anthropic":
        said = (
            f"prompt is too long: {tokens} tokens > {limit} maximum"
            if limit
            else "prompt is too long"
        )
        return 400, {"type": "error", "error": {"type": "invalid_request_error", "message": said}}
    if api == "gemini":
        count, most = (f" ({tokens})", f" ({limit})") if limit else ("", "")
        said = f"The input token count{count} exceeds the maximum number of tokens allowed{most}."
        return 400, {"error": {"code": 400, "message": said, "status": "INVALID_ARGUMENT"}}
    said = "Your input exceeds the context window of this model. Please adjust your input and try again."
    if api == "openai_responses":
        return 400, {"error": _openai_error(said, "input")}
    if limit:
        said = (
            f"This model's maximum context length is {limit} tokens. However, your messages resulted in "
            f"{tokens} tokens. Please reduce the length of the messages."
        )
    return 400, {"error": _openai_error(said, "messages")}


def _openai_error(said: str, param: str) -> dict[str, str]:
    return {
        "message": said,
        "type": "invalid_request_error",
        "param": param,
        "code": "context_length_exceeded",
    }
