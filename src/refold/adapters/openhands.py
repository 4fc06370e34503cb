"""OpenHands' SDK: a condenser that forgets events and says in a summary what they held.

`Agent(llm=llm, condenser=RefoldCondenser())`: the event log keeps every event, and the
condensations with them, so a conversation that is opened again shows the same. Needs the extra
`openhands`, and Python 3.12.
"""

from typing import Any

from refold.adapters.hook import compact_or_pass, explain_missing
from refold.budget.budget import Budget
from refold.codecs import openai_chat
from refold.codecs.codec import with_rules
from refold.compactor.compactor import Compactor
from refold.core.view import View as RefoldView
from refold.rules.request import Body
from refold.rules.rule import Rule, Rules
from refold.stores.sqlite import SQLiteStore
from refold.strategies.summarize import SummarizeTo
from refold.tokens.usage import Usage

with explain_missing("openhands-sdk", "openhands"):
    from openhands.sdk import LLM
    from openhands.sdk.context.condenser import CondenserBase
    from openhands.sdk.context.view import View
    from openhands.sdk.event import Condensation, LLMConvertibleEvent
    from pydantic import PrivateAttr

CUTS = "cuts"
"""The field of a body that holds where the view may be cut, as OpenHands says."""


def _rules(body: Body) -> Rules:
    """Return the rules of a view: it is cut where OpenHands says, and thinking stays."""
    cuts = frozenset(body.get(CUTS, ()))

    def join(request: Any) -> list[tuple[int, int]]:
        return [(at - 1, at) for at in range(len(request.messages) + 1) if at not in cuts]

    rule = Rule("OH-1", "events are manipulated at indices of the view", lambda _: (), join)
    return Rules((rule,), alternate=False, thinking="fixed")


_EVENTS = with_rules(openai_chat, _rules)


class RefoldCondenser(CondenserBase):
    """Forget the older events of a view when it has more than *trigger* tokens."""

    trigger: int = 100_000
    """Tokens of the view at which events are forgotten."""
    target: int = 40_000
    """Tokens that remain, the summary's included."""
    store: str = ""
    """The file of a store, for a record of what was done; empty for none."""

    _compactor: Compactor | None = PrivateAttr(default=None)
    _sent: RefoldView | None = PrivateAttr(default=None)
    _chat: dict[str, dict[str, Any]] = PrivateAttr(default_factory=dict)
    """The messages of the view before, by the ids of their events, which never change."""

    @property
    def compactor(self) -> Compactor:
        """What decides which events are forgotten, and writes the summary."""
        if self._compactor is None:
            store = SQLiteStore(self.store) if self.store else None
            budget = Budget(self.trigger, self.target)
            self._compactor = Compactor([SummarizeTo()], budget, store, format=_EVENTS)
        return self._compactor

    def handles_condensation_requests(self) -> bool:
        """Tell that a request for a condensation is met, whatever the view's size."""
        return True

    def condense(self, view: View, agent_llm: LLM | None = None) -> View | Condensation:
        """Return *view*, or what is to be forgotten of it."""
        self._report(agent_llm)
        self._chat = {e.id: self._chat.get(e.id) or _to_chat(e) for e in view.events}
        body, head = _body(view, [self._chat[event.id] for event in view.events], agent_llm)
        budget = self._half(body) if view.unhandled_condensation_request else None
        shown = compact_or_pass(self.compactor, body, budget=budget)
        if shown is None or not shown.edits:
            self._sent = shown
            return view
        edit = shown.edits[-1]
        events = view.events[head + edit.start : head + edit.stop]
        return Condensation(
            forgotten_event_ids={event.id for event in events},
            summary="\n".join(message.text for message in edit.insert),
            summary_offset=head + edit.start,
            llm_response_id=edit.id,
        )

    def _half(self, body: dict[str, Any]) -> Budget:
        """Return a budget that a view is over by half, as it must be made smaller now."""
        half = min(self.target, max(self.compactor.show(body).tokens // 2, 1))
        return Budget(half, half)

    def _report(self, llm: LLM | None) -> None:
        """Report what the call before used, if one was made with the latest view."""
        usages = llm.metrics.token_usages if llm is not None else ()
        if self._sent is not None and usages:
            used = usages[-1]
            usage = Usage(used.prompt_tokens, used.completion_tokens, used.cache_read_tokens)
            self.compactor.report(self._sent, usage)
            self._sent = None


def _body(
    view: View, messages: list[dict[str, Any]], llm: LLM | None
) -> tuple[dict[str, Any], int]:
    """Return a view as a request of its *messages*, one an event, and how many of them are its
    head."""
    is_said = [message["role"] != "system" for message in messages]
    head = is_said.index(True) if True in is_said else len(messages)
    cuts = [at - head for at in view.manipulation_indices if at >= head]
    return {"messages": messages, CUTS: cuts, "model": llm.model if llm else ""}, head


def _to_chat(event: LLMConvertibleEvent) -> dict[str, Any]:
    message: dict[str, Any] = event.to_llm_message().to_chat_dict(
        cache_enabled=False,
        vision_enabled=True,
        function_calling_enabled=True,
        force_string_serializer=False,
        send_reasoning_content=True,
    )
    return message
