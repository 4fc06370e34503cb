"""The current text of files in work: their last reads with later edits applied."""

import re
from array import array
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice, pairwise
from math import sqrt

from refold.summarizers.heuristic import shell
from refold.summarizers.heuristic.actions import find_executed_part, is_agent
from refold.summarizers.heuristic.blocks import DOCS, LOGS
from refold.summarizers.heuristic.calls import RANGE, Change
from refold.summarizers.heuristic.excerpts import Context
from refold.summarizers.heuristic.identifiers import DEFINITION, find_names
from refold.summarizers.heuristic.lexicon import find_leads
from refold.summarizers.heuristic.shell_words import PATCH_BEGINS, find_first_line
from refold.summarizers.heuristic.steps import Step, is_stub
from refold.text.clip import clip_scanned
from refold.text.json_values import int_at, object_at, parse_or_none
from refold.text.plain import (
    UNKNOWN_FOLDER,
    find_vendored,
    folders_of,
    has_extension,
    split_path,
    with_slashes,
)
from refold.text.summary_wrapper import PLACE, quote, write_heading
from refold.tokens.count import estimate

MOST_FILES = 10
MOST_STEPS = 1_000_000
"""Maximum lines plus hundreds of characters that edits of a file go through until its next read."""
LARGEST = 2_000_000
"""Maximum characters of a file that edits are applied to."""
FARTHEST = 1 << 40
"""Maximum first line of a read. A call may ask for any."""
MOST_SPELLINGS = 50
"""Maximum number of files of one name that are compared as spellings of one path."""
MOST_LINES = 20
"""Maximum lines of a block, which ends at a blank line or before a definition if it can."""
RECENT = 8
"""Number of last messages whose words tell which blocks matter."""
RELATED = 2
"""Weight of a block whose words are all in these. One that was just edited has 1."""
BLOCK_OVERHEAD_TOKENS = 40
"""Tokens added to a block's price, as one small block alone is hardly enough for an edit."""
FRESH = 50.0
"""Age of the last touched file, in thousands of tokens, above which all files get less room."""
NAMED = 1.5
"""Factor for a file that the latest requests and answers, or the task, name."""
PENDING = 3
"""Another factor if no call has changed it yet: it is likely to be next."""

_NUMBERED = re.compile(r"\s{0,20}(\d{1,7})(?:(?:[a-z]{2}| )(?=\|))?[→|:\t](.*)", re.DOTALL)
"""A line number, perhaps with a checksum of two letters, and the line."""
_TIGHT = re.compile(r"\s{0,20}\d{1,7}(?:[→\t]|[a-z]{2}\|)")
"""A line number with a separator that the line follows without a space."""
_LEFT_OUT = re.compile(
    r"^.{0,9}(?:…|\.\.\.)\D{0,20}\d+ (?:of \d+ )?\w+ (?:truncated|omitted)|omitted \d+ of \d+"
    r"|…\s?\d+ \w+ truncated|^[^\n]*+\n</output_head>|<response clipped>|^\[\d+ more lines in file\b",
    re.MULTILINE,
)
"""A notice that a client left out or cut rows. Line numbers after it may be wrong."""
_OUTPUT = re.compile(
    r"\s*(?:<returncode>-?\d+</returncode>\s*)?(?:<warning>[^<]*</warning>\s*)?"
    r"<output(?:_head)?>\n?(.*?)(?:\n?</output>\s*)?",
    re.DOTALL,
)
"""Tags around an output (mini-swe-agent)."""
_PART = re.compile(
    r"\s{0,9}(?:IMPORTANT: [^\n]*\nStatus: )?Showing lines (\d{1,7})-\d{1,7} of [^\n]*\n"
    r"(?:Action: [^\n]*\n)?\n(?:---\n\n|--- FILE CONTENT \(truncated\) ---\n)"
)
"""Header of a part of a file, with its first line (Gemini CLI, Qwen Code)."""
_COUNTS_FROM_0 = "read_file"
"""Tool whose `offset` is 0 for the first line (Gemini CLI, Qwen Code, Mistral Vibe)."""
_FOLDER = re.compile(r"<path>[^\n]*\n<type>directory<|Here's the files and directories ")
"""Start of a read's result that lists a folder (OpenCode, OpenHands)."""
_REFUSED = re.compile(r"(?:cat|head|nl|sed|tail): .*(?:\n|\Z)")
"""Error of a program that cannot read a file."""
_EXPLORES = re.compile(
    r'"\w{0,20}(?:type|agent|mode)": ?"(?:explore|plan)\b'
    r'|"description": ?"(?!(?>[^"]{0,200}?\b(?:fix|implement|write|update|edit|add)))[^"]{0,60}\b(?:review|research|audit)\b',
    re.IGNORECASE,
)
"""Arguments of a call to an agent that only reads (Claude Code, OpenCode)."""
_UP_TO_DATE = ("Already up to date.", "Already up-to-date.")
"""Git's output if there is nothing to pull or merge."""
_FOUND_CHANGED = re.compile(r"(?:modified|changed) (?:\w+ )?since", re.IGNORECASE)
"""Error of an editor that refuses a file that others changed."""
_OUTSIDE_PREFIX = re.compile(rf"\A(?:(?:\.\.|~|{UNKNOWN_FOLDER})/)+")
"""Folders at the start of a path that another spelling of it may lack."""
_WORD = re.compile(r"[^\W_]{3,}")

