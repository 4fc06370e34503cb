"""Compaction as a node of a LangGraph graph, and updates for its `add_messages` reducer. Needs the
extra `langchain`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from refold.adapters import langchain
from refold.adapters.hook import explain_missing, fail_open, require_format
from refold.compactor.compactor import Compactor
from refold.errors import FormatError

with explain_missing("langgraph", "langchain"):
    from langchain_core.messages import BaseMessage, RemoveMessage
    from langchain_core.runnables import Runnable, RunnableLambda
    from langgraph.graph.message import REMOVE_ALL_MESSAGES, MessagesState

MESSAGES = "messages"
"""State key of the messages."""
LLM_INPUT_KEY = "llm_input_messages"
"""State key under which a `pre_model_hook` puts the messages for the model, while the state keeps
all messages."""


def replace_messages(
    before: Sequence[BaseMessage], after: Sequence[BaseMessage]
) -> list[BaseMessage]:
    """Return the update of `messages` after which the state holds *after* instead of *before*.

    It is empty if both have the same objects. The reducer only appends, so all messages are removed
    first.
    """
    if list(map(id, before)) == list(map(id, after)):
        return []
    return [RemoveMessage(id=REMOVE_ALL_MESSAGES), *after]


def apply_removals(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Apply each `RemoveMessage` in *messages* to those before it, as a graph's state does.

    Raises `FormatError` if the message to remove is missing.
    """
    out = list[BaseMessage]()
    for message in messages:
        if not isinstance(message, RemoveMessage):
            out.append(message)
        elif message.id == REMOVE_ALL_MESSAGES:
            out.clear()
        elif len(remaining := [entry for entry in out if entry.id != message.id]) < len(out):
            out = remaining
        else:
            raise FormatError(f"a RemoveMessage names a message that is not there: {message.id!r}")
    return out


class CompactedState(MessagesState, total=False):
    """A state for `compact_node`: all messages, and separately the messages to send."""

    llm_input_messages: list[BaseMessage]


def compact_node(
    compactor: Compactor, *, key: str = MESSAGES, into: str = LLM_INPUT_KEY
) -> Runnable[Any, Any]:
    """Create a node, sync and async, that puts the messages to send under *into*.

    The state keeps every message, so edits can be reverted even after a restart, from the
    checkpointer. *compactor* must have `format=refold.adapters.langchain`, and the graph's state a
    field *into*, like `CompactedState` and the state of a `pre_model_hook`. Raises ValueError for
    another format, and if *into* is *key*: use `compact_and_discard_node`.
    """
    require_format(compactor, langchain)
    if not into or into == key:
        raise ValueError(
            "the originals under this key would be lost: say so by compact_and_discard_node"
        )
    return _node(compactor, key, lambda _, shown: {into: shown})


def compact_and_discard_node(compactor: Compactor, *, key: str = MESSAGES) -> Runnable[Any, Any]:
    """Create a node that **deletes** the state's messages and replaces them by those of the view.

    The originals are lost, in the state and in every later checkpoint; neither `unfold` nor
    `revert` brings them back. Use it for a checkpointer that must not hold the whole conversation.
    *compactor* as in `compact_node`.
    """
    require_format(compactor, langchain)
    return _node(compactor, key, lambda before, shown: {key: replace_messages(before, shown)})


_Update = Callable[[list[BaseMessage], list[BaseMessage]], dict[str, Any]]
"""A function from a state's messages and the visible ones to a node's update."""


def _node(compactor: Compactor, key: str, update: _Update) -> Runnable[Any, Any]:
    def run(state: Any) -> dict[str, Any]:
        before = messages_of(state, key)
        with fail_open():
            return update(before, compactor(before).payload)
        return update(before, before)

    async def arun(state: Any) -> dict[str, Any]:
        before = messages_of(state, key)
        with fail_open():
            return update(before, (await compactor.acompact(before)).payload)
        return update(before, before)

    return RunnableLambda(run, arun, name="compact")


def messages_of(state: Any, key: str = MESSAGES) -> list[BaseMessage]:
    """Return the messages of a graph's state: of a mapping or object as a new list; a list is
    returned itself."""
    if isinstance(state, list):
        return state
    messages = state[key] if isinstance(state, Mapping) else getattr(state, key)
    return list(messages)
