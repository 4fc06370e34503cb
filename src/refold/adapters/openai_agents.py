"""OpenAI's Agents SDK: a filter of the model's input, and a session with a compacted history.

`RefoldFilter` runs before every call of the model. The run and its session keep every item. Needs
the extra `openai-agents`.
"""

from collections.abc import Iterator
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

with explain_missing("openai-agents", "openai-agents"):
    from agents import Agent, FunctionTool, Handoff, ModelResponse, RunHooks, handoff
    from agents.items import TResponseInputItem
    from agents.memory import Session, SessionSettings
    from agents.run import CallModelData, ModelInputData
    from agents.run_context import RunContextWrapper

FORMAT = "openai_responses"


class RefoldFilter(RunHooks[Any]):
    """A filter that sends the model a compacted history.

    `RunConfig(call_model_input_filter=RefoldFilter())`. Items that no edit touches are the same
    objects. As `hooks=` too, it reports usage, so that token counts match the provider's.
    *compactor* defaults to `Compactor(format="openai_responses")`. Raises ValueError for another
    format.
    """

    def __init__(self, compactor: Compactor | None = None) -> None:
        self.compactor = require_format(compactor, FORMAT)

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the input for the model."""
        given = data.model_data
        latest_view.set(None)
        with fail_open():
            view = await self.compactor.acompact(_body(data.agent, given))
            items = list(view.payload["input"])
            latest_view.set(view)
            return ModelInputData(input=items, instructions=given.instructions)
        return given

    async def on_llm_end(
        self,
        context: RunContextWrapper[Any],  # noqa: ARG002 - the SDK's signature
        agent: Agent[Any],  # noqa: ARG002 - the SDK's signature
        response: ModelResponse,
    ) -> None:
        """Report the usage of the call."""
        with fail_open(UNCOUNTED):
            if (view := latest_view.get()) is not None:
                used = response.usage
                details = used.input_tokens_details
                cached = details.cached_tokens
                written = getattr(details, "cache_write_tokens", None) or 0  # not in older releases
                usage = Usage(used.input_tokens, used.output_tokens, cached, written)
                self.compactor.report(view, usage)


def _body(agent: Agent[Any], given: ModelInputData) -> dict[str, Any]:
    model = agent.model if isinstance(agent.model, str) else getattr(agent.model, "model", "")
    names = ("name", "description", "parameters")
    tools = [{"type": "function", **dict(zip(names, tool, strict=True))} for tool in _tools(agent)]
    request = {"model": model, "instructions": given.instructions, "tools": tools}
    return {**request, "input": list(given.input)}


def _tools(agent: Agent[Any]) -> Iterator[tuple[str, str | None, Any]]:
    """Yield name, description and schema of the agent's functions, of its hand-offs, and of MCP
    tools as the run has listed them; to list them again would ask their servers."""
    for tool in agent.tools:
        if isinstance(tool, FunctionTool):
            yield tool.name, tool.description, tool.params_json_schema
    for target in agent.handoffs:
        offer = target if isinstance(target, Handoff) else handoff(target)
        yield offer.tool_name, offer.tool_description, offer.input_json_schema
    for server in agent.mcp_servers:
        for listed in getattr(server, "cached_tools", None) or ():  # not in older releases
            schema = listed.model_dump(by_alias=True).get("inputSchema")
            yield listed.name, listed.description, schema


class RefoldSession:
    """A session that keeps every item in *session* and gives a run the compacted history.

    It is for code that cannot set a `RunConfig`. Items that a run adds are not compacted before the
    next run. Use it or `RefoldFilter`, not both. *compactor* as in `RefoldFilter`.
    """

    def __init__(self, session: Session, compactor: Compactor | None = None) -> None:
        self.session = session
        self.compactor = require_format(compactor, FORMAT)

    @property
    def session_id(self) -> str:
        """Id of the wrapped session."""
        return self.session.session_id

    @property
    def session_settings(self) -> SessionSettings | None:
        """Settings of the wrapped session."""
        return self.session.session_settings

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the compacted history; with *limit*, the newest *limit* items unchanged."""
        items = await self.session.get_items(limit)
        with fail_open():
            if items and limit is None:
                return list((await self.compactor.acompact(items)).payload)
        return items

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items to the wrapped session."""
        await self.session.add_items(items)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item and return it; None if there is none."""
        return await self.session.pop_item()

    async def clear_session(self) -> None:
        """Remove all items."""
        await self.session.clear_session()
