"""koog's history compression: strategies, sessions, and what every compression keeps (S3).

The strategies are Refold's own with koog's names, defaults and TLDR form (docs/presets/koog.md).
The nodes for LangGraph are imported when they are first used (extra `langchain`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from refold import lazy_names
from refold.messages import Message, ToolCall, ToolResult
from refold.presets.koog_sessions import LLM, NoAnswer, Prompt, ReadSession, WriteSession
from refold.presets.koog_strategies import (
    Chunked,
    FromLastNMessages,
    HistoryCompressionStrategy,
    Listed,
    NoCompression,
    RetrieveFactsFromHistory,
    WholeHistory,
    tldr,
)
from refold.summarizers.forms.facts import Concept, FactType
from refold.summarizers.memory_messages import (
    MemoryContaining,
    TaggedMemory,
    TaggedOrBeginning,
    remember,
)
from refold.summarizers.placement import find_kept, keep_before
from refold.summarizers.tail import find_unanswered

if TYPE_CHECKING:
    from refold.presets.koog_graph import (
        AgentState,
        execute_with_history_compression,
        history_is_too_long,
        node_execute_tool,
        node_llm_compress_history,
        node_llm_request,
        node_llm_send_tool_result,
    )


def compose_prompt_with_required_messages(
    llm_session: WriteSession,
    messages: Sequence[Message],
    preserve_memory: bool = True,
    memory_messages: Sequence[Message] = (),
) -> None:
    """Set the session's prompt to *messages* and what a history must not lose (S3-22).

    System messages, memory, the first and the current request come before and behind them, and
    calls that wait for their results stay at the end; all as they were before the compression
    began, whatever the strategy has done to the prompt since (C3-1, C3-3). Of *messages*, calls
    without their results and results without their calls are left out (C3-6). A history of which
    nothing can go stays.
    """
    original = llm_session.original
    view = llm_session.view_of(original)
    originals, stop = view.transcript.messages, find_unanswered(view)
    memory = Listed(tuple(memory_messages)) if preserve_memory else None
    staying = [
        *original.head,
        *(originals[at] for at in find_kept(view, 0, stop, memory)),
        *originals[stop:],
    ]
    fresh = [m for m in memory_messages if m not in original.messages] if preserve_memory else []
    prompt = drop_unpaired(
        [*fresh, *(m for m in messages if not any(m is required for required in staying))]
    )
    shown = keep_before(view, 0, stop, memory).around(*prompt)
    if stop:
        view = view.apply(view.fold(0, stop, *shown, by="compose_prompt_with_required_messages"))
    llm_session.prompt = Prompt((*original.head, *view.messages))


def drop_unpaired(messages: Sequence[Message]) -> list[Message]:
    """Return *messages* without calls whose results are not among them and results whose calls are
    not (C3-6)."""
    calls = {id for message in messages for id in message.calls}
    both = calls & {id for message in messages for id in message.results}
    out = []
    for message in messages:
        parts = [
            p for p in message.parts if not isinstance(p, ToolCall | ToolResult) or p.id in both
        ]
        if parts:
            out.append(
                message if len(parts) == len(message.parts) else Message(message.role, tuple(parts))
            )
    return out


__getattr__ = lazy_names(
    __name__,
    {
        "koog_graph": (
            "AgentState",
            "execute_with_history_compression",
            "history_is_too_long",
            "node_execute_tool",
            "node_llm_compress_history",
            "node_llm_request",
            "node_llm_send_tool_result",
        )
    },
    "refold.presets",
)[1]

__all__ = [
    "LLM",
    "AgentState",
    "Chunked",
    "Concept",
    "FactType",
    "FromLastNMessages",
    "HistoryCompressionStrategy",
    "MemoryContaining",
    "NoAnswer",
    "NoCompression",
    "Prompt",
    "ReadSession",
    "RetrieveFactsFromHistory",
    "TaggedMemory",
    "TaggedOrBeginning",
    "WholeHistory",
    "WriteSession",
    "compose_prompt_with_required_messages",
    "execute_with_history_compression",
    "history_is_too_long",
    "node_execute_tool",
    "node_llm_compress_history",
    "node_llm_request",
    "node_llm_send_tool_result",
    "remember",
    "tldr",
]
