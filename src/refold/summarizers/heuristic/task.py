"""Find and write the text of the task: the issue, ticket or plan that is worked on."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from refold.summarizers.heuristic.answers import AGREEMENT
from refold.summarizers.heuristic.blocks import DOCS, Block, Line, Work, iter_lines
from refold.summarizers.heuristic.calls import EXIT_PLAN_TOOL
from refold.summarizers.heuristic.current_files import CurrentFile
from refold.summarizers.heuristic.excerpts import LINE_OVERHEAD_TOKENS
from refold.summarizers.heuristic.identifiers import iter_identifiers, split_words
from refold.summarizers.heuristic.layout import PARTS, PLAN, TASK, list_item
from refold.summarizers.heuristic.shell_words import MAX_COMMAND
from refold.summarizers.heuristic.steps import Step
from refold.text.clip import without_mark
from refold.text.failures import END_CHARS
from refold.text.json_values import parse_or_none, text_at
from refold.text.plain import count_bytes, letters_and_digits, split_path
from refold.text.summary_wrapper import quote
from refold.tokens.count import estimate

LEAST_NAME = 6
"""Minimum number of characters of a file name or title by which people refer to a text."""
TITLE = 20
"""Tokens for the heading of the section, besides the source."""
_SKILL = re.compile(
    r"[/\\]\.[\w-]+[/\\]skills[/\\]|skills[/\\][^/\\]+[/\\](?:references|scripts|assets)[/\\]|SKILL\.md\Z"
)
"""A file that belongs to a skill."""
_TITLE = re.compile(r"\s*(?:#{1,6}|[-*+] \[[ ~/]\]) ")
"""A heading of a part of a text, or an open item."""
_BOX = re.compile(r"\s*[-*+] \[[ ~/xX]\] ")
_INDENTED = re.compile(r"^  ", re.MULTILINE)
_TICKED = re.compile(r"\s*[-*+] \[[xX]\] ")
_APPROVED = re.compile(r"(?i)^(?!.{0,80}\b(?:not|rejected)\b).{0,80}\bapproved\b")
"""The beginning of a tool result that approves a plan."""
_PLAN_BELOW = re.compile(r"^## Approved Plan.{0,40}:\n", re.MULTILINE)
"""The line above the plan in such a result (Claude Code)."""
_IMPLEMENT = re.compile(r"(?i)(?:please )?implement (?:the|this)(?: following)? plan\b[.:]?\s*")
"""Beginning of a request that approves a plan, perhaps one below (Claude Code, Codex)."""
_PROPOSES, _PROPOSED = "<proposed_plan>", "</proposed_plan>"
"""Tags around a plan that the model proposes (Codex)."""


MOST_ASKED = 4
"""Number of requests on other subjects after a plan that end it."""
_GOES_ON = re.compile(r"(?i)\b(?:plan|phase|step|stage|milestone|part)s?\b|计划|計劃|阶段|階段|步")
"""Words of a request that is still about the plan."""
_CLOSES = re.compile(
    r"\b(?:gh|glab) issue close #?(\d{1,9})\b|\bbd close ([\w-]{1,40})|\bClosed issue \S{0,200}#(\d{1,9})\b"
)
"""A command that closes an issue, and its output."""
_OF_ANY = re.compile(r"(?i)(?:readme|changelog|contributing|agents|claude|gemini|license|skill)\b")
"""Names of documents that are never the task, even if a request names them."""
_WORD = re.compile(r"[\w-]+")


class TaskHints(NamedTuple):
    """What people asked for, as far as it may be the text of the task."""

    plan: str = ""
    """The plan that they approved last, unless it is over."""
    asked: tuple[str, ...] = ()
    """Requests since then, or all requests without an approved plan."""
    first: str = ""
    """The very first request."""
    closed: frozenset[str] = frozenset()
    """Numbers and ids of closed issues."""


class Task(NamedTuple):
    """The text of the task."""

    heading: str = ""
    lines: Sequence[Line] = ()
    is_stale: bool = False
    """Whether its file may have changed since."""
    is_product: bool = False
    """Whether it is a document without checkboxes that the agent has changed."""


def read_task_hints(
    steps: Iterable[Step], earlier: tuple[str, ...], plan: str, shown: Sequence[str]
) -> TaskHints:
    """Read the plan that a person approved last (in a tool result or a request, else in an earlier
    summary), the requests since then, preceded by the *earlier* requests if there is no plan, and
    the closed issues. A plan that is *shown* word for word is left out."""
    proposed, asked, closed = "", list[str](), set[str]()
    first = next(iter(earlier), "")
    drafts = dict[str, str]()
    for step in steps:
        approved = ""
        if step.kind == "answer" and _PROPOSES in step.text:
            proposed = step.text.rpartition(_PROPOSES)[2].partition(_PROPOSED)[0]
        elif step.kind == "request":
            asked.append(step.text)
            first = first or step.text
            if match := _IMPLEMENT.match(step.text):
                approved = step.text[match.end() :] or proposed
        elif step.kind == "result" and _is_approved(step):
            below = _PLAN_BELOW.search(step.text)
            argument = text_at(parse_or_none(step.arguments), "plan")
            named = (text for path, text in drafts.items() if split_path(path)[1] in step.text)
            approved = step.text[below.end() :] if below else argument or next(named, "")
        elif step.kind == "result" and not step.is_error:
            for path in filter(DOCS.search, step.effect.changed_files):
                whole = [change.new for change in step.effect.changes if change.old is None]
                drafts[path] = "\n".join(whole[-1]) if whole else ""
            texts = (step.command[:MAX_COMMAND], step.text[-END_CHARS:])
            closed |= {id for text in texts for ids in _CLOSES.findall(text) for id in ids if id}
        if approved:
            plan, asked = approved, []
    new = [text for text in asked if count_bytes(text) >= AGREEMENT and not _GOES_ON.search(text)]
    asked = asked if plan else [*earlier, *asked]
    is_over = len(new) >= MOST_ASKED or any(plan in text for text in shown)
    return TaskHints("" if is_over else plan, tuple(asked), first, frozenset(closed))


def _is_approved(step: Step) -> bool:
    is_shown = not step.is_error and EXIT_PLAN_TOOL.fullmatch(step.effect.tool)
    return bool(is_shown and _APPROVED.match(step.text))


def read_task(work: Work, files: Mapping[str, CurrentFile], wanted: TaskHints, named: str) -> Task:
    """Return the text that people referred to last in their requests. Otherwise return the plan
    that they approved, if the latest words are about it, or else the newest text that nobody
    edited, preferably one about something *named*. Skills, files that neither people nor the latest
    answers mention, closed issues and completed lists are left out."""
    plan, asked = wanted.plan, "\n".join(wanted.asked)
    names_now = {name for name, _ in iter_identifiers(named)}
    spoken = split_words(f"{named}\n{asked}")
    newest = {
        _source_of(block): at
        for at, block in enumerate(work.blocks)
        if block.kind == "task" or _is_named_first(block, wanted.first)
    }
    lines_at = work.read_lines(
        at for at, block in enumerate(work.blocks) if _source_of(block) in newest
    )
    pieces = defaultdict[str, list[list[Line]]](list)
    for at, lines in lines_at.items():  # the newest first, older ones without its lines
        pieces[work.blocks[at].path].append(lines)
    ranked = list[tuple[tuple[int, bool, bool, int], Task]]()
    if any(name in names_now for name, _ in iter_identifiers(plan)):
        lines = [*iter_lines(plan, is_prose=True, least=1)]  # code without `else:` means otherwise
        ranked.append(((-1, True, True, len(work.blocks)), Task(PLAN, lines)))
    for source, at in newest.items():
        block = work.blocks[at]
        lines = max(pieces[block.path], key=len) if block.path else lines_at[at]
        if (file := files.get(block.path)) and len(file.numbers) > len(lines) and not file.is_stale:
            lines = [*iter_lines(file.text, is_prose=True, least=1)]
        is_over = not (block.path or wanted.closed.isdisjoint(_WORD.findall(block.heading)))
        ticked = [_TICKED.match(line.text) for line in lines if _BOX.match(line.text)]
        is_over |= bool(ticked) and all(ticked)
        if len(lines) > 1 and not (is_over or _SKILL.search(block.path)):
            texts = (block.heading, *(line.text for line in lines))
            names = (name for text in texts for name, _ in iter_identifiers(text))
            history = work.files.get(block.path)
            is_original = history is None or history.changed_at < 0
            place = _find_named(source, lines[0].text, asked)
            stem = split_path(block.path)[1].partition(".")[0]
            is_spoken_of = max(place, _find_named(source, lines[0].text, named)) >= 0
            if not (is_spoken_of or spoken.issuperset(split_words(stem))):
                continue
            rank = (place, is_original, any(name in names_now for name in names), at)
            is_product = not (is_original or ticked)
            task = Task(block.heading, lines, bool(file and file.is_stale), is_product)
            ranked.append((rank, task))
    return max(ranked, key=lambda row: row[0], default=(None, Task()))[1]


def _is_named_first(block: Block, first: str) -> bool:
    """Return whether a block is a document that the *first* request names as the task."""
    name = split_path(block.path)[1]
    is_document = block.kind == "docs" and "." in name and not _OF_ANY.match(name)
    return is_document and name in first


def _source_of(block: Block) -> str:
    return block.path or block.heading


def _find_named(source: str, title: str, asked: str) -> int:
    """Return the last position in the requests at which a text is named by file name or title, or
    -1."""
    name, title = split_path(source)[1], title.strip("# ")
    names = [name] if "." in name else []
    return max(
        (asked.rfind(name) for name in (*names, title) if len(name) >= LEAST_NAME), default=-1
    )


def render_task(task: Task, room: int, requests: str = "") -> str:
    """Write the text of the task in its own lines, without those in the rendered *requests*. If any
    are missing, the heading says so."""
    shown = {line.key for line in iter_lines(_INDENTED.sub("", requests), least=1)}
    new = [line for line in task.lines if line.key not in shown]
    lines = _choose_lines(new, room - estimate(task.heading) - TITLE)
    extent = PARTS if len(lines) < len(task.lines) and PARTS not in task.heading else ""
    extent += " (may differ: something else changed it since)" if task.is_stale else ""
    rows = [f"## {TASK}{quote(task.heading)}{extent}"]
    for lead, group in groupby(lines, key=attrgetter("lead")):
        run = list(group)
        if lead and letters_and_digits(rows[-1]).endswith(
            letters_and_digits(lead)
        ):  # the row above has the lead
            rows += [quote(line.text) for line in run]
        elif lead and len(run) > 1:  # once, above its lines
            rows.append(quote(lead.rstrip()))
            rows += [list_item(quote(without_mark(line.text))) for line in run]
        else:
            rows += [quote(line.words) for line in run]
    return "\n".join(rows) if lines else ""


def _choose_lines(lines: Sequence[Line], room: int) -> list[Line]:
    """Return the lines that fit, in order. If not all fit, headings and open items get two thirds
    of the room. Then the text is taken from its beginning, ticked items last."""
    chosen, leads = set[int](), {""}
    ticked, unticked, titles = list[int](), list[int](), list[int]()
    for at, line in enumerate(lines):
        (ticked if _TICKED.match(line.text) else unticked).append(at)
        titles += [at] if _TITLE.match(line.text) else []
    for order, least in ((titles, room // 3), (unticked, 0), (ticked, 0)):
        for at in (at for at in order if at not in chosen):
            words = lines[at].text if lines[at].lead in leads else lines[at].words
            if room - (price := estimate(quote(words)) + LINE_OVERHEAD_TOKENS) < least:
                break
            room -= price
            chosen.add(at)
            leads.add(lines[at].lead)
    return [lines[at] for at in sorted(chosen)]
