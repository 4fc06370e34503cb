"""The rule summary of the soft/hard preset: topics, conclusions, preferences, technical context and
counts (S2-26 to S2-31)."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from heapq import nlargest
from operator import add
from typing import Literal, NamedTuple

from refold.core.strategy import Asking, Summary
from refold.core.view import View
from refold.messages import Message
from refold.speakers import request_text
from refold.summarizers.heuristic.earlier import read_earlier_summaries
from refold.summarizers.heuristic.lexicon import iter_sentences, weigh_conclusion
from refold.summarizers.heuristic.state import read_state
from refold.summarizers.heuristic.steps import read_steps
from refold.summarizers.tail import read_span
from refold.text.clip import one_line
from refold.text.summary_wrapper import TITLES, wrap_summary

Language = Literal["zh", "en"]
TOPIC = 60
"""Maximum characters of one topic."""
SENTENCE = 120
"""Maximum characters of one conclusion or preference."""
MOST = 12
"""Maximum conclusions of one span, those with the highest weight."""


class Words(NamedTuple):
    """The wording of a summary in one language."""

    header: str
    sections: Mapping[str, tuple[str, str]]
    """Label and entry separator of each section, by name, in order."""
    code: str
    file: str
    counts: str
    tools: str
    read: re.Pattern[str]
    """Matches the counts: user, assistant and tool messages."""


ITEM = "\n- "
"""Separator of list entries, also put before the first."""
WORDS: dict[Language, Words] = {
    "zh": Words(
        TITLES[1],
        {
            "topics": ("讨论主题: ", "; "),
            "conclusions": ("关键结论:", ITEM),
            "preferences": ("用户偏好:", ITEM),
            "context": ("技术上下文: ", ", "),
        },
        "代码片段 ({})",
        "文件 {}",
        "(已压缩 {} 条消息,其中用户 {} 条,助手 {} 条{})",
        ",工具 {} 条",
        re.compile(
            r"\(已压缩 \d+ 条消息[,，]其中用户 (\d+) 条[,，]助手 (\d+) 条(?:[,，]工具 (\d+) 条)?\)"
        ),
    ),
    "en": Words(
        TITLES[2],
        {
            "topics": ("Topics: ", "; "),
            "conclusions": ("Conclusions:", ITEM),
            "preferences": ("Preferences:", ITEM),
            "context": ("Technical context: ", ", "),
        },
        "code ({})",
        "file {}",
        "({} messages compacted: {} by the user, {} by the assistant{})",
        ", {} by tools",
        re.compile(
            r"\(\d+ messages compacted: (\d+) by the user, (\d+) by the assistant"
            r"(?:, (\d+) by tools)?\)"
        ),
    ),
}
_ADVISES_OR_REPORTS = re.compile(
    r"(?i)建议|推荐|考虑|使用|采用|应该|应当|需要|必须|最好|不要|已[经經]|成功"
    r"|\b(?:use|should|recommend\w*|consider|must|need to|prefer\w*|enable|avoid|fixed|resolved|implemented|successfully)\b"
)
_SMALL_TALK = re.compile(
    r"(?:好的?|好吧|谢谢你?|多谢|继续|嗯+|可以|行|对|是的?|不用|明白了?|知道了?|收到|没问题|你好|您好|"
    r"ok(?:ay)?|thanks?(?: you)?|yes|no|go on|continue|sure|great|fine|got it|hi|hello|please)\W*",
    re.IGNORECASE,
)
_COURTESY = re.compile(
    r"(?:(?:你好|您好|请问|请|麻烦你?|帮我|帮忙|hi|hello|please|(?:can|could|would) you)[，,。!！:：\s]*)+",
    re.IGNORECASE,
)
_FENCE = re.compile(r"```(?P<language>[\w+#.-]*+)[^`\n]*+\n.*?(?:```|\Z)", re.DOTALL)
_HAN = re.compile(r"[\u3400-\u9fff]")
_LETTERS = re.compile(r"[A-Za-z]")


def unique(items: Iterable[str]) -> tuple[str, ...]:
    """Return the items without duplicates, in order."""
    return tuple(dict.fromkeys(items))


class Notes(NamedTuple):
    """The content of a `TopicSummary`."""

    sections: Mapping[str, tuple[str, ...]] = dict.fromkeys(WORDS["zh"].sections, ())
    """The entries of each section, by its name."""
    counts: tuple[int, ...] = (0, 0, 0)
    """Number of summarised messages by the user, by the assistant and by tools."""


def join(earlier: Notes, later: Notes) -> Notes:
    """Return both joined, later entries last, without duplicates."""
    return Notes(
        {name: unique((*texts, *later.sections[name])) for name, texts in earlier.sections.items()},
        tuple(map(add, earlier.counts, later.counts)),
    )


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """Summarises by rules in the documented form, in Chinese or English. `auto` is the language of
    an earlier summary, else the user's. An earlier summary of this form is merged, never summarised
    (C2-12). One by a model is parsed. Empty sections are left out (C2-13). Asks no model."""

    language: Language | Literal["auto"] = "auto"

    def __call__(self, view: View, start: int, stop: int, max_tokens: int) -> Asking[Summary]:
        """Return the summary of `messages[start:stop]`, at most *max_tokens* tokens when wrapped,
        or an empty one if nothing fits."""
        yield from ()
        source = read_span(view, start, stop)
        own = [message for _, message in source.messages]
        earlier = [*source.earlier, *(m.text for m in own if _language_of(m.text))]
        texts = [m for m in own if not _language_of(m.text)]
        words = WORDS[self._language(earlier, texts)]
        notes = reduce(join, [*map(parse, earlier), notes_of(texts, words)], Notes())

        def is_short(drops: int) -> bool:
            text = wrap_summary(render(_shorter(notes, drops), words))
            return view.profile.count(text) <= max_tokens

        entries = sum(map(len, notes.sections.values()))
        drops = bisect_left(range(entries + 1), True, key=is_short)
        fits = drops <= entries and any(notes.counts)
        return Summary(render(_shorter(notes, drops), words) if fits else "")

    def _language(self, earlier: Iterable[str], texts: Sequence[Message]) -> Language:
        if self.language != "auto":
            return self.language
        for text in earlier:
            if language := _language_of(text):
                return language
        text = "\n".join(request_text(message)[:2_000] for message in texts)
        return "zh" if 4 * len(_HAN.findall(text)) > len(_LETTERS.findall(text)) else "en"


# --- what is taken out of messages -------------------------------------------------------------


def notes_of(messages: Sequence[Message], words: Words = WORDS["zh"]) -> Notes:
    """Return the content of *messages*."""
    state = read_state(read_steps(messages))
    changed = (path for path, file in state.files.items() if file.is_changed)
    return Notes(
        {
            "topics": tuple(extract_topics(messages)),
            "conclusions": extract_conclusions(m for m in messages if m.role == "assistant"),
            "preferences": tuple(one_line(text, SENTENCE) for text in state.constraints),
            "context": (
                *extract_technical_context(messages, words),
                *map(words.file.format, changed),
            ),
        },
        (
            sum(m.role == "user" and not m.results for m in messages),
            sum(m.role == "assistant" for m in messages),
            sum(bool(m.results) for m in messages),
        ),
    )


def extract_topics(messages: Iterable[Message]) -> Iterator[str]:
    """Yield the user's topics in order, without duplicates: from each message the first sentence of
    a person that is more than small talk, without courtesies (S2-27)."""
    seen = set[str]()
    for message in messages:
        for sentence in iter_sentences(_prose(request_text(message))):
            topic = one_line(
                _COURTESY.sub("", sentence, count=1).strip().rstrip("。？！?!.;；"), TOPIC
            )
            if len(topic) >= 4 and not _SMALL_TALK.fullmatch(sentence):
                if topic not in seen:
                    seen.add(topic)
                    yield topic.replace("; ", ", ")
                break


def extract_conclusions(messages: Iterable[Message]) -> tuple[str, ...]:
    """Return the assistant's sentences that advise, decide, conclude or report, those with the
    highest weight, in order (S2-28)."""
    best = dict[str, tuple[float, int]]()
    sentences = (each for message in messages for each in iter_sentences(_prose(message.text)))
    for at, sentence in enumerate(sentences):
        weight = bool(_ADVISES_OR_REPORTS.search(sentence)) + weigh_conclusion(sentence)
        is_open = sentence.endswith(("?", "？", ":", "："))
        if weight > 0 and not is_open and len(sentence.encode("utf-8", "replace")) >= 12:
            text = one_line(sentence.rstrip("。."), SENTENCE)
            best[text] = max(best.get(text, (weight, at)), (weight, at))
    ranked = nlargest(MOST, best, key=best.__getitem__)
    return tuple(sorted(ranked, key=lambda text: best[text][1]))


def extract_technical_context(
    messages: Iterable[Message], words: Words = WORDS["zh"]
) -> tuple[str, ...]:
    """Return one phrase for each language of the code blocks, in order of appearance (S2-29)."""
    languages = (
        match["language"].lower() for message in messages for match in _FENCE.finditer(message.text)
    )
    return unique(words.code.format(language) for language in languages if language)


def _prose(text: str) -> str:
    return _FENCE.sub("\n", text)


# --- writing and reading -----------------------------------------------------------------------


def render(notes: Notes, words: Words = WORDS["zh"]) -> str:
    """Return the text, with each non-empty section in this order (S2-26, S2-30)."""
    sections = [words.header]
    for name, (label, separator) in words.sections.items():
        if items := notes.sections[name]:
            first = ITEM if separator == ITEM else ""
            sections.append(label + first + separator.join(items))
    users, assistants, tool_results = notes.counts
    tools = words.tools.format(tool_results) if tool_results else ""
    sections.append(words.counts.format(sum(notes.counts), users, assistants, tools))
    return "\n".join(sections)


def parse(text: str) -> Notes:
    """Return the content of a summary of this form. Of any other, take requests, rules and
    decisions."""
    language = _language_of(text)
    if language is None:
        return _foreign(text)
    words = WORDS[language]
    sections = {name: list[str]() for name in words.sections}
    listed = sections["conclusions"]
    for line in text.splitlines():
        for name, (label, separator) in words.sections.items():
            if separator == ITEM and line.strip() == label:
                listed = sections[name]
            elif separator != ITEM and line.startswith(label):
                sections[name] += line.removeprefix(label).split(separator)
        if line.startswith("- "):
            listed.append(line.removeprefix("- "))
    match = words.read.search(text)
    counts = tuple(int(count or 0) for count in match.groups()) if match else (0, 0, 0)
    return Notes({name: tuple(texts) for name, texts in sections.items()}, counts)


def _foreign(text: str) -> Notes:
    state = read_earlier_summaries([text]).state
    notes = (one_line(words, SENTENCE) for note in state.notes for words in iter_sentences(note))
    return Notes(
        {
            "topics": tuple(one_line(text, TOPIC) for text in state.requests),
            "conclusions": unique((*notes, *state.decisions)),
            "preferences": tuple(state.constraints),
            "context": tuple(state.files),
        },
        (sum(request.times for request in state.requests.values()), 0, 0),
    )


def _language_of(text: str) -> Language | None:
    """Return the language of a summary of this form, or None for any other text."""
    start = text.lstrip()[:80]
    return next((name for name, words in WORDS.items() if start.startswith(words.header)), None)


def _shorter(notes: Notes, drops: int) -> Notes:
    """Return the notes with *drops* entries less, each the oldest of the section that is the
    longest then. The first topic, which is the task itself, goes last."""
    rest = {name: [*reversed(items)] for name, items in notes.sections.items()}
    sizes = {name: sum(map(len, items)) for name, items in rest.items()}
    for _ in range(drops):
        longest = max(sizes, key=lambda name: (sizes[name], bool(rest[name])))
        at = -2 if longest == "topics" and len(rest[longest]) > 1 else -1
        sizes[longest] -= len(rest[longest].pop(at))
    return notes._replace(sections={name: (*reversed(items),) for name, items in rest.items()})
