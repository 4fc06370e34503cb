"""Strands Agents: a plugin that sends the model a compacted history, for models of any provider.

`Agent(plugins=[RefoldPlugin()], conversation_manager=NullConversationManager())`: the agent and its
session keep every message. Needs the extra `strands`.
"""

import logging
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from refold.adapters.hook import UNCOUNTED, explain_missing, fail_open, require_format
from refold.compactor.compactor import Compactor
from refold.core.view import View

with explain_missing("strands-agents", "strands"):
    from strands import Agent
    from strands.agent import NullConversationManager
    from strands.middleware import InvokeModelContext, InvokeModelStage, ModelStopReason
    from strands.plugins import Plugin

FORMAT = "bedrock"

_log = logging.getLogger("refold")


class RefoldPlugin(Plugin):
    """A plugin that compacts before every call of the model, and reports usage.

    Content that other middleware adds is compacted too, except the dynamic blocks that it rebuilds
    for each call. A conversation manager that removes messages would delete hidden ones for good,
    so a warning names it. *compactor* defaults to `Compactor(format="bedrock")`. Raises ValueError
    for another format.
    """

    name = "refold"

    def __init__(self, compactor: Compactor | None = None) -> None:
        super().__init__()
        self.compactor = require_format(compactor, FORMAT)

    def init_agent(self, agent: Agent) -> None:
        """Add the middleware to the agent's model calls."""
        agent.add_middleware(InvokeModelStage, self.invoke_model)
        manager = agent.conversation_manager
        if not isinstance(manager, NullConversationManager):
            text = "%s removes messages for good: give the agent a NullConversationManager"
            _log.warning(text, type(manager).__name__)

    async def invoke_model(
        self, context: InvokeModelContext, next_fn: Any
    ) -> AsyncGenerator[Any, None]:
        """Call the model with the view of the history. All events are passed on unchanged."""
        shown, view = await self._show(context)
        async for event in next_fn(shown):
            with fail_open(UNCOUNTED):
                if view is not None and isinstance(event, ModelStopReason):
                    self.compactor.report(view, event.usage)
            yield event

    async def _show(self, context: InvokeModelContext) -> tuple[InvokeModelContext, View | None]:
        with fail_open():
            messages, rebuilt = _part_rebuilt(context)
            view = await self.compactor.acompact(_body(context, messages))
            shown = list(view.payload["messages"])
            if rebuilt:
                shown[-1] = {**shown[-1], "content": [*shown[-1]["content"], *rebuilt]}
            return context.replace(messages=shown), view
        return context, None


def _part_rebuilt(context: InvokeModelContext) -> tuple[list[Any], list[Any]]:
    """Return the messages without the dynamic blocks at the end of the last one, and these
    blocks."""
    messages: list[Any] = list(context.messages)
    if not context.dynamic_trailing_blocks or not messages:
        return messages, []
    content = messages[-1]["content"]
    at = len(content) - context.dynamic_trailing_blocks
    return [*messages[:-1], {**messages[-1], "content": content[:at]}], content[at:]


def _body(context: InvokeModelContext, messages: list[Any]) -> dict[str, Any]:
    prompt, config = context.system_prompt, context.model.get_config()
    name = config.get("model_id") if isinstance(config, Mapping) else None
    blocks = [{"text": prompt}] if isinstance(prompt, str) else list(prompt or ())
    tools = [{"toolSpec": spec} for spec in context.tool_specs]
    body = {"messages": messages, "toolConfig": {"tools": tools}, "system": blocks}
    return body | ({"modelId": name} if isinstance(name, str) else {})
