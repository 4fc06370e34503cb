"""Compaction as a node of a LangGraph graph, and updates for its `add_messages` reducer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from refold.adapters import langchain
from refold.compactor.compactor import Compactor
from refold.core.view import View
from refold.errors import FormatError, install_hint

try:
    from langchain_core.messages import BaseMessage, RemoveMessage
    from langchain_core.runnables import Runnable, RunnableLambda
    from langgraph.graph.message import REMOVE_ALL_MESSAGES, MessagesState
except ImportError as error:
    raise ImportError(f"this adapter needs LangGraph: {install_hint('langchain')}") from error

MESSAGES = "messages"
HOOKED = "llm_input_messages"
"""Where a `pre_model_hook` puts what the model shall see while the state keeps everything."""


def replace_messages(
    before: Sequence[BaseMessage], after: Sequence[BaseMessage]
) -> list[BaseMessage]:
    """What a node returns for `messages`, so that the state holds *after* instead of *before*.

    Empty where the two are the same. The reducer only appends, so everything else goes first.
    """
    if len(before) == len(after) and all(
        old is new for old, new in zip(before, after, strict=True)
    ):
        return []
    return [RemoveMessage(id=REMOVE_ALL_MESSAGES), *after]


def apply_removals(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """*messages* with every `RemoveMessage` among them applied to those before it: the list that a
    graph's state would hold. Raises `FormatError` for one whose message is not there."""
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
    """A state for `compact_node`: every message, and beside them what is to be sent."""

    llm_input_messages: list[BaseMessage]


def compact_node(
    compactor: Compactor, *, key: str = MESSAGES, into: str = HOOKED
) -> Runnable[Any, Any]:
    """A node that puts what is to be sent under *into*; the state keeps every message, in both colours.

    *compactor* must have `format=refold.adapters.langchain`, and the graph's state a field *into*, as `CompactedState`
    and the state of a `pre_model_hook` have. So an edit can be taken back after a restart too: the checkpointer has what
    it hides. Raises ValueError for another compactor, and where *into* is *key*: that is `compact_and_discard_node`.
    """
    _check(compactor)
    if not into or into == key:
        raise ValueError(
            "the originals under this key would be lost: say so by compact_and_discard_node"
        )
    return _node(compactor, key, lambda _, view: {into: view.payload})


def compact_and_discard_node(compactor: Compactor, *, key: str = MESSAGES) -> Runnable[Any, Any]:
    """A node that **deletes** the state's messages and puts in their place what the view shows: the originals
    are lost, in the state and in every later checkpoint, and neither `unfold` nor `revert` brings them back.

    For a checkpointer that must not hold the whole conversation. *compactor* as for `compact_node`.
    """
    _check(compactor)
    return _node(compactor, key, lambda before, view: {key: replace_messages(before, view.payload)})


def _check(compactor: Compactor) -> None:
    if compactor.settings.format is not langchain:
        raise ValueError("a node needs a Compactor with format=refold.adapters.langchain")


def _node(
    compactor: Compactor, key: str, update: Callable[[list[BaseMessage], View], dict[str, Any]]
) -> Runnable[Any, Any]:
    def run(state: Any) -> dict[str, Any]:
        before = messages_of(state, key)
        return update(before, compactor(before))

    async def arun(state: Any) -> dict[str, Any]:
        before = messages_of(state, key)
        return update(before, await compactor.acompact(before))

    return RunnableLambda(run, arun, name="compact")


def messages_of(state: Any, key: str = MESSAGES) -> list[BaseMessage]:
    """The messages of a graph's state: a mapping, an object with fields, or the list itself."""
    if isinstance(state, list):
        return state
    messages = state[key] if isinstance(state, Mapping) else getattr(state, key)
    return list(messages)
