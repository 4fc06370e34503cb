"""Selection of the lines that a summary quotes: those that add most to the rest of the request."""

import heapq
import re
from bisect import bisect
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, groupby, repeat
from math import inf, log
from operator import attrgetter
from typing import NamedTuple

from refold.summarizers.heuristic.blocks import (
    COMMAND,
    DIGITS,
    Block,
    Kind,
    Line,
    Work,
    label_exchanges,
)
from refold.summarizers.heuristic.identifiers import (
    DEFINITION,
    NUMBER,
    iter_identifiers,
    split_words,
)
from refold.summarizers.heuristic.lexicon import CORRECTING, depends_on_context, weigh_conclusion
from refold.text.clip import one_line
from refold.text.plain import first_content_line, has_colon, is_question, letters_and_digits, terms
from refold.text.summary_wrapper import PERSON_PREFIX, quote, write_heading
from refold.tokens.count import estimate

WEIGHTS = {
    "task": 1.0,
    "given": 0.6,
    "source": 0.6,
    "docs": 0.3,
    "said": 0.6,
    "asked": 0.1,
    "finding": 0.1,
    "read": 0.1,
    "run": 0.1,
    "written": 0.02,
    "command": 0.02,
    "latest": 0.0,
}
"""Value of an identifier in a line of each kind: how often later calls use what such lines hold.
`said` has twice that, since readers miss most what the model found."""
GIVEN = frozenset({"asked", "given"})
"""Kinds of lines that people write."""
OWN_WORDS = frozenset({"said", "finding"})
"""Kinds of lines that the model writes as text."""
TALK = frozenset({"asked", *OWN_WORDS})
"""Kinds of the conversation, shown apart from files, commands and tools."""
TURNS = frozenset({"asked", "given", "command", "latest"})
"""Kinds that begin a turn."""
DOCUMENTS = frozenset({"task", "given", "docs"})
"""Kinds with headings, which say nothing alone."""
WORDY = frozenset({"read", "task", *GIVEN, *OWN_WORDS})
"""Kinds in which any rare word may matter, not only identifiers."""
AGE = 0.7
"""Exponent by which a line's value falls with its age in thousands of tokens."""
AGE_IN_DIALOGUE = 0.3
"""The same for people's messages and, the more a conversation is a chat, for the model's. In work
the model's newer answers supersede older ones."""
CHAT = 0.5
"""Share of the model's turns answered by a person, from which on exchanges have topics. With calls
in between, answers are about the work."""
IN_CODE = 0.25
"""Share of results with source code from which on the work counts as coding and shows in the code.
Below it, the model's notes beside its calls become the only record and count like its answers."""
RELATED = 2.0
"""Addition to a line's factor of 1 if all its words are in the messages that stay."""
NUMBERED, RANDOM = 0.4, 0.05
"""Factors of identifiers with digits in work, and of UUIDs and times to the second anywhere.
Hashes, ids and dates are seldom used again in work, but are the facts of chats."""
CONCLUDES = 4.0
"""Factor in work of a sentence in which the model concludes or gives a reason. Reasons are recorded
nowhere else."""
DEFINES = 2.0
"""Factor of a line of source that defines a name."""
TERM = 0.1
"""Weight of a word, relative to an identifier's 1.0, times log(lines / lines with it + 1)."""
FIGURE = 3.0
"""Factor of a word with digits in that weight."""
SHARED = 0.2
"""Minimum weight, as that of `TERM`, of a word that tells which line a denial is about."""
MOST_TURNS = 3
"""Maximum number of sentences quoted with another because they take it back."""
HALF_WORD = 0.4
"""Factor of a term that is not ASCII: in a script without spaces, two letters."""
GAP = "  … "
"""Prefix of a sentence that does not follow the one above in its message."""
SIMILAR = 4
"""Number of names that differ only in digits (`job-17`, `job-18`) after which one counts half."""
BRIEF_SENTENCES = 4
"""Maximum sentences before a call in which any rare word may matter. Longer texts think aloud, and
only their names do."""
LEAST_SAID = 4
"""Minimum words of a sentence without identifiers in work."""
READ_FACTOR = 40
"""Tokens that are read for each token of room, from the blocks of highest value."""
LINE_OVERHEAD_TOKENS = 3
"""Tokens that a line costs besides its text."""
LONG_TOKEN = 6
"""Usual maximum of characters in a token, for a lower bound of a line's cost."""
MOST_OF_ONE = 0.5
"""Share of the room that excerpts of one file, command or tool may take first."""
SAID_SHARE = 0.2
"""Share of the room that the model's final answers take first in work: its conclusions stand
nowhere else."""
MAX_MISSES = 400
"""Number of lines too long for the remaining room after which no more are tried."""
EXACT = 16
"""Evaluations per line, on average, to find the very best. Recorded sessions need five at most;
thousands of lines with names of one shape (`job-17`, `job-18`) need one for each line that is
chosen."""
LAZY_THRESHOLD = 0.5
"""Share of its earlier value at which a line is chosen after that."""
EPSILON = 1e-12
_JSON_KEY = re.compile(r"\A\s*+\"[\w$@.-]{1,80}\": ")
_STAMP = re.compile(
    r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[\d.]{0,10}Z?"
)
_ANY_DIGIT = re.compile(r"\d")
_ANY_LETTER = re.compile(r"[^\W\d_]")
_SPACED = re.compile(r"([，；：。！？、]) ")
HEAD = 60
"""Maximum characters of a request above the quotes of its turn."""


