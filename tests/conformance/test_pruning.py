"""Conformance cases 22 to 31: pruning of tool output."""

from collections.abc import Iterable, Sequence

import pytest

from refold.budget.budget import Budget
from refold.compactor.compactor import Compactor
from refold.core.view import View
from refold.edits import Edit
from refold.errors import StoreError
from refold.messages import Media, Message, Text, ToolCall, ToolResult, user
from refold.strategies.clear import ClearToolResults
from refold.strategies.first_sight import ClipResults
from refold.testing import proposals

LONG = "line of output\n" * 100
DONE = Message("assistant", (Text("so"),))


def exchange(n: int, text: str = LONG, name: str = "bash", error: bool = False) -> list[Message]:
    call = ToolCall(f"c{n}", name, '{"command":"make test"}')
    return [
        Message("assistant", (call,)),
        Message("tool", (ToolResult(call.id, (Text(text),), error),)),
    ]


def session(*exchanges: list[Message], end: Iterable[Message] = (DONE,)) -> View:
    return View.of([user("x"), *(message for pair in exchanges for message in pair), *end])


def list_cleared(view: View, strategy: ClearToolResults) -> list[int]:
    return [edit.start for edit in proposals(view, strategy).edits[len(view.edits) :]]


def show_result(view: View, at: int) -> str:
    (part,) = view.messages[at].parts
    assert isinstance(part, ToolResult)
    return part.text


def test_conformance_22_output_within_the_protected_zone_is_not_pruned() -> None:
    view = session(*map(exchange, range(6)))
    assert list_cleared(view, ClearToolResults(keep=0, keep_tokens=view.estimate)) == []
    assert list_cleared(view, ClearToolResults(keep=6)) == []


def test_conformance_23_less_than_the_minimum_batch_is_not_pruned() -> None:
    view = session(*map(exchange, range(6)))
    gain = view.estimate - proposals(view, ClearToolResults(keep=2)).estimate
    margin = (
        4 * 4
    )  # stubs name their edit, and the setting is part of the name: a few tokens more or less each
    assert list_cleared(view, ClearToolResults(keep=2, at_least=gain - margin)) == [2, 4, 6, 8]
    assert list_cleared(view, ClearToolResults(keep=2, at_least=gain + margin)) == []


def test_conformance_24_newest_turns_unseen_results_and_protected_tools_are_never_pruned() -> None:
    tools = ["Skill", "bash", "ask_user", "bash", "bash", "bash"]
    pairs = [exchange(n, name=name) for n, name in enumerate(tools)]
    assert list_cleared(
        session(*pairs), ClearToolResults(keep=2, protect={"Skill", "ask_user"})
    ) == [
        4,
        8,
    ]
    assert list_cleared(
        session(*pairs, end=[]), ClearToolResults(keep=0, protect={"Skill", "ask_user"})
    ) == [4, 8, 10]


def test_conformance_24_results_of_parallel_calls_are_kept_or_pruned_together() -> None:
    calls = tuple(ToolCall(f"p{n}", "bash", "{}") for n in range(3))
    answers = [Message("tool", (ToolResult(call.id, (Text(LONG),)),)) for call in calls]
    parallel = [Message("assistant", calls), *answers]
    assert list_cleared(session(exchange(0), parallel), ClearToolResults(keep=1)) == [2]
    assert list_cleared(session(parallel, exchange(0)), ClearToolResults(keep=1)) == [2, 3, 4]


def test_conformance_25_many_small_outputs_add_up_to_the_batch() -> None:
    small = "small line of output\n" * 20
    view = session(*(exchange(n, small) for n in range(40)))
    size = view.base.tokens(2, 3)
    strategy = ClearToolResults(keep=3, at_least=10 * size)
    assert list_cleared(view, strategy) == [2 * n for n in range(1, 38)]
    assert list_cleared(session(*(exchange(n, small) for n in range(9))), strategy) == []


def test_conformance_26_pruned_output_is_neither_counted_nor_pruned_again() -> None:
    pairs = [exchange(n) for n in range(6)]
    view = proposals(session(*pairs), ClearToolResults(keep=2))
    assert list_cleared(view, ClearToolResults(keep=2)) == []
    assert list_cleared(view, ClearToolResults(keep=1)) == [10]
    gain = view.base.tokens(10, 11)
    assert list_cleared(view, ClearToolResults(keep=1, at_least=gain)) == []


def test_conformance_26_the_scan_stops_at_a_summary() -> None:
    bare = session(*map(exchange, range(6)))
    view = bare.apply(bare.fold(1, 7, user("summary"), by="Summarize()"))
    assert list_cleared(view, ClearToolResults(keep=1)) == [8, 10]
    assert list_cleared(view, ClearToolResults(keep=3)) == []


