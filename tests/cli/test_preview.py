"""The command line: preview, edit, accept, discard, history and going back."""

import json
import re
import stat
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise

import pytest

from refold import Budget, Compactor, SidecarStore
from refold.cli.compaction import read_drafts
from refold.corpus.output import lock
from refold.edits import Edit
from refold.errors import StoreError
from refold.session_files import demo_session
from refold.summarizers.model import HEADINGS
from refold.testing.scripted_provider import ScriptedProvider
from tests.support.command_line import digest, edit_ids, refold, run_on_terminal

SUMMARY = "\n".join(f"## {heading}\n- As it was agreed." for heading in HEADINGS)
RULES = ("compact", "--to", "20k", "--preview")


@pytest.fixture
def editor(tmp_path, monkeypatch):
    """Makes $EDITOR a script: a Python expression of `text`, or the body of a program."""

    def use(body: str, *, variable: str = "EDITOR", code: int = 0) -> None:
        script = tmp_path / "editor.py"
        program = f"import sys, pathlib\nfile = pathlib.Path(sys.argv[1])\ntext = file.read_text('utf-8')\nfile.write_text({body}, 'utf-8')\nsys.exit({code})\n"
        script.write_text(program, "utf-8")
        monkeypatch.delenv("VISUAL", raising=False)
        monkeypatch.delenv("EDITOR", raising=False)
        monkeypatch.setenv(variable, f'"{sys.executable}" "{script}"')

    return use


def preview(file, *options, to="20k"):
    done = refold("compact", file, "--to", to, "--preview", "--json", *options)
    assert done.code == 0, done.err
    return done.json["sessions"][0]


def model_at(server) -> list[str]:
    return ["--model", "small", "--model-url", f"{server.url}/v1"]


def rows(file, *options):
    return refold("history", file, "--json", *options).json["sessions"][0]["rows"]


def payload(file, *options):
    return refold("view", file, "--payload", *options).raw


# --- preview and accept ----------------------------------------------------------------------


def test_a_preview_shows_costs_summary_and_losses_and_saves_no_edit(file) -> None:
    """S2-47 S2-51: tokens and cost before and after, the summary, each edit, what would vanish."""
    before = digest(file)
    done = refold("compact", file, *RULES[1:], "--price", "3")
    assert done.code == 0
    for words in (
        "## Files",
        "each further request: $",
        "that no longer appear",
        "fits 20,000",
        "refold accept",
    ):
        assert words in done.out
    shown = preview(file, "--price", "3")
    assert shown["preview"]["summaries"][0]["edit"][:8] in done.out
    assert shown["tokens"]["after"] < shown["tokens"]["before"]
    assert shown["preview"]["price"]["before"] == pytest.approx(shown["tokens"]["before"] * 3e-6)
    assert shown["preview"]["losses"]["identifiers"]
    assert set(shown["preview"]["losses"]) == {
        "constraints", "requests", "open_work", "facts", "paths", "identifiers"
    }  # fmt: skip
    place = next(loss for loss in shown["preview"]["places"] if loss["kind"] == "identifiers")
    assert f"#{place['at']}:{place['line']} " in done.out
    assert (shown["store"], shown["preview"]["draft"]) == ("", f"{file}.refold-draft")
    assert edit_ids(file) == []
    assert digest(file) == before
    assert stat.S_IMODE((file.parent / "session.json.refold-draft").stat().st_mode) == 0o600


def test_a_preview_reports_how_many_of_the_counted_edits_will_not_be_saved(file) -> None:
    """Its table had 43 edits, its list 10, and 10 were accepted."""
    shown = preview(file)
    count = sum(row["edits"] for row in shown["strategies"])
    words = re.search(
        r"… ([\d,]+) more, in messages that these hide, are not kept", refold(*RULES, file).out
    )
    accepted = refold("accept", file, "--json").json["sessions"][0]["edits"]
    saved = [edit for edit in accepted if edit["by"] != "settle"]
    assert words and int(words[1].replace(",", "")) == count - len(saved)