class Excerpt(NamedTuple):
    """A line of the conversation that a summary may quote, with its value and cost."""

    block: int
    """Index of its block in the work."""
    line: Line
    names: tuple[tuple[str, float], ...]
    """Identifiers and words in it, each with its weight."""
    worth: float
    """Value of one identifier of weight 1.0 in it."""
    promise: float
    """Value per token if nothing of it is shown elsewhere, usually an upper bound."""
    least: int
    """Cost in tokens, usually a lower bound."""
    retracted_by: int = -1
    """Index of the excerpt that takes it back and is quoted with it; -1 if there is none."""


@dataclass(frozen=True, slots=True)
class Context:
    """What determines the value of a block."""

    ages: Sequence[float]
    """Thousands of tokens between each message and the end of the hidden part; 0 after that."""
    words: frozenset[str]
    """Words of the messages that stay (`split_words`)."""
    dialogue: float
    """Share of the model's turns that a person answers."""
    named: str
    """The latest requests and answers and the text of the task, which may name files."""
    code: float = 1.0
    """How far the work is coding: 0 if no result is source, 1 from `IN_CODE` on."""

    @property
    def is_chat(self) -> bool:
        """Whether a person answers at least half of the model's turns."""
        return self.dialogue >= CHAT


def _weigh_block(block: Block, work: Work, context: Context) -> float:
    """Return the value of one identifier in *block*: 0 in the output of a command that ran again
    later."""
    if block.kind == "run" and work.commands.get(block.command, -1) > block.at:
        return 0.0
    exponent = AGE_IN_DIALOGUE if block.kind in GIVEN else AGE
    if block.kind in OWN_WORDS:
        exponent -= (AGE - AGE_IN_DIALOGUE) * min(1.0, context.dialogue / CHAT)
    weight = WEIGHTS[block.kind]
    if block.kind == "finding":
        weight += (WEIGHTS["said"] - weight) * (1 - context.code)
    return weight / float((1 + context.ages[block.at]) ** exponent)


