"""Which lines a summary quotes: those with the most that nothing else in the request shows."""

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
from refold.summarizers.heuristic.lexicon import CORRECTING, leans_on, weigh_conclusion
from refold.text.clip import one_line
from refold.text.plain import find_opening, has_colon, is_question, spell_bare, terms
from refold.text.summary_wrapper import ASKED, quote, write_heading
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
"""What an identifier in a line of each kind is worth: how often later calls use what such lines
hold; but for `said`, which has twice of that, since readers miss most what the model had found."""
GIVEN = frozenset({"asked", "given"})
"""The kinds of lines that people say or give."""
OWN_WORDS = frozenset({"said", "finding"})
"""Those that the model says."""
TALK = frozenset({"asked", *OWN_WORDS})
"""Those of the conversation, which stand apart from files, commands and tools."""
TURNS = frozenset({"asked", "given", "command", "latest"})
"""Those that begin a turn."""
DOCUMENTS = frozenset({"task", "given", "docs"})
"""Those with headings, which say nothing alone."""
WORDY = frozenset({"read", "task", *GIVEN, *OWN_WORDS})
"""Those in which any rare word may matter, not only identifiers."""
AGE = 0.7
"""The exponent with which a line's worth falls with its age in thousands of tokens."""
AGE_IN_DIALOGUE = 0.3
"""The same for what people give and say, and the more a conversation is a chat, for what the model
says, too: in work its newer answers overtake the older."""
CHAT = 0.5
"""The share of the model's turns that a person answers, from which on exchanges have subjects:
where calls lie between, an answer is about the work."""
IN_CODE = 0.25
"""The share of results that show or change source, from which on the work is in that: what was done
and found shows there. The less, the more what the model notes beside its calls is the only record
of it, and counts like what it says at the end of a turn."""
RELATED = 2.0
"""By how much a line counts for more if all its words stand in the messages that stay."""
NUMBERED, RANDOM = 0.4, 0.05
"""What an identifier with digits counts for in work, beside another's 1.0: hashes, ids and dates
are seldom used again, but the facts of chats; and, in chats too, a UUID or a time to the second."""
CONCLUDES = 4.0
"""By how much a sentence of the model counts for more in work that concludes or gives a reason: why
something is so is told nowhere else."""
DEFINES = 2.0
"""The same of a line of source that defines a name."""
TERM = 0.1
"""What a word counts for that occurs once in e lines, beside an identifier's 1.0."""
FIGURE = 3.0
"""What a word with digits counts for in it, beside another word's 1.0."""
SHARED = 0.2
"""What a word counts for, at least, that tells what somebody denies, as `TERM` does."""
MOST_TURNS = 3
"""Sentences that come with another because they take it back."""
HALF_WORD = 0.4
"""What two letters of a script without spaces count for."""
GAP = "  … "
"""What stands before a sentence of a message that does not follow on the one above it."""
SIMILAR = 4
"""So many names that differ in digits alone (`job-17`, `job-18`) halve what the next one counts."""
BRIEF = 4
"""Sentences before a call of which any rare word may matter; of more, which think aloud, only
names."""
LEAST_SAID = 4
"""Words with which a sentence says something in work."""
READ = 40
"""Tokens that are looked through for each token of room, those of the blocks that are worth
most."""
BEHIND = 3
"""Tokens that a line costs beside its text."""
LONG_TOKEN = 6
"""Characters of a token, at most as a rule: a line costs no less than that tells."""
MOST_OF_ONE = 0.5
"""The share of the room that excerpts of one file, command or tool may take first."""
SAID_SHARE = 0.2
"""The share of the room that what the model said at the ends of turns takes first in work: nothing
else tells what it concluded."""
MAX_MISSES = 400
"""Lines that turn out too long for what is left before no further line is tried."""
EXACT = 16
"""How often a line is weighed, on average, to find the very best. Recorded sessions need five at
most, thousands of lines with names of one shape (`job-17`, `job-18`) one for each that is
chosen."""
NEARLY = 0.5
"""From then on the share of what a line promised at which it is chosen."""
EPSILON = 1e-12
_JSON_KEY = re.compile(r"\A\s*+\"[\w$@.-]{1,80}\": ")
_STAMP = re.compile(
    r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[\d.]{0,10}Z?"
)
_ANY_DIGIT = re.compile(r"\d")
_ANY_LETTER = re.compile(r"[^\W\d_]")
_SPACED = re.compile(r"([，；：。！？、]) ")
HEAD = 60
"""Characters of a request that stand before what was said in its turn."""


