"""The settings of a compactor with their defaults, and strategies by name."""

import ast
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, fields, replace
from functools import cached_property
from inspect import signature
from itertools import chain
from typing import TYPE_CHECKING, Any

from refold import scorers, strategies
from refold.budget.budget import Budget, default_budget, default_goal, require_budget
from refold.codecs.codec import Codec
from refold.compactor.calibration import Reports
from refold.compactor.hooks import After, Before, Event, OnEvent
from refold.core.strategy import Strategy, is_local
from refold.core.view import View
from refold.edits import Edit
from refold.errors import is_number, require_callable, require_callable_or_none
from refold.models.driver import call_safely
from refold.scorers.scorer import Says
from refold.stores.store import LedgerRow, LedgerStore, Store, require_store
from refold.strategies import (
    ClearThinking,
    ClearToolInputs,
    ClearToolResults,
    ClipResults,
    DropDuplicates,
    Summarize,
    SummarizeTo,
)
from refold.summarizers.forms.facts import Concept, FactType
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.model import ModelSummary
from refold.summarizers.model.prompt import Prompt
from refold.summarizers.placement import TaggedMemory
from refold.tokens.count import Counter
from refold.tokens.model_table import find_rates, find_window

if TYPE_CHECKING:  # slow to import and seldom needed
    from refold.memory import MemoryFlush

_log = logging.getLogger("refold")

# --- settings -------------------------------------------------------------------------------------

BY_HOOK = "refold hook"
"""`by` of an edit that shows what a client's model saw from the start."""


@dataclass(frozen=True)
class Settings:
    """The settings of a `Compactor`, which describes them. Raises ValueError."""

    strategies: tuple[Strategy, ...]
    budget: Budget
    store: Store
    format: str | Codec | None
    model: str
    count: Counter
    reports: Reports
    salt: str
    ledger: LedgerStore | None
    before: Before | None
    after: After | None
    on_event: OnEvent | None
    memory: "MemoryFlush | None"
    clock: Callable[[], float]
    has_default_strategies: bool = False
    """Whether no strategies were given, so that they are made to fit each conversation."""
    has_default_budget: bool = False
    """Whether no budget was given."""
    asks: bool = False
    """Whether a model was given. It writes the first summary of default strategies."""

    def __post_init__(self) -> None:
        list_strategies(self.strategies)
        require_budget(self.budget)
        require_store(self.store)
        if not isinstance(self.model, str):
            raise ValueError(  # noqa: TRY004 - as for all settings
                f"the model must be a name, such as 'claude-opus-5-5', not {self.model!r}"
            )
        if not isinstance(self.salt, str):
            raise ValueError(f"the salt must be a text, not {self.salt!r}")  # noqa: TRY004
        require_callable(count=self.count, clock=self.clock)
        require_callable_or_none(before=self.before, after=self.after, on_event=self.on_event)
        if self.ledger is not None:
            require_callable(**{"the ledger's record": getattr(self.ledger, "record", None)})
        require_callable(**{"the reports' calibrate": getattr(self.reports, "calibrate", None)})
        if self.memory is not None and not hasattr(type(self.memory), "flush_hidden"):
            raise ValueError(f"memory must be a refold.memory.MemoryFlush, not {self.memory!r}")

    @cached_property
    def local(self) -> tuple[Strategy, ...]:
        """The strategies that edit each message at first sight."""
        return tuple(strategy for strategy in self.strategies if is_local(strategy))

    def choose_retrospective(self, goal: int) -> tuple[Strategy, ...]:
        """Return the retrospective strategies, gentlest first. Default ones aim at *goal*
        tokens."""
        defaults = self.has_default_strategies
        chosen = default_strategies(goal, asks=self.asks) if defaults else self.strategies
        return tuple(strategy for strategy in chosen if not is_local(strategy))

    @cached_property
    def local_names(self) -> frozenset[str]:
        """`by` of the edits of local strategies."""
        return frozenset(map(repr, self.local))

    def is_first_sight(self, edit: Edit) -> bool:
        """Return whether *edit* was made before the model saw what it hides. A compactor that only
        reads has no strategies, so local ones are also known by name."""
        return edit.by == BY_HOOK or edit.by in self.local_names or is_by_local(edit.by)

    def fit(self, view: View) -> "Settings":
        """Return these settings; instead of a default budget, with one whose goal fits *view*."""
        if not self.has_default_budget:
            return self
        goal = default_goal(view)
        if goal not in self._fitting:
            budget = default_budget(goal)
            self._fitting[goal] = replace(self, budget=budget, has_default_budget=False)
        return self._fitting[goal]

    @cached_property
    def _fitting(self) -> dict[int, "Settings"]:
        """Fitted settings by goal."""
        return {}

    def warn_if_incomplete(self, model: str) -> None:
        """Log, once for each *model*, what the default budget cannot do for it."""
        if self.has_default_budget and model not in self._models_seen:
            self._models_seen.add(model)
            if gap := describe_missing_model_data(model):
                _log.warning("%s", gap)

    @cached_property
    def _models_seen(self) -> set[str]:
        """Models that were checked."""
        return set()

    def emit(self, event: Event) -> None:
        """Pass an event to the listener, if there is one. Its exceptions are logged."""
        if self.on_event is not None:
            call_safely(self.on_event, event)

    def record(self, rows: Sequence[LedgerRow]) -> None:
        """Write rows to the ledger, if there is one. Its exceptions are logged."""
        if self.ledger is not None:
            call_safely(self.ledger.record, rows)


