"""Render the state of the work as Markdown sections within a number of tokens."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import groupby

from refold.speakers.carriers import IN_RESULT
from refold.summarizers.heuristic.actions import COMMIT, WAS_REFUSED, Action
from refold.summarizers.heuristic.answers import ANSWERS, cut_middle
from refold.summarizers.heuristic.blocks import SOURCE
from refold.summarizers.heuristic.calls import Todo
from refold.summarizers.heuristic.identifiers import group_paths
from refold.summarizers.heuristic.lexicon import find_constraints, find_corrections, find_leads
from refold.summarizers.heuristic.state import FileState, State
from refold.text.clip import one_line, without_mark
from refold.text.failures import has_failed
from refold.text.plain import first_content_line, is_absolute, is_outside
from refold.text.summary_wrapper import PERSON_PREFIX, mark_cut
from refold.tokens.count import estimate

MOST_CHECKS = 5
FAILING_CHECKS = 15
"""Number of latest checks of which all failing ones are listed."""
READ_FILES = 250
"""Maximum number of tokens for the paths of files that were only read, the last read first."""
MOST_DONE = 4
PLANNED = "turns since this plan: "
"""Label of the line above a plan after which the user asked for something else."""
MOST_ACTIONS = 15
"""Maximum number of listed calls that had an effect."""
DONE_SHARE = 0.25
"""Share of the room for these calls if no file was changed. Otherwise it is `DONE_BESIDE_FILES`."""
DONE_BESIDE_FILES = 0.16
MOST_FAILED = 8
ERROR_KEY_CHARS = 60
"""Number of characters by which the line of the last error is recognised."""
MOST_VAGUE = 3
"""Maximum number of listed decisions that name nothing and were made before a call."""
REQUEST_SHARE = 0.35
"""Share of the room for the latest request. The earlier requests together get the rest of it and as
much again."""
EARLIER_SHARE = 0.5
"""Minimum share of the room for the earlier requests if no person answers turns."""
REQUEST_ROOM_DIVISOR = 4
"""Divisor of the room for earlier requests: if not all fit, it limits each except the first. So a
pasted error that is fixed by now pushes out no instruction."""
MOST_OF_TEMPLATE = 120
"""Maximum number of characters of the text of a finished command or skill."""
ANSWER_SHARE = 1 / 3
"""Share of the room reserved for people's answers to tools that ask. They matter as much as
requests, and the choices in them stand nowhere else."""
MIN_REQUEST = 60
"""Minimum number of tokens for the first request, which is the task."""
MIN_ACTION = 80
"""Minimum number of tokens for the last call that had an effect."""
MIN_FAILURES = 120
"""Minimum number of tokens for the last failures."""
MIN_CHECKS = 100
"""Minimum number of tokens for the last test or build and the last commit."""
MIN_CUT_TOKENS = 24
"""Number of tokens below which a text is left out instead of being cut."""

REQUESTS = ("Earlier requests", "Current request", "Last request of this part")
"""Titles of requests. After a summary with the title *of this part*, newer requests follow."""
EARLIER, CURRENT, LAST = REQUESTS
MARKS = {"pending": " ", "active": "~", "done": "x"}
NOT_TESTED = "not tested since"
TASK, PARTS = "Task, as in: ", " (in parts)"
PLAN = "the plan that the user approved"
QUOTING = ("Current text", "Task", "Excerpts")
"""Prefixes of the titles of sections that only quote messages."""
CONVERSATION = (
    "Excerpts from the conversation (single sentences; later ones may replace earlier ones)"
)
"""Title of the section that quotes people and the model."""
ANNOUNCED = "announced last: "
STARTED = "still running when last seen: "
"""Label of a background call whose end was not seen."""
LAST_TIME = "last: "
"""Label of the outcome of a call that was made more than once."""
REPEATED = " lines as in a later request …]"
OMITTED = " earlier requests left out …]"
_LED = re.compile(r"\A- ([^:：\n]{1,200}(?:：|: ))(.+)\Z")
"""A rule, split into the words that introduce it and the rest."""
MOST_LEADS = 3
_TIMES = re.compile(r" \(×([1-9]\d{0,8})\)\Z")
_MEDIA = re.compile(r"\A(?>(?:\[(?:image|audio|video|document)\] )+)")
"""Labels before the text of a request with media."""
_SEPARATOR = re.compile(r"[/\\]")


def add_count(text: str, times: int) -> str:
    """Return a request with the number of times it was made: `continue (×400)`. A count of one is
    left out, unless *text* itself ends in a count."""
    return f"{text} (×{times})" if times > 1 or _TIMES.search(text) else text


def split_count(text: str) -> tuple[str, int]:
    """Split the output of `add_count` into the request and its count, 1 if it has none."""
    match = _TIMES.search(text)
    return (text[: match.start()], int(match[1])) if match else (text, 1)


def write_request(text: str, times: int, questions: Sequence[str] = ()) -> str:
    """Return a request as a list item: with its count and the questions it answers."""
    item = add_count(text, times)
    is_alike = _split_questions(item)[0] != item
    return f"{item}{ANSWERS}{' | '.join(questions) or '-'})" if questions or is_alike else item


def split_request(item: str) -> tuple[str, int, tuple[str, ...]]:
    """Split the output of `write_request` into the request, its count and its questions."""
    words, questions = _split_questions(item)
    return (*split_count(words), questions)


def _split_questions(item: str) -> tuple[str, tuple[str, ...]]:
    words, mark, questions = item.rpartition(ANSWERS)
    if not mark or not questions.endswith(")") or "\n" in questions:
        return item, ()
    return words, tuple(q for q in questions[:-1].split(" | ") if q != "-")


def render_state(
    state: State, room: int, work: float = 1.0, in_sight: AbstractSet[str] | None = None
) -> str:
    """Write *state* in about *room* tokens. The most important sections get room first. Rules may
    take all of it, and the other sections still share at least half. Requests also get what the
    other sections leave. *work* is the share of turns that no person answers. In a chat the
    dialogue is quoted instead of the requests alone. *in_sight* holds the rules of the requests in
    sight, if they were read before."""
    parts, rooms = dict[str, str](), dict[str, int]()
    in_sight = set(iter_rules(state.in_sight)) if in_sight is None else in_sight
    rules = list(_rules(state, room - 4, in_sight))
    least = int(room * EARLIER_SHARE * work)
    if rules:
        room -= min(estimate(_write_rules(rules)), room // 2)
    answers = [list_item(text) for text in state.decisions if text.startswith(PERSON_PREFIX)]
    of_answers = min(estimate("\n".join(answers)) + 2 * 4, int(room * ANSWER_SHARE))
    room -= of_answers if answers else 0
    all_rules, shown_lines = [*rules, *map(list_item, in_sight)], set(_iter_rows(state.in_sight))
    latest_request = partial(_latest_request, shown=frozenset(shown_lines))
    earlier_requests = partial(_earlier_requests, rules=all_rules, shown=shown_lines)
    has_changed = any(file.state != "read" for file in state.files.values())
    earlier, latest = EARLIER, CURRENT if state.is_latest_current else LAST
    has_deed = any(action.rank > 1 for action in state.actions.done.values())
    for title, make, share, first in (
        (latest, latest_request, REQUEST_SHARE, 0),
        ("Notes", _notes, 0.5, 0),
        ("Checks", _checks, 0.1, MIN_CHECKS),
        ("Files", _files, 0.5, 0),
        ("Done", _actions, DONE_BESIDE_FILES if has_changed else DONE_SHARE, has_deed * MIN_ACTION),
        ("Open", _open, 0.6, 0),
        (earlier, earlier_requests, 0.15 + 0.55 * work, 0),
        ("Failed", _failures, 0.3, MIN_FAILURES),
        ("Decisions", _decisions, 0.05 + 0.55 * work, 0),
    ):
        most = max(int(room * share), min(first, room // 3))
        if title == "Decisions" and answers:
            room += of_answers
            most = max(most, of_answers)
        if title == earlier:
            most = max(most, least, min(MIN_REQUEST, room // 2))
        lines, rooms[title] = list(make(state, most - 4)), most - 4
        if lines:
            parts[title] = f"## {title}\n" + "\n".join(lines)
            room -= estimate(parts[title])
        if title == latest:
            shown_lines.update(_iter_rows(line[2:] for line in lines))
    for title, make in ((latest, latest_request), (earlier, earlier_requests)):
        before = parts.get(title, "")  # a chat (work of at most a half) quotes the dialogue instead
        lines = list(make(state, rooms[title], spare=int(room * (2 * work - 1))))
        if before and room > 0 and len(text := "\n".join((f"## {title}", *lines))) > len(before):
            parts[title], room = text, room + estimate(before) - estimate(text)
            shown_lines.update(_iter_rows(line[2:] for line in lines))
    in_requests = _rules_of("\n".join((parts.get(earlier, ""), parts.get(latest, ""))))
    if other_rules := [rule for rule in rules if rule[2:] not in in_requests]:
        parts["Rules"] = _write_rules(other_rules)
    facts = ("Files", "Done", "Failed", "Checks", "Open", "Decisions", "Notes")
    return "\n".join(parts[title] for title in (earlier, latest, "Rules", *facts) if title in parts)


def _rules_of(sections: str) -> set[str]:
    """Return the rules stated by the requests in rendered sections."""
    items = (_MEDIA.sub("", _text_of(item), count=1) for item in sections.split("\n- ")[1:])
    return set(iter_rules(split_request(text)[0] for text in items))


def _write_rules(rules: Iterable[str]) -> str:
    return "\n".join(("## Rules", *_nest_rules(rules, MOST_LEADS)))


def _nest_rules(rules: Iterable[str], most: int) -> Iterator[str]:
    """Yield rules as lines. Successive rules with the same introduction become a list under it.
    Lists nest up to *most* levels deep."""
    for lead, group in groupby(rules, lambda rule: head[1] if (head := _LED.match(rule)) else ""):
        led = list(group)
        if not (lead and most) or len(led) == 1 or lead == PERSON_PREFIX:
            yield from led
        else:
            yield f"- {lead.rstrip()}"
            own = _nest_rules((_LED.sub(r"- \2", rule) for rule in led), most - 1)
            yield from (f"  {line}" for line in own)


def _iter_rows(texts: Iterable[str]) -> Iterator[str]:
    """Yield the lines of texts without indentation."""
    return (line.strip() for text in texts for line in text.split("\n"))


def iter_rules(requests: Iterable[str]) -> Iterator[str]:
    """Yield the rules that requests state, and the sentences that take rules back."""
    for text in requests:
        yield from (*find_constraints(text), *find_corrections(text))


def list_item(text: str) -> str:
    """Return a text as a list item, with later lines indented so that none reads as a heading."""
    return "- " + text.replace("\n", "\n  ")


def _text_of(item: str) -> str:
    """Return the text of a list item, without its indentation."""
    return item.replace("\n  ", "\n")


def _cut(item: str, room: int) -> str:
    """Return a list item that fits, with its middle cut out if it must be, or an empty string."""
    if estimate(item) <= room:
        return item
    if room < MIN_CUT_TOKENS or estimate(item) < MIN_REQUEST:  # a cut would leave too little
        return ""
    text = _text_of(item[2:])
    size, leads = int(len(text) * room / estimate(text) * 0.9), find_leads(text.split("\n"))
    while size > 20:
        if estimate(short := list_item(cut_middle(text, size, leads))) <= room:
            return short
        size = int(size * 0.8)
    return ""


def _requests(state: State, start: int, stop: int | None, shown: Collection[str]) -> list[str]:
    """Return the requests that are not in sight beside the summary, as list items without the lines
    in *shown*. Texts of commands and skills that are finished become one line."""
    items = list[str]()
    for text, request in list(state.requests.items())[start:stop]:
        if text not in state.in_sight and (own := _leave_out(text, shown)):
            is_over = request.is_template and not (stop is None and state.is_latest_current)
            if is_over:
                own_lines = (line for line in own.split("\n") if line.strip() not in shown)
                head = first_content_line("\n".join(own_lines)) or first_content_line(own)
                head = one_line(head, MOST_OF_TEMPLATE)
                rest = own.strip()[len(head) :]
                own = f"{head} {mark_cut(rest)} …" if rest else own
            words, questions = request.media + own, state.questions.get(text, ())
            item = list_item(write_request(words, request.times, questions))
            items.append(_cut(item, MIN_REQUEST) if is_over else item)
    return items


def _leave_out(text: str, shown: Collection[str]) -> str:
    """Return a request with a mark for its *shown* lines (templates repeat lines), or an empty
    string if nothing else is left. The other lines keep their leads."""
    lines, rows = text.split("\n"), list[tuple[int, str]]()
    for is_shown, group in groupby(enumerate(lines), key=lambda row: row[1].strip() in shown):
        run = list(group)
        if is_shown and estimate("\n".join(line for _, line in run)) >= MIN_CUT_TOKENS:
            run = [(-1, f"[… {len(run)}{REPEATED}")]
        rows += run
    if len(rows) == len(lines):
        return text
    leads, own = find_leads(lines), find_leads([line for _, line in rows])
    remaining = [
        line if (lead := leads.get(at, "")) == own.get(place, "") else lead + without_mark(line)
        for place, (at, line) in enumerate(rows)
    ]
    return "\n".join(remaining) if any(at >= 0 and line.strip() for at, line in rows) else ""


def _latest_request(state: State, room: int, shown: Collection[str], spare: int = 0) -> list[str]:
    texts = (_cut(request, room + spare) for request in _requests(state, -1, None, shown))
    return [text for text in texts if text]


def _earlier_requests(
    state: State, room: int, rules: Sequence[str], shown: Collection[str], spare: int = 0
) -> Iterator[str]:
    """Return all earlier requests in order if they fit, without lines of later requests in sight.
    Otherwise return the first, which is the task, in half of the room, and the newest that fit and
    say more than *rules*. One that does not fit takes half of the remaining room, and none exceeds
    its share. *spare* tokens are for `_fill_up`."""
    earlier = _requests(state, 0, -1, shown)
    if _fitting(earlier, room) == earlier and not (earlier and state.omitted):
        return iter(earlier)
    most = max(room // REQUEST_ROOM_DIVISOR, MIN_REQUEST)
    chosen, repeated = dict[int, str](), set[int]()
    half = max(room // 2, min(room, MIN_REQUEST))
    is_corrected = len(earlier) > 1 and any(find_corrections(earlier[1][2:]))
    newest = _sort_forgeable_last(earlier)
    for at in (0, *range(1, 1 + is_corrected), *(at for at in newest if at > is_corrected)):
        if at and _repeats(earlier[at], rules):
            repeated.add(at)
            continue
        fits = at > 0 and estimate(earlier[at]) <= room
        if fits or len(earlier) == 1:
            own = room
        else:
            own = max(room // 2, MIN_REQUEST) if at else half
        text = _cut(earlier[at], min(own, room, most if at else room))
        if text:
            room -= estimate(text) + 1
            chosen[at] = text
        if at and not fits and room < MIN_REQUEST:
            break
    for at in sorted(chosen, reverse=True):  # requests that were cut get the remaining room
        price = estimate(chosen[at])
        chosen[at] = _cut(earlier[at], price + max(room, 0)) or chosen[at]
        room -= estimate(chosen[at]) - price
    chosen = _fill_up(earlier, chosen, rules, spare, most) if spare > 0 else chosen
    omitted = state.omitted + len(earlier) - len(chosen.keys() | repeated)
    if omitted and (chosen or room >= MIN_CUT_TOKENS // 2):
        first = max((at for at in chosen if at <= is_corrected or at == min(chosen)), default=0)
        mark = f"- [… {omitted}{OMITTED}"
        chosen[first] = "\n".join(filter(None, (chosen.get(first), mark)))
    return (chosen[at] for at in sorted(chosen))


def _sort_forgeable_last(items: Sequence[str]) -> list[int]:
    """Return the indices of the items of a list, the newest first. Items from tool results come
    last, so that any number of them takes no room from a person's."""
    return sorted(
        range(len(items) - 1, -1, -1), key=lambda at: items[at].startswith(f"- {IN_RESULT}")
    )