class Excerpt(NamedTuple):
    """A line that may be quoted."""

    block: int
    """Position of its block in the work."""
    line: Line
    names: tuple[tuple[str, float], ...]
    worth: float
    """What one identifier of weight 1.0 in it is worth."""
    promise: float
    """What it adds for each token if nothing of it is shown elsewhere; at most, as a rule."""
    least: int
    """Tokens that it costs; at least, as a rule."""
    turned_by: int = -1
    """The position of the one that takes back what it says, and comes with it; -1 if there is
    none."""


@dataclass(frozen=True, slots=True)
class Context:
    """What decides how much a block is worth."""

    ages: Sequence[float]
    """Thousands of tokens between each message and the end of what is hidden; 0 behind it."""
    words: frozenset[str]
    """The words of the messages that stay (`split_words`)."""
    dialogue: float
    """The share of the model's turns that a person answers."""
    named: str
    """The latest requests and answers, and the text of the task, in which files may be named."""
    code: float = 1.0
    """How far the work is in source: 0 if no result is of it, 1 from `IN_CODE` on."""

    @property
    def is_chat(self) -> bool:
        """Does a person answer most of the model's turns?"""
        return self.dialogue >= CHAT


def _weigh_block(block: Block, work: Work, context: Context) -> float:
    """Return what one identifier in *block* is worth: nothing in what a command printed that ran
    again, for what it printed then holds."""
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
    """Return the lines that tell something, with what they are worth, in order: of the blocks that
    are worth most, as many as may matter for *room* tokens."""
    worths = [_weigh_block(block, work, context) for block in work.blocks]
    # The latest request is worth nothing, but what is said behind it is about it.
    ranks = [inf if b.kind == "latest" else worths[at] for at, b in enumerate(work.blocks)]
    chosen, spare = list[int](), READ * LONG_TOKEN * room
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
    rarity, excerpts = _rarity([*chain.from_iterable(words_at.values())]), list[Excerpt]()
    for position in chosen:
        block, lines = work.blocks[position], lines_at[position]
        is_note = block.kind == "finding"
        is_said = block.kind in TALK and not context.is_chat
        rows = words_at.pop(position, repeat(""))  # what is used takes no more room
        rows = repeat("") if is_note and len(lines) > BRIEF else rows
        beside = BEHIND + len(block.heading) // LONG_TOKEN
        headed = dict(iter_identifiers(block.heading))
        for line, row in zip(lines, rows, strict=False):
            text = line.values or (line.text if block.path else _JSON_KEY.sub("", line.text, 1))
            named = list(iter_identifiers(text))
            if _misleads(block, line, context):
                continue
            is_named = any(weight > NUMBER for _, weight in named)
            if is_note and context.code >= 1 and not (is_named or weigh_conclusion(line.text) > 0):
                continue  # it thinks aloud, or of lines by their numbers, which edits change
            is_cut = row and text != (line.values or line.text)  # by the key before it
            own_words = _spell_terms(text) if is_cut else row
            words = [rarity[term] for term in own_words.split()]
            if is_said and not named and len(words) < LEAST_SAID:
                continue  # a nod, or the rest of a sentence
            fresh = (_weigh_name(row, context) for row in named if row[0] not in headed)
            if names := tuple(dict.fromkeys((*fresh, *words))):
                total = sum([weight for _, weight in names])
                least = beside + len(line.row or line.words) // LONG_TOKEN
                own = worths[position] * _weigh_line(block, line, context, telling)
                excerpts.append(Excerpt(position, line, names, own, own * total / least, least))
    return _tie_retractions(excerpts, work.blocks) if context.is_chat else excerpts


def _tie_retractions(excerpts: list[Excerpt], blocks: Sequence[Block]) -> list[Excerpt]:
    """Return excerpts with what comes with them: what takes back what the request before it, and
    the answer to that, say."""
    before = list[int]()
    for position, group in groupby(range(len(excerpts)), key=lambda at: excerpts[at].block):
        own = list(group)
        for turning in (at for at in own if excerpts[at].line.retracts):
            for at in before:
                if _is_turned(excerpts[at], excerpts[turning]):
                    excerpts[at] = excerpts[at]._replace(turned_by=turning)
        before = [] if blocks[position].kind == "asked" else before
        before += own
    return excerpts


def _is_turned(excerpt: Excerpt, turning: Excerpt) -> bool:
    """Does a person take back what a line says, in another right behind it? They say so, or deny it
    and name what it names."""
    named = {*dict(excerpt.names)}
    shared = ((name, weight) for name, weight in turning.names if name in named)
    rare = (
        _ANY_DIGIT.search(name) or weight > SHARED * _importance(name) for name, weight in shared
    )
    return CORRECTING.is_in(turning.line.text) or any(rare)


