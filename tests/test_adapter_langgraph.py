"""Compaction as a node of a LangGraph graph, against LangGraph itself."""

import asyncio
from typing import Annotated, TypedDict

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from refold import Budget, Compactor, FormatError, check
from refold.adapters import langchain
from refold.adapters.langgraph import HOOKED, compact_node, messages_of, reduced, replaced
from refold.strategies import Summarize
from refold.summary import previous


def history(rounds=12):
    out = [HumanMessage("Mend the build.", id="h")]
    for n in range(rounds):
        out.append(AIMessage("", tool_calls=[{"name": "make", "args": {}, "id": f"c{n}"}], id=f"a{n}"))
        out.append(ToolMessage("line of output\n" * 60, tool_call_id=f"c{n}", id=f"t{n}"))
    return out


def compactor():
    return Compactor([Summarize(keep=4)], Budget(1_500, 1_000), format=langchain)


def graph(state, node):
    return StateGraph(state).add_node("compact", node).add_edge(START, "compact").compile()


@pytest.mark.parametrize("colour", ["invoke", "ainvoke"])
def test_a_node_replaces_the_messages_of_a_state(colour):
    """S0-02: kept messages keep their ids; the reducer removes and appends."""
    made = graph(MessagesState, compact_node(compactor()))
    state = {"messages": history()}
    end = made.invoke(state) if colour == "invoke" else asyncio.run(made.ainvoke(state))
    messages = end["messages"]
    assert previous(langchain.decode(messages[0], ())) is not None
    assert [m.id for m in messages[-4:]] == ["a10", "t10", "a11", "t11"]
    assert check(messages, langchain) == ()
    again = made.invoke(end)
    assert again["messages"] == messages


def test_a_state_may_keep_everything_and_send_a_view():
    """S0-02: what a `pre_model_hook` returns."""

    class State(TypedDict):
        messages: Annotated[list[BaseMessage], add_messages]
        llm_input_messages: list[BaseMessage]

    end = graph(State, compact_node(compactor(), into=HOOKED)).invoke({"messages": history()})
    assert len(end["messages"]) == 25
    assert len(end[HOOKED]) < 10
    assert end[HOOKED][-1] == end["messages"][-1]


def test_under_the_trigger_there_is_no_update():
    assert compact_node(compactor()).invoke({"messages": history(1)}) == {"messages": []}


def test_a_compactor_for_another_format_is_refused():
    with pytest.raises(ValueError, match="format=refold"):
        compact_node(Compactor([], Budget(1, 1)))


def test_updates_for_the_reducer():
    old = history(2)
    assert replaced(old, list(old)) == []
    new = [HumanMessage("summary", id="x"), *old[-2:]]
    update = replaced(old, new)
    assert (update[0].id, update[1:]) == (REMOVE_ALL_MESSAGES, new)
    assert add_messages(old, update) == new


def test_removals_in_a_list_are_applied():
    """S0-02: as the reducer would."""
    a, b = HumanMessage("a", id="1"), HumanMessage("b", id="2")
    assert reduced([a, b, RemoveMessage(id="1")]) == [b]
    assert reduced([a, RemoveMessage(id=REMOVE_ALL_MESSAGES), b]) == [b]
    with pytest.raises(FormatError, match="'3'"):
        reduced([a, RemoveMessage(id="3")])


def test_states_of_any_kind():
    class State:
        messages = (HumanMessage("a"),)

    listed = [HumanMessage("a")]
    assert messages_of(State()) == messages_of({"messages": listed}) == listed
    assert messages_of(listed) is listed
