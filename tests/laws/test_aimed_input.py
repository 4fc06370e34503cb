"""Adversarial text: no pattern and no function over text is slower than n log n (C1, C3, C4, C20).

Any user and any tool output can put any text into a request, and `re` holds the interpreter lock
while it works. One slow text would block every conversation of a process.
"""

import ast
import importlib
import inspect
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import chain, pairwise, product, repeat
from math import log
from re import _constants as names
from re import _parser as parser
from time import thread_time
from types import FrameType, ModuleType
from typing import Any, NamedTuple

import pytest
from benchmarks.replay import expand_groups

import refold
from refold.budget.budget import Budget
from refold.compactor.hooks import CompactionStarted, build_rows
from refold.compactor.late_edits import STRIP_THINKING_BY
from refold.compactor.run import compact_if_due
from refold.core.view import View
from refold.edits import Edit
from refold.gateway.pipeline.request_kind import Cap
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.models.driver import drive
from refold.models.responses import strip_reasoning
from refold.retrieval.search import word_pattern
from refold.session_files import read_bytes
from refold.strategies import Chunked
from refold.summarizers.forms.form import closing_tag, opening_tag, strip_scratchpads
from refold.summarizers.forms.sections import HANDOVER
from refold.summarizers.heuristic import RuleSummary, lexicon, shell_words
from refold.summarizers.heuristic.actions import Action, Actions
from refold.summarizers.heuristic.blocks import Block, Line, Work, read_work
from refold.summarizers.heuristic.calls import CallEffect, effect_of_call, effect_of_command
from refold.summarizers.heuristic.current_files import read_files
from refold.summarizers.heuristic.excerpts import (
    Context,
    Selection,
    find_excerpts,
)
from refold.summarizers.heuristic.state import read_state
from refold.summarizers.heuristic.steps import Step, read_steps
from refold.summarizers.heuristic.task import Task, render_task
from refold.summarizers.model.accept import _heading, _heading_lines, check_quotes
from refold.text.clip import Gap
from refold.text.summary_wrapper import wrap_summary
from tests.support.backtracking import Attack, Machine, TooManySteps, attacks
from tests.support.sources import SOURCE, syntax_trees
from tests.support.summaries import read_summary

CUES = [value for value in vars(lexicon).values() if isinstance(value, lexicon.WordPattern)]

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
WORST = 1.3
"""Upper bound of the exponent: that of n log n, with some tolerance."""