def find_excerpts(work: Work, context: Context, room: int) -> list[Excerpt]:
    """Return the lines that say something, with their values, in order. Only the blocks of highest
    value are read, as many as may matter for *room* tokens."""
    worths = [_weigh_block(block, work, context) for block in work.blocks]
    # The latest request has no value, but it is the topic of what follows.
    ranks = [inf if b.kind == "latest" else worths[at] for at, b in enumerate(work.blocks)]
    chosen, spare = list[int](), READ_FACTOR * LONG_TOKEN * room
    for position in sorted(range(len(ranks)), key=ranks.__getitem__, reverse=True):
        chosen.append(position)
        spare -= len(work.blocks[position].text)
        if spare < 0:
            break
    chosen.sort()
    lines_at, telling = work.read_lines(chosen), 0.0
    if context.is_chat:
        telling = label_exchanges((work.blocks[at], lines_at[at]) for at in chosen)
    wordy_kinds = WORDY if context.code >= 1 else {*WORDY, "run"}
    wordy = (at for at in chosen if work.blocks[at].kind in wordy_kinds)
    words_at = {at: [_spell_terms(own.values or own.text) for own in lines_at[at]] for at in wordy}
    rarity, excerpts = _weigh_terms([*chain.from_iterable(words_at.values())]), list[Excerpt]()
    for position in chosen:
        block, lines = work.blocks[position], lines_at[position]
        is_note = block.kind == "finding"
        is_said = block.kind in TALK and not context.is_chat
        rows = words_at.pop(position, repeat(""))  # to free memory
        rows = repeat("") if is_note and len(lines) > BRIEF_SENTENCES else rows
        beside = LINE_OVERHEAD_TOKENS + len(block.heading) // LONG_TOKEN
        headed = dict(iter_identifiers(block.heading))
        for line, row in zip(lines, rows, strict=False):
            text = line.values or (line.text if block.path else _JSON_KEY.sub("", line.text, 1))
            named = list(iter_identifiers(text))
            if _misleads(block, line, context):
                continue
            is_named = any(weight > NUMBER for _, weight in named)
            if is_note and context.code >= 1 and not (is_named or weigh_conclusion(line.text) > 0):
                continue  # it thinks aloud, or names line numbers, which edits change
            is_cut = row and text != (line.values or line.text)  # without its JSON key
            own_words = _spell_terms(text) if is_cut else row
            words = [rarity[term] for term in own_words.split()]
            if is_said and not named and len(words) < LEAST_SAID:
                continue  # a mere yes, or the rest of a sentence
            fresh = (_weigh_name(row, context) for row in named if row[0] not in headed)
            if names := tuple(dict.fromkeys((*fresh, *words))):
                total = sum([weight for _, weight in names])
                least = beside + len(line.row or line.words) // LONG_TOKEN
                own = worths[position] * _weigh_line(block, line, context, telling)
                excerpts.append(Excerpt(position, line, names, own, own * total / least, least))
    return _tie_retractions(excerpts, work.blocks) if context.is_chat else excerpts


def _tie_retractions(excerpts: list[Excerpt], blocks: Sequence[Block]) -> list[Excerpt]:
    """Tie *excerpts*, in place, to the person's lines that take them back, and return them. Only
    the request before such a line, and the answer to that request, can be taken back."""
    before = list[int]()
    for position, group in groupby(range(len(excerpts)), key=lambda at: excerpts[at].block):
        own = list(group)
        for turning in (at for at in own if excerpts[at].line.retracts):
            for at in before:
                if _is_turned(excerpts[at], excerpts[turning]):
                    excerpts[at] = excerpts[at]._replace(retracted_by=turning)
        before = [] if blocks[position].kind == "asked" else before
        before += own
    return excerpts


def _is_turned(excerpt: Excerpt, turning: Excerpt) -> bool:
    """Return whether a person's later line takes a line back: it says so, or denies something and
    names what the line names."""
    named = {*dict(excerpt.names)}
    shared = ((name, weight) for name, weight in turning.names if name in named)
    rare = (
        _ANY_DIGIT.search(name) or weight > SHARED * _rate_term(name) for name, weight in shared
    )
    return CORRECTING.is_in(turning.line.text) or any(rare)


def _misleads(block: Block, line: Line, context: Context) -> bool:
    """Return whether a line misleads out of context: a heading would stand above other parts, a
    sentence that refers back would follow another, and a question, offer or announcement of the
    model is out of date."""
    if block.kind in DOCUMENTS:
        return line.text.lstrip().startswith("#")
    if context.is_chat or block.kind not in OWN_WORDS:
        return False
    return is_question(line.text) or depends_on_context(line.text)


