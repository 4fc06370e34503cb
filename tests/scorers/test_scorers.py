"""Scorers: how much each message matters (issue 3, section 4)."""

import subprocess
import sys
from collections.abc import Sequence
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.core.view import View
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.scorers import (
    Brevity,
    Emphasis,
    Errors,
    Freshness,
    Nearness,
    Recency,
    References,
    Roles,
    Weighted,
)
from refold.scorers.scorer import Scorer, order_least_first, score_alone, score_messages
from refold.testing import transcripts


def letters(texts: Sequence[str]) -> list[list[float]]:
    """A toy embedder: how often each letter occurs."""
    return [
        [float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"]
        for text in texts
    ]


EVERY = [
    Brevity(),
    Emphasis(),
    Errors(),
    Freshness(),
    Nearness(letters, "letters"),
    Recency(),
    References(),
    Roles(),
    Weighted(((1.0, Recency()), (0.5, References()), (0.5, Freshness()), (0.25, Errors()))),
]


def talk_of(*messages: Message) -> View:
    return View.of([user("Mend the build."), *messages])


def exchange(
    n: int, name: str, arguments: str, result: str, *, error: bool = False
) -> list[Message]:
    call = ToolCall(f"c{n}", name, arguments)
    return [
        Message("assistant", (call,)),
        Message("tool", (ToolResult(call.id, (Text(result),), error),)),
    ]


def session(*exchanges: tuple[str, str, str]) -> View:
    """Calls and results: those of exchange n stand at 2 n + 1 and 2 n + 2."""
    return talk_of(
        *(
            m
            for n, (name, arguments, result) in enumerate(exchanges)
            for m in exchange(n, name, arguments, result)
        )
    )


def result_scores(scorer: Scorer, *exchanges: tuple[str, str, str]) -> list[float]:
    return [round(score, 2) for score in score_messages(scorer, session(*exchanges))[2::2]]


@pytest.mark.parametrize("scorer", EVERY, ids=lambda scorer: type(scorer).__name__)
@given(messages=transcripts(tidy=False))
def test_each_message_has_a_deterministic_score_from_0_to_1(
    scorer: Scorer, messages: tuple[Message, ...]
) -> None:
    """S1-38: every message has a score of its importance."""
    view = View.of(messages)
    scores = scorer(view)
    assert len(scores) == len(messages)
    assert all(0.0 <= score <= 1.0 for score in scores)
    assert list(scorer(View.of(messages))) == list(scores)


@pytest.mark.parametrize("scorer", EVERY, ids=lambda scorer: type(scorer).__name__)
@given(messages=transcripts(max_turns=4))
def test_scores_do_not_depend_on_edits(scorer: Scorer, messages: tuple[Message, ...]) -> None:
    view = View.of(messages)
    folded = view.apply(view.fold(0, max(view.cuts), user("[folded]")))
    assert list(scorer(folded)) == list(scorer(view))


@pytest.mark.parametrize("scorer", EVERY, ids=lambda scorer: type(scorer).__name__)
def test_a_repr_holds_no_memory_address_and_evaluates_to_the_scorer(scorer: Scorer) -> None:
    assert " at 0x" not in repr(scorer)
    if not isinstance(scorer, Nearness):
        assert eval(repr(scorer)) == scorer


def test_recent_messages_score_higher() -> None:
    assert score_messages(Recency(half=2), talk_of(*map(user, "abcd"))) == [
        1 / 3,
        1 / 2.5,
        1 / 2,
        1 / 1.5,
        1.0,
    ]


def test_short_messages_score_higher() -> None:
    view = talk_of(user("x " * 5_000))
    short, long = score_messages(Brevity(), view)
    tokens = view.base.tokens(1, 2)
    assert short > 0.9
    assert long == 1_000 / (1_000 + tokens)


def test_user_messages_score_higher_than_tool_results_in_any_role() -> None:
    call = ToolCall("a", "read", "{}")
    view = talk_of(
        Message("assistant", (call,)),
        Message("user", (ToolResult("a", (Text("x"),)),)),
        Message("tool", (ToolResult("a", (Text("x"),)),)),
        Message("system", (Text("x"),)),
    )
    assert score_messages(Roles(), view) == [1.0, 0.5, 0.2, 0.2, 1.0]


# --- emphasis -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "This is IMPORTANT.",
        "Remember the port: 8081",
        "never touch main",
        "重要：用 3.11",
        "请记住这个编号",
        "务必先备份",
        "千万不要删库",
        "必ず確認して",
    ],
)
def test_words_of_emphasis_are_recognised_in_english_chinese_and_japanese(text: str) -> None:
    assert score_messages(Emphasis(), View.of([user(text)])) == [1.0]


