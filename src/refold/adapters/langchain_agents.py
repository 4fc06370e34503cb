"""LangChain's agents: middleware that sends the model a compacted history, and a summarizer for
LangChain's own middleware.

`RefoldMiddleware` does not change the agent's state. `summarizer` writes the summaries of
`SummarizationMiddleware`, LangChain's or that of deepagents. Needs the extra `langchain-agents`.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from refold.adapters import langchain
from refold.adapters.hook import UNCOUNTED, explain_missing, fail_open, require_format
from refold.adapters.langchain import SOURCE, usage_of
from refold.budget.budget import Budget
from refold.compactor.compactor import Compactor
from refold.core.profile import Profile
from refold.core.strategy import Summarizer, Summary
from refold.core.view import View
from refold.messages import Message, user
from refold.models.driver import Asker, adrive, drive
from refold.summarizers.heuristic import RuleSummary
from refold.text.summary_wrapper import OPEN, wrap_summary

with explain_missing("langchain", "langchain-agents"):
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
    from langchain_core.exceptions import ContextOverflowError
    from langchain_core.messages import AIMessage, BaseMessage
    from langchain_core.runnables import Runnable, RunnableLambda

SUMMARY_TOKENS = 4_000
"""Maximum tokens of a summary."""


class RefoldMiddleware(AgentMiddleware[Any, Any, Any]):
    """Middleware that sends the model a compacted history.

    `create_agent(..., middleware=[RefoldMiddleware()])`. Reports usage. *compactor* defaults to
    `Compactor(format=refold.adapters.langchain)`. The state keeps every message, so give it a store
    that lasts as long as the checkpointer. Raises ValueError for another format.
    """

    def __init__(self, compactor: Compactor | None = None) -> None:
        super().__init__()
        self.compactor = require_format(compactor, langchain)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Call the model with the view. If that overflows its window, retry once with half of the
        tokens."""
        shown, view = self._show(request)
        try:
            response = handler(shown)
        except ContextOverflowError:
            if view is None:
                raise
            shown, view = self._show(request, _half(view))
            response = handler(shown)
        return self._report(view, response)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Do the same as `wrap_model_call`, in async code."""
        shown, view = await self._ashow(request)
        try:
            response = await handler(shown)
        except ContextOverflowError:
            if view is None:
                raise
            shown, view = await self._ashow(request, _half(view))
            response = await handler(shown)
        return self._report(view, response)

    def _show(
        self, request: ModelRequest[Any], budget: Budget | None = None
    ) -> tuple[ModelRequest[Any], View | None]:
        with fail_open():
            view = self.compactor(_body(request), budget=budget)
            return _with_view(request, view), view
        return request, None

    async def _ashow(
        self, request: ModelRequest[Any], budget: Budget | None = None
    ) -> tuple[ModelRequest[Any], View | None]:
        with fail_open():
            view = await self.compactor.acompact(_body(request), budget=budget)
            return _with_view(request, view), view
        return request, None

    def _report(self, view: View | None, response: ModelResponse[Any]) -> ModelResponse[Any]:
        with fail_open(UNCOUNTED):
            answers = [message for message in response.result if isinstance(message, AIMessage)]
            if view is not None and answers:
                self.compactor.report(view, usage_of(answers[-1]))
        return response


def _half(view: View) -> Budget:
    return Budget(view.tokens // 2, view.tokens // 2)


def _body(request: ModelRequest[Any]) -> dict[str, Any]:
    head = [request.system_message] if request.system_message else []
    fields = ("model_name", "model", "model_id")  # the last with Bedrock
    model = next(filter(None, (getattr(request.model, field, "") for field in fields)), "")
    named = {"model": model} if isinstance(model, str) else {}
    return {"messages": [*head, *request.messages], "tools": list(request.tools), **named}


def _with_view(request: ModelRequest[Any], view: View) -> ModelRequest[Any]:
    return request.override(messages=view.payload["messages"][bool(request.system_message) :])


# --- summaries for LangChain's own middleware ----------------------------------------------------


def summarizer(
    max_tokens: int = SUMMARY_TOKENS, by: Summarizer | None = None, ask: Asker | None = None
) -> Runnable[Sequence[BaseMessage], str]:
    """Return a summarizer: `SummarizationMiddleware(..., summarizer=summarizer())`.

    Without *by* no model is called (`RuleSummary`). Also set `trim_tokens_to_summarize=None`,
    because by default the summarizer gets only the last 4,000 tokens of what is deleted. If no
    useful summary fits *max_tokens*, the summarizer raises ValueError and the middleware deletes
    nothing.
    """
    write = RuleSummary() if by is None else by

    def run(messages: Sequence[BaseMessage]) -> str:
        view = _view(messages)
        return _text(drive(write(view, 0, len(view.transcript), max_tokens), ask), max_tokens)

    async def arun(messages: Sequence[BaseMessage]) -> str:
        view = _view(messages)
        return _text(
            await adrive(write(view, 0, len(view.transcript), max_tokens), ask), max_tokens
        )

    return RunnableLambda(run, arun, name="refold_summarizer")


def _view(messages: Sequence[BaseMessage]) -> View:
    decoded = list[Message]()
    for message in messages:
        is_summary = message.additional_kwargs.get("lc_source") == SOURCE
        decoded.append(
            _earlier(message) if is_summary else langchain.decode(message, tuple(decoded))
        )
    return View.of(decoded, profile=Profile(rules=langchain.rules({})))


def _earlier(message: BaseMessage) -> Message:
    """Return an earlier summary without the heading that the middleware has added."""
    _, begin, text = str(message.text).partition(OPEN)
    if not begin:
        return wrap_summary(str(message.text))
    return user(begin + text)


def _text(summary: Summary, max_tokens: int) -> str:
    if not summary.text:
        raise ValueError(f"no summary of use fits {max_tokens} tokens: nothing was deleted")
    return wrap_summary(summary.text).text
