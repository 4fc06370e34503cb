"""Compaction as a node of a LangGraph graph, and updates for its `add_messages` reducer."""

from collections.abc import Mapping, Sequence
from typing import Any

from refold.adapters import langchain
from refold.compactor import Compactor
from refold.errors import FormatError, extra
from refold.view import View

try:
    from langchain_core.messages import BaseMessage, RemoveMessage
    from langchain_core.runnables import Runnable, RunnableLambda
    from langgraph.graph.message import REMOVE_ALL_MESSAGES
except ImportError as error:
    raise ImportError(f"this adapter needs LangGraph: {extra('langchain')}") from error

MESSAGES = "messages"
HOOKED = "llm_input_messages"
"""Where a `pre_model_hook` puts what the model shall see while the state keeps everything."""


def replaced(before: Sequence[BaseMessage], after: Sequence[BaseMessage]) -> list[BaseMessage]:
    """What a node returns for `messages`, so that the state holds *after* instead of *before*.

    Empty where the two are the same. The reducer only appends, so everything else goes first.
    """
    if len(before) == len(after) and all(old is new for old, new in zip(before, after, strict=True)):
        return []
    return [RemoveMessage(id=REMOVE_ALL_MESSAGES), *after]


def reduced(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """*messages* with every `RemoveMessage` among them applied to those before it: the list that a
    graph's state would hold. Raises `FormatError` for one whose message is not there."""
    out = list[BaseMessage]()
    for message in messages:
        if not isinstance(message, RemoveMessage):
            out.append(message)
        elif message.id == REMOVE_ALL_MESSAGES:
            out.clear()
        elif len(left := [one for one in out if one.id != message.id]) < len(out):
            out = left
        else:
            raise FormatError(f"a RemoveMessage names a message that is not there: {message.id!r}")
    return out


def compact_node(compactor: Compactor, *, key: str = MESSAGES, into: str = "") -> Runnable[Any, Any]:
    """A node that compacts the messages of a state, in both colours.

    *compactor* must have `format=refold.adapters.langchain`. The state's messages are replaced; with
    *into* (`HOOKED` for a `pre_model_hook`) they stay, and what is to be sent stands under that key.
    """
    if compactor.format is not langchain:
        raise ValueError("a node needs a Compactor with format=refold.adapters.langchain")

    def update(state: Any, view: View) -> dict[str, Any]:
        before = messages_of(state, key)
        return {into: view.payload} if into else {key: replaced(before, view.payload)}

    def run(state: Any) -> dict[str, Any]:
        return update(state, compactor(messages_of(state, key)))

    async def arun(state: Any) -> dict[str, Any]:
        return update(state, await compactor.acompact(messages_of(state, key)))

    return RunnableLambda(run, arun, name="compact")


def messages_of(state: Any, key: str = MESSAGES) -> list[BaseMessage]:
    """The messages of a graph's state: a mapping, an object with fields, or the list itself."""
    if isinstance(state, list):
        return state
    found = state[key] if isinstance(state, Mapping) else getattr(state, key)
    return list(found)
