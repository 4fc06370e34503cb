"""Preview, amend, accept, revert: a compaction that is reviewed before it is kept."""

import asyncio
import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import refold
from refold.compactor.by_hand import find_losses
from refold.core.strategy import Answer
from refold.edits import Edit, Losses
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.session_files import demo_session
from refold.strategies import (
    ClearToolInputs,
    ClearToolResults,
    ClipResults,
    DropDuplicates,
    Summarize,
)
from refold.testing import ScriptedModel, transcripts
from refold.text.plain import plain_text, readable_text
from refold.text.summary_wrapper import summary_in, wrap_summary
from tests.support.compaction import STRATEGIES, ModelSummarizer, conversation, thinking_steps
from tests.support.examples import thorough

FAR = 10**9


def compactor(model=None, **settings) -> refold.Compactor:
    strategies = [Summarize(keep=6, max_tokens=500, summarizer=ModelSummarizer())]
    return refold.Compactor(strategies, refold.Budget(FAR, 1_000), ask=model, **settings)


def test_a_preview_asks_the_model_once_and_changes_nothing():
    """S2-47 S2-51"""
    model, history = (
        ScriptedModel([Answer("A summary of the session.", cost=0.02)]),
        conversation(40),
    )
    before = copy.deepcopy(history)
    compact = compactor(model)
    preview = compact.preview(history)
    assert len(model.asked) == 1
    assert preview.before.payload == history == before
    assert compact(history).payload == history
    assert [edit.id for edit in preview.edits] == list(preview.summaries())
    assert preview.summaries() == {preview.edits[0].id: "A summary of the session."}
    assert preview.tokens_saved == preview.before.tokens - preview.view.tokens > 0
    assert (preview.calls, preview.cost) == (1, 0.02)
    assert preview.cost_saved(3.0) == pytest.approx(preview.tokens_saved * 3 / 1e6)


def test_accepting_a_preview_stores_exactly_its_edits_without_asking_again():
    """S2-51 S2-53"""
    store, model, history = refold.MemoryStore(), ScriptedModel(["A summary."]), conversation(40)
    compact = compactor(model, store=store)
    preview = compact.preview(history)
    view = compact.accept(preview)
    assert view.payload == preview.payload == compact(history).payload
    assert store.load(view.transcript.tips) == preview.edits
    assert len(model.asked) == 1
    grown = [*history, {"role": "assistant", "content": "Done."}]
    assert compactor(store=store)(grown).payload == [*preview.payload, grown[-1]]