def test_accept_saves_the_bytes_of_the_preview_and_asks_no_model(file) -> None:
    """S2-51 S2-53: a model's summary cannot be written again, so it is kept as it is, with who accepted it."""
    out = file.parent / "previewed.json"
    with ScriptedProvider([SUMMARY]) as server:
        done = refold("compact", file, *RULES[1:], *model_at(server), "-o", out)
        assert done.code == 0, done.err
        accepted = refold("accept", file, "--actor", "mika", "--json")
        assert len(server.received) == 1
    assert accepted.code == 0, accepted.err
    assert payload(file) == out.read_bytes()
    assert b"As it was agreed." in out.read_bytes()
    assert not (file.parent / "session.json.refold-draft").exists()
    acceptances = [row for row in rows(file) if row["action"] == "accept"]
    assert {row["actor"] for row in acceptances} == {"mika"}
    assert [(row["model"], row["calls"]) for row in acceptances if row["model"]] == [("small", 0)]
    assert accepted.json["sessions"][0]["tokens"]["after"] <= 20_000
    assert {row["edit"] for row in acceptances} == {
        edit["id"] for edit in accepted.json["sessions"][0]["edits"]
    }


def test_preview_and_accept_give_the_same_payload_as_compact(file, tmp_path) -> None:
    twin = tmp_path / "twin.json"
    twin.write_bytes(file.read_bytes())
    refold("compact", twin, "--to", "20k")
    preview(file)
    assert refold("accept", file).code == 0
    assert payload(file) == payload(twin)


def test_a_draft_is_accepted_after_the_session_has_grown(file, history) -> None:
    preview(file)
    longer = [
        *history,
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "And now?"},
    ]
    file.write_text(json.dumps(longer, ensure_ascii=False), "utf-8")
    done = refold("accept", file, "--json").json["sessions"][0]
    assert done["grown"] == 2
    assert json.loads(payload(file))[-2:] == longer[-2:]
    assert "are newer than the preview" not in refold("accept", file).out


def test_a_draft_for_another_history_is_refused_in_one_line(file, history) -> None:
    preview(file)
    changed = [{"role": "user", "content": "Something else."}, *history[1:]]
    file.write_text(json.dumps(changed, ensure_ascii=False), "utf-8")
    done = refold("accept", file)
    assert (done.code, done.out) == (2, "")
    assert (
        done.err
        == f"refold: the history in {file} has changed since the preview; preview it again\n"
    )
    assert refold("discard", file, "--json").json["sessions"][0]["discarded"] is True
    assert not (file.parent / "session.json.refold-draft").exists()


def test_a_draft_is_refused_in_one_line_if_the_edits_have_changed(file) -> None:
    preview(file)
    refold("compact", file, "--to", "40k", "--strategy", "ClearToolResults")
    done = refold("accept", file)
    assert done.code == 2
    assert (
        done.err
        == f"refold: the edits of {file} have changed since the preview; preview it again\n"
    )


def test_the_suggested_preview_command_is_quoted_for_the_shell(file, tmp_path) -> None:
    spaced = file.rename(tmp_path / "a b.json")
    assert f"refold compact '{spaced}' --preview makes one" in refold("accept", spaced).err


def test_without_a_draft_there_is_nothing_to_accept(file) -> None:
    done = refold("accept", file)
    assert done.code == 2
    assert "there is no draft of" in done.err
    assert done.err.count("\n") == 1
    assert refold("discard", file, "--json").json["sessions"][0]["discarded"] is False
    assert "no draft to discard" in refold("discard", file).out


def test_discard_drops_the_draft(file) -> None:
    preview(file)
    assert "the draft is discarded" in refold("discard", file).out
    assert refold("accept", file).code == 2
    assert [path.name for path in file.parent.iterdir() if "draft" in path.name] == []


def test_a_preview_of_a_session_that_fits_leaves_no_draft(file) -> None:
    preview(file)
    shown = preview(file, to="5M")
    assert shown["preview"]["draft"] == ""
    assert "already fits 5,000,000" in refold("compact", file, "--to", "5M", "--preview").out
    assert refold("accept", file).code == 2


def test_a_preview_that_can_save_nothing_leaves_no_draft(tmp_path) -> None:
    file = tmp_path / "short.json"
    file.write_text(json.dumps([{"role": "user", "content": "Why? " * 50}]), "utf-8")
    assert "there is nothing to accept" in refold("compact", file, "--to", "10", "--preview").out
    assert refold("accept", file).code == 2