def _misleads(block: Block, line: Line, context: Context) -> bool:
    """Does a line say something else if it stands alone? A heading would stand above lines of other
    parts; a sentence of the model that refers to the one before it, behind another; what it asked,
    offered or announced has come since."""
    if block.kind in DOCUMENTS:
        return line.text.lstrip().startswith("#")
    if context.is_chat or block.kind not in OWN_WORDS:
        return False
    return is_question(line.text) or leans_on(line.text)


def _weigh_line(block: Block, line: Line, context: Context, telling: float) -> float:
    """Return by how much a line counts for more: in a chat if a person tells something in it, as
    far as people do (*telling*); in work for the words that it shares with the messages that stay,
    if it defines a name, and if the model concludes in it or gives a reason."""
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
    """Return a name with what it counts for here: of most the pair that is *named*, for a large
    session holds very many."""
    name, weight = named
    if _STAMP.fullmatch(name):
        return name, weight * RANDOM
    has_digits = not context.is_chat and _ANY_DIGIT.search(name) and _ANY_LETTER.search(name)
    return (name, weight * NUMBERED) if has_digits else named


def _spell_terms(text: str) -> str:
    """Return the words of a line with blanks between them, which takes less room than a list."""
    return " ".join(terms(_STAMP.sub("", text)))


def _rarity(lines: Sequence[str]) -> dict[str, tuple[str, float]]:
    """Return each word's name with what it counts for: the more, the fewer lines hold it."""
    counts = Counter(chain.from_iterable(set(line.split()) for line in lines))
    return {
        term: (f" {term}", TERM * _importance(term) * log(len(lines) / count + 1))
        for term, count in counts.items()
    }


def _importance(term: str) -> float:
    """Return what a term counts for: figures are what is asked for later; of a script without
    spaces a term is half a word."""
    if any(map(str.isdigit, term)):
        return FIGURE
    return 1.0 if term.isascii() else HALF_WORD


class Selection:
    """Excerpts, chosen by what they add for each token.

    An identifier that is shown elsewhere, or in a line chosen before, adds nothing. In time
    n log n: a line is weighed when what it promises, or what it was worth before, comes to the top,
    and is chosen if it is worth that still, or `NEARLY` once lines were weighed often.
    """

    def __init__(
        self, excerpts: Sequence[Excerpt], work: Work, shown: Iterable[str], spoken: float = 0.0
    ) -> None:
        """Choose of *excerpts* of *work* what is not *shown*, first in the share *spoken* what the
        model said."""
        self._excerpts, self._work, self._cost = excerpts, work, cache(estimate)
        self._seen, self._alike = set(shown), Counter[str]()
        self._opened = set[str | tuple[str, str]]()
        self._shape = cache(partial(DIGITS.sub, "#"))
        self.chosen, self._places = list[int](), set[int]()
        """Positions of excerpts, the best first."""
        self._heap = [(-excerpt.promise, at) for at, excerpt in enumerate(excerpts)]
        heapq.heapify(self._heap)
        self._spoken = spoken
        self._exact, self._taken, self._most = EXACT * len(excerpts), Counter[str](), 0.0

    def fill(self, room: int) -> None:
        """Choose more, in at most about *room* tokens; the first time what the model said at the
        ends of turns in its share, and of one file, command or tool in at most `MOST_OF_ONE`, as
        long as there is anything else."""
        self._most = inf if self._most else room * MOST_OF_ONE
        if not self.chosen:
            room -= self._fill(int(room * self._spoken), {"said"})
        self._fill(room)

    def _fill(self, room: int, kinds: Collection[Kind] = WEIGHTS) -> int:
        """Choose more, of these *kinds*, in *room* tokens; return how many they take."""
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
            wanted = before + EPSILON if self._exact >= 0 else before * NEARLY
            if at in self._places or (value := self._gain(excerpt)) <= 0:
                continue
            density = value / excerpt.least
            if -density <= wanted:  # only then its price is counted
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
        """Give up what was chosen last, about *tokens* tokens of it."""
        while self.chosen and tokens > 0:
            tokens -= self._cost(self._excerpts[self.chosen.pop()].line.words) + BEHIND

    def render(self) -> tuple[str, str]:
        """Write what is chosen, in its order: of what people and the model say, and of files,
        commands and tools."""
        chosen = [self._excerpts[at] for at in sorted(self.chosen)]
        return _render_excerpts(chosen, self._work)

    def _gain(self, excerpt: Excerpt) -> float:
        names = [pair for pair in excerpt.names if pair[0] not in self._seen]
        if self._work.blocks[excerpt.block].kind in WORDY:  # there figures are the facts
            return excerpt.worth * sum([weight for _, weight in names])
        alike, shape = self._alike, self._shape
        return excerpt.worth * sum([w / (1 + alike[shape(name)] / SIMILAR) for name, w in names])

    def _price(self, excerpt: Excerpt) -> int:
        heading, line = self._work.blocks[excerpt.block].heading, excerpt.line
        beside = 0 if heading in self._opened else self._cost(heading) + 4
        words = line.row if (heading, line.top) in self._opened else line.words
        for at in self._iter_turning(excerpt):
            beside += self._cost(self._excerpts[at].line.words) + BEHIND
        return self._cost(words) + BEHIND + beside

    def _iter_turning(self, excerpt: Excerpt) -> Iterator[int]:
        """Yield what comes with an excerpt, and with that, as far as it is not chosen."""
        for _ in range(MOST_TURNS):
            if (at := excerpt.turned_by) < 0 or at in self._places:
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
    """Write excerpts under what they are from, in the order in which they came: of the
    conversation, and of files, commands and tools."""
    groups, talk = dict[str, list[Excerpt]](), list[Excerpt]()
    blocks = [work.blocks[excerpt.block] for excerpt in chosen]
    is_chat = any(block.is_parted for block in blocks)
    for excerpt, block in zip(chosen, blocks, strict=True):
        if block.kind == "finding" and is_chat:
            groups.setdefault("findings", []).append(excerpt)
        elif block.kind in TALK:
            talk.append(excerpt)
        else:
            groups.setdefault(block.heading, []).append(excerpt)
    rows = list[str]()
    is_of = attrgetter("heading", "is_parted")
    for (label, is_parted), own in groupby(talk, lambda e: is_of(work.blocks[e.block])):
        if not (label or is_parted):
            rows += _write_sentences(own, work)
            continue
        # A label that has just been said is not said again.
        before = rows[-1].rpartition("\n")[2] if rows else ""
        rows.append(_exchange("" if label in before else label, own, work))
    parts = (_render_group(heading, excerpts, work) for heading, excerpts in groups.items())
    return "\n".join(rows), "\n".join(parts)