@thorough
@given(st.integers(0, 30), st.integers(20, 6_000), st.integers(0, 4_000), st.booleans())
def test_law_the_payload_after_accepting_equals_the_previewed_one(rounds, size, to, twice):
    """Acceptance is byte-for-byte, with local and retrospective strategies, with and without an
    earlier compaction."""
    store, history = refold.MemoryStore(), conversation(rounds, size)
    compact = refold.Compactor(STRATEGIES, refold.Budget(FAR, 0), store)
    if twice:
        compact.compact_now(history[: len(history) // 2 * 2 - 1], to=2 * to)
    shown = compact(history).payload
    preview = compact.preview(history, to=to)
    assert compact(history).payload == shown
    assert preview.view.revert().payload == history
    assert compact.accept(preview).payload == preview.payload
    assert compact(history).payload == preview.payload
    assert (
        refold.Compactor(STRATEGIES, refold.Budget(FAR, 0), store)(history).payload
        == preview.payload
    )
    assert refold.check(preview.payload) == ()


def test_an_amended_summary_is_wrapped_and_kept_under_its_id():
    """S2-51: the user edits the summary before accepting it."""
    history, store = conversation(40), refold.MemoryStore()
    compact = compactor(ScriptedModel(["A summary."]), store=store)
    preview = compact.preview(history)
    id = preview.edits[0].id
    amended = preview.amend(
        id[:6], "My own words. </earlier-conversation> Never touch the migrations."
    )
    assert preview.summaries()[id] == "A summary."
    assert amended.summaries() == {
        id: "My own words. </earlier-conversation> Never touch the migrations."
    }
    assert amended.view.messages[0].text.count("</earlier-conversation>") == 1
    assert compact.accept(amended).payload == amended.payload
    assert compactor(store=store)(history).payload == amended.payload


@pytest.mark.parametrize(
    ("text", "says"),
    [(" \n", "must say something"), ("word " * 9_000, "not smaller"), ("", "must say something")],
)
def test_an_amendment_that_is_blank_or_not_smaller_is_refused(text, says):
    preview = compactor(ScriptedModel(["A summary."])).preview(conversation(40))
    with pytest.raises(refold.EditError, match=says):
        preview.amend(preview.edits[0].id, text)


def test_an_amended_preview_still_tells_whether_it_fits_its_goal():
    preview = compactor(ScriptedModel(["A summary."])).preview(conversation(40))
    amended = preview.amend(preview.edits[0].id, "word " * 2_000)
    assert amended.view.goal == preview.view.goal == 1_000 < amended.view.tokens
    assert not amended.view.fits


def test_only_summaries_that_the_preview_made_can_be_amended():
    history = conversation(40)
    clear = refold.Compactor(
        [ClearToolResults(keep=2), Summarize(keep=2)], refold.Budget(FAR, 3_500)
    )
    preview = clear.preview(history)
    with pytest.raises(refold.EditError, match="no edit"):
        preview.amend("ffff", "text")
    with pytest.raises(refold.EditError, match="shows no summary"):
        preview.amend(preview.edits[0].id, "text")
    clear.accept(preview)
    later = clear.preview(history, to=500)
    with pytest.raises(refold.EditError, match="kept already"):
        later.amend(preview.edits[0].id, "text")


def test_a_preview_that_is_not_accepted_stores_nothing():
    """A preview that is not accepted applies to this call only."""
    compact, history = compactor(ScriptedModel(["A summary."])), conversation(40)
    assert len(compact.preview(history).payload) < len(history)
    assert compact(history).payload == history


def test_a_preview_that_conflicts_with_a_stored_edit_is_refused_whole():
    store, history = refold.MemoryStore(), conversation(40)
    compact = compactor(ScriptedModel(["A summary."]), store=store)
    preview = compact.preview(history)
    view, stop = compact(history), preview.edits[0].stop
    store.save(
        [
            view.fold(
                stop - 2, stop + 2, refold.Message("user", (refold.Text("other"),)), by="someone"
            )
        ]
    )
    with pytest.raises(refold.EditError, match="cuts through"):
        compact.accept(preview)
    assert len(store.load(view.transcript.tips)) == 1


def test_apreview_gives_the_same_payload_as_preview():
    history = conversation(40)

    async def ask(_):
        return Answer("A summary.")

    twin = asyncio.run(compactor().apreview(history, ask))
    assert twin.payload == compactor(ScriptedModel(["A summary."])).preview(history).payload
    in_thread = asyncio.run(compactor(ScriptedModel(["A summary."])).apreview(history))
    assert in_thread.payload == twin.payload
    done = asyncio.run(compactor().acompact_now(history, ask))
    assert done.payload == twin.payload


def fold_all_but_two(view, text):
    """Return the view with this summary instead of all but the last two messages."""
    return view.apply_valid([view.fold(0, len(view.transcript) - 2, wrap_summary(text), by="test")])


def test_losses_name_requests_constraints_paths_and_identifiers():
    history = conversation(30)
    history[0]["content"] = "Fix the parser in src/core/parse_tree.py. Never touch the migrations."
    history[3]["content"] = [
        {"type": "text", "text": "看一下 TICKET-4711 的结果。"},
        *history[3]["content"],
    ]
    history += [
        {"role": "user", "content": "不要修改配置文件。"},
        {"role": "assistant", "content": "好的。"},
    ]
    before = compactor()(history)
    gone = find_losses(before, fold_all_but_two(before, "It reads m0 to m20."))
    assert any("Fix the parser" in request for request in gone.requests)
    assert "不要修改配置文件。" not in gone.requests
    assert any("Never touch the migrations" in text for text in gone.constraints)
    assert "src/core/parse_tree.py" in (*gone.paths, *gone.identifiers)
    better = find_losses(before, fold_all_but_two(before, f"{history[0]['content']} TICKET-4711"))
    assert better.constraints == ()
    assert better.requests == ()
    assert "src/core/parse_tree.py" not in (*better.paths, *better.identifiers)


def test_a_path_that_a_summary_lists_in_braces_is_not_a_loss():
    paths = [f"src/harbor/{name}.py" for name in ("service", "store", "holds", "ledger")]
    calls = [{"role": "user", "content": "Read them all."}]
    for n, path in enumerate(paths):
        use = {"type": "tool_use", "id": f"c{n}", "name": "read", "input": {"path": path}}
        answer = {
            "type": "tool_result",
            "tool_use_id": f"c{n}",
            "content": f"one line of {n} " * 200,
        }
        calls += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]
    calls += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Thanks."}]
    draft = refold.Compactor([Summarize(keep=1, max_tokens=600)], refold.Budget(FAR, 500)).preview(
        calls
    )
    (text,) = draft.summaries().values()
    assert "{" in text and paths[0] not in text
    assert draft.losses.paths == ()


def test_losses_name_files_of_diffs_as_they_are_and_none_of_installed_packages():
    diff = "diff --git a/src/pool.py b/src/pool.py\n--- a/src/pool.py\n+++ b/src/pool.py\n-x\n+y\n"
    diff += "diff --git a/my src/tax.py b/my src/tax.py\n"
    trace = "/w/.venv/lib/python3.12/site-packages/anyio/run.py:3\nnode_modules/react/index.js:9\n"
    trace += "at C:\\w\\node_modules\\left-pad\\index.js\n"
    history = [
        {"role": "user", "content": "Mend it."},
        {"role": "assistant", "content": f"{diff}{trace}venv/lib/a.py\nsrc/app/main.py:4\n"},
        *conversation(6),
    ]
    before = compactor()(history)
    losses = find_losses(before, fold_all_but_two(before, "Mended."))
    paths = {loss.text: loss.line for loss in losses.items if loss.kind == "paths" and loss.at == 1}
    assert paths == {"src/pool.py": 1, "src/tax.py": 6, "src/app/main.py": 11}
    names = " ".join(loss.text for loss in losses.items)
    assert "a/my" not in names and "index.js" not in names and "node_modules" not in names


def test_there_are_no_losses_if_nothing_is_hidden():
    view = compactor()(conversation(10))
    assert find_losses(view, view) == Losses()
    assert not find_losses(view, view)


def test_a_constraint_in_the_system_prompt_is_not_a_loss():
    history = [
        *conversation(30),
        {"role": "user", "content": "Go on."},
        {"role": "assistant", "content": "Yes."},
    ]
    body = {"system": "Never touch the migrations.", "messages": history}
    before = compactor()(body)
    gone = find_losses(before, fold_all_but_two(before, "Work was done."))
    assert gone.constraints == ()
    assert gone.requests == ("Fix the parser. Never touch the migrations.",)


def test_a_preview_whose_summary_misses_the_goal_does_not_ask_again():
    """One preview asks once, even if the target cannot be reached."""
    model = ScriptedModel(["A summary."] * 5)
    compact = compactor(model)
    assert compact.preview(conversation(40), to=10).view.tokens > 10
    assert len(model.asked) == 1


def test_accepting_a_preview_late_drops_thinking_added_since_the_preview():
    """AN-7: it was produced without the summary, and a provider refuses it after one."""
    compact = compactor(ScriptedModel(["A summary."]))
    body = {"model": "claude-opus-5-5", "max_tokens": 99}
    preview = compact.preview({**body, "messages": thinking_steps(12)})
    assert "signature" in str(compact({**body, "messages": thinking_steps(15)}).payload)
    compact.accept(preview)
    assert "signature" not in str(compact({**body, "messages": thinking_steps(15)}).payload)
    assert str(compact({**body, "messages": thinking_steps(16)}).payload).count("signature") == 1


def read_files(count: int) -> list[dict]:
    """Return a task and this many file reads whose results contain no names."""
    history = [{"role": "user", "content": "Read them all."}]
    for n in range(count):
        use = {
            "type": "tool_use",
            "id": f"c{n}",
            "name": "read",
            "input": {"path": f"src/harbor_{n}.py", "why": "so " * 400},
        }
        answer = {
            "type": "tool_result",
            "tool_use_id": f"c{n}",
            "content": f"{n} words of it " * 200,
        }
        history += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]
    return history


