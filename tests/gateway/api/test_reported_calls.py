"""`report_usage`: a program's own calls are recorded like those that pass through the gateway."""

import json
from contextlib import closing
from dataclasses import replace
from itertools import count

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold.cli.commands import main
from refold.gateway.ledger.accounting import compute_cost, read_billed_tokens
from refold.gateway.ledger.entry import DOLLAR, build_report
from refold.gateway.ledger.writer import open_ledger
from refold.gateway.serve import create_gateway
from refold.testing.scripted_gateway import Serving
from refold.testing.scripted_provider import ScriptedProvider
from refold.tokens.model_table import find_rates
from tests.support.api_gateway import ADMIN, ApiGateway, answer_briefly, build_config, chat_request
from tests.support.examples import examples_at_night
from tests.support.raw_http import eventually

WHOLE = chat_request(30, "claude-opus-5-5")
MESSAGES = WHOLE["messages"]
SUMMARY = {"role": "user", "content": "You have read m0 to m27."}
SENT = {**WHOLE, "messages": [*MESSAGES[:2], SUMMARY, *MESSAGES[-4:]]}
USAGE = {"input_tokens": 1_000, "output_tokens": 50}
CALL = {"conversation_id": "7", "request": SENT, "history": MESSAGES, "usage": USAGE}


@pytest.fixture(scope="module")
def gateway_and_store(tmp_path_factory):
    """Return a gateway whose store is a file, and that file."""
    store = str(tmp_path_factory.mktemp("reported") / "refold.db")
    with ScriptedProvider(answer_briefly) as upstream:
        config = replace(build_config(upstream), store=store)
        with Serving(create_gateway(config)) as served, httpx.Client(base_url=served.url) as client:
            yield ApiGateway(upstream, served, client), store


def read_report(store: str, by: str = "session") -> dict:
    with closing(open_ledger(store)) as ledger:
        return {line.name: line for line in build_report(ledger.entries(), by).lines}


CALLS = st.lists(
    st.tuples(
        st.sampled_from(["", "Bearer sk-1", "Bearer sk-2"]),
        st.sampled_from(["7", "购物-\ud800"]),
        st.booleans(),
        st.sampled_from(["claude-opus-5-5", "nobodys-model"]),
        st.fixed_dictionaries(
            {"input_tokens": st.integers(1, 10**9)},
            optional={
                "cache_read_input_tokens": st.integers(0, 10**9),
                "cache_creation_input_tokens": st.integers(0, 10**9),
                "output_tokens": st.integers(0, 10**9),
            },
        ),
    ),
    min_size=1,
    max_size=6,
)
RUNS = count()