def _fill_up(
    earlier: Sequence[str], chosen: Mapping[int, str], rules: Sequence[str], room: int, most: int
) -> dict[int, str]:
    """Return the *chosen* requests, extended in *room* tokens: more of the first and of the newest
    long one, which "go on" refers to, then the newest ones whole. Requests of more than *most*
    tokens are not added, because they are often pasted errors."""
    filled, sizes = dict(chosen), [*map(estimate, earlier)]
    newest = max((at for at, size in enumerate(sizes) if size >= MIN_REQUEST), default=0)
    for at in dict.fromkeys((0, newest, *_sort_forgeable_last(earlier))):
        text, before = earlier[at], filled.get(at, "")
        if at in (0, newest):
            text = _cut(text, estimate(before) + room)
        elif sizes[at] > most or _repeats(text, rules):
            continue
        elif sizes[at] - estimate(before) > room:
            break
        if len(text) > len(before):
            room -= estimate(text) - estimate(before) + 1
            filled[at] = text
    return filled


def _repeats(request: str, rules: Sequence[str]) -> bool:
    """Return whether a request consists of *rules* and a few words."""
    remaining = request
    for rule in rules:
        remaining = remaining.replace(rule.removeprefix("- "), "")
    return remaining != request and estimate(remaining) < MIN_CUT_TOKENS


