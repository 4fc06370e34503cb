"""The sessions on this machine: their list, ids, costs, pins, pager, and HTML pages."""

import json
import os
import pty
import re
import threading
import time
from dataclasses import replace

import pytest
from rich.cells import cell_len

from refold import Budget, Compactor, SidecarStore, recall
from refold.cli import terminal
from refold.cli.read_output import argument_of
from refold.cli.sessions import LISTED_COUNT, find_on_machine, short_id
from refold.gateway.ledger.accounting import read_bill
from refold.retrieval.search import PHRASE_BONUS
from refold.session_files import discover, read
from refold.session_files.edited import open_edited
from tests.support.api_gateway import write_pi_session
from tests.support.command_line import REFOLD, edit_ids, refold, run_on_terminal, set_home

REQUESTS = (
    "修复登录页面上的中文输入法问题，然后把所有的测试都跑一遍，并且不要改动数据库迁移",
    "Fix the login bug",
    "hi",
)
IDS = [f"{n:08x}-aaaa-4aaa-8aaa-aaaaaaaaaaaa" for n in range(0xABCD0000, 0xABCD0000 + 23)]


def claude_code_file(home, id: str, request: str, project: str, answer_tokens: int = 100):
    cwd = f"/srv/{project}"
    path = home / ".claude" / "projects" / cwd.replace("/", "-") / f"{id}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    usage = {"input_tokens": 1_000, "cache_read_input_tokens": 3_000,
             "cache_creation_input_tokens": 500, "output_tokens": answer_tokens}  # fmt: skip
    common = {"sessionId": id, "cwd": cwd, "timestamp": "2026-11-01T10:00:00Z"}
    lines = [
        {"type": "user", "uuid": "a", "parentUuid": None, "message": {"role": "user", "content": request}},
        {"type": "assistant", "uuid": "b", "parentUuid": "a", "message": {"id": "m", "model": "claude-sonnet-4-5", "role": "assistant", "content": [{"type": "text", "text": "Done. " * 50}], "usage": usage}},
    ]  # fmt: skip
    path.write_text(
        "".join(json.dumps({**common, **line}, ensure_ascii=False) + "\n" for line in lines)
    )
    return path


@pytest.fixture
def home(tmp_path, monkeypatch):
    for at, id in enumerate(IDS):
        path = claude_code_file(
            tmp_path, id, REQUESTS[at % 3], ("订单服务", "web-shop", "api")[at % 3], 100 + at
        )
        os.utime(path, (time.time() - 4_000 * at,) * 2)
    set_home(monkeypatch, tmp_path)
    return tmp_path


# --- the list --------------------------------------------------------------------------------


def test_a_session_id_cannot_inject_escape_codes_or_shell_commands(home) -> None:
    """A file's name and its id were once printed unescaped in the suggested commands."""
    path = claude_code_file(home, "\x1b[1m`id`", "Fix it", "api")
    shown = refold().out
    assert "\x1b" not in shown
    assert "refold compact '␛[1m`id`'" in shown
    edited = replace(open_edited(read(path), None, None), typed="\x1b[1m`id`")
    assert argument_of(edited) == "'␛[1m`id`'"


def test_json_output_has_no_raw_control_characters(home) -> None:
    """C1 control characters and bidirectional marks were once printed unescaped."""
    path = claude_code_file(home, IDS[0], "\x9b31m \u202egnp \x7f", "api")
    shown = refold("stats", path, "--json")
    assert not {"\x9b", "\u202e", "\x7f"} & set(shown.out)
    assert "\x9b31m \u202egnp \x7f" in [
        row["begins"] for row in shown.json["sessions"][0]["largest"]
    ]


