"""Session files of clients, viewed and compacted through the API as through the command line."""

import json
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from refold.gateway.serve import create_gateway
from refold.session_files import read
from refold.session_files.edited import open_edited
from refold.testing.scripted_gateway import Serving
from refold.testing.scripted_provider import ScriptedProvider
from tests.support.api_gateway import (
    PI_SESSION,
    SECRET,
    ApiGateway,
    answer_briefly,
    build_config,
    chat_request,
    write_pi_session,
)
from tests.support.command_line import digest, refold, set_home
from tests.support.raw_http import eventually


@pytest.fixture
def file(tmp_path, monkeypatch):
    set_home(monkeypatch, tmp_path)
    return write_pi_session(tmp_path)


@pytest.fixture
def at(file):
    """A gateway that lists the file and stores texts."""
    with ScriptedProvider(answer_briefly) as upstream:
        config = replace(build_config(upstream, record="7d"), files=True)
        with (
            Serving(create_gateway(config)) as served,
            httpx.Client(base_url=served.url, timeout=60) as client,
        ):
            yield ApiGateway(upstream, served, client)


def test_a_file_is_read_compacted_and_undone_as_by_the_command_line(at, file):
    assert at.get("overview", query="nowhere in it").json()["total"] == 0
    (row,) = at.get("overview", query="mend the 购物").json()["sessions"]
    session, before = row["id"], digest(file)
    shown = at.get("session", session=session).json()
    assert shown["row"]["title"] == "Mend the 购物 cart." and shown["row"]["file"] == row["file"]
    assert (len(shown["sizes"]), shown["edits"], shown["kept_until"]) == (61, [], None)
    assert shown["file"] == {
        "path": str(file),
        "edits": f"{file}.refold",
        "compactions": 0,
        "resumes": True,
    }
    (brief,) = at.get("messages", session=session, start=2, count=1).json()["messages"]
    assert (brief["speaker"], brief["tools"], brief["line_count"]) == ("result", ["read"], 2)
    assert at.get("text", session=session, message=2).json()["text"].startswith(f"{SECRET} 0\n")
    assert at.get("text", session=session, message=61).status_code == 404
    hits = at.get("search", session=session, query=f"{SECRET} 7").json()["hits"]
    assert [(hit["message"], hit["edit"]) for hit in hits] == [(16, "")]

    preview = at.post("preview", session=session, to=5_000, actor="mira").json()
    assert preview["tokens_before"] == shown["sent"] > 8_000
    assert preview["tokens_after"] <= 5_000
    assert not Path(f"{file}.refold").exists(), "a preview writes nothing"
    done = at.post("accept", preview=preview["preview"], actor="mira").json()
    edited = open_edited(read(file), None, None)
    assert edited.view.tokens == done["tokens_after"] == preview["tokens_after"]
    assert (
        refold("stats", file, "--json").json["sessions"][0]["tokens"]["sent"] == edited.view.tokens
    )
    assert "by mira" in refold("history", file).out
    shown = at.get("session", session=session).json()
    assert (
        shown["sent"] == edited.view.tokens and shown["edits"][0]["id"] == edited.view.edits[0].id
    )
    (hit,) = at.get("search", session=session, query=f"{SECRET} 7").json()["hits"]
    assert hit["edit"] in {edit["id"] for edit in shown["edits"]}
    edit = {"session": session, "edit": hit["edit"]}
    assert f"{SECRET} 7" in at.get("edit_text", of="hidden", **edit).json()["text"]
    assert SECRET not in at.get("edit_text", of="text", limit=40, **edit).json()["text"]

    undone = at.post("revert", session=session, edits=done["edits"][:1], since=True).json()
    assert open_edited(read(file), None, None).view.edits == ()
    assert undone["tokens_after"] == preview["tokens_before"]
    assert at.post("accept", preview=undone["redo"]).json()["tokens_after"] == done["tokens_after"]
    refold("revert", file)
    assert at.get("session", session=session).json()["edits"] == [], "what others do is seen"
    assert digest(file) == before, "the file itself is only read"


def test_a_damaged_sidecar_is_answered_with_422_naming_the_file(at, file):
    session = at.get("overview").json()["sessions"][0]["id"]
    Path(f"{file}.refold").write_text("a shopping list, not a sidecar\n")
    answer = at.get("session", session=session)
    assert answer.status_code == 422
    assert f"{file.name}.refold: not a Refold sidecar" in answer.json()["error"]["message"]


def test_a_range_or_chosen_strategies_of_a_file_can_be_compacted_alone(at):
    session = at.get("overview").json()["sessions"][0]["id"]
    asked = {"session": session, "start": 3, "stop": 21, "strategies": ["summary"]}
    preview = at.post("preview", **asked).json()
    assert [(edit["start"], edit["stop"]) for edit in preview["edits"]] == [(3, 21)]
    refused = at.post("preview", **asked, summary_model="large")
    assert refused.status_code == 422 and "server of models" in refused.json()["error"]["message"]
    preview = at.post("preview", session=session, to=1_000, strategies=["results"]).json()
    assert {edit["by"].split("(")[0] for edit in preview["edits"]} <= {
        "ClipResults",
        "DropDuplicates",
        "ClearToolInputs",
        "ClearToolResults",
    }


