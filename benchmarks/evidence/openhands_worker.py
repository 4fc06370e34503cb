"""Runs in the environment of OpenHands' SDK, as `peers_worker` does in that of the other peers.

A session is a log of events, as the SDK keeps it. Its condenser forgets events of the view and adds
a summary. Each remaining event stands for the message that it was made from.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

from openhands.sdk import LLM, Message, TextContent
from openhands.sdk.context.condenser import LLMSummarizingCondenser
from openhands.sdk.context.view import View
from openhands.sdk.event import (
    ActionEvent,
    Condensation,
    Event,
    LLMConvertibleEvent,
    MessageEvent,
    ObservationEvent,
)
from openhands.sdk.llm import MessageToolCall, content_to_str
from openhands.sdk.tool import Observation

Chat = dict[str, Any]
NAME = "OpenHands"


class Output(Observation):
    """A tool result."""


class Beginnings(LLMSummarizingCondenser):
    """The SDK's condenser with a mechanical summarizer: the beginning of each event, cut to equal
    length, as many of the newest as fit."""

    size: int
    """Characters of a summary."""

    def _generate_condensation(
        self,
        forgotten_events: Sequence[LLMConvertibleEvent],
        summary_offset: int,
        **_: Any,
    ) -> Condensation:
        each = max(80, self.size // max(1, len(forgotten_events)))
        lines = [" ".join(text_of(event).split())[:each] for event in forgotten_events]
        return Condensation(
            forgotten_event_ids={event.id for event in forgotten_events},
            summary="\n".join(lines[-max(1, self.size // each) :]),
            summary_offset=summary_offset,
            llm_response_id=forgotten_events[0].id,
        )


def text_of(event: LLMConvertibleEvent) -> str:
    """Return the text of an event and the arguments of its call."""
    message = event.to_llm_message()
    calls = [call.arguments for call in message.tool_calls or ()]
    return "\n".join([*content_to_str(message.content), *calls])


class Log:
    """The events of a session and the messages that they were made from."""

    def __init__(self, window: int) -> None:
        self.llm = LLM(model="gpt-4o", usage_id="agent", api_key="none")
        self.condenser = Beginnings(llm=self.llm, max_tokens=window, size=4 * window // 20)
        self.events = list[Event]()
        self.sources = dict[str, Chat]()
        self.calls = dict[str, ActionEvent]()

    def add(self, chat: Chat) -> None:
        """Add the events of a message."""
        content = chat["content"]
        texts = [content] if isinstance(content, str) else [part["text"] for part in content]
        spoken = [TextContent(text=text) for text in texts if text]
        if call := self.calls.get(chat.get("tool_call_id", "")):
            observation = ObservationEvent(
                tool_name=call.tool_name,
                tool_call_id=call.tool_call_id,
                observation=Output(content=spoken),
                action_id=call.id,
            )
            self.keep(observation, chat)
        elif calls := chat.get("tool_calls"):
            for entry in calls:
                action = action_of(entry, spoken if entry is calls[0] else [], calls[0]["id"])
                self.calls[action.tool_call_id] = action
                self.keep(action, chat)
        else:
            source = "agent" if chat["role"] == "assistant" else "user"
            message = Message(role=chat["role"], content=spoken)
            self.keep(MessageEvent(source=source, llm_message=message), chat)

    def keep(self, event: Event, chat: Chat) -> None:
        """Append an event made from a message."""
        self.events.append(event)
        self.sources[event.id] = chat

    def show(self) -> list[Chat]:
        """Condense the log if that is due, and return the messages of its view."""
        shown = self.condenser.condense(View.from_events(self.events), agent_llm=self.llm)
        if isinstance(shown, Condensation):
            self.events.append(shown)
            shown = View.from_events(self.events)
        messages = list[Chat]()
        for event in shown.events:
            chat = self.sources.get(event.id) or {"role": "user", "content": text_of(event)}
            if not messages or messages[-1] is not chat:  # parallel calls are one message
                messages.append(chat)
        return messages


def action_of(entry: Chat, thought: list[TextContent], answer: str) -> ActionEvent:
    """Return the event of a call in the answer that *answer* names."""
    name, arguments = entry["function"]["name"], entry["function"]["arguments"]
    return ActionEvent(
        thought=thought,
        tool_name=name,
        tool_call_id=entry["id"],
        tool_call=MessageToolCall(
            id=entry["id"], name=name, arguments=arguments, origin="completion"
        ),
        llm_response_id=answer,
    )


def main() -> None:
    """Answer line by line until the input ends; return the names of the peers for an empty
    object."""
    log = Log(1)
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        match json.loads(line):
            case {"peer": _, "window": window}:
                log = Log(window)
                answer: dict[str, Any] = {}
            case {"new": new}:
                for chat in new:
                    log.add(chat)
                answer = {"send": log.show()}
            case _:
                answer = {"peers": [NAME]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
