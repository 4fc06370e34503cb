"""Strategies by name, as their own repr spells them: `ClearToolResults(keep=3)`.

An edit says by whom it was made in these words, so what a ledger, a log or a diff shows can be
given back on the command line.
"""

import ast
import re
from collections.abc import Mapping
from typing import Any

from refold import scorers, strategies
from refold.compose import Tagged
from refold.strategy import Strategy
from refold.summarizers.concepts import Concept, FactType
from refold.summarizers.model import ModelSummary
from refold.summarizers.rules import RuleSummary

STRATEGIES: Mapping[str, Any] = {name: getattr(strategies, name) for name in strategies.__all__}
"""What can be named: every strategy that `refold.strategies` exports."""
_OTHERS = (RuleSummary, ModelSummary, Tagged, Concept)
_INNER: Mapping[str, Any] = {
    **STRATEGIES,
    **{name: getattr(scorers, name) for name in scorers.__all__},
    **{made.__name__: made for made in _OTHERS},
}
"""What can be named inside settings: `ClearToolResults(scorer=Freshness())`, `Summarize(summarizer=ModelSummary())`."""


def strategy(text: str) -> Strategy:
    """The strategy that *text* names, with its settings in brackets or without.

    Names may be spelled `ClearToolResults`, `clear_tool_results` or `clear-tool-results`; settings
    are numbers, texts, lists and the like, scorers, summarizers, concepts and other strategies. Raises ValueError, with what there is to choose from.
    """
    name, bracket, rest = text.strip().partition("(")
    made = STRATEGIES.get(name) or {_plain(one): value for one, value in STRATEGIES.items()}.get(_plain(name))
    if made is None or not callable(made):
        raise ValueError(f"no strategy is called {name!r}; there are {', '.join(STRATEGIES)}")
    places, settings = _settings(bracket + rest) if bracket else ((), {})
    try:
        return made(*places, **settings)  # type: ignore[no-any-return]
    except (TypeError, AttributeError) as error:
        raise ValueError(f"{name}: {str(error).replace('.__init__()', '')}") from error


def _plain(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).lower()


def _settings(text: str) -> tuple[list[Any], dict[str, Any]]:
    try:
        call = ast.parse(f"f{text}", mode="eval").body
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and all(keyword.arg for keyword in call.keywords)
        ):
            return [_value(value) for value in call.args], {str(k.arg): _value(k.value) for k in call.keywords}
    except (SyntaxError, ValueError, TypeError, KeyError, MemoryError, RecursionError):
        pass
    raise ValueError(f"cannot read the settings {text}: write them as (keep=3, min_tokens=200)")


def _value(node: ast.expr) -> Any:
    """The value of a setting: a literal, something of `_INNER` with its settings, a tuple or list of these."""
    match node:
        case ast.Attribute(value=ast.Name(id="FactType"), attr=name):
            return FactType[name]
        case ast.Call(func=ast.Name(id=name)) if name in _INNER and all(keyword.arg for keyword in node.keywords):
            return _INNER[name](*map(_value, node.args), **{str(k.arg): _value(k.value) for k in node.keywords})
        case ast.Tuple(elts=items):
            return tuple(map(_value, items))
        case ast.List(elts=items):
            return list(map(_value, items))
        case _:
            return ast.literal_eval(node)
