"""The state of the work as text: Markdown sections within a number of tokens."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from refold.text.plain import find_opening, is_absolute, is_outside
from refold.text.summary_wrapper import ASKED, mark_cut
from refold.tokens.count import estimate

MOST_CHECKS = 5
FAILING_CHECKS = 15
"""Of so many last checks those that fail stand too."""
READ_FILES = 250
"""Tokens of the paths of files that were only read, the last read first to stay."""
MOST_DONE = 4
PLANNED = "turns since this plan: "
"""What stands above a plan behind which something else was asked."""
MOST_ACTIONS = 15
"""Calls that did something, of which the result is told."""
DONE_SHARE = 0.25
"""The share of the room that these may take, if no file was changed, else `DONE_BESIDE_FILES`."""
DONE_BESIDE_FILES = 0.16
MOST_FAILED = 8
MOST_ALIKE = 60
"""Characters by which the line of a failure is known."""
MOST_VAGUE = 3
"""Decisions that name nothing, made before a call."""
REQUEST_SHARE = 0.35
"""The share of the room that the latest request may take; what is left of it, and as much again,
the earlier ones together."""
EARLIER_SHARE = 0.5
"""The share of all room that the earlier requests may take in any case, where no person answers."""
MOST_OF_REQUESTS = 4
"""If not all earlier requests fit, one but the first takes one part in so many of their room, at
most: an error that was pasted and mended pushes no order out."""
MOST_OF_TEMPLATE = 120
"""Characters of a command's or skill's text that is done."""
ANSWER_SHARE = 1 / 3
"""The share of the room that is kept for what people answered to tools that ask: as good as a
request, and the choices made by it stand nowhere else."""
FIRST_REQUEST = 60
"""Tokens that the first request, the task, gets at least."""
LAST_DEED = 80
"""Tokens that the last deed gets at least."""
LAST_FAILURES = 120
"""Tokens that the last failures get at least."""
LAST_CHECKS = 100
"""Tokens that the last test or build and the last commit get at least."""
LEAST = 24
"""Tokens below which a text is left out rather than cut."""

REQUESTS = ("Earlier requests", "Current request", "Last request of this part")
"""Titles of requests. Behind a summary with the last one *of this part* stand newer ones."""
EARLIER, CURRENT, LAST = REQUESTS
MARKS = {"pending": " ", "active": "~", "done": "x"}
NOT_TESTED = "not tested since"
TASK, PARTS = "Task, as in: ", " (in parts)"
PLAN = "the plan that the user approved"
QUOTING = ("Current text", "Task", "Excerpts")
"""How titles of sections begin that hold nothing but what messages say."""
CONVERSATION = (
    "Excerpts from the conversation (single sentences; later ones may replace earlier ones)"
)
"""The title of what people and the model say to each other."""
ANNOUNCED = "announced last: "
STARTED = "still running when last seen: "
"""What stands before a call in the background of which nobody has seen the end."""
LAST_TIME = "last: "
"""What stands before the outcome of a call that was made more than once."""
REPEATED = " lines as in a later request …]"
OMITTED = " earlier requests left out …]"
_LED = re.compile(r"\A- ([^:：\n]{1,200}(?:：|: ))(.+)\Z")
"""A rule with the words that introduce it, and without them."""
MOST_LEADS = 3
_TIMES = re.compile(r" \(×([1-9]\d{0,8})\)\Z")
_MEDIA = re.compile(r"\A(?>(?:\[(?:image|audio|video|document)\] )+)")
"""What stands before the words of a request with media."""
_SEPARATOR = re.compile(r"[/\\]")


def add_count(text: str, times: int) -> str:
    """Return a request and how often it was made: `continue (×400)`. Once is not said, unless
    *text* itself ends like that."""
    return f"{text} (×{times})" if times > 1 or _TIMES.search(text) else text


def split_count(text: str) -> tuple[str, int]:
    """Return a request and how often it was made, from what `add_count` makes of it."""
    match = _TIMES.search(text)
    return (text[: match.start()], int(match[1])) if match else (text, 1)


def write_request(text: str, times: int, questions: Sequence[str] = ()) -> str:
    """Return a request as a list shows it: how often it was made, and what it answers."""
    item = add_count(text, times)
    is_alike = _split_questions(item)[0] != item
    return f"{item}{ANSWERS}{' | '.join(questions) or '-'})" if questions or is_alike else item


def split_request(item: str) -> tuple[str, int, tuple[str, ...]]:
    """Return a request, how often it was made and what it answers, from what `write_request` makes
    of these."""
    words, questions = _split_questions(item)
    return (*split_count(words), questions)


def _split_questions(item: str) -> tuple[str, tuple[str, ...]]:
    words, mark, questions = item.rpartition(ANSWERS)
    if not mark or not questions.endswith(")") or "\n" in questions:
        return item, ()
    return words, tuple(q for q in questions[:-1].split(" | ") if q != "-")


def render_state(state: State, room: int, work: float = 1.0) -> str:
    """Write *state* in about *room* tokens; what matters most is given room first. What people want
    may take more: rules all of it, what follows then shares a half; requests also what everything
    else leaves. *work*: the share of turns that no person answers; in a chat the dialogue is quoted
    instead of requests alone."""
    parts, rooms = dict[str, str](), dict[str, int]()
    in_sight = set(_iter_rules(state.in_sight))
    rules = list(_rules(state, room - 4, in_sight))
    least = int(room * EARLIER_SHARE * work)
    if rules:
        room -= min(estimate(_write_rules(rules)), room // 2)
    answers = [list_item(text) for text in state.decisions if text.startswith(ASKED)]
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
        ("Checks", _checks, 0.1, LAST_CHECKS),
        ("Files", _files, 0.5, 0),
        ("Done", _actions, DONE_BESIDE_FILES if has_changed else DONE_SHARE, has_deed * LAST_DEED),
        ("Open", _open, 0.6, 0),
        (earlier, earlier_requests, 0.15 + 0.55 * work, 0),
        ("Failed", _failures, 0.3, LAST_FAILURES),
        ("Decisions", _decisions, 0.05 + 0.55 * work, 0),
    ):
        most = max(int(room * share), min(first, room // 3))
        if title == "Decisions" and answers:
            room += of_answers
            most = max(most, of_answers)
        if title == earlier:
            most = max(most, least, min(FIRST_REQUEST, room // 2))
        lines, rooms[title] = list(make(state, most - 4)), most - 4
        if lines:
            parts[title] = f"## {title}\n" + "\n".join(lines)
            room -= estimate(parts[title])
        if title == latest:
            shown_lines.update(_iter_rows(line[2:] for line in lines))
    for title, make in ((latest, latest_request), (earlier, earlier_requests)):
        before = parts.get(title, "")  # in a chat, from a half on, the dialogue is quoted instead
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
    """Return the rules that the requests in written sections state."""
    items = (_MEDIA.sub("", _text_of(item), count=1) for item in sections.split("\n- ")[1:])
    return set(_iter_rules(split_request(text)[0] for text in items))


def _write_rules(rules: Iterable[str]) -> str:
    return "\n".join(("## Rules", *_nest_rules(rules, MOST_LEADS)))


def _nest_rules(rules: Iterable[str], most: int) -> Iterator[str]:
    """Yield rules as lines; those in a row that the same words introduce as a list under these, in
    which may be such lists, at *most* so many in one another."""
    for lead, group in groupby(rules, lambda rule: head[1] if (head := _LED.match(rule)) else ""):
        led = list(group)
        if not (lead and most) or len(led) == 1:
            yield from led
        else:
            yield f"- {lead.rstrip()}"
            own = _nest_rules((_LED.sub(r"- \2", rule) for rule in led), most - 1)
            yield from (f"  {line}" for line in own)


def _iter_rows(texts: Iterable[str]) -> Iterator[str]:
    """Yield the lines of texts, without what indents them."""
    return (line.strip() for text in texts for line in text.split("\n"))


def _iter_rules(requests: Iterable[str]) -> Iterator[str]:
    """Yield the rules that requests state, and what takes rules back."""
    for text in requests:
        yield from (*find_constraints(text), *find_corrections(text))


def list_item(text: str) -> str:
    """Return a text as a list item, later lines indented, so that none can pass for a heading."""
    return "- " + text.replace("\n", "\n  ")


def _text_of(item: str) -> str:
    """Return a text that was made a list item, of that all but its mark."""
    return item.replace("\n  ", "\n")


def _cut(item: str, room: int) -> str:
    """Return a list item; of one that does not fit its beginning and end; empty if little fits."""
    if estimate(item) <= room:
        return item
    if room < LEAST or estimate(item) < FIRST_REQUEST:  # of little its middle is all
        return ""
    text = _text_of(item[2:])
    size, leads = int(len(text) * room / estimate(text) * 0.9), find_leads(text.split("\n"))
    while size > 20:
        if estimate(short := list_item(cut_middle(text, size, leads))) <= room:
            return short
        size = int(size * 0.8)
    return ""


def _requests(state: State, start: int, stop: int | None, shown: Collection[str]) -> list[str]:
    """Return those of the requests that nothing shows beside the summary, as list items, without
    the lines that are *shown*; of a command's or skill's text before the latest a line."""
    items = list[str]()
    for text, request in list(state.requests.items())[start:stop]:
        if text not in state.in_sight and (own := _leave_out(text, shown)):
            is_over = request.is_template and not (stop is None and state.is_latest_current)
            if is_over:
                own_lines = (line for line in own.split("\n") if line.strip() not in shown)
                head = find_opening("\n".join(own_lines)) or find_opening(own)
                head = one_line(head, MOST_OF_TEMPLATE)
                rest = own.strip()[len(head) :]
                own = f"{head} {mark_cut(rest)} …" if rest else own
            words, questions = request.media + own, state.questions.get(text, ())
            item = list_item(write_request(words, request.times, questions))
            items.append(_cut(item, FIRST_REQUEST) if is_over else item)
    return items


def _leave_out(text: str, shown: Collection[str]) -> str:
    """Return a request with a mark in place of lines that are *shown*, with what they turn behind
    them still; empty if nothing is left. Who works by a template says the same each time."""
    lines, rows = text.split("\n"), list[tuple[int, str]]()
    for is_shown, group in groupby(enumerate(lines), key=lambda row: row[1].strip() in shown):
        run = list(group)
        if is_shown and estimate("\n".join(line for _, line in run)) >= LEAST:
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
    """Return all in order if they fit, without the lines that a later one in sight has; else the
    first, which is the task, in half of the room, and the newest that fit and say more than
    *rules*, which stand beside them; one that does not fit takes half of what is left, and none
    more than its share. *spare* tokens are for what `_fill_up` adds."""
    earlier = _requests(state, 0, -1, shown)
    if _fitting(earlier, room) == earlier and not (earlier and state.omitted):
        return iter(earlier)
    most = max(room // MOST_OF_REQUESTS, FIRST_REQUEST)
    chosen, repeated = dict[int, str](), set[int]()
    half = max(room // 2, min(room, FIRST_REQUEST))
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
            own = max(room // 2, FIRST_REQUEST) if at else half
        text = _cut(earlier[at], min(own, room, most if at else room))
        if text:
            room -= estimate(text) + 1
            chosen[at] = text
        if at and not fits and room < FIRST_REQUEST:
            break
    for at in sorted(chosen, reverse=True):  # what is left goes to those that were cut
        price = estimate(chosen[at])
        chosen[at] = _cut(earlier[at], price + max(room, 0)) or chosen[at]
        room -= estimate(chosen[at]) - price
    chosen = _fill_up(earlier, chosen, rules, spare, most) if spare > 0 else chosen
    omitted = state.omitted + len(earlier) - len(chosen.keys() | repeated)
    if omitted and (chosen or room >= LEAST // 2):
        first = max((at for at in chosen if at <= is_corrected or at == min(chosen)), default=0)
        mark = f"- [… {omitted}{OMITTED}"
        chosen[first] = "\n".join(filter(None, (chosen.get(first), mark)))
    return (chosen[at] for at in sorted(chosen))


def _sort_forgeable_last(items: Sequence[str]) -> list[int]:
    """Return the places of the items of a list, the newest first, behind them those of words that
    stood in tools' results: however many these are, they take no room from a person's."""
    return sorted(
        range(len(items) - 1, -1, -1), key=lambda at: items[at].startswith(f"- {IN_RESULT}")
    )


def _fill_up(
    earlier: Sequence[str], chosen: Mapping[int, str], rules: Sequence[str], room: int, most: int
) -> dict[int, str]:
    """Return the *chosen* requests with more in *room* tokens: more of the first, and of the newest
    long one, with which "go on" goes on; then the newest, whole. Others of more than *most* tokens
    stay as they are: those are errors that were pasted, as often as not."""
    filled, sizes = dict(chosen), [*map(estimate, earlier)]
    newest = max((at for at, size in enumerate(sizes) if size >= FIRST_REQUEST), default=0)
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
    """Is a request made of *rules* but for a few words?"""
    remaining = request
    for rule in rules:
        remaining = remaining.replace(rule.removeprefix("- "), "")
    return remaining != request and estimate(remaining) < LEAST


def _fitting(lines: Iterable[str], room: int) -> list[str]:
    chosen = list[str]()
    for line in lines:
        room -= estimate(line) + 1
        if room < 0:
            break
        chosen.append(line)
    return chosen


def _choose(lines: Iterable[str], ranked: Iterable[str], room: int) -> Iterator[str]:
    """Return those of *lines* that fit if they are taken as they are *ranked*, in order."""
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
    """Yield changed files by state, under one root; the last changed are the first to stay. If none
    has room, none is said to be read: that would say that nothing was changed."""
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
    """Write as many of *files*, which are titles and paths, as fit, by title: the last ones."""
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
    """Return the folder that half of the paths share, if all are absolute; of several the one
    without which they are shortest."""
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
    if (active or pending) and not state.plan_age:  # else none is listed (conformance 42)
        lines += [_write_todo(todo, 120) for todo in done[-MOST_DONE:]]
    yield from _fitting(lines, room)


def _write_todo(todo: Todo, longest: int) -> str:
    id = f"#{todo.id} " if todo.id else " " * todo.text.startswith("#")  # that is no id
    return f"- [{MARKS[todo.status]}] {id}{one_line(todo.text, longest)}"


def _checks(state: State, room: int) -> Iterator[str]:
    """Yield the last checks, the last run last; the last one, the last commit and those of some
    time that fail are the first to stay."""
    lines = {name: f"- {name} -> {outcome}" for name, outcome in state.checks.items()}
    newest = [*lines][::-1]
    failing = (name for name in newest[:FAILING_CHECKS] if has_failed(state.checks[name]))
    ranked = *newest[:1], *filter(COMMIT.search, newest), *failing, *newest[:MOST_CHECKS]
    return _choose(lines.values(), map(lines.__getitem__, dict.fromkeys(ranked)), room)


def _actions(state: State, room: int) -> Iterator[str]:
    """Yield what calls did that have ended, deeds before what prepares them and of these the last
    ones first to stay."""
    done = state.actions.done.items()
    lines = {_write_action(call, act): act.rank for call, act in done if not act.is_running}
    newest = [*lines][::-1]
    ranked = sorted(newest, key=lambda line: -lines[line])
    return _choose(lines, ranked[:MOST_ACTIONS], room)


def _write_action(call: str, action: Action) -> str:
    last = LAST_TIME if action.times > 1 else ""
    return f"- {add_count(call, action.times)} -> {last}{action.outcome}"


def _failures(state: State, room: int) -> Iterator[str]:
    """Yield the calls that failed but for the last error, which is open: of those that failed alike
    the newest; what was to do something before what only looked, of both the newest to stay."""
    newest, error = dict[str, tuple[str, int]](), state.failure.error
    for call, act in reversed(state.actions.failed.items()):
        if not (error and error[:MOST_ALIKE] in act.outcome):
            reason = call if act.outcome == WAS_REFUSED else act.outcome
            newest.setdefault(reason, (_write_action(call, act), act.rank))
    ranks = dict(newest.values())
    ranked = sorted(ranks, key=lambda line: -ranks[line])[:MOST_FAILED]
    return _choose([*ranks][::-1], ranked, room)


def _decisions(state: State, room: int) -> Iterator[str]:
    """Choose the weightiest sentences, of equals the later; return them in order."""
    decisions = enumerate(state.decisions.items())
    ranked = sorted(decisions, key=lambda row: (row[1][1] + row[0] / 50, row[0]))
    chosen, vague = list[tuple[int, str]](), 0
    for at, (decision, weight) in reversed(ranked):
        price, is_vague = estimate(decision) + 3, weight < 1
        if price <= room and not (is_vague and vague == MOST_VAGUE):
            vague += is_vague
            room -= price
            chosen.append((at, list_item(decision)))
    return (line for _, line in sorted(chosen))
