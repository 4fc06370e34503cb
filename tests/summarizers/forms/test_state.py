"""The JSON state: deltas are parsed from models' answers, and applied or refused as a whole."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.summarizers.forms import (
    Change,
    Delta,
    Entry,
    State,
    StateForm,
    apply_delta,
    find_problems,
)
from refold.summarizers.forms.sections import comparison_key
from refold.summarizers.forms.state import KINDS

FORM = StateForm()
TEXTS = st.one_of(
    st.text(),
    st.sampled_from(
        [
            '}"]',
            "{",
            "不要修改 tests/",
            "a, ]",
            "</x>",
            "\\",
            "```",
            "none",
            '{"add": {}}',
            "\x00\x1f",
        ]
    ),
)
ENTRIES = st.builds(
    Entry,
    st.sampled_from(KINDS),
    TEXTS,
    st.sampled_from(["", "todo", "done", "read", "modified"]),
    st.sampled_from(["", "t1", "t2", "a1", "d7", "x"]),
)
STATES = st.builds(State, TEXTS, st.lists(ENTRIES, max_size=6).map(tuple))
DELTAS = st.builds(
    Delta,
    TEXTS,
    st.lists(ENTRIES, max_size=5).map(tuple),
    st.lists(st.builds(Change, TEXTS, st.none() | TEXTS, st.none() | TEXTS), max_size=3).map(tuple),
    st.lists(TEXTS, max_size=3).map(tuple),
)  # fmt: skip
FIRST = State(
    "Ship 1.0",
    (
        Entry("topic", "release", "", "t1"),
        Entry("action", "tag it", "todo", "a1"),
        Entry("constraint", "不要强推", "", "c1"),
    ),
)


def test_a_delta_is_read_and_applied():
    """S1-37: topics, entities and action items as JSON, updated by id."""
    delta = FORM.parse(
        'Here you go:\n```json\n{"add": {"entities": [{"text": "K-9931"}], "files": ["src/a.py"]},\n'
        ' "update": [{"id": "a1", "status": "done"},], "remove": ["t1"]}\n```'
    )
    assert delta == Delta(
        "",
        (Entry("entity", "K-9931"), Entry("file", "src/a.py")),
        (Change("a1", None, "done"),),
        ("t1",),
    )
    after = FORM.merge(FIRST, delta)
    assert after.goal == "Ship 1.0"
    assert after.of("topic") == ()
    assert after.of("action") == (Entry("action", "tag it", "done", "a1"),)
    assert after.of("entity") == (Entry("entity", "K-9931", "", "e1"),)
    assert after.of("constraint") == FIRST.of("constraint")


def test_the_template_itself_is_parsed_as_a_delta():
    assert isinstance(FORM.parse(FORM.template), Delta)


@given(STATES | DELTAS)
def test_a_rendered_value_is_parsed_back_unchanged(value):
    assert FORM.parse(FORM.render(value)) == (None if value == State() else value)


@given(STATES | DELTAS, st.text("ab `\n<>[]", max_size=20))
def test_text_around_the_json_is_ignored(value, around):
    assert FORM.parse(f"{around}\n```json\n{FORM.render(value)}\n```\n{around}") == (
        None if value == State() else value
    )


@given(
    st.one_of(
        st.text(),
        st.lists(
            st.sampled_from(['{"add"', ":", "{", "}", "[", '"x"', ",", "null", "1", '"goal"', "\\"])
        ).map("".join),
    )
)
def test_reading_never_raises(text):
    state = FORM.parse(text)
    assert state is None or FORM.parse(FORM.render(state)) == state


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"add": ' + "9" * 5_000 + "}",
        "{" * 100_000,
        '{"goal": "' * 9_999,
    ],
)
def test_hostile_json_is_read_in_no_time(text):
    assert FORM.parse(text) is None or isinstance(FORM.parse(text), State)


@pytest.mark.parametrize("answer", [
    "", "No changes.", "{}", '{"goal": ""}', '{"add": []x', '{"add": {"moods": []}}', '{"add": {"topics": [1]}}', '{"update": {"a1": "done"}}',
    '{"summary": "free text"}', '{"add": {}, "remove": [3]}', '{"topics": "all"}',
])  # fmt: skip
def test_conformance_34_an_answer_of_another_shape_is_not_read(answer):
    assert FORM.parse(answer) is None


def test_small_faults_are_forgiven():
    assert FORM.parse('{"goal": "a\nb", "add": {"topics": ["x, ]",],},}') == Delta(
        "a\nb", (Entry("topic", "x, ]"),)
    )
    assert FORM.parse('{"add": {"topics": ["one", "tw') == Delta(
        "", (Entry("topic", "one"), Entry("topic", "tw"))
    )


@pytest.mark.parametrize("delta", [
    Delta(update=(Change("a9", None, "done"),)), Delta(remove=("t9",)), Delta(update=(Change("a1", "x"),), remove=("a1",)),
    Delta(update=(Change("c1", " "),)), Delta("new goal", (Entry("topic", "y"),), remove=("t1", "t9")),
])  # fmt: skip
def test_a_delta_that_does_not_fit_is_refused_whole(delta):
    """S1-37: nothing is applied, and the error can be named in a second question."""
    assert FORM.merge(FIRST, delta) is None
    assert apply_delta(FIRST, delta) is None
    assert find_problems(FIRST, delta)


def test_duplicate_entries_are_merged_and_ids_stay_unique():
    after = apply_delta(
        FIRST,
        Delta(
            add=(
                Entry("action", "Tag it.", "done"),
                Entry("action", "announce"),
                Entry("decision", "x", id="t1"),
            )
        ),
    )
    assert after.of("action") == (
        Entry("action", "tag it", "done", "a1"),
        Entry("action", "announce", "", "a2"),
    )
    assert len({entry.id for entry in after.entries}) == len(after.entries) == 5


@given(STATES, DELTAS)
def test_applying_a_delta_loses_only_removed_entries(state, delta):
    after = FORM.merge(state, delta)
    if after is None:
        assert find_problems(state, delta)
    else:
        assert {e.id for e in after.entries} >= {e.id for e in state.entries} - set(delta.remove)
        assert {comparison_key(e.text) for e in after.entries} >= {
            comparison_key(e.text.strip())
            for e in delta.add
            if FORM.merge(None, Delta(add=(e,))).entries
        } - {comparison_key(e.text) for e in state.entries}


@given(STATES, STATES)
def test_merging_a_whole_state_removes_no_entry(old, new):
    assert FORM.merge(None, new) == new
    both = FORM.merge(old, new)
    assert both is None or {e.id for e in both.entries} >= {e.id for e in old.entries}


def test_ten_rounds_of_deltas_lose_nothing_and_change_only_what_they_name():
    """S1-37: after ten rounds, each through text and back."""
    now = None
    for n in range(10):
        delta = {
            "add": {"action_items": [{"text": f"do {n}", "status": "todo"}], "entities": [f"E-{n}"]}
        }
        if n == 0:
            delta |= {"goal": "Ship", "add": delta["add"] | {"constraints": ["不要强推 main"]}}
        else:
            delta["update"] = [{"id": f"a{n}", "status": "done"}]
        now = FORM.parse(FORM.render(FORM.merge(now, FORM.parse(json.dumps(delta)))))
    assert now.goal == "Ship"
    assert [e.text for e in now.of("constraint")] == ["不要强推 main"]
    assert [e.text for e in now.of("entity")] == [f"E-{n}" for n in range(10)]
    assert [e.status for e in now.of("action")] == ["done"] * 9 + ["todo"]


@given(STATES)
def test_shortening_keeps_open_items_and_constraints(state):
    now = state
    while (less := FORM.shorten(now)) is not None:
        assert len(FORM.render(less)) < len(FORM.render(now))
        now = less
    assert now.goal == state.goal
    assert all(now.of(kind) == state.of(kind) for kind in ("constraint", "open"))
    assert {e for e in state.of("action") if e.status != "done"} <= set(now.of("action"))


def test_two_updates_of_one_entry_are_both_applied() -> None:
    state = State("", (Entry("action", "run tests", "todo", "a1"),))
    changes = (Change("a1", text="run all tests"), Change("a1", status="done"))
    assert apply_delta(state, Delta(update=changes)) == State(
        "", (Entry("action", "run all tests", "done", "a1"),)
    )


def test_no_entry_is_lost_if_a_model_numbers_each_list_from_one() -> None:
    lists = {"topics": [{"id": "1", "text": "tests"}], "files": [{"id": "1", "text": "a.py"}]}
    answer = StateForm().parse(json.dumps(lists))
    assert answer is not None
    state = StateForm().merge(None, answer)
    assert state is not None
    assert [entry.text for entry in state.entries] == ["tests", "a.py"]