def test_a_new_preview_replaces_the_earlier_draft(file) -> None:
    preview(file)
    later = preview(file, "--strategy", "ClearToolResults", to="40k")
    assert {
        edit["id"] for edit in refold("accept", file, "--json").json["sessions"][0]["edits"]
    } == {edit["id"] for edit in later["edits"]}


def test_drafts_of_several_sessions_share_a_store(tmp_path) -> None:
    for turns in (20, 30):
        (tmp_path / f"{turns}.json").write_text(json.dumps(demo_session(turns)))
    store = tmp_path / "edits.db"
    done = refold("compact", tmp_path, "--to", "8k", "--preview", "--store", store, "--json")
    assert {session["preview"]["draft"] for session in done.json["sessions"]} == {
        f"{store}.refold-draft"
    }
    refold("discard", tmp_path / "20.json", "--store", store)
    assert refold("accept", tmp_path / "20.json", "--store", store).code == 2
    accepted = refold("accept", tmp_path, "--store", store, "--json").json["sessions"]
    assert [session["path"] for session in accepted] == [str(tmp_path / "30.json")]
    assert not (tmp_path / "edits.db.refold-draft").exists()


def test_a_preview_waits_for_another_that_writes_its_draft_into_the_same_store(tmp_path) -> None:
    file, store = tmp_path / "session.json", tmp_path / "edits.db"
    file.write_text(json.dumps(demo_session(12)))
    drafts = tmp_path / "edits.db.refold-draft"
    words = ["compact", file, "--to", "10k", "--preview", "--store", store]
    with ThreadPoolExecutor() as threads:
        with lock(drafts):
            done = threads.submit(refold, *words)
            wait([done], timeout=2)
            assert not (done.done() or drafts.exists())
        assert done.result().code == 0
    assert len(read_drafts(drafts)) == 1
    assert not drafts.with_name(f"{drafts.name}.lock").exists()


def test_a_session_and_its_continuation_have_separate_drafts(tmp_path) -> None:
    """One may be a copy or a fork of the other: each has its own draft, whichever was made first."""
    store, long, short = tmp_path / "edits.refold", tmp_path / "long.json", tmp_path / "short.json"
    messages = demo_session(30)
    long.write_text(json.dumps(messages))
    short.write_text(json.dumps(messages[:-2]))
    for order in ((long, short), (short, long)):
        edits_of = {
            file: {edit["id"] for edit in preview(file, "--store", store, to="8k")["edits"]}
            for file in order
        }
        drafts = read_drafts(tmp_path / "edits.refold-draft")
        assert [draft.session[0] for draft in drafts] == [str(file) for file in order]
        assert [{edit.id for edit in draft.edits} for draft in drafts] == list(edits_of.values())
    accepted = refold("accept", long, "--store", store, "--json").json["sessions"][0]
    assert {edit["id"] for edit in accepted["edits"]} == edits_of[long]
    assert [draft.session[0] for draft in read_drafts(tmp_path / "edits.refold-draft")] == [
        str(short)
    ]


def test_a_draft_is_found_after_its_session_file_is_moved(file, tmp_path) -> None:
    store = tmp_path / "edits.db"
    preview(file, "--store", store)
    moved = file.rename(tmp_path / "elsewhere.json")
    assert refold("accept", moved, "--store", store).code == 0
    assert not (tmp_path / "edits.db.refold-draft").exists()


def test_a_preview_of_standard_input_needs_a_store(file) -> None:
    data = file.read_bytes()
    assert "name a --store" in refold("compact", "-", *RULES[1:], stdin=data).err
    store = file.parent / "edits.refold"
    assert refold("compact", "-", *RULES[1:], "--store", store, stdin=data).code == 0
    assert (file.parent / "edits.refold-draft").exists()
    assert refold("accept", "-", "--store", store, stdin=data).code == 0
    assert refold("view", file, "--store", store, "--json").json["sessions"][0]["tokens"] <= 20_000


@pytest.mark.parametrize(
    "text",
    ["nonsense", '{"refold":1}', '{"refold":1,"draft":{"tip":"a"}}', '{"refold":99,"draft":{}}'],
)
def test_a_damaged_draft_is_reported_in_one_line(text, file) -> None:
    path = file.parent / "session.json.refold-draft"
    path.write_text(text)
    done = refold("accept", file)
    assert done.code == 2
    assert str(path) in done.err
    assert done.err.count("\n") == 1
    with pytest.raises(StoreError, match="draft"):
        read_drafts(path)


