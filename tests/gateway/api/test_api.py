"""`/refold/api` over HTTP: a real gateway in front of a scripted provider."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from refold import check
from refold.core.strategy import Answer
from refold.errors import StoreError
from refold.gateway.api import OPERATIONS
from refold.gateway.api.app import MAX_CONCURRENT
from refold.gateway.api.context import STORE_FAILED
from refold.gateway.serve import create_gateway
from refold.gateway.settings import Limits
from refold.models import Fallback
from refold.presets.soft_hard_commands import CommandError, CompactorClient, Dispatcher
from refold.testing.scripted_gateway import Serving
from refold.testing.scripted_provider import ScriptedProvider
from refold.tokens.model_table import Rates
from tests.support.api_gateway import (
    ADMIN,
    KEY,
    SECRET,
    TOKEN,
    ApiGateway,
    answer_briefly,
    build_config,
    chat_request,
    serve_api,
)
from tests.support.raw_http import eventually

LONG = chat_request(40)
LONGER = chat_request(80)
"""A request with more files than a summary has room to name."""
MESSAGES = LONG["messages"][1:]


@pytest.fixture(scope="module")
def still():
    """A gateway for tests that change nothing."""
    with serve_api() as here:
        yield here


# --- the four commands ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("estimate_tokens", {"text": "你好, world"}),
        ("estimate_messages_tokens", {"messages": MESSAGES}),
        ("check_threshold", {"messages": MESSAGES}),
        ("check_threshold", {"messages": MESSAGES, "config": {"soft_threshold_tokens": 10}}),
        ("compact", {"messages": MESSAGES, "agent_id": "a", "conversation_id": "1"}),
        ("compact", {"messages": MESSAGES, "agentId": "b", "config": {"keep_recent_messages": 2}}),
    ],
)
def test_the_four_preset_commands_return_what_their_dispatcher_returns(
    still: ApiGateway, name: str, arguments: dict
) -> None:
    """S2-33, S2-34, S2-35, S2-36 over HTTP."""
    answer = still.post(name, **arguments)
    assert answer.status_code == 200
    assert answer.json() == Dispatcher().call(
        {"command": f"compactor_{name}", "arguments": arguments}
    )


def test_the_preset_client_works_over_this_http_api(still: ApiGateway) -> None:
    """S2-37: the async client with its four entries, over this API."""

    def carry(request: dict) -> dict:
        return still.post(
            request["command"].removeprefix("compactor_"), **request["arguments"]
        ).json()

    async def all_four() -> None:
        client = CompactorClient(carry)
        assert await client.estimate_tokens("你好") == 3
        assert await client.estimate_messages_tokens(MESSAGES) > 20_000
        assert (await client.check_threshold(MESSAGES)).urgency == "hard"
        result = await client.compact(MESSAGES, "agent")
        assert result.tokens_after_compaction < result.tokens_before_compaction
        with pytest.raises(CommandError) as caught:
            await client.check_threshold(
                MESSAGES, {"soft_threshold_tokens": 9, "hard_threshold_tokens": 1}
            )
        assert caught.value.code == "bad_arguments"

    asyncio.run(all_four())


# --- history ----------------------------------------------------------------------------------


def test_a_listed_session_has_its_token_edit_and_request_counts(at: ApiGateway) -> None:
    answer = at.say(LONG)
    assert eventually(lambda: at.get("sessions").json()["sessions"][0]["requests"] == 1), (
        "booked in a second"
    )
    listing = at.get("sessions").json()
    assert listing["total"] == 1
    (session,) = listing["sessions"]
    assert (session["api"], session["model"], session["upstream"]) == ("openai_chat", "local", "up")
    assert session["tokens_before"] == int(answer.headers["refold-tokens-before"])
    assert session["tokens_after"] == int(answer.headers["refold-tokens-after"])
    assert session["edits"] == int(answer.headers["refold-edits"]) == 1
    assert (session["requests"], session["messages"]) == (1, 81)
    assert session["remembered"] and session["saved_tokens"] > 0
    at.say(chat_request(41))
    assert eventually(lambda: at.get("sessions").json()["sessions"][0]["requests"] == 2)


def test_two_tenants_are_two_sessions_and_the_latest_comes_first(at: ApiGateway) -> None:
    at.say(LONG)
    at.say(chat_request(2), authorization="Bearer sk-client-2")
    first, second = at.get("sessions").json()["sessions"]
    assert (first["messages"], second["messages"]) == (5, 81)
    assert at.get("sessions", limit=1).json()["sessions"] == [first]
    assert at.get("sessions", limit=1, offset=1).json() == {"sessions": [second], "total": 2}


def test_history_lists_edits_and_attempts_and_quotes_text_only_in_summaries(at: ApiGateway) -> None:
    at.say(LONG)
    answer = at.get("history", session=at.session())
    history = answer.json()
    (edit,) = history["edits"]
    assert edit["by"].startswith("SummarizeTo(") and edit["tokens_after"] < edit["tokens_before"]
    assert "src/m" in edit["text"] and edit["when"] is not None and edit["actor"] == "auto"
    assert {row["outcome"] for row in history["attempts"]} >= {"applied"}
    assert SECRET in edit.pop("text"), "a summary quotes"
    assert SECRET not in json.dumps(history) and "sk-client" not in answer.text
    assert len(at.get("history", session=at.session(), limit=1).json()["attempts"]) == 1


def test_history_of_a_clipped_result_does_not_include_the_kept_text(at: ApiGateway) -> None:
    """A clipped result still shows its beginning and end, so its edit lists only the words that
    Refold inserted."""
    body = chat_request(1, "large")
    body["messages"][-1]["content"] = f"{SECRET}\n" + "line of a log\n" * 20_000
    at.say(body)
    answer = at.get("history", session=at.session())
    (edit,) = answer.json()["edits"]
    assert edit["by"].startswith("ClipResults") and "characters" in edit["text"]
    assert SECRET not in answer.text and "line of a log" not in answer.text


def test_saved_dollars_of_a_session_match_the_ledger() -> None:
    with serve_api(prices=Rates(input=2.0, output=9.0, read=0.2, write=2.5)) as at:
        at.say(LONG)
        assert eventually(
            lambda: at.get("sessions").json()["sessions"][0]["saved_dollars"] is not None
        )
        (session,) = at.get("sessions").json()["sessions"]
        (entry,) = [
            sums
            for key, sums in at.served.gateway.pipeline.ledger_writer.ledger.entries()
            if key.session
        ]
        assert session["saved_dollars"] == pytest.approx(entry.saved / 1e12)
        assert session["saved_dollars"] > 0.01
        assert (
            at.get("history", session=session["id"]).json()["session"]["saved_dollars"]
            == session["saved_dollars"]
        )


def test_only_the_requested_sessions_are_read_from_the_ledger() -> None:
    """Neither the attempts nor the net ledger is read whole for one session or one page."""
    with serve_api(record="1d") as at:
        at.say(LONG)
        at.say(chat_request(2), authorization="Bearer sk-client-2")
        pipeline, asked = at.served.gateway.pipeline, set()
        booked = pipeline.ledger_writer.ledger.sum_sessions

        def note_and_sum(sessions):
            names = list(sessions)
            asked.update(names)
            return booked(names)

        def never(*_):
            raise AssertionError("everything is read")

        pipeline.ledger_writer.ledger.sum_sessions = note_and_sum
        pipeline.ledger_writer.ledger.entries = pipeline.store.ledger = never
        first, second = (session["id"] for session in at.get("sessions").json()["sessions"])
        assert at.get("sessions", limit=1, offset=1).json()["sessions"][0]["id"] == second
        assert at.get("sessions", offset=2).json() == {"sessions": [], "total": 2}
        history = at.get("history", session=second).json()
        assert history["attempts"] and history["session"]["id"] == second
        assert asked == {first, second}


def test_hidden_text_can_be_read_if_transcripts_are_recorded() -> None:
    with serve_api(record="1d") as at:
        at.say(LONGER)
        session = at.session()
        assert eventually(lambda: at.get("history", session=session).json()["edits"][0]["hidden"])
        assert SECRET in at.get("history", session=session).json()["edits"][0]["hidden"]
        hits = at.post("recall", session=session, query="elephants 3").json()["hits"]
        assert SECRET in hits[0]["snippet"]
        preview = at.post("preview", session=session, to=1_000).json()
        assert preview["losses"]["paths"]["names"] and preview["request"] is None


# --- by hand ----------------------------------------------------------------------------------


def bodies() -> dict[str, tuple[str, dict]]:
    """One conversation in four APIs: a task, file reads and interleaved thinking."""
    text = [f"{SECRET} {i} " + "text " * 120 for i in range(12)]
    chats = [{"role": "user", "content": "Find the bug."}]
    claude = list(chats)
    responses = [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Find the bug."}],
        }
    ]
    gemini = [{"role": "user", "parts": [{"text": "Find the bug."}]}]
    for i, output in enumerate(text):
        call = {
            "id": f"c{i}",
            "type": "function",
            "function": {"name": "read", "arguments": f'{{"n": {i}}}'},
        }
        chats += [
            {"role": "assistant", "content": f"Reading {i}.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{i}", "content": output},
        ]
        claude += [
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": f"hm {i}", "signature": f"sig{i}"},
                    {"type": "tool_use", "id": f"c{i}", "name": "read", "input": {"n": i}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": f"c{i}", "content": output}],
            },
        ]
        responses += [
            {
                "type": "function_call",
                "call_id": f"c{i}",
                "name": "read",
                "arguments": f'{{"n": {i}}}',
            },
            {"type": "function_call_output", "call_id": f"c{i}", "output": output},
        ]
        gemini += [
            {"role": "model", "parts": [{"functionCall": {"name": "read", "args": {"n": i}}}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "read", "response": {"output": output}}}],
            },
        ]
    return {
        "openai_chat": ("/v1/chat/completions", {"model": "local", "messages": chats}),
        "anthropic": (
            "/v1/messages",
            {"model": "claude-opus-5-5", "max_tokens": 99, "messages": claude},
        ),
        "openai_responses": ("/v1/responses", {"model": "local", "input": responses}),
        "gemini": ("/v1beta/models/local:generateContent", {"contents": gemini}),
    }


FIELDS = {
    "openai_chat": "messages",
    "anthropic": "messages",
    "openai_responses": "input",
    "gemini": "contents",
}


@pytest.mark.parametrize("api", FIELDS)
def test_a_compaction_is_previewed_accepted_shown_and_taken_back(at: ApiGateway, api: str) -> None:
    """In each API from memory alone: the caller sends no history, and no operation sends it
    back."""
    path, body = bodies()[api]
    at.say(body, path)
    assert json.loads(at.upstream.received[-1].body) == body
    session = at.session()

    answer = at.post("preview", session=session, to=600)
    preview = answer.json()
    assert answer.status_code == 200, preview
    assert preview["tokens_after"] < preview["tokens_before"] and preview["edits"]
    assert preview["request"] is None
    assert SECRET not in json.dumps([{**edit, "text": ""} for edit in preview["edits"]])
    assert [edit["hidden"] for edit in preview["edits"]] == [None] * len(preview["edits"])
    at.say(body, path)
    assert json.loads(at.upstream.received[-1].body) == body, "a preview changes nothing"

    accepted = at.post("accept", preview=preview["preview"], actor="anna").json()
    assert set(accepted["edits"]) >= {edit["id"] for edit in preview["edits"]}
    at.say(body, path)
    sent = json.loads(at.upstream.received[-1].body)
    assert len(sent[FIELDS[api]]) < len(body[FIELDS[api]])
    rows = at.get("history", session=session).json()["attempts"]
    assert [row["actor"] for row in rows if row["action"] == "accept"] == ["anna"] * len(
        accepted["edits"]
    )

    shown = [edit["id"] for edit in at.get("history", session=session).json()["edits"]]
    reverted = at.post("revert", session=session, edits=accepted["edits"]).json()
    staying = {edit["id"] for edit in at.get("history", session=session).json()["edits"]}
    assert set(shown) - staying <= set(reverted["reverted"]), "what takes out thinking stays (AN-7)"
    assert not staying & set(reverted["reverted"])
    assert reverted["tokens_after"] > reverted["tokens_before"]
    assert at.get("history", session=session).json()["edits"] == [] or api == "anthropic"
    at.say(body, path)
    after = json.loads(at.upstream.received[-1].body)
    if api == "anthropic":  # thinking made with the edits is bound to them (AN-7)
        assert len(after["messages"]) == len(body["messages"])
        assert [m for m in after["messages"] if m["role"] == "user"] == [
            m for m in body["messages"] if m["role"] == "user"
        ]
    else:
        assert after == body


def test_a_preview_that_includes_the_request_returns_the_compacted_request(at: ApiGateway) -> None:
    """The client's headers identify the conversation, also before its first request."""
    answer = at.post("preview", request=LONGER, headers=KEY, to=2_000).json()
    assert answer["request"]["model"] == "local" and len(answer["request"]["messages"]) < len(
        LONGER["messages"]
    )
    assert answer["losses"]["paths"]["count"] == len(answer["losses"]["paths"]["names"]) > 0
    assert at.get("sessions").json()["total"] == 0, "nobody has sent it yet"
    at.post("accept", preview=answer["preview"])
    at.say(LONGER)
    assert json.loads(at.upstream.received[-1].body) == answer["request"]
    assert at.session() == answer["session"]