Numbered = tuple[int, str]
"""Number and text of a known line."""


@dataclass(slots=True)
class CurrentFile:
    """The known current text of one file."""

    path: str
    text: str = ""
    """The known lines, joined. As pairs those of all files would take four times the memory."""
    numbers: Sequence[int] = ()
    """Number of each line, approximate after an edit."""
    edited: dict[str, int] = field(default_factory=dict)
    """Lines that edits wrote, with the position of the edit."""
    edits: int = 0
    steps: int = 0
    """Lines plus hundreds of characters that edits went through."""
    touched_at: int = -1
    is_stale: bool = False
    """Whether it may have changed in an unknown way."""

    @property
    def lines(self) -> list[Numbered]:
        """Number and text of each known line, in order."""
        return list(zip(self.numbers, self.text.split("\n"), strict=False))

    @lines.setter
    def lines(self, lines: Sequence[Numbered]) -> None:
        self.numbers = array("q", [number for number, _ in lines])
        self.text = "\n".join([text for _, text in lines])


FolderChanges = dict[tuple[str, str], int]
"""Last position of a command on all files of a folder, by its name and their state after it."""


def read_files(steps: Iterable[Step]) -> dict[str, CurrentFile]:
    """Return by path every file that was read or written and not deleted, in one pass. Those that
    another agent may have edited, or that changed under another spelling of a path, are stale."""
    files, paths = dict[str, CurrentFile](), defaultdict[str, set[str]](set)
    deleted, marks = dict[str, int](), FolderChanges()
    results = (step for step in steps if step.kind == "result")
    for step in (step if step.has_effect else _keep_possible_changes(step) for step in results):
        if is_agent(step.effect.tool) and not _EXPLORES.search(step.arguments):
            named = find_names(f"{step.arguments}\n{step.text}")
            for name in {split_path(name)[1] for name in named}:
                for path in paths.pop(name, ()):
                    if path in files:
                        files[path].is_stale = True
        _apply(files, step, marks)
        for path, state in step.effect.files:
            if state == "deleted":
                deleted[path.rstrip("/")] = step.at
            spellings = paths[split_path(path)[1]]
            if state != "read" and len(spellings) <= MOST_SPELLINGS:
                _mark_spellings(files, path, spellings, is_sure=bool(step.effect.place.folder))
            spellings.add(path)
    for file in files.values():
        file.is_stale |= _is_folder_changed(file, marks)
    return {
        path: file
        for path, file in files.items()
        if all(deleted.get(folder, -1) <= file.touched_at for folder in folders_of(path))
    }


def _mark_spellings(
    files: dict[str, CurrentFile], path: str, spellings: set[str], *, is_sure: bool
) -> None:
    """Mark as stale the files that may be the changed one at *path* under another spelling; if the
    session's folder is known (*is_sure*), only if one of the paths begins outside it."""
    for spelling in (spellings - {path}) & files.keys():
        is_inside = is_sure and not any(map(_OUTSIDE_PREFIX.match, (path, spelling)))
        is_same = _is_end(path, spelling) or _is_end(spelling, path)
        files[spelling].is_stale |= is_same and not is_inside


def _is_end(name: str, path: str) -> bool:
    """Return whether *name* is the end of *path*, so that both may name one file."""
    return f"/{with_slashes(path)}".endswith("/" + _OUTSIDE_PREFIX.sub("", with_slashes(name)))


