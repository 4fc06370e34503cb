"""pydantic-ai: a capability that sends the model a compacted history. The run keeps every message.

`Agent(capabilities=[RefoldCapability()])`. Needs the extra `pydantic-ai`.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from operator import not_
from typing import Any

from refold.adapters import pydantic_ai_messages
from refold.adapters.hook import UNCOUNTED, explain_missing, fail_open, require_format
from refold.compactor.compactor import Compactor
from refold.core.view import View
from refold.tokens.usage import Usage

with explain_missing("pydantic-ai-slim", "pydantic-ai"):
    from pydantic_ai import RunContext
    from pydantic_ai.capabilities import AbstractCapability, WrapModelRequestHandler
    from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse
    from pydantic_ai.models import ModelRequestContext


class RefoldCapability(AbstractCapability[Any]):
    """A capability that compacts the model's input, and reports usage.

    Only the request changes: `all_messages()` has the whole history. As a tier of the harness's
    `TieredCompaction` it compacts the history that the harness keeps. *compactor* defaults to
    `Compactor(format=refold.adapters.pydantic_ai_messages)`. Raises ValueError for another
    format.
    """

    def __init__(self, compactor: Compactor | None = None) -> None:
        self.compactor = require_format(compactor, pydantic_ai_messages)
        self._latest: tuple[View | None, list[ModelMessage]] = None, []
        """The last result of `compact`, after its view."""

    async def wrap_model_request(
        self,
        ctx: RunContext[Any],  # noqa: ARG002 - the framework's signature
        *,
        request_context: ModelRequestContext,
        handler: WrapModelRequestHandler,
    ) -> ModelResponse:
        """Call the model with the view of the history."""
        shown, view = await self._show_request(request_context)
        response = await handler(shown)
        self._report(view, response)
        return response

    async def _show_request(
        self, context: ModelRequestContext
    ) -> tuple[ModelRequestContext, View | None]:
        with fail_open():
            view, messages = await self._show(context.messages, _options(context))
            return replace(context, messages=messages), view
        return context, None

    def _report(self, view: View | None, response: ModelResponse) -> None:
        with fail_open(UNCOUNTED):
            if view is not None:
                used = response.usage
                cached, written = used.cache_read_tokens, used.cache_write_tokens
                usage = Usage(used.input_tokens, used.output_tokens, cached, written)
                self.compactor.report(view, usage)

    async def compact(
        self, messages: list[ModelMessage], ctx: RunContext[Any]
    ) -> list[ModelMessage]:
        """Return the view of *messages*, as a tier of the harness's compaction.

        If *messages* begin with the previous result and a response to it, the usage of that
        response is reported. A result changed by another tier or a pin has no report.
        """
        (view, shown), self._latest = self._latest, (None, [])
        start, after = messages[: len(shown)], messages[len(shown) : len(shown) + 1]
        if start == shown and after and isinstance(after[0], ModelResponse):
            self._report(view, after[0])
        with fail_open():
            model = getattr(ctx.model, "model_name", "")
            view, shown = await self._show(messages, {"model": model})
            self._latest = view, list(shown)
            return shown
        return messages

    async def _show(
        self, messages: Sequence[ModelMessage], options: dict[str, Any]
    ) -> tuple[View, list[ModelMessage]]:
        """Return the view of *messages* and its messages."""
        opening, rest = _part_settings(messages)
        body = {"messages": [*opening, *rest], **options}
        view = await self.compactor.acompact(body)
        shown = list(view.payload["messages"])
        if opening and len(shown) > 1:
            is_same = shown[1] is rest[0]
            first = messages[0] if is_same else pydantic_ai_messages.merge(shown[0], shown[1])
            shown = [first, *shown[2:]]
        return view, shown


def _part_settings(
    messages: Sequence[ModelMessage],
) -> tuple[list[ModelMessage], list[ModelMessage]]:
    """Split the settings (system prompt and the like) in the first request from its user
    content."""
    first = messages[0] if messages else None
    if not isinstance(first, ModelRequest):
        return [], list(messages)
    is_setting = [part.part_kind in pydantic_ai_messages.SETTINGS for part in first.parts]
    if all(is_setting) or not any(is_setting):
        return [], list(messages)
    settings, request = (
        replace(first, parts=list(compress(first.parts, chosen)))
        for chosen in (is_setting, map(not_, is_setting))
    )
    return [settings], [request, *messages[1:]]


def _options(context: ModelRequestContext) -> dict[str, Any]:
    parameters = context.model_request_parameters
    tools = [
        {"name": t.name, "description": t.description, "parameters": t.parameters_json_schema}
        for t in (*parameters.function_tools, *parameters.output_tools)
    ]
    texts = [part.content for part in parameters.instruction_parts or ()]
    return {"model": context.model.model_name, "tools": tools, "instructions": texts}
