"""The metric of `make evidence`: what counts as evidence and what does not."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from benchmarks.evidence.bounds import is_bare, iter_quoted
from benchmarks.evidence.needs import find_edits, find_names
from benchmarks.evidence.sessions import Session, load_sessions
from benchmarks.evidence.visible import History, Request, around, is_list_of_names

from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.tokens.count import estimate

CODE = "12→def charge_card(order_id, amount_cents):\n13→    return gateway.capture(order_id)"
SESSION = [
    user("Mend the payment."),
    Message("assistant", (ToolCall("c1", "Read", '{"file_path": "shop/pay.py"}'),)),
    Message("tool", (ToolResult("c1", (Text(CODE),)),)),
    Message(
        "assistant",
        (
            ToolCall(
                "c2",
                "Edit",
                json.dumps({"file_path": "shop/pay.py", "old_string": "    return gateway.capture(order_id)", "new_string": "    return charge_card"}),
            ),
        ),
    ),
]  # fmt: skip


def history(messages: list[Message]) -> History:
    blocks = [
        part.text for m in messages for part in m.parts if isinstance(part, Text | ToolResult)
    ]
    names = {need.text for need in find_names(messages)}
    return History(frozenset(blocks), {name: [b for b in blocks if name in b] for name in names})


def test_a_name_from_a_result_that_a_later_call_uses_is_needed():
    assert {need.text for need in find_names(SESSION)} == {
        "gateway.capture",
        "order_id",
        "charge_card",
    }


def test_a_bare_list_of_names_ties_none_of_them():
    request = Request.of([user("Names: charge_card, order_id, gateway.capture")], history(SESSION))
    assert request.has("charge_card")
    assert not request.ties("charge_card", history(SESSION))
    assert is_list_of_names("charge_card, order_id, gateway.capture, amount_cents")


def test_a_line_with_the_context_of_a_name_ties_it():
    line = "charge_card takes order_id and amount_cents, and captures by the gateway"
    request = Request.of([user(line)], history(SESSION))
    assert request.ties("charge_card", history(SESSION))


def test_an_unchanged_block_ties_the_names_in_it():
    request = Request.of(SESSION[2:3], history(SESSION))
    assert request.ties("charge_card", history(SESSION)) and not request.rewritten


def test_an_edit_needs_the_lines_that_it_replaces():
    (edit,) = find_edits(SESSION)
    assert edit.lines == ("return gateway.capture(order_id)",)
    shown = Request.of(
        [user("### shop/pay.py\n13: return gateway.capture(order_id)")], history(SESSION)
    )
    assert shown.lines().issuperset(edit.lines)
    assert not Request.of([user("shop/pay.py was read")], history(SESSION)).lines() & set(
        edit.lines
    )


def test_bounds_count_lines_that_later_calls_need_and_the_tail_lacks():
    """A name is in a result older than the tail, and then a call uses it. A call that uses content
    of the tail adds nothing."""
    payload = {"messages": [{"role": "user", "content": "Mend the payment."}]}

    def add(id: str, path: str, result: str) -> None:
        arguments = json.dumps({"file_path": path})
        function = {"name": "Read", "arguments": arguments}
        call = {"id": id, "type": "function", "function": function}
        payload["messages"] += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": id, "content": result},
        ]

    line = "the capture of shop/gateway_client.py waits for the bank"
    add("c1", "README.md", f"{line}\n{'filler words only ' * 30}")
    add("c2", "notes.txt", "nothing but prose " * 60)
    add("c3", "more.txt", "see shop/near_helper.py, too")
    without = _count_tokens(payload)
    add("c4", "shop/near_helper.py", "ok")
    near = _count_tokens(payload)
    add("c5", "shop/gateway_client.py", "ok")
    far = _count_tokens(payload)
    assert max(without) == max(near[: len(without)]) == 0
    assert max(far) == estimate(around(line, line.find("shop"), len("shop/gateway_client.py")))


def _count_tokens(payload: dict[str, Any]) -> list[int]:
    return [row.tokens for row in iter_quoted(Session("s", "test", deepcopy(payload)), 300)]


def test_a_name_is_bare_if_no_line_has_enough_context_to_tie_it():
    """A name that is bare in every line cannot be tied by a quotation, and a path is tied by its
    state."""
    line = "  uuid: msg.uuid,"
    block = f"def build_row(msg):\n{line}"
    assert is_bare("msg.uuid", [block])
    held = History(frozenset({block}), {"msg.uuid": [block]})
    assert not Request.of([user(f"lib/row.py\n{line}")], held).ties("msg.uuid", held)
    assert not is_bare("msg.uuid", [block, "the reader takes msg.uuid for the key of the row"])
    assert not is_bare("lib/row.py", ["lib/row.py"])


def test_sessions_of_a_directory_are_loaded_and_invalid_files_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    messages = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "Done."}]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.json").write_text(json.dumps({"model": "m", "messages": messages}))
    (tmp_path / "broken.jsonl").write_text("{")
    assert [session.name for session in load_sessions(str(tmp_path))] == ["one"]
    assert "broken.jsonl" in capsys.readouterr().err
    assert not list(load_sessions(str(tmp_path), at_least=1_000))