def _fitting(lines: Iterable[str], room: int) -> list[str]:
    chosen = list[str]()
    for line in lines:
        room -= estimate(line) + 1
        if room < 0:
            break
        chosen.append(line)
    return chosen


def _choose(lines: Iterable[str], ranked: Iterable[str], room: int) -> Iterator[str]:
    """Return the *lines* that fit, taken in the order of *ranked*, in their own order."""
    chosen = set(_fitting(ranked, room))
    return (line for line in lines if line in chosen)


def _rules(state: State, room: int, in_sight: Collection[str]) -> Iterator[str]:
    rules = [list_item(rule) for rule in state.constraints if rule not in in_sight]
    return reversed(_fitting((rules[at] for at in _sort_forgeable_last(rules)), room))


def _notes(state: State, room: int) -> Iterator[str]:
    for note in reversed(state.notes):
        if text := _cut(list_item(note), room):
            room -= estimate(text) + 1
            yield text


def _files(state: State, room: int) -> Iterator[str]:
    """Yield changed files by state, under one root. The last changed are kept first. If no changed
    file fits, no read file is listed either, since that would suggest that nothing was changed."""
    changed = {path: file for path, file in state.files.items() if file.state != "read"}
    root = _root_of(list(state.files))
    if root:
        yield f"root: {root}"
        room -= estimate(root) + 3
    titles = [(_file_title(path, file), path.removeprefix(root)) for path, file in changed.items()]
    lines = _list_files(titles, room)
    yield from lines
    if changed and not lines:
        return
    room = min(READ_FILES, room - sum(estimate(line) + 1 for line in lines))
    read = [("read", path.removeprefix(root)) for path in state.files if path not in changed]
    yield from _list_files(read, room)