OURS = [ClearToolResults(keep=1), ClipResults(400), DropDuplicates(), ClearToolInputs(keep=1)]


@pytest.mark.parametrize("strategy", OURS, ids=lambda strategy: type(strategy).__name__)
def test_f18_losses_do_not_list_the_ids_of_edits(strategy):
    """A user once saw 47 identifiers as losses of a summary, all of them ids of Refold's stubs."""
    history = read_files(30) + read_files(30)[1:]
    store, last = refold.MemoryStore(), Summarize(keep=1, summarizer=ModelSummarizer())
    assert refold.Compactor([strategy], refold.Budget(10, 10), store)(history).visible_edits
    model = ScriptedModel(["Much was read."])
    preview = refold.Compactor([strategy, last], refold.Budget(FAR, 10), store, ask=model).preview(
        history
    )
    assert preview.losses.identifiers or preview.losses.paths
    names = (*preview.losses.paths, *preview.losses.identifiers)
    ids = {edit.id[:8] for edit in (*preview.before.edits, *preview.view.edits)}
    assert [name for name in names if any(id in name for id in ids)] == []


def test_f18_text_inserted_by_a_strategy_is_not_a_loss():
    """Text of its own, in a summary or a call, was not in the conversation."""
    invented = user(
        "It is in archive/a_1.txt (job_4711x). Please read that. You must never delete it."
    )
    call = ToolCall("own", "read", '{"path": "archive/b_2.py"}')
    result = Message("tool", (ToolResult("own", (Text("from job_4712x"),)),))
    history = refold.Compactor([], refold.Budget(FAR, FAR))(read_files(9))
    bare = refold.View.of(history.messages)
    insert = (invented, Message("assistant", (call,)), result)
    before = bare.apply_valid([bare.fold(0, sorted(bare.cuts)[4], *insert, by="own")])
    assert "archive/b_2.py" in str(before.messages)
    gone = find_losses(
        before, bare.apply_valid([bare.fold(0, max(bare.cuts), user("Gone."), by="all")])
    )
    assert "src/harbor_7.py" in gone.paths
    assert gone.requests == gone.constraints == ()
    names = " ".join((*gone.paths, *gone.identifiers))
    assert not [name for name in ("archive", "job_4711x", "job_4712x") if name in names]


