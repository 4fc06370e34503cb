"""LiteLLM: a callback for its proxy and SDK, at the hook that knows the routed model.

In a proxy's configuration use `litellm_settings: {callbacks: refold.adapters.litellm.callback}`, or
your own instance; in the SDK `litellm.callbacks = [RefoldLogger()]`. Needs the extra `litellm`.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import uuid4

from refold.adapters.hook import UNCOUNTED, explain_missing, fail_open
from refold.compactor.compactor import Compactor
from refold.compactor.conversations import put_lru
from refold.core.view import View

with explain_missing("litellm", "litellm"):
    from litellm.integrations.custom_logger import CustomLogger
    from litellm.types.utils import CallTypes

    if not hasattr(CustomLogger, "async_pre_call_deployment_hook"):
        raise ImportError  # older releases would never call the hook

FORMATS = {
    "completion": "openai_chat",
    "acompletion": "openai_chat",
    "anthropic_messages": "anthropic",
    "responses": "openai_responses",
    "aresponses": "openai_responses",
}
"""Kinds of calls with a conversation, and their wire formats."""
FIELDS = ("model", "messages", "input", "system", "instructions", "tools")
"""Arguments that are passed to the compactor, so that their tokens count."""
MAX_PENDING = 1_000
"""Maximum number of calls that wait for their usage. The oldest are dropped."""


class _Pending(NamedTuple):
    """A call whose usage is not reported yet."""

    compactor: Compactor
    view: View
    is_sync: bool
    """Whether the view was made by `compact`."""


class RefoldLogger(CustomLogger):
    """A callback that sends the view of each conversation, and reports usage.

    Takes the arguments of `Compactor` except `format`, which follows from the API that is called.
    The caller's messages do not change. LiteLLM has no hook for sync calls: pass their arguments
    through `compact`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.compactors = {
            format: Compactor(format=format, **options)
            for format in dict.fromkeys(FORMATS.values())
        }
        self._sent = OrderedDict[str, _Pending]()

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: CallTypes | None
    ) -> dict[str, Any] | None:
        """Return the arguments of a routed call with the view's messages; None without a list of
        messages, and for arguments from `compact`."""
        with fail_open():
            compactor = self._compactor_of(kwargs, call_type.value if call_type else "")
            if compactor is not None and not self._is_shown(kwargs, compactor):
                view = await compactor.acompact(_body(kwargs))
                return self._show(kwargs, compactor, view, is_sync=False)
        return None

    def compact(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the compacted arguments of a sync call:
        `litellm.completion(**refold.compact(kwargs))`. Without a list of messages return them
        unchanged."""
        with fail_open():
            call_type = "responses" if "input" in kwargs else "completion"
            compactor = self._compactor_of(kwargs, call_type)
            if compactor is not None:
                named = {"litellm_call_id": str(uuid4()), **kwargs}
                return self._show(named, compactor, compactor(_body(kwargs)), is_sync=True)
        return kwargs

    async def async_log_success_event(
        self,
        kwargs: Mapping[str, Any],
        response_obj: Any,
        start_time: Any,
        end_time: Any,
    ) -> None:
        """Do the same as `log_success_event`, for async calls."""
        self.log_success_event(kwargs, response_obj, start_time, end_time)

    def log_success_event(
        self,
        kwargs: Mapping[str, Any],
        response_obj: Any,
        start_time: Any,  # noqa: ARG002 - LiteLLM's signature
        end_time: Any,  # noqa: ARG002 - LiteLLM's signature
    ) -> None:
        """Report the usage of the call."""
        with fail_open(UNCOUNTED):
            waiting = self._sent.pop(str(kwargs.get("litellm_call_id", "")), None)
            used = response_obj.get("usage") if hasattr(response_obj, "get") else None
            if waiting is not None and used is not None:
                usage = used if isinstance(used, Mapping) else used.model_dump()
                waiting.compactor.report(waiting.view, usage)

    def _compactor_of(self, kwargs: Mapping[str, Any], call_type: str) -> Compactor | None:
        """Return the compactor for a call; None if the call has no list of messages."""
        format = FORMATS.get(call_type, "")
        entries = kwargs.get("input" if format == "openai_responses" else "messages")
        return self.compactors.get(format) if isinstance(entries, list) else None

    def _is_shown(self, kwargs: Mapping[str, Any], compactor: Compactor) -> bool:
        """Return whether `compact` has produced these arguments. LiteLLM's sync `responses` runs
        the hook too. A fallback of the proxy has the call id of the first attempt."""
        waiting = self._sent.get(str(kwargs.get("litellm_call_id", "")))
        field = _field_of(compactor)
        if waiting is None or not waiting.is_sync:
            return False
        return bool(kwargs[field] == waiting.view.payload[field])

    def _show(
        self, kwargs: dict[str, Any], compactor: Compactor, view: View, *, is_sync: bool
    ) -> dict[str, Any]:
        field = _field_of(compactor)
        shown = view.payload[field]
        call = str(kwargs.get("litellm_call_id", ""))
        if call:
            put_lru(self._sent, call, _Pending(compactor, view, is_sync), MAX_PENDING)
        return {**kwargs, field: shown} if view.visible_edits else kwargs


def _field_of(compactor: Compactor) -> str:
    return "input" if compactor.settings.format == "openai_responses" else "messages"


def _body(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {field: kwargs[field] for field in FIELDS if kwargs.get(field)}


callback = RefoldLogger()
"""Instance with default settings for a proxy's configuration. Its edits end with the process."""
