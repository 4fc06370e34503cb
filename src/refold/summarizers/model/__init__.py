"""Summaries written by a model: bounded, checked, and with a fallback (docs/summaries.md)."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from refold.core.strategy import Answer, Ask, Ending, Summarizer, Summary
from refold.core.view import View
from refold.edits import Outcome
from refold.messages import Message
from refold.summarizers.forms.form import Form
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.model.accept import Headings, check_quotes, mark_ungrounded
from refold.summarizers.model.prompt import Prompt, as_prompt, load_prompt
from refold.summarizers.model.writer import (
    MIN_TOKENS,
    Job,
    Writer,
    WriterResult,
    describe_left_out,
    plan_job,
    with_record,
)
from refold.summarizers.placement import set_field
from refold.text.plain import readable_text

HEADINGS = (
    "Goal",
    "Rules and preferences",
    "Done",
    "Findings and decisions",
    "In progress",
    "Next steps",
)
"""Headings that a summary must have if neither a form nor other headings are given."""


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """A summarizer that asks a model and keeps a record beside its words: the user's requests,
    standing constraints, open items, files with their state, excerpts (as in `RuleSummary`).

    Asks at most *max_calls* questions, none larger than *window*. An answer is not used if it is
    empty, filtered, a tool call, only reasoning or too long, or if it is cut off or off the
    template after one more try. Then *fallback* summarises, and the run ends `degraded`. Without a
    fallback nothing changes, and it ends `rejected` or `failed`. Conformance 32 to 39. Raises
    ValueError if window or max_calls is below 1.
    """

    prompt: Prompt | str = field(default_factory=lambda: load_prompt("summary"))
    """The system prompt: how to summarise. Replaces the one of the package."""
    instructions: str = ""
    """Text added to the prompt."""
    form: Form[Any] | None = None
    """A form with typed values (docs/summaries.md). Without one, Markdown under *headings*."""
    headings: tuple[str, ...] = HEADINGS
    """Headings required in an answer without a form. Empty if any text will do."""
    window: int = 100_000
    """The context window of the summarizing model: maximum tokens of a request and its answer."""
    same_model: bool = False
    """Whether the summarizing model is also the model of the conversation. Then the question is
    sent as one more message of the conversation if it fits, because the prefix is cached."""
    fallback: Summarizer | None = field(default_factory=RuleSummary)
    """The summarizer used if the model fails, or None."""
    max_calls: int = 8
    """Maximum number of questions per summary."""
    closing: Prompt | str | None = None
    """The last message of a request, in place of the package's own. `{tokens}` stands for the room
    in tokens, `{question}` for the user's latest request."""
    record: bool = True
    """Whether the record is kept beside the model's words."""
    beside: Sequence[Message] = field(default=(), repr=False)
    """Messages of the span that stay word for word around the summary. Set by strategies."""
    is_alone: bool = field(default=False, repr=False)
    """As of `RuleSummary`: whether the record and the fallback read no other messages."""

    def __post_init__(self) -> None:
        if self.window < 1 or self.max_calls < 1:
            raise ValueError(
                f"window ({self.window}) and max_calls ({self.max_calls}) must be 1 or more"
            )
        object.__setattr__(self, "prompt", as_prompt(self.prompt))
        if self.closing is not None:
            object.__setattr__(self, "closing", as_prompt(self.closing))

    def __call__(
        self, view: View, start: int, stop: int, max_tokens: int
    ) -> Generator[Ask, Answer | None, Summary]:
        """Summarise `messages[start:stop]` in at most *max_tokens* tokens, wrapped."""
        record, beside, is_alone = self.record, self.beside, self.is_alone
        job = plan_job(
            view, start, stop, max_tokens, record=record, beside=beside, is_alone=is_alone
        )
        result = yield from self._write(job)
        if result.kind == "good":
            summary = self._finish(job, result)
            if summary.text:
                return summary
            result = WriterResult("rejected", summary.ending.reason if summary.ending else "")
        return (yield from self._fall_back(job, result))

    def _write(self, job: Job) -> Generator[Ask, Answer | None, WriterResult]:
        if not job.span.messages:
            return WriterResult("failed", "nothing was said since the earlier summary")
        if job.room < MIN_TOKENS:
            return WriterResult(
                "failed", f"{job.max_tokens} tokens leave no room for a model's words"
            )
        form = self.form or Headings(self.headings)
        prompt = as_prompt(self.prompt)
        is_own = self.form is None and prompt == load_prompt("summary")  # a form may ask for these
        beside = load_prompt("beside").text if self.record and is_own else ""
        system = prompt.plus(beside, form.template, self.instructions)
        closing = as_prompt(self.closing or load_prompt("whole"))
        window, before = self.window, job.value(form)
        writer = Writer(job, form, system, closing, window, self.same_model, before, self.max_calls)
        return (yield from writer.write())

    def _finish(self, job: Job, result: WriterResult) -> Summary:
        """Return the model's checked words with the record beside them."""
        spoken = [readable_text(message) for message in job.view.transcript.messages]
        checked = check_quotes(result.text, job.user_texts(), spoken)
        if self.form is None:  # a form has values, not prose
            checked = checked._replace(text=mark_ungrounded(checked.text, spoken))
        if self.form is not None and self.form.parse(checked.text) is None:
            return Summary("", Ending("rejected", "nothing is left without invented quotations"))
        text = with_record(job, checked.text)
        if not text:
            return Summary("", Ending("rejected", "the model's words leave no room in the cap"))
        notes = [result.detour] if result.detour else []
        if count := checked.struck_count:
            notes.append(f"quotations struck out that no message of the user holds: {count}")
        if self.record and (missing := describe_left_out(job.material.state, text)):
            notes.append(f"no room for {missing}")
        return Summary(text, Ending("degraded", "; ".join(notes)) if notes else None)

    def _fall_back(self, job: Job, result: WriterResult) -> Generator[Ask, Answer | None, Summary]:
        outcome: Outcome = (
            "rejected" if result.kind in ("rejected", "cut off", "off template") else "failed"
        )
        reason = f"{result.text} ({result.detour})" if result.detour else result.text
        if self.fallback is None:
            return Summary("", Ending(outcome, reason))
        write = set_field(self.fallback, "beside", self.beside)
        write = set_field(write, "is_alone", self.is_alone)
        summary = yield from write(job.view, job.start, job.stop, job.max_tokens)
        if not summary.text.strip():
            return Summary("", Ending(outcome, reason))
        return Summary(
            summary.text, Ending("degraded", f"{type(self.fallback).__name__} instead: {reason}")
        )


__all__ = ["HEADINGS", "ModelSummary", "Prompt", "load_prompt"]