def test_refold_lists_the_newest_sessions_with_their_cost(home) -> None:
    out = refold().out
    lines = [line for line in out.splitlines() if line.startswith("abcd")]
    assert [line.split()[0] for line in lines] == [id[:8] for id in IDS[:LISTED_COUNT]]
    assert f"{LISTED_COUNT} of 23 sessions" in out
    for words in (
        "Claude Code",
        "订单服务",
        "修复登录页面",
        "4.6k",
        "$0.0073",
        "refold stats abcd0000",
    ):
        assert words in out
    dearest = refold("--sort", "cost").out.splitlines()[1]
    assert dearest.startswith(IDS[-1][:8])
    assert len([line for line in refold("--all").out.splitlines() if line.startswith("abcd")]) == 23
    assert (
        len([line for line in refold("--since", "3h").out.splitlines() if line.startswith("abcd")])
        == 3
    )
    assert refold("--since", "soon").code == 2
    projects = refold("--by", "project").out.splitlines()
    assert projects[1].endswith("/srv/web-shop")
    assert projects[-2].split()[0] == "23"
    assert "was not read" not in out
    (home / ".claude/projects/-srv-empty").mkdir(parents=True)
    (home / f".claude/projects/-srv-empty/{IDS[0][:-1]}f.jsonl").write_text("")
    out = refold().out
    assert "(cannot be read" in out and "was not read" not in out, "it was looked into"
    assert set(refold("--json").json["found"][0]) == {
        "client", "path", "id", "title", "cwd", "size_bytes", "modified", "tokens", "cost"
    }  # fmt: skip


def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(home) -> None:
    """Chinese characters count two cells."""
    plain = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|[\r\x08]")
    screen = run_on_terminal([], HOME=str(home), COLUMNS="80", PAGER="cat").decode()
    lines = plain.sub("", screen).splitlines()
    rows = [line for line in lines if line.startswith("abcd")]
    assert len(rows) == LISTED_COUNT
    assert all(cell_len(row) <= 80 for row in rows)
    for row in rows:
        assert "4.6k" in row
        assert "$0.00" in row
    assert any("…" in row for row in rows)
    assert len({cell_len(row[: row.index("4.6k")]) for row in rows if "4.6k" in row}) == 1


def test_refold_reports_that_there_are_no_sessions(tmp_path, monkeypatch) -> None:
    set_home(monkeypatch, tmp_path)
    done = refold()
    assert done.code == 0
    assert "No sessions" in done.out
    assert refold("--json").json == {"found": [], "skipped": []}


def test_a_session_is_selected_by_a_prefix_of_its_id(home) -> None:
    assert IDS[3] in refold("stats", IDS[3][:8], "--json").out
    assert IDS[3] in refold("stats", IDS[3], "--json").out
    several = refold("stats", "abcd")
    assert several.code == 2
    assert several.err == "refold: 23 sessions on this machine begin with abcd: say more\n"
    missing = refold("stats", "feedbeef")
    assert missing.code == 2
    assert missing.err.count("\n") == 1
    assert "no such file, and no session of this id" in missing.err


READ = ("stats", "view", "diff", "history", "check", "recall", "unfold", "export")
WRITE = ("compact", "accept", "discard", "revert")


@pytest.mark.parametrize("command", [*READ, *WRITE])
def test_every_command_selects_sessions_in_the_same_ways(home, command: str) -> None:
    options = {"recall": ["word"], "unfold": ["abcd"], "compact": ["--to", "1k"]}.get(command, [])
    errors = {
        ("--last", "--project", "/nowhere"): "no session of /nowhere is on this machine",
        ("feedbeef",): "no such file, and no session of this id on this machine",
        ("abcd",): "23 sessions on this machine begin with abcd: say more",
        (): "Missing argument" if command in ("recall", "unfold") else "no session is named",
    }
    for words, error in errors.items():
        done = refold(command, *words, *options)
        assert done.code == 2 and error in done.err and done.err.count("\n") == 1, words
    for words in (("--last", "--project", "/srv/api"), (IDS[2][:8],)):
        done = refold(command, *words, *options)
        assert IDS[2][:8] in done.out + done.err or (command, done.code) in {
            ("unfold", 2),
            ("recall", 1),
            ("export", 0),
        }
        assert "machine" not in done.err