@pytest.mark.parametrize("text", ["hello", "an unimportant detail", "he remembered", "你好", ""])
def test_words_without_emphasis_score_0(text: str) -> None:
    assert score_messages(Emphasis(), View.of([user(text)])) == [0.0]


def test_emphasis_counts_only_in_the_configured_roles() -> None:
    """S3-25: keep the responses that contain "important"."""
    view = View.of(
        [user("important"), Message("assistant", (Text("Important: it is 42."),)), user("x")]
    )
    assert score_messages(Emphasis(("assistant",), ("important",)), view) == [0.0, 1.0, 0.0]
    assert repr(Emphasis("user", "x")) == "Emphasis(roles=('user',), words=('x',))"


def test_words_of_emphasis_in_tool_results_score_0() -> None:
    assert score_messages(Emphasis(), session(("read", "{}", "IMPORTANT: never do this")))[2] == 0.0


# --- errors -------------------------------------------------------------------------------------

FAILS, WORKS = "3 failed\nexit code: 1", "3 passed\nexit code: 0"


def test_an_unfixed_error_weighs_more_than_a_fixed_one() -> None:
    make, lint = '{"command":"make test"}', '{"command":"make lint"}'
    runs = [("bash", make, FAILS), ("bash", lint, FAILS), ("bash", make, WORKS)]
    assert result_scores(Errors(), *runs) == [0.0, 1.0, 0.5]
    assert result_scores(Errors(resolved=0.3), *runs) == [0.3, 1.0, 0.5]


def test_an_error_is_not_resolved_by_an_earlier_success_or_another_failure() -> None:
    make = '{"command":"make test"}'
    assert result_scores(
        Errors(), ("bash", make, WORKS), ("bash", make, FAILS), ("bash", make, FAILS)
    ) == [
        0.5,
        1.0,
        1.0,
    ]


def test_a_failed_edit_is_resolved_by_a_later_edit_of_the_same_file() -> None:
    first, second, elsewhere = (
        f'{{"file_path":"{path}","new":"{n}"}}' for n, path in enumerate(["a.py", "a.py", "b.py"])
    )
    failed = ("Edit", first, "Error: no such text")
    assert result_scores(Errors(), failed, ("Edit", second, "ok")) == [0.0, 0.5]
    assert result_scores(Errors(), failed, ("Edit", elsewhere, "ok")) == [1.0, 0.5]


def test_a_failed_result_without_its_call_counts_as_an_error() -> None:
    view = talk_of(Message("tool", (ToolResult("gone", (Text("no"),), error=True),)))
    assert score_messages(Errors(), view) == [0.5, 1.0]


# --- fresh reads --------------------------------------------------------------------------------

READ = ("read", '{"path":"src/a.py"}', "x = 1")
RANGE = ("read", '{"offset":10,"path":"src/a.py"}', "x = 1")
WRITE = ("write", '{"content":"x = 2","path":"./src/a.py"}', "ok")
OTHER = ("read", '{"path":"src/b.py"}', "y = 1")


def test_writing_a_file_makes_earlier_reads_of_it_stale() -> None:
    assert result_scores(Freshness(), READ, OTHER, WRITE) == [0.3, 1.0, 1.0]
    assert result_scores(Freshness(written=0.0), READ, WRITE, READ) == [0.0, 0.0, 1.0]


def test_reading_a_file_again_makes_the_earlier_read_stale() -> None:
    assert result_scores(Freshness(), READ, OTHER, READ) == [0.0, 1.0, 1.0]
    assert result_scores(Freshness(), RANGE, READ) == [0.0, 1.0]


