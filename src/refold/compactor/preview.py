"""A compaction that was made and not kept: to look at, to change, to accept, or to use once."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from refold.compactor.losses import Losses, find_losses
from refold.core.view import View
from refold.edits import Attempt, Edit
from refold.errors import EditError
from refold.messages import Message
from refold.text.summary_wrapper import summary_in, without_summary, wrap_summary


@dataclass(frozen=True)
class Preview:
    """What a compaction would make of a conversation (S2-47, S2-51). Immutable; nothing of it is
    kept until `Compactor.accept` keeps exactly its edits."""

    before: View
    """The view as it is now."""
    view: View
    """The view as it would be. Its `payload` can be sent without accepting: a compaction for one
    call only."""
    edits: tuple[Edit, ...]
    """What accepting keeps."""

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """How each strategy's run ended."""
        return self.view.attempts

    @property
    def payload(self) -> Any:
        """What would be sent."""
        return self.view.payload

    @property
    def tokens_saved(self) -> int:
        """Tokens that each further request is smaller by."""
        return self.before.tokens - self.view.tokens

    @property
    def calls(self) -> int:
        """Model calls that the preview took. Accepting takes none."""
        return sum(attempt.calls for attempt in self.attempts)

    @property
    def cost(self) -> float:
        """What those calls cost, in US dollars, if prices are known."""
        return sum(attempt.cost for attempt in self.attempts)

    def cost_saved(self, price: float) -> float:
        """Return the US dollars that each further request costs less, at *price* dollars for a
        million input tokens."""
        return self.tokens_saved * price / 1_000_000

    @cached_property
    def losses(self) -> Losses:
        """What stands in what is sent now, and would stand in it no more."""
        return find_losses(self.before, self.view)

    def summaries(self) -> dict[str, str]:
        """Return the text of each summary among the edits, by the edit's id."""
        texts = ((edit.id, _summary_of(edit)) for edit in self.edits)
        return {id: text for id, text in texts if text is not None}

    def amend(self, id: str, text: str) -> "Preview":
        """Return this preview with another *text* in the summary that the edit *id* (or a unique
        beginning of it) shows. The text is wrapped as any summary; the edit keeps its id.

        Raises `EditError` if no new edit has this id, if it shows no summary, if the text is empty,
        and if it is not smaller than what it stands for.
        """
        edit = self.view.find(id)
        if edit not in self.edits:
            raise EditError(
                f"edit {edit.id} is kept already: only what this preview made can be changed"
            )
        if _summary_of(edit) is None:
            raise EditError(f"edit {edit.id} shows no summary")
        if not text.strip():
            raise EditError("a summary must say something")
        amended = replace(
            edit, insert=tuple(_replace_summary(message, text) for message in edit.insert)
        )
        view = self.view.revert().apply_valid(
            amended if each == edit else each for each in self.view.edits
        )
        if view.estimate >= self.view.revert(edit.id).estimate:
            raise EditError("the summary is not smaller than what it stands for")
        return replace(
            self, view=view, edits=tuple(amended if each == edit else each for each in self.edits)
        )


def _summary_of(edit: Edit) -> str | None:
    return next((text for text in map(summary_in, edit.insert) if text is not None), None)


def _replace_summary(message: Message, text: str) -> Message:
    """Return the message with another summary; what else stands in it stays."""
    if summary_in(message) is None:
        return message
    return replace(message, parts=(*wrap_summary(text).parts, *without_summary(message).parts))
