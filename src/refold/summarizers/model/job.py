"""What there is to summarise, and how much of it goes into one request."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import chain, groupby
from typing import Any

from refold.core.strategy import Ask
from refold.core.view import View
from refold.messages import user
from refold.speakers import current_request, own_words, view_segments
from refold.summarizers.forms.form import Form
from refold.summarizers.heuristic import Material, read_material, write_summary
from refold.summarizers.heuristic.earlier import read_given
from refold.summarizers.heuristic.layout import render_state
from refold.summarizers.heuristic.source import read_source
from refold.summarizers.heuristic.state import State
from refold.summarizers.model.prompt import Element, halve
from refold.summarizers.tail import SourceSpan, read_span
from refold.text.summary_wrapper import join_record, split_record, wrap_summary

COUNT_MARGIN = 1.1
"""Tokens by the summarizer's own count for each that we estimate, at most (docs/models.md)."""
RETRY_TOKENS = 120
"""Tokens that a second question adds to the first."""


@dataclass(frozen=True, slots=True)
class Job:
    """One span of one view that is to be summarised."""

    view: View
    start: int
    stop: int
    max_tokens: int
    span: SourceSpan
    material: Material
    """What is kept without the model: requests, constraints, open work, files, excerpts."""
    room: int
    """Tokens for the model's own words."""
    has_record: bool
    """Does the summary hold, beside the model's words, what is kept without the model?"""

    @property
    def earlier_summary(self) -> str:
        """The earlier summary, as the model is shown it."""
        return "\n\n".join(self.span.earlier)

    @property
    def question(self) -> str:
        """What the user asked last; empty if nothing."""
        request = current_request(self.view.transcript.messages, view_segments(self.view))
        return "\n\n".join(own_words(segment) for at in sorted(request) for segment in request[at])

    def user_texts(self) -> list[str]:
        """Return everything that the user said and that is still known."""
        spoken = chain.from_iterable(view_segments(self.view))
        return [
            *(own_words(segment) for segment in spoken if segment.voice == "person"),
            *self.material.state.requests,
            *self.material.work.texts("asked"),
        ]

    def value(self, form: Form[Any]) -> Any:
        """Return the earlier summary as *form* reads it; None if it is in another shape."""
        texts = ((split_record(text) or (text, ""))[0] for text in self.span.earlier)
        values = [value for value in map(form.parse, texts) if value is not None]
        return reduce(form.merge, values) if values else None

    def cost(self, text: str) -> int:
        """Return the tokens of *text* as a message."""
        return self.view.profile.count(user(text))

    def weight(self, ask: Ask) -> int:
        """Return the tokens of a request and its answer, by our estimate."""
        if ask.view is not None:
            before = self.view.tokens_uncalibrated
        else:
            before = self.cost(ask.system) + sum(map(self.view.profile.count, ask.messages))
        return before + self.cost(ask.prompt) + ask.max_tokens + RETRY_TOKENS

    def capacity(self, window: int) -> int:
        """Return how many tokens by our estimate surely fit into *window*, by what the provider was
        seen to count for each of ours, and with a margin."""
        ratio = max(1.0, self.view.tokens / max(1, self.view.tokens_uncalibrated))
        return int(window / ratio / COUNT_MARGIN)


def plan_job(view: View, start: int, stop: int, max_tokens: int, *, record: bool) -> Job:
    """Return the job of summarising `messages[start:stop]` in *max_tokens*. With a *record* up to
    half of them go to what is kept without the model."""
    span = read_span(view, start, stop)
    # What an earlier summary says in other words, the model reads and says again.
    source = read_source(view, start, stop)._replace(edited=())
    material = read_material(source)
    material.state.notes.clear()
    half = max_tokens // 2 - view.profile.count(wrap_summary(""))
    record_text = render_state(material.state, half) if record else ""
    used = view.profile.count(wrap_summary(join_record("", record_text) if record else ""))
    return Job(view, start, stop, max_tokens, span, material, max_tokens - used, record)


def with_record(job: Job, words: str) -> str:
    """Return the model's words and the record beside them, within the cap; an empty text if the
    words alone exceed it."""
    count, room = job.view.profile.count, job.max_tokens
    if not job.has_record:
        return words if count(wrap_summary(words)) <= room else ""

    def count_beside(record_text: str) -> int:
        return count(wrap_summary(join_record(words, record_text)))

    text = join_record(words, write_summary(job.material, room, count_beside))
    return text if count(wrap_summary(text)) <= room else ""


def describe_left_out(state: State, text: str) -> str:
    """Say how many constraints, open items and changed files found no room in *text*; an empty text
    if all did."""
    plain = " ".join(text.split())
    constraints = sum(" ".join(rule.split()) not in plain for rule in state.constraints)
    todos = sum(
        " ".join(todo.text.split()) not in text for todo in state.todos if todo.status != "done"
    )
    record = (split_record(text) or ("", text))[1]
    listed = read_given([record]).state.files
    files = sum(path not in listed for path, file in state.files.items() if file.state != "read")
    counts = ((constraints, "constraints"), (todos, "open items"), (files, "changed files"))
    return ", ".join(f"{count} {noun}" for count, noun in counts if count)


Cost = Callable[[Element], int]
MIN_ELEMENT = 200
"""Characters of an element that is not cut further."""


def split_record_into_parts(
    record: Iterable[Element], cuts: Iterable[int], room: int, cost: Cost
) -> list[list[Element]]:
    """Split *record* into successive parts of at most *room* tokens by *cost*.

    What stands between two of *cuts*, such as a call and its result, stays together if it fits into
    one part; an element that does not fit alone is cut. Nothing is left out. Returns no part if
    even the smallest piece does not fit.
    """
    out, rest = list[list[Element]](), 0
    places = sorted(cuts)
    for _, group in groupby(record, key=lambda element: bisect_right(places, element.at)):
        unit = list(group)
        whole = sum(map(cost, unit))
        if whole > room:
            pieces = [piece for element in unit for piece in _cut_element(element, room, cost)]
        else:
            pieces = unit
            rest = rest if whole <= rest else 0
        for piece in pieces:
            price = cost(piece)
            if price > room:
                return []
            if price > rest or not out:
                out.append([])
                rest = room
            out[-1].append(piece)
            rest -= price
    return out


def _cut_element(element: Element, room: int, cost: Cost) -> Iterator[Element]:
    if cost(element) <= room or len(element.text) <= MIN_ELEMENT:
        yield element
        return
    for half in halve(element):
        if half.text.strip():
            yield from _cut_element(half, room, cost)