def _keep_possible_changes(step: Step) -> Step:
    """Return a failed step with only the files that it may have changed or found changed."""
    is_patch = PATCH_BEGINS in step.command  # which is not applied if it does not fit
    is_change = (step.exit_code and not is_patch) or _FOUND_CHANGED.search(step.text[:300])
    changed = step.effect.changed_files
    done = find_executed_part(step.command) if is_change and changed else ""
    gone = {
        path for path, state in shell.file_effects(done, step.effect.place) if state == "deleted"
    }
    files = tuple((p, "deleted" if p in gone else "changed") for p in changed if is_change)
    return step._replace(effect=step.effect._replace(files=files))


def _is_folder_changed(file: CurrentFile, marks: FolderChanges) -> bool:
    """Return whether a command affected all files, or this one's folders, since its last touch."""
    names = (shell.ALL, *(split_path(folder)[1] for folder in folders_of(file.path)))
    states = ("changed", "restored", "stashed", "unstashed") if file.edits else ("changed",)
    return any(
        marks.get((name, state), -1) >= file.touched_at for name in names for state in states
    )


def _apply(files: dict[str, CurrentFile], step: Step, marks: FolderChanges) -> None:
    command, changes = step.command, step.effect.changes_by_file
    is_only, done = len(step.effect.files) == 1, set[str]()
    for path, state in step.effect.files:
        if state not in {"read", *shell.CHANGES}:
            if state == "changed" and step.text.strip().endswith(_UP_TO_DATE):
                continue
            if path not in files or not has_extension(path):  # a folder may have been listed
                marks[split_path(path.rstrip("/"))[1], state] = step.at
            if state == "restored":
                files.pop(path, None)
            elif path in files:
                files[path].is_stale = True
            continue
        file = files.setdefault(path, CurrentFile(path, touched_at=step.at))
        file.is_stale |= bool(file.numbers) and _is_folder_changed(file, marks)
        file.touched_at = step.at
        if state == "deleted":
            del files[path]
        elif state == "read":
            if is_only or not command:  # else the lines may be another file's
                _add_read(file, step)
        elif (own := changes.get(path)) and path not in done:
            _apply_changes(file, own, step.at)
            done.add(path)
        elif own and (not command or PATCH_BEGINS in command or own[0].old is not None):
            continue  # applied already: a patch or line edits may name it often
        else:  # in an unknown way
            file.is_stale = True
            file.edits += 1


def _add_read(file: CurrentFile, step: Step) -> None:
    """Put the lines of a read in place of the known ones there."""
    text = step.text
    if is_stub(text) or _FOLDER.match(text) or not text.strip():
        return
    if frame := _OUTPUT.fullmatch(text):
        text = frame[1]
    part = _PART.match(text)
    text = clip_scanned(text[part.end() :] if part else text).removesuffix("\n")
    if gap := _LEFT_OUT.search(text):
        text = text[: text.rfind("\n", 0, gap.start()) + 1].rstrip("\n")
    rows = text.split("\n")
    matches = [match for row in rows if (match := _NUMBERED.fullmatch(row))]
    if part or (step.command and len(matches) < len(rows)):
        matches = []  # a program numbers all lines or none
    lines = [(int(match[1]), match[2].rstrip()) for match in matches]
    lines = _without_blanks(lines, matches[0][0]) if matches else []
    start = int(part[1]) if part else min(_find_start(step), FARTHEST)
    if not lines and start:  # without printed numbers
        lines = [(at, row.rstrip()) for at, row in enumerate(rows, start)]
    if not lines or any(after[0] != before[0] + 1 for before, after in pairwise(lines)):
        return
    laid = lines if _is_too_much(file, text) else _lay_over(file.lines, lines)
    file.is_stale &= len(laid) > len(lines)  # older lines remain
    file.lines = laid


def _without_blanks(lines: list[Numbered], first: str) -> list[Numbered]:
    """Return numbered lines without the space that a tool prints after each number and mark (`7:
    x`, `7| x`). *first* is the first of them as printed."""
    is_tools = not _TIGHT.match(first) and all(row[:1] in ("", " ") for _, row in lines)
    return [(number, row[1:]) for number, row in lines] if is_tools else lines