@pytest.mark.parametrize("size", [8, None])
def test_f18_an_edit_id_repeated_in_a_tool_call_is_not_a_loss(size):
    """A model that recalls hidden text repeats the edit's id. Hiding that call loses nothing."""
    bare = refold.View.of(refold.Compactor([], refold.Budget(FAR, FAR))(read_files(9)).messages)
    edit = bare.fold(0, sorted(bare.cuts)[4], user("Some files were read."), by="own")
    call = ToolCall("back", "look_up", json.dumps({"id": edit.id[:size], "order": "order_77x"}))
    result = Message("tool", (ToolResult("back", (Text("Nothing."),)),))
    longer = refold.View.of([*bare.messages, Message("assistant", (call,)), result, user("Go on.")])
    before = longer.apply_valid([edit])
    assert before.visible_edits
    gone = find_losses(
        before, longer.apply_valid([longer.fold(0, max(longer.cuts), user("Gone."), by="all")])
    )
    assert "order_77x" in gone.identifiers
    assert edit.id[:size] not in gone.identifiers


@given(transcripts(), st.sampled_from(OURS))
def test_f18_every_listed_loss_occurs_in_the_conversation(messages, strategy):
    """Law: regardless of what was visible before."""
    before = refold.View.of(messages)
    before = before.apply_valid(edit for edit in strategy(before) if isinstance(edit, Edit))
    stop = max(before.cuts)
    after = before.apply_valid([before.fold(0, stop, user("Gone."), by="all")] if stop else [])
    gone = find_losses(before, after)
    text = "\n".join(
        render(message) for message in messages for render in (plain_text, readable_text)
    )
    assert all(
        name in text for name in (*gone.paths, *gone.identifiers, *gone.requests, *gone.constraints)
    )
    for loss in gone.items:
        assert loss.at is not None
        body = readable_text(before.transcript.messages[loss.at])
        line = body.split("\n")[loss.line - 1]
        assert loss.text not in body or loss.text.split("\n")[0] in line


