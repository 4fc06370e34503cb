"""OutlineResults outlines long results by their kind when they first appear."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.core.view import View
from refold.edits import Edit
from refold.messages import Media, Message, Text, ToolCall, ToolResult, user
from refold.strategies import ClipResults, OutlineResults
from refold.testing import check_strategy, proposals, transcripts
from refold.text.outline import KINDS

EVERY = tuple(KINDS)
IMAGE = Media("image", "image/png", "blake2b:00", 640, 480)
LOG = "\n".join(f"2026-11-02 08:00 job {n} done" for n in range(500))
LISTING = "\n".join(f"src/part{n % 9}/file_{n}.py" for n in range(300))
PROSE = "A long sentence that says something. " * 300
CODE = "\n".join(f"def part_{n}():\n    return {n};" for n in range(400))


def say(*texts: str, asked: str = "Look.") -> tuple[Message, ...]:
    """Return a request and results, each of its own call."""
    calls = tuple(
        ToolCall(f"c{n}", "bash", json.dumps({"command": asked})) for n in range(len(texts))
    )
    results = tuple(ToolResult(f"c{n}", (Text(text),)) for n, text in enumerate(texts))
    return (user(asked), Message("assistant", calls), Message("tool", results))


def text_of(view: View, part: int = 0) -> str:
    result = view.messages[2].parts[part]
    assert isinstance(result, ToolResult)
    return result.text


@given(transcripts(), st.sampled_from([LOG, LISTING, PROSE, CODE]), st.integers(400, 2_000))
def test_it_keeps_the_laws(messages: tuple[Message, ...], text: str, limit: int) -> None:
    check_strategy(OutlineResults(limit, EVERY, limit), examples=[messages, say(text, LOG)])


@given(transcripts(tidy=False))
def test_it_keeps_the_laws_for_invalid_histories_too(messages: tuple[Message, ...]) -> None:
    check_strategy(OutlineResults(400, EVERY, 400), examples=[messages])


@given(
    st.lists(st.sampled_from([LOG, LISTING, PROSE, CODE, "x" * 900, "中\n" * 700]), min_size=1),
    st.integers(400, 5_000),
)
def test_an_outline_is_never_longer_than_the_clipped_result(texts: list[str], limit: int) -> None:
    view = View.of(say(*texts))
    outlined = proposals(view, OutlineResults(limit, EVERY, limit))
    clipped = proposals(view, ClipResults(limit))
    # edit ids differ by a few tokens
    assert outlined.tokens <= clipped.tokens + 8 * len(texts)
    for n, text in enumerate(texts):
        assert len(text_of(outlined, n)) <= len(text_of(clipped, n))
        assert (text_of(outlined, n) == text) == (len(text) <= limit)


@given(transcripts())
def test_a_second_run_finds_nothing_to_outline(messages: tuple[Message, ...]) -> None:
    once = proposals(View.of(messages), OutlineResults(400, EVERY, 400))
    assert proposals(View.of(once.messages), OutlineResults(400, EVERY, 400)).edits == ()


def test_the_first_line_names_kind_size_and_edit() -> None:
    bare = View.of(say(LOG))
    view = proposals(bare, OutlineResults(1_000))
    (edit,) = view.edits
    assert text_of(view).startswith(
        f"[outline (log) of {len(LOG):,} characters (edit {edit.id[:8]})]\n"
    )
    assert view.unfold(edit.id[:8]) == [bare.messages[2]]
    assert "version=1" in edit.by


def test_each_result_of_a_message_is_outlined_by_its_own_kind() -> None:
    view = proposals(View.of(say(LOG, LISTING, PROSE, "ok")), OutlineResults(1_000, rest=2_000))
    assert text_of(view, 0).startswith("[outline (log)")
    assert text_of(view, 1).startswith("[outline (listing)")
    assert "characters left out (edit " in text_of(view, 2)
    assert 1_500 < len(text_of(view, 2)) <= 2_000
    assert text_of(view, 3) == "ok"


def test_only_the_configured_kinds_are_outlined() -> None:
    view = View.of(say(LOG, LISTING, CODE))
    chosen = proposals(view, OutlineResults(1_000, ("listing",)))
    assert (text_of(chosen, 0), text_of(chosen, 2)) == (LOG, CODE)
    assert text_of(chosen, 1).startswith("[outline (listing)")
    assert text_of(proposals(view, OutlineResults(1_000)), 2) == CODE


def test_results_below_the_outline_limit_are_clipped_to_rest_characters() -> None:
    view = proposals(View.of(say(PROSE, LOG)), OutlineResults(50_000, rest=1_000))
    assert all("characters left out (edit " in text_of(view, n) for n in range(2))


def test_the_part_of_a_result_that_the_call_asked_for_is_kept() -> None:
    view = View.of(say(CODE, asked="where is part_217?"))
    assert "def part_217():\n    return 217;" in text_of(
        proposals(view, OutlineResults(1_000, EVERY))
    )


def test_a_user_message_at_the_end_of_a_result_is_kept() -> None:
    aside = "<system-reminder>\nThe user sent the following message:\nStop after this.\n</system-reminder>"
    view = proposals(View.of(say(f"{LOG}\n{aside}")), OutlineResults(1_000))
    assert text_of(view).startswith("[outline (log)")
    assert text_of(view).endswith(aside)


def test_media_and_the_error_flag_are_kept() -> None:
    messages = say(LOG)
    result = ToolResult("c0", (Text(LOG), IMAGE, Text(LOG)), error=True)
    view = proposals(View.of((*messages[:2], Message("tool", (result,)))), OutlineResults(1_000))
    part = view.messages[2].parts[0]
    assert isinstance(part, ToolResult)
    assert part.error and [type(item) for item in part.content] == [Text, Media]


def test_only_messages_from_the_given_position_on_are_outlined() -> None:
    view = View.of([*say(LOG), *say(LOG)[1:]])
    edits = [edit for edit in OutlineResults()(view, 3) if isinstance(edit, Edit)]
    assert [edit.start for edit in edits] == [4]


@pytest.mark.parametrize(
    "settings", [{"limit": 399}, {"rest": 0}, {"kinds": ("poem",)}, {"version": 0}]
)
def test_invalid_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"limit|rest|kinds|version"):
        OutlineResults(**settings)  # type: ignore[arg-type]


PROGRAM = """
import json, sys
from refold.text.outline import KINDS
from refold.text.plain import terms
query = frozenset(terms("find part 17 and file 23 of done return 217"))
outlines = [[weigh(text, query) for weigh in KINDS.values()] for text in json.load(sys.stdin)]
print(json.dumps([[each.show(900) for each in row if each] for row in outlines]))
"""


def test_outlines_are_the_same_bytes_in_every_process() -> None:
    """The order of sets differs between processes."""
    texts = [LOG, LISTING, CODE, json.dumps([{"a": n, "b": [n] * 90} for n in range(99)])]
    shown = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            input=json.dumps(texts).encode(),
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    (by_all,) = shown
    assert all(json.loads(by_all)) and len(json.loads(by_all)) == len(texts)


def test_the_repr_shows_every_setting() -> None:
    assert eval(repr(OutlineResults(500, ("log",)))) == OutlineResults(500, ("log",))
