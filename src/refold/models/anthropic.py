"""The Anthropic SDK as a model, its Bedrock and Vertex clients included."""

from dataclasses import dataclass

from refold.errors import install_hint
from refold.models.requests import MESSAGES
from refold.models.sdk import SDKModel

try:
    from anthropic import Anthropic, AsyncAnthropic
except ImportError as error:
    raise ImportError(
        f"AnthropicModel needs the Anthropic SDK: {install_hint('anthropic')}"
    ) from error


@dataclass(frozen=True)
class AnthropicModel(SDKModel):
    """Asks by `client.messages.create`.

    *client* is any client of the SDK, with your key and address; without one a client is made for
    each call, which reads `ANTHROPIC_API_KEY`.
    """

    sync_client, async_client = Anthropic, AsyncAnthropic

    @property
    def formats(self) -> tuple[str, ...]:
        """Anthropic's own."""
        return (MESSAGES,)