def test_reading_another_range_of_a_file_makes_no_read_stale() -> None:
    assert result_scores(Freshness(), READ, RANGE) == [1.0, 1.0]
    sed = [
        ("bash", f'{{"command":"sed -n {lines}p src/a.py"}}', "x")
        for lines in ("1,9", "10,19", "1,9")
    ]
    assert result_scores(Freshness(), *sed) == [0.0, 1.0, 1.0]


def test_reading_a_part_given_as_text_makes_no_read_stale() -> None:
    """Claude Code reads pages of a PDF so, other clients put the lines behind the path."""
    pages = [("Read", f'{{"file_path":"a.pdf","pages":"{at}"}}', "x") for at in ("1-5", "6", "7")]
    assert result_scores(Freshness(), *pages) == [1.0, 1.0, 1.0]
    lines = [("read", f'{{"path":"src/a.py:{at}"}}', "x") for at in ("1-20", "20-60")]
    assert result_scores(Freshness(), READ, *lines, READ) == [0.0, 0.0, 0.0, 1.0]
    assert result_scores(Freshness(), *lines) == [1.0, 1.0]
    texts = ("read", '{"path":"src/a.py","start_line":"2","end_line":"9"}', "x")
    assert result_scores(Freshness(), READ, texts) == [1.0, 1.0]


def test_a_shell_command_that_writes_a_file_makes_its_read_stale() -> None:
    sed = ("bash", '{"command":"sed -i s/1/2/ src/a.py"}', "")
    assert result_scores(Freshness(), READ, sed) == [0.3, 1.0]


def test_a_failed_write_makes_no_read_stale() -> None:
    failed = (*WRITE[:2], "Error: permission denied")
    assert result_scores(Freshness(), READ, failed) == [1.0, 1.0]


def test_a_write_without_a_result_makes_no_read_stale() -> None:
    view = View.of(
        [*session(READ).transcript.messages, Message("assistant", (ToolCall("w", *WRITE[:2]),))]
    )
    assert score_messages(Freshness(), view) == [1.0] * 4


def test_repeating_a_call_makes_its_earlier_result_stale() -> None:
    make = ("bash", '{"command":"git status"}', "clean")
    assert result_scores(Freshness(), make, make) == [0.0, 1.0]


def test_a_message_with_parallel_results_has_the_score_of_the_freshest() -> None:
    calls = tuple(ToolCall(f"p{n}", *exchanged[:2]) for n, exchanged in enumerate((READ, OTHER)))
    both = [
        Message("assistant", calls),
        Message("user", tuple(ToolResult(call.id, (Text("x"),)) for call in calls)),
    ]
    assert score_messages(Freshness(), talk_of(*both, *exchange(1, *WRITE)))[2] == 1.0


# --- references ---------------------------------------------------------------------------------


def test_results_with_names_that_are_used_later_score_higher() -> None:
    runs = [
        ("ls", "{}", "src/parse_rows.py\nsrc/write_rows.py"),
        ("ls", '{"path":"docs"}', "docs/guide_one.md"),
        ("read", '{"path":"src/parse_rows.py"}', "def f(): ..."),
    ]
    listed, unused, _ = result_scores(References(), *runs)
    assert listed > unused == 0.0
    view = View.of([*session(*runs).transcript.messages, user("What is in docs/guide_one.md?")])
    assert score_messages(References(), view)[4] > 0.2


def test_a_read_of_a_file_that_is_edited_later_scores_higher() -> None:
    edit = ("edit", '{"new":"1","path":"src/parse_rows.py"}', "ok")
    first, second, _ = result_scores(
        References(),
        ("read", '{"path":"src/parse_rows.py"}', "..."),
        ("read", '{"path":"src/other_file.py"}', "..."),
        edit,
    )
    assert first > second


def test_a_reference_counts_for_the_latest_result_that_contains_the_name() -> None:
    use = ("bash", '{"command":"pytest tests/test_rows.py"}', "ok")
    runs = [("ls", "{}", "tests/test_rows.py"), ("find", "{}", "tests/test_rows.py"), use]
    first, second, _ = result_scores(References(), *runs)
    assert second > first == 0.0