def test_previews_of_a_posted_and_of_a_remembered_request_are_equal(at: ApiGateway) -> None:
    at.say(LONG)
    session = at.session()
    memory, posted = (
        at.post("preview", session=session, to=1_000, **given).json()
        for given in ({}, {"request": LONG})
    )
    # Strategy names contain the kept tokens including unseen ones, so the edit ids depend on them.
    hidden, names = {"hidden": None, "hidden_more": 0}, {"id": "", "by": ""}
    assert [edit | names for edit in memory["edits"]] == [
        edit | hidden | names for edit in posted["edits"]
    ]
    assert all(SECRET in edit["hidden"] for edit in posted["edits"])
    assert (memory["tokens_before"], memory["tokens_after"]) == (
        posted["tokens_before"],
        posted["tokens_after"],
    )


def test_a_preview_reaches_its_own_token_goal_with_a_summary(at: ApiGateway) -> None:
    """The cached summary was made for the gateway's target: it hid only three messages, so all
    results were cleared."""
    at.say(LONG)
    preview = at.post("preview", session=at.session(), to=2_500).json()
    (edit,) = preview["edits"]
    assert edit["by"].startswith("SummarizeTo(") and 2_250 < preview["tokens_after"] <= 2_500


def test_a_summary_can_be_amended(at: ApiGateway) -> None:
    at.say(chat_request(10))
    preview = at.post("preview", session=at.session(), to=500).json()
    ((edit, text),) = preview["summaries"].items()
    wrong = at.post("accept", preview=preview["preview"], amend={"abcd": "x"})
    assert wrong.status_code == 409
    done = at.post(
        "accept", preview=preview["preview"], amend={edit: f"{text}\n\nSmall commits, please."}
    )
    assert done.status_code == 200
    at.say(chat_request(10))
    assert b"Small commits, please." in at.upstream.received[-1].body
    assert at.post("accept", preview=preview["preview"]).status_code == 404, "it is kept once"


