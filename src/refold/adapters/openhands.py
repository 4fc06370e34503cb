"""OpenHands' SDK: a condenser that forgets events and summarizes them.

`Agent(llm=llm, condenser=RefoldCondenser())`: the event log keeps every event and the
condensations, so a resumed conversation shows the same. Needs the extra `openhands`, and Python
3.12.
"""

from typing import Any

from refold.adapters.hook import UNCOUNTED, explain_missing, fail_open
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
"""Field of a body with the positions at which OpenHands allows cuts of the view."""


def _rules(body: Body) -> Rules:
    """Return the rules of a view: it is cut only where OpenHands allows it, and thinking stays."""
    cuts = frozenset(body.get(CUTS, ()))

    def join(request: Any) -> list[tuple[int, int]]:
        return [(at - 1, at) for at in range(len(request.messages) + 1) if at not in cuts]

    rule = Rule("OH-1", "events are manipulated at indices of the view", lambda _: (), join)
    return Rules((rule,), alternate=False, thinking="fixed")


_EVENTS = with_rules(openai_chat, _rules)


class RefoldCondenser(CondenserBase):
    """A condenser that forgets older events of a view with at least *trigger* tokens."""

    trigger: int = 100_000
    """Tokens of the view at which events are forgotten."""
    target: int = 40_000
    """Tokens that remain, including the summary."""
    store: str = ""
    """Path of a store for a record of all compactions; empty for none."""

    _compactor: Compactor | None = PrivateAttr(default=None)
    _sent: RefoldView | None = PrivateAttr(default=None)
    _chat: dict[str, dict[str, Any]] = PrivateAttr(default_factory=dict)
    """Messages of the previous view by event id. Events never change."""

    @property
    def compactor(self) -> Compactor:
        """The compactor, which decides what to forget and writes the summary."""
        if self._compactor is None:
            store = SQLiteStore(self.store) if self.store else None
            budget = Budget(self.trigger, self.target)
            self._compactor = Compactor([SummarizeTo()], budget, store, format=_EVENTS)
        return self._compactor

    def handles_condensation_requests(self) -> bool:
        """Return True: a requested condensation is made whatever the view's size."""
        return True

    def condense(self, view: View, agent_llm: LLM | None = None) -> View | Condensation:
        """Return *view*, or a condensation that says what to forget."""
        with fail_open(UNCOUNTED):
            self._report(agent_llm)
        with fail_open():
            return self._condense(view, agent_llm)
        self._sent = None
        return view

    def _condense(self, view: View, agent_llm: LLM | None) -> View | Condensation:
        self._chat = {e.id: self._chat.get(e.id) or _to_chat(e) for e in view.events}
        body, head = _body(view, [self._chat[event.id] for event in view.events], agent_llm)
        budget = self._half(body) if view.unhandled_condensation_request else None
        shown = self.compactor(body, budget=budget)
        if not shown.edits:
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
        """Return a budget of at most half of the view's tokens, so that compaction is due now."""
        half = min(self.target, max(self.compactor.show(body).tokens // 2, 1))
        return Budget(half, half)

    def _report(self, llm: LLM | None) -> None:
        """Report the usage of the previous call, if the latest view was sent."""
        usages = llm.metrics.token_usages if llm is not None else ()
        if self._sent is not None and usages:
            used = usages[-1]
            usage = Usage(used.prompt_tokens, used.completion_tokens, used.cache_read_tokens)
            self.compactor.report(self._sent, usage)
            self._sent = None


def _body(
    view: View, messages: list[dict[str, Any]], llm: LLM | None
) -> tuple[dict[str, Any], int]:
    """Return the request body of a view with *messages*, one per event, and the number of leading
    system messages."""
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
