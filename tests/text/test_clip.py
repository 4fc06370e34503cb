"""Cutting by characters, and finding the lines that say what went wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.text.clip import Gap, gap, head, is_inside_cluster, one_line, tail
from refold.text.failures import failure_lines, is_failure

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
WRITING = st.text(
    st.one_of(
        st.sampled_from(
            [
                "a",
                "你",
                "\n",
                "\u0301",
                "\u200d",
                "\ufe0f",
                "\U0001f468",
                "\U0001f3fd",
                "\U0001f1e9",
                "각",
            ]
        ),
        st.sampled_from(["\ud83d", "\ude00", "\r", "\u1161", "\u0915", "\u093f"]),
    ),
    max_size=300,
)


@given(WRITING, st.integers(0, 310))
def test_head_and_tail_return_ends_of_at_most_size_characters(text: str, size: int) -> None:
    assert text.startswith(head(text, size))
    assert text.endswith(tail(text, size))
    assert len(head(text, size)) <= size
    assert len(tail(text, size)) <= size


@given(WRITING, st.integers(0, 310))
def test_no_surrogate_pair_is_split(text: str, size: int) -> None:
    for cut in (len(head(text, size)), len(text) - len(tail(text, size))):
        pair = text[cut - 1 : cut + 1] if cut else ""
        assert not (
            len(pair) == 2 and "\ud800" <= pair[0] <= "\udbff" and "\udc00" <= pair[1] <= "\udfff"
        )


@given(WRITING, st.integers(0, 310), st.floats(0, 1))
def test_a_gap_leaves_at_most_size_characters(text: str, size: int, share: float) -> None:
    start, stop = gap(text, size, share)
    assert 0 <= start <= stop <= len(text)
    assert start + len(text) - stop <= size or len(text) <= size


@pytest.mark.parametrize(
    "cluster",
    [FAMILY, "e\u0301", "👍🏽", "🇩🇪", "\r\n", "❤\ufe0f", "\ud83d\ude00", "कि", "각"],
)
def test_a_grapheme_cluster_is_kept_whole_or_left_out_whole(cluster: str) -> None:
    text = "ab" + cluster + "cd"
    for size in range(len(text) + 1):
        assert len(head(text, size)) in {0, 1, 2, 2 + len(cluster), 3 + len(cluster), len(text)}
        assert len(tail(text, size)) in {0, 1, 2, 2 + len(cluster), 3 + len(cluster), len(text)}


def test_flags_are_cut_between_countries() -> None:
    text = "🇩🇪🇫🇷🇨🇳"
    assert [len(head(text, size)) for size in range(7)] == [0, 0, 2, 2, 4, 4, 6]


def test_an_endless_grapheme_cluster_is_cut_anyway() -> None:
    zalgo = "a" + "\u0301" * 1_000
    assert len(head(zalgo, 500)) == 500
    assert is_inside_cluster(zalgo, 500)


def test_a_cut_prefers_a_line_end_close_by() -> None:
    text = "\n".join(f"line {n:04}" for n in range(1_000))
    start, stop = gap(text, 1_000)
    assert text[:start].endswith("\n")
    assert text[stop:].startswith("line ")


def test_a_short_text_has_no_gap() -> None:
    assert gap("你好", 2) == Gap(2, 2)


@pytest.mark.parametrize(
    "line",
    [
        "exit code 2",
        "Exit code: 137",
        "<returncode>1</returncode>",
        "Process exited with code 3",
        "Command exited with code 1",
        '"exit_code": 1',
        "exit status 101",
        "命令退出码:1",
        "返回码: 3",
        "fatal: not a git repository",
        "FAILED tests/test_a.py::test_b",
        "错误:找不到文件",
        "构建失败",
        "エラーが発生しました",
        "오류가 발생했습니다",
    ],
)
def test_a_failure_line_is_found_among_noise(line: str) -> None:
    noise = "\n".join(f"processing item {n}" for n in range(2_000))
    assert failure_lines(f"{noise}\n{line}\n{noise}", 200) == [line]


def test_the_last_line_of_a_traceback_is_found_without_the_word_error() -> None:
    text = 'x\nTraceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\nrequests.Timeout: slow\ny'
    assert "requests.Timeout: slow" in failure_lines(text, 200)


def test_exit_codes_come_before_errors_when_room_is_short() -> None:
    text = "ValueError: one\nx\nexit code 2\ny\nTypeError: two"
    assert failure_lines(text, 12) == ["exit code 2"]
    assert failure_lines(text, 30) == ["exit code 2", "TypeError: two"]
    assert failure_lines(text, 0) == []


def test_a_repeated_failure_line_is_returned_once_and_none_on_success() -> None:
    assert failure_lines("error: x\n" * 100, 1_000) == ["error: x"]
    assert failure_lines("compiled, 0 errors\nno failures\n", 1_000) == []


@given(WRITING, st.integers(0, 400))
def test_failure_lines_fit_their_room(text: str, room: int) -> None:
    lines = failure_lines(text + " error " + text, room)
    assert sum(len(line) + 1 for line in lines) <= room
    assert all("\n" not in line for line in lines)


def test_a_long_failure_line_is_cut_around_the_error() -> None:
    (line,) = failure_lines("a" * 50_000 + " ValueError: bad " + "b" * 50_000, 500)
    assert "ValueError: bad" in line
    assert len(line) <= 160


@pytest.mark.parametrize(
    "text",
    [
        *(
            "Exit code 1\nboom",
            "ok\n\nCommand exited with code 2",
            "Error: no",
            "错误:失败",
            '{"error": "x"}',
        ),
        *(
            "error: 0x80070005 access denied",
            '{"errors": ["x"]}',
            '{"error_count": 3}',
            "errors = 01",
            "Error 404",
        ),
    ],
)
def test_failures_are_recognised(text: str) -> None:
    assert is_failure(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "<returncode>0</returncode>\nraise ValueError", "def error(): ...", "exit code: 0"),
        *(
            '{"errors": [], "data": 1}',
            '{"error_count": 0}',
            "Errors: 0",
            '{"errors": { }}',
            "error=none",
        ),
    ],
)
def test_successes_are_not_taken_for_failures(text: str) -> None:
    assert not is_failure(text)


def test_a_giant_exit_code_does_not_raise() -> None:
    assert is_failure("exit code " + "9" * 10_000)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("make  all\n", "make all"),
        ("", ""),
        ("x" * 11, "x" * 9 + "…"),
        ("make\n" + " " * 99 + "install", "make…"),
        ("make" + " " * 99, "make"),
    ],
)
def test_one_line_ends_with_an_ellipsis_exactly_if_words_are_missing(text, line):
    """Words behind many blanks used to be missing without one."""
    assert one_line(text, 10) == line