@settings(
    max_examples=examples_at_night(3, 40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(CALLS)
def test_api_page_and_report_show_the_same_sums_for_reported_calls(
    gateway_and_store, calls
) -> None:
    """Law: every call is recorded once, in the session of its caller and conversation, with its
    reported usage. API, page and report show the same sums."""
    at, store = gateway_and_store
    agent, answers = f"é-{next(RUNS)}", []
    for key, conversation, is_compacted, model, usage in calls:
        body = {"request": {**(SENT if is_compacted else WHOLE), "model": model}, "usage": usage}
        body |= {"history": MESSAGES} if is_compacted else {}
        body |= {"headers": {"authorization": key}} if key else {}
        body |= {"conversation_id": conversation, "agent_id": agent}
        answer = at.client.post(  # as JavaScript writes it, lone surrogates escaped
            "/refold/api/report_usage",
            content=json.dumps(body),
            headers=ADMIN | {"content-type": "application/json"},
        )
        answers.append(((key, conversation), answer.json()))
        tokens, rates = read_billed_tokens(usage), find_rates(model)
        cost = sum(compute_cost(tokens, rates)) / DOLLAR if rates else None
        figures = answers[-1][1]
        assert (figures["input"], figures["output"]) == (tokens.input, tokens.output)
        assert figures["spent"] == cost
        assert (figures["sent"] < figures["original"]) == is_compacted
    owners = {figures["session"]: owner for owner, figures in answers}
    assert len(owners) == len({owner for owner, _ in answers}), "tenants and conversations mix"

    def rows() -> list[dict]:
        listed = at.get("overview", limit=100, client=agent).json()
        return listed["sessions"] if listed["totals"]["calls"] == len(calls) else []

    assert eventually(rows)
    report = read_report(store)
    for row in rows():
        mine = [figures for _, figures in answers if figures["session"] == row["id"]]
        sums = report[row["id"]].sums
        assert row["calls"] == sums.calls == len(mine)
        assert sums.input == sum(figures["input"] for figures in mine)
        spent = sum(figures["spent"] or 0 for figures in mine)
        assert sums.cost / DOLLAR == pytest.approx(spent)
        assert sums.unpriced == sum(figures["spent"] is None for figures in mine)
        page = at.get("session", session=row["id"]).json()
        assert sum(call[7] for call in page["calls"]) == pytest.approx(spent)
        assert (page["row"]["original"], page["row"]["sent"]) == (
            mine[-1]["original"],
            mine[-1]["sent"],
        )


def test_savings_of_a_reported_call_are_in_the_ledger_and_the_report(
    gateway_and_store, capsys
) -> None:
    at, store = gateway_and_store
    report = at.post("report_usage", agent_id="saver", **CALL).json()
    assert eventually(lambda: report["session"] in read_report(store))
    sums = read_report(store)[report["session"]].sums
    assert sums.edited == 1 and sums.saved > 0
    assert sums.would_input == pytest.approx(1_000 * report["original"] / report["sent"], abs=2)
    assert main(["report", "--store", store, "--by", "session", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows[report["session"]]["saved"] == pytest.approx(sums.saved / DOLLAR)


def test_a_request_of_any_api_can_be_reported(gateway_and_store) -> None:
    at, _ = gateway_and_store
    question = {"role": "user", "parts": [{"text": "Hello."}]}
    for request, fields in (
        ({"model": "m", "messages": [{"role": "user", "content": "Hello."}]}, {}),
        ({"model": "m", "input": "Hello."}, {}),
        ({"contents": [question]}, {"model": "gemini-3-pro"}),
    ):
        answer = at.post(
            "report_usage", conversation_id="9", request=request, usage=USAGE, **fields
        )
        assert answer.status_code == 200, answer.text
    usage = {"input_tokens": 9, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 90}
    answer = at.post("report_usage", conversation_id="9", request=request, usage=usage, **fields)
    assert answer.json()["input"] == 999, "Anthropic's input leaves out what was cached"


MISTAKES = (
    ({"usage": {}}, 422, "tokens of a request"),
    ({"usage": {"input_tokens": 0}}, 422, "tokens of a request"),
    ({"usage": {"input_tokens": 10**12}}, 422, "1,000,000,000"),
    (
        {"usage": {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 900}}},
        422,
        "only 100",
    ),
    (
        {
            "usage": {
                "input_tokens": 9,
                "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 5},
            }
        },
        422,
        "10 tokens",
    ),
    ({"usage": {"promptTokenCount": 9, "cachedContentTokenCount": 10}}, 422, "part of the latter"),
    ({"usage": 7}, 400, "usage"),
    ({"request": {"messages": MESSAGES}}, 422, "names no model"),
    ({"request": {"model": "m"}}, 422, "no conversation"),
    ({"request": {"model": "m", "messages": []}}, 422, "no message"),
    ({"request": {"model": "m", "input": "x", "previous_response_id": "r"}}, 422, "the rest"),
    ({"history": []}, 422, "no message"),
    ({"history": [*MESSAGES[:1], *MESSAGES[-1:]]}, 422, "cannot be what was sent"),
    ({"conversation_id": ""}, 400, "conversation_id"),
    ({"agent_id": 7}, 400, "agent_id"),
    ({"tokens": 7}, 400, "tokens"),
)


def test_an_invalid_report_is_refused_and_not_booked(gateway_and_store) -> None:
    at, _ = gateway_and_store
    for change, status, word in MISTAKES:
        answer = at.post("report_usage", **{**CALL, "agent_id": "wrong", **change})
        assert answer.status_code == status, change
        assert word in answer.json()["error"]["message"]
    assert at.post("report_usage", agent_id="wrong", **CALL).status_code == 200

    def calls() -> int:
        return at.get("overview", client="wrong").json()["totals"]["calls"]

    assert eventually(calls) and calls() == 1


@pytest.mark.parametrize("headers", [{"x-\ud83d": "a"}, {"x-session-id": "\ud83d"}])
def test_headers_with_half_an_emoji_are_no_failure(gateway_and_store, headers: dict) -> None:
    at, _ = gateway_and_store
    body = json.dumps({**CALL, "headers": headers})
    content_type = {"content-type": "application/json"}
    answer = at.client.post("/refold/api/report_usage", content=body, headers=ADMIN | content_type)
    assert answer.status_code == 200, answer.text