def test_the_summary_of_a_range_is_made_and_booked_once(at: ApiGateway) -> None:
    """It used to be summarised five times, until nothing was left to hide."""
    at.say(chat_request(12))
    session = at.session()
    asked = {"session": session, "start": 1, "stop": 21, "strategies": ["summary"]}
    preview = at.post("preview", **asked).json()
    (attempt,), (edit,) = preview["attempts"], preview["edits"]
    hidden = sum(at.get("session", session=session).json()["sizes"][1:21])
    saved = attempt["tokens_before"] - attempt["tokens_after"]
    assert (edit["start"], edit["stop"]) == (1, 21) and saved > hidden * 0.7
    at.post("accept", preview=preview["preview"])
    rows = at.get("history", session=session).json()["attempts"]
    assert [row["edit"] for row in rows if row["action"] == "accept"] == [edit["id"]]
    assert not at.post("preview", **asked).json()["edits"], "there is nothing new in it"


def test_the_summary_of_a_range_has_at_most_about_a_quarter_of_its_tokens(at: ApiGateway) -> None:
    body = chat_request(12)
    for n, message in enumerate(body["messages"]):
        if message["role"] == "tool":
            lines = (f"Berth {n}-{k} of `pier_{n * k}.py` holds {n * k} tons." for k in range(40))
            message["content"] = "\n".join(lines)
    at.say(body)
    preview = at.post(
        "preview", session=at.session(), start=1, stop=21, strategies=["summary"]
    ).json()
    (edit,) = preview["edits"]
    assert 0.1 * edit["tokens_before"] < edit["tokens_after"] < 0.27 * edit["tokens_before"]


