"""Compaction below the hard level: when it pays, with which strategies, and what the cache is
assumed to hold."""

import json
from collections.abc import Callable

from refold.gateway import Outgoing
from refold.gateway.pipeline.request_kind import lengthen_cache
from refold.stores import MemoryStore
from refold.strategies import ClearToolResults, Summarize
from refold.tokens.model_table import Rates, Window
from tests.support.agent_requests import anthropic_request, violations
from tests.support.billed_calls import Clock
from tests.support.pipeline_driver import Driver, SummaryWriter, build_incoming

CHEAP = Rates(1.0, 5.0, 0.1, 1.25, lifetime=300.0)
DEAR = Rates(1.0, 5.0, 0.01, 1.25, lifetime=300.0)
WIDE = {"claude-opus-5-5": Window(1_000_000)}


def test_f32_below_the_hard_level_rules_summarise_though_a_model_is_configured():
    """A model would read the whole request again, and a compaction that pays should not wait for
    it."""
    writer = SummaryWriter()
    with Driver(windows=WIDE, economy=True, prices=CHEAP, ask=writer) as driver:
        out = driver(anthropic_request(120, repeat=5))
        assert out.reason == "pays"
        assert out.tokens_after < 0.5 * out.tokens_before
        assert violations(out.body, "anthropic") == ()
        driver.finish_background_work()
        assert writer.asked == []


def test_below_the_hard_level_only_custom_strategies_that_keep_text_are_used():
    """Custom strategies must leave the text of user and model unchanged there."""
    own = (Summarize(keep=4), ClearToolResults(keep=3))
    with Driver(windows=WIDE, economy=True, prices=CHEAP, strategies=own) as driver:
        assert driver(anthropic_request(120, repeat=5)).reason == "pays"
        by = {row.by for row in driver.store.ledger() if row.edit}
    assert {name.partition("(")[0] for name in by} == {"ClearToolResults"}


def test_f32_a_long_session_is_compacted_repeatedly_if_it_pays():
    """A second compaction writes only the remaining messages to the cache again, not everything
    behind its edits."""
    with Driver(windows=WIDE, economy=True, prices=CHEAP) as driver:
        outs = [driver(anthropic_request(n, mark=False, repeat=5)) for n in range(0, 150, 25)]
    sizes = [out.tokens_after for out in outs]
    assert sum(out.reason == "pays" for out in outs) >= 3
    assert max(sizes[3:]) < 0.6 * outs[-1].tokens_before


def test_after_a_model_change_the_cache_is_assumed_to_be_empty():
    table = {"a": DEAR, "b": DEAR}
    windows = {"a": Window(1_000_000), "b": Window(1_000_000)}
    with Driver(windows=windows, economy=True, prices=table.get) as driver:
        assert driver(anthropic_request(40, model="a", repeat=5)).outcome == "untouched"
        assert driver(anthropic_request(41, model="a", repeat=5)).outcome == "untouched"
        out = driver(anthropic_request(42, model="b", repeat=5))
        assert out.reason == "pays"
        assert any("the cache does not hold it" in row.actor for row in driver.store.ledger())


def test_a_cache_that_another_process_keeps_alive_is_not_assumed_to_be_empty():
    """A process that had not seen a session for five minutes compacted it, as if nothing had been
    sent meanwhile."""
    clock, store = Clock(), MemoryStore()
    options = {"windows": WIDE, "economy": True, "prices": DEAR, "clock": clock}
    with Driver(store, **options) as first, Driver(store, **options) as second:
        for steps, driver in enumerate([first, *[second] * 7, first], 40):
            body = anthropic_request(steps, repeat=5)
            out = driver(body)
            assert out.outcome == "untouched"
            driver.pipeline.record_answer(build_incoming(body), out, None)
            clock.now += 60.0
        clock.now += 300.0
        assert first(anthropic_request(steps + 1, repeat=5)).reason == "pays"


def circles(reads: int, files: int = 12) -> bytes:
    """Return a request of an agent that reads the same long files in turn, again and again."""
    body = json.loads(anthropic_request(reads, mark=False, repeat=5))
    names = dict[str, str]()
    for message in body["messages"][1:]:
        for block in message["content"]:
            if block["type"] == "tool_use":
                number = int(block["id"][1:]) % files
                names[block["id"]] = block["input"]["path"] = f"f{number}.py"
            else:
                path = names[block["tool_use_id"]]
                text = block["content"].partition("\n")[2]
                block["content"] = f"{path}, read as {block['tool_use_id']}\n{text}"
    return json.dumps(body).encode()


