"""koog's graph and nodes (seed 3) in LangGraph, with scripted models."""

import asyncio
import json
import sqlite3

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from refold import check
from refold.adapters import langchain
from refold.budget.triggers import Tokens
from refold.presets.koog import (
    LLM,
    AgentState,
    Chunked,
    FactType,
    FromLastNMessages,
    HistoryCompressionStrategy,
    MemoryContaining,
    RetrieveFactsFromHistory,
    TaggedMemory,
    WholeHistory,
    compose_prompt_with_required_messages,
    execute_with_history_compression,
    history_is_too_long,
    node_execute_tool,
    node_llm_compress_history,
    remember,
)
from refold.presets.koog import Concept as About
from refold.testing import ScriptedModel
from refold.text.summary_wrapper import summary_in

TLDR = (
    "## Key Objectives\n- count the rows\n## Tools Used & Results\n- rows: counted\n## Key Findings\n- none\n"
    "## Current Status\n- counting\n## Next Steps\n- count on"
)
TASK = [
    SystemMessage("You count rows.", id="s"),
    HumanMessage("Count the rows of every table.", id="h"),
]


def both(graph, state):
    """Run the graph by `invoke` and by `ainvoke`."""
    return graph.invoke(state, {"recursion_limit": 500})


async def in_async(graph, state):
    return await graph.ainvoke(state, {"recursion_limit": 500})


@pytest.fixture(params=["invoke", "ainvoke"])
def run(request):
    if request.param == "invoke":
        return both
    return lambda graph, state: asyncio.run(in_async(graph, state))


class World:
    """An agent that counts the rows of some tables, a tool, a model for TLDRs, and a log of events
    in order."""

    def __init__(self, tables, too_long=20):
        self.happened, self.sent, self.tables, self.too_long = [], [], tables, too_long
        self.model = RunnableLambda(self.answer)
        self.compressor = self.summarise
        self.asked = ScriptedModel([TLDR] * 99)

        @tool
        def rows(table: str) -> str:
            """Count the rows of a table."""
            self.happened.append("tool")
            if table == "t3":
                raise sqlite3.OperationalError("no such table")
            return f"{table}: 12 rows\n" + "detail " * 200

        self.tool = rows

    def answer(self, messages):
        self.happened.append("llm")
        self.sent.append(messages)
        done = sum(event == "tool" for event in self.happened)
        if done == self.tables:
            return AIMessage("All counted.")
        return AIMessage(
            "", tool_calls=[{"name": "rows", "args": {"table": f"t{done}"}, "id": f"c{done}"}]
        )

    def summarise(self, ask):
        self.happened.append("tldr")
        return self.asked(ask)

    def graph(self, **options):
        return execute_with_history_compression(
            self.model,
            [self.tool],
            self.compressor,
            too_long=lambda session: len(session.prompt.messages) > self.too_long,
            **options,
        )


def summaries(messages):
    return [text for m in messages if (text := summary_in(langchain.decode(m, ()))) is not None]


def test_execute_with_history_compression_keeps_requests_short_and_valid(run):
    """S3-05 S3-06 S3-07 S3-08 S3-09 S3-10 S3-13: sixty tool calls, never more than twenty messages.
    Each request to the model is valid, ends with the result that it waits for, and contains the
    task."""
    world = World(60)
    end = run(world.graph(), {"messages": TASK})
    assert end["messages"][-1].content == "All counted."
    assert end["received"] == []
    assert len(world.sent) == 61
    assert max(map(len, world.sent)) <= 22
    for sent in world.sent:
        assert check(sent, langchain) == ()
        assert sent[:2] == TASK
    for sent in world.sent[1:]:
        assert isinstance(sent[-1], ToolMessage)
        assert sent[-2].tool_calls[0]["id"] == sent[-1].tool_call_id
    assert world.happened.count("tldr") >= 3
    assert len(summaries(end["messages"])) == 1


def test_compression_comes_after_the_tool_and_before_its_result_is_sent(run):
    """S3-10: the order of events around each compression."""
    world = World(30)
    run(world.graph(strategy=WholeHistory()), {"messages": TASK})
    at = [n for n, event in enumerate(world.happened) if event == "tldr"]
    assert at
    assert all(world.happened[n - 1 : n + 2] == ["tool", "tldr", "llm"] for n in at)