def _file_title(path: str, file: FileState) -> str:
    if file.is_committed:
        return f"{file.state}, committed"
    is_tested = file.is_checked or is_outside(path) or not SOURCE.search(path)
    return file.state if is_tested else f"{file.state}, {NOT_TESTED}"


def _list_files(files: Sequence[tuple[str, str]], room: int) -> list[str]:
    """Write the last of *files* (title and path) that fit, grouped by title."""
    newest = files[::-1][: max(room, 0)]

    def write(count: int) -> list[str]:
        groups: dict[str, list[str]] = {}
        for title, path in newest[:count]:
            groups.setdefault(title, []).append(path)
        return [f"{title}: {' '.join(group_paths(paths[::-1]))}" for title, paths in groups.items()]

    def price(count: int) -> int:
        return sum(estimate(line) + 1 for line in write(count))

    return write(bisect_right(range(1, len(newest) + 1), room, key=price))


def _root_of(paths: Sequence[str]) -> str:
    """Return the folder, with its final separator, that at least half of the paths share if all are
    absolute: of several the one whose removal shortens them most; empty if there is none."""
    if not all(map(is_absolute, paths)):
        return ""
    ends = ((path, end) for path in paths for end in [*_SEPARATOR.finditer(path)][2:])
    counts = Counter(path[: end.end()] for path, end in ends)
    least = max(2, len(paths) / 2)
    shared = (folder for folder, count in counts.items() if count >= least and folder.isprintable())
    root = max(shared, key=lambda folder: (counts[folder] - 1) * len(folder), default="")
    return "" if is_outside(root) else root