def _lay_over(lines: Sequence[Numbered], read: list[Numbered]) -> list[Numbered]:
    """Return the known *lines* of a file with the newer *read* ones in their place. If these show
    an unseen change, renumber the lines around by lines that are unique in the read, or keep no
    older line."""
    first, last = read[0][0], read[-1][0]
    start, stop = bisect(lines, (first,)), bisect(lines, (last + 1,))
    counts = Counter(text for _, text in read)
    same_place = lines[start:stop]
    if sum(text in counts for _, text in same_place) < len(same_place) / 2:
        return read
    places = {text: number for number, text in read if text.strip() and counts[text] == 1}
    moved = [places[text] - at for at, text in same_place if text in places] or [0]
    shift, shift_below = moved[0], moved[-1]
    behind = [(at + shift_below, text) for at, text in lines[start:] if at + shift_below > last]
    ahead, free = list[Numbered](), first - 1
    for number, text in reversed([row for row in lines if row[0] + shift < first]):
        ahead.append((min(number, free), text))
        free = ahead[-1][0] - 1
    numbered = [row for row in reversed(ahead) if row[0] > 0]
    return [*numbered, *read, *behind]


def _find_start(step: Step) -> int:
    """Return the first line that a call reads, else 1; 0 if it shows no consecutive lines."""
    if command := step.command:
        is_error = step.exit_code or _REFUSED.match(step.text)
        return 0 if is_error else find_first_line(command)
    fields = object_at(parse_or_none(step.arguments))
    if (line := int_at(fields, "start_line")) >= 0:
        return max(1, line)
    if (offset := int_at(fields, "offset")) >= 0:
        return max(1, offset + (step.effect.tool == _COUNTS_FROM_0))
    places = (RANGE.search(value) for value in fields.values() if isinstance(value, str))
    return next((int(place[1] or 1) for place in places if place), 1)


def _apply_changes(file: CurrentFile, changes: Iterable[Change], at: int) -> None:
    """Apply changes in order, those of a patch each after the one before."""
    behind = 0
    for change in changes:
        old, new = change.old, change.new
        if old is None:
            _write_whole(file, new, at)
        elif change.lines:
            _edit_lines(file, change, *change.lines, at)
        elif change.occurrences:
            _replace(file, change, at)
        else:
            behind = _put_lines(file, change, old, behind)
            _note_edit(file, new, at)


def _write_whole(file: CurrentFile, new: Iterable[str], at: int) -> None:
    lines = [line.rstrip() for line in new]
    _note_edit(file, lines, at)
    file.lines, file.is_stale = list(enumerate(lines, 1)), False


def _note_edit(file: CurrentFile, lines: Iterable[str], at: int) -> None:
    file.edits += 1
    file.edited.update((line.rstrip(), at) for line in lines if line.strip())


def _replace(file: CurrentFile, change: Change, at: int) -> None:
    """Apply a change that may begin and end within known lines, if these surely hold its old text:
    blanks at their ends are unknown. Forget the lines of a file too large or edited too often."""
    *rows, last = "\n".join(change.old or ()).split("\n")
    old, new = "\n".join((*map(str.rstrip, rows), last)), "\n".join(change.new)
    whole = file.text  # line by line takes n * m steps if all are alike
    if _is_too_much(file, whole, old, new):
        file.lines, whole = [], ""
    count = whole.count(old) if old.strip() else 0
    is_open = old.endswith((" ", "\t")) or f"\n{whole}\n".count(old) > count
    is_twice = change.occurrences == -2 and any(row.count(old) > 1 for row in whole.split("\n"))
    if not count or is_twice or (is_open and change.occurrences < 0):
        _forget_part(file, [*rows, last], change.new)
        file.is_stale |= bool(count)
        return _note_edit(file, change.new, at)
    first, *pieces = whole.split(old, change.occurrences)
    height, behind = new.count("\n"), first.count("\n") + 1
    numbers, places = [*file.numbers[:behind]], list[int]()
    for count, piece in enumerate(pieces, 1):
        places += range(len(numbers) - 1, len(numbers) + height)
        numbers += range(numbers[-1] + 1, numbers[-1] + 1 + height)
        start = behind + old.count("\n")
        behind, shift = start + piece.count("\n"), count * (height - old.count("\n"))
        numbers += [number + shift for number in file.numbers[start:behind]]
    rows = [row.rstrip() for row in new.join((first, *pieces)).split("\n")]
    file.lines = list(zip(numbers, rows, strict=True))
    return _note_edit(file, [rows[place] for place in places], at)