def test_an_old_reference_weighs_less() -> None:
    runs = [
        ("ls", "{}", "tests/test_rows.py"),
        ("bash", '{"command":"pytest tests/test_rows.py"}', "ok"),
    ]
    fresh = result_scores(References(half=4), *runs)[0]
    old = score_messages(
        References(half=4), View.of([*session(*runs).transcript.messages, *map(user, "abcd" * 5)])
    )[2]
    assert fresh > old > 0.0


# --- nearness -----------------------------------------------------------------------------------


def test_messages_about_the_task_have_a_higher_nearness() -> None:
    view = View.of([user("zebra"), user("bbb"), user("abba")])
    far, near, task = score_messages(Nearness(letters, "letters"), view)
    assert far < near < task == pytest.approx(1.0)


def test_nearness_is_0_without_an_embedder() -> None:
    assert score_messages(Nearness(), talk_of(user("x"))) == [0.0, 0.0]


def test_an_embedder_that_returns_too_few_vectors_is_refused() -> None:
    with pytest.raises(ValueError, match="1 vectors for 2 texts"):
        Nearness(lambda _: [[1.0]])(View.of([user("x")]))


def test_words_of_emphasis_match_in_any_case() -> None:
    view = View.of([user("NUR ÜBER DIE HAUPTSTRASSE"), user("Nur über die Straße"), user("x")])
    assert score_messages(Emphasis(words=["straße"]), view) == [1.0, 1.0, 0.0]


# --- the port -----------------------------------------------------------------------------------


def test_weighted_is_the_weighted_mean_of_its_scorers() -> None:
    view = talk_of(user("记住"), user("x"))
    recent, stressed = score_messages(Recency(), view), score_messages(Emphasis(), view)
    both = score_messages(
        Weighted(((3, Recency()), (1, Emphasis()), (0, Nearness(lambda _: [])))), view
    )
    assert both == [
        pytest.approx((3 * recency + emphasis) / 4)
        for recency, emphasis in zip(recent, stressed, strict=True)
    ]


@pytest.mark.parametrize(
    "terms",
    [
        (),
        ((0, Recency()),),
        ((1, Recency()), (-1, Errors())),
        ((nan, Recency()),),
        ((inf, Errors()),),
    ],
)
def test_missing_zero_or_negative_weights_are_refused(
    terms: tuple[tuple[float, Scorer], ...],
) -> None:
    with pytest.raises(ValueError, match="weights"):
        Weighted(terms)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Recency(0),
        lambda: Brevity(-1),
        lambda: References(half=0),
        lambda: References(enough=0),
        lambda: Recency(nan),
        lambda: Brevity(nan),
        lambda: Brevity(inf),
        lambda: References(half=nan),
        lambda: Emphasis(words=("",)),
    ],
)
def test_invalid_settings_are_refused(make) -> None:
    with pytest.raises(ValueError, match=r"positive|empty"):
        make()


def test_a_scorer_that_returns_too_few_scores_is_refused() -> None:
    with pytest.raises(ValueError, match="gave no number for each of 2 messages"):
        score_messages(lambda view: [1.0], talk_of(user("x")))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_order_least_first_is_a_stable_sort(given_scores: list[int]) -> None:
    view = View.of([user(str(n)) for n in range(len(given_scores))])
    order = order_least_first(
        lambda _: [float(n) for n in given_scores], view, range(len(given_scores))
    )
    assert order == sorted(range(len(given_scores)), key=given_scores.__getitem__)
    assert order_least_first(None, view, reversed(range(len(given_scores)))) == list(
        range(len(given_scores))
    )


def test_score_alone_ignores_all_other_messages() -> None:
    call, result = exchange(0, "bash", '{"command":"make"}', FAILS)
    view = talk_of(call, result, *exchange(1, "bash", '{"command":"make"}', WORKS))
    assert score_messages(Errors(), view)[2] == 0.0
    assert score_alone(Errors(), result, view.profile) == 1.0
    assert score_alone(lambda _: [7.0], result, view.profile) == 1.0


def test_scores_and_reprs_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "from refold import View; from refold.messages import *; from refold.scorers import *;"
        "names = ' '.join(f'src/file_{n}.py' for n in range(50));"
        "view = View.of([user('x'), Message('tool', (ToolResult('a', (Text(names),)),)), user(names)]);"
        "print(References()(view), Emphasis({'a', 'b', 'c'}))"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1