def test_conformance_27_a_placeholder_that_is_not_smaller_is_not_shown() -> None:
    texts = ["ok", "", "done", LONG, "12 passed"]
    view = session(*(exchange(n, text) for n, text in enumerate(texts)))
    after = proposals(view, ClearToolResults(keep=0, min_tokens=0))
    assert [edit.start for edit in after.edits] == [8]
    for edit in after.edits:
        assert sum(map(view.profile.count, edit.insert)) < view.base.tokens(edit.start, edit.stop)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (f"{LONG}\nCommand exited with code 2", ["Command exited with code 2"]),
        (f"<returncode>1</returncode>\n<output>\n{LONG}</output>", ["<returncode>1</returncode>"]),
        (
            f"Exit code 101\n{LONG}\nerror[E0382]: borrow of moved value\n{LONG}",
            ["Exit code 101", "error[E0382]: borrow of moved value"],
        ),
        (
            f"Traceback (most recent call last):\n{'  File x' * 200}\nValueError: 坏的输入",
            ["ValueError: 坏的输入"],
        ),
        (f"错误:找不到文件 config.toml\n{LONG}", ["错误:找不到文件 config.toml"]),
    ],
)
def test_conformance_28_errors_keep_their_message_and_exit_codes_survive(
    text: str, lines: list[str]
) -> None:
    view = session(exchange(0, text), exchange(1))
    stub = show_result(proposals(view, ClearToolResults(keep=1)), 2)
    assert all(line in stub.split("\n")[1:] for line in lines)
    assert len(stub) < 450
    assert all(
        line in show_result(proposals(view, ClipResults(1_000)), 2).split("\n") for line in lines
    )


def test_conformance_28_a_flagged_error_stays_flagged() -> None:
    view = proposals(
        session(exchange(0, "cannot open a.txt\n" + LONG, error=True), exchange(1)),
        ClearToolResults(keep=1),
    )
    (part,) = view.messages[2].parts
    assert part.error
    assert "cannot open a.txt" in part.text


def test_conformance_28_a_cleared_success_keeps_no_output_line() -> None:
    view = proposals(
        session(exchange(0, f"{LONG}\nexit code: 0\n0 errors"), exchange(1)),
        ClearToolResults(keep=1),
    )
    assert "\n" not in show_result(view, 2)


class Full:
    """A store that cannot save."""

    def load(self, _: Sequence[str]) -> Sequence[Edit]:
        return ()

    def save(self, _: Iterable[Edit]) -> None:
        raise StoreError("no space left on device")

    def remove(self, ids: Iterable[str]) -> None:
        """Nothing is ever kept."""

    def version(self) -> int:
        return 0


def test_conformance_29_when_saving_fails_the_original_is_kept() -> None:
    history = [{"role": "user", "content": "x"}]
    for n in range(6):
        call = {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "bash", "arguments": '{"command":"make"}'},
        }
        history.append({"role": "assistant", "content": None, "tool_calls": [call]})
        history.append({"role": "tool", "tool_call_id": f"c{n}", "content": LONG})
    before = repr(history)
    compact = Compactor([ClearToolResults(keep=1)], Budget(100, 50), Full())
    with pytest.raises(StoreError, match="no space left"):
        compact(history)
    assert repr(history) == before
    assert compact(history, budget=Budget(10**9, 0)).payload == history


def test_conformance_30_one_line_of_170k_characters_is_cut_by_characters() -> None:
    line = ("{" + '"k":"😀👨‍👩‍👧é你"' + "}") * 11_000
    text = show_result(proposals(session(exchange(0, line)), ClipResults()), 2)
    head, mark, tail = text.split("\n")
    assert len(line) >= 170_000
    assert len(text) <= 4_000
    assert len(head) > 1_900
    assert len(tail) > 1_900
    assert line.startswith(head)
    assert line.endswith(tail)
    assert f"{len(line) - len(head) - len(tail):,} characters left out" in mark


@pytest.mark.parametrize("size", range(400, 440))
def test_conformance_30_no_surrogate_pair_is_split(size: int) -> None:
    line = "\ud83d\ude00" * 85_000
    head, _, tail = show_result(proposals(session(exchange(0, line)), ClipResults(size)), 2).split(
        "\n"
    )
    assert len(head) % 2 == len(tail) % 2 == 0


def test_conformance_31_clipping_keeps_images_and_clearing_drops_them_by_default() -> None:
    image = Media("image", "image/png", "blake2b:00", 640, 480, size=3_000_000)
    call = ToolCall("c0", "screenshot", "{}")
    pair = [
        Message("assistant", (call,)),
        Message("tool", (ToolResult("c0", (Text("x" * 9_000), image)),)),
    ]
    view = session(pair, exchange(1))
    clipped = proposals(view, ClipResults()).messages[2].parts[0]
    dropped = proposals(view, ClearToolResults(keep=1)).messages[2].parts[0]
    with_image = proposals(view, ClearToolResults(keep=1, media="keep")).messages[2].parts[0]
    assert clipped.content[1] == image
    assert "result of 9,000 characters, 1 image cleared" in dropped.text
    assert dropped.content[1:] == ()
    assert with_image.content[1:] == (image,)
    assert view.estimate < 20_000
