"""What holds for every record: what is trained on, what was sent, and that nothing else matters."""

import copy
import json
import pickle
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refold import Budget, Compactor, corpus
from refold.codecs.detect import open_payload
from refold.compactor.calibration import Reports, no_prior
from refold.corpus.segments import read_strategies
from refold.errors import FormatError

TO, TARGET = 1_200, 500
WORDS = st.integers(0, 60).map(lambda n: f"line {n} of the output\n" * n)
STEPS = st.lists(
    st.tuples(st.sampled_from(["ask", "say", "call", "calls"]), WORDS), min_size=1, max_size=14
)
STRATEGIES = st.sampled_from(
    [
        None,
        ("ClearToolResults(keep=1)",),
        ("DropDuplicates()", "ClipResults(limit=400)", "Summarize(keep=2, max_tokens=200)"),
    ]
)


def chat(steps):
    """A record in OpenAI's form."""
    yield {"role": "system", "content": "Be brief."}
    for at, (kind, text) in enumerate(steps):
        ids = [f"c{at}.{n}" for n in range({"call": 1, "calls": 2}.get(kind, 0))]
        if not ids:
            yield {"role": "user" if kind == "ask" else "assistant", "content": f"{at} {text}"}
            continue
        function = {"name": "read", "arguments": json.dumps({"at": at})}
        calls = [{"id": id, "type": "function", "function": function} for id in ids]
        yield {"role": "assistant", "content": None, "tool_calls": calls}
        yield from ({"role": "tool", "tool_call_id": id, "content": text} for id in ids)


def anthropic(steps):
    """A record in Anthropic's form."""
    for at, (kind, text) in enumerate(steps):
        ids = [f"c{at}.{n}" for n in range({"call": 1, "calls": 2}.get(kind, 0))]
        if not ids:
            yield {"role": "user" if kind == "ask" else "assistant", "content": f"{at} {text}"}
            continue
        thinking = {"type": "thinking", "thinking": text, "signature": f"s{at}"}
        calls = [{"type": "tool_use", "id": id, "name": "read", "input": {}} for id in ids]
        results = [{"type": "tool_result", "tool_use_id": id, "content": text} for id in ids]
        yield {"role": "assistant", "content": [thinking, *calls]}
        yield {"role": "user", "content": results}


def build(form, steps):
    tools = [{"name": "read", "input_schema": {"type": "object"}}]
    body = {"model": "claude-opus-4-6", "system": "Be brief.", "tools": tools}
    if form is chat:
        body = {"model": "gpt-5", "tools": [{"type": "function", "function": {"name": "read"}}]}
    return {"id": "r", **body, "messages": list(form(steps))}


RECORDS = st.builds(build, st.sampled_from([chat, anthropic]), STEPS).filter(
    lambda record: any(entry["role"] == "assistant" for entry in record["messages"])
)


def unroll(record, strategies=None, **settings):
    return corpus.unroll(record, to=TO, target=TARGET, strategies=strategies, **settings)


def answers_at(messages, start=0):
    """Where an answer begins."""
    roles = ["", *(entry["role"] for entry in messages)]
    starts = [
        at
        for at, (before, role) in enumerate(pairwise(roles))
        if role == "assistant" and before != "assistant"
    ]
    return [at for at in starts if at >= start]


