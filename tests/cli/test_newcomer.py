"""Tasks of a new user, each done with at most four commands (issue 14, section 4)."""

import json
import os
import time
from dataclasses import replace

import httpx
import pytest

from refold.cli.sessions import list_recorded
from refold.gateway.serve import create_gateway
from refold.session_files import demo_session
from refold.session_files.source import short_id
from refold.testing.scripted_gateway import Serving
from refold.testing.scripted_provider import ScriptedProvider
from refold.tokens.model_table import Rates
from tests.support.api_gateway import answer_briefly, build_config, chat_request
from tests.support.command_line import refold, set_home

MOST = 4
SESSIONS = ("aaaa1111", "bbbb2222", "cccc3333")
SENTENCE = "Aware against naive."
FILE = "docs/adr/0012-time.md"


def record(home, id: str, project: str, age_hours: float, dollars: float) -> None:
    """Write a session as pi does, with the costs that its client reported."""
    path = home / ".pi" / "agent" / "sessions" / f"--srv-{project}--" / f"2026-11-01_{id}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        {"type": "session", "id": id, "cwd": f"/srv/{project}", "timestamp": "2026-11-01T10:00:00Z"}
    ]
    above = None
    for at, entry in enumerate(demo_session(30)):
        message = {"role": entry["role"], "content": entry["content"]}
        if entry["role"] == "assistant":
            message = {
                "role": "assistant",
                "model": "claude-haiku-4-5",
                "content": [part_of_pi(part) for part in entry["content"]],
            }
            if above is not None and at == 1:
                message["usage"] = {
                    "input": 10,
                    "output": 5,
                    "cacheRead": 0,
                    "cacheWrite": 0,
                    "cost": {"total": dollars},
                }
        results = [
            part
            for part in entry["content"]
            if isinstance(part, dict) and part["type"] == "tool_result"
        ]
        for number, part in enumerate(results):
            text = (
                part["content"] if isinstance(part["content"], str) else part["content"][0]["text"]
            )
            message = {
                "role": "toolResult",
                "toolCallId": part["tool_use_id"],
                "toolName": "t",
                "content": [{"type": "text", "text": text}],
                "isError": False,
            }
            lines.append(
                {"type": "message", "id": f"{at}-{number}", "parentId": above, "message": message}
            )
            above = f"{at}-{number}"
        if not results:
            lines.append({"type": "message", "id": str(at), "parentId": above, "message": message})
            above = str(at)
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    os.utime(path, (time.time() - 3_600 * age_hours,) * 2)


def part_of_pi(part):
    if part["type"] == "tool_use":
        return {
            "type": "toolCall",
            "id": part["id"],
            "name": part["name"],
            "arguments": part["input"],
        }
    return part


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Run commands, and count them."""
    set_home(monkeypatch, tmp_path)
    for id, project, age, dollars in zip(
        SESSIONS, ("shop", "api", "api"), (2, 20, 90), (3.0, 2.5, 2.0), strict=True
    ):
        record(tmp_path, id, project, age, dollars)
    count = []

    def run(*arguments):
        count.append(arguments)
        assert len(count) <= MOST
        return refold(*arguments)

    return run


@pytest.fixture
def after_compaction(commands):
    refold("compact", SESSIONS[0], "--to", "9k")
    return commands


def edit_of(text: str) -> str:
    """Return an edit's id from the screen, as a person reads it."""
    return text.partition("edit ")[2].split()[0]


def send(served, body):
    """Send a request. httpx's default timeout of five seconds is too short on a busy machine."""
    answer = httpx.post(f"{served.url}/v1/chat/completions", json=body, timeout=60)
    answer.raise_for_status()


def test_sessions_since_a_time_can_be_sorted_by_cost(commands):
    rows = commands("--since", "48h", "--sort", "cost").out.splitlines()
    assert rows[1].startswith(SESSIONS[0])
    assert "$3.00" in rows[1]


