"""Pinned content survives every compaction, and what was sent with each call can be read
afterwards."""

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx

from refold.gateway.api.page_types import SearchArguments
from refold.gateway.api.session_view import MOST_HITS, search
from refold.gateway.serve import create_gateway
from refold.messages import user
from refold.testing.scripted_gateway import Serving
from refold.testing.scripted_provider import ScriptedProvider
from tests.support.api_gateway import (
    SECRET,
    ApiGateway,
    answer_briefly,
    build_config,
    chat_request,
    serve_api,
)
from tests.support.raw_http import eventually

RULE = "The tax is 19 percent in src/rates.py."
AGENT = {"x-session-id": "pinned"}


def request_with_rule(steps: int) -> dict:
    """Return a request whose fourth result, message 8, states the rule. The system prompt is not
    counted as a message."""
    body = chat_request(steps)
    body["messages"][9]["content"] += f" {RULE}"
    return body


def read_last_texts(at: ApiGateway) -> str:
    """Return the text of everything in the provider's last request."""
    return json.dumps(json.loads(at.upstream.received[-1].body)["messages"], ensure_ascii=False)


def is_kept(at: ApiGateway, session: str, length: int) -> bool:
    return len(at.get("session", session=session).json()["sizes"]) == length


def test_pins_outlast_compactions_and_a_restart_and_can_be_taken_back(tmp_path: Path) -> None:
    """Covers pins of a sentence and of a message, with compactions by hand and by the gateway."""
    with ScriptedProvider(answer_briefly) as upstream, ExitStack() as stack:
        config = replace(build_config(upstream, record="7d"), store=str(tmp_path / "refold.db"))

        def start() -> ApiGateway:
            served = stack.enter_context(Serving(create_gateway(config)))
            client = stack.enter_context(httpx.Client(base_url=served.url, timeout=60))
            return ApiGateway(upstream, served, client)

        at = start()
        at.say(request_with_rule(8), **AGENT)
        session = at.session()
        assert eventually(lambda: is_kept(at, session, 17))
        wrong = at.post("pin", session=session, message=8, words="It is 7 percent.")
        assert wrong.status_code == 409 and wrong.json()["error"]["code"] == "not_there"
        assert at.post("pin", session=session, message=99).status_code == 404
        at.post("pin", session=session, message=8, words=RULE)
        pins = at.post("pin", session=session, message=4).json()["pins"]
        assert [(pin["message"], pin["words"], pin["is_whole"]) for pin in pins] == [
            (8, RULE, False),
            (4, "", True),
        ]
        ranged = at.post(
            "preview", session=session, start=1, stop=13, strategies=["summary"]
        ).json()
        at.post("accept", preview=ranged["preview"])
        at.say(request_with_rule(8), **AGENT)
        sent = read_last_texts(at)
        assert RULE in sent and f"{SECRET} 1 " in sent and f"{SECRET} 2 " not in sent
        at.post("revert", session=session, edits=[edit["id"] for edit in ranged["edits"]])
        preview = at.post("preview", session=session, to=800).json()
        assert any(edit["by"].startswith("Summar") for edit in preview["edits"])
        at.post("accept", preview=preview["preview"])
        at.say(request_with_rule(8), **AGENT)
        sent = read_last_texts(at)
        assert RULE in sent and f"{SECRET} 1 " in sent and f"{SECRET} 4 " not in sent

        at.served.__exit__(None, None, None)
        at = start()
        at.say(request_with_rule(60), **AGENT)  # over the window, so the gateway compacts
        sent = read_last_texts(at)
        assert RULE in sent and f"{SECRET} 1 " in sent and f"{SECRET} 6 " not in sent
        assert at.get("session", session=session).json()["pins"] == pins

        for pin in pins:
            remaining = at.post("unpin", session=session, pin=pin["id"]).json()["pins"]
        assert remaining == [] and at.post("unpin", session=session, pin="abcd").status_code == 404
        edits = [edit["id"] for edit in at.get("session", session=session).json()["edits"]]
        at.post("revert", session=session, edits=edits)
        at.say(request_with_rule(60), **AGENT)
        assert f"{SECRET} 1 " not in read_last_texts(at)


def test_pins_move_with_their_messages_when_the_client_rewrites_earlier_ones() -> None:
    """Pins used to name the message at the old position, and a new pin of it replaced the first."""
    with serve_api(record="7d") as at:
        at.say(request_with_rule(8), **AGENT)
        session = at.session()
        assert eventually(lambda: is_kept(at, session, 17))
        for pin in ({"message": 8}, {"message": 8, "words": RULE}, {"message": 4}):
            at.post("pin", session=session, **pin)
        body = request_with_rule(9)
        body["messages"][2:8] = [{"role": "assistant", "content": "Three files were read."}]
        at.say(body, **AGENT)
        assert eventually(lambda: is_kept(at, session, 14))

        def places() -> list:
            pins = at.get("session", session=session).json()["pins"]
            return [(pin["message"], pin["is_whole"]) for pin in pins]

        assert places() == [(3, True), (3, False), (None, True)]
        at.post("pin", session=session, message=8)
        assert places() == [(3, True), (3, False), (None, True), (8, True)]


def test_a_message_is_restored_once() -> None:
    """Its text stood there twice after two people had restored it."""
    with serve_api(record="7d") as at:
        at.say(chat_request(60), **AGENT)
        session = at.session()
        assert eventually(lambda: is_kept(at, session, 121))
        (edit,) = at.get("session", session=session).json()["edits"]
        assert at.post("restore", session=session, message=5).status_code == 200
        again = at.post("restore", session=session, message=5)
        assert again.status_code == 409 and again.json()["error"]["code"] == "not_hidden"
        at.say(chat_request(60), **AGENT)
        assert read_last_texts(at).count("Message 5, word for word:") == 1
        assert edit["stop"] > 5