# --- the editor ------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["EDITOR", "VISUAL"])
def test_the_user_edits_the_summary_before_it_is_kept(variable, file, editor) -> None:
    """S2-51: preview, show the summary, let the user edit it."""
    shown = preview(file)
    editor("'我自己的摘要。 Never touch migrations/.\\n'", variable=variable)
    done = refold("accept", file, "--edit", "--actor", "mika", "--json")
    assert done.code == 0, done.err
    text = payload(file).decode()
    assert "我自己的摘要。" in text
    assert shown["preview"]["summaries"][0]["text"].splitlines()[-1] not in text
    amended = [row for row in rows(file) if "amended by mika" in row["reason"]]
    assert [row["edit"] for row in amended] == [shown["preview"]["summaries"][0]["edit"]]
    assert [path.name for path in file.parent.iterdir() if "draft" in path.name] == []


def test_a_summary_can_be_edited_in_the_preview(file, editor) -> None:
    """S2-51"""
    editor("text.replace('As it was agreed.', 'Another plan.', 1)")
    with ScriptedProvider([SUMMARY]) as server:
        shown = preview(file, "--edit", *model_at(server))
    assert "Another plan." in shown["preview"]["summaries"][0]["text"]
    assert refold("accept", file).code == 0
    assert b"Another plan." in payload(file)


def test_an_unchanged_summary_is_kept_as_it_is(file, editor) -> None:
    out = file.parent / "previewed.json"
    refold("compact", file, *RULES[1:], "-o", out)
    editor("text + '\\n\\n'")
    assert refold("accept", file, "--edit").code == 0
    assert payload(file) == out.read_bytes()
    assert not any("amended" in row["reason"] for row in rows(file))


def test_who_amended_a_summary_twice_is_named_once(file, editor) -> None:
    editor("'Mine. Never touch migrations/.'")
    refold("compact", file, "--to", "10k", "--preview", "--edit", "--actor", "mika")
    editor("'Mine, again. Never touch migrations/.'")
    assert refold("accept", file, "--edit", "--actor", "mika").code == 0
    reasons = [row["reason"] for row in rows(file)]
    assert max(reason.count("amended by mika") for reason in reasons) == 1


@pytest.mark.parametrize("body", ["''", "' \\n\\n'"])
def test_an_empty_summary_saves_no_edit_and_keeps_the_draft(body, file, editor) -> None:
    preview(file)
    editor(body)
    done = refold("accept", file, "--edit")
    assert done.code == 1
    assert "left empty" in done.err
    assert edit_ids(file) == []
    assert refold("accept", file).code == 0
    editor(body)
    emptied = refold("compact", file, "--to", "10k", "--preview", "--edit")
    assert emptied.code == 1
    assert (file.parent / "session.json.refold-draft").exists()


def test_an_edited_summary_that_is_too_long_is_refused_and_kept_in_a_file(file, editor) -> None:
    preview(file)
    editor("'word ' * 80_000")
    done = refold("accept", file, "--edit")
    assert done.code == 2
    assert "not smaller" in done.err
    assert done.err.count("\n") == 1
    text_file = file.parent / "session.json.refold-draft.md"
    assert text_file.read_text("utf-8").startswith("word word")
    assert str(text_file) in done.err
    assert edit_ids(file) == []


def test_a_failing_editor_is_reported_in_one_line(file, editor) -> None:
    preview(file)
    editor("'x'", code=3)
    done = refold("accept", file, "--edit")
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert edit_ids(file) == []