def _write_sentences(excerpts: Iterable[Excerpt], work: Work) -> Iterator[str]:
    """Yield what is quoted of each message as an item, with a line for each run of sentences: those
    between which others are left out would say something else in one line. What heads nothing is
    left out. If there are several turns, each begins with its request: what was said holds of that
    time."""
    turns, last = [*_iter_turns(work.blocks)], -1
    for position, group in groupby(excerpts, key=attrgetter("block")):
        turn = turns[place - 1] if (place := bisect(turns, position)) else -1
        if turn not in (last, position) and len(turns) > 1:
            yield f"- {ASKED}{quote(_write_head(work.blocks[turn]))}"
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
    """Yield where requests of work stand; a command's text is one if the person gave it nothing.
    In a chat what each exchange is about heads it."""
    before = Block(-1, "", "", "")
    for at, block in enumerate(blocks):
        is_given = block.heading == COMMAND and before.at == block.at
        if block.kind in TURNS and not (block.is_parted or is_given):
            yield at
        before = block


def _write_head(request: Block) -> str:
    text = find_opening(request.text) if request.heading == COMMAND else request.text
    return one_line(text, HEAD)


def _exchange(label: str, excerpts: Iterable[Excerpt], work: Work) -> str:
    """Return what is quoted of one exchange; what a person says is marked, and nothing else."""
    groups = groupby(excerpts, key=attrgetter("block"))
    texts = [_write_clauses([own.line for own in group], work.blocks[at]) for at, group in groups]
    words = "\n  ".join(texts)
    return words if label in texts[0] else f"[{label.replace(']', ')')}] {words}"


def _write_clauses(lines: Sequence[Line], block: Block) -> str:
    """Write clauses of a text with the mark of a person, if one says it, and of nobody else; a mark
    stands where something between them is left out. What turns one stands before it once."""
    text, before, top = "", lines[0].number, ""
    for line in lines:
        is_led = spell_bare(text[-2 * len(line.lead) :]).endswith(spell_bare(line.lead))
        is_led |= bool(top) and line.top == top
        gap = " .. " if line.number > before + 1 else " "
        text += gap + (line.text if is_led else line.words)
        before, top = line.number, line.top
    words = _SPACED.sub(r"\1", text[1:])
    if block.kind == "asked":
        return ASKED + block.sender + quote(words)
    return f'"{words}"' if words.startswith(ASKED) else quote(words)


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
    """Yield lines with their numbers; what several objects of JSON stand in, and their keys, stand
    once above them."""
    for top, group in groupby(lines, key=attrgetter("top")):
        below = list(group)
        if top and len(below) > 1:
            yield top
            yield from (f"  {line.row}" for line in below)
        else:
            yield from (
                f"{line.number or ''}{': ' * bool(line.number)}{line.words}" for line in below
            )
