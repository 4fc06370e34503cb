"""Ask a model for a summary: in one request if it fits, else in parts that are joined. Decide what
there is to summarise and how much goes into one request."""

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from itertools import chain, groupby
from typing import Any, NamedTuple

from refold.core.strategy import Answer, Ask
from refold.core.view import View
from refold.messages import Message, user
from refold.rules.pairing import pair_calls
from refold.speakers import Segment, current_request, own_words, view_segments
from refold.summarizers.forms.form import Form, describe_fault
from refold.summarizers.heuristic import Material, names_in, read_material, write_summary
from refold.summarizers.heuristic.earlier import drop_quotes, read_earlier_summaries
from refold.summarizers.heuristic.identifiers import iter_identifiers
from refold.summarizers.heuristic.layout import render_state
from refold.summarizers.heuristic.lexicon import find_constraints
from refold.summarizers.heuristic.state import State
from refold.summarizers.heuristic.steps import read_source
from refold.summarizers.model.accept import Headings, ReplyKind, judge_answer
from refold.summarizers.model.prompt import (
    DETAILS,
    Element,
    Prompt,
    clip_middle,
    halve,
    in_tags,
    load_prompt,
    record_elements,
)
from refold.summarizers.tail import SourceSpan, read_span
from refold.text.summary_wrapper import PERSON_PREFIX, join_record, split_record, wrap_summary

# --- the job --------------------------------------------------------------------------------------


COUNT_MARGIN = 1.1
"""Maximum ratio of the summarizer's own token count to our estimate (docs/models.md)."""
RETRY_TOKENS = 120
"""Tokens that a second question adds to the first."""


@dataclass(frozen=True, slots=True)
class Job:
    """A span of a view to be summarised."""

    view: View
    start: int
    stop: int
    max_tokens: int
    span: SourceSpan
    material: Material
    """What is kept without the model: requests, constraints, open items, files, excerpts."""
    room: int
    """Tokens for the model's own words."""
    has_record: bool
    """Whether the summary holds this material beside the model's words."""

    @property
    def earlier_summary(self) -> str:
        """The earlier summary as shown to the model. Quotations in its record are left out, since
        the record is written anew."""
        texts = self.span.earlier
        parts = map(split_record, texts) if self.has_record else [None] * len(texts)
        return "\n\n".join(
            f"{part[0]}\n\n{drop_quotes(part[1])}" if part else text
            for text, part in zip(texts, parts, strict=True)
        )

    @property
    def request(self) -> Mapping[int, Sequence[Segment]]:
        """The user's latest request, by message index."""
        return current_request(self.view.transcript.messages, view_segments(self.view))

    @property
    def question(self) -> str:
        """The text of the user's latest request, or an empty string."""
        spoken = sorted(self.request.items())
        return "\n\n".join(own_words(segment) for _, own in spoken for segment in own)

    def user_texts(self) -> list[str]:
        """Return all known texts of the user."""
        spoken = chain.from_iterable(view_segments(self.view))
        return [
            *(own_words(segment) for segment in spoken if segment.voice == "person"),
            *self.material.state.requests,
            *self.material.work.texts("asked"),
        ]

    def value(self, form: Form[Any]) -> Any:
        """Return the earlier summaries as one value of *form*, or None if none has this shape."""
        texts = ((split_record(text) or (text, ""))[0] for text in self.span.earlier)
        values = [value for value in map(form.parse, texts) if value is not None]
        return reduce(form.merge, values) if values else None

    def cost(self, text: str) -> int:
        """Return the tokens of *text* as a message."""
        return self.view.profile.count(user(text))

    def weight(self, ask: Ask) -> int:
        """Return the estimated tokens of a request and its answer."""
        if ask.view is not None:
            before = self.view.tokens_uncalibrated
        else:
            before = self.cost(ask.system) + sum(map(self.view.profile.count, ask.messages))
        return before + self.cost(ask.prompt) + ask.max_tokens + RETRY_TOKENS

    def capacity(self, window: int) -> int:
        """Return the number of estimated tokens that surely fit into *window*, corrected by the
        provider's past counts and with a margin."""
        ratio = max(1.0, self.view.tokens / max(1, self.view.tokens_uncalibrated))
        return int(window / ratio / COUNT_MARGIN)