def test_a_result_is_matched_to_its_own_call_if_call_ids_repeat(at, file):
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    lines[4] = lines[4].replace('"name": "read"', '"name": "bash"')
    same = "".join(lines).replace('"id": "c1"', '"id": "c0"').replace('Id": "c1"', 'Id": "c0"')
    file.write_text(same, encoding="utf-8")
    session = at.get("overview").json()["sessions"][0]["id"]
    briefs = at.get("messages", session=session, start=0, count=5).json()["messages"]
    assert [brief["tools"] for brief in briefs] == [[], [], ["read"], [], ["bash"]]


def test_a_deleted_or_damaged_file_is_answered_with_422(at, file):
    session = at.get("overview").json()["sessions"][0]["id"]
    file.write_text("no session\n", encoding="utf-8")
    answer = at.get("session", session=session)
    assert answer.status_code == 422 and "neither JSON nor" in answer.json()["error"]["message"]
    file.unlink()
    answer = at.get("messages", session=session)
    assert answer.status_code == 422 and "cannot be read" in answer.json()["error"]["message"]
    assert at.get("session", session="0" * 32).status_code == 404
    assert at.post("pin", session=session, message=0).status_code == 404


def test_a_session_seen_by_the_gateway_and_in_a_file_is_listed_once(at, file):
    """The client uses the same session id in its requests and in its file."""
    assert at.get("overview").json()["files"] == 1
    for name in ("another", PI_SESSION):
        at.say(chat_request(2), session_id=name)
    assert eventually(lambda: at.get("overview").json()["files"] == 0)
    rows = at.get("overview").json()["sessions"]
    assert [row["file"] for row in rows] == ["", ""]
    assert at.get("overview", source="file").json()["total"] == 0


def test_file_rows_show_model_calls_and_cost_once_the_file_was_read(at, file):
    gemini = file.parents[4] / ".gemini/tmp/0a/chats/session-2026-11-01T00-00-0c0c0c0c.json"
    gemini.parent.mkdir(parents=True)
    turns = [
        {"id": "1", "type": "user", "content": "Mend the 税."},
        {"id": "2", "type": "gemini", "content": "x " * 40_000},
    ]
    document = {"sessionId": "0c0c0c0c", "startTime": "2026-11-01T00:00:00Z", "messages": turns}
    gemini.write_text(json.dumps(document), encoding="utf-8")
    rows = at.get("overview").json()["sessions"]
    assert [(row["model"], row["spent"], row["is_read"]) for row in rows] == [("", None, False)] * 2
    ids = ",".join(row["id"] for row in rows)
    read = at.get("file_rows", sessions=ids).json()["sessions"]
    assert [row["title"] for row in read] == ["Mend the 税.", "Mend the 购物 cart."]
    assert at.get("overview").json()["sessions"] == read, "they are known from now on"
    row = read[1]
    assert (row["model"], row["calls"], row["spent"]) == ("claude-opus-5-5", 30, pytest.approx(0.3))
    whole = at.get("session", session=row["id"]).json()
    assert {**whole["row"], "latest": row["latest"]} == row
    refold("compact", file, "--to", "5k")
    assert not at.get("overview").json()["sessions"][1]["is_read"], "its edits are others"
    (row,) = at.get("file_rows", sessions=row["id"]).json()["sessions"]
    assert row["is_read"] and row["sent"] <= 5_000 < row["original"]
    assert at.get("file_rows", sessions="0" * 32).json()["sessions"] == []


def test_a_large_or_damaged_file_is_listed_without_token_counts(at, file):
    large = file.with_name(f"large_{PI_SESSION[::-1]}.jsonl")
    large.write_bytes(file.read_bytes() + b"\n" * 2**24)
    file.write_bytes(b"no session" * 10)
    ids = ",".join(row["id"] for row in at.get("overview").json()["sessions"])
    rows = at.get("file_rows", sessions=ids).json()["sessions"]
    assert {(row["title"], row["original"], row["is_read"]) for row in rows} == {
        ("Mend the 购物 cart.", 0, True),
        ("(cannot be read)", 0, True),
    }


def test_a_preview_of_over_a_thousand_edits_can_be_accepted_and_undone(tmp_path, monkeypatch):
    """The page sends every edit id. Long lists used to be refused, and undo took quadratic time."""
    set_home(monkeypatch, tmp_path)
    write_pi_session(tmp_path, 1_010)
    with ScriptedProvider(answer_briefly) as upstream:
        config = replace(build_config(upstream), files=True)
        with (
            Serving(create_gateway(config)) as served,
            httpx.Client(base_url=served.url, timeout=60) as client,
        ):
            at = ApiGateway(upstream, served, client)
            session = at.get("overview").json()["sessions"][0]["id"]
            preview = at.post("preview", session=session, to=1, strategies=["results"]).json()
            edits = [edit["id"] for edit in preview["edits"]]
            assert len(edits) > 1_000
            done = at.post("accept", preview=preview["preview"], edits=edits).json()
            undone = at.post("revert", session=session, edits=done["edits"]).json()
            assert set(undone["reverted"]) == set(edits)
            assert undone["tokens_after"] == preview["tokens_before"]
