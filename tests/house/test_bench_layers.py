"""The tables of layered compaction and of the four goals, on a small synthetic session."""

import json
from itertools import pairwise

import pytest
from benchmarks import goals, kept, layers
from benchmarks.baselines import Extract, Plain, beginnings, sentences, typical
from benchmarks.billing import PRICES, Bill, Meter, common
from benchmarks.layers import (
    EVERY_ROUND,
    LAYER_1,
    LAYER_2,
    PROSE,
    TRUNCATED,
    UNCOMPACTED,
    Job,
    Policy,
    Run,
)
from benchmarks.probes import KINDS, Score, probes, score_answers
from benchmarks.replay import Recording
from benchmarks.speed import Request, Speed, count_shared, seconds_of

from refold.core.strategy import Ask
from refold.core.view import View
from refold.messages import user
from refold.retrieval import Index
from refold.strategies import Summarize
from refold.testing import proposals
from refold.tokens.count import count_message
from tests.support.messages import assistant

FAST = Speed(fixed=0.0, prefill=1e7, cached=1e8, output=1e6)
ROUNDS = 30


def session():
    """Return a request, then rounds of reading a file that names the next ones, with remarks in
    between."""
    yield {"role": "system", "content": "You are a careful engineer."}
    yield {
        "role": "user",
        "content": "Make the import faster. Never touch db/migrations, and keep the tests green.",
    }
    for n in range(ROUNDS):
        call = {"name": "read", "arguments": json.dumps({"path": f"src/import_{n}.py"})}
        yield {
            "role": "assistant",
            "content": f"I read part {n} of the import.",
            "tool_calls": [{"id": f"c{n}", "type": "function", "function": call}],
        }
        lines = [
            f"value_{n} = load('src/import_{n + 1}.py')",
            *[f"row {n} {k} is one more row of data" for k in range(60)],
        ]
        yield {"role": "tool", "tool_call_id": f"c{n}", "content": "\n".join(lines)}
        if n % 10 == 9:
            yield {"role": "assistant", "content": f"Decided: stage {n} is loaded in batches."}
            yield {
                "role": "user",
                "content": f"Good. Now look at stage {n + 1}; the limit there must stay at {n}00 rows.",
            }


@pytest.fixture(scope="module")
def recording():
    return Recording({"model": "gpt-4o", "messages": list(session())})


@pytest.fixture(scope="module")
def runs(recording):
    return layers.measure(Job(recording, points=2))


def visible(run):
    return layers.integrity(run.scores)[0]


def cells(text, name):
    """Return the cells of the first table row with this name."""
    row = next(line for line in text.splitlines() if line.startswith(f"| {name} "))
    return [cell.strip() for cell in row.strip("|").split("|")][1:]