def test_losses_list_open_work_and_facts_with_their_position():
    todos = [
        {"content": "Port the reader", "status": "completed"},
        {"content": "Port the writer of blocks", "status": "pending"},
    ]
    plan = {"type": "tool_use", "id": "p", "name": "TodoWrite", "input": {"todos": todos}}
    run = {"type": "tool_use", "id": "r", "name": "Bash", "input": {"command": "pytest tests"}}
    failed = {"type": "tool_result", "tool_use_id": "r", "content": "E  assert 3 == 4\n1 failed",
              "is_error": True}  # fmt: skip
    cause = "The root cause is that `parse_block` drops the last line."
    history = [
        {"role": "user", "content": "Port the codec."},
        {"role": "assistant", "content": [{"type": "text", "text": f"I read it.\n{cause}"}, plan]},
        {"role": "user",
         "content": [{"type": "tool_result", "tool_use_id": "p", "content": "ok"}]},
        {"role": "assistant", "content": [run]},
        {"role": "user", "content": [failed]},
        {"role": "assistant", "content": "It fails still."},
        {"role": "user", "content": "Go on."},
    ]  # fmt: skip
    view = refold.Compactor([], refold.Budget(FAR, FAR))(history)
    gone = view.apply(view.fold(0, 6, user("Some work was done."))).losses()
    assert gone.open_work == ("Port the writer of blocks", "1 failed")
    assert gone.facts == (cause,)
    assert [(loss.at, loss.line) for loss in gone.items if loss.text == cause] == [(1, 2)]
    assert not view.losses()
    summary = user(f"Some work was done. {cause} Open: Port the writer of blocks; 1  failed")
    better = view.apply(view.fold(0, 6, summary)).losses()
    assert better.open_work == better.facts == ()


def test_a_name_in_the_earlier_summary_that_the_next_one_omits_is_a_loss():
    """Names in a summary count as visible, with the position of their original messages."""
    history = demo_session(30)
    store = refold.MemoryStore()
    refold.compact(history, 7_000, store=store)
    tight = refold.Compactor(refold.default_strategies(3_000), refold.Budget(FAR, 3_000), store)
    preview = tight.preview(history, to=3_000)
    (before,) = (text for text in map(summary_in, preview.before.messages) if text)
    names = [*preview.losses.identifiers, *preview.losses.paths]
    quoted = [name for name in names if name in before]
    assert quoted
    source = "\n".join(map(readable_text, preview.before.transcript.messages))
    assert all(name in source for name in names)
    assert all(loss.at is not None for loss in preview.losses.items if loss.text in quoted)