def _open(state: State, room: int) -> Iterator[str]:
    active, pending, done = (
        [todo for todo in state.todos if todo.text and todo.status == status]
        for status in ("active", "pending", "done")
    )
    lines = [_write_todo(todo, 200) for todo in (*active, *pending)]
    if state.plan_age and lines:
        lines.insert(0, f"- {PLANNED}{state.plan_age}")
    lines[:0] = (
        f'- the answer "{text}" is to: {" | ".join(questions)}'
        for text, questions in state.questions.items()
        if text in state.in_sight
    )
    if state.next_step:
        lines.insert(0 if state.plan_age else len(active), f"- {ANNOUNCED}{state.next_step}")
    running = ((call, act.times) for call, act in state.actions.done.items() if act.is_running)
    lines += [f"- {STARTED}{add_count(*pair)}" for pair in running]
    call, error, *_ = state.failure
    if error:
        lines.append(f"- last error: {error} ({one_line(call, 60)})")
    if (active or pending) and not state.plan_age:  # else no done item is listed (conformance 42)
        lines += [_write_todo(todo, 120) for todo in done[-MOST_DONE:]]
    yield from _fitting(lines, room)


def _write_todo(todo: Todo, longest: int) -> str:
    id = f"#{todo.id} " if todo.id else " " * todo.text.startswith("#")  # not an id
    return f"- [{MARKS[todo.status]}] {id}{one_line(todo.text, longest)}"


