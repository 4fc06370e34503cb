"""The measure of `make evidence`: what satisfies it, and what does not."""

import json

from benchmarks.evidence.needs import find_edits, find_names
from benchmarks.evidence.visible import History, Request, is_list_of_names

from refold.messages import Message, Text, ToolCall, ToolResult, user

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


def test_a_name_that_a_result_brought_and_a_call_uses_is_needed():
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


def test_a_line_with_what_it_was_about_ties_a_name():
    line = "charge_card takes order_id and amount_cents, and captures by the gateway"
    request = Request.of([user(line)], history(SESSION))
    assert request.ties("charge_card", history(SESSION))


def test_an_untouched_block_ties_what_it_holds():
    request = Request.of(SESSION[2:3], history(SESSION))
    assert request.ties("charge_card", history(SESSION)) and not request.made


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