def _weigh_line(block: Block, line: Line, context: Context, telling: float) -> float:
    """Return the factor of a line's value: in a chat higher if a person tells something, as far as
    people do (*telling*); in work higher for words that it shares with the messages that stay, for
    defining a name, and for a conclusion or reason of the model."""
    if context.is_chat:
        tells = block.kind == "asked" and not is_question(line.text)
        return 1 + (WEIGHTS["said"] / WEIGHTS["asked"] - 1) * telling * tells
    own = split_words(line.text)
    related = 1 + RELATED * len(own & context.words) / len(own) if own else 1.0
    if block.kind == "source":
        return related * DEFINES if DEFINITION.match(line.key) else related
    concludes = block.kind in OWN_WORDS and weigh_conclusion(line.text) > 0
    return related * CONCLUDES if concludes else related


def _weigh_name(named: tuple[str, float], context: Context) -> tuple[str, float]:
    """Return a name with its weight here: usually the pair *named* itself, to save memory in a
    large session."""
    name, weight = named
    if _STAMP.fullmatch(name):
        return name, weight * RANDOM
    has_digits = not context.is_chat and _ANY_DIGIT.search(name) and _ANY_LETTER.search(name)
    return (name, weight * NUMBERED) if has_digits else named


def _spell_terms(text: str) -> str:
    """Return the words of a line joined by spaces, which takes less memory than a list."""
    return " ".join(terms(_STAMP.sub("", text)))


def _weigh_terms(lines: Sequence[str]) -> dict[str, tuple[str, float]]:
    """Return the name of each word with its weight: higher if fewer lines have the word."""
    counts = Counter(chain.from_iterable(set(line.split()) for line in lines))
    return {
        term: (f" {term}", TERM * _rate_term(term) * log(len(lines) / count + 1))
        for term, count in counts.items()
    }


def _rate_term(term: str) -> float:
    """Return the factor of a term: higher for figures, which are asked for later, lower for one
    that is not ASCII, which in a script without spaces is half a word."""
    if any(map(str.isdigit, term)):
        return FIGURE
    return 1.0 if term.isascii() else HALF_WORD