def _checks(state: State, room: int) -> Iterator[str]:
    """Yield the last checks, the latest at the end. The latest check, the latest commit and recent
    failing checks are kept first."""
    lines = {name: f"- {name} -> {outcome}" for name, outcome in state.checks.items()}
    newest = [*lines][::-1]
    failing = (name for name in newest[:FAILING_CHECKS] if has_failed(state.checks[name]))
    ranked = *newest[:1], *filter(COMMIT.search, newest), *failing, *newest[:MOST_CHECKS]
    return _choose(lines.values(), map(lines.__getitem__, dict.fromkeys(ranked)), room)


def _actions(state: State, room: int) -> Iterator[str]:
    """Yield what finished calls did. Calls that had an effect are kept before those that prepared
    work, and of each the latest first."""
    done = state.actions.done.items()
    lines = {_write_action(call, act): act.rank for call, act in done if not act.is_running}
    newest = [*lines][::-1]
    ranked = sorted(newest, key=lambda line: -lines[line])
    return _choose(lines, ranked[:MOST_ACTIONS], room)


def _write_action(call: str, action: Action) -> str:
    last = LAST_TIME if action.times > 1 else ""
    return f"- {add_count(call, action.times)} -> {last}{action.outcome}"


def _failures(state: State, room: int) -> Iterator[str]:
    """Yield the failed calls except the last error, which is open. Of those that failed alike only
    the newest stays. Calls meant to change something are kept before lookups, the newest first."""
    newest, error = dict[str, tuple[str, int]](), state.failure.error
    for call, act in reversed(state.actions.failed.items()):
        if not (error and error[:ERROR_KEY_CHARS] in act.outcome):
            reason = call if act.outcome == WAS_REFUSED else act.outcome
            newest.setdefault(reason, (_write_action(call, act), act.rank))
    ranks = dict(newest.values())
    ranked = sorted(ranks, key=lambda line: -ranks[line])[:MOST_FAILED]
    return _choose([*ranks][::-1], ranked, room)


def _decisions(state: State, room: int) -> Iterator[str]:
    """Return the sentences with the greatest weight, of equals the later, in order."""
    decisions = enumerate(state.decisions.items())
    ranked = sorted(decisions, key=lambda row: (row[1][1] + row[0] / 50, row[0]))
    chosen, vague = list[tuple[int, str]](), 0
    for at, (decision, weight) in reversed(ranked):
        price, is_vague = estimate(decision) + 3, weight < 1
        if price <= room and not (is_vague and vague == MOST_VAGUE):
            vague += is_vague
            room -= price
            chosen.append((at, list_item(decision)))
    return _nest_rules((line for _, line in sorted(chosen)), 1)