def test_concurrent_requests_accept_a_preview_only_once(at: ApiGateway) -> None:
    """Previously four of six requests were told that they had accepted it, and the ledger got four
    rows."""
    at.say(chat_request(10))
    session = at.session()
    name = at.post("preview", session=session, to=500).json()["preview"]
    (conversation,) = at.served.gateway.pipeline.conversations
    with ThreadPoolExecutor(6) as threads, conversation.lock:
        asked = [threads.submit(at.post, "accept", preview=name) for _ in range(6)]
        assert eventually(lambda: sum(call.done() for call in asked) == 5)
    assert sorted(call.result().status_code for call in asked) == [200, 404, 404, 404, 404, 404]
    rows = at.get("history", session=session).json()["attempts"]
    assert len([row for row in rows if row["action"] == "accept"]) == 1


def test_a_preview_can_be_accepted_again_after_a_store_failure(
    at: ApiGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """The reason for the failure is in the log."""
    at.say(chat_request(10))
    name = at.post("preview", session=at.session(), to=500).json()["preview"]
    store = at.served.gateway.pipeline.store
    save = store.save

    def failing(edits) -> None:
        raise StoreError("full")

    store.save = failing
    assert read_refusal(at.post("accept", preview=name)) == (503, "store_failed")
    fields = [
        record.fields for record in caplog.records if getattr(record, "event", "") == "operation"
    ]
    assert [(each["operation"], each["message"]) for each in fields] == [("accept", "full")]
    store.save = save
    assert at.post("accept", preview=name).status_code == 200
    assert read_refusal(at.post("accept", preview=name)) == (404, "no_preview")


@pytest.mark.parametrize(("steps", "fits"), [(10, True), (40, False)])
def test_revert_reports_whether_the_next_request_fits_without_the_edits(
    at: ApiGateway, steps: int, fits: bool
) -> None:
    """A request that does not fit is compacted again, yet its full size used to be announced."""
    at.say(chat_request(steps))
    session = at.session()
    if fits:
        at.post("accept", preview=at.post("preview", session=session, to=500).json()["preview"])
    (edit,) = at.get("history", session=session).json()["edits"]
    done = at.post("revert", session=session, edits=[edit["id"]]).json()
    assert done["fits"] is fits
    answer = at.say(chat_request(steps))
    assert int(answer.headers["refold-edits"]) == (0 if fits else 1)


def test_models_are_asked_for_a_preview_and_not_for_accepting_it() -> None:
    asked = []

    async def ask(question) -> Answer:
        asked.append(question)
        return Answer("## Goal\n- nothing was found")

    with serve_api(ask=ask) as at:
        at.say(chat_request(10))
        preview = at.post("preview", session=at.session(), to=3_000).json()
        assert preview["calls"] == len(asked) >= 1
        before = len(asked)
        at.post("accept", preview=preview["preview"])
        at.say(chat_request(10))
        assert len(asked) == before


def test_a_preview_calls_a_model_whose_circuit_breaker_is_open() -> None:
    ask = Fallback(lambda _: Answer("## Goal\n- nothing was found"))
    for _ in range(3):
        ask.breaker.record_failure("HTTP 401")
    with serve_api(ask=ask) as at:
        at.say(chat_request(10))
        assert at.post("preview", session=at.session(), to=3_000).json()["calls"] >= 1
        assert not ask.breaker.is_open, "it answers again, and requests may ask it"


def test_thinking_received_between_preview_and_accept_loses_its_signature(at: ApiGateway) -> None:
    """AN-7: the thinking was made for the conversation without the edits."""
    path, body = bodies()["anthropic"]
    at.say(body, path)
    preview = at.post("preview", session=at.session(), to=600).json()
    new = {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "aha", "signature": "late"},
            {"type": "text", "text": "Found."},
        ],
    }
    grown = {**body, "messages": [*body["messages"], new, {"role": "user", "content": "Good."}]}
    at.say(grown, path)
    assert b"late" in at.upstream.received[-1].body
    at.post("accept", preview=preview["preview"])
    at.say(grown, path)
    assert (
        b"late" not in at.upstream.received[-1].body and b"Found." in at.upstream.received[-1].body
    )


