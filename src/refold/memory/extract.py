"""Memories out of messages: what an extractor is, one by rules, and no secrets."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from refold.core.strategy import Asking
from refold.core.tool_groups import tool_results
from refold.core.view import View
from refold.memory.stores import Kind, Memory
from refold.messages import Message
from refold.speakers import request_text
from refold.summarizers.heuristic.cues import find_conclusions, find_constraints
from refold.summarizers.heuristic.lexicon import PREFERRING
from refold.text.clip import clip_scanned, one_line, sentences
from refold.text.summary_wrapper import without_summary


class Extraction(NamedTuple):
    """What an extractor returns."""

    memories: tuple[Memory, ...]
    reason: str = ""
    """Why it did less than was asked for; empty if it did not."""


Extractor = Callable[[View, Sequence[int]], Asking[Extraction]]
"""Takes memories out of the messages of a view's transcript at some positions. It may `yield
Ask`."""


def make_memory(view: View, kind: Kind, text: str, at: int, by: str, concept: str = "") -> Memory:
    """Return a memory of what the message at *at* said, without secrets."""
    tip = view.transcript.tips[at + 1]
    return Memory(
        kind=kind, text=redact(text), concept=concept, start=at, stop=at + 1, tip=tip, by=by
    )


# --- secrets ---------------------------------------------------------------------------------

MARK = "[redacted]"

_KEYS = re.compile(
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"  # Amazon
    r"|\bgh[opsur]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}|\bglpat-[A-Za-z0-9_-]{16,}"
    r"|\b(?:sk|pk|rk)[-_](?:[A-Za-z0-9]+[-_])*[A-Za-z0-9_-]{16,}"  # OpenAI, Anthropic, Stripe
    r"|\bxox[abeoprs]-[A-Za-z0-9-]{10,}"  # Slack
    r"|\bAIza[A-Za-z0-9_-]{30,}|\bya29\.[A-Za-z0-9_-]{20,}"  # Google
    r"|\b(?:hf|npm|pypi|dop_v1|shpat)[_-][A-Za-z0-9_-]{20,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"  # JSON Web Tokens
)
_LOGIN = re.compile(
    r"(?P<before>\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{0,100}:)[^\s/@]{1,200}(?=@)", re.IGNORECASE
)
_BEARER = re.compile(r"(?P<before>\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{12,}", re.IGNORECASE)
_NAMED = re.compile(
    r"(?P<before>(?:\b|_)(?:pass(?:word|wd|phrase)|pwd|"
    r"secret(?:[_-]?(?:access[_-]?)?key)?|client[_-]?secret|"
    r"(?:api|access|auth|private|encryption)[_-]?(?:key|token)|token|credentials?|pin)[\"']?"
    r"(?:\s{0,3}(?:=>|[:=：＝])\s{0,3}|\s{1,3}(?:is|was)\s{1,3})"
    r"|(?:密码|口令|密钥|令牌|验证码|パスワード|비밀번호)[\"']?\s{0,3}(?:是|为|為|[:=：＝])\s{0,3})"
    r"(?P<quote>[\"'`「“]?)(?P<secret>[^\s\"'`」”,;，。；、]{3,300})",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    r"\[redacted\]|(?:null|none|true|false|required|optional|missing|"
    r"invalid|wrong|expired|the|a|not|set|stored|kept|in)\b|[<${%(]",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """Return *text* with `[redacted]` for what is obviously a secret: private keys, the tokens of
    well-known services (Amazon, GitHub, GitLab, OpenAI, Anthropic, Stripe, Slack, Google, Hugging
    Face, npm, PyPI, DigitalOcean, Shopify), JSON Web Tokens, passwords in URLs, `Bearer` and
    `Basic` headers, and what follows names such as `password =`, `api_key:` or `密码是`. A secret in
    no such form is not recognised."""
    text = _KEYS.sub(MARK, text)
    for pattern in (_LOGIN, _BEARER):
        text = pattern.sub(rf"\g<before>{MARK}", text)
    return _NAMED.sub(_after_name, text)


def _after_name(match: re.Match[str]) -> str:
    if _HARMLESS.match(match["secret"]):
        return match[0]
    return match["before"] + match["quote"] + MARK


# --- by rules --------------------------------------------------------------------------------

LONGEST = 300
"""Characters of a memory; a longer sentence is cut."""

_DECIDES = re.compile(
    r"\b(?:(?:I|we)(?:['’]ve| have)? (?:decided|chose|agreed|settled|finali[sz]ed|booked|confirmed)"
    r"|let['’]?s (?:go with|use|stick with)|(?:I|we)['’]?(?:ll| will) (?:go with|use|take)"
    r"|final(?:ly)? (?:choice|decision))\b"
    r"|决定|決定|就(?:用|选|選|定|要)|[确確]定(?:用|选|選|了)|敲定|改成|改用|定下[来來]",
    re.IGNORECASE,
)
_STATES = re.compile(
    r"\b(?:my|our) (?:\w+ ){1,4}(?:is|are|was|were|has|starts?|runs?)\b"
    r"|\b(?:I am|I['’]m|we are|we['’]re) (?:an? |the |from |in |at |on |"
    r"based |using |working |running |\d)"
    r"|\b(?:I|we) (?:live|work|use|have|own|moved|study|teach|run|deploy|host|earn|"
    r"weigh|speak)\b|\bcall me\b"
    r"|我[们們]?(?:叫|是|住|来自|來自|在\w|有|用|使用|会|會|今年|负责|負責|学|學)|我[们們]?的\w{1,10}(?:是|叫|在|有|为|為)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class RuleExtractor:
    """Takes memories out of messages by rules. Asks no model; deterministic.

    Preferences and standing constraints, statements about themselves and decisions out of the
    user's own words; decisions and findings out of the assistant's; values of id fields (`order_id:
    W7731`) out of results.
    """

    max_each: int = 40
    """At most so many decisions of the assistant's, the weightiest, and so many values, per
    call."""

    def __call__(self, view: View, positions: Sequence[int]) -> Asking[Extraction]:
        """Return the memories in the messages at *positions*."""
        yield from ()
        messages = view.transcript.messages
        own = [(at, without_summary(messages[at])) for at in positions]
        statements = [
            *(item for at, message in own for item in _user_statements(at, message)),
            *_weightiest(own, self.max_each),
            *_values(own, self.max_each),
        ]
        by = repr(self)
        memories = [make_memory(view, kind, text, at, by) for at, kind, text in statements]
        # Each content once, where it was said first.
        distinct = {memory.id: memory for memory in reversed(memories)}
        return Extraction(tuple(distinct.values())[::-1])


_VALUE = re.compile(
    r"\"(\w{0,40}(?:id|Id|ID|number|code|sha|hash|ref|key|email|uuid|token|name|path|url|date|Date|号|號|编号|編號|码|碼|标识|標識|路径|路徑|日期|邮箱|郵箱))\"\s{0,4}:\s{0,4}\"?([\w@.:/+#-]{3,80})(?=[\",\s}\]])"
)
"""Values of fields that identify something."""

Statement = tuple[int, Kind, str]
"""The position of a message, and something that it states."""


def _user_statements(at: int, message: Message) -> Iterator[Statement]:
    """Yield what the user's own words state, with its kind. Secrets go first: of one that is cut
    its beginning would stay."""
    own = redact(request_text(message))
    binding = set(find_constraints(own))
    for sentence in sentences(own):
        line = one_line(sentence, LONGEST)
        if len(line.encode("utf-8", "replace")) < 9 or line.endswith(("?", "？")):
            continue
        if _DECIDES.search(line):
            yield at, "decision", line
        elif line in binding or PREFERRING.is_in(line):
            yield at, "preference", line
        elif _STATES.search(line):
            yield at, "fact", line


def _weightiest(messages: Sequence[tuple[int, Message]], limit: int) -> list[Statement]:
    """Return the assistant's sentences that decide most, in the order in which they were said."""
    weighed = [
        (-weight, at, text)
        for at, message in messages
        if message.role == "assistant"
        for weight, text in find_conclusions(
            clip_scanned(redact(message.text)), final=not message.calls
        )
    ]
    return [
        (at, "decision", text) for at, text in sorted(row[1:] for row in sorted(weighed)[:limit])
    ]


def _values(messages: Sequence[tuple[int, Message]], limit: int) -> list[Statement]:
    """Return values of id fields in results, the newest, each with where it stood last."""
    values = dict[str, tuple[int, str]]()
    for at, message in messages:
        for result in tool_results(message):
            for name, value in _VALUE.findall(clip_scanned(result.text)):
                values.pop(value, None)
                values[value] = at, name
    newest = islice(reversed(values.items()), limit)
    return [(at, "fact", f"{name}: {value}") for value, (at, name) in newest]