def list_strategies(strategies: Iterable[Strategy]) -> tuple[Strategy, ...]:
    """Return *strategies* as a tuple. Raises ValueError for a single strategy, a string or anything
    else that cannot be iterated, and for an entry that is no strategy."""
    is_list = isinstance(strategies, Iterable) and not isinstance(strategies, str)
    if not is_list or callable(strategies):
        raise ValueError(f"strategies are given in a list, not as {strategies!r}")
    listed = tuple(strategies)
    for strategy in listed:
        if isinstance(strategy, type) or not callable(strategy):
            raise ValueError(  # noqa: TRY004 - as for all settings
                "a strategy is given with its settings, such as ClearToolResults(keep=3), "
                f"not as {strategy!r}"
            )
        if is_local(strategy) and not _accepts_since(strategy):
            raise ValueError(
                "a local strategy takes a view and `since`, where new messages begin; "
                f"{strategy!r} does not"
            )
    return listed


def _accepts_since(strategy: Strategy) -> bool:
    try:
        signature(strategy).bind(None, 0)
    except (TypeError, ValueError) as error:
        return isinstance(error, ValueError)  # builtins have no signature
    return True


# --- defaults -------------------------------------------------------------------------------------


def describe_missing_model_data(model: str) -> str:
    """Return what the default budget cannot do for *model*, or an empty text. It needs prices and
    the window."""
    table = find_window(model)
    if table.window is not None:
        return ""
    if find_rates(model) is not None:
        return (
            f"{table.reason}: it is compacted when that pays, but not for being nearly full. "
            "Give a budget with a window"
        )
    if model:
        return f"{table.reason}, nor prices: give a budget, else nothing of it is compacted"
    return (
        "no model is named, so neither its window nor its prices are known: name it "
        "(Compactor(model=...), or the request's body in place of its list of messages) "
        "or give a budget, else nothing is compacted"
    )