class Selection:
    """Excerpts, chosen by their value per token.

    An identifier that is shown elsewhere, or in a line chosen before, has no value. In n log n
    time, a line is evaluated when its upper bound, or its earlier value, is the highest, and chosen
    if it still has that value, or `LAZY_THRESHOLD` of it once lines were evaluated often.
    """

    def __init__(
        self, excerpts: Sequence[Excerpt], work: Work, shown: Iterable[str], spoken: float = 0.0
    ) -> None:
        """Choose from *excerpts* of *work* what is not *shown*. The model's final answers get the
        share *spoken* first."""
        self._excerpts, self._work, self._cost = excerpts, work, cache(estimate)
        self._seen, self._alike = set(shown), Counter[str]()
        self._opened = set[str | tuple[str, str]]()
        self._shape = cache(partial(DIGITS.sub, "#"))
        self.chosen, self._places = list[int](), set[int]()
        """Indexes of excerpts, in the order of choice."""
        self._heap = [(-excerpt.promise, at) for at, excerpt in enumerate(excerpts)]
        heapq.heapify(self._heap)
        self._spoken = spoken
        self._exact, self._taken, self._most = EXACT * len(excerpts), Counter[str](), 0.0

    def fill(self, room: int) -> None:
        """Choose more excerpts in about *room* tokens. The first call serves the model's final
        answers first and limits one file, command or tool to `MOST_OF_ONE`."""
        self._most = inf if self._most else room * MOST_OF_ONE
        if not self.chosen:
            room -= self._fill(int(room * self._spoken), {"said"})
        self._fill(room)

    def _fill(self, room: int, kinds: Collection[Kind] = WEIGHTS) -> int:
        """Choose more excerpts of these *kinds* in *room* tokens; return the tokens they take."""
        waiting, misses, spare = list[tuple[float, int]](), 0, room
        while self._heap and misses < MAX_MISSES:
            before, at = heapq.heappop(self._heap)
            excerpt = self._excerpts[at]
            block = self._work.blocks[excerpt.block]
            is_much = self._taken[block.heading] > self._most and block.kind not in TALK
            if is_much or block.kind not in kinds:
                waiting.append((before, at))
                continue
            self._exact -= 1
            wanted = before + EPSILON if self._exact >= 0 else before * LAZY_THRESHOLD
            if at in self._places or (value := self._gain(excerpt)) <= 0:
                continue
            density = value / excerpt.least
            if -density <= wanted:  # only then count its exact price
                density = value / self._price(excerpt)
            if -density > wanted:
                heapq.heappush(self._heap, (-density, at))
            elif (tokens := self._price(excerpt)) <= spare:
                spare -= tokens
                self._taken[block.heading] += tokens
                for place in (*[*self._iter_turning(excerpt)][::-1], at):
                    self._choose(place)
            else:
                misses += 1
                waiting.append((before, at))
        for item in waiting:
            heapq.heappush(self._heap, item)
        return room - spare

    def drop(self, tokens: int) -> None:
        """Drop the latest choices, about *tokens* tokens of them."""
        while self.chosen and tokens > 0:
            tokens -= (
                self._cost(self._excerpts[self.chosen.pop()].line.words) + LINE_OVERHEAD_TOKENS
            )

    def render(self) -> tuple[str, str]:
        """Return the text of the chosen excerpts: the conversation, and files, commands and
        tools."""
        chosen = [self._excerpts[at] for at in sorted(self.chosen)]
        return _render_excerpts(chosen, self._work)

    def _gain(self, excerpt: Excerpt) -> float:
        names = [pair for pair in excerpt.names if pair[0] not in self._seen]
        if self._work.blocks[excerpt.block].kind in WORDY:  # their figures are facts
            return excerpt.worth * sum([weight for _, weight in names])
        alike, shape = self._alike, self._shape
        return excerpt.worth * sum([w / (1 + alike[shape(name)] / SIMILAR) for name, w in names])

    def _price(self, excerpt: Excerpt) -> int:
        heading, line = self._work.blocks[excerpt.block].heading, excerpt.line
        beside = 0 if heading in self._opened else self._cost(heading) + 4
        words = line.row if (heading, line.top) in self._opened else line.words
        for at in self._iter_turning(excerpt):
            beside += self._cost(self._excerpts[at].line.words) + LINE_OVERHEAD_TOKENS
        return self._cost(words) + LINE_OVERHEAD_TOKENS + beside

    def _iter_turning(self, excerpt: Excerpt) -> Iterator[int]:
        """Yield the retractions of an excerpt, and of those, as far as they are not chosen."""
        for _ in range(MOST_TURNS):
            if (at := excerpt.retracted_by) < 0 or at in self._places:
                return
            yield at
            excerpt = self._excerpts[at]

    def _choose(self, at: int) -> None:
        excerpt = self._excerpts[at]
        self.chosen.append(at)
        self._places.add(at)
        names = [name for name, _ in excerpt.names if name not in self._seen]
        self._alike.update(map(self._shape, names))
        self._seen.update(names)
        heading = self._work.blocks[excerpt.block].heading
        if excerpt.line.top:
            self._opened.add((heading, excerpt.line.top))
        if heading not in self._opened:
            self._opened.add(heading)
            self._seen.update(name for name, _ in iter_identifiers(heading))


def _render_excerpts(chosen: Sequence[Excerpt], work: Work) -> tuple[str, str]:
    groups, talk = dict[str, list[Excerpt]](), list[Excerpt]()
    blocks = [work.blocks[excerpt.block] for excerpt in chosen]
    is_chat = any(block.is_in_clauses for block in blocks)
    for excerpt, block in zip(chosen, blocks, strict=True):
        if block.kind == "finding" and is_chat:
            groups.setdefault("findings", []).append(excerpt)
        elif block.kind in TALK:
            talk.append(excerpt)
        else:
            groups.setdefault(block.heading, []).append(excerpt)
    rows = list[str]()
    is_of = attrgetter("heading", "is_in_clauses")
    for (label, is_in_clauses), own in groupby(talk, lambda e: is_of(work.blocks[e.block])):
        if not (label or is_in_clauses):
            rows += _write_sentences(own, work)
            continue
        # Do not repeat a topic that the line above has.
        before = rows[-1].rpartition("\n")[2] if rows else ""
        rows.append(_write_exchange("" if label in before else label, own, work))
    parts = (_render_group(heading, excerpts, work) for heading, excerpts in groups.items())
    return "\n".join(rows), "\n".join(parts)