def test_accepting_a_part_that_clears_middle_thinking_clears_later_thinking_too() -> None:
    """AN-10: only the oldest thinking may be cleared alone. The provider used to refuse the next
    request."""
    messages = [{"role": "user", "content": "Go on."}]
    for n in range(5):
        thought = {"type": "thinking", "thinking": "hm " * 60, "signature": f"sig{n}"}
        answer = [thought, {"type": "text", "text": f"Answer {n}."}]
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And?"}]
    body = {"model": "claude-opus-5-5", "max_tokens": 99, "messages": messages}
    with serve_api(record="1d") as at:
        at.say(body, "/v1/messages")
        before, session = at.upstream.received[-1].json, at.session()
        preview = at.post("preview", session=session, to=1, strategies=["thinking"]).json()
        part = {"preview": preview["preview"], "edits": [preview["edits"][-1]["id"]]}
        foretold = at.post("preview_parts", session=session, **part).json()["tokens_after"]
        assert at.post("accept", **part).json()["tokens_after"] == foretold
        at.say(body, "/v1/messages")
    sent = at.upstream.received[-1]
    assert b"sig1" in sent.body and b"sig2" not in sent.body and b"sig4" not in sent.body
    assert check(sent.json, before=before) == ()


def test_an_answer_in_flight_while_edits_change_by_hand_loses_its_signature(at: ApiGateway) -> None:
    """AN-7: the answer was on its way when edits were accepted or undone. Previously only the
    provider's refusal removed its signature."""
    path, body = bodies()["anthropic"]
    messages = list(body["messages"])

    def answer(signature: str) -> bytes:
        thought = {"type": "thinking", "thinking": "aha", "signature": signature}
        words = {"type": "text", "text": f"Found {signature}."}
        messages.append({"role": "assistant", "content": [thought, words]})
        messages.append({"role": "user", "content": "Good."})
        at.say({**body, "messages": messages}, path)
        return at.upstream.received[-1].body

    at.say(body, path)
    preview = at.post("preview", session=at.session(), to=600).json()["preview"]
    done = at.post("accept", preview=preview).json()
    at.post("preview", session=at.session(), to=600)  # as the page asks meanwhile
    assert b'"crossing 1"' not in answer("crossing 1")
    assert b'"aware 1"' in answer("aware 1"), "thought over what is sent now"
    at.post("revert", session=at.session(), edits=done["edits"])
    sent = answer("crossing 2")
    assert b'"crossing 2"' not in sent and b"Found crossing 2." in sent
    assert b'"aware 2"' in answer("aware 2")


