"""`refold report` on a store that a gateway is writing to: its sums equal the usage that the
upstream reported."""

import json
import os
import re
import subprocess
import sys
from collections import Counter

import httpx
import pytest
from click.testing import CliRunner

from refold.cli.commands import refold
from refold.errors import StoreError
from refold.gateway import Config, Settings, Upstream, create_gateway
from refold.gateway.ledger.entry import EntryKey, Sums
from refold.gateway.ledger.writer import open_ledger
from refold.stores import SQLiteStore
from refold.testing.scripted_gateway import Serving
from refold.testing.scripted_provider import Received, Reply, ScriptedProvider
from refold.tokens.model_table import Window
from tests.support.agent_requests import read_files
from tests.support.raw_http import eventually

WORD = "geheimnis"
KEY = "sk-do-not-keep-me"
BODIES = {
    "/v1/chat/completions": {"model": "claude-opus-5-5"},
    "/v1/messages": {"model": "claude-opus-5-5", "max_tokens": 100},
}


def provider(asked: Received) -> Reply:
    if len(asked.body) > 40_000 and b"forget" in asked.body:
        return Reply(
            "prompt is too long: 20000 tokens > 9000 maximum",
            status=400,
            code="context_length_exceeded",
        )
    size = len(asked.body) // 4
    return Reply("Go on.", usage=(size, 7, size // 2))


def body(path: str, steps: int, **fields) -> dict:
    messages = [{"role": "user", "content": f"Find the {WORD}."}]
    if path.endswith("messages"):
        for n in range(steps):
            call = {"type": "tool_use", "id": f"c{n}", "name": "read", "input": {}}
            text = f"file {n}: {WORD} " + "text " * 500
            result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": text}
            messages += [
                {"role": "assistant", "content": [call]},
                {"role": "user", "content": [result]},
            ]
    else:
        messages += read_files(steps, f"{WORD} ")
    return {**BODIES[path], "messages": messages, **fields}


@pytest.fixture
def place(tmp_path):
    settings = Settings(windows={"claude-opus-5-5": Window(15_000)}, decide_timeout_seconds=30)
    with ScriptedProvider(provider) as upstream:
        store = str(tmp_path / "refold.db")
        config = Config(
            upstreams=(Upstream(name="up", url=upstream.url),),
            settings=settings,
            salt=b"s",
            store=store,
            record="7d",
        )
        with Serving(create_gateway(config)) as serving:
            yield serving, store, tmp_path


def report(store: str, *options: str) -> dict:
    done = CliRunner().invoke(refold, ["report", "--store", store, "--json", *options])
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def sums(store: str) -> dict:
    """Return the sums over all calls. The first call creates the ledger, so before it they are
    empty."""
    done = CliRunner().invoke(refold, ["report", "--store", store, "--json"])
    if isinstance(done.exception, StoreError):
        return Counter(unreported=Counter())
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)["total"]


def ask(client: httpx.Client, path: str, request: dict) -> None:
    answer = client.post(path, json=request, headers={"authorization": f"Bearer {KEY}"})
    assert answer.status_code == 200, answer.text


def test_the_sums_of_a_report_are_what_the_upstream_reported(place) -> None:
    serving, store, _ = place
    calls = 0
    with httpx.Client(base_url=serving.url, timeout=60) as client:
        for path in BODIES:
            for steps in range(2, 40, 4):
                ask(client, path, body(path, steps))
                calls += 1
        ask(client, "/v1/messages", body("/v1/messages", 3, stream=True))
        ask(
            client, "/v1/chat/completions", body("/v1/chat/completions", 3, stream=True)
        )  # reports no usage
        assert eventually(lambda: sums(store)["unreported"]["calls"] == 1)
        figures = report(store, "--by", "session", "--since", "1h")
        metrics = client.get("/metrics").text
    total = figures["total"]
    reported = {
        kind: sum(
            float(value)
            for value in re.findall(
                rf'refold_http_tokens_total{{.*kind="{kind}".*}} (\S+)', metrics
            )
        )
        for kind in ("input", "output", "cached", "written")
    }
    assert total["calls"] == calls + 1 and total["unreported"]["calls"] == 1
    assert (total["input"], total["output"], total["read"], total["written"]) == tuple(
        reported[kind] for kind in ("input", "output", "cached", "written")
    )
    assert total["would_input"] > total["input"] and total["avoided"] > 0
    assert total["cost"] == pytest.approx(
        sum(total[f"cost_{kind}"] for kind in ("fresh", "read", "written", "output"))
    )
    for name in ("calls", "input", "would_input", "avoided"):
        assert sum(row[name] for row in figures["rows"]) == total[name]
    assert total["saved"] == pytest.approx(total["would_cost"] - total["cost"])


def test_a_context_error_that_was_retried_is_counted_in_one_metric_series(place) -> None:
    serving, store, _ = place
    path = "/v1/messages"
    with httpx.Client(base_url=serving.url, timeout=60) as client:
        long = body(path, 24)
        long["messages"][0]["content"] += " Do not forget it."
        long["model"] = "claude-unknown"
        ask(client, path, long)
        assert eventually(lambda: sums(store)["avoided"] == 1)
        metrics = client.get("/metrics").text
    lines = [
        line
        for line in metrics.splitlines()
        if "context_errors" in line and not line.startswith("#") and not line.endswith(" 0")
    ]
    assert lines == [
        'refold_context_errors_total{api="anthropic",result="retried",upstream="up"} 1'
    ]


def test_without_an_option_the_store_of_the_environment_is_reported(place) -> None:
    """Like `serve`, `report` reads REFOLD_STORE."""
    serving, store, directory = place
    with httpx.Client(base_url=serving.url, timeout=60) as client:
        ask(client, "/v1/messages", body("/v1/messages", 2))
        assert eventually(lambda: sums(store)["calls"] == 1)
    command = [sys.executable, "-m", "refold", "report", "--json"]
    elsewhere = directory / "elsewhere"
    elsewhere.mkdir()
    for extra, calls in (({"REFOLD_STORE": store}, 1), ({}, 0)):
        environment = (
            {name: value for name, value in os.environ.items() if name != "REFOLD_STORE"}
            | {"XDG_DATA_HOME": str(elsewhere)}
            | extra
        )
        done = subprocess.run(
            command, cwd=elsewhere, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["total"]["calls"] == calls


def test_transcripts_are_stored_by_tenant_without_the_key(place) -> None:
    serving, _, directory = place
    with httpx.Client(base_url=serving.url, timeout=60) as client:
        ask(client, "/v1/messages", body("/v1/messages", 4))
    pipeline = serving.gateway.pipeline
    (conversation,) = list(pipeline.conversations)
    transcripts = pipeline.ledger_writer.transcripts
    assert eventually(lambda: transcripts.load(conversation.tenant, conversation.name))
    transcript = transcripts.load(conversation.tenant, conversation.name)
    assert len(transcript.messages) == 9 and WORD in transcript.messages[0].text
    assert transcript.info.until - transcript.info.latest == 7 * 86_400
    raw = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert {name for name, data in raw.items() if WORD.encode() in data} <= {
        "refold.db.transcripts",
        "refold.db.transcripts-wal",
    }
    assert not any(KEY.encode() in data for data in raw.values())


def test_the_next_process_continues_the_ledger(tmp_path) -> None:
    with ScriptedProvider([Reply("x", usage=(1_000, 7, 100))]) as upstream:
        store = str(tmp_path / "refold.db")
        config = Config(upstreams=(Upstream(name="up", url=upstream.url),), salt=b"s", store=store)
        for _ in range(2):
            with (
                Serving(create_gateway(config)) as serving,
                httpx.Client(base_url=serving.url, timeout=60) as client,
            ):
                ask(client, "/v1/messages", body("/v1/messages", 1))
        figures = report(store)
    assert figures["total"]["calls"] == 2 and figures["total"]["input"] == 2_000
    assert not (tmp_path / "refold.db.transcripts").exists()


def test_the_text_report_says_which_calls_are_not_in_its_figures(place) -> None:
    serving, store, _ = place
    with httpx.Client(base_url=serving.url, timeout=60) as client:
        request = body("/v1/chat/completions", 2)
        ask(client, "/v1/chat/completions", request | {"stream": True})
        ask(client, "/v1/chat/completions", request | {"model": "nobody-knows-me"})
        assert eventually(lambda: sums(store)["calls"] == 1)
    done = subprocess.run(
        [sys.executable, "-m", "refold", "report", "--store", store],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "1 call without usage from the upstream" in done.stdout
    assert "1 call of models without a known price: tokens are counted" in done.stdout
    assert "nobody-knows-me" in done.stdout and "estimated, not measured" in done.stdout


def test_the_text_report_shows_refetched_results_and_their_cost(tmp_path) -> None:
    store = str(tmp_path / "refold.db")
    ledger = open_ledger(store)
    sums = Sums(calls=9, refetches=2, refetched=1_234, refetch_cost=10**10, would_cost=10**12)
    ledger.add({EntryKey(0, "t", "s", "claude-opus-5-5", "reported"): sums})
    ledger.close()
    done = CliRunner().invoke(refold, ["report", "--store", store])
    assert "2 hidden results of 1.2k tokens fetched again" in done.output
    assert "reduced by $0.0100" in done.output


def test_b16_a_report_without_prices_shows_tokens_and_no_dollars(tmp_path) -> None:
    """It used to print `?` and "$0.0000 of what was saved is of these"."""
    store = str(tmp_path / "refold.db")
    ledger = open_ledger(store)
    own = Sums(calls=9, unpriced=9, fresh=1_000, would_fresh=51_000, avoided=3, refetches=1)
    ledger.add({EntryKey(0, "t", "s", "house-model-1", "reported"): own})
    ledger.close()
    out = CliRunner().invoke(refold, ["report", "--store", store]).output
    assert "50.0k tokens  house-model-1" in out and "$" not in out
    assert "3 calls would not have fitted the model's window\n" in out


def test_b16_a_report_on_a_library_store_names_the_command_to_use(tmp_path) -> None:
    store = tmp_path / "refold.db"
    SQLiteStore(store).close()
    done = CliRunner().invoke(refold, ["report", "--store", str(store)])
    assert "no net ledger" in str(done.exception)
    assert f"refold history FILE --store {store}" in str(done.exception)


def test_a_report_before_any_gateway_has_run_says_so(tmp_path, monkeypatch) -> None:
    """It used to be an error for users who had only run `refold run --print`. A store named
    explicitly may be misspelt, and stays an error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "REFOLD_STORE"):
        monkeypatch.delenv(name, raising=False)
    done = CliRunner().invoke(refold, ["report"])
    assert done.exit_code == 0
    assert done.output.splitlines()[0].startswith("no calls recorded: no gateway has written to ")
    total = json.loads(CliRunner().invoke(refold, ["report", "--json"]).output)["total"]
    assert (total["calls"], total["saved"]) == (0, 0)
    named = CliRunner().invoke(refold, ["report", "--store", "refold.db"])
    by_variable = CliRunner().invoke(refold, ["report"], env={"REFOLD_STORE": "refold.db"})
    assert isinstance(named.exception, StoreError) and isinstance(by_variable.exception, StoreError)
    assert list(tmp_path.iterdir()) == []