def test_project_selects_a_directory_and_all_below_it(home, tmp_path, monkeypatch) -> None:
    listed = refold("stats", "--project", "/srv/api", "--json").json["sessions"]
    assert {session["cwd"] for session in listed} == {"/srv/api"} and len(listed) == 7
    assert len(refold("stats", "--project", "/srv", "--json").json["sessions"]) == 23
    (latest,) = refold("stats", "--last", "--json").json["sessions"]
    assert latest["id"] == IDS[0]
    several = refold("export", "--project", "/srv/api")
    assert several.code == 2 and "there are 7 sessions" in several.err and "--last" in several.err
    both = refold("stats", IDS[0], "--last")
    assert both.err == "refold: name sessions or choose them with --last or --project, not both\n"
    assert refold("compact", "--last", "--project=/srv/api", "--to", "60", "--json").json[
        "sessions"
    ]


def test_an_unreadable_latest_session_is_named_and_no_other_is_taken(home) -> None:
    """A command that writes must not act on a session that was not meant."""
    (newest,) = home.rglob(f"*{IDS[0]}.jsonl")
    newest.write_text("")
    os.utime(newest, (2_000_000_000, 2_000_000_000))
    for command in ("stats", "compact"):
        done = refold(command, "--last")
        assert done.code == 2 and newest.name in done.err
        assert done.err.endswith("(--last chose this session; name another: refold lists them)\n")


def test_a_session_id_is_the_last_part_of_its_file_name(tmp_path, monkeypatch) -> None:
    names = {
        ".codex/sessions/2026/05/11/rollout-2026-05-11T13-28-45-019e1695-0522-7c83-8b39-0dd379793f80.jsonl": "019e1695",
        ".gemini/tmp/abc/chats/session-2025-12-01T21-45-5b959dae.json": "5b959dae",
        ".pi/agent/sessions/--srv--/2025-12-01T00-00-00_d703a1a9.jsonl": "d703a1a9",
    }
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("{}")
    assert {short_id(session) for session in discover(tmp_path, {})} == set(names.values())
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    for name in ("019e", "019e1695-0522", "019e1695-0522-7c83-8b39-0dd379793f80", "d703", "5b959"):
        assert name in find_on_machine(name, str(tmp_path / "none.db")).path.name


def test_a_file_of_a_newer_client_version_is_listed_and_reported_in_one_line(
    tmp_path, monkeypatch
) -> None:
    place = tmp_path / ".codex/sessions"
    place.mkdir(parents=True)
    first = {"type": "session_meta", "payload": {"id": "s", "cwd": "/srv"}}
    then = {"type": "turn_2", "payload": {"text": "go"}}
    for name, lines in (("aaaa", [first, then]), ("bbbb", [then])):
        id = f"{name}1695-0522-7c83-8b39-0dd379793f80"
        (place / f"rollout-2026-11-23T10-00-00-{id}.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in lines)
        )
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    assert "cannot be read: no message in it has a form that Refold knows" in refold().out
    for command in ("compact", "stats", "export"):
        (line,) = refold(command, "aaaa").err.splitlines()
        assert "it has 'turn_2' (1)" in line and line.endswith("Nothing was changed.")
        (line,) = refold(command, "bbbb").err.splitlines()
        assert "A newer version of Codex may have written it. (--why" in line
    assert sorted(tmp_path.rglob("*")) == before