def test_a_process_can_revert_edits_it_accepted_on_another_process_s_history(
    tmp_path: Path,
) -> None:
    """The process's own latest request used to replace the session's, so the edit belonged to a
    history that no operation looked at."""
    with ScriptedProvider(answer_briefly) as upstream:
        config = replace(build_config(upstream, "1d"), store=str(tmp_path / "refold.db"))
        with (
            Serving(create_gateway(config)) as first,
            Serving(create_gateway(config)) as second,
            httpx.Client(base_url=first.url, timeout=60) as here,
            httpx.Client(base_url=second.url, timeout=60) as there,
        ):
            at, elsewhere = ApiGateway(upstream, first, here), ApiGateway(upstream, second, there)
            at.say(chat_request(8), **{"x-session-id": "s"})
            session = at.session()
            elsewhere.say(chat_request(9), **{"x-session-id": "s"})
            assert elsewhere.session() == session
            arguments = {"session": session, "to": 500}
            assert eventually(lambda: at.post("preview", **arguments).status_code == 200), (
                "recorded"
            )
            preview = at.post("preview", **arguments).json()["preview"]
            edits = at.post("accept", preview=preview).json()["edits"]
            assert at.get("sessions").json()["sessions"][0]["messages"] == 19
            undone = at.post("revert", session=session, edits=edits)
            assert undone.status_code == 200 and undone.json()["reverted"] == edits


def test_reverted_edits_are_not_made_again_for_the_same_history(at: ApiGateway) -> None:
    """This includes edits of single results: a client that rewrites its beginning gets the original
    text."""
    body = chat_request(12, "large")
    body["messages"][3]["content"] = "x" * 60_000
    at.say(body)
    (edit,) = at.get("history", session=at.session()).json()["edits"]
    assert edit["by"].startswith("ClipResults")
    assert at.post("revert", session=at.session(), edits=[edit["id"][:8]]).status_code == 200
    at.say(body)
    assert at.upstream.received[-1].body.count(b"x" * 60_000) == 1
    body["messages"][1]["content"] = "Find another bug."
    at.say(body)
    assert (
        at.get("history", session=at.session()).json()["edits"][0]["by"].startswith("ClipResults")
    ), "another history is another: local strategies act on it as on any"


def test_recall_finds_hidden_text_only_for_a_caller_that_sends_the_history(at: ApiGateway) -> None:
    at.say(LONG)
    recalled = at.post("recall", request=LONG, headers=KEY, query=f"{SECRET} 3").json()
    assert recalled["session"] == at.session()
    assert recalled["hits"][0]["role"] == "tool" and SECRET in recalled["hits"][0]["snippet"]
    assert (
        len(at.post("recall", request=LONG, headers=KEY, query="text", limit=2).json()["hits"]) == 2
    )
    unrecorded = at.post("recall", session=at.session(), query="text")
    assert read_refusal(unrecorded) == (409, "history_needed")
    of_another = at.post(
        "recall", request=LONG, headers={"authorization": "Bearer sk-other"}, query=SECRET
    ).json()
    assert of_another["hits"] == [] and of_another["session"] != recalled["session"], (
        "another caller's edits are not this one's"
    )


PIXELS = "iVBORw0KGgo="
IMAGES = {
    "openai_chat": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXELS}"}},
    "anthropic": {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": PIXELS},
    },
    "openai_responses": {
        "type": "input_image",
        "image_url": f"data:image/png;base64,{PIXELS}",
    },
    "gemini": {"inlineData": {"mimeType": "image/png", "data": PIXELS}},
}


