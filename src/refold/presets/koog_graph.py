"""koog's graph for LangGraph: compression after each tool result when the history is too long
(S3-08)."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Annotated, Any, TypedDict, TypeVar

from refold.adapters import langchain
from refold.adapters.hook import explain_missing
from refold.adapters.langchain import ChatModel
from refold.adapters.langgraph import MESSAGES, messages_of, replace_messages
from refold.presets.koog import HistoryCompressionStrategy
from refold.presets.koog_sessions import LLM, ReadSession
from refold.summarizers.placement import MessageFilter

with explain_missing("langgraph", "langchain"):
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
    from langchain_core.runnables import Runnable, RunnableLambda
    from langchain_core.tools import BaseTool
    from langgraph.errors import GraphBubbleUp
    from langgraph.graph import END, START, StateGraph, add_messages
    from langgraph.graph.state import CompiledStateGraph

T = TypeVar("T")
TooLong = Callable[[ReadSession], bool]


class AgentState(TypedDict, total=False):
    """The state of an agent's graph."""

    messages: Annotated[list[BaseMessage], add_messages]
    received: list[ToolMessage]
    """Tool results not yet sent to the model (koog's `ReceivedToolResult`)."""


def more_than_100_messages(session: ReadSession) -> bool:
    """Return whether there are over 100 messages, system ones included, as koog (S3-07)."""
    return len(session.prompt.messages) > 100


def history_is_too_long(
    when: TooLong = more_than_100_messages, key: str = MESSAGES
) -> Callable[[Any], bool]:
    """Return the condition of an edge: *when* is called with a read session on the state's history
    (S3-05, S3-07).

    By tokens: `lambda session: session.is_due(Fraction(0.7), window=200_000)`.
    """
    return lambda state: when(LLM(messages_of(state, key), codec=langchain).look())


def node_llm_compress_history(
    model: Any,
    strategy: HistoryCompressionStrategy | None = None,
    *,
    retrieval_model: Any = None,
    preserve_memory: bool = True,
    memory: MessageFilter | None = None,
    key: str = MESSAGES,
) -> Runnable[Any, Any]:
    """Return a node that **replaces** the state's messages by compressed ones, as koog's does: the
    originals are lost in the state and in every later checkpoint
    (`refold.adapters.langgraph.compact_node` keeps them). All else in the state stays, such as
    results that were received and not sent yet. So do the calls that they answer (S3-09).

    *model*, or *retrieval_model* in its place, is a LangChain chat model or anything else that
    answers an `Ask`. The default *strategy* is `WholeHistory()` (S3-13, S3-14).
    """

    async def compress(state: Any) -> dict[str, Any]:
        before = messages_of(state, key)
        llm = LLM(before, _answerer(model), codec=langchain, memory=memory)
        async with llm.write_session() as session:
            await session.replace_history_with_tldr(
                strategy, preserve_memory, _answerer(retrieval_model)
            )
        return {key: replace_messages(before, llm.history)}

    return RunnableLambda(lambda state: _run(compress(state)), compress, name="compressHistory")


def node_llm_request(model: Runnable[Any, Any]) -> Runnable[Any, Any]:
    """Return a node that has *model* answer the state's messages."""

    def request(state: Any) -> dict[str, Any]:
        return {MESSAGES: [model.invoke(messages_of(state))]}

    async def arequest(state: Any) -> dict[str, Any]:
        return {MESSAGES: [await model.ainvoke(messages_of(state))]}

    return RunnableLambda(request, arequest, name="callLLM")


def node_execute_tool(tools: Sequence[BaseTool]) -> Runnable[Any, Any]:
    """Return a node that runs the tool calls of the last message. The results are put into
    `received`, not into the messages. A failed or unknown tool returns an error as its result. An
    `interrupt` of a tool stops the graph."""
    by_name = {tool.name: tool for tool in tools}

    def execute(state: Any) -> dict[str, Any]:
        return {"received": [_execute(by_name, call) for call in messages_of(state)[-1].tool_calls]}  # type: ignore[attr-defined]  # onToolCall

    async def aexecute(state: Any) -> dict[str, Any]:
        calls = messages_of(state)[-1].tool_calls  # type: ignore[attr-defined]
        return {"received": await asyncio.gather(*(_aexecute(by_name, call) for call in calls))}

    return RunnableLambda(execute, aexecute, name="executeTool")