def test_a_sliding_window_slides_within_a_task():
    """It used to be an edit, which is refused since no edit may hide the current request.
    Truncation then sent the whole session."""
    first, request, *rest = session()
    task = [first, request, *(message for message in rest if message["role"] != "user")]
    recording = Recording({"model": "gpt-4o", "messages": task})
    unedited = kept.compactor(recording, [], 2, 2)
    everything = recording.replay(unedited).tokens
    window = kept.last_tokens(recording, everything // 3)
    assert recording.replay(unedited, window).tokens < everything / 2


# --- the table of S1-35 ---------------------------------------------------------------------------


def test_the_table_has_tokens_seconds_cost_and_integrity_of_each_layer(runs):
    """S1-34 S1-35 C1-14: tokens, measured seconds, cost and integrity of a call, for the original
    history and after each layer. Tokens and cost fall from layer to layer, and none of the seed's
    figures are used."""
    seconds = layers.latency({"small": runs}, FAST)
    text = layers.report("small", 1, runs, seconds)
    for name in (UNCOMPACTED, EVERY_ROUND, LAYER_1, LAYER_2, TRUNCATED, *PROSE):
        tokens, took, cents, visibly, findable = cells(text, name)[:5]
        assert int(tokens.replace(",", "")) > 500
        assert len([float(figure) for figure in took.split(" / ")]) == 2
        assert all(float(figure) > 0 for figure in cents.split(" / "))
        assert 0 < int(visibly.rstrip("%")) <= int(findable.rstrip("%")) <= 100
    assert [title.split(",")[0] for title in cells(text, "what is sent")[:3]] == [
        "tokens",
        "s",
        "cents",
    ]
    tokens = [runs[name].sent.tokens for name in (UNCOMPACTED, LAYER_1, LAYER_2)]
    assert all(longer > shorter for longer, shorter in pairwise(tokens)), tokens
    dollars = [runs[name].bill.plain for name in (UNCOMPACTED, LAYER_1, LAYER_2)]
    assert all(dearer > cheaper for dearer, cheaper in pairwise(dollars))
    assert visible(runs[UNCOMPACTED]) == 1.0


def test_truncation_and_plain_summaries_keep_less_than_layer_2(runs):
    """S0-01 S1-35: with as many tokens, truncation and plain summaries show less of the
    conversation than layer 2, and less of it can be found again."""
    ours = runs[LAYER_2]
    for name in (TRUNCATED, *PROSE):
        baseline = runs[name]
        assert baseline.sent.tokens > 0.95 * ours.sent.tokens
        assert visible(baseline) < visible(ours)
        assert layers.integrity(baseline.scores)[1] < layers.integrity(ours.scores)[1]
        assert sum(baseline.sent.survived.values()) <= sum(ours.sent.survived.values())


def test_layer_1_hides_content_that_recall_can_find(runs):
    """S1-35 C1-14: integrity counts visible content and content that `recall` finds separately."""
    assert visible(runs[LAYER_1]) < layers.integrity(runs[LAYER_1].scores)[1]


def test_only_plain_summaries_have_a_model_cost(runs):
    assert all(runs[name].asking > 0 for name in PROSE)
    assert runs[LAYER_1].asking == runs[LAYER_2].asking == runs[TRUNCATED].asking == 0


# --- the four goals -------------------------------------------------------------------------------


def test_four_goals_are_measured_for_each_way_of_shortening_a_history(recording):
    """S3-03: context use, speed, accuracy and cost, each measured, for all four ways of replacing a
    history."""
    measured = goals.measure(recording)
    assert len(measured) == 5
    full = measured["as it is"].run.points[0]
    seconds = seconds_of([(ways.run.points[0].requests[1],) for ways in measured.values()], FAST)
    text = goals.report(measured, seconds)
    for name, ways in measured.items():
        point = ways.run.points[0]
        assert f"| {name}" in text
        if name != "as it is":
            assert point.tokens < full.tokens / 2
            assert point.bill.plain < full.bill.plain
            assert 0 < visible(ways.run) <= 1
    assert measured["RetrieveFacts, scripted model"].run.asking > 0


# --- probes ---------------------------------------------------------------------------------------


def test_probes_are_quoted_from_the_session():
    messages = [
        user("Fix it. You must not touch db/schema.sql."),
        assistant("I look at load_rows."),
    ]
    answers = {(probe.kind, probe.answer) for probe in probes(messages, "Use load_rows.")}
    assert ("requests", "Fix it. You must not touch db/schema.sql.") in answers
    assert ("constraints", "You must not touch db/schema.sql.") in answers
    assert ("paths", "db/schema.sql") in answers
    assert not any(answer == "load_rows" for _, answer in answers)


def test_a_probe_question_does_not_contain_its_answer():
    for probe in probes(
        [user("Please open src/a_b.py and then the other_name, whatever comes of it, today.")]
    ):
        assert probe.answer not in probe.question


def test_chinese_constraints_are_probes():
    answers = [
        probe.answer
        for probe in probes([user("重构导入。不要修改数据库迁移文件。")])
        if probe.kind == "constraints"
    ]
    assert answers == ["重构导入。不要修改数据库迁移文件。"]


def test_hidden_content_is_findable_by_recall_but_not_visible():
    messages = [
        user("Where is the limit kept?"),
        assistant("The limit for rows stands in config/limits.toml, I think."),
        user("Go on."),
    ]
    messages += [assistant("Working."), user("Yes.")]
    view = View.of(messages)
    view = view.apply(view.fold(0, 3, user("Something was said.")))
    wanted = [probe for probe in probes(messages) if probe.kind == "paths"]
    assert score_answers(view, wanted, Index())["paths"] == Score(1, 0, 1)
    assert score_answers(view, wanted, None)["paths"] == Score(1, 0, 0)


def test_kinds_without_probes_do_not_count():
    assert layers.integrity({kind: Score() for kind in KINDS} | {"paths": Score(4, 1, 2)}) == (
        0.25,
        0.5,
    )


# --- cost and speed -------------------------------------------------------------------------------


def test_an_unchanged_prefix_is_billed_as_a_cache_read():
    meter = Meter(count_message)
    view = View.of([user("one " * 100)])
    first = meter.call(view, 0)
    second = meter.call(view.extend([assistant("two")]), 0)
    assert first == Bill(view.tokens * PRICES.input / 1e6, view.tokens * PRICES.written / 1e6)
    added = count_message(assistant("two"))
    assert second.cached == pytest.approx(
        (view.tokens * PRICES.cached + added * PRICES.written) / 1e6
    )
    assert meter.breaks == 0


def test_a_rewritten_message_breaks_the_cache():
    meter = Meter(count_message)
    view = View.of([user("one " * 100), assistant("two " * 100), user("three")])
    meter.call(view, 0)
    bill = meter.call(view.apply(view.replace(1, assistant("two"))), 0)
    assert meter.breaks == 1
    assert bill.cached > count_message(user("one " * 100)) * PRICES.cached / 1e6
    assert common((user("a"), assistant("b")), (user("a"), assistant("c"))) == 1


def test_a_request_takes_at_least_the_time_of_its_tokens():
    speed = Speed(fixed=0.05, prefill=10_000, cached=1e9, output=1e6)
    long, short = Request("", (user("word " * 2_000),)), Request("", (user("word"),))
    slow, fast, warm = seconds_of([(long,), (short,), (long, long)], speed)
    tokens = count_message(user("word " * 2_000))
    assert slow >= speed.seconds(tokens, 0)
    assert fast >= 0.05
    assert warm >= 0.05
    assert speed.seconds(0, tokens) < speed.seconds(tokens, 0)


@pytest.mark.parametrize(
    ("a", "b", "same"), [("", "", 0), ("abc", "abd", 2), ("ab", "abc", 2), ("x", "y", 0)]
)
def test_the_length_of_the_common_prefix_is_counted(a, b, same):
    assert count_shared(a, b) == same


# --- baselines ------------------------------------------------------------------------------------


@pytest.mark.parametrize("choose", [beginnings, typical])
def test_an_extract_fits_its_max_tokens_and_has_a_cost(choose):
    said_before = tuple(
        user(f"Sentence {n} is about rows. It is followed by another one on tables.")
        for n in range(80)
    )
    answer = Extract(choose)(Ask("Summarise.", 200, messages=said_before))
    assert answer.text
    assert count_message(user(answer.text)) <= 200
    assert answer.cost > 0


def test_a_plain_summary_makes_the_view_shorter():
    messages = [
        m
        for n in range(30)
        for m in (user(f"Question {n} about rows?"), assistant(f"Answer {n}: they are loaded."))
    ]
    view = proposals(View.of(messages), Summarize(4, 300, Plain()), Extract(beginnings))
    assert len(view.messages) < len(messages)
    assert view.tokens < View.of(messages).tokens


def test_english_and_chinese_sentences_are_split():
    assert sentences("Read src/a.py first. Then stop!\n不要动它。") == [
        "Read src/a.py first.",
        "Then stop!",
        "不要动它。",
    ]


def test_runs_add_up():
    assert (Run(asking=1.0) + Run(asking=2.0)).asking == 3.0
    assert Policy().strategies == ()