@pytest.mark.parametrize("api", FIELDS)
def test_a_session_with_images_can_be_compacted_restored_and_reverted(api: str) -> None:
    """The bytes of images are not kept. Operations used to ask for the request, which the web page
    does not have."""
    path, body = bodies()[api]
    parts = "parts" if api == "gemini" else "content"
    for at_end in (False, True):
        entry = {"role": "user", parts: [IMAGES[api]]}
        body[FIELDS[api]].insert(len(body[FIELDS[api]]) if at_end else 0, entry)
    with serve_api(record="1d") as at:
        at.say(body, path)
        session = at.session()
        preview = at.post("preview", session=session, to=600).json()
        accepted = at.post("accept", preview=preview["preview"]).json()
        at.say(body, path)
        sent = at.upstream.received[-1].body
        assert len(json.loads(sent)[FIELDS[api]]) < len(body[FIELDS[api]])
        assert sent.count(PIXELS.encode()) == 2, "what a user shows stays, hidden or not"
        assert at.post("restore", session=session, message=1).status_code == 200
        assert at.post("revert", session=session, edits=accepted["edits"]).status_code == 200
        at.say(body, path)
        assert at.upstream.received[-1].body.count(PIXELS.encode()) == 2


# --- authorization and refusals ----------------------------------------------------------------


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {TOKEN}"}]
)
def test_nothing_is_answered_without_the_token(still: ApiGateway, operation, headers: dict) -> None:
    still.say(LONG)
    answer = still.client.request(
        operation.method, operation.path, headers=headers, json=dict(operation.example)
    )
    assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
    assert set(answer.json()["error"]) >= {"code", "message"}


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_authorization_scheme_is_case_insensitive(still: ApiGateway, scheme: str) -> None:
    """RFC 9110, section 11.1."""
    answer = still.client.get(
        "/refold/api/sessions", headers={"authorization": f"{scheme} {TOKEN}"}
    )
    assert answer.status_code == 200
    for wrong in (
        f"{scheme}{TOKEN}",
        f"{scheme} {TOKEN}x",
        f"{scheme} {TOKEN.upper()}",
        scheme,
        f"x{scheme} {TOKEN}",
    ):
        assert (
            still.client.get("/refold/api/sessions", headers={"authorization": wrong}).status_code
            == 401
        )


def read_refusal(answer: httpx.Response) -> tuple[int, str]:
    assert (
        answer.headers["content-type"] == "application/json"
        and answer.headers["cache-control"] == "no-store"
    )
    assert "Traceback" not in answer.text
    return answer.status_code, answer.json()["error"]["code"]


def raw(
    at: ApiGateway,
    body: bytes,
    kind: str = "application/json",
    name: str = "estimate_tokens",
    **extra: str,
) -> httpx.Response:
    headers = {**ADMIN, "content-type": kind, **extra}
    return at.client.post(f"/refold/api/{name}", content=body, headers=headers)


BAD = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"1",
    b'"x"',
    b"\xff",
    b'{"text": NaN}',
    b'{"text": 1}',
    b'{"text": "", "x": 1}',
    b"{}",
]


@pytest.mark.parametrize(
    "body", [*BAD, b"[" * 100_000, b'{"text":' * 50_000, b'{"text": ' + b"9" * 5_000 + b"}"]
)
def test_a_body_that_violates_the_openapi_document_is_answered_with_400(
    still: ApiGateway, body: bytes
) -> None:
    assert read_refusal(raw(still, body)) == (400, "bad_request")


def test_other_invalid_requests_are_answered_with_their_status_and_error_code(
    still: ApiGateway,
) -> None:
    still.say(LONG)
    session, unknown = still.session(), "0" * 32
    assert read_refusal(raw(still, b"{}", "text/plain")) == (415, "unsupported")
    assert read_refusal(raw(still, b"{}", **{"content-encoding": "gzip"})) == (415, "unsupported")
    assert read_refusal(still.get("nothing")) == (404, "no_operation")
    assert read_refusal(still.get("history", session=unknown)) == (404, "no_session")
    assert read_refusal(still.post("revert", session=unknown, edits=["abcd"])) == (
        404,
        "no_session",
    )
    assert read_refusal(still.post("revert", session=session, edits=["abcd"])) == (404, "no_edit")
    assert read_refusal(still.post("accept", preview=unknown)) == (409, "preview_elsewhere")
    process = still.served.gateway._api._context.process
    assert read_refusal(still.post("accept", preview=f"{process}{unknown}"[:32])) == (
        404,
        "no_preview",
    )
    assert read_refusal(still.get("history")) == (400, "bad_request")
    assert read_refusal(still.get("sessions", limit="x")) == (400, "bad_request")
    assert read_refusal(still.get("sessions", other="x")) == (400, "bad_request")
    for name in ("query", "client", "project", "model"):  # PostgreSQL takes no NUL
        assert read_refusal(still.get("overview", **{name: "a\0b"})) == (400, "bad_request")
    for blank in (" ", "\n"):  # a blank query found every line, blank words pinned the message
        for query in ("", blank):
            for ask, name in ((still.get, "search"), (still.post, "recall")):
                refused = ask(name, session=session, query=query)
                assert read_refusal(refused) == (400, "bad_request")
        refused = still.post("pin", session=session, message=0, words=blank)
        assert read_refusal(refused) == (400, "bad_request")
    assert read_refusal(still.get("sessions", limit=["1", "2"])) == (400, "bad_request")
    assert read_refusal(still.post("preview", to=5)) == (400, "bad_request")
    assert read_refusal(still.post("preview", request={})) == (422, "unreadable")
    assert read_refusal(still.post("preview", request={"messages": []})) == (422, "empty")
    assert read_refusal(still.post("preview", request={"messages": ["x", 5]})) == (
        422,
        "unreadable",
    )
    assert read_refusal(
        still.post("preview", request={"input": "x", "previous_response_id": "r"})
    ) == (
        422,
        "delta",
    )
    assert read_refusal(still.post("preview", request={"contents": [{}]}, session=session)) == (
        422,
        "unreadable",
    )
    assert read_refusal(still.post("check_threshold", messages=[5])) == (400, "bad_request")
    contradiction = {"soft_threshold_tokens": 9, "hard_threshold_tokens": 1}
    assert read_refusal(still.post("check_threshold", messages=[], config=contradiction)) == (
        422,
        "bad_arguments",
    )
    wrong = still.post("sessions")
    assert read_refusal(wrong) == (405, "method") and wrong.headers["allow"] == "GET"