def _execute(tools: dict[str, BaseTool], call: dict[str, Any]) -> ToolMessage:
    try:
        return _as_message(call, tools[call["name"]].invoke({**call, "type": "tool_call"}))
    except GraphBubbleUp:  # an interrupt: the graph's own control flow
        raise
    except Exception as error:  # noqa: BLE001 - a tool that fails is a result like any other
        return _describe_error(tools, call, error)


async def _aexecute(tools: dict[str, BaseTool], call: dict[str, Any]) -> ToolMessage:
    try:
        return _as_message(call, await tools[call["name"]].ainvoke({**call, "type": "tool_call"}))
    except GraphBubbleUp:
        raise
    except Exception as error:  # noqa: BLE001
        return _describe_error(tools, call, error)


def _describe_error(
    tools: dict[str, BaseTool], call: dict[str, Any], error: Exception
) -> ToolMessage:
    is_tool = call["name"] in tools
    text = f"{type(error).__name__}: {error}" if is_tool else f"there is no tool {call['name']!r}"
    return ToolMessage(text, tool_call_id=call["id"], name=call["name"], status="error")


def _as_message(call: dict[str, Any], result: Any) -> ToolMessage:
    return (
        result
        if isinstance(result, ToolMessage)
        else ToolMessage(str(result), tool_call_id=call["id"])
    )


def node_llm_send_tool_result(model: Runnable[Any, Any]) -> Runnable[Any, Any]:
    """Return a node that adds the received results to the messages and has *model* answer."""

    def send(state: Any) -> dict[str, Any]:
        reply = model.invoke([*messages_of(state), *state["received"]])
        return {MESSAGES: [*state["received"], reply], "received": []}

    async def asend(state: Any) -> dict[str, Any]:
        reply = await model.ainvoke([*messages_of(state), *state["received"]])
        return {MESSAGES: [*state["received"], reply], "received": []}

    return RunnableLambda(send, asend, name="sendToolResult")


def execute_with_history_compression(
    model: Runnable[Any, Any],
    tools: Sequence[BaseTool],
    compressor: Any,
    *,
    strategy: HistoryCompressionStrategy | None = None,
    too_long: TooLong = more_than_100_messages,
    preserve_memory: bool = True,
) -> "CompiledStateGraph[Any, Any, Any, Any]":
    """Return koog's compiled graph `execute-with-history-compression`, with four nodes and eight
    edges (S3-08).

    *model* is the agent's, with its tools bound. *compressor* writes the summaries: a chat model or
    anything else that answers an `Ask`. The history is compressed after a tool has run and before
    its result is sent (S3-10).
    """
    is_too_long = history_is_too_long(too_long)
    graph = StateGraph(AgentState)
    graph.add_node("callLLM", node_llm_request(model))
    graph.add_node("executeTool", node_execute_tool(tools))
    graph.add_node("sendToolResult", node_llm_send_tool_result(model))
    graph.add_node(
        "compressHistory",
        node_llm_compress_history(compressor, strategy, preserve_memory=preserve_memory),
    )
    graph.add_edge(START, "callLLM")
    graph.add_conditional_edges("callLLM", _on_reply, ["executeTool", END])
    graph.add_conditional_edges(
        "executeTool",
        lambda state: "compressHistory" if is_too_long(state) else "sendToolResult",
        ["compressHistory", "sendToolResult"],
    )
    graph.add_edge("compressHistory", "sendToolResult")
    graph.add_conditional_edges("sendToolResult", _on_reply, ["executeTool", END])
    return graph.compile(name="execute-with-history-compression")


def _on_reply(state: Any) -> str:
    """Return the next node: koog's `onToolCall` and `onAssistantMessage`."""
    last = messages_of(state)[-1]
    return "executeTool" if isinstance(last, AIMessage) and last.tool_calls else END


def _answerer(model: Any) -> Any:
    return ChatModel(model) if isinstance(model, BaseChatModel) else model


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to completion from sync code, even inside a running event loop."""
    out = list[T]()

    async def in_context() -> None:
        # `asyncio.run` formats a task's result when it removes its signal handler (CPython 3.11):
        # 3 ms for each LangChain message. So the task returns nothing.
        out.append(await work)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(in_context())
    else:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(copy_context().run, asyncio.run, in_context()).result()
    return out[0]