def plan_job(
    view: View,
    start: int,
    stop: int,
    max_tokens: int,
    *,
    record: bool,
    beside: Sequence[Message] = (),
    is_alone: bool = False,
) -> Job:
    """Return the job of summarising `messages[start:stop]` in *max_tokens*. The messages *beside*
    stay as they are, the others too unless it *is_alone*. With a *record*, up to half of the tokens
    are reserved for it."""
    span = read_span(view, start, stop)
    # The model reads an earlier summary's own words and repeats them.
    source = read_source(view, start, stop, is_alone)._replace(edited=())
    material = read_material(source, beside)
    material.state.is_latest_current &= not is_alone
    material.state.notes.clear()
    half = max_tokens // 2 - view.profile.count(wrap_summary(""))
    record_text = render_state(material.state, half) if record else ""
    used = view.profile.count(wrap_summary(join_record("", record_text) if record else ""))
    return Job(view, start, stop, max_tokens, span, material, max_tokens - used, record)


def with_record(job: Job, words: str) -> str:
    """Return the model's words with the record beside them, or an empty text if the words alone
    exceed the cap."""
    count, room = job.view.profile.count, job.max_tokens
    if not job.has_record:
        return words if count(wrap_summary(words)) <= room else ""
    # The words repeat earlier decisions of the model, and what they name is not quoted again.
    names, state = frozenset(names_in(words)), job.material.state
    news = {
        text: weight
        for text, weight in state.decisions.items()
        if text.startswith(PERSON_PREFIX)
        or not names.issuperset(name for name, _ in iter_identifiers(text))
    }
    material = replace(
        job.material,
        state=replace(state, decisions=news),
        shown_names=job.material.shown_names | names,
        answer_share=0.0,
    )

    def count_beside(record_text: str) -> int:
        return count(wrap_summary(join_record(words, record_text)))

    text = join_record(words, write_summary(material, room, count_beside))
    return text if count(wrap_summary(text)) <= room else ""


def describe_left_out(state: State, text: str) -> str:
    """Describe how many constraints, open items and changed files found no room in *text*, or
    return an empty text."""
    listed = read_earlier_summaries([(split_record(text) or ("", text))[1]]).state
    rules = {*listed.constraints, *chain.from_iterable(map(find_constraints, state.in_sight))}
    plain = " ".join(" ".join((text, *state.in_sight)).split())
    constraints = sum(
        rule not in rules and " ".join(rule.split()) not in plain for rule in state.constraints
    )
    todos = sum(
        " ".join(todo.text.split()) not in text for todo in state.todos if todo.status != "done"
    )
    files = sum(
        path not in listed.files for path, file in state.files.items() if file.state != "read"
    )
    counts = ((constraints, "constraint"), (todos, "open item"), (files, "changed file"))
    return ", ".join(f"{count} {noun}{'s' * (count > 1)}" for count, noun in counts if count)


# --- parts of a record ----------------------------------------------------------------------------


Cost = Callable[[Element], int]
MIN_ELEMENT = 200
"""Number of characters below which an element is not cut further."""


def split_record_into_parts(
    record: Iterable[Element], cuts: Iterable[int], room: int, cost: Cost
) -> list[list[Element]]:
    """Split *record* into successive parts of at most *room* tokens by *cost*.

    Elements between two of *cuts*, such as a call and its result, stay together if they fit into
    one part. An element that does not fit alone is cut. Nothing is left out. Returns no parts if
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


# --- the requests ---------------------------------------------------------------------------------


WriterSteps = Generator[Ask, Answer | None, "WriterResult"]
MIN_TOKENS = 60
"""Minimum number of tokens for which a model is asked."""
MAX_CHARS_PER_TOKEN = 30
"""Characters per token above which a record is too long to be worth counting. Prose has 4."""
MAX_QUESTION = 2_000
"""Maximum number of characters of the latest request shown beside the record."""
MAX_REMINDER = 300
"""The same for a request that is also in the record."""
NEWER = "\n\nHere the newest messages begin. They stay as they are, and you do not see them."
"""Note after a record that ends before the conversation does."""


class WriterResult(NamedTuple):
    """The result of asking."""

    kind: ReplyKind
    text: str = ""
    """The model's words, or the reason why there are none."""
    value: Any = None
    detour: str = ""
    """The detour that was needed, or an empty string."""


