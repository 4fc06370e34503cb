"""Recognition of upstreams' errors: requests that are too long, and signed thinking that belongs
elsewhere (AN-7).

Only an error's own words count, not its quotations, because many errors quote the request.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from refold.core.view import View
from refold.gateway.http.decoding import error_body
from refold.messages import Thinking
from refold.models.responses import is_overflow

MAX_SENTENCE = 20_000
"""Characters of one sentence that are read."""
MAX_DEPTH = 8
"""Nesting levels of an error that are read."""

_CONTAINER_FIELDS = ("error", "errors", "detail", "details", "metadata")
_FIELDS = ("message", "Message", "msg", "code", "type", "status", "title", "error_type", "raw")
"""Fields in which providers, and proxies before them, describe the error. OpenRouter's `raw` holds
the provider's own error."""
_COUNTS = ("n_prompt_tokens", "n_ctx")
"""Fields in which llama.cpp reports the tokens of the request and the context size."""

_QUOTED = re.compile(
    r"""(?<!\w)(?:(?P<mark>['"`])(?:\\.|(?!(?P=mark)(?!\w)).)*(?:(?P=mark)|\Z)|“[^”]*(?:”|\Z)|‘[^’]*(?:’|\Z))""",
    re.DOTALL,
)
"""Quoted text, up to the end if it was cut off. An apostrophe within a word is not a quotation
mark."""
_FIELD_NAME = re.compile(
    rf"""['"](?:{"|".join(("error", "detail", *_FIELDS))})\\?['"]\s*:\s*b?\Z"""
)
"""Field name before a quoted value, in an error that is embedded in a sentence."""
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def error_sentences(body: bytes) -> str:
    """Return the sentences and codes of an error's body, one a line, without quotations; also
    counts, such as `n_ctx=8192`."""
    return "\n".join(_sentences_of_text(body.decode("utf-8", "replace"), MAX_DEPTH))


def strip_quotes(text: str, depth: int = MAX_DEPTH) -> str:
    """Return *text* without quoted text, except the fields of an error that is embedded in it
    (`upstream said {"error": {"message": "prompt is too long"}}`)."""
    pieces, end = list[str](), 0
    for quote in _QUOTED.finditer(text):
        pieces.append(text[end : quote.start()])
        end = quote.end()
        if depth and _FIELD_NAME.search(text, max(0, quote.start() - 20), quote.start()):
            pieces.append(strip_quotes(_ESCAPED.sub(r"\1", quote[0][1:-1]), depth - 1))
        else:
            pieces.append("''")
    return "".join((*pieces, text[end:]))


def _sentences_of_text(text: str, depth: int) -> Iterator[str]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        yield strip_quotes(text[:MAX_SENTENCE], depth)
    else:
        yield from _sentences_of_json(value, depth)


def _sentences_of_json(value: Any, depth: int) -> Iterator[str]:
    """Yield the sentences of a JSON error, outermost first."""
    if not depth:
        return
    if isinstance(value, str):
        yield from (
            _sentences_of_text(value, depth - 1)
            if value.startswith("{")
            else (strip_quotes(value[:MAX_SENTENCE], depth),)
        )
    elif isinstance(value, list):
        for item in value:
            yield from _sentences_of_json(item, depth - 1)
    elif isinstance(value, dict):
        for name in (*_FIELDS, *_CONTAINER_FIELDS):
            if name in value:
                yield from _sentences_of_json(value[name], depth - 1)
        yield from (f"{name}={value[name]}" for name in _COUNTS if type(value.get(name)) is int)


_STATUSES = frozenset({400, 413, 422, 500})
"""HTTP statuses of context errors. Some servers of open models use 500."""

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
"""Patterns with the tokens of the request, those reserved for the answer, and the limit. The first
match counts."""
_SHARES = re.compile(
    r"(\d{1,12}) (?:tokens )?(?:in|of|for|from) (?:the |your )?(?:[a-z]+ )?(messages?|functions?|input|prompt|tools?|completion|output)\b",
    re.IGNORECASE,
)
"""Shares of a request, as in `(8000 in the messages, 500 in the functions, and 1000 in the
completion)` of OpenAI, OpenRouter and SGLang."""
_OUTPUT_WORDS = ("completion", "output")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


