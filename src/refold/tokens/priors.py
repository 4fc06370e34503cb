"""What a provider counts for an estimated token, as long as it reported nothing: a small dated table as data (F15)."""

import json
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path

from refold.tokens.windows import spellings


@lru_cache(maxsize=1_000)
def prior_of(model: str) -> float:
    """Tokens that the provider of *model* is expected to count for an estimated one: the ratio of the longest pattern that
    its name matches, as in `refold.tokens.windows`; 1.0 for a family of which nothing was measured."""
    names = spellings(model.lower())
    rows = [row for row in _table()[1] if any(fnmatchcase(name, row[0]) for name in names)]
    return max(rows, key=lambda row: len(row[0]))[1] if rows else 1.0


def no_prior(model: str) -> float:  # noqa: ARG001 - as `prior_of`
    """1.0: a token that is counted by the model's own tokenizer, or only compared, is one token."""
    return 1.0


def priors_date() -> str:
    """The day when the table was measured, `YYYY-MM-DD`."""
    return _table()[0]


@cache
def _table() -> tuple[str, tuple[tuple[str, float], ...]]:
    data = json.loads(Path(__file__).with_name("priors.json").read_text("utf-8"))
    return data["date"], tuple((row["model"], float(row["ratio"])) for row in data["models"])