def test_a_bill_is_the_clients_own_cost_or_calculated_by_list_prices(home, tmp_path) -> None:
    path = claude_code_file(tmp_path, IDS[0], "Hello.", "api", 1_000)
    bill = read_bill(read(path))
    assert (bill.calls, bill.tokens.input, bill.context) == (1, 4_500, 5_500)
    assert bill.dollars == pytest.approx((1_000 * 3 + 3_000 * 0.3 + 500 * 3.75 + 1_000 * 15) / 1e6)
    own = tmp_path / "pi.jsonl"
    records = [
        {"type": "session", "id": "p1", "cwd": "/srv", "timestamp": "2026-11-01T10:00:00Z"},
        {"type": "message", "id": "a", "parentId": None, "message": {"role": "user", "content": "Hello."}},
        {"type": "message", "id": "b", "parentId": "a", "message": {"role": "assistant", "model": "x", "content": [{"type": "text", "text": "Hi."}], "usage": {"input": 10, "output": 5, "cacheRead": 0, "cacheWrite": 0, "cost": {"total": 0.25}}}},
    ]  # fmt: skip
    own.write_text("".join(json.dumps(record) + "\n" for record in records))
    bill = read_bill(read(own))
    assert (bill.dollars, bill.is_recorded) == (0.25, True)
    out = refold("stats", own).out
    assert "$0.2500 recorded by the client" in out
    own.write_text(own.read_text().replace("0.25", "1e999"))
    assert read_bill(read(own)).dollars is None  # not a finite number


def test_stats_show_the_providers_token_counts_and_the_billed_cost(home) -> None:
    out = refold("stats", IDS[0][:8]).out
    for words in ("claude-sonnet-4-5", "2026-11-01", "provider's count", "billed: 1 call",
                  "at list prices", "not in the file", "people"):  # fmt: skip
        assert words in out
    session = refold("stats", IDS[0][:8], "--json").json["sessions"][0]
    assert session["model"] == "claude-sonnet-4-5"
    assert session["billed"]["calls"] == 1
    assert session["billed"]["cost"] > 0


def test_an_unknown_file_is_reported_in_one_line_and_why_adds_the_details(tmp_path) -> None:
    notes = tmp_path / "notes.json"
    notes.write_text('{"hello": "world"}')
    done = refold("stats", notes)
    assert done.code == 2
    assert done.err == (
        "refold: notes.json is no session file that Refold knows. (--why says what was tried)\n"
    )
    why = refold("stats", notes, "--why").err
    assert "Tried: pi (" in why
    assert why.count("\n") == 1


# --- recall ----------------------------------------------------------------------------------


def test_recall_lists_exact_matches_first_and_omits_low_scores(file) -> None:
    refold("compact", file, "--to", "9k")
    exact = "Aware against naive"
    hits = refold("recall", file, exact, "--limit", "99", "--json").json["sessions"][0]["hits"]
    assert exact in hits[0]["snippet"]
    plain = [hit["score"] % PHRASE_BONUS for hit in hits]
    assert all(score >= 0.3 * max(plain) or hit["score"] >= PHRASE_BONUS
               for hit, score in zip(hits, plain, strict=True))  # fmt: skip
    compactor = Compactor((), Budget(10**9, 0), SidecarStore.beside(file))
    every = recall(compactor.show(file.read_bytes()), exact, 999)
    assert len(hits) < len(every)
    screen = run_on_terminal(["recall", file, exact], COLUMNS="100")
    assert b"\x1b[1;33mAware\x1b[0m" in screen
    assert b"refold unfold" in screen


# --- the picker ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_session_is_picked_with_the_arrow_keys(home) -> None:
    mine, theirs = pty.openpty()
    env = {
        **os.environ,
        "HOME": str(home),
        "TERM": "xterm-256color",
        "COLUMNS": "100",
        "PAGER": "cat",
    }
    child = os.fork()
    if child == 0:
        os.setsid()
        for number in range(3):
            os.dup2(theirs, number)
        os.execve(REFOLD[0], [*REFOLD, "pick"], env)
    os.close(theirs)
    seen = b""

    def answer() -> None:
        for key in (
            b"\x1b[F",
            b"g",
            b"\x1b[B\x1bOBj\x1b[A",
            b"\r",
        ):  # the third is a held key
            time.sleep(0.2)
            os.write(mine, key)

    try:
        while chunk := os.read(mine, 65_536):
            if b"Enter stats" not in seen and b"Enter stats" in seen + chunk:
                threading.Thread(target=answer).start()
            seen += chunk
    except OSError:
        pass
    assert os.waitpid(child, 0)[1] == 0
    os.close(mine)
    assert f"{IDS[2]}.jsonl · Claude Code".encode() in seen