def _edit_lines(file: CurrentFile, change: Change, first: int, last: int, at: int) -> None:
    """Apply a change at line numbers, unless the file is stale. Forget a text that is too large."""
    old, new = "\n".join(change.old or ()), "\n".join(change.new)
    lines = [] if _is_too_much(file, file.text, old, new) else file.lines
    if not file.is_stale and (not lines or min(first, last) <= lines[-1][0]):
        start, stop = bisect(lines, (first,)), bisect(lines, (last + 1,))
        placed, shift = list(enumerate(change.new, first)), len(change.new) - (last - first + 1)
        if old:
            part = lines[start:stop]
            placed, shift = [(n, t.replace(old, new, change.occurrences)) for n, t in part], 0
            file.is_stale = bool(part) and placed == part
        behind = [(number + shift, text) for number, text in lines[stop:]]
        file.lines = [*lines[:start], *placed, *behind]
    _note_edit(file, change.new, at)


def _forget_part(file: CurrentFile, old: Sequence[str], new: Sequence[str]) -> None:
    """Forget the known lines among *old* rows that *new* ones replaced somewhere. If there are any,
    the file is stale. The first may begin within its line, and the last may end there."""
    stripped = [line.strip() for line in old]
    telling = {row for row in stripped if len(row) > 2} or set(stripped)
    ends, begins = (row if row in telling else "\n" for row in (stripped[0], stripped[-1]))
    lines, texts = file.lines, [text.strip() for _, text in file.lines]
    held = [t in telling or t.startswith(begins) or t.endswith(ends) for t in texts]
    remaining = {line.strip() for line in new}
    rows = zip(lines, texts, held, strict=True)
    file.lines = [line for line, text, is_held in rows if not is_held or text in remaining]
    file.is_stale |= any(held)


def _is_too_much(file: CurrentFile, whole: str, old: str = "", new: str = "") -> bool:
    """Count an edit. Return whether the file is too large, now or after it, or edited too often."""
    file.steps += len(file.numbers) + len(whole) // 100
    return file.steps > MOST_STEPS or len(whole) + whole.count(old or "\0") * len(new) > LARGEST


def _put_lines(file: CurrentFile, change: Change, old: Sequence[str], behind: int) -> int:
    """Replace the *old* lines by those of a *change*, or insert these after its anchor, if possible
    after the offset *behind* in the known text. Return the offset after them. If no place is found,
    mark the file as stale and return *behind*."""
    whole = f"\n{file.text}\n" if file.numbers else "\n"
    if _is_too_much(file, whole):
        file.lines, whole = [], "\n"
    anchored = whole.find(f"{change.anchor}\n", behind) if change.anchor else -1
    behind = whole.index("\n", anchored) if anchored >= 0 else behind
    place = behind if anchored >= 0 else -1
    if old:
        text = "".join(f"\n{row.rstrip()}" for row in old) + "\n"
        place = whole.find(text, behind)
        place = whole.find(text) if place < 0 else place
    if place >= 0:
        lines, first = file.lines, whole.count("\n", 0, place)
        stop, shift = first + len(old), len(change.new) - len(old)
        number = lines[first][0] if first < len(lines) else first + 1
        placed = [(at, row.rstrip()) for at, row in enumerate(change.new, number)]
        file.lines = [*lines[:first], *placed, *((at + shift, text) for at, text in lines[stop:])]
        return place + sum(len(row.rstrip()) + 1 for row in change.new)
    if old:
        _forget_part(file, old, change.new)
    file.is_stale |= bool(file.numbers)
    return behind


# --- which blocks are shown ---------------------------------------------------------------------


