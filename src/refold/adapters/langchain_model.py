"""Let a chat model of LangChain answer an `Ask`."""

from dataclasses import dataclass, field
from typing import Any

from refold.adapters.langchain_reading import SOURCE, slots_of
from refold.core.strategy import Answer, Ask
from refold.errors import install_hint
from refold.messages import Text
from refold.models.requests import alternating_turns
from refold.models.responses import answer_of_exception, read_finish, strip_reasoning
from refold.tokens.usage import Usage

try:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
    from langchain_core.runnables import RunnableConfig
    from langchain_core.runnables.config import merge_configs
except ImportError as error:
    raise ImportError(f"this adapter needs LangChain: {install_hint('langchain')}") from error


@dataclass(frozen=True, slots=True)
class ChatModel:
    """Answer an `Ask` by a chat model of LangChain, in sync and async code.

    Its calls carry the tag `nostream`, so that LangGraph does not stream them as the agent's words.
    """

    model: BaseChatModel
    config: RunnableConfig | None = field(default=None, repr=False)
    """Callbacks, tags and metadata of the run that it belongs to."""
    cap: str = "max_tokens"
    """The argument that caps an answer; empty for a model that takes none."""

    def __call__(self, ask: Ask, within: float | None = None, /) -> Answer:  # noqa: ARG002 - a model's
        """Ask the model."""
        try:
            return _answer(self.model.invoke(_prompt(ask), self._config(ask), **self._cap(ask)))
        except Exception as error:  # noqa: BLE001 - a failing model must not stop an agent
            return answer_of_exception(error)

    async def acall(self, ask: Ask, within: float | None = None, /) -> Answer:  # noqa: ARG002 - a model's
        """Ask the model, in async code."""
        try:
            return _answer(
                await self.model.ainvoke(_prompt(ask), self._config(ask), **self._cap(ask))
            )
        except Exception as error:  # noqa: BLE001 - likewise
            return answer_of_exception(error)

    def _config(self, ask: Ask) -> RunnableConfig:
        own = RunnableConfig(
            tags=["nostream"], metadata={"lc_source": SOURCE}, run_name=f"refold {ask.purpose}"
        )
        return merge_configs(self.config, own)

    def _cap(self, ask: Ask) -> dict[str, Any]:
        return {self.cap: ask.max_tokens} if self.cap else {}


def _prompt(ask: Ask) -> list[BaseMessage]:
    kinds: dict[str, type[BaseMessage]] = {"user": HumanMessage, "assistant": AIMessage}
    head: list[BaseMessage] = [SystemMessage(content=ask.system)] if ask.system else []
    return [*head, *(kinds[role](content=text) for role, text in alternating_turns(ask))]


def _answer(message: AIMessage) -> Answer:
    metadata = message.response_metadata
    word = (
        metadata.get("finish_reason")
        or metadata.get("stop_reason")
        or metadata.get("done_reason")
        or "stop"
    )
    finish = "tool" if message.tool_calls else read_finish(str(word))
    name = metadata.get("model_name") or metadata.get("model") or ""
    return Answer(
        strip_reasoning(_words(message)).strip(), finish, model=str(name), usage=usage_of(message)
    )


def _words(message: AIMessage) -> str:
    return "".join(slot.part.text for slot in slots_of(message, 0) if isinstance(slot.part, Text))


def usage_of(message: AIMessage) -> Usage | None:
    """Return what a call used, as its answer says; None if it does not."""
    used = message.usage_metadata
    if not used:
        return None
    details = used.get("input_token_details") or {}
    cached, written = details.get("cache_read") or 0, details.get("cache_creation") or 0
    return Usage(used["input_tokens"], used["output_tokens"], cached, written)