def test_pick_needs_a_terminal(home) -> None:
    done = refold("pick")
    assert (done.code, "needs a terminal" in done.err) == (2, True)


# --- compact ---------------------------------------------------------------------------------

RULE = "Never touch anything under migrations/"


def test_the_default_target_is_half_of_the_models_context_window(file, history) -> None:
    assert refold("compact", file).err == (
        f"refold: {file}: its file names no model: say how large it may be, as in --to 60k\n"
    )
    file.write_text(json.dumps({"model": "claude-haiku-4-5", "max_tokens": 9, "messages": history}))
    done = refold("compact", file, "--dry-run")
    assert "fits 100,000, 50% of the window" in done.out
    assert (
        refold("compact", file, "--dry-run", "--json").json["sessions"][0]["tokens"]["target"]
        == 100_000
    )


def test_pinned_text_is_kept_in_later_compactions(file) -> None:
    plain = refold("compact", file, "--to", "9k", "--dry-run", "-o", "-").out
    answers = [
        m["content"] for m in json.loads(file.read_text("utf-8")) if m["role"] == "assistant"
    ]
    texts = [part["text"] for content in answers for part in content if part["type"] == "text"]
    pin = next(text for text in texts if text not in plain and text.isascii() and '"' not in text)
    assert refold("compact", file, "--to", "16k", "--pin", pin).code in (0, 1)
    assert pin in refold("view", file, "--payload").out
    assert "--pin keeps nothing yet" in refold("compact", file, "--to", "90k", "--pin", "x").out
    refold("compact", file, "--to", "12k")
    assert pin in refold("view", file, "--payload").out
    assert len(edit_ids(file)) > 0


def test_detail_sets_the_length_of_a_summary(file) -> None:
    sizes = []
    for detail in ("brief", "normal", "full"):
        arguments = ("--to", "9k", "--strategy", "Summarize(keep=4, max_tokens=1500)", "--dry-run")
        done = refold("compact", file, *arguments, "--detail", detail, "--json")
        sizes.append(done.json["sessions"][0]["tokens"]["after"])
    assert sizes[0] < sizes[1] < sizes[2]


# --- pages -----------------------------------------------------------------------------------


def test_an_html_page_loads_no_external_files(file) -> None:
    refold("compact", file, "--to", "9k")
    target = file.parent / "view.html"
    assert refold("view", file, "--html", target).code == 0
    page = target.read_text("utf-8")
    assert page.count('<details class="edit">') == len(edit_ids(file))
    assert "summary by rules" in page
    assert RULE in page
    assert not re.search(
        r"<(?:script|link|img)|https?://[^<]*\.(?:js|css)", page.split("</style>")[0]
    )
    assert "<pre>" in refold("diff", file, "--html", "-").out
    title = page.partition("<title>")[2].partition("</title>")[0]
    assert title and str(file.name) not in title, "the words that it begins with"
    assert refold("view", file, "--html", file).code == 2
    assert refold("view", file, "--html", "/no/where.html").err.startswith("refold: --html ")


def test_a_page_of_one_message_shows_only_that_message_or_its_edit(file) -> None:
    refold("compact", file, "--to", "9k")
    shown = refold("view", file, "--json").json["sessions"][0]["items"]
    at = next(item["edit"]["start"] for item in shown if item["edit"])
    page = refold("view", file, "--html", "-", "--message", at).out
    assert page.count('<details class="edit">') == 1
    assert "@@" in refold("diff", file, "--html", "-", "--message", at).out
    plain = next(item["start"] for item in shown if not item["edit"])
    assert refold("view", file, "--html", "-", "--message", plain).out.count("<details") == 1
    assert refold("view", file, "--html", "-", "--message", 10**6).code == 2