def default_strategies(target: int | None = None, *, asks: bool = False) -> tuple[Strategy, ...]:
    """Return the default strategies of `refold.compact` and the command line, gentlest first.

    With *asks* a model writes the summary, once. If that is not enough, rules do the rest.

    *target* is the number of tokens to reach, by default the budget's. Two fifths of it, at most
    6,000 tokens, go to a summary, the rest to the newest messages, so that little is unused.
    Summaries come before the clearing of results: on recorded sessions that keeps more of what
    later calls use at the same size (docs/decisions/0027-selection.md).
    """
    summarizer = ModelSummary() if asks else RuleSummary()
    return (
        DropDuplicates(),
        ClipResults(limit=50_000),
        ClearThinking(keep=2),
        SummarizeTo(None if target is None else max(1, target), summarizer=summarizer),
        ClearToolResults(keep=3),
        ClearToolInputs(keep=3),
        Summarize(keep=8, max_tokens=summary_room(target)),
    )


def summary_room(target: int | None) -> int:
    """Return the maximum tokens of the last summary in a request of *target* tokens: a fifth of
    them, from 600 to 3,000, like the minimum of `SummarizeTo`; 3,000 without a target."""
    return 3_000 if target is None else max(600, min(3_000, target // 5))


# --- strategies by name ---------------------------------------------------------------------------
# `by` of an edit is the repr of its strategy, such as `ClearToolResults(keep=3)`. So the strategy
# that a ledger, a log or a diff shows can be given on the command line.

STRATEGIES: Mapping[str, Any] = {name: getattr(strategies, name) for name in strategies.__all__}
"""All strategies that `refold.strategies` exports, by name."""
_LOCAL_NAMES = frozenset(name for name, maker in STRATEGIES.items() if is_local(maker))


def is_by_local(by: str) -> bool:
    """Return whether a local strategy of Refold made an edit with this `by`."""
    return by.partition("(")[0] in _LOCAL_NAMES


_SCORERS: Mapping[str, Any] = {name: getattr(scorers, name) for name in scorers.__all__}
_SUMMARIZERS: Mapping[str, Any] = {"RuleSummary": RuleSummary, "ModelSummary": ModelSummary}
_MESSAGE_PREDICATES: Mapping[str, Any] = {"TaggedMemory": TaggedMemory, "Says": Says}
_NESTED_OBJECTS: Mapping[str, Any] = {
    **STRATEGIES,
    **_SCORERS,
    **_SUMMARIZERS,
    **_MESSAGE_PREDICATES,
    "Concept": Concept,
}
"""Objects that can be named inside settings: `ClearToolResults(scorer=Freshness())`."""
_ACCEPTED_KINDS: Mapping[str, Mapping[str, Any]] = {
    "strategy": STRATEGIES,
    "scorer": _SCORERS,
    "summarizer": _SUMMARIZERS,
    "memory": _MESSAGE_PREDICATES,
    "pin": _MESSAGE_PREDICATES,
    "RetrieveFacts.fallback": STRATEGIES,
    "ModelSummary.fallback": _SUMMARIZERS,
    "ModelSummary.form": {},
    "ClearToolResults.stub": {},
    "Attention.attend": {},
    "Nearness.embed": {},
}
"""Objects that a setting of this name takes. Empty if it takes only what Python code gives."""
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
"""Check and description of the values of a setting of this type."""


def parse_strategy(text: str) -> Strategy:
    """Return the strategy that *text* names, with or without settings in brackets.

    Names may be spelled `ClearToolResults`, `clear_tool_results` or `clear-tool-results`. Settings
    are numbers, texts, lists and the like, scorers, summarizers, concepts and other strategies.
    Raises ValueError, which lists the choices.
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
    """Call *maker* with the settings of a call. Raises ValueError, which says what is wrong."""
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
    """Raise ValueError for an invalid value of a setting."""
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
    """Return the value of a setting: a literal, an object of `_NESTED_OBJECTS` with its settings,
    or a tuple or list of these."""
    match node:
        case ast.Attribute(value=ast.Name(id="FactType"), attr=name) if (
            name in FactType.__members__
        ):
            return FactType[name]
        case ast.Call(func=ast.Name(id=name)) if name in _NESTED_OBJECTS:
            return _construct(_NESTED_OBJECTS[name], node)
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
