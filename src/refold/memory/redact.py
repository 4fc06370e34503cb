"""Taking secrets out of a text before it is kept."""

import re

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
    """*text* with `[redacted]` for what is obviously a secret: private keys, the tokens of
    well-known services (Amazon, GitHub, GitLab, OpenAI, Anthropic, Stripe, Slack, Google, Hugging
    Face, npm, PyPI), JSON Web Tokens, passwords in URLs, `Bearer` and `Basic` headers, and what
    follows names such as `password =`, `api_key:` or `密码是`. A secret in no such form is not
    recognised."""
    text = _KEYS.sub(MARK, text)
    for pattern in (_LOGIN, _BEARER):
        text = pattern.sub(lambda found: found["before"] + MARK, text)
    return _NAMED.sub(_after_name, text)


def _after_name(match: re.Match[str]) -> str:
    if _HARMLESS.match(match["secret"]):
        return match[0]
    return match["before"] + match["quote"] + MARK