def test_the_graph_has_koogs_nodes_and_edges():
    """S3-08: four nodes and eight edges."""
    drawn = World(1).graph().get_graph()
    assert set(drawn.nodes) - {"__start__", "__end__"} == {
        "callLLM",
        "executeTool",
        "sendToolResult",
        "compressHistory",
    }
    assert {(edge.source, edge.target) for edge in drawn.edges} == {
        ("__start__", "callLLM"),
        ("callLLM", "__end__"),
        ("callLLM", "executeTool"),
        ("executeTool", "compressHistory"),
        ("compressHistory", "sendToolResult"),
        ("executeTool", "sendToolResult"),
        ("sendToolResult", "executeTool"),
        ("sendToolResult", "__end__"),
    }


def test_under_the_limit_nothing_is_compressed(run):
    """S3-07 S3-08: koog's default is more than 100 messages."""
    world = World(40)
    end = run(
        execute_with_history_compression(world.model, [world.tool], world.compressor),
        {"messages": TASK},
    )
    assert "tldr" not in world.happened
    assert len(end["messages"]) == 2 + 2 * 40 + 1
    too_long = history_is_too_long()
    assert too_long({"messages": [SystemMessage("x")] + [HumanMessage("x")] * 100})
    assert not too_long({"messages": [HumanMessage("x")] * 100})
    assert too_long({"messages": [HumanMessage("x")] * 101})


def test_a_failed_or_unknown_tool_returns_an_error_as_its_result():
    """S3-08: both a failing tool and one that does not exist."""
    world = World(5)
    end = world.graph().invoke({"messages": TASK})
    (failed,) = [m for m in end["messages"] if isinstance(m, ToolMessage) and m.status == "error"]
    assert "no such table" in failed.content
    call = AIMessage("", tool_calls=[{"name": "rm", "args": {}, "id": "x"}])
    graph = execute_with_history_compression(
        RunnableLambda(lambda messages: call if len(messages) == 2 else AIMessage("end")),
        [world.tool],
        world.compressor,
    )
    assert graph.invoke({"messages": TASK})["messages"][-2].content == "there is no tool 'rm'"


def execute_tool(tool):
    """Return a graph of the tool node alone, with a checkpointer, and the state of a call."""
    graph = StateGraph(AgentState).add_node("executeTool", node_execute_tool([tool]))
    graph.add_edge(START, "executeTool")
    call = AIMessage("", tool_calls=[{"name": tool.name, "args": {"table": "t"}, "id": "c"}])
    return graph.compile(checkpointer=InMemorySaver()), {"messages": [*TASK, call]}


def test_a_tool_that_is_only_async_runs_in_an_async_graph():
    """It used to fail with `NotImplementedError`, as tools of MCP servers have no sync form."""

    @tool
    async def rows(table: str) -> str:
        """Count the rows of a table."""
        await asyncio.sleep(0)
        return "12 rows"

    graph, state = execute_tool(rows)
    end = asyncio.run(graph.ainvoke(state, {"configurable": {"thread_id": "1"}}))
    assert [(m.content, m.status) for m in end["received"]] == [("12 rows", "success")]


def test_a_tool_can_interrupt_the_graph_to_ask_a_person():
    """The interrupt used to become an error of the tool, and nobody was asked."""

    @tool
    def rows(table: str) -> str:
        """Count the rows of a table."""
        return f"allowed: {interrupt('May I?')}"

    graph, state = execute_tool(rows)
    thread = {"configurable": {"thread_id": "1"}}
    (question,) = graph.invoke(state, thread)["__interrupt__"]
    assert question.value == "May I?"
    end = graph.invoke(Command(resume="yes"), thread)
    assert [m.content for m in end["received"]] == ["allowed: yes"]
    thread = {"configurable": {"thread_id": "2"}}
    (question,) = asyncio.run(graph.ainvoke(state, thread))["__interrupt__"]
    assert question.value == "May I?"


def test_a_token_trigger_can_decide_when_to_compress(run):
    """S3-05 S3-07: any trigger can replace the message count (C3-7)."""
    world = World(40)
    graph = execute_with_history_compression(
        world.model,
        [world.tool],
        world.compressor,
        too_long=lambda session: session.is_due(Tokens(2_000)),
    )
    run(graph, {"messages": TASK})
    assert world.happened.count("tldr") >= 2
    assert max(map(len, world.sent)) <= 35


