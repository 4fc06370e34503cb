"""Invalid settings are refused at construction with a clear message, not during a run."""

from dataclasses import MISSING, fields

import pytest

import refold
from refold.compactor.settings import STRATEGIES, parse_strategy
from refold.session_files import demo_session
from refold.strategies import ClearThinking, ClearToolResults, KeepImportant, SummarizeTo

BAD = ("-1", "'x'", "None", "2.5", "1e999", "True", "[]", "{}", "b'x'", "[1, 'a']", "Freshness()", "ClearThinking()",
       "RuleSummary()", "10**9", "FactType.MANY", "99999999999999999999")  # fmt: skip
NEEDED = {
    "KeepImportant": {"strategy": "Summarize()", "scorer": "Emphasis()"},
    "RetrieveFacts": {"concepts": "(Concept('a', 'b'),)"},
    "SummarizeTo": {"tokens": "500"},
}
HISTORY = demo_session(3)


def settings(name: str) -> list[str]:
    return [field.name for field in fields(STRATEGIES[name]) if field.init]


@pytest.mark.parametrize(
    ("name", "setting"), [(name, setting) for name in STRATEGIES for setting in settings(name)]
)
def test_a_strategy_with_a_bad_setting_is_refused_or_runs(name, setting) -> None:
    for bad in BAD:
        given = {**NEEDED.get(name, {}), setting: bad}
        check_refused_or_runs(f"{name}({', '.join(f'{k}={v}' for k, v in given.items())})")


@pytest.mark.parametrize(
    "text",
    [
        "Summarize(summarizer=ModelSummary({}))",
        "ClearToolResults(scorer=Nearness({}))",
        "ClearToolResults(scorer=Attention({}))",
        "ClearToolResults(scorer=References({}))",
        "ClearToolResults(scorer=Emphasis({}))",
        "ClearToolResults(scorer=Weighted({}))",
        "RetrieveFacts(concepts=(Concept('a', {}),))",
        "RetrieveFacts(concepts=(Concept('a', 'b', {}),))",
    ],
)
@pytest.mark.parametrize(
    "name", ["", "words=", "embed=", "window=", "form=", "closing=", "headings=", "fallback="]
)
def test_a_strategy_with_a_bad_value_inside_a_setting_is_refused_or_runs(text, name) -> None:
    for bad in BAD:
        check_refused_or_runs(text.format(name + bad))


def check_refused_or_runs(text: str) -> None:
    try:
        strategy = parse_strategy(text)
    except ValueError as error:
        strategy, why = None, str(error)
    if strategy is None:
        assert "\n" not in why
        assert "'<'" not in why
        return
    refold.Compactor([strategy], refold.Budget(300, 300))(HISTORY)


@pytest.mark.parametrize(
    ("text", "error_text"),
    [
        ("Summarize(keep=-1)", "keep must be a whole number of at least 0, not -1"),
        ("Summarize(keep=1.5)", "keep must be a number from 0 to 1, not 1.5"),
        ("Summarize(keep='x')", "keep must be a whole number of at least 0, not 'x'"),
        ("Summarize(max_tokens=-1)", "max_tokens must be a whole number of at least 1, not -1"),
        ("Summarize(summarizer=5)", "summarizer must be one of RuleSummary, ModelSummary, not 5"),
        (
            "Summarize(summarizer=Freshness())",
            "summarizer must be one of RuleSummary, ModelSummary, not Freshness",
        ),
        ("Summarize(place='nowhere')", "no placement is called 'nowhere'"),
        ("Chunked(size=10, max_tokens=-5)", "max_tokens must be"),
        ("ClearToolResults(keep=2.5)", "keep must be a whole number, not 2.5"),
        ("ClearToolResults(keep='x')", "keep must be a whole number, not 'x'"),
        ("ClearToolResults(media='x')", "media must be 'drop' or 'keep', not 'x'"),
        ("ClearToolResults(stub=5)", "stub must be what only Python code can give, not 5"),
        ("ClearToolResults(protect=5)", "protect must be a list of texts, not 5"),
        ("ClearToolResults(kep=1)", "takes no 'kep'; its settings are keep, keep_tokens, at_least"),
        ("Summarize(keep=8, keep=9)", "takes no 'keep' more than once"),
        ("Summarize(8, keep=9)", "takes no 'keep' more than once"),
        ("ClearThinking(1, 2)", "takes no 2 settings; its settings are keep"),
        ("ClearThinking(**{'keep': 1})", "cannot read the settings"),
        ("ClearThinking(keep=x)", "cannot read the setting x"),
        (
            "KeepImportant(Summarize(keep='x'), Emphasis())",
            "Summarize: keep must be a whole number",
        ),
    ],
)
def test_the_error_for_an_invalid_strategy_text_states_the_reason(text, error_text) -> None:
    with pytest.raises(ValueError, match=r"\w") as error:
        parse_strategy(text)
    assert error_text in str(error.value)


def test_the_error_for_a_missing_setting_names_it() -> None:
    for name, strategy in STRATEGIES.items():
        needed = [
            field.name
            for field in fields(strategy)
            if field.default is MISSING and field.default_factory is MISSING
        ]
        if needed:
            with pytest.raises(ValueError, match=needed[0]):
                parse_strategy(name)


@pytest.mark.parametrize(
    ("make", "bad"),
    [
        (strategy, {**{k: v for k, v in needed.items() if k not in bad}, **bad})
        for strategy, needed, wrong in [
            (
                STRATEGIES["Summarize"],
                {},
                [{"keep": True}, {"keep": float("nan")}, {"pin": 5}, {"place": 5}],
            ),
            (
                STRATEGIES["WholeHistory"],
                {},
                [{"max_tokens": 0}, {"memory": "x"}, {"summarizer": None}],
            ),
            (STRATEGIES["FromLastN"], {}, [{"n": 1.5}, {"max_tokens": "x"}]),
            (STRATEGIES["Chunked"], {}, [{"size": "x"}, {"summarizer": 3}]),
            (STRATEGIES["RetrieveFacts"], {}, [{"concepts": ("a",)}, {"concepts": 5}]),
            (ClearThinking, {}, [{"keep": 2.5}, {"keep": None}]),
            (
                ClearToolResults,
                {},
                [{"scorer": 5}, {"stub": "x"}, {"protect": [1]}, {"at_least": 0.5}],
            ),
            (STRATEGIES["ClearToolInputs"], {}, [{"scorer": 5}, {"longer_than": "x"}]),
            (STRATEGIES["ClipResults"], {}, [{"limit": 400.5}, {"head": "x"}, {"scorer": 5}]),
            (STRATEGIES["DropDuplicates"], {}, [{"min_chars": "x"}, {"within": 0}]),
            (
                KeepImportant,
                {"strategy": STRATEGIES["Summarize"](), "scorer": len},
                [{"scorer": 5}, {"over": "x"}],
            ),
            (
                SummarizeTo,
                {"tokens": 500},
                [{"tokens": 0.5}, {"share": "x"}, {"pin": 5}, {"summarizer": 5}],
            ),
        ]
        for bad in wrong
    ],
)
def test_strategy_constructors_refuse_invalid_settings(make, bad) -> None:
    with pytest.raises(ValueError, match=r" not |must|no placement"):
        make(**bad)