def test_edit_without_an_editor_or_a_terminal_is_refused(file, monkeypatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    preview(file)
    done = refold("accept", file, "--edit")
    assert done.code == 2
    assert "$VISUAL or $EDITOR" in done.err


def test_edits_without_a_summary_have_nothing_to_edit(file, editor) -> None:
    editor("text")
    preview(file, "--strategy", "ClearToolResults")
    done = refold("accept", file, "--edit")
    assert done.code == 2
    assert "no summary is among these edits" in done.err
    assert refold("accept", file).code == 0


@pytest.mark.slow
def test_the_editor_opens_on_a_terminal(file, editor) -> None:
    editor("'Only this is left.'")
    out = run_on_terminal(["compact", file, *RULES[1:], "--edit"], PAGER="cat")
    assert b"Only this is left." in out
    assert b"leave it empty" in out


# --- history and going back ------------------------------------------------------------------


def test_history_lists_every_attempt(file, monkeypatch) -> None:
    """S2-53: every attempt with time, outcome, reason, tokens, calls, cost, model, prompt, grade and who."""
    monkeypatch.setenv("LOGNAME", "ada")
    assert "no compactions recorded" in refold("history", file).out
    refold(
        "compact",
        file,
        "--to",
        "10",
        "--strategy",
        "ClearThinking(keep=1)",
        "--strategy",
        "ClearToolInputs(keep=999)",
    )
    with ScriptedProvider([SUMMARY]) as server:
        refold(
            "compact", file, *RULES[1:], *model_at(server), "--model-price", "1,2", "--actor", "ben"
        )
    refold("accept", file, "--actor", "cleo")
    attempts = rows(file)
    assert {(row["action"], row["actor"]) for row in attempts} == {
        ("compact", "ada"),
        ("preview", "ben"),
        ("accept", "cleo"),
    }
    assert {"applied", "noop"} <= {row["outcome"] for row in attempts}
    (asked,) = (row for row in attempts if row["calls"])
    assert (asked["model"], asked["calls"]) == ("small", 1)
    assert asked["cost"] == pytest.approx((100 * 1 + 20 * 2) / 1e6)
    assert asked["prompt"].startswith("summary@")
    assert asked["before"] > asked["after"]
    assert sum(row["cost"] for row in attempts) == asked["cost"]
    out = refold("history", file).out
    for words in (
        "by ada",
        "by ben",
        "by cleo",
        "noop",
        "model small",
        "1 call, $0.0001",
        "lossy",
        "ClearThinking(keep=1)",
    ):
        assert words in out


def test_every_edit_of_a_compaction_has_a_row_in_the_ledger(file) -> None:
    """S2-53: those of local strategies too, which are kept here."""
    done = refold(
        "compact",
        file,
        "--to",
        "60k",
        "--strategy",
        "ClipResults(limit=400)",
        "--strategy",
        "ClearToolResults",
        "--json",
    )
    edits = {edit["id"] for edit in done.json["sessions"][0]["edits"]}
    assert {row["edit"] for row in rows(file) if row["edit"]} == edits


def test_revert_before_an_edit_removes_it_and_all_later_edits(file, history) -> None:
    """S2-53 (回溯): it and all that was made after it go; then all go."""
    refold("compact", file, "--to", "60k", "--strategy", "ClearToolResults", "--actor", "ada")
    first, shown = edit_ids(file), payload(file)
    refold("compact", file, "--to", "20k")
    later = [row["edit"] for row in rows(file) if row["edit"] and row["edit"] not in first]
    done = refold("revert", file, "--before", later[0][:10], "--actor", "ben", "--json").json[
        "sessions"
    ][0]
    assert set(later) == {edit["id"] for edit in done["reverted"]}
    assert payload(file) == shown
    assert edit_ids(file) == first
    assert refold("revert", file, "--actor", "ben").code == 0
    assert json.loads(payload(file)) == history
    gone = [row for row in rows(file) if row["action"] == "revert"]
    assert {row["actor"] for row in gone} == {"ben"}
    assert {row["edit"] for row in gone} == {*first, *later}


def test_signed_thinking_that_followed_an_edit_is_removed_when_it_is_reverted(
    file, history
) -> None:
    """S2-53: what was signed while an edit showed is bound to it, so it goes with the edit (AN-7)."""
    refold("compact", file, "--to", "20k")
    signed = {"type": "thinking", "thinking": "Now that I have the summary", "signature": "c2ln"}
    answer = {"role": "assistant", "content": [signed, {"type": "text", "text": "Done."}]}
    longer = [
        *history,
        answer,
        {"role": "user", "content": "Thanks."},
    ]  # a turn that is over: no model is named here (F14)
    file.write_text(json.dumps(longer, ensure_ascii=False), "utf-8")
    assert b"Now that I have the summary" in payload(file)
    assert refold("revert", file).code == 0
    assert b"Now that I have the summary" not in payload(file)
    assert json.loads(payload(file))[0] == history[0]


def test_b7_edits_that_must_stay_are_reported_and_not_recorded_as_reverted(file) -> None:
    """A second revert told of nothing and wrote that it took back what stood there again."""
    whole = demo_session(40)
    refold("compact", file, "--to", "20k")
    file.write_text(json.dumps(whole), "utf-8")
    done = refold("revert", file)
    staying = [
        edit["id"] for edit in refold("revert", file, "--json").json["sessions"][0]["staying"]
    ]
    assert staying == edit_ids(file)
    why = f"{len(staying)} edits must stay: they drop signed thinking"
    assert why in done.out and "AN-7" in done.out
    again = refold("revert", file).out
    assert "no edits to revert" in again and why in again
    assert not {row["edit"] for row in rows(file) if row["action"] == "revert"} & set(staying)


def test_b7_a_torn_line_of_the_ledger_is_reported(file) -> None:
    refold("compact", file, "--to", "20k")
    store = file.with_name("session.json.refold")
    store.write_bytes(store.read_bytes()[:-200])
    torn = "session.json.refold: line 2: cut off"
    done = refold("revert", file, "--json")
    assert torn in done.err
    (problem,) = done.json["sessions"][0]["problems"]
    assert torn in problem["text"]
    assert torn in refold("stats", file).err
    assert refold("stats", file, "--store", store).err.count(torn) == 1


def test_reverting_one_edit_gives_the_same_payload_as_the_library(file) -> None:
    """S2-53: `refold revert` and `Compactor.revert` come to the same."""
    refold("compact", file, "--to", "20k")
    twin = file.parent / "twin.refold"
    twin.write_bytes((file.parent / "session.json.refold").read_bytes())
    (summary,) = (row["edit"] for row in rows(file) if "Summarize" in row["by"] and row["edit"])
    assert refold("revert", file, summary).code == 0
    compactor = Compactor((), Budget(10**9, 0), SidecarStore(twin))
    assert compactor.revert(file.read_bytes(), summary).payload == payload(file)


@pytest.mark.parametrize(
    "arguments",
    [
        ["compact", "FILE", "--to", "1k", "--preview", "--dry-run"],
        ["compact", "FILE", "--to", "1k", "--edit"],
        ["compact", "FILE", "--to", "1k", "--price", "3"],
        ["compact", "FILE", "--to", "1k", "--preview", "--price", "-3"],
        ["compact", "FILE", "--to", "1k", "-o", "session.json.refold"],
        ["revert", "FILE", "abc", "--before", "abc"],
        ["revert", "FILE", "--before", "abc"],
        ["accept"],
        ["history", "nowhere.json"],
    ],
)
def test_misuse_is_reported_in_one_line(arguments, file, monkeypatch) -> None:
    monkeypatch.chdir(file.parent)
    done = refold(*("session.json" if word == "FILE" else word for word in arguments))
    assert done.code == 2
    assert done.err.startswith("refold: ")
    assert done.err.count("\n") == 1
    assert digest(file)


@pytest.mark.parametrize("command", ["accept", "history", "discard"])
def test_commands_take_directories_and_print_json(command, tmp_path) -> None:
    for n in (20, 30):
        (tmp_path / f"{n}.json").write_text(json.dumps(demo_session(n)))
    refold("compact", tmp_path, "--to", "8k", "--preview")
    document = refold(command, tmp_path, "--json").json
    assert set(document) == {"sessions", "skipped"}
    assert len(document["sessions"]) == 2


def test_a_draft_with_an_edit_that_does_not_apply_is_refused_whole(file) -> None:
    """What cannot be applied to the session as it is now is refused whole; edits of others stay."""
    refold("compact", file, "--to", "24k")
    before = edit_ids(file)
    assert before
    preview(file, to="8k")
    text = (file.parent / "session.json.refold-draft").read_text("utf-8")
    document = json.loads(text)
    crossing = Edit(1, 3, (), document["draft"]["edits"][0]["tip"], "someone")
    document["draft"]["edits"].append(
        {"start": 1, "stop": 3, "tip": crossing.tip, "by": "someone", "insert": []}
    )
    (file.parent / "session.json.refold-draft").write_text(json.dumps(document), "utf-8")
    done = refold("accept", file)
    assert done.code == 2
    assert "another history" in done.err
    assert edit_ids(file) == before


@pytest.mark.parametrize(
    "name",
    [
        "datasets/claude_code_spotter/tool_heavy.jsonl",
        "datasets/codemie_multi_cli/metrics__fixtures__gemini__session-2025-12-01T21-45-5b959dae.json",
        "datasets/openhands_sdk_llmlogs/nonfncall-llm-message.json",
        "datasets/codemie_multi_cli/session__fixtures__claude__incremental-subagents__turn-2.jsonl",
    ],
)
def test_recorded_sessions_are_previewed_accepted_and_reverted_to_the_byte(
    name, shared, tmp_path
) -> None:
    """S2-51 S2-53: on sessions of real clients, in their formats."""
    file, store, out = shared / name, tmp_path / "edits.db", tmp_path / "out.json"
    unedited, tokens = payload(file), refold("view", file, "--json").json["sessions"][0]["tokens"]
    done = refold(
        "compact", file, "--to", max(500, tokens // 3), "--preview", "--store", store, "-o", out
    )
    assert done.code == int("not met" in done.out), done.err
    assert payload(file, "--store", store) == unedited != out.read_bytes()
    assert refold("accept", file, "--store", store).code == 0
    assert payload(file, "--store", store) == out.read_bytes()
    assert refold("revert", file, "--store", store).code == 0
    assert payload(file, "--store", store) == unedited


@pytest.mark.parametrize("to", ["5k", "20k", "30k"])
def test_f17_figures_of_preview_accept_history_and_revert_agree(file, history, to) -> None:
    """Law: what is accepted is what was previewed, undoing gives back what was, an edit hides at most what the session has,
    and each row of the ledger begins with what the one before it left. (The first row of a preview begins with what
    local strategies had left, and says so.)"""
    file.write_text(
        json.dumps({"model": "m", "system": "Be brief. " * 90, "messages": history}), "utf-8"
    )
    draft = preview(file, to=to)
    shown, stats = draft["tokens"], refold("stats", file, "--json").json["sessions"][0]["tokens"]
    assert (
        sum(strategy["saved"] for strategy in draft["strategies"])
        == shown["before"] - shown["after"]
    ), "what a summary took over from edits at first sight was nobody's"
    assert stats["unedited"] == stats["sent"] == shown["before"] == shown["unedited"]
    accepted = refold("accept", file, "--json").json["sessions"][0]
    assert accepted["tokens"] == {"before": shown["before"], "after": shown["after"]}
    assert all(edit["saved"] <= shown["unedited"] for edit in accepted["edits"])
    now = refold("stats", file, "--json").json["sessions"][0]["tokens"]
    assert (now["unedited"], now["sent"]) == (shown["unedited"], shown["after"])
    assert sum(
        edit["saved"] for edit in refold("stats", file, "--json").json["sessions"][0]["edits"]
    ) == (now["unedited"] - now["sent"])
    back = refold("revert", file, "--json").json["sessions"][0]["tokens"]
    assert back == {"before": shown["after"], "after": shown["before"]}
    for action, tokens in (
        ("accept", (shown["before"], shown["after"])),
        ("revert", (shown["after"], shown["before"])),
    ):
        chain = [row for row in rows(file) if row["action"] == action]
        assert (chain[0]["before"], chain[-1]["after"]) == tokens, action
        assert all(row["after"] == following["before"] for row, following in pairwise(chain)), (
            action
        )
    tried = [row for row in rows(file) if row["action"] == "preview"]
    began = tried[0]["before"]
    assert began <= shown["before"] and tried[-1]["after"] == shown["after"]
    before = f"{shown['before']:,} tokens unedited, {began:,} with edits made before"
    assert (before in refold("history", file).out) == (began < shown["before"])


def test_two_compactions_with_the_same_time_are_reverted_one_by_one(file) -> None:
    """By the time alone `--newest` took both."""
    refold("compact", file, "--to", "20k")
    first = edit_ids(file)
    refold("compact", file, "--to", "8k")
    store = file.with_name(f"{file.name}.refold")
    store.write_text(re.sub(r'"when": ?[\d.]+', '"when":1.0', store.read_text("utf-8")), "utf-8")
    assert first and edit_ids(file) != first
    refold("revert", file, "--newest")
    assert edit_ids(file) == first