# --- the node alone -------------------------------------------------------------------------------


def count_tables(count):
    out = list(TASK)
    for n in range(count):
        out.append(
            AIMessage("", tool_calls=[{"name": "rows", "args": {}, "id": f"c{n}"}], id=f"a{n}")
        )
        out.append(ToolMessage("detail " * 200, tool_call_id=f"c{n}", id=f"t{n}"))
    return out


def test_the_compress_node_leaves_received_results_untouched(run):
    """S3-09: the node changes only the messages. The call of the received result stays (C3-3)."""
    history = count_tables(20)[:-1]
    received = [ToolMessage("42", tool_call_id="c19")]
    graph = StateGraph(AgentState)
    graph.add_node("compressHistory", node_llm_compress_history(ScriptedModel([TLDR])))
    graph.add_edge(START, "compressHistory")
    graph.add_edge("compressHistory", END)
    end = run(graph.compile(), {"messages": history, "received": received})
    assert end["received"] == received
    assert [m.id for m in end["messages"][:2]] == ["s", "h"]
    assert end["messages"][-1].id == "a19"
    assert check([*end["messages"], *end["received"]], langchain) == ()
    assert len(end["messages"]) == 4


def test_the_history_can_be_compressed_between_two_phases_of_a_graph(run):
    """S3-04 S3-06 S3-11: `nodeStart then collectInformation then compressHistory then
    makeTheDecision`. The phases are subgraphs, and the checkpointer holds the compressed
    history."""
    seen = []

    def decide(state):
        seen.extend(state["messages"])
        return {"messages": [AIMessage("Decided.")]}

    collect = StateGraph(AgentState)
    collect.add_sequence([("gather", lambda _: {"messages": count_tables(10)[2:]})]).add_edge(
        START, "gather"
    )
    phases = StateGraph(AgentState)
    model = GenericFakeChatModel(messages=iter([AIMessage(TLDR)]))
    phases.add_sequence(
        [
            ("collectInformation", collect.compile()),
            ("compressHistory", node_llm_compress_history(model)),
            ("makeTheDecision", decide),
        ]
    ).add_edge(START, "collectInformation")
    graph = phases.compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "1"}}
    end = graph.invoke({"messages": TASK}, config)
    assert [m.type for m in seen[:2]] == ["system", "human"]
    assert len(summaries(seen)) == 1
    assert len(seen) <= 5
    assert end["messages"][-1].content == "Decided."
    assert graph.get_state(config).values["messages"] == end["messages"]


@pytest.mark.parametrize(
    ("strategy", "answer", "results"),
    [
        (WholeHistory(), TLDR, [12]),
        (FromLastNMessages(5), TLDR, [2]),
        (Chunked(10), TLDR, [5, 5, 2]),
        (
            RetrieveFactsFromHistory(About("rows", "How many rows the tables have")),
            '{"rows": ["t1 has 12"]}',
            [12],
        ),
    ],
    ids=["whole", "last", "chunked", "facts"],
)
@pytest.mark.parametrize("preserve", [True, False])
def test_the_node_takes_every_strategy(strategy, answer, results, preserve):
    """S3-13 S3-16 S3-17 S3-27: also memory, and another model for the compression."""
    memory = langchain.encode(remember("Tables are in Chinese."))
    history = [*count_tables(12), memory, AIMessage("So far."), HumanMessage("Go on.")]
    main, cheap = ScriptedModel(), ScriptedModel([answer] * 9)
    node = node_llm_compress_history(
        main, strategy, retrieval_model=cheap, preserve_memory=preserve
    )
    remove, *after = node.invoke({"messages": history})["messages"]
    assert remove.type == "remove"
    assert main.asked == []
    asked = [ask.prompt + "".join(message.text for message in ask.messages) for ask in cheap.asked]
    assert [text.count("</result>") for text in asked] == results
    assert (memory in after) == preserve
    assert check(after, langchain) == ()
    assert len(after) < 14


THREE = (
    About(
        "user_preferences",
        "User's preferences for the recommendation system, including the preferred conversation style, "
        "theme in the application, etc.",
        FactType.MULTIPLE,
    ),
    About(
        "product_details",
        "Brief details about products in the catalog the user has been checking",
        FactType.MULTIPLE,
    ),
    About("issue_solved", "Was the initial user's issue resolved?", FactType.SINGLE),
)