def test_an_agent_that_refetches_results_is_compacted_less_often_and_less():
    """Section D: the agent fetches the same results again after they were hidden."""

    def run(request: Callable[[int], bytes]) -> list[Outgoing]:
        with Driver(windows=WIDE, economy=True, prices=CHEAP) as driver:
            outs = [driver(request(n)) for n in range(0, 120, 20)]
        return [out for out in outs if out.reason == "pays"]

    reading_on = run(lambda n: anthropic_request(n, mark=False, repeat=5))
    in_circles = run(circles)
    assert in_circles and len(in_circles) < len(reading_on)
    assert in_circles[-1].tokens_after > 1.5 * reading_on[-1].tokens_after


# --- the cache's lifetime -------------------------------------------------------------------------

HOURLY = Rates(1.0, 5.0, 0.1, 1.25, lifetime=300.0, hour=2.0)
HOUR_MARK = b'"cache_control": {"type": "ephemeral", "ttl": "1h"}'


def requests_after(pauses: list[float], repeat: int = 5, **settings) -> list[Outgoing]:
    """Return the requests sent at each call of a session with these pauses."""
    clock, outs = Clock(), list[Outgoing]()
    with Driver(windows=WIDE, prices=HOURLY, clock=clock, **settings) as driver:
        for steps, pause in enumerate(pauses, 20):
            clock.now += pause
            body = anthropic_request(steps, repeat=repeat)
            outs.append(out := driver(body))
            driver.pipeline.record_answer(build_incoming(body), out, None)
    return outs


def test_a_session_that_pauses_over_five_minutes_gets_a_one_hour_cache():
    outs = requests_after([0, *[900.0] * 6], hour_cache=True)
    assert [HOUR_MARK in out.body for out in outs][-1]
    assert outs[-1].reason == "hour"
    short = outs[-1].body.replace(HOUR_MARK, b'"cache_control": {"type": "ephemeral"}')
    assert short == anthropic_request(26, repeat=5)  # no other byte changes


def test_a_small_session_without_pauses_keeps_its_five_minute_cache_marks():
    outs = requests_after([5.0] * 6, repeat=1, hour_cache=True)
    assert {out.outcome for out in outs} == {"untouched"}


def test_the_cache_lifetime_is_not_changed_without_the_setting():
    assert {out.outcome for out in requests_after([0, *[900.0] * 6])} == {"untouched"}


def test_a_one_hour_cache_mark_is_kept_while_the_cache_is_alive():
    """Without it the cached prefix would be written again."""
    marked = [
        HOUR_MARK in out.body
        for out in requests_after([0, *[900.0] * 6, *[5.0] * 9], hour_cache=True)
    ]
    assert marked[6:] == [True] * 10


def test_a_refused_request_and_its_retry_are_one_pause():
    """An error used to count as an answer, though it leaves nothing in the cache: so the pauses of
    an overloaded provider's session were those between its retries."""
    clock = Clock()
    with Driver(windows=WIDE, prices=HOURLY, clock=clock, hour_cache=True) as driver:
        for steps, status in enumerate([200, 529, 200], 20):
            body = anthropic_request(steps, repeat=5)
            driver.pipeline.record_answer(build_incoming(body), driver(body), None, status)
            clock.now += 900.0 if status == 200 else 5.0
        (conversation,) = driver.pipeline.conversations
        assert list(conversation.cache.pauses) == [900.0]


def test_one_hour_cache_marks_and_quoted_marks_are_left_unchanged():
    untouched = (
        b'{"cache_control": {"ttl":"1h","type":"ephemeral"}, "text": "\\"cache_control\\": {}"}'
    )
    assert lengthen_cache(untouched) == untouched
    assert lengthen_cache(b'{"cache_control":{"type":"ephemeral","ttl":"5m"}}') == (
        b'{"cache_control":{"type": "ephemeral", "ttl": "1h"}}'
    )
    assert (
        lengthen_cache(b'{"cache_control":{"type":"other"}}')
        == b'{"cache_control":{"type":"other"}}'
    )