def render_current(
    files: Mapping[str, CurrentFile],
    tail: Sequence[str],
    context: Context,
    room: int,
) -> str:
    """Return the blocks that the texts in *tail* do not show, of the files touched last and edited
    most, in *room* tokens. Unedited files count, too: agents read before they edit."""
    shown = {line.strip() for text in tail for line in _plain_lines(text)}
    words = {word for text in tail[-RECENT:] for word in _WORD.findall(text)}
    named = {split_path(name)[1] for name in find_names(context.named)}
    vendored = find_vendored(files)
    heats = {
        path: _rate_heat(file, context.ages, named)
        for path, file in files.items()
        if file.numbers and path not in vendored and not path.endswith(LOGS)
    }
    hottest = sorted(heats, key=heats.__getitem__, reverse=True)
    with_blocks = ((path, rows := files[path].lines, _find_hidden(rows, shown)) for path in hottest)
    hot = list(islice((row for row in with_blocks if row[2]), MOST_FILES))
    age = min((context.ages[files[path].touched_at] for path, *_ in hot), default=0.0)
    room = int(room * FRESH / max(age, FRESH))
    weighed = list[tuple[float, int, Block, int]]()
    for rank, (path, lines, blocks) in enumerate(hot):
        for block in blocks:
            texts = [lines[at][1] for at in block]
            price = sum(estimate(text) + 2 for text in texts)
            weight = heats[path] * _weigh_lines(texts, files[path].edited, context.ages, words)
            weighed.append((weight / (price + BLOCK_OVERHEAD_TOKENS), rank, block, price))
    chosen: dict[int, list[Block]] = {}
    for _, rank, block, own in sorted(weighed, key=lambda row: (-row[0], row[1], row[2].start)):
        price = own + (0 if rank in chosen else estimate(hot[rank][0]) + 6)
        if price <= room:
            room -= price
            chosen.setdefault(rank, []).append(block)
    parts = []
    for rank, blocks in sorted(chosen.items()):
        path, lines, _ = hot[rank]
        mark = " (may differ: something else changed it since)" if files[path].is_stale else ""
        parts.append(write_heading(path) + mark)
        parts += _render_blocks(lines, blocks, _read_leads(lines) if DOCS.search(path) else {})
    return "\n".join(parts)


Block = range
"""Indexes of successive known lines."""


def _find_hidden(lines: Sequence[Numbered], shown: set[str]) -> list[Block]:
    """Return the blocks of known *lines* that are not all *shown*."""
    return [
        block
        for block in _cut(lines)
        if any((plain := lines[at][1].strip()) and plain not in shown for at in block)
    ]


def _render_blocks(
    lines: Sequence[Numbered], blocks: Iterable[Block], leads: Mapping[int, str]
) -> Iterator[str]:
    """Yield the lines of blocks in order. Before a block that does not follow the last one, blank
    lines aside, yield its line number and the lead of its first line."""
    stop = 0
    for block in sorted(blocks, key=lambda block: block.start):
        between = lines[stop : block.start]
        steps = lines[block.start][0] - lines[stop - 1][0]
        if steps == len(between) + 1 and not any(text.strip() for _, text in between):
            yield from (text for _, text in between)
        else:
            lead = leads.get(block.start, "").rstrip(" :：")
            yield f"{PLACE}{lines[block.start][0]}" + (f", under {lead}" if lead else "")
        yield from (quote(lines[at][1]) for at in block)
        stop = block.stop


def _read_leads(lines: Sequence[Numbered]) -> dict[int, str]:
    """Return the leads of a document's known lines by index. No gap may lie between lead and
    line."""
    leads = dict[int, str]()
    for _, run in groupby(enumerate(lines), key=lambda row: row[1][0] - row[0]):
        rows = list(run)
        own = find_leads([text for _, (_, text) in rows])
        leads |= {rows[at][0]: lead for at, lead in own.items()}
    return leads


def _rate_heat(file: CurrentFile, ages: Sequence[float], named: set[str]) -> float:
    activity = (1 + sqrt(min(file.edits, 4))) / (1 + ages[file.touched_at])
    if split_path(file.path)[1] in named:
        activity *= NAMED if file.edits else NAMED * PENDING
    return activity


def _weigh_lines(
    texts: Sequence[str], edited_at: Mapping[str, int], ages: Sequence[float], words: set[str]
) -> float:
    edited = [ages[at] for text in texts if (at := edited_at.get(text, -1)) >= 0]
    own = {word for text in texts for word in _WORD.findall(text)}
    recent = len(own & words) / len(own) if own else 0
    return (1 / (1 + min(edited)) if edited else 0.1) + RELATED * recent


def _cut(lines: Sequence[Numbered]) -> Iterator[Block]:
    """Split known lines at gaps, blank lines and definitions, at most `MOST_LINES` to a block."""
    start = 0
    for at, (number, text) in enumerate(lines):
        is_gap = at > start and number != lines[at - 1][0] + 1
        is_start = at - start > 4 and (not text.strip() or bool(DEFINITION.match(text.lstrip())))
        if is_gap or is_start or at - start >= MOST_LINES:
            yield range(start, at)
            start = at
        if at == start and not text.strip():
            start = at + 1
    if start < len(lines):
        yield range(start, len(lines))


def _plain_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text without numbers, and what follows `: ` (a call's argument)."""
    for row in text.split("\n"):
        match = _NUMBERED.fullmatch(row)
        yield match[2] if match else row
        yield row.partition(": ")[2]
