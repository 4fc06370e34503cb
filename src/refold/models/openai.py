"""The OpenAI SDK as a model: OpenAI itself, Azure, and every server that speaks its APIs."""

from dataclasses import dataclass, field
from typing import Literal

from refold.errors import install_hint
from refold.models.requests import CHAT, RESPONSES
from refold.models.sdk import SDKModel

try:
    from openai import AsyncOpenAI, OpenAI
except ImportError as error:
    raise ImportError(f"OpenAIModel needs the OpenAI SDK: {install_hint('openai')}") from error


@dataclass(frozen=True)
class OpenAIModel(SDKModel):
    """Asks by `client.chat.completions.create`, or by `client.responses.create`.

    *client* is an `OpenAI` or `AsyncOpenAI` with your key and address; without one a client is made
    for each call, which reads `OPENAI_API_KEY`.
    """

    api: Literal["chat", "responses"] = field(default="chat", kw_only=True)
    """For requests of its own; a conversation is continued in the format it is in."""
    cap: str = field(default="max_completion_tokens", kw_only=True)
    """The field that caps an answer in Chat Completions; older servers know `max_tokens`."""

    sync_client, async_client = OpenAI, AsyncOpenAI

    @property
    def formats(self) -> tuple[str, ...]:
        """Both, that of *api* first."""
        return (CHAT, RESPONSES) if self.api == "chat" else (RESPONSES, CHAT)