def test_original_shows_the_history_without_edits(file, history) -> None:
    refold("compact", file, "--to", "9k")
    assert json.loads(refold("view", file, "--original", "--payload").out) == history
    assert refold("view", file, "--original", "--effective").code == 2


def test_a_past_request_of_a_file_is_shown_with_the_edits_made_by_then(tmp_path) -> None:
    """Edits of the client count from their record's position, edits of Refold from their time in
    the ledger."""
    path = write_pi_session(tmp_path)
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    shortened = {"type": "compaction", "id": "k", "parentId": "m20", "summary": "All went well.",
                 "firstKeptEntryId": "m19", "tokensBefore": 9}  # fmt: skip
    lines[22:22] = [shortened]
    lines[23]["parentId"] = "k"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")

    def list_hidden(number: int) -> list[tuple[int, int, str]]:
        (shown,) = refold("diff", path, "--request", number, "--json").json["sessions"]
        edits = [item["edit"] for item in shown["items"] if item["edit"]]
        return [(edit["start"], edit["stop"], edit["by"].split("(")[0]) for edit in edits]

    assert list_hidden(10) == [] and list_hidden(11) == list_hidden(30) == [(0, 19, "pi")]
    assert "sent unchanged" in refold("diff", path, "--request", 10).out
    assert "All went well." in refold("view", path, "--request", 11).out
    assert "30 were answered" in refold("view", path, "--request", 31).err
    refold("compact", path, "--to", "4k")
    again = {**lines[0], "type": "message", "id": "u", "parentId": "m60",
             "message": {"role": "user", "content": "Go on."}}  # fmt: skip
    answer = {**again, "id": "v", "parentId": "u", "message": lines[2]["message"]}
    with path.open("a", encoding="utf-8") as stream:
        stream.write(f"{json.dumps(again)}\n{json.dumps(answer)}\n")
    assert list_hidden(30) == [(0, 19, "pi")]
    assert any(by != "pi" for *_, by in list_hidden(31)), "it was compacted before this was asked"


@pytest.mark.parametrize("options", [["view"], ["compact", "--to", "20k", "--preview"]])
def test_output_is_paged_on_a_terminal_but_not_in_a_pipe(file, tmp_path, options) -> None:
    script = tmp_path / "pager"
    script.write_text(f"#!/bin/sh\ncat > {tmp_path}/paged\n")
    script.chmod(0o700)
    run_on_terminal([*options, file], PAGER=str(script))
    assert "Europe/Berlin" in (tmp_path / "paged").read_text()
    (tmp_path / "paged").unlink()
    assert "Europe/Berlin" in refold(*options, file).out
    assert not (tmp_path / "paged").exists()


def test_ctrl_c_does_not_leave_the_pager_alone_on_the_terminal(file, tmp_path) -> None:
    script = tmp_path / "pager"
    script.write_text(
        f"#!/bin/sh\ncat > /dev/null\nkill -INT $PPID\nsleep 0.5\ntouch {tmp_path}/left\n"
    )
    script.chmod(0o700)
    run_on_terminal(["view", file], PAGER=str(script))
    assert (tmp_path / "left").exists()


def test_a_pager_with_an_open_quote_is_not_used(file) -> None:
    assert b"Europe/Berlin" in run_on_terminal(["view", file], PAGER="less -P'Rest")


@pytest.mark.parametrize(
    ("text", "width"), [("修复登录页面", 7), ("abc def", 5), ("", 3), ("订单", 4)]
)
def test_text_is_shortened_to_a_width_in_terminal_cells(text, width) -> None:
    assert cell_len(terminal.shorten(text, width)) <= width