def test_the_list_by_project_shows_the_most_expensive_project_first(commands):
    assert commands("--by", "project").out.splitlines()[1].endswith("/srv/api")


def test_diff_of_a_request_shows_what_the_gateway_hid_in_it(commands, tmp_path):
    """As the gateway sent it, regardless of later edits and reverts."""
    store = tmp_path / "refold.db"
    with ScriptedProvider(answer_briefly) as upstream:
        config = replace(build_config(upstream, record="7d"), store=str(store))
        with Serving(create_gateway(config)) as served:
            for steps in (4, 40, 60):
                body = chat_request(steps, "local")
                send(served, body)
        sent = json.loads(upstream.received[-2].body)["messages"][1:]
    (session,) = list_recorded(str(store))
    out = commands("diff", session.id, "--store", store, "--request", "2").out
    assert "summary by rules" in out and "81 messages · as sent in request 2" in out
    shown = refold("view", session.id, "--store", store, "--request", "2", "--json").json
    texts = [
        part["text"]
        for item in shown["sessions"][0]["items"]
        for message in item["shown"]
        for part in message["parts"]
        if part["type"] == "Text"
    ]
    assert texts == [m["content"] for m in sent if m["role"] != "tool" and m["content"]]
    assert refold("revert", session.id, "--store", store).code == 0
    again = refold("diff", session.id, "--store", store, "--request", "2")
    assert "not stored, 1 edit of it" in again.err
    rest = set(out.splitlines()[2:]) - set(again.out.splitlines())
    assert rest == {f"+ {body['messages'][1]['content']}"}, (
        "a message that it showed as it was is not kept"
    )
    first = refold("diff", session.id, "--store", store, "--request", "1").out
    assert "9 messages" in first and "sent unchanged" in first
    assert "3 were answered" in refold("view", session.id, "--store", store, "--request", "4").err


def test_the_text_beside_an_image_is_shown_though_the_image_is_not_recorded(commands, tmp_path):
    """The image's bytes are not recorded, so one image once hid the whole session from every
    command."""
    store, body = tmp_path / "refold.db", chat_request(4, "local")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    body["messages"][1]["content"] = [{"type": "text", "text": SENTENCE}, image]
    with ScriptedProvider(answer_briefly) as upstream:
        config = replace(build_config(upstream, record="7d"), store=str(store))
        with Serving(create_gateway(config)) as served:
            send(served, body)
    (session,) = list_recorded(str(store))
    shown = commands("view", session.id, "--store", store, "--message", "0").out
    assert SENTENCE in shown and "▣ image image/png" in shown
    sent = json.loads(commands("view", session.id, "--store", store, "--payload").out)
    assert sent["messages"][0]["content"][1]["text"] == "[image: its bytes are not recorded]"


def test_b13_sessions_without_messages_are_skipped(tmp_path, monkeypatch):
    """The gateway's latest session had no messages, so none was shown, not even older ones."""
    set_home(monkeypatch, tmp_path)
    store = tmp_path / "refold.db"
    monkeypatch.setenv("REFOLD_STORE", str(store))
    nobody = refold("stats", "--last")
    assert nobody.code == 2 and "no session of a coding agent" in nobody.err
    for task, record_for in ((SENTENCE, "7d"), ("Never kept.", "")):
        body = chat_request(4, "local")
        body["messages"][1]["content"] = task
        with ScriptedProvider(answer_briefly) as upstream:
            config = replace(build_config(upstream, record=record_for), store=str(store))
            with Serving(create_gateway(config)) as served:
                send(served, body)
    without, recorded = list_recorded(str(store))
    assert "no messages" in refold("stats", without.id).err
    assert SENTENCE in refold("view", "--last").out
    assert recorded.id in refold("stats", "--last").out
    listed = refold()
    assert SENTENCE in listed.out and "1 of 1 session" in listed.out
    assert [session["id"] for session in refold("--json").json["found"]] == [recorded.id]
    assert short_id(recorded) in listed.out and refold("stats", short_id(recorded)).code == 0
    store.with_name("refold.db.ledger").write_bytes(b"no database")
    assert "No sessions" in refold().out and "refold.db.ledger" in refold().err


