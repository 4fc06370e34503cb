"""Faults of the own compaction of LangChain and langmem, and the duration of a call."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from langchain.agents import create_agent
from langchain.agents.middleware import ModelRequest, ModelResponse, SummarizationMiddleware
from langchain_anthropic import ChatAnthropic
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    trim_messages,
)
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langmem.short_term import summarize_messages

from adapters.framework import BUSY, IDLE, Regression, Timing
from adapters.session import ToolError, check_part, neutral_history, read_part
from refold import Budget, Compactor, check, compact
from refold.adapters import langchain
from refold.adapters.langchain_agents import RefoldMiddleware, summarizer
from refold.strategies import Summarize


def make_model(url: str) -> ChatAnthropic:
    """Return a model with thinking."""
    return ChatAnthropic(
        model_name="claude-opus-5-5",
        base_url=url,
        api_key="none",
        max_tokens=2_000,
        max_retries=0,
        thinking={"type": "adaptive"},
    )


def tools() -> Sequence[BaseTool]:
    """Return the tools. Their errors become results."""

    def check(part: str) -> str:
        try:
            return check_part(part)
        except ToolError as error:
            raise ToolException(str(error)) from error

    return (
        StructuredTool.from_function(read_part),
        StructuredTool.from_function(
            check, name="check_part", description="Check a part.", handle_tool_error=True
        ),
    )


# --- faults of other compactions ------------------------------------------------------------------

BUDGETS = range(500, 13_000, 500)
KEEPS = range(2, 30)
GO_ON = HumanMessage("Go on.")


def make_history(signed: bool = False) -> list[BaseMessage]:
    """Return the history to compact, with signed thinking if *signed*."""
    messages = [langchain.encode(message) for message in neutral_history()]
    for at, message in enumerate(messages):
        message.id = f"m{at}"
        if signed and isinstance(message, AIMessage):
            thought = {"type": "thinking", "thinking": f"Step {at}?", "signature": f"c2ln{at:04}"}
            message.content = [thought, {"type": "text", "text": message.text}]
    return messages


def _trim(budget: int, **options: Any) -> list[BaseMessage]:
    return trim_messages(
        make_history(), max_tokens=budget, token_counter=count_tokens_approximately, **options
    )


def _summarize_by_langmem(budget: int) -> list[BaseMessage]:
    model = FakeListChatModel(responses=["They read the parts."])
    return summarize_messages(
        make_history(), running_summary=None, model=model, max_tokens=budget
    ).messages


def _compact(budget: int) -> list[BaseMessage]:
    return list(compact(make_history(), budget, format=langchain).payload)


def _find_fault(messages: Sequence[BaseMessage]) -> Any:
    """Return what a provider refuses when the user goes on."""
    return check([*messages, GO_ON], langchain)


def _summarize(keep: int, history: Sequence[BaseMessage], **options: Any) -> list[BaseMessage]:
    """Return the messages that remain after LangChain's own middleware."""
    model = FakeListChatModel(responses=["They read the parts."])
    middleware = SummarizationMiddleware(
        model, trigger=("messages", 10), keep=("messages", keep), **options
    )
    update = middleware.before_model({"messages": list(history)}, None)
    return [m for m in update["messages"] if not isinstance(m, RemoveMessage)] if update else []


class Unseen(NamedTuple):
    """The messages that a summarizer saw, and those deleted for its summary."""

    shown: Sequence[BaseMessage]
    deleted: Sequence[BaseMessage]

    def find(self) -> list[str]:
        """Return the texts that were deleted but not seen."""
        shown = {message.id for message in self.shown}
        return [message.text for message in self.deleted if message.id not in shown]


def _watch(keep: int, write: Any, **options: Any) -> Unseen:
    shown = list[BaseMessage]()

    def watch(messages: list[BaseMessage]) -> str:
        shown.extend(messages)
        return str(write(messages))

    history = make_history()
    remaining = {m.id for m in _summarize(keep, history, summarizer=watch, **options)}
    return Unseen(shown, [m for m in history if remaining and m.id not in remaining])


class Turns(NamedTuple):
    """Two requests of one conversation, before and after a compaction."""

    before: Sequence[BaseMessage]
    after: Sequence[BaseMessage]

    def find(self) -> Any:
        """Return what the provider refuses in the second request."""
        model = make_model("http://localhost")
        before, after = (model._get_request_payload(list(each)) for each in self)  # noqa: SLF001 - what it would send
        return check(after, "anthropic", before=before)