def test_f25_a_node_and_a_write_session_retrieve_the_same_facts(run):
    """S3-20 S3-29: for the same history they give the same result, with one prompt."""
    facts = {
        "user_preferences": ["dark theme", "short answers"],
        "product_details": ["Lamp 40 W"],
        "issue_solved": "no",
    }
    history, strategy = [*count_tables(12), AIMessage("So far.")], RetrieveFactsFromHistory(*THREE)
    for_node, for_session = ScriptedModel([json.dumps(facts)]), ScriptedModel([json.dumps(facts)])
    node = node_llm_compress_history(for_node, strategy)
    graph = StateGraph(AgentState).add_node("compress", node).add_edge(START, "compress").compile()
    end = run(graph, {"messages": history})["messages"]

    async def session():
        llm = LLM(history, for_session, codec=langchain)
        async with llm.write_session() as writing:
            await writing.replace_history_with_tldr(strategy=strategy)
        return llm.history

    written = asyncio.run(session())
    assert [(m.type, m.content) for m in end] == [(m.type, m.content) for m in written]
    assert for_node.asked == for_session.asked
    assert len(for_node.asked) == 1
    assert all(concept.description in for_node.asked[0].prompt for concept in THREE)
    (text,) = summaries(end)
    assert all(f"## {concept.keyword}" in text for concept in THREE)
    assert all(fact in text for fact in ("- dark theme", "- short answers", "- Lamp 40 W", "- no"))
    assert not any(isinstance(message, ToolMessage) for message in end)


def test_the_node_recognises_koogs_memory_messages_by_their_text():
    """S3-26 S3-27: koog's memory messages have no tag (C3-5)."""
    facts = HumanMessage("Here are the relevant facts from memory: tables are in Chinese.", id="m")
    history = [*count_tables(12), facts, AIMessage("So far."), HumanMessage("Go on.")]
    for memory, is_kept in ((MemoryContaining(), True), (None, True), (TaggedMemory(), False)):
        node = node_llm_compress_history(ScriptedModel([TLDR]), memory=memory)
        assert (facts in node.invoke({"messages": history})["messages"]) == is_kept


class Important(HistoryCompressionStrategy):
    """The seed's example."""

    async def compress(self, llm_session, preserve_memory, memory_messages):
        important = [
            m
            for m in llm_session.prompt.messages
            if "important" in m.text and m.role == "assistant"
        ]
        compose_prompt_with_required_messages(
            llm_session, important, preserve_memory, memory_messages
        )


def test_a_custom_strategy_can_be_used_in_a_node(run):
    """S3-06 S3-25: as in a write session."""
    finding = AIMessage("important: t9 is empty", id="k", response_metadata={"model_name": "m"})
    history = [*count_tables(3), finding, AIMessage("noise"), HumanMessage("Go on.", id="g")]
    node = node_llm_compress_history(None, Important())
    graph = StateGraph(AgentState).add_node("compress", node).add_edge(START, "compress").compile()
    end = run(graph, {"messages": history})
    assert [m.id for m in end["messages"]] == ["s", "h", "k", "g"]
    assert end["messages"][2].response_metadata == {"model_name": "m"}


def test_a_tldr_is_not_streamed_as_agent_output():
    """S3-06: LangGraph's `stream_mode="messages"` streams no part of the TLDR."""
    model = GenericFakeChatModel(messages=iter([AIMessage(TLDR)]))
    graph = (
        StateGraph(AgentState)
        .add_node("compress", node_llm_compress_history(model))
        .add_edge(START, "compress")
    )
    chunks = [
        chunk
        for chunk, _ in graph.compile().stream(
            {"messages": count_tables(10)}, stream_mode="messages"
        )
    ]
    assert not [chunk for chunk in chunks if chunk.type == "AIMessageChunk"]


def test_the_node_returns_no_update_if_nothing_is_compressed():
    """S3-13: the messages of the state are unchanged."""
    assert node_llm_compress_history(ScriptedModel()).invoke({"messages": TASK}) == {"messages": []}


def test_the_node_can_be_invoked_synchronously_inside_an_event_loop():
    """S3-06: as in a notebook."""

    async def notebook():
        return node_llm_compress_history(ScriptedModel([TLDR])).invoke(
            {"messages": count_tables(10)}
        )

    assert len(asyncio.run(notebook())["messages"]) < 8