def test_diff_of_one_message_shows_the_edit_that_hides_it(after_compaction):
    shown = after_compaction("diff", SESSIONS[0], "--message", "11").out
    assert "summary by rules" in shown
    assert (
        SENTENCE not in after_compaction("view", SESSIONS[0], "--message", "30").out.split("\n")[0]
    )
    (item,) = after_compaction("view", SESSIONS[0], "--message", "11", "--json").json["sessions"][
        0
    ]["items"]
    assert item["start"] <= 11 < item["stop"]
    assert item["edit"]


def test_the_edit_that_hides_a_file_is_found_and_reverted(after_compaction):
    hit = after_compaction("recall", SESSIONS[0], FILE).out
    assert FILE in hit
    assert after_compaction("revert", SESSIONS[0], edit_of(hit)).code == 0
    assert "edit " not in after_compaction("view", SESSIONS[0], "--message", "11").out


def test_a_pinned_sentence_is_kept(commands):
    assert commands("compact", SESSIONS[0], "--to", "12k", "--pin", SENTENCE).code == 0
    assert SENTENCE in commands("view", SESSIONS[0]).out


def test_a_preview_with_half_the_tokens_shows_what_would_be_lost(after_compaction):
    tried = after_compaction("compact", SESSIONS[0], "--to", "4500", "--preview").out
    assert "no longer appear" in tried
    assert f"refold accept {SESSIONS[0]} " in tried
    assert after_compaction("discard", SESSIONS[0]).code == 0


def test_the_last_compaction_can_be_undone(after_compaction):
    first = refold("stats", SESSIONS[0], "--json").json["sessions"][0]["tokens"]
    refold("compact", SESSIONS[0], "--to", "5k")
    second = refold("stats", SESSIONS[0], "--json").json["sessions"][0]["tokens"]
    assert second["sent"] < first["sent"] <= 9_000
    assert "reverted" in after_compaction("revert", SESSIONS[0], "--newest").out
    assert refold("stats", SESSIONS[0], "--json").json["sessions"][0]["tokens"] == first


def test_history_lists_an_applied_compaction(after_compaction):
    assert "applied" in after_compaction("history", SESSIONS[0]).out


def test_a_session_can_be_written_as_an_html_page(after_compaction, tmp_path):
    page = tmp_path / "session.html"
    assert after_compaction("view", SESSIONS[0], "--html", page).code == 0
    assert '<details class="edit">' in page.read_text("utf-8")


def test_stats_show_the_cost_and_the_largest_messages(commands):
    out = commands("stats", SESSIONS[0]).out
    assert "$3.00 recorded by the client" in out
    assert "largest" in out


def test_shadow_mode_changes_nothing_and_reports_what_would_be_saved(
    commands, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    rates = Rates(input=5.0, output=25.0, read=0.5, write=6.25)
    with ScriptedProvider(answer_briefly) as upstream:
        assert commands("serve", "--shadow", "--upstream", upstream.url, "--check").code == 0
        config = build_config(upstream, shadow=True, prices=rates)
        with Serving(create_gateway(replace(config, store="refold.db"))) as served:
            for steps in (40, 41):
                body = chat_request(steps)
                send(served, body)
                assert json.loads(upstream.received[-1].body) == body
    out = commands("report").out
    assert "in shadow: nothing was changed" in out
    (total,) = (line for line in out.splitlines() if line.rstrip().endswith("total"))
    calls, edited, *_, billed, with_us, _ = total.split()
    assert (calls, edited) == ("2", "2")
    assert float(with_us.strip("$")) < float(billed.strip("$"))