def _bind(keep: int) -> Turns:
    history = make_history(signed=True)
    return Turns(history[:-3], _summarize(keep, history))


def _bind_refold(keep: int) -> Turns:
    history = make_history(signed=True)
    compactor = Compactor([Summarize(keep)], Budget(9_000, 1_000), format=langchain)
    body = {"model": make_model("").model, "messages": history}
    compactor.show({**body, "messages": history[:-3]})
    return Turns(history[:-3], compactor.compact_now(body).payload["messages"])


# --- an unknown window ----------------------------------------------------------------------------


class NarrowModel(FakeListChatModel):
    """A model that refuses requests of more than *limit* tokens."""

    limit: int

    def _generate(self, messages: list[BaseMessage], *arguments: Any, **options: Any) -> Any:
        if count_tokens_approximately(messages) > self.limit:
            raise ContextOverflowError("prompt is too long")
        return super()._generate(messages, *arguments, **options)


def _overflow(limit: int, middleware: Any) -> str:
    """Return the error that ends a run, or an empty text."""
    model = NarrowModel(responses=["Done."], limit=limit)
    agent = create_agent(model, [], middleware=[middleware(model)])
    try:
        agent.invoke({"messages": [*make_history(), GO_ON]})
    except ContextOverflowError as error:
        return str(error)
    return ""


OVERFLOW = Regression(
    case="the model's window is smaller than thought: the run ends",
    settings=range(8_000, 14_000, 1_000),
    own=partial(
        _overflow, middleware=partial(SummarizationMiddleware, trigger=("tokens", 100_000))
    ),
    ours=partial(
        _overflow, middleware=lambda _: RefoldMiddleware(Compactor(**IDLE, format=langchain))
    ),
    find_fault=str,
    broken=6,
)

REGRESSIONS = (
    Regression(
        case="trim_messages as it is: a result without its call",
        thread="langchain#33245",
        settings=BUDGETS,
        own=_trim,
        ours=_compact,
        find_fault=_find_fault,
        broken=13,
    ),
    Regression(
        case="trim_messages(strategy='first'): a call without its result",
        thread="langchain#33245",
        settings=BUDGETS,
        own=partial(_trim, strategy="first"),
        ours=_compact,
        find_fault=_find_fault,
        broken=23,
    ),
    Regression(
        case="langmem summarize_messages: a result without its call",
        thread="langmem#126",
        settings=BUDGETS,
        own=_summarize_by_langmem,
        ours=_compact,
        find_fault=_find_fault,
        broken=12,
    ),
    Regression(
        case="SummarizationMiddleware: deleted, and not shown to the summarizer",
        thread="langchain#39261",
        settings=KEEPS,
        own=partial(_watch, write=lambda _: "They read the parts."),
        ours=partial(_watch, write=summarizer().invoke, trim_tokens_to_summarize=None),
        find_fault=Unseen.find,
        broken=25,
    ),
    Regression(
        case="SummarizationMiddleware: signed thinking behind what was changed",
        thread="langchain#34794",
        settings=KEEPS,
        own=_bind,
        ours=_bind_refold,
        find_fault=Turns.find,
        broken=28,
    ),
    OVERFLOW,
)

# --- timings --------------------------------------------------------------------------------------


def _time_refold(compactor: Compactor) -> Callable[[Sequence[Any]], object]:
    middleware, model, given = RefoldMiddleware(compactor), make_model(""), list(tools())
    answer = ModelResponse(result=[AIMessage("Done.")])
    return lambda messages: middleware.wrap_model_call(
        ModelRequest(model=model, messages=list(messages), tools=given), lambda _: answer
    )


def _time_own() -> Callable[[Sequence[Any]], object]:
    model = FakeListChatModel(responses=["They read the parts."])
    middleware = SummarizationMiddleware(model, trigger=("tokens", 10**9))
    return lambda messages: middleware.before_model({"messages": list(messages)}, None)


def _long_history(length: int) -> list[BaseMessage]:
    return [langchain.encode(m) for m in neutral_history(length, lines=4)][:length]


TIMINGS = (
    Timing("SummarizationMiddleware", _long_history, _time_own()),
    Timing("RefoldMiddleware", _long_history, _time_refold(Compactor(**IDLE, format=langchain))),
    Timing(
        "RefoldMiddleware, history shortened",
        _long_history,
        _time_refold(Compactor(**BUSY, format=langchain)),
    ),
)