def _write_sentences(excerpts: Iterable[Excerpt], work: Work) -> Iterator[str]:
    """Yield an item for each quoted message, with a line for each run of sentences: joined across a
    gap they would say something else. Leave out sentences that introduce what is not quoted. If
    there are several turns, each begins with its request, to which its sentences belong."""
    turns, last = [*_iter_turns(work.blocks)], -1
    for position, group in groupby(excerpts, key=attrgetter("block")):
        turn = turns[place - 1] if (place := bisect(turns, position)) else -1
        if turn not in (last, position) and len(turns) > 1:
            yield f"- {PERSON_PREFIX}{quote(_write_head(work.blocks[turn]))}"
        last = turn
        runs = list[list[Line]]()
        for line in (excerpt.line for excerpt in group):
            if runs and 0 < line.number == runs[-1][-1].number + 1:
                runs[-1].append(line)
            else:
                runs.append([line])
        runs = [run[:-1] if has_colon(run[-1].text) else run for run in runs]
        for at, run in enumerate(filter(None, runs)):
            yield (GAP if at else "- ") + _write_clauses(run, work.blocks[position])


def _iter_turns(blocks: Sequence[Block]) -> Iterator[int]:
    """Yield the indexes of requests in work. A command's text counts if the person gave it no
    arguments. In a chat, exchanges have topics instead."""
    before = Block(-1, "", "", "")
    for at, block in enumerate(blocks):
        is_given = block.heading == COMMAND and before.at == block.at
        if block.kind in TURNS and not (block.is_in_clauses or is_given):
            yield at
        before = block


def _write_head(request: Block) -> str:
    text = first_content_line(request.text) if request.heading == COMMAND else request.text
    return one_line(text, HEAD)


def _write_exchange(label: str, excerpts: Iterable[Excerpt], work: Work) -> str:
    """Return the quotes of one exchange after its topic. Only a person's words are marked."""
    groups = groupby(excerpts, key=attrgetter("block"))
    texts = [_write_clauses([own.line for own in group], work.blocks[at]) for at, group in groups]
    words = "\n  ".join(texts)
    return words if label in texts[0] else f"[{label.replace(']', ')')}] {words}"


def _write_clauses(lines: Sequence[Line], block: Block) -> str:
    """Return clauses of a text, after a person's mark if one wrote them. A gap between clauses is
    marked. A lead that clauses share stands once."""
    text, before, top = "", lines[0].number, ""
    for line in lines:
        lead = letters_and_digits(line.lead)
        is_led = not lead or letters_and_digits(text[-2 * len(line.lead) :]).endswith(lead)
        is_led |= bool(top) and line.top == top
        gap = " .. " if line.number > before + 1 else " "
        text += gap + (line.text if is_led else line.words)
        before, top = line.number, line.top
    words = _SPACED.sub(r"\1", text[1:])
    if block.kind == "asked":
        return PERSON_PREFIX + block.sender + quote(words)
    return f'"{words}"' if words.startswith(PERSON_PREFIX) else quote(words)


def _render_group(heading: str, excerpts: list[Excerpt], work: Work) -> str:
    block = work.blocks[excerpts[-1].block]
    history = work.files.get(block.path)
    is_stale = history is not None and any(
        history.changed_at > work.blocks[excerpt.block].at for excerpt in excerpts
    )
    title = write_heading(heading) + (" (modified since)" if is_stale else "")
    if block.path:
        excerpts.sort(key=lambda excerpt: (excerpt.line.number, excerpt.block))
    lines = dict.fromkeys(excerpt.line for excerpt in excerpts)
    return "\n".join((title, *map(quote, _write_lines(lines))))


def _write_lines(lines: Iterable[Line]) -> Iterator[str]:
    """Yield lines with their numbers, if known. Lines that share a heading, such as a JSON object's
    path and keys, stand below it, without numbers."""
    for top, group in groupby(lines, key=attrgetter("top")):
        below = list(group)
        if top and len(below) > 1:
            yield top
            yield from (f"  {line.row}" for line in below)
        else:
            yield from (
                f"{line.number or ''}{': ' * bool(line.number)}{line.words}" for line in below
            )