def ask_anew(record, strategies):
    """The requests of an agent that resends all of its history through a compactor of its own."""
    format = "openai_chat" if record["messages"][0]["role"] == "system" else "anthropic"
    compact = Compactor(
        read_strategies(strategies, TARGET),
        Budget(TO - TO // 8, TARGET),
        format=format,
        reports=Reports(no_prior),
    )
    messages = record["messages"]
    for at in answers_at(messages):
        yield compact({**record, "messages": messages[:at]}).payload["messages"]


@given(record=RECORDS, strategies=STRATEGIES)
def test_every_answer_is_trained_on_exactly_once(record, strategies):
    trained = [
        entry
        for row in unroll(record, strategies)
        for entry in row["messages"][row["train_from"] :]
        if entry["role"] == "assistant"
    ]
    assert trained == [entry for entry in record["messages"] if entry["role"] == "assistant"]


@given(record=RECORDS, strategies=STRATEGIES)
def test_requests_are_those_that_the_agent_would_have_sent(record, strategies):
    rows = unroll(record, strategies)
    sent = [
        row["messages"][:at]
        for row in rows
        for at in answers_at(row["messages"], row["train_from"])
    ]
    assert sent == list(ask_anew(record, strategies))
    assert [row["parent"] for row in rows] == [row["segment"] - 1 for row in rows]
    assert all(row["messages"][row["train_from"]]["role"] == "assistant" for row in rows)


@given(record=RECORDS, strategies=STRATEGIES, data=st.data())
def test_later_messages_do_not_change_an_earlier_segment(record, strategies, data):
    """What came afterwards changes no segment, and no request of the last."""
    starts = answers_at(record["messages"])
    stop = data.draw(st.sampled_from(starts)) + 1
    while stop < len(record["messages"]) and record["messages"][stop]["role"] == "assistant":
        stop += 1
    early = unroll({**record, "messages": record["messages"][:stop]}, strategies)
    late = unroll(record, strategies)
    *whole, last = early
    assert whole == late[: len(whole)]
    then = late[len(whole)]
    assert then["messages"][: len(last["messages"])] == last["messages"]
    assert then["train_from"] == last["train_from"]


def blocks(messages):
    """Yield each block of Anthropic's messages with its role, and all other messages whole."""
    for entry in messages:
        content = entry["content"]
        if isinstance(content, str) and len(entry) == 2:
            content = [{"type": "text", "text": content}]
        if isinstance(content, list):
            yield from ((entry["role"], block) for block in content)
        else:
            yield entry


LONG = [f"line {count} of the output\n" * count for count in (0, 0, 4, 59, 60)]


@given(record=RECORDS, strategies=STRATEGIES)
@example(build(anthropic, [("ask", text) for text in LONG] + [("say", "")]), None)
def test_messages_that_no_edit_hides_are_in_the_segment_in_order(record, strategies):
    """What no edit covers stands in the segment as it was recorded, in order. A summary and the
    user's message after it are sent as one message."""
    for row in unroll(record, strategies):
        hidden = {at for edit in row["edits"] for at in range(edit["start"], edit["stop"])}
        stop = record["messages"].index(row["messages"][-1]) + 1
        shown = [entry for at, entry in enumerate(record["messages"][:stop]) if at not in hidden]
        rest = blocks(row["messages"])
        assert all(block in rest for block in blocks(shown))


@given(record=RECORDS, strategies=STRATEGIES)
def test_unroll_has_no_state_and_does_not_change_its_record(record, strategies):
    before = copy.deepcopy(record)
    rows = unroll(record, strategies)
    travelled = pickle.loads(pickle.dumps(partial(corpus.unroll, to=TO, target=TARGET)))
    assert record == before
    assert rows == unroll(json.dumps(record), strategies)
    assert travelled(record, strategies=strategies) == rows


@given(records=st.lists(RECORDS, max_size=3), strategies=STRATEGIES, is_text=st.booleans())
def test_batch_functions_give_the_same_as_functions_of_single_records(records, strategies, is_text):
    names = ["id", "messages", "model"]
    records = [{name: record[name] for name in names} for record in records]
    batch = {name: [record[name] for record in records] for name in names}
    if is_text:
        batch["messages"] = [json.dumps(messages) for messages in batch["messages"]]
    rows = [row for record in records for row in unroll(record, strategies)]
    columns = corpus.unroll_batch(batch, to=TO, target=TARGET, strategies=strategies, as_json=False)
    assert columns.pop("error") == [""] * len(rows)
    assert columns == {name: [row[name] for row in rows] for name in corpus.SCHEMAS["unroll"]}
    for name in ("compact", "stats", "check", "repair"):
        single, batched = getattr(corpus, name), getattr(corpus, f"{name}_batch")
        assert batched(batch, as_json=False) == {
            **{
                column: [single(record)[column] for record in records]
                for column in corpus.SCHEMAS[name]
            },
            "error": [""] * len(records),
        }


@given(record=RECORDS)
def test_rows_of_one_function_are_records_for_another(record):
    """What one function returns another takes."""
    rows = unroll(record)
    assert all(corpus.stats(row)["session"] == "r" for row in rows)
    mended = corpus.repair(record)
    assert corpus.check(mended)["violations"] == mended["remaining"]
    assert corpus.compact(record, to=TO)["tokens_before"] == corpus.stats(record)["tokens"]


# --- bad input -------------------------------------------------------------------------------

DEEP = json.loads("[" * 900 + "]" * 900)
BAD = [
    None,
    3,
    "no JSON",
    "[]",
    {},
    [],
    {"messages": []},
    {"messages": "none"},
    {"messages": [3]},
    {"text": "a row of a web crawl"},
    {"messages": [{"role": "user", "content": "nobody answers"}]},
    {"conversations": [{"from": "martian", "value": "hi"}]},
    {"messages": DEEP},
]


@pytest.mark.parametrize("record", BAD, ids=lambda record: repr(record)[:40])
def test_a_record_without_a_conversation_is_an_error_in_one_line(record):
    with pytest.raises(FormatError) as caught:
        corpus.unroll(record)
    assert 5 < len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


def test_a_bad_record_of_a_batch_becomes_a_row_with_an_error():
    good = {
        "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
    }
    batch = {"id": ["a", "b"], "messages": [None, good["messages"]]}
    columns = corpus.unroll_batch(batch)
    assert columns["session"] == ["a", "b"]
    assert [bool(error) for error in columns["error"]] == [True, False]
    assert json.loads(columns["messages"][1]) == good["messages"]
    assert columns["train_from"] == [0, 1]


def test_a_row_without_messages_is_an_error_for_every_function():
    for function in (corpus.compact, corpus.stats, corpus.check, corpus.repair, corpus.unroll):
        with pytest.raises(FormatError, match="no messages"):
            function({"format": "anthropic", "messages": []})


@pytest.mark.parametrize("format", [["anthropic"], {"name": "anthropic"}])
def test_a_field_format_that_is_not_text_does_not_stop_a_batch(format):
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
    assert corpus.check_batch({"format": [format], "messages": [chat]})["error"] == [""]


@pytest.mark.parametrize("body", ["It fails on Windows.", ["x"], 3])
def test_a_field_body_that_is_no_object_does_not_stop_a_batch(body):
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
    batch = {"format": ["anthropic"], "body": [body], "messages": [chat]}
    assert corpus.check_batch(batch)["error"] == [""]


@pytest.mark.parametrize(
    "settings",
    [
        {"to": 0},
        {"to": "4k"},
        {"to": 100, "target": 200},
        {"reserve": -1},
        {"strategies": ["Nothing()"]},
    ],
    ids=str,
)
def test_invalid_settings_are_refused(settings):
    with pytest.raises(ValueError, match=r"must|strategy"):
        corpus.unroll({"messages": [{"role": "assistant", "content": "yes"}]}, **settings)


def test_strategies_may_be_a_single_name_instead_of_a_list():
    """Its name was read letter by letter: "no strategy is called 'C'"."""
    record = {"messages": [{"role": "assistant", "content": "yes"}]}
    assert corpus.unroll(record, strategies="ClearToolResults(keep=3)") == corpus.unroll(record)


def test_a_record_is_opened_in_the_format_of_its_provider():
    record = {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": []}]
    }
    (row,) = corpus.unroll(record)
    assert (row["format"], row["train_from"]) == ("gemini", 1)
    with pytest.raises(FormatError, match="no format is called"):
        corpus.unroll(record, format="latin")
    with pytest.raises(FormatError, match="no conversation in the form 'adp': adp"):
        corpus.unroll(record, format="adp")
    assert open_payload(corpus.compact(record)["messages"]).codec.NAME == "gemini"
