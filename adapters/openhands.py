"""OpenHands' SDK: its conversation over Chat Completions; the event log is on disk."""

import base64
import uuid
from collections.abc import Sequence
from typing import Any

from openhands.sdk import LLM, Agent, Conversation, ImageContent, Message, TextContent, Tool
from openhands.sdk.context.condenser import LLMSummarizingCondenser
from openhands.sdk.context.view import View
from openhands.sdk.event import MessageEvent
from openhands.sdk.tool import Action, Observation, ToolDefinition, ToolExecutor, register_tool
from pydantic import SecretStr

from adapters.framework import MODEL, Job, Regression, Talk, Timing
from adapters.session import TARGET, TRIGGER, Turn, check_part, read_part
from refold.adapters.openhands import RefoldCondenser

PACKAGE = "openhands-sdk"


class PartAction(Action):
    """The name of a part."""

    part: str


class PartObservation(Observation):
    """The output of a tool."""

    @classmethod
    def of(cls, text: str) -> "PartObservation":
        """Return an observation with a text."""
        return cls(content=[TextContent(text=text)])


class _Executor(ToolExecutor[PartAction, PartObservation]):
    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, action: PartAction, conversation: Any = None) -> PartObservation:
        return PartObservation.of(self.function(action.part))


class ReadPartTool(ToolDefinition[PartAction, PartObservation]):
    """Reads a part."""

    name = "read_part"

    @classmethod
    def create(cls, *_: Any, **__: Any) -> Sequence["ReadPartTool"]:
        """Return the tool."""
        return [_tool(cls, "Read the log of a part.", read_part)]


class CheckPartTool(ToolDefinition[PartAction, PartObservation]):
    """Checks a part."""

    name = "check_part"

    @classmethod
    def create(cls, *_: Any, **__: Any) -> Sequence["CheckPartTool"]:
        """Return the tool."""
        return [_tool(cls, "Check a part.", check_part)]


def _tool(cls: Any, description: str, function: Any) -> Any:
    return cls(
        description=description,
        action_type=PartAction,
        observation_type=PartObservation,
        executor=_Executor(function),
    )


register_tool("ReadPartTool", ReadPartTool)
register_tool("CheckPartTool", CheckPartTool)


def talk(job: Job) -> Talk:
    """Run the turns, the streamed one with a callback for its tokens."""
    deltas = list[str]()
    conversation: Any = None
    for turn in job.turns:
        conversation = _open(job, turn, deltas)
        conversation.send_message(_input(turn))
        conversation.run()
        condenser = conversation.agent.condenser
        conversation.close()
    events = list(conversation.state.events)
    reports = len(condenser.compactor.settings.reports.newest)
    return Talk([event.model_dump(mode="json") for event in events], deltas, reports)


def _open(job: Job, turn: Turn, deltas: list[str]) -> Any:
    llm = LLM(
        model=f"openai/{MODEL}",
        base_url=f"{job.url}/v1",
        api_key=SecretStr("none"),
        num_retries=0,
        stream=turn.streams,
        usage_id="agent",
    )
    condenser = RefoldCondenser(trigger=TRIGGER, target=TARGET, store=str(job.place / "refold.db"))
    agent = Agent(
        llm=llm,
        tools=[Tool(name="ReadPartTool"), Tool(name="CheckPartTool")],
        include_default_tools=[],
        condenser=condenser,
        system_prompt="You see to parts.",
    )
    return Conversation(
        agent,
        workspace=str(job.place),
        persistence_dir=str(job.place / "log"),
        conversation_id=uuid.UUID(int=1),
        visualizer=None,
        delete_on_close=False,
        token_callbacks=[lambda chunk: deltas.extend(_texts(chunk))] if turn.streams else None,
    )


def _texts(chunk: Any) -> list[str]:
    return [c.delta.content for c in chunk.choices if c.delta and c.delta.content]


def _input(turn: Turn) -> Message:
    content: list[Any] = [TextContent(text=turn.text)]
    if turn.image:
        url = f"data:image/png;base64,{base64.b64encode(turn.image).decode()}"
        content.append(ImageContent(image_urls=[url]))
    return Message(role="user", content=content)


REGRESSIONS: tuple[Regression, ...] = ()


# --- timings --------------------------------------------------------------------------------------


def _events(length: int) -> list[MessageEvent]:
    return [_event(n) for n in range(length)]


def _event(at: int) -> MessageEvent:
    role = "assistant" if at % 2 else "user"
    message = Message(role=role, content=[TextContent(text=read_part(f"part-{at}")[:900])])
    return MessageEvent(source="agent" if at % 2 else "user", llm_message=message)


_CONDENSER = RefoldCondenser(trigger=1_000_000, target=500_000)

_OWN = LLMSummarizingCondenser(
    llm=LLM(model="openai/none", api_key=SecretStr("none")), max_size=10**6
)

TIMINGS = (
    Timing(
        "LLMSummarizingCondenser",
        _events,
        lambda events: _OWN.condense(View(events=list(events))),
    ),
    Timing(
        "RefoldCondenser",
        _events,
        lambda events: _CONDENSER.condense(View(events=list(events))),
    ),
)