class ErrorFigures(NamedTuple):
    """Token counts in a context error; 0 for each that it does not name."""

    tokens: int = 0
    output: int = 0
    limit: int = 0
    is_minimum: bool = False
    """Whether *tokens* is a minimum, because the server stopped counting there."""

    def answer_room(self, sent: int) -> int:
        """Return the tokens that the limit leaves for the answer to a request estimated at *sent*
        tokens; 0 if unknown.

        A margin is subtracted, because some servers count before they apply their template, or say
        "about".
        """
        tokens = max(self.tokens, int(sent * ESTIMATE_MARGIN)) if self.is_minimum else self.tokens
        room = self.limit - tokens if tokens else 0
        return max(0, room - min(1_000, room // 20))

    def scale(self, before: int, after: int) -> "ErrorFigures":
        """Return the figures with *tokens* scaled from a request of *before* estimated tokens to
        one of *after*; unchanged if *before* is 0."""
        return self._replace(tokens=self.tokens * after // before) if before else self


ESTIMATE_MARGIN = 1.25
"""Factor by which a request may exceed its estimate."""


def is_context_error(api: str, status: int, body: bytes) -> bool:
    """Return whether an upstream's reply says that the request is too long for the model's window.

    For Responses this may be a stream with status 200 that begins with `response.failed`. Quoted
    text does not count.
    """
    if status == 200:
        is_failure = api == "openai_responses" and b"response.failed" in body
        return is_failure and "context_length_exceeded" in error_sentences(error_body(body))
    if status not in _STATUSES:
        return False
    text = error_sentences(body)
    if status == 413 and not text.strip():  # Cerebras, and reverse proxies
        return True
    return is_overflow(text)


def read_figures(body: bytes) -> ErrorFigures:
    """Return the token counts in the body of a context error."""
    text = _THOUSANDS.sub("", error_sentences(body))
    for pattern in _FIGURE_PATTERNS:
        if match := pattern.search(text):
            groups = match.groupdict(default="")
            is_minimum = bool(groups.pop("least", ""))
            numbers = {name: int(value) for name, value in groups.items() if value}
            figures = ErrorFigures(**numbers, is_minimum=is_minimum)
            return figures if is_minimum else _add_shares(figures, text)
    return ErrorFigures()


def _add_shares(figures: ErrorFigures, text: str) -> ErrorFigures:
    """Separate the tokens of the request from those of its answer, if the error names them."""
    shares = [
        (int(tokens), word.lower() in _OUTPUT_WORDS) for tokens, word in _SHARES.findall(text)
    ]
    tokens = sum(share for share, is_answer in shares if not is_answer)
    output = sum(share for share, is_answer in shares if is_answer)
    return figures._replace(tokens=tokens, output=output) if tokens else figures


_BOUND_WORDS = "bound to a different conversation"
_INVALID_SIGNATURE = re.compile(
    r"invalid (?:''|signature) in (?:''|(?:redacted_)?thinking) block", re.IGNORECASE
)
"""The only error of older models. `error_sentences` empties the quotation marks around names."""
_BLOCK_PATH = re.compile(r"messages\.(\d{1,9})\.content\.(\d{1,9})")
_THINKING_TYPES = ("thinking", "redacted_thinking")


def is_thinking_refused(api: str, status: int, body: bytes) -> bool:
    """Return whether an upstream's reply says that a thinking signature is out of place."""
    if api not in ("anthropic", "openai_chat") or status != 400:
        return False
    text = error_sentences(body)
    return _BOUND_WORDS in text or (
        b"signature" in body and _INVALID_SIGNATURE.search(text) is not None
    )


def thinking_block_index(api: str, sent: bytes, error: bytes) -> int:
    """Return the index of the thinking block of the request *sent* that *error* names; 0 if it
    names none, or if the request was translated for its provider."""
    match = _BLOCK_PATH.search(error_sentences(error))
    if match is None or api != "anthropic":
        return 0
    refused = int(match[1]), int(match[2])
    return sum(place < refused for place in _thinking_places(json.loads(sent)))


def block_position(view: View, place: int) -> int:
    """Return the transcript position of the message, or of the start of the edit, that shows the
    thinking block with index *place*; 0 if there are fewer."""
    for item in view.iter_items():
        place -= sum(
            isinstance(part, Thinking) for message in item.messages for part in message.parts
        )
        if place < 0:
            return item.start
    return 0


def _thinking_places(body: Any) -> Iterator[tuple[int, int]]:
    for at, message in enumerate(body["messages"]):
        blocks = message["content"] if isinstance(message["content"], list) else ()
        yield from (
            (at, part) for part, block in enumerate(blocks) if block.get("type") in _THINKING_TYPES
        )