def test_the_actor_who_restores_a_message_is_recorded() -> None:
    """For an edit of that message alone the actor used to be `api`, whoever restored it."""
    with serve_api(record="7d") as at:
        at.say(chat_request(20, "large"), **AGENT)
        session = at.session()
        assert eventually(lambda: is_kept(at, session, 41))
        preview = at.post("preview", session=session, to=2_000, strategies=["results"]).json()
        at.post("accept", preview=preview["preview"])
        (edit, *_) = preview["edits"]
        done = at.post("restore", session=session, message=edit["start"], actor="anna").json()
        assert done["reverted"] == [edit["id"]]
        latest = at.get("history", session=session).json()["attempts"][-1]
        assert (latest["action"], latest["actor"]) == ("revert", "anna")


def test_a_preview_of_a_history_that_was_rewritten_since_is_not_accepted() -> None:
    """Such previews were accepted, but no call sent the previewed request, and an edit was listed
    once for each round."""
    with serve_api(record="7d") as at:
        body = chat_request(9, "large")
        at.say(body, **AGENT)
        session = at.session()
        previews = [at.post("preview", session=session, start=0, stop=16).json() for _ in "12"]
        body["messages"][3]["content"] += " Changed."
        at.say(body, **AGENT)
        refused = at.post("accept", preview=previews[0]["preview"])
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "rewritten")
        at.say(chat_request(11, "large"), **AGENT)
        done = at.post("accept", preview=previews[1]["preview"]).json()
        assert done["edits"] == [edit["id"] for edit in previews[1]["edits"]]
        at.say(chat_request(11, "large"), **AGENT)
        assert f"{SECRET} 3 text text" not in read_last_texts(at)


def record_three_calls(at: ApiGateway) -> str:
    """Send a session's three calls, wait until they are recorded, and return its id."""
    for steps in (3, 40, 41):
        at.say(chat_request(steps), **AGENT)
    session = at.session()
    assert eventually(lambda: is_kept(at, session, 83))
    return session


def test_the_messages_sent_in_a_past_call_stay_readable_after_compactions() -> None:
    with ScriptedProvider(answer_briefly) as upstream, ExitStack() as stack:
        served = stack.enter_context(Serving(create_gateway(build_config(upstream, record="7d"))))
        client = stack.enter_context(httpx.Client(base_url=served.url, timeout=60))
        at = ApiGateway(upstream, served, client)
        session = record_three_calls(at)
        now = at.get("session", session=session).json()
        (first, second) = (at.get("session", session=session, call=call).json() for call in (1, 2))
        assert first["edits"] == [] and len(first["sizes"]) == 7
        assert first["sent"] == first["original"] == now["calls"][0][2]
        edit = second["edits"][-1]
        assert second["sent"] == now["calls"][1][2] < second["original"] == now["calls"][1][1]
        at.post("revert", session=session, edits=[edit["id"] for edit in now["edits"]])
        again = at.get("session", session=session, call=2).json()
        assert [edit["id"] for edit in again["edits"]] == [edit["id"] for edit in second["edits"]]
        text = at.get("edit_text", session=session, edit=edit["id"], call=2).json()["text"]
        assert text in json.loads(upstream.received[1].body)["messages"][0]["content"] or (
            text[:200] in upstream.received[1].body.decode().replace("\\n", "\n")
        )
        assert at.get("edit_text", session=session, edit=edit["id"]).status_code == 404
        assert at.get("session", session=session, call=9).status_code == 404
        rewritten = chat_request(41)
        rewritten["messages"][1]["content"] = "Another task altogether."
        at.say(rewritten, **AGENT)
        assert eventually(lambda: at.get("session", session=session, call=2).status_code == 409), (
            "its text is gone"
        )


def test_a_call_keeps_its_number_when_earlier_calls_are_deleted() -> None:
    """A saved link to a call showed another one once the calls before it were 90 days old."""
    with ScriptedProvider(answer_briefly) as upstream, ExitStack() as stack:
        gateway = create_gateway(build_config(upstream, record="7d"))
        served = stack.enter_context(Serving(gateway))
        client = stack.enter_context(httpx.Client(base_url=served.url, timeout=60))
        at = ApiGateway(upstream, served, client)
        session = record_three_calls(at)
        before = at.get("session", session=session, call=2).json()
        assert gateway.pipeline.ledger_writer is not None
        gateway.pipeline.ledger_writer.calls.purge(before["calls"][1][0])
        after = at.get("session", session=session, call=2).json()
        assert after["calls"] == before["calls"][1:] and after["row"]["calls"] == 3
        assert (after["sizes"], after["sent"]) == (before["sizes"], before["sent"])
        assert at.get("session", session=session, call=1).status_code == 404


def test_a_search_stops_at_the_maximum_number_of_hits() -> None:
    """One letter matches millions of lines in a long session, and their list took gigabytes."""
    unread: Any = None  # has no text, so it cannot be searched
    opened = SimpleNamespace(
        messages=[user("a\n" * MOST_HITS), user("a"), unread], visible_edits=()
    )
    context: Any = SimpleNamespace(find_file=lambda _: opened)
    answer = search(context, SearchArguments(session="0" * 32, query="A"))
    assert len(answer.hits) == MOST_HITS and answer.has_more
