"""Strategies by name, as their own repr spells them: `ClearToolResults(keep=3)`.

An edit says by whom it was made in these words, so what a ledger, a log or a diff shows can be
given back on the command line.
"""

import ast
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, fields
from itertools import chain
from typing import Any

from refold import scorers, strategies
from refold.core.strategy import Strategy
from refold.errors import is_number
from refold.scorers.scorer import Says
from refold.summarizers.forms.facts import Concept, FactType
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.memory_messages import TaggedMemory
from refold.summarizers.model import ModelSummary
from refold.summarizers.model.prompt import Prompt

STRATEGIES: Mapping[str, Any] = {name: getattr(strategies, name) for name in strategies.__all__}
"""What can be named: every strategy that `refold.strategies` exports."""
_SCORERS: Mapping[str, Any] = {name: getattr(scorers, name) for name in scorers.__all__}
_SUMMARIZERS: Mapping[str, Any] = {"RuleSummary": RuleSummary, "ModelSummary": ModelSummary}
_PICKS: Mapping[str, Any] = {"TaggedMemory": TaggedMemory, "Says": Says}
_INNER: Mapping[str, Any] = {**STRATEGIES, **_SCORERS, **_SUMMARIZERS, **_PICKS, "Concept": Concept}
"""What can be named inside settings: `ClearToolResults(scorer=Freshness())`."""
_ACCEPTED_KINDS: Mapping[str, Mapping[str, Any]] = {
    "strategy": STRATEGIES,
    "scorer": _SCORERS,
    "summarizer": _SUMMARIZERS,
    "memory": _PICKS,
    "pin": _PICKS,
    "RetrieveFacts.fallback": STRATEGIES,
    "ModelSummary.fallback": _SUMMARIZERS,
    "ModelSummary.form": {},
    "ClearToolResults.stub": {},
    "Attention.attend": {},
    "Nearness.embed": {},
}
"""What a setting of this name takes; nothing if it takes what has no name here."""
_ACCEPTED_TYPES: Mapping[Any, tuple[Callable[[Any], bool], str]] = {
    int: (lambda value: type(value) is int, "a whole number"),
    float: (is_number, "a number"),
    str: (lambda value: type(value) is str, "a text"),
    Prompt | str: (lambda value: type(value) is str, "a text"),
    Prompt | str | None: (lambda value: value is None or type(value) is str, "a text"),
    bool: (lambda value: type(value) is bool, "True or False"),
    tuple[str, ...]: (
        lambda value: type(value) is tuple and _are_texts(value),
        "a list of texts in round brackets",
    ),
    Collection[str]: (lambda value: type(value) is str or _are_texts(value), "a list of texts"),
    FactType: (
        lambda value: type(value) is FactType,
        " or ".join(f"FactType.{name}" for name in FactType.__members__),
    ),
}
"""What a setting of this type takes, and the words for it."""


def parse_strategy(text: str) -> Strategy:
    """Return the strategy that *text* names, with its settings in brackets or without.

    Names may be spelled `ClearToolResults`, `clear_tool_results` or `clear-tool-results`; settings
    are numbers, texts, lists and the like, scorers, summarizers, concepts and other strategies.
    Raises ValueError, which says what there is to choose from.
    """
    name, bracket, rest = text.strip().partition("(")
    makers = {_normalize(kind): maker for kind, maker in STRATEGIES.items()}
    maker = makers.get(_normalize(name))
    if maker is None:
        raise ValueError(f"no strategy is called {name!r}; there are {', '.join(STRATEGIES)}")
    strategy: Strategy = _construct(maker, _parse_call(bracket + rest if bracket else "()"))
    return strategy


def _normalize(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).lower()


def _parse_call(text: str) -> ast.Call:
    """Parse settings in brackets. Raises ValueError."""
    try:
        call = ast.parse(f"f{text}", mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        call = None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
        return call
    raise ValueError(f"cannot read the settings {text}: write them as (keep=3, min_tokens=200)")


def _construct(maker: Any, call: ast.Call) -> Any:
    """Call *maker* with the settings of a call. Raises ValueError, which says what is wrong with
    them."""
    if not all(keyword.arg for keyword in call.keywords):
        raise ValueError(f"cannot read the settings {_unparse(call)}: write each by its name")
    takes = {field.name: field for field in fields(maker) if field.init}
    settings = dict[str, Any]()

    def refuse(what: str) -> ValueError:
        names = ", ".join(takes) or "none"
        return ValueError(f"{maker.__name__} takes no {what}; its settings are {names}")

    if len(call.args) > len(takes):
        raise refuse(f"{len(call.args)} settings")
    by_name = ((str(keyword.arg), keyword.value) for keyword in call.keywords)
    for name, value in chain(zip(takes, call.args, strict=False), by_name):
        if name not in takes:
            raise refuse(repr(name))
        if name in settings:
            raise refuse(f"{name!r} more than once")
        settings[name] = _value(value)
        _validate_setting(maker.__name__, takes[name], settings[name])
    try:
        return maker(**settings)
    except (TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{maker.__name__}: {str(error).replace('.__init__()', '')}") from error


def _validate_setting(name: str, field: Field[Any], value: Any) -> None:
    """Raise ValueError for a value that a setting cannot have."""
    kinds = _ACCEPTED_KINDS.get(f"{name}.{field.name}", _ACCEPTED_KINDS.get(field.name))
    if kinds is not None and value is not None and type(value) not in kinds.values():
        among = f"one of {', '.join(kinds)}" if kinds else "what only Python code can give"
        raise ValueError(f"{name}: {field.name} must be {among}, not {value!r}")
    fits, description = _ACCEPTED_TYPES.get(field.type, (None, ""))
    if fits and not fits(value):
        raise ValueError(f"{name}: {field.name} must be {description}, not {value!r}")


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple | set) and all(isinstance(item, str) for item in value)


def _value(node: ast.expr) -> Any:
    """Return the value of a setting: a literal, something of `_INNER` with its settings, a tuple or
    list of these."""
    match node:
        case ast.Attribute(value=ast.Name(id="FactType"), attr=name) if (
            name in FactType.__members__
        ):
            return FactType[name]
        case ast.Call(func=ast.Name(id=name)) if name in _INNER:
            return _construct(_INNER[name], node)
        case ast.Tuple(elts=items):
            return tuple(map(_value, items))
        case ast.List(elts=items):
            return list(map(_value, items))
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise ValueError(
            f"cannot read the setting {_unparse(node)}; settings are numbers, texts, lists, "
            "and what the documentation shows there"
        ) from None


def _unparse(node: ast.expr) -> str:
    try:
        return ast.unparse(node)[:200]
    except RecursionError:
        return "of so many brackets"
