"""Facts of chats in `python -m benchmarks.evidence facts`: a value counts with its own name."""

import json

from benchmarks.evidence.facts import Page, score
from benchmarks.evidence.policies import Sliding
from benchmarks.evidence.talks import Fact, Talk, iter_figures, read_run

from refold.messages import user

LOTUS, HARBOUR = (
    Fact("hotel", "lotus inn", "010-1234"),
    Fact("hotel", "harbour inn", "010-7788"),
)
CHAT = [
    {"role": "user", "content": "Which hotel is quiet?"},
    {"role": "assistant", "content": "The Lotus Inn is. Its number: 010-1234"},
    {"role": "user", "content": "And one by the sea?"},
    {"role": "assistant", "content": "The Harbour Inn."},
    {"role": "user", "content": "Its number, please?"},
    {"role": "assistant", "content": "010-7788"},
]
TALK = Talk(CHAT, (LOTUS, HARBOUR), {"hotel": frozenset(["lotus inn", "harbour inn"])})


def page(*texts: str) -> Page:
    return Page([user(text) for text in texts], TALK)


def test_a_value_belongs_to_the_last_name_of_its_kind_before_it():
    whole = page(*(message["content"] for message in CHAT))
    assert [whole.see(fact) for fact in TALK.facts] == ["right", "right"]
    assert page("Harbour Inn", "Lotus Inn", "010-7788").see(HARBOUR) == "wrong"


def test_a_name_after_the_value_on_the_same_line_counts():
    assert page("Lotus Inn", "010-7788 is the Harbour Inn's").see(HARBOUR) == "right"
    assert page("010-7788", "Harbour Inn").see(HARBOUR) == "alone"


def test_a_value_without_its_name_or_inside_a_longer_number_does_not_count():
    assert page("The number is 010-7788").see(HARBOUR) == "alone"
    assert page("Harbour Inn: 010-77889").see(HARBOUR) == "hidden"


def test_a_tail_does_not_show_all_facts():
    total = score(TALK, lambda _, window: Sliding(window // 2), 30)
    assert total.facts == 2
    assert total.right < 2
    assert total.right + total.wrong + total.alone + total.hidden == 2


def test_a_field_of_a_record_is_a_fact_if_the_agent_repeats_it():
    record = {"flight_number": "HAT001", "date": "2024-05-20", "price": 152, "legs": 1}
    run = [
        {"role": "tool", "id": "c1", "content": json.dumps([record])},
        {"role": "assistant", "content": "HAT001 costs $152."},
    ]
    assert read_run(run).facts == [Fact("flight_number", "HAT001", "152")]


def test_a_figure_is_paired_with_the_proper_name_before_it():
    memory = "【Debts】 Creditor: Access Bank. Interest Rate: 22% a year."
    assert list(iter_figures(memory, "I owe Access Bank, at 22% a year.")) == [
        ("Access Bank", "22%")
    ]
    assert not list(iter_figures(memory, "I owe Access Bank a lot."))