@dataclass(slots=True)
class Writer:
    """One run that asks a model for a summary, with the settings of a `ModelSummary`."""

    job: Job
    form: Form[Any]
    system: Prompt
    """The instructions for summarising."""
    closing: Prompt
    """The last message of a request for the whole span."""
    window: int
    same_model: bool
    before: Any
    """The earlier summary as a value of the form, or None."""
    calls_left: int
    """Number of questions that may still be asked."""
    last_weight: int = 0
    """Tokens of the last question and its answer."""

    def write(self) -> WriterSteps:
        """Return the model's words for the whole span. A request that is too long for the model is
        repeated with half the record while calls are left (conformance 36)."""
        limit, cause = self.job.capacity(self.window), ""
        while self.calls_left:
            result = yield from self._within(limit, retry=bool(cause))
            if result.kind != "overflow":
                return result._replace(detour="; ".join(filter(None, (result.detour, cause))))
            cause = f"too long for the model: {result.text}"
            limit = (min(limit, self.last_weight) + self._frame()) // 2
        return WriterResult("failed", cause or "no calls left")

    def _frame(self) -> int:
        """Count the tokens of a request with an empty record, which cannot be shortened."""
        return self.job.weight(self._ask(_conversation_tag(()), self.closing, self.job.room))

    def _within(self, limit: int, *, retry: bool, apart: bool = False) -> WriterSteps:
        ask = self._whole(limit, in_place=self.same_model and not (retry or apart))
        if ask is None:
            return (yield from self._in_parts(limit))
        result = yield from self._put_with_retry(ask, self._read)
        if ask.view is not None and result.kind == "rejected" and self.calls_left:
            return (yield from self._within(limit, retry=False, apart=True))  # it did other work
        return result._replace(detour="clipped") if retry and result.kind == "good" else result

    # --- one request ------------------------------------------------------------------------------

    def _whole(self, limit: int, *, in_place: bool) -> Ask | None:
        """Return one request for everything in the greatest detail that fits, or None."""
        inside = {at for at, _ in self.job.span.messages}
        longest = MAX_REMINDER if self.job.request.keys() <= inside else MAX_QUESTION
        end = NEWER if self.job.stop < len(self.job.view.transcript) else ""
        for detail in DETAILS:
            body = _conversation_tag(record_elements(self.job.span.messages, detail)) + end
            if len(body) > limit * MAX_CHARS_PER_TOKEN:
                continue
            ask = self._ask(body, self.closing, self.job.room, longest=longest)
            if self.job.weight(ask) <= limit:
                here = self._in_place(ask) if in_place else ask
                return here if self.job.weight(here) <= limit else ask
        return None

    def _in_place(self, ask: Ask) -> Ask:
        """Return the request as one more message of the conversation, so that its cached prefix is
        used. Return it unchanged while a tool result is pending."""
        view = self.job.view
        if pair_calls(view.messages).pending:
            return ask
        here = load_prompt("here").fill(kept=len(view.transcript) - self.job.stop)
        text = here.plus(self.system.text, ask.prompt)
        return replace(ask, view=view, prompt=text.text)

    def _ask(
        self,
        body: str,
        closing: Prompt,
        tokens: int,
        *,
        anchored: bool = True,
        longest: int = MAX_QUESTION,
        **values: object,
    ) -> Ask:
        question = clip_middle(self.job.question, MAX_QUESTION)
        shown = (
            in_tags("previous-summary", self.job.earlier_summary)
            if anchored and self.job.earlier_summary
            else "",
            body,
            "The latest request of the user, to which all of this leads:\n"
            + in_tags("request", clip_middle(question, longest))
            if question
            else "",
        )
        closing_text = closing.fill(
            tokens=tokens * 4 // 5, question=in_tags("request", question), **values
        ).text
        return Ask(
            closing_text,
            tokens,
            system=self.system.text,
            messages=(user("\n\n".join(filter(None, shown))),),
            prompt_id=self.system.plus(closing.text).id,
        )

    # --- parts ------------------------------------------------------------------------------------

    def _in_parts(self, limit: int) -> WriterSteps:
        """Return the joined words for all parts. Forms with values merge them, others need one more
        request."""
        joins = isinstance(self.form, Headings)
        for detail in DETAILS[2:]:
            asks = self._parts(
                list(record_elements(self.job.span.messages, detail)),
                limit,
                self.calls_left - joins,
                joins=joins,
            )
            if asks:
                break
        else:
            return WriterResult(
                "failed",
                f"more than {self.calls_left} requests within a window of {self.window} tokens would be needed",
            )
        parts = list[WriterResult]()
        for ask in asks:
            parts.append((yield from self._put_with_retry(ask, self._read_part)))
            if parts[-1].kind != "good":
                return parts[-1]
        rung = f"in {len(parts)} parts"
        if not joins:
            return self._merge_values([part.value for part in parts])._replace(detour=rung)
        body = "\n".join(in_tags("part", part.text) for part in parts)
        result = yield from self._put_with_retry(
            self._ask(body, load_prompt("reduce"), self.job.room), self._read
        )
        return result._replace(detour=rung)

    def _parts(self, record: list[Element], limit: int, most: int, *, joins: bool) -> list[Ask]:
        """Return a request for each part, or none if more than *most* are needed or the answers
        could not be joined in one request."""
        cost = cache(lambda element: self.job.cost(element.render()))
        closing = load_prompt("part")
        if sum(map(cost, record)) > limit * most:
            return []
        for count in range(2, most + 1):
            tokens = self._share(limit, count) if joins else self.job.room
            ask = partial(self._ask, closing=closing, tokens=tokens, anchored=not joins)
            room = limit - self.job.weight(ask(_conversation_tag(()), part=count, parts=count))
            if tokens < MIN_TOKENS or room <= 0:
                return []
            cut = split_record_into_parts(record, self.job.view.base.cuts, room, cost)
            if 0 < len(cut) <= count:
                total = len(cut)
                return [
                    ask(_conversation_tag(part), part=n, parts=total)
                    for n, part in enumerate(cut, 1)
                ]
        return []

    def _share(self, limit: int, count: int) -> int:
        """Return the cap of each part's answer with which *count* answers can be joined in one
        request."""
        bare = self.job.weight(self._ask("", load_prompt("reduce"), self.job.room))
        frame = self.job.cost(in_tags("part", ""))
        return min(self.job.room, (limit - bare) // count - frame)

    # --- answers ----------------------------------------------------------------------------------

    def _put_with_retry(self, ask: Ask, read: Callable[[str], WriterResult]) -> WriterSteps:
        """Ask, and ask once more if the answer is off the template (conformance 34) or was cut off
        by its length."""
        result = yield from self._once(ask, read)
        if result.kind == "cut off" and self.calls_left:
            shorter = f"{ask.prompt}\n\nAn earlier answer was cut off: it must end within {ask.max_tokens // 2} tokens."
            second = yield from self._once(replace(ask, prompt=shorter), read)
            return second if second.kind == "good" else result
        if result.kind != "off template" or not self.calls_left:
            return result
        again = f"{ask.prompt}\n\nAn earlier answer could not be used: {result.text}. Keep to the form that was asked for."
        return (yield from self._once(replace(ask, prompt=again), read))

    def _once(self, ask: Ask, read: Callable[[str], WriterResult]) -> WriterSteps:
        if not self.calls_left:
            return WriterResult("failed", "no calls left")
        self.calls_left -= 1
        self.last_weight = self.job.weight(ask)
        judged = judge_answer((yield ask))
        return read(judged.text) if judged.kind == "good" else WriterResult(*judged)

    def _read_part(self, text: str) -> WriterResult:
        value = self.form.parse(text)
        if value is None:
            return WriterResult("off template", describe_fault(self.form, text))
        return WriterResult("good", self.form.render(value), value)

    def _read(self, text: str) -> WriterResult:
        result = self._read_part(text)
        return self._merge_values([result.value]) if result.kind == "good" else result

    def _merge_values(self, values: Iterable[Any]) -> WriterResult:
        """Merge *values* into the earlier value, and return the result as text that fits."""
        value = self.before
        for new in values:
            value = self.form.merge(value, new)
            if value is None:
                return WriterResult("off template", "it cannot be applied to the earlier summary")
        text = self.form.render(value)
        while self.job.cost(text) > self.job.room:
            value = self.form.shorten(value)
            if value is None:
                return WriterResult("off template", "it is too long")
            text = self.form.render(value)
        return WriterResult("good", text, value)


def _conversation_tag(record: Iterable[Element]) -> str:
    inside = "\n".join(element.render() for element in record)
    return f"<conversation>\n{inside}\n</conversation>"