@cache
def modules() -> dict[str, ast.Module]:
    """Return the syntax tree of every module of the package."""
    return {
        ".".join(("refold", *file.relative_to(SOURCE).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): tree
        for file, tree in syntax_trees().items()
    }


# --- every pattern ---------------------------------------------------------------------------------

USES = {"match", "fullmatch", "search", "findall", "finditer", "sub", "subn", "split"}
MAKERS = {"compile", *USES}

MADE: dict[tuple[str, str], Callable[[], list[re.Pattern[Any]]]] = {
    ("refold.retrieval.search", "word_pattern"): lambda: [
        p for p in (word_pattern("ab abc 中文字"),) if p
    ],
    ("refold.summarizers.forms.sections", "_pattern"): lambda: [HANDOVER._pattern()],
    ("refold.summarizers.forms.form", "opening_tag"): lambda: [
        opening_tag(("state_snapshot", "goal"))
    ],
    ("refold.summarizers.forms.form", "closing_tag"): lambda: [closing_tag("state_snapshot")],
    ("refold.summarizers.model.accept", "_heading"): lambda: [_heading("Open work")],
    ("refold.summarizers.model.accept", "_heading_lines"): lambda: [
        _heading_lines(("Open work", "Notes"))
    ],
    ("refold.summarizers.heuristic.lexicon", "_spaced"): lambda: [cues._spaced for cues in CUES],
    ("refold.summarizers.heuristic.lexicon", "_dense"): lambda: [cues._dense for cues in CUES],
    ("refold.summarizers.heuristic.lexicon", "_japanese"): lambda: [c._japanese for c in CUES],
    ("refold.summarizers.heuristic.identifiers", "_compile"): list,  # its callers are tested
}
"""Example patterns of functions that build one from their arguments, by module and function."""


class PatternUse(NamedTuple):
    """A pattern, its place, and its use: `match`, `fullmatch`, or `search` for all others."""

    where: str
    pattern: re.Pattern[Any]
    use: str


class _Calls(ast.NodeVisitor):
    """Calls of `re` and uses of patterns in one module, each with its enclosing function."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ast.Call]] = []
        self.uses: dict[str, set[str]] = {}
        self.used_as: dict[ast.expr, str] = {}
        """Method that is called on the result of a call."""
        self._in: list[str] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._in.append(node.name)
        self.generic_visit(node)
        self._in.pop()

    def visit_Call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Attribute(ast.Name("re"), name) if name in MAKERS:
                self.calls.append((".".join(self._in), node))
            case ast.Name("_compile"):
                self.calls.append((".".join(self._in), node))
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.used_as[node.value] = node.attr
        if node.attr in USES and isinstance(node.value, ast.Name | ast.Attribute):
            name = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            self.uses.setdefault(name, set()).add(node.attr)
        self.generic_visit(node)


def _use(uses: set[str]) -> str:
    return (
        "fullmatch"
        if uses == {"fullmatch"}
        else "match"
        if uses and uses <= {"match", "fullmatch"}
        else "search"
    )


@cache
def patterns() -> tuple[PatternUse, ...]:
    """Return every pattern of the package: values of its modules, and arguments of `re` in its
    functions."""
    by_pattern = dict[tuple[Any, int, str], PatternUse]()
    for name, tree in modules().items():
        if not _knows_patterns(tree):
            continue
        visitor = _Calls()
        visitor.visit(tree)
        if not visitor.calls:
            continue
        module = importlib.import_module(name)
        for path, pattern in _values(module):
            use = _use(visitor.uses.get(path.partition("[")[0], set()))
            by_pattern.setdefault(
                (pattern.pattern, pattern.flags, use), PatternUse(f"{name}.{path}", pattern, use)
            )
        for function, call in visitor.calls:
            for pattern in _read_patterns(module, function, call):
                use = (
                    call.func.attr
                    if isinstance(call.func, ast.Attribute)
                    else visitor.used_as.get(call, "search")
                )
                use = use if use in {"match", "fullmatch"} else "search"
                where = f"{name}.{function or call.lineno}"
                if not any(key[:2] == (pattern.pattern, pattern.flags) for key in by_pattern):
                    by_pattern[pattern.pattern, pattern.flags, use] = PatternUse(
                        where, pattern, use
                    )
    return tuple(by_pattern.values())


def _knows_patterns(tree: ast.Module) -> bool:
    """Return whether a module imports `re` or `_compile`."""
    imports = (node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    return any(alias.name in {"re", "_compile"} for node in imports for alias in node.names)


def _values(module: ModuleType) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Yield the path and value of each pattern in a module, also in tuples, mappings and
    objects."""
    values, seen = list(vars(module).items()), set[int]()
    while values:
        path, value = values.pop()
        if isinstance(value, re.Pattern):
            yield path, value
        elif isinstance(value, tuple | list | frozenset | set):
            values += ((f"{path}[{at}]", item) for at, item in enumerate(value))
        elif isinstance(value, dict) and not path.startswith("__"):
            values += ((f"{path}[{key!r}]", item) for key, item in value.items())
        elif type(value).__module__.startswith("refold.") and id(value) not in seen:
            seen.add(id(value))
            fields = getattr(value, "__dataclass_fields__", ())
            values += ((f"{path}[{field}]", getattr(value, field)) for field in fields)


def _read_patterns(module: ModuleType, function: str, call: ast.Call) -> Iterator[re.Pattern[Any]]:
    words = {word.arg: word.value for word in call.keywords}
    flags = words.get("flags") or (
        call.args[1] if ast.unparse(call.func) == "re.compile" and call.args[1:] else None
    )
    try:
        pattern, given = (
            eval(ast.unparse(node), dict(vars(module)))
            for node in (call.args[0], flags or ast.Constant(0))
        )
    except NameError:
        if function:  # module level patterns are values
            where = module.__name__, function.rpartition(".")[2]
            assert where in MADE, (
                f"what pattern does {'.'.join(where)} make? Say an example in MADE"
            )
            yield from MADE[where]()
        return
    yield re.compile(pattern, given)


def exponent(small: float, large: float, times: float) -> float:
    """Return the growth exponent: 1 for twice the work on twice the text, 2 for four times."""
    return log(max(1e-9, large) / max(1e-9, small)) / log(times) if times > 1.5 else 0.0


A_CHARACTER = 600
"""Limit of steps per character, whatever the growth. The largest lexicon needs about 450."""


def _steps(machine: Machine, text: str, use: str) -> int:
    machine.steps, machine.most = 0, A_CHARACTER * len(text)
    if use == "search":
        machine.findall(text)
    else:
        machine.match(text, whole=use == "fullmatch")
    return machine.steps


def worst(pattern: re.Pattern[Any], use: str = "search") -> tuple[float, str]:
    """Return the highest exponent found for a pattern's steps, and the text that shows it."""
    sizes, many = ((100, 400, 1_600, 6_400), 1_000) if NIGHTLY else ((40, 160, 640, 2_560), 8)
    machine, highest = Machine(pattern), (0.0, "")
    for attack in attacks(pattern, many):
        grows, text = _growth(machine, attack, use, sizes)
        if grows > WORST:
            return grows, text
        highest = max(highest, (grows, text))
    return highest


def _growth(machine: Machine, attack: Attack, use: str, sizes: Sequence[int]) -> tuple[float, str]:
    """Return the exponent at the largest of *sizes*, or at the first with a low one. A bounded
    lookback grows until the text is as long."""
    grows, text, shorter, fewer = 0.0, "", "", 0
    for size in sizes:
        text = attack.text(size)
        try:
            steps = _steps(machine, text, use)
        except TooManySteps:
            return 99.0, text
        if shorter:
            grows = exponent(fewer, steps, len(text) / len(shorter))
            if grows <= WORST or steps < 30 * len(text):
                return min(WORST, grows), text
        shorter, fewer = text, steps
    return grows, text


SHARES = 8
"""Number of tests among which the patterns and the functions are divided, so that several processes
can run them."""


@pytest.mark.parametrize("share", range(SHARES))
def test_no_regex_takes_more_than_n_log_n_steps(share: int) -> None:
    """An adversarial text costs no more than any text of its length."""
    dealt = patterns()[share::SHARES]
    assert len(dealt) > 20
    for pattern in dealt:
        grows, text = worst(pattern.pattern, pattern.use)
        assert grows <= WORST, (
            f"{pattern.where}: {pattern.pattern.pattern!r} ({pattern.use}) grows with exponent {grows:.2f} on {text[:80]!r}"
        )


@pytest.mark.parametrize(
    ("source", "use"),
    [
        (r"(?:\s*2>&1|\s*\|&?\s*(?:tail|head|cat|tee)\b[^|&;]*)+$", "search"),  # C1
        (r"(\"(?:[^\"\\]|\\.)*(?:\"|$)|[^\s\",]+) (\d{1,15})(?:, |$)", "search"),  # C3
        (r"(?ms).*?^\s*</think>[ \t]*(?:\n|\Z)", "match"),  # C20
        (r"^[ \t]*(?:#{1,6}[ \t]|[^\n]*[:：]\**[ \t]*$)", "match"),  # C20
        (r"“([^”]+)”", "search"),
        (r"(a+)+$", "match"),
        (r"\w*_\w*[a-z]\w*$", "match"),
    ],
)
def test_the_checker_finds_slow_regexes(source: str, use: str) -> None:
    """They are patterns from before they were fixed."""
    assert worst(re.compile(source), use)[0] > WORST


def test_no_pattern_repeats_more_than_a_character_possessively() -> None:
    """Python before 3.11.5, as in Debian 12, matches these wrongly: `(?:ab)*+` (gh-106052).
    `(?>(?:ab)*)` is right."""
    for pattern in patterns():
        tree = parser.parse(pattern.pattern.pattern, pattern.pattern.flags)
        assert not any(map(_is_long, _possessive(tree))), pattern.where


def _possessive(tree: Any) -> Iterator[Any]:
    """Yield the possessively repeated parts of a parsed pattern."""
    for operation, value in tree if isinstance(tree, parser.SubPattern) else ():
        if operation is names.POSSESSIVE_REPEAT:
            yield value[2]
        for part in value if isinstance(value, tuple | list) else (value,):
            for inner in part if isinstance(part, list) else (part,):
                yield from _possessive(inner)


def _is_long(body: parser.SubPattern) -> bool:
    return len(body) != 1 or body[0][0] not in (
        names.LITERAL,
        names.NOT_LITERAL,
        names.IN,
        names.ANY,
        names.GROUPREF,
    )


def test_the_step_counting_regex_engine_matches_like_re() -> None:
    """It gives the same matches as Python."""
    for pattern in patterns()[:: 1 if NIGHTLY else 12]:
        machine = Machine(pattern.pattern)
        for attack in attacks(pattern.pattern, 20):
            text = attack.text(24)
            is_bytes = isinstance(pattern.pattern.pattern, bytes)
            given: Any = text.encode("utf-8", "replace") if is_bytes else text
            spans = [match.span() for match in pattern.pattern.finditer(given)]
            assert len(given) != len(text) or machine.findall(text) == spans, pattern.where


# --- every function over text ----------------------------------------------------------------------

ELSEWHERE = (
    "refold.cli", "refold.stores", "refold.adapters", "refold.scripted", "refold.testing", "refold.presets.koog",
    "refold.gateway.api", "refold.gateway.ledger", "refold.gateway.config", "refold.gateway.config", "refold.gateway.serve",
    "refold.gateway.settings", "refold.gateway.settings", "refold.gateway.metrics",
    "refold.gateway.exchange", "refold.gateway.logs", "refold.compactor.settings", "refold.models.model",
    "refold.rules", "refold.errors", "refold.errors", "refold.summarizers.placement", "refold.tokens.model_table", "refold.session_files.source", "refold.budget.triggers",
)  # fmt: skip
"""Modules whose texts come from the operator: commands, paths, addresses, settings, names of models
and of rules."""

GIVEN: dict[str, Any] = {
    "size": 2_000, "first": 1, "head": 0.5, "limit": 300, "room": 2_000, "width": 200, "at": 0, "start": 10, "stop": 100, "offset": 10, "times": 3, "number": 1,
    "depth": 0, "query": "error code 中文", "cost": len, "final": True, "error": True, "source": "result", "words": ("error", "fail"),
    "name": "state_snapshot", "names": ("goal", "state_snapshot"), "before": re.compile("<goal>"), "said": ("never delete it",),
    "user_words": "never delete it", "quote": re.compile(r"\"([^\"\n]+)\""), "titles": ("Open work", "Notes"), "title": "Notes", "arguments": {},
    "folders": set(), "lines": ["a"], "after": "", "code": 1, "status": 400, "api": "openai_chat", "role": "user", "encoding": "gzip",
    "problems": [], "asked": {"a", "error"}, "kinds": ("log", "json"), "cut": Gap(10, 20), "fields": {"a": 1}, "caps": (Cap(("max_tokens",), 5),), "patterns": ("a*",), "message": "", "param": "",
    "signature": "", "concept": "a", "kind": "said", "tag": "record", "model": "m", "upstream": "u", "by": "rule", "id": "1", "finish": "stop", "method": "POST",
    "bad": True, "record": "r", "server": "s", "sent": 0, "token": "t", "other": "", "text": "a", "tools": None, "path": "src/a.py",
}  # fmt: skip
"""Arguments of functions beside the text, by parameter name."""
BESIDE: dict[str, dict[str, Any]] = {
    "refold.summarizers.heuristic.blocks.find_kind": {"command": "ls"},
    "refold.summarizers.heuristic.blocks._iter_spoken": {"is_in_clauses": True, "binds": True},
    "refold.summarizers.heuristic.blocks._iter_clauses": {"is_in_clauses": True},
    "refold.summarizers.heuristic.answers.find_question": {"reply": "C"},
    "refold.summarizers.heuristic.actions.has_command": {"failed": "git push"},
    "refold.summarizers.heuristic.actions.find_outcome_line": {"failed": False, "printed": False},
    "refold.summarizers.heuristic.actions.write_outcome": {"outcome": "ok"},
    "refold.summarizers.heuristic.actions.find_nothing_ran": {"check": "pytest"},
    "refold.text.plain.count_columns": {"most": 40},
}
"""Arguments of single functions."""
TEXTS = {
    "arguments", "bare", "body", "chunk", "code", "command", "data", "element", "error", "event", "line", "outcome", "path", "piece", "plain", "query", "raw", "record",
    "row", "rule", "run", "said", "sent", "sentence", "source", "term", "text", "told", "token", "whole", "word",
}  # fmt: skip
"""Names of `str` or `bytes` parameters with untrusted text."""
PLAIN = {str, bytes, int, float, bool, "str", "bytes", "int", "float", "bool"}
SKIPPED: dict[str, str] = {
    "refold.summarizers.heuristic.identifiers._compile": "makes patterns of our own",
    "refold.speakers.segments._element_end": "a part of `_split_text`",
    "refold.speakers.segments._make_segment": "likewise",
    "refold.gateway.pipeline.upstream_errors._sentences_of_text": "a part of `error_sentences`",
}
"""Functions whose first argument is no untrusted text, or a part that its callers, which are
tested, limit."""

SHAPES: dict[str, Callable[[int], str]] = {
    unit: lambda size, unit=unit: unit * (size // len(unit))  # type: ignore[misc]
    for unit in (
        "a", "A", "0", "_a", "aA", " ", "\n", "\t", "\r\n", "a\n", "a b ", "Ab. ", "中", "中。", "中a", "é", "\u0301", "\U0001f1e9", "\ud83d", "( ", "[", "{", "}",
        '{"a":', "[[]", '"', "\\", '\\"', '"a", ', "'", "`", "```", "```bash\n", "```a", "<", "<a", "<a>", "<think>", "</think>", "<think></think>",
        "<system-reminder>", "<skill a=", "<summary>", "<!--", "<![CDATA[", "| cat ", "|", " | cat | grep x", "cd a; ", "A=b ", "<<E ", "2>&1 ", "a/", "/", "//", "a/b.py ",
        "## Counts\nmessages 3; calls a", "## Requests\n- a\n", "## Files\nread: a/{b,c} ", "- [ ] a\n", "- a\n", "1. ", "# ", "> ", "* ", "**", "“", "「", "『", "«", "„", ": ", ", ",
        "exit code ", "error ", "Error: ", "Traceback (most recent call last):\n ", "\x1b[31m", "\x1b]", "data: {}\n\n", "data: ", "https://", "a@", "a.", "password=",
        "-----BEGIN PRIVATE KEY-----", "eyJ", "sk-", "*** Add File: ", "<function=a>", "<a_b><c>", "<a_b></c></a_b>", "<a_b><c></c>", "<tool_call>{}", "<<<<<<< SEARCH\n=======\n", "never ", "decided ", "(×2)", "\ufeff", "&lt;", "\x00", "=", "-", "~", "$",
    )
} | {
    "names": lambda size: " ".join(f"name_{at}" for at in range(size // 10)),
    "paths": lambda size: " ".join(f"src/m{at}/f{at}.py" for at in range(size // 16)),
    "lines": lambda size: "\n".join(f"line {at} says it." for at in range(size // 16)),
    "sentences": lambda size: " ".join(f"We decided that x{at} is never used." for at in range(size // 36)),
    "listed": lambda size: "## Files\nread: " + " ".join(f"a{at}/{{b,c}}" for at in range(size // 12)),
    "counts": lambda size: "## Counts\nmessages 3; calls " + ", ".join(f"t{at} 3" for at in range(size // 8)),
    "one folder": lambda size: "## Files\nread: " + "a" * (size // 2) + "/{" + "b," * (size // 4) + "}",
    "opened": lambda size: "<a>" * (size // 7) + "</a>" * (size // 7),
    "quoted": lambda size: "The user said " + '"x y z a b c d e" ' * (size // 18),
}  # fmt: skip
"""Repeated hard shapes: unclosed, unterminated, or very many."""


class Reader(NamedTuple):
    """A function over text with its other arguments bound."""

    where: str
    call: Callable[[Any], Any]
    is_bytes: bool


@cache
def readers() -> tuple[Reader, ...]:
    """Return every function of the package, private ones too, that takes untrusted text."""
    all_readers = list[Reader]()
    for name, tree in modules().items():
        named = [
            node.name for node in tree.body if isinstance(node, ast.FunctionDef) and _text_of(node)
        ]
        if named and not name.startswith(ELSEWHERE):
            module = importlib.import_module(name)
            candidates = (_reader(getattr(module, each), f"{name}.{each}") for each in named)
            all_readers += (
                reader for reader in candidates if reader and reader.where not in SKIPPED
            )
    return tuple(all_readers)


def _text_of(node: ast.FunctionDef) -> str:
    texts = (
        each
        for each in (*node.args.posonlyargs, *node.args.args)
        if each.annotation and each.arg in TEXTS
    )
    return next(
        (each.arg for each in texts if ast.unparse(each.annotation or each) in {"str", "bytes"}), ""
    )


def _reader(function: Any, where: str) -> Reader | None:
    """Return None if the function needs more than texts and numbers. The tests of whole compactions
    below cover it."""
    parameters = inspect.signature(function).parameters.values()
    needed = [each for each in parameters if each.default is each.empty or each.name in TEXTS]
    text = next(
        each
        for each in needed
        if each.name in TEXTS and each.annotation in {str, bytes, "str", "bytes"}
    )
    given = {**GIVEN, **BESIDE.get(where, {}), text.name: None}
    missing = [each.name for each in needed if each.name not in given]
    if any(each.name in missing and each.annotation not in PLAIN for each in needed):
        return None
    assert not missing, f"what is {where} given beside a text? {missing}"

    def call(text_given: Any) -> Any:
        places = [
            text_given if each is text else given[each.name]
            for each in needed
            if each.kind is not each.KEYWORD_ONLY
        ]
        words = {each.name: given[each.name] for each in needed if each.kind is each.KEYWORD_ONLY}
        outcome = function(*places, **words)
        return list(outcome) if isinstance(outcome, Iterator) else outcome

    return Reader(where, call, text.annotation in {bytes, "bytes"})


def _seconds(call: Callable[[Any], Any], text: Any, times: int = 1) -> float:
    """Return the least processor time of this thread in *times* runs. Errors are ignored."""
    least = float("inf")
    for _ in range(times):
        start = thread_time()
        with suppress(Exception):
            call(text)
        least = min(least, thread_time() - start)
    return least


SIZES = (1_000, 4_000, 16_000, 64_000) if NIGHTLY else (1_000, 4_000)
"""Sizes in characters. The longest has no more names than a summary remembers (10,000)."""
QUICK = 0.02
"""Time in seconds below which a text of any of these sizes is not measured again."""
LOOKS = 24
"""Maximum number of repeated measurements. On a busy machine a cold cache doubles short times."""
SURE_LOOKS, SURE_SECONDS = 3, 6.0
"""Number of measurements, and seconds of them, after which a slow result is not measured again."""


def grows(
    call: Callable[[Any], Any],
    text: Callable[[int], Any],
    sizes: Sequence[int] = SIZES,
    quick: float = QUICK,
) -> float:
    """Return the exponent of a function's processor time. A slow result is measured again until it
    is low (`_exponents`). The shorter text is measured twice as often, so that a delay rarely
    makes an exponent lower."""
    for small, large in pairwise(sizes):
        shorter = text(small)
        first_short = _seconds(call, shorter)
        if first_short * (large / small) ** 3 <= quick:  # the longer is quick even if it is cubic
            continue
        longer = text(large)
        if (first := _seconds(call, longer)) > quick:
            times = (
                len(longer) / max(1, len(shorter))
                if isinstance(longer, str | bytes)
                else large / small
            )
            readings = chain([first], (_seconds(call, longer) for _ in range(LOOKS)))
            shorts = chain(
                [min(first_short, _seconds(call, shorter))],
                (_seconds(call, shorter, 2) for _ in range(LOOKS)),
            )
            looks = _exponents(zip(shorts, readings, strict=True), times)
            if (least := min_until(looks, WORST)) > WORST:
                return least
    return 1.0


def _exponents(pairs: Iterator[tuple[float, float]], times: float) -> Iterator[float]:
    """Yield an exponent for each pair of times, the lower one of two: that of the least times so
    far, and that of the pair itself, since a processor may halve its speed for seconds. End once
    the result is sure."""
    shortest, longest, spent = float("inf"), float("inf"), 0.0
    for looks, (shorter, longer) in enumerate(pairs, 1):
        shortest, longest = min(shortest, shorter), min(longest, longer)
        yield min(exponent(shortest, longest, times), exponent(shorter, longer, times))
        spent += shorter + longer
        if looks >= SURE_LOOKS and spent > SURE_SECONDS:
            break


@pytest.mark.parametrize(("seconds", "looks"), [(5.0, 3), (1.0, 6), (0.01, LOOKS)])
def test_a_slow_function_is_measured_for_seconds_and_not_for_minutes(
    seconds: float, looks: int
) -> None:
    """A function that takes 5 seconds used to be measured 24 times before the test failed."""
    pairs = repeat((seconds / 16, seconds), LOOKS)
    assert len(list(_exponents(pairs, 4.0))) == looks


def min_until(values: Iterator[float], enough: float) -> float:
    """Return the least of *values*. Stop reading them at the first that is low enough."""
    least = float("inf")
    for value in values:
        least = min(least, value)
        if least <= enough:
            break
    return least


@cache
def _shape_text(name: str, size: int, is_bytes: bool) -> Any:
    text = SHAPES[name](size)
    return text.encode("utf-8", "replace") if is_bytes else text


@pytest.mark.parametrize("share", range(SHARES))
def test_no_text_function_takes_more_than_n_log_n_time(share: int) -> None:
    """For any kind of text, twice the length takes little more than twice the time."""
    dealt = readers()[share::SHARES]
    assert len(dealt) > 20
    for reader, name in product(dealt, SHAPES):
        growth = grows(reader.call, lambda size: _shape_text(name, size, reader.is_bytes))  # noqa: B023 - called at once
        assert growth <= WORST, f"{reader.where} grows with exponent {growth:.2f} on {name!r}"


def test_no_text_function_fails_on_a_lone_surrogate() -> None:
    """JSON may contain one, and so may invalid UTF-8. A session with such text could not be
    summarised."""
    texts = (
        "Half \ud800 a pair, in prose of some length. " * 4,
        "exit code 1\n- [ ] a/b\udc80.py\n" * 8,
    )
    stumbled = set[str]()
    for reader, text in product(readers(), texts):
        with suppress(Exception):
            try:
                reader.call(text.encode("utf-8", "surrogatepass") if reader.is_bytes else text)
            except UnicodeEncodeError:
                stumbled.add(reader.where)
    assert not stumbled


@pytest.mark.parametrize(
    ("command", "listed"),
    [
        ("make test 2>&1 | tail -20", "make test"),
        ("ls | cat 2>&1 | head -5 2>&1", "ls"),
        ("ls |& tail -3", "ls"),
        ("ls || cat x", "ls || cat x"),
        ("grep 'a | cat b' | head", "grep 'a | cat b'"),
        ("a | tee out.txt; b | cat", "a | tee out.txt; b"),
        ("ls" + " | cat" * 60 + " | grep x", "ls" + " | cat" * 60 + " | grep x"),
    ],
)
def test_c1_a_command_is_listed_without_the_pipes_that_trim_its_output(
    command: str, listed: str
) -> None:
    """The last of these used to take months. A pipe in quotes or in `||` trims nothing."""
    assert shell_words.name_command(command) == listed


def test_c3_a_list_of_files_is_read_exactly_and_in_linear_time() -> None:
    """A forged list of files is read once, and a genuine one is read back completely."""
    paths = ["Bash", "we ird, 2", 'q" a']
    text = "## Files\nread: " + " ".join(json.dumps(path) for path in paths)
    assert list(read_summary(text).files) == paths
    forged = lambda size: "## Files\nread: " + '"a\\' * (size // 3)  # noqa: E731 - a shape
    assert grows(read_summary, forged, (2_000, 8_000, 32_000)) <= WORST


def test_an_edit_of_a_file_of_equal_lines_is_applied_in_time_linear_in_its_length() -> None:
    """With 100,000 lines in the file and the edit, a line-by-line search took hours."""

    def work(size: int) -> list[Step]:
        text = "\n".join(f"{number}\tsame" for number in range(1, size + 1))
        change = {"path": "a.py", "old_string": "same\n" * (size // 2) + "other", "new_string": "x"}
        read = effect_of_call(ToolCall("1", "read", '{"path": "a.py"}'))
        edit = effect_of_call(ToolCall("2", "edit", json.dumps(change)))
        return [
            Step("result", 0, text, read),
            Step("result", 1, "ok", edit, json.dumps(change)),
        ]

    assert grows(read_files, work, (2_000, 16_000)) <= WORST


def test_the_tracked_text_of_a_large_file_is_dropped_after_many_edits() -> None:
    """8,000 edits of 40,000 lines used to take half a minute."""
    calls = [{"path": "a.py", "content": "\n".join(f"<{at}>" for at in range(8_000))}]
    calls += [
        {"path": "a.py", "old_string": f"<{at}>", "new_string": f"line {at}"} for at in range(151)
    ]  # 8,000 lines, and 640 times a hundred characters
    steps = [
        Step("result", at, "ok", effect_of_call(ToolCall("1", name, arguments)), arguments)
        for at, call in enumerate(calls)
        for name, arguments in [("edit" if at else "write", json.dumps(call))]
    ]
    assert read_files(steps[:101])["a.py"].lines[98:101] == [
        (99, "line 98"),
        (100, "line 99"),
        (101, "<100>"),
    ]
    assert not read_files(steps)["a.py"].lines


def test_the_tracked_text_of_a_long_line_is_dropped_after_many_edits() -> None:
    """8,000 edits of one line used to take 1.3 seconds, and four times as many 16 times as long."""

    def work(many: int) -> list[Step]:
        edits = [{"old_string": f"<{at}>", "new_string": f"[{at}]"} for at in range(many)]
        calls = [
            {"path": "a.py", "content": "".join(f"<{at}>" for at in range(many)) + "x" * 200_000},
            {"path": "a.py", "edits": edits},
        ]
        texts = [json.dumps(call) for call in calls]
        names = ("write", "edit")
        return [
            Step("result", at, "ok", effect_of_call(ToolCall("1", names[at], text)), text)
            for at, text in enumerate(texts)
        ]

    assert read_files(work(200))["a.py"].lines[0][1].startswith("[0][1]")
    assert not read_files(work(1_000))["a.py"].lines


@pytest.mark.parametrize(
    "part",
    [
        "open(a, 'w'\n",
        "a.write_text(",
        "a = 'b' ",
        "'a.b' open(\n",
        "writeFile(",
        "black ",
        "(cd a ",
    ],
)
def test_shell_commands_are_parsed_in_time_linear_in_their_length(part: str) -> None:
    sizes = (4_000, 16_000, 64_000) if NIGHTLY else (4_000, 16_000)
    text = lambda size: f"python - <<E\n{part * (size // len(part))}\nE\n{part * 9}"  # noqa: E731 - a shape
    assert grows(effect_of_command, text, sizes) <= WORST
    text = lambda size: part * (size // len(part))  # noqa: E731 - a shape
    assert grows(effect_of_command, text, sizes) <= WORST


COMMANDS = (500, 2_000, 8_000) if NIGHTLY else (250, 1_000)
"""Numbers of commands. 2,000 used to take seconds while each was compared with all before it."""
read_effect = cache(effect_of_command)
"""The same commands are in the shorter and the longer list, and in those of several tests."""


def test_deletions_of_folders_are_read_in_time_linear_in_their_number() -> None:
    """4,000 of them used to take eleven seconds."""

    def work(size: int) -> list[Step]:
        touches = (read_effect(f"touch kept{at}/a.py") for at in range(size))
        gone = (read_effect(f"rm -rf build{at}") for at in range(size))
        return [Step("result", at, "", effect) for at, effect in enumerate((*touches, *gone))]

    assert grows(read_state, work, COMMANDS) <= WORST


def test_requests_that_state_rules_are_read_in_time_linear_in_their_number() -> None:
    """4,000 of them used to take ninety seconds: the subject of each was read again for each that
    followed."""

    def work(size: int) -> list[Step]:
        asked = ("No, never touch `file_{}.py`.", "Look at the page.")
        return [Step("request", at, asked[at % 2].format(at)) for at in range(size)]

    assert grows(read_state, work, COMMANDS) <= WORST


@pytest.mark.parametrize(
    "command",
    [
        "git add x{}.py",
        "git checkout x{}.py",
        "git stash",
        "git pull",
        "git add *.py && git commit -m x",
    ],
)
def test_git_commands_are_read_in_time_linear_in_their_number(command: str) -> None:
    """8,000 of them after as many files used to take two minutes."""

    @cache
    def work(size: int) -> list[Step]:
        touches = (read_effect(f"touch kept{at}/a.py") for at in range(size))
        steps = (read_effect(command.format(at)) for at in range(size))
        return [Step("result", at, "", effect) for at, effect in enumerate((*touches, *steps))]

    assert grows(read_state, work, COMMANDS) <= WORST
    assert grows(read_files, work, COMMANDS) <= WORST
    assert grows(read_work, work, COMMANDS) <= WORST


def _ran(command: str, output: str) -> Step:
    return Step("result", 0, output, read_effect(command))


STEPS: dict[str, Callable[[int], list[Step]]] = {
    "checks": lambda many: [_ran(f"pytest tests/test_{at}.py", "3 passed") for at in range(many)],
    "decisions": lambda many: [
        Step(kind, at, text, is_final=True)  # type: ignore[arg-type]
        for at in range(many)
        for kind, text in (
            ("answer", f"We decided to use Redis_{at} because it is fast."),
            ("request", f"Use Foo{at} instead of Bar{at}."),
        )
    ],
    "parts": lambda many: [
        _ran("cat a.py", "\n".join(f"line {at}" for at in range(many))),
        *(_ran(f"sed -n '{at + 1}p' a.py", f"line {at}") for at in range(many)),
    ],
}


def test_failures_are_compared_with_edits_in_time_linear_in_their_number() -> None:
    """4,000 edits after as many failures took fifteen seconds: each was compared with all."""
    edit = effect_of_call(ToolCall("1", "write", '{"path": "a.py", "content": ""}'))

    def compare(many: int) -> Actions:
        failed = {f"job_{at}": Action("error", program=f"job_{at}") for at in range(many)}
        actions = Actions(failed=failed | {"edit a.py": Action("error", program="edit")})
        for at in range(many):
            actions.drop_mended(Step("result", at, "ok", edit))
        return actions

    assert "edit a.py" not in compare(10).failed
    assert grows(compare, lambda many: many, (250, 1_000)) <= WORST


def test_turns_are_ended_in_time_linear_in_their_number() -> None:
    """4,000 turns took eight seconds: at the end of each all calls so far were read again."""

    def end(many: int) -> Actions:
        actions = Actions(done={f"job_{at}": Action("running") for at in range(many)})
        for at in range(many):
            actions.end_turn()
            call = CallEffect("queue", action="start")
            actions.note(
                Step("result", at, f"{at}", call, is_running=True), "running", is_check=False
            )
        return actions

    assert [act.is_running for act in end(2).done.values()] == [False, False, True]
    assert grows(end, lambda many: many, (250, 1_000)) <= WORST


@pytest.mark.parametrize("name", STEPS)
def test_many_steps_are_read_in_time_linear_in_their_number(name: str) -> None:
    """8,000 decisions, each followed by words that reject another, used to take half a minute."""
    read = lambda steps: (read_state(steps), read_files(steps))  # noqa: E731 - what is measured
    assert grows(read, STEPS[name], (2_000, 8_000) if NIGHTLY else (500, 2_000)) <= WORST


@pytest.mark.parametrize("blank", ["\n", " ", " \n", "\t\n\n"])
def test_c20_a_model_answer_is_read_in_time_linear_in_its_length(blank: str) -> None:
    """60 KB of newlines used to take 3.2 s, and 30 KB of blanks more than 8 s."""
    sizes = 2_000, 8_000, 32_000
    assert (
        grows(strip_reasoning, lambda size: "a" + blank * (size // len(blank)) + "b", sizes)
        <= WORST
    )
    line = lambda size: "The user asked: " + blank.replace("\n", " ") * (size // len(blank)) + "x"  # noqa: E731 - a shape
    assert grows(lambda text: check_quotes(text, ["never"]), line, sizes) <= WORST


def test_c20_scratchpads_are_left_out_in_time_linear_in_their_number() -> None:
    """16,000 of them before an answer used to take nine seconds."""
    answer = lambda size: "<think>a</think>" * (size // 16) + "<goal>b</goal>"  # noqa: E731 - a shape
    before = opening_tag(("goal",))
    assert strip_scratchpads(answer(1_000), before) == "<goal>b</goal>"
    assert (
        grows(lambda text: strip_scratchpads(text, before), answer, (8_000, 32_000, 128_000))
        <= WORST
    )


def test_the_lines_of_a_plan_are_chosen_in_time_linear_in_their_number() -> None:
    """Each line used to be searched for among all ticked ones."""

    def render(many: int) -> str:
        lines = [Line(f"- [x] Mend part {n} of the pool") for n in range(many)]
        return render_task(Task("plan.md", lines), 4 * many)

    assert "Mend part 0 of" in render(100)
    assert grows(render, lambda many: many, (4_000, 16_000, 64_000)) <= WORST


def test_similar_lines_are_selected_in_time_linear_in_their_number() -> None:
    """Each selected line caused all others to be weighed again: 50 KB of ids took three seconds."""

    def fill(many: int) -> int:
        names = random.Random(many)
        lines = [f"id_{names.randrange(many)} err_{names.randrange(many)}" for _ in range(many)]
        work = Work([Block(0, "written", "make", "\n".join(lines))])
        excerpts = find_excerpts(work, Context([0.0], frozenset(), False, ""), 10 * many)
        selection = Selection(excerpts, work, ())
        for _ in range(2):  # in the first call a command fills at most half
            selection.fill(3 * many // 2)
        return len(selection.chosen)

    assert 100 < fill(500) < 250
    assert grows(fill, lambda many: many, (500, 4_000)) <= WORST


def test_the_sentences_of_a_long_answer_are_quoted_in_time_linear_in_their_number() -> None:
    """2,000 of them took six seconds: for each, all words before it were read again."""

    def chat(many: int) -> list[Message]:
        answer = " ".join(
            f"Port {at} of host_{at} is open; rack-{at} holds it." for at in range(many)
        )
        texts = (
            "What is known?",
            answer,
            "Which of them are old?",
            "None.",
            "Thanks for all of that.",
        )
        roles = "user", "assistant", "user", "assistant", "user"
        return [Message(role, (Text(text),)) for role, text in zip(roles, texts, strict=True)]

    def write(messages: list[Message]) -> str:
        return drive(RuleSummary()(View.of(messages), 0, 4, 200_000)).text

    assert "host_99 is open; rack-99" in write(chat(100))
    assert grows(write, chat, (500, 2_000)) <= WORST


def test_a_patch_of_many_hunks_in_many_files_is_read_in_time_linear_in_its_length() -> None:
    def patch(many: int) -> list[Message]:
        hunks = "".join(f"*** Update File: a{n}.py\n@@\n-b = {n}\n+c = {n}\n" for n in range(many))
        command = f"apply_patch <<'EOF'\n*** Begin Patch\n{hunks}*** End Patch\nEOF"
        call = ToolCall("c", "shell", json.dumps({"command": ["bash", "-lc", command]}))
        done = ToolResult("c", (Text("Success."),))
        return [Message("assistant", (call,)), Message("tool", (done,))]

    def read(messages: list[Message]) -> int:
        steps = read_steps(messages)
        return len(read_files(steps)) + len(read_work(steps).blocks)

    assert read(patch(10)) > 20
    assert grows(read, patch, (100, 400)) <= WORST


def test_a_forged_group_of_paths_takes_no_more_memory_than_its_text() -> None:
    """A folder of 50,000 characters before as many names, each written out with it, would take 2
    GB."""
    text = "## Files\nread: " + "a" * 50_000 + "/{" + "b," * 25_000 + "}"
    assert sum(map(len, read_summary(text).files)) < 2 * len(text)
    assert len(expand_groups(text)) < 2 * len(text)


# --- many entries ----------------------------------------------------------------------------------


def _line(uuid: str, parent: str, content: str = "x", **fields: Any) -> dict[str, Any]:
    message = {"role": "user", "content": content}
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "message": message, **fields}


def _circles(size: int) -> list[dict[str, Any]]:
    """Return lines that refer to one another back and forth over a long range of other lines."""
    parents = {number: number - 1 for number in range(size + 1, 2 * size)}
    parents |= {3 * size: 2 * size - 1, size: 2 * size}
    for number in range(size):
        parents[2 * size + number] = 2 * size - 1
        parents[size - 1 - number] = 2 * size + number + 1
    return [_line(f"u{at}", f"u{parents[at]}") for at in range(3 * size + 1)]


def _compactions(size: int) -> list[dict[str, Any]]:
    """Return compactions that all name the same tail."""
    cut = {"type": "system", "subtype": "compact_boundary", "logicalParentUuid": "a"}
    cut["compactMetadata"] = {"preservedSegment": {"tailUuid": "b"}}
    cuts = [{**cut, "uuid": f"c{at}"} for at in range(4 * size)]
    return [_line("a", ""), *cuts, _line("b", "a"), _line("c", "b")]


def _commands(size: int) -> list[dict[str, Any]]:
    """Return commands after one long note of the client."""
    note = _line("a", "", "x" * 1_000 * size, isMeta=True)
    return [note, *(_line(f"b{at}", "a") for at in range(size))]


def _parallel_calls(size: int) -> list[dict[str, Any]]:
    """Return an ATIF trajectory whose model makes many calls at once."""
    ids = [f"c{at}" for at in range(10 * size)]
    calls = [{"tool_call_id": id, "function_name": "read", "arguments": {}} for id in ids]
    results = [{"source_call_id": id, "content": "text"} for id in reversed(ids)]
    step = {"step_id": 1, "source": "agent", "message": "", "tool_calls": calls}
    step["observation"] = {"results": results}
    return [{"schema_version": "ATIF-v1.4", "session_id": "s", "steps": [step]}]


def _context_edits(size: int) -> list[dict[str, Any]]:
    """Return a session of pi in which each message was edited."""
    head = {"type": "session", "id": "s", "cwd": "/w"}
    message = {"role": "user", "content": "x"}
    turns = [{"type": "message", "id": f"m{at}", "message": message} for at in range(size)]
    edits = [{"type": "context_edit", "id": f"e{at}", "targetId": f"m{at}"} for at in range(size)]
    return [head, *turns, *edits]


def _rewinds(size: int) -> list[dict[str, Any]]:
    """Return a session of Copilot CLI with rewinds to a turn that is not in it."""
    start = {"type": "session.start", "data": {"sessionId": "s"}}
    turn = {"type": "user.message", "data": {"content": "x"}}
    rewind = {"type": "session.snapshot_rewind", "data": {"upToEventId": "x"}}
    return [start, *[turn, rewind] * (5 * size)]


@pytest.mark.parametrize(
    "lines",
    [_circles, _compactions, _commands, _parallel_calls, _context_edits, _rewinds],
)
def test_the_lines_of_a_session_file_are_joined_in_time_linear_in_their_number(
    lines: Callable[[int], list[dict[str, Any]]],
) -> None:
    """12,000 of them used to take up to 18 seconds."""

    def write(size: int) -> bytes:
        return "\n".join(map(json.dumps, lines(size))).encode()

    assert grows(read_bytes, write, (400, 1_600)) <= WORST


def _anthropic(messages: list[Any]) -> dict[str, Any]:
    ends = [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    return {"model": "claude-opus-4-5", "max_tokens": 100, "messages": [*messages, *ends]}


def _calls(many: int) -> dict[str, Any]:
    calls = [
        {"type": "tool_use", "id": f"t{at}", "name": "read", "input": {"path": f"a{at}.py"}}
        for at in range(many)
    ]
    results = [
        {"type": "tool_result", "tool_use_id": f"t{at}", "content": f"of x_{at}"}
        for at in range(many)
    ]
    entries = ("user", "go"), ("assistant", calls), ("user", results)
    return _anthropic([{"role": role, "content": content} for role, content in entries])


def _chat_calls(many: int) -> dict[str, Any]:
    called = [
        {"id": f"c{at}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for at in range(many)
    ]
    results = [
        {"role": "tool", "tool_call_id": f"c{at}", "content": f"of x_{at}"} for at in range(many)
    ]
    first = {"role": "assistant", "content": None, "tool_calls": called}
    ends = [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    return {"model": "m", "messages": [{"role": "user", "content": "go"}, first, *results, *ends]}


def _chat_calls_without_ids(many: int) -> dict[str, Any]:
    body = _chat_calls(many)
    for call in body["messages"][1]["tool_calls"]:
        call["id"] = ""
    for result in body["messages"][2:-2]:
        result["tool_call_id"] = ""
    return body


def _responses_calls(many: int) -> dict[str, Any]:
    calls = [
        {"type": "function_call", "call_id": f"c{at}", "name": "f", "arguments": "{}"}
        for at in range(many)
    ]
    results = [
        {"type": "function_call_output", "call_id": f"c{at}", "output": f"of x_{at}"}
        for at in range(many)
    ]
    ends = [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    return {"model": "m", "input": [{"role": "user", "content": "go"}, *calls, *results, *ends]}


def _gemini_calls(many: int) -> dict[str, Any]:
    calls = [{"functionCall": {"name": "f", "args": {"at": at}}} for at in range(many)]
    results = [
        {"functionResponse": {"name": "f", "response": {"output": f"of x_{at}"}}}
        for at in range(many)
    ]
    turns = [
        ("user", [{"text": "go"}]),
        ("model", calls),
        ("user", results),
        ("model", [{"text": "ok"}]),
    ]
    return {
        "contents": [
            {"role": role, "parts": parts}
            for role, parts in (*turns, ("user", [{"text": "go on"}]))
        ]
    }


def _gemini_responses_first(many: int) -> dict[str, Any]:
    """Return responses without ids before their calls."""
    contents = _gemini_calls(2 * many)["contents"]
    ok, last = contents[3:]
    return {"contents": [last, ok, contents[2], contents[1], last, ok, last]}


def _say(texts: Iterator[str], role: str) -> dict[str, Any]:
    return _anthropic(
        [{"role": role, "content": [{"type": "text", "text": text} for text in texts]}]
    )


def _forge_summary(at: int) -> str:
    return wrap_summary(
        f"## Requests\n- do {at}\n## Files\nread: a{at}.py\n## Names\nname_{at}\n## Counts\nmessages 1"
    ).text


def _talk(texts: Iterator[str]) -> dict[str, Any]:
    return _anthropic(
        [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
    )


MANY_ENTRIES: dict[str, Callable[[int], dict[str, Any]]] = {
    "calls": _calls,
    "chat calls": _chat_calls,
    "chat calls without ids": _chat_calls_without_ids,
    "responses calls": _responses_calls,
    "gemini calls": _gemini_calls,
    "gemini responses first": _gemini_responses_first,
    "blocks of the user": lambda many: _say(
        (f"block {at} says x_{at}." for at in range(many)), "user"
    ),
    "blocks of the assistant": lambda many: _say(
        (f"block {at} says x_{at}." for at in range(many)), "assistant"
    ),
    "empty messages": lambda many: _anthropic(
        [*[{"role": "user", "content": []}] * 8 * many, {"role": "user", "content": "go"}]
    ),
    "messages": lambda many: _talk(f"message {at} on x_{at}." for at in range(many)),
    "equal messages": lambda many: _talk("the same again" for _ in range(many)),
    "forged summaries": lambda many: _talk(
        _forge_summary(at) if at % 2 == 0 else "ok" for at in range(many)
    ),
}


@pytest.mark.parametrize("name", MANY_ENTRIES)
@pytest.mark.parametrize(
    "work", [lambda payload: refold.compact(payload, to=1_500), refold.check, refold.repair]
)
def test_c4_no_conversation_of_many_entries_is_worse_than_n_log_n(
    name: str, work: Callable[[Any], Any]
) -> None:
    """16,000 blocks in one message, or thousands of forged summaries, used to take minutes."""
    assert (
        grows(work, MANY_ENTRIES[name], (200, 800, 3_200) if NIGHTLY else (200, 800), 0.1) <= WORST
    )


def test_a_history_is_cut_into_chunks_in_time_linear_in_its_length() -> None:
    """Each chunk looked through all cuts: 32,000 messages took 15 seconds."""

    def talk(many: int) -> View:
        turn = (user("Go on."), Message("assistant", (Text("ok"),)))
        return View.of(turn * many)

    assert grows(lambda view: list(Chunked(size=1).chunks(view)), talk, (500, 2_000)) <= WORST


def test_the_chunks_of_a_history_are_summarised_in_time_linear_in_their_number() -> None:
    """For each chunk everything around it was read: 400 messages took ten seconds."""

    def talk(many: int) -> View:
        turns = ((f"Mend part_{at}. " * 20, f"Part_{at} holds a lock. " * 20) for at in range(many))
        return View.of([m for a, b in turns for m in (user(a), Message("assistant", (Text(b),)))])

    def summarize(view: View) -> View:
        return drive(compact_if_due(view, [Chunked(4)], Budget(0, 0))).view

    assert len(summarize(talk(9)).visible_edits) == 5
    assert grows(summarize, talk, (60, 240)) <= WORST


def test_the_rules_of_requests_behind_a_summary_are_read_once() -> None:
    """They were read again in each of the passes that fit a summary, and by the state behind it:
    five times."""
    requests = [user(f"Never touch table_{at}. Use tabs in file_{at}. " * 9) for at in range(8)]
    view = View.of([m for asked in requests for m in (asked, Message("assistant", (Text("ok"),)))])
    readings = list[FrameType]()

    def note(frame: FrameType, event: str, _: object) -> None:
        is_call = event == "call" and frame.f_code is lexicon.find_constraints.__code__
        if is_call and all(frame is not before for before in readings):  # a generator goes on
            readings.append(frame)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        assert drive(RuleSummary()(view, 0, 4, 500)).text
    finally:
        sys.setprofile(before)
    assert len(readings) <= 2 * len(requests)


@pytest.mark.parametrize(("text", "step"), [("part {}", 1), ("part", -1)])
def test_thinking_after_a_compaction_block_is_compared_in_linear_time(text: str, step: int) -> None:
    """Each block was compared with all before it: 4,000 of them took six seconds, and in reverse
    order two."""

    def turns(names: Iterable[int]) -> list[dict[str, Any]]:
        return [
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": f"s{name}"},
                    {"type": "text", "text": text.format(at)},
                ],
            }
            for at, name in enumerate(names)
        ]

    def requests(many: int) -> tuple[Any, Any]:
        block = {"role": "assistant", "content": [{"type": "compaction", "content": "Begun."}]}
        model = {"model": "claude-opus-5-5", "max_tokens": 9}
        after = [block, *turns(range(many)[::step])]
        return {**model, "messages": after}, {**model, "messages": turns(range(many))}

    compare = lambda pair: refold.check(pair[0], before=pair[1])  # noqa: E731 - what is measured
    faults = [fault for fault in compare(requests(9)) if fault.rule == "AN-7"]
    assert len(faults) == (0 if step > 0 else 4)
    assert grows(compare, requests, (1_000, 4_000), 0.25) <= WORST


def _replace_all(many: int) -> tuple[View, list[Edit]]:
    """Return a view of *many* messages, and an edit of each: half of them remove thinking."""
    view = View.of([Message("assistant", (Text(f"step {at}"),)) for at in range(many)])
    bare = Message("assistant", (Text("so"),))
    makers = "ClearToolResults()", STRIP_THINKING_BY
    return view, [view.replace(at, bare, makers[at % 2]) for at in range(many)]


def test_the_ledger_rows_of_many_edits_are_built_in_time_linear_in_their_number() -> None:
    """8,000 edits used to take half a minute: each was compared with all that remove thinking."""
    fields = {"run": "", "actor": "", "trigger": "", "model": ""}
    start = CompactionStarted(when=0, action="compact", tokens=9, goal=1, **fields)
    build = lambda pair: build_rows(start, *pair, [])  # noqa: E731 - what is measured
    assert len(build(_replace_all(10))) == 5
    assert grows(build, _replace_all, (500, 2_000)) <= WORST


def test_edits_that_a_summary_hides_are_added_in_time_linear_in_their_number() -> None:
    """8,000 used to take two minutes, if they were saved after the summary that hides them."""

    def add(pair: tuple[View, list[Edit]]) -> View:
        view, edits = pair
        summary = view.fold(0, len(view.transcript), user("All steps."))
        return view.apply(summary, *edits)

    assert len(add(_replace_all(10)).visible_edits) == 1
    assert grows(add, _replace_all, (500, 2_000)) <= WORST


def test_edits_are_unfolded_one_by_one_in_time_linear_in_their_number() -> None:
    """All ids were sorted again for each: 3,000 edits took four seconds."""

    def apply_all(many: int) -> View:
        view, edits = _replace_all(many)
        return view.apply(*edits)

    unfold = lambda view: [view.unfold(edit.id) for edit in view.edits]  # noqa: E731 - measured
    assert len(unfold(apply_all(10))) == 10
    assert grows(lambda view: unfold(replace(view)), apply_all, (500, 2_000)) <= WORST


# --- whole requests --------------------------------------------------------------------------------

LENGTH = 400_000 if NIGHTLY else 50_000
ATTACKS = {
    "c1": ("shell", "ls" + " | cat" * 60 + " | grep x"),
    "c3": ("user", wrap_summary("## Counts\nmessages 3; calls " + "a" * LENGTH).text),
    "c4 lines": ("assistant", "a line\n" * (LENGTH // 7)),
    "c4 sentences": ("assistant", "It is so. " * (LENGTH // 10)),
    "c4 newlines": ("assistant", "\n" * LENGTH),
    "c4 blanks": ("tool", " " * LENGTH),
}
PROGRAM = """
import asyncio, sys
from refold.gateway import Pipeline, Incoming, Settings
from refold.stores.store import MemoryStore
from refold.tokens.model_table import Window

async def run(body):
    exchange, ticks = Pipeline(Settings(windows={"m": Window(20_000)}, decide_timeout_seconds=300.0), MemoryStore()), 0
    task = asyncio.create_task(exchange.prepare(Incoming("openai_chat", "up", "/v1/chat/completions", (), body, "c")))
    while not task.done():
        await asyncio.sleep(0)
        ticks += 1
    sent = await task
    print(len(sent.body), ticks, flush=True)
    await exchange.aclose()

for body in sys.stdin.buffer.read().splitlines():
    asyncio.run(run(body))
"""


def _attack_body(role: str, text: str) -> bytes:
    command = json.dumps({"command": text if role == "shell" else "make test"})
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": command}}
    messages = [
        {"role": "user", "content": text if role == "user" else "Fix it."},
        {
            "role": "assistant",
            "content": text if role == "assistant" else None,
            "tool_calls": [call],
        },
        {"role": "tool", "tool_call_id": "c1", "content": text if role == "tool" else "out " * 20},
    ]
    for at in range(10):
        again = {**call, "id": f"d{at}"}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [again]},
            {
                "role": "tool",
                "tool_call_id": f"d{at}",
                "content": f"file {at} " + "one two three four " * 1_000,
            },
        ]
    return json.dumps(
        {"model": "m", "messages": [*messages, {"role": "user", "content": "Go on."}]}
    ).encode()


def test_c1_c3_c4_the_gateway_answers_requests_with_slow_to_parse_text() -> None:
    """One such request used to block a whole gateway for minutes or months. The gateway is a
    process of its own, so that it can be killed."""
    bodies = [_attack_body(*attack) for attack in ATTACKS.values()]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=b"\n".join(bodies),
        capture_output=True,
        timeout=600,
        check=True,
    )
    answers = [tuple(map(int, line.split())) for line in ended.stdout.splitlines()]
    for attack, body, (length, ticks) in zip(ATTACKS, bodies, answers, strict=True):
        assert 0 < length < len(body), attack
        assert ticks > 10, attack