def test_requests_beyond_the_concurrency_limit_get_503_with_retry_after(at: ApiGateway) -> None:
    api = at.served.gateway._api
    scope = {"path": "/refold/api/sessions", "method": "GET", "query_string": b"", "headers": []}
    answers = []

    async def receive() -> dict:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict) -> None:
        if message["type"] == "http.response.start":
            answers.append((message["status"], dict(message["headers"]).get(b"retry-after")))

    async def ask_at_once() -> None:
        await asyncio.gather(*(api(scope, receive, send) for _ in range(MAX_CONCURRENT + 3)))

    asyncio.run(ask_at_once())
    assert sorted(status for status, _ in answers) == [200] * MAX_CONCURRENT + [503] * 3
    assert {again for status, again in answers if status == 503} == {b"1"}
    assert api._under_way == 0


def test_a_body_beyond_the_size_limit_is_answered_with_413() -> None:
    with serve_api() as at:
        api = at.served.gateway._api
        api._limits = Limits(body_bytes=1_000)
        assert read_refusal(at.post("estimate_tokens", text="x" * 2_000)) == (413, "http_413")


def test_a_busy_conversation_is_answered_with_409() -> None:
    with serve_api() as at:
        at.say(LONG)
        pipeline = at.served.gateway.pipeline
        (conversation,) = pipeline.conversations
        pipeline.settings = replace(pipeline.settings, decide_timeout_seconds=0.1)
        with conversation.lock:
            assert read_refusal(at.post("preview", session=conversation.name)) == (409, "busy")


@pytest.mark.parametrize("name", ["history", "preview", "accept", "revert", "recall", "compact"])
def test_a_failing_store_is_answered_with_503_without_details(
    at: ApiGateway, name: str, caplog
) -> None:
    """This holds for every operation. The error of `compact` used to contain the store's
    address."""
    at.say(LONG)
    session = at.session()
    preview = at.post("preview", session=session, to=1_000).json()
    (edit,) = at.get("history", session=session).json()["edits"]
    arguments = {
        "history": {"session": session},
        "preview": {"request": chat_request(20), "headers": KEY},
        "accept": {"preview": preview["preview"]},
        "revert": {"request": chat_request(20), "headers": KEY, "edits": [edit["id"]]},
        "recall": {"request": chat_request(20), "headers": KEY, "query": "text"},
        "compact": {"messages": MESSAGES, "agent_id": "a", "conversation_id": "1"},
    }
    at.served.gateway.pipeline.store.close()
    answer = (at.get if name == "history" else at.post)(name, **arguments[name])
    assert read_refusal(answer) == (503, "store_failed") and answer.headers["retry-after"] == "1"
    assert answer.json()["error"]["message"] == STORE_FAILED


def test_an_unforeseen_error_is_reported_without_its_text(at: ApiGateway, caplog) -> None:
    def broken(tips):
        raise RuntimeError(SECRET)

    at.say(LONG)
    at.served.gateway.pipeline.store.ledger_of = broken
    answer = at.get("history", session=at.session())
    assert read_refusal(answer) == (500, "fault") and SECRET not in answer.text
    (line,) = [record for record in caplog.records if getattr(record, "event", "") == "operation"]
    assert line.fields["fault"].startswith("RuntimeError at ") and SECRET not in str(line.fields)
