"""What the SDKs of OpenAI and Anthropic share: their clients are of one make."""

from contextlib import nullcontext
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, ClassVar

from refold.core.strategy import Answer, Ask
from refold.models.model import ProviderModel
from refold.models.requests import CHAT, MESSAGES, RESPONSES, Request

_CALLS = {
    CHAT: ("chat.completions", ("model", "messages")),
    RESPONSES: ("responses", ("model", "input")),
    MESSAGES: ("messages", ("model", "messages", "max_tokens")),
}
"""Where a client sends a format, and the fields that it insists on."""


@dataclass(frozen=True)
class SDKModel(ProviderModel):
    """Asks by a client of an SDK.

    An async client serves `acall` only; a sync one serves both, `acall` in a thread that a
    cancelled task leaves behind until its timeout. Without a client one is made for each call.
    One ask is one HTTP request: the SDK's own retries are off, retrying is the work of `Fallback`.
    """

    client: Any = field(default=None, repr=False)
    sync_client: ClassVar[type[Any]]
    async_client: ClassVar[type[Any]]

    @property
    def is_async(self) -> bool:
        """Does the client serve async code only?"""
        return hasattr(self.client, "__aenter__")

    @property
    def secrets(self) -> tuple[str | None, ...]:
        """The client's keys."""
        return getattr(self.client, "api_key", None), getattr(self.client, "auth_token", None)

    def __call__(self, ask: Ask, within: float | None = None, /) -> Answer:
        """Ask. Raises TypeError if the client is an async one."""
        if self.is_async:
            name, client = type(self).__name__, self.sync_client.__name__
            raise TypeError(
                f"this {name} has an async client: use `acompact`, or give it an {client}()"
            )
        return super().__call__(ask, within)

    def send(self, request: Request, seconds: float) -> Any:
        """Return the SDK's reply."""
        with nullcontext(self.client) if self.client else self.sync_client() as client:
            return _create(client, request, seconds)

    async def asend(self, request: Request, seconds: float) -> Any:
        """As `send`, for async code."""
        if self.client and not self.is_async:
            return await super().asend(request, seconds)
        async with nullcontext(self.client) if self.client else self.async_client() as client:
            return await _create(client, request, seconds)


def _create(client: Any, request: Request, seconds: float) -> Any:
    """Send; with an async client what comes back is to be awaited. The fields that the SDK insists
    on go by name, all others as they are: it need not know them."""
    path, names = _CALLS[request.format]
    named = {name: request.body[name] for name in names}
    rest = {name: value for name, value in request.body.items() if name not in names}
    api = attrgetter(path)(client.with_options(max_retries=0))
    return api.create(**named, extra_body=rest, timeout=seconds)
