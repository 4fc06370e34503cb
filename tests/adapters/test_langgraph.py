"""Compaction as a node of a LangGraph graph, against LangGraph itself."""

import asyncio
import pickle
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from refold import Budget, Compactor, FormatError, MemoryStore, SQLiteStore, StoreError, check
from refold.adapters import langchain
from refold.adapters.langgraph import (
    LLM_INPUT_KEY,
    CompactedState,
    apply_removals,
    compact_and_discard_node,
    compact_node,
    messages_of,
    replace_messages,
)
from refold.strategies import Summarize
from refold.text.summary_wrapper import summary_in


def history(rounds=12):
    out = [HumanMessage("Mend the build.", id="h")]
    for n in range(rounds):
        out.append(
            AIMessage("", tool_calls=[{"name": "make", "args": {}, "id": f"c{n}"}], id=f"a{n}")
        )
        out.append(ToolMessage("line of output\n" * 60, tool_call_id=f"c{n}", id=f"t{n}"))
    return out


def compactor():
    return Compactor([Summarize(keep=4)], Budget(1_500, 1_000), format=langchain)


def graph(state, node):
    return StateGraph(state).add_node("compact", node).add_edge(START, "compact").compile()


@pytest.mark.parametrize("colour", ["invoke", "ainvoke"])
def test_a_node_replaces_the_messages_of_a_state(colour):
    """S0-02: kept messages keep their ids; the reducer removes and appends."""
    compiled = graph(MessagesState, compact_and_discard_node(compactor()))
    state = {"messages": history()}
    end = compiled.invoke(state) if colour == "invoke" else asyncio.run(compiled.ainvoke(state))
    messages = end["messages"]
    assert summary_in(langchain.decode(messages[0], ())) is not None
    assert [m.id for m in messages[-4:]] == ["a10", "t10", "a11", "t11"]
    assert check(messages, langchain) == ()
    again = compiled.invoke(end)
    assert again["messages"] == messages


@pytest.mark.parametrize("colour", ["invoke", "ainvoke"])
def test_a_state_keeps_all_messages_beside_the_compacted_view(colour):
    """S0-02: what a `pre_model_hook` returns."""
    compiled, state = graph(CompactedState, compact_node(compactor())), {"messages": history()}
    end = compiled.invoke(state) if colour == "invoke" else asyncio.run(compiled.ainvoke(state))
    assert end["messages"] == history()
    assert len(end[LLM_INPUT_KEY]) < 10
    assert end[LLM_INPUT_KEY][-1] == end["messages"][-1]


def agent(place: Path, checkpoints: bytes = b""):
    """An agent's graph with its edits in a file and these checkpoints, as a new process makes it."""
    compact = Compactor(
        [Summarize(keep=4)], Budget(1_500, 1_000), SQLiteStore(place / "edits.db"), format=langchain
    )

    def answer(state):
        return {
            "messages": [
                AIMessage(f"Seen {len(state[LLM_INPUT_KEY])} of {len(state['messages'])}.")
            ]
        }

    saver = InMemorySaver()
    for table, rows in zip(
        tables(saver), pickle.loads(checkpoints) if checkpoints else (), strict=False
    ):
        table.update(rows)
    nodes = StateGraph(CompactedState).add_sequence(
        [("compact", compact_node(compact)), ("model", answer)]
    )
    return compact, nodes.add_edge(START, "compact").compile(checkpointer=saver), saver


def tables(saver: InMemorySaver):
    return saver.storage, saver.writes, saver.blobs


def test_f20_the_original_messages_survive_a_restart(tmp_path):
    """The default node left 6 of 62 messages in the state; what was said was in no file any more."""
    at = {"configurable": {"thread_id": "t"}}
    originals = [*history(30), HumanMessage("And now?", id="last")]
    _, graph, saver = agent(tmp_path)
    first = graph.invoke({"messages": originals}, at)
    assert len(originals) == 62 and len(first[LLM_INPUT_KEY]) < 10
    checkpoints = pickle.dumps([dict(table) for table in tables(saver)])

    compact, graph, _ = agent(tmp_path, checkpoints)  # another process
    state = graph.get_state(at).values
    assert state["messages"][:62] == originals
    view = compact(state["messages"])
    assert (
        view.visible_edits and view.payload[: len(first[LLM_INPUT_KEY])] == first[LLM_INPUT_KEY]
    ), "the same edits show"
    assert (
        view.unfold(view.visible_edits[0].edit.id) == originals[: view.visible_edits[0].edit.stop]
    )
    assert compact.revert(state["messages"]).payload == state["messages"]
    then = graph.invoke({"messages": [HumanMessage("Go on.", id="more")]}, at)
    assert then["messages"][:62] == originals and then["messages"][-2].id == "more"


@pytest.mark.parametrize("into", ["", "messages"])
def test_f20_compact_node_refuses_to_replace_messages_and_names_the_other_node(into):
    with pytest.raises(ValueError, match="compact_and_discard_node"):
        compact_node(compactor(), into=into)
    assert "originals are lost" in compact_and_discard_node.__doc__


def test_no_message_is_changed_below_the_trigger():
    assert compact_and_discard_node(compactor()).invoke({"messages": history(1)}) == {
        "messages": []
    }
    assert compact_node(compactor()).invoke({"messages": history(1)}) == {LLM_INPUT_KEY: history(1)}


class BrokenStore(MemoryStore):
    """A store whose disk is full."""

    def load(self, tips):
        raise StoreError("the disk is full")


@pytest.mark.parametrize("node", [compact_node, compact_and_discard_node])
@pytest.mark.parametrize("colour", ["invoke", "ainvoke"])
def test_a_failing_store_does_not_stop_the_graph(node, colour, caplog):
    """Nothing is compacted, the model gets all there is, and the log says why."""
    compact = Compactor([Summarize(keep=4)], Budget(1_500, 1_000), BrokenStore(), format=langchain)
    compiled, state = graph(CompactedState, node(compact)), {"messages": history()}
    end = compiled.invoke(state) if colour == "invoke" else asyncio.run(compiled.ainvoke(state))
    assert end["messages"] == end.get(LLM_INPUT_KEY, end["messages"]) == history()
    assert "the disk is full" in caplog.text


def test_a_compactor_for_another_format_is_refused():
    for node in (compact_node, compact_and_discard_node):
        with pytest.raises(ValueError, match="format=refold"):
            node(Compactor([], Budget(1, 1)))


def test_replace_messages_returns_an_update_for_the_reducer():
    old = history(2)
    assert replace_messages(old, list(old)) == []
    new = [HumanMessage("summary", id="x"), *old[-2:]]
    update = replace_messages(old, new)
    assert (update[0].id, update[1:]) == (REMOVE_ALL_MESSAGES, new)
    assert add_messages(old, update) == new


def test_removals_in_a_list_are_applied():
    """S0-02: as the reducer would."""
    a, b = HumanMessage("a", id="1"), HumanMessage("b", id="2")
    assert apply_removals([a, b, RemoveMessage(id="1")]) == [b]
    assert apply_removals([a, RemoveMessage(id=REMOVE_ALL_MESSAGES), b]) == [b]
    with pytest.raises(FormatError, match="'3'"):
        apply_removals([a, RemoveMessage(id="3")])


def test_messages_are_read_from_states_of_any_kind():
    class State:
        messages = (HumanMessage("a"),)

    listed = [HumanMessage("a")]
    assert messages_of(State()) == messages_of({"messages": listed}) == listed
    assert messages_of(listed) is listed
