"""Google's Agent Development Kit (ADK): a plugin, and a filter for the plugin that it ships.

Both change only the request. The session keeps every event. Needs the extra `google-adk`.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from refold.adapters.hook import (
    UNCOUNTED,
    explain_missing,
    fail_open,
    latest_view,
    require_format,
)
from refold.compactor.compactor import Compactor
from refold.tokens.usage import Usage

with explain_missing("google-adk", "google-adk"):
    from google.adk.agents.callback_context import CallbackContext
    from google.adk.models.llm_request import LlmRequest
    from google.adk.models.llm_response import LlmResponse
    from google.adk.plugins.base_plugin import BasePlugin
    from google.genai.types import Content

FORMAT = "gemini"


class RefoldPlugin(BasePlugin):
    """A plugin that sends the model a compacted history: `App(..., plugins=[RefoldPlugin()])`.

    Reports usage. *compactor* defaults to `Compactor(format="gemini")`. Give it a store that lasts
    as long as the sessions. Raises ValueError for another format.
    """

    def __init__(self, compactor: Compactor | None = None, name: str = "refold") -> None:
        super().__init__(name)
        self.compactor = require_format(compactor, FORMAT)

    async def before_model_callback(
        self,
        *,
        callback_context: CallbackContext,  # noqa: ARG002 - ADK's signature
        llm_request: LlmRequest,
    ) -> LlmResponse | None:
        """Replace the contents of the request by the view."""
        latest_view.set(None)
        with fail_open():
            view = await self.compactor.acompact(_body(llm_request))
            llm_request.contents = _contents(view.payload["contents"])
            latest_view.set(view)
        return None

    async def after_model_callback(
        self,
        *,
        callback_context: CallbackContext,  # noqa: ARG002 - ADK's signature
        llm_response: LlmResponse,
    ) -> LlmResponse | None:
        """Report the usage of the call."""
        with fail_open(UNCOUNTED):
            used, view = llm_response.usage_metadata, latest_view.get()
            if view is not None and used is not None and not llm_response.partial:
                output = (used.candidates_token_count or 0) + (used.thoughts_token_count or 0)
                cached = used.cached_content_token_count or 0
                self.compactor.report(view, Usage(used.prompt_token_count or 0, output, cached))
        return None


def content_filter(compactor: Compactor | None = None) -> Callable[[list[Content]], list[Content]]:
    """Return a filter for ADK's plugin: `ContextFilterPlugin(custom_filter=...)`.

    It works like `RefoldPlugin`, but does not get the model's name, tools, instructions and
    usage.
    """
    chosen = require_format(compactor, FORMAT)

    def show(contents: list[Content]) -> list[Content]:
        with fail_open():
            return _contents(chosen(list(contents)).payload)
        return contents

    return show


def _body(request: LlmRequest) -> dict[str, Any]:
    config = request.config.model_dump(
        mode="json",
        by_alias=True,
        exclude_none=True,
        include={"system_instruction", "tools"},
        fallback=str,  # a function as a tool
    )
    return {**config, "model": request.model, "contents": list(request.contents)}


def _contents(entries: list[Any]) -> list[Content]:
    """Return contents. Those that no edit touches are the same objects."""
    return [
        Content.model_validate_json(json.dumps(entry)) if isinstance(entry, Mapping) else entry
        for entry in entries
    ]
