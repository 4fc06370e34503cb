"""Who speaks: what the user said cannot be looked up again, what a tool said often can."""

from collections.abc import Sequence
from dataclasses import dataclass

from refold.messages import Message
from refold.view import View


@dataclass(frozen=True)
class Roles:
    """A score by who speaks; tool results count as *tool* in whichever role they are sent."""

    user: float = 1.0
    system: float = 1.0
    assistant: float = 0.5
    tool: float = 0.2

    def __call__(self, view: View) -> Sequence[float]:
        """A score for each message."""
        return [self._of(message) for message in view.transcript.messages]

    def _of(self, message: Message) -> float:
        match "tool" if message.role == "user" and message.results else message.role:
            case "user":
                return self.user
            case "system" | "developer":
                return self.system
            case "assistant":
                return self.assistant
            case _:
                return self.tool
