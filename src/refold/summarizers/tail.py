"""Find the start of the kept tail of a conversation, and what can be summarised before it."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from refold.core.tool_groups import first_unseen, group_calls, latest_turn_start
from refold.core.view import View
from refold.messages import Message
from refold.speakers import Segment, has_person, view_segments
from refold.text.summary_wrapper import beside_summary, opening_length, summary_in


class _Marks(NamedTuple):
    """Possible split points of a view, as ascending positions of the transcript."""

    starts: list[int]
    """Start of each item of the view."""
    sums: list[int]
    """Tokens shown before each item, and at the end the total."""
    turns: list[int]
    """Legal cuts before a user's request, except 0."""
    steps: list[int]
    """Legal cuts within a turn: before an assistant message that follows a tool result."""


def find_tail_start(view: View, keep: float) -> int:
    """Return the position where the kept tail begins, or 0 if there is nothing older to fold.

    An int *keep* is a number of messages: at least that many stay, from the latest legal cut on. A
    float is a share of the tokens shown, from 0 to 1. Then the tail begins at the first user
    request at or after that point. If that leaves less than half of the share, or in one long turn,
    it begins before an assistant message that follows a tool result. A conversation that ends in a
    plain answer may be folded whole (conformance cases 3 to 8). If all of it would be kept, only
    the latest exchange is (case 11). A summary at the beginning is not a request (case 9), and a
    lone summary is not folded. Raises ValueError for a negative number or a share above 1.
    """
    if keep < 0 or (isinstance(keep, float) and keep > 1):
        raise ValueError(f"keep is a number of messages or a share from 0.0 to 1.0, not {keep}")
    if len(view.transcript) < 2:
        return 0
    marks = _find_marks(view)
    start = (
        _find_by_share(view, marks, keep) if isinstance(keep, float) else _find_by_count(view, keep)
    )
    return start if start > _conversation_start(view) else _latest_exchange(view, marks)


def find_requests(view: View) -> list[int]:
    """Return the legal cuts before the user's requests, oldest first. Messages that carry a summary
    or only a client's own text are not requests."""
    messages, spoken = view.transcript.messages, view_segments(view)
    return [
        cut
        for cut in sorted(view.cuts)
        if cut < len(messages) and messages[cut].role == "user" and has_person(spoken[cut])
    ]


def ends_in_answer(view: View) -> bool:
    """Return whether the conversation ends in an answer of the model, with no open call."""
    last = view.transcript.messages[-1]
    return last.role == "assistant" and not last.calls and len(view.transcript) in view.cuts


def find_share_start(view: View, keep: float) -> int:
    """Return the position, not always a cut, where the newest share *keep* of the tokens begins."""
    goal, tokens = (1 - keep) * count_shown(view), 0
    for item in view.iter_items():
        if tokens >= goal:
            return item.start
        tokens += item.tokens
    return len(view.transcript)


def count_shown(view: View, start: int = 0, stop: int | None = None) -> int:
    """Return the tokens shown for `messages[start:stop]`."""
    stop = len(view.transcript) if stop is None else stop
    items = (item for item in view.iter_items() if start <= item.start and item.stop <= stop)
    return sum(item.tokens for item in items)


def find_tail_within(view: View, most: int, wanted: int | None = None) -> int:
    """Return the legal cut before a user's request or after a tool result, with at most *most*
    tokens after it, as close to *wanted* as possible (by default *most*). If none fits, return the
    latest such cut; if there is none, 0."""
    marks = _find_marks(view)
    first, wanted = _conversation_start(view), most if wanted is None else wanted
    cuts = sorted(cut for cut in {*marks.turns, *marks.steps} if cut > first)
    sizes = {cut: _tokens_from(marks, cut) for cut in cuts}
    fitting = (cut for cut in cuts if sizes[cut] <= most)
    return min(fitting, key=lambda cut: abs(sizes[cut] - wanted), default=cuts[-1] if cuts else 0)


def _find_by_count(view: View, keep: float) -> int:
    limit = len(view.transcript) - keep
    return max((cut for cut in view.cuts if cut <= limit), default=0)


def _find_by_share(view: View, marks: _Marks, keep: float) -> int:
    end, total, target = len(view.transcript), marks.sums[-1], find_share_start(view, keep)
    if target == 0:
        return 0
    after, step = _first_from(marks.turns, target), _first_from(marks.steps, target)
    if after:
        near = 0 < step < after and _tokens_from(marks, after) < keep * total / 2
        return step if near else after
    last, plain = _last_before(marks.turns, target), ends_in_answer(view)
    if last and not plain and _tokens_from(marks, last) <= 2 * keep * total:
        return last
    if inner := step or _last_before([cut for cut in marks.steps if cut > last], target):
        return inner
    return end if plain else last


def _latest_exchange(view: View, marks: _Marks) -> int:
    first = _conversation_start(view)
    turns = [cut for cut in marks.turns if cut > first]
    steps = [cut for cut in marks.steps if cut > first]
    return (turns or steps or [0])[-1]


def _conversation_start(view: View) -> int:
    """Return where the conversation begins, after a summary at its start."""
    first = next(view.iter_items(), None)
    if first and first.edit and any(summary_in(message) is not None for message in first.messages):
        return first.stop
    return opening_length(view.transcript.messages)


def _find_marks(view: View) -> _Marks:
    starts = [item.start for item in view.iter_items()]
    sums = list(accumulate((item.tokens for item in view.iter_items()), initial=0))
    messages, spoken = view.transcript.messages, view_segments(view)
    steps = [
        cut
        for cut in sorted(view.cuts)
        if 0 < cut < len(messages)
        and (messages[cut].role == "assistant" or _is_joined_system(view, cut))
        and (messages[cut - 1].results or _is_output(spoken[cut - 1]))
    ]
    return _Marks(starts, sums, [cut for cut in find_requests(view) if cut], steps)


def _is_joined_system(view: View, cut: int) -> bool:
    """Return whether a cut is before a system message that cannot be separated from the assistant
    message after it."""
    return view.transcript.messages[cut].role == "system" and cut + 1 not in view.cuts


def _is_output(spoken: Sequence[Segment]) -> bool:
    """Return whether a message holds only tool output, as text (mini-swe-agent)."""
    return bool(spoken) and all(segment.voice == "tool" for segment in spoken)


def _tokens_from(marks: _Marks, start: int) -> int:
    return marks.sums[-1] - marks.sums[bisect_left(marks.starts, start)]


def _first_from(cuts: list[int], position: int) -> int:
    at = bisect_left(cuts, position)
    return cuts[at] if at < len(cuts) else 0


def _last_before(cuts: list[int], position: int) -> int:
    at = bisect_right(cuts, position)
    return cuts[at - 1] if at else 0


# --- what can be summarised ----------------------------------------------------------------------


def find_unanswered(view: View) -> int:
    """Return the start of what the model has not answered: a request, results it has not read with
    their calls, open calls. It is the latest legal cut before these (C3-3, S3-09)."""
    messages = view.transcript.messages
    limit, turn = first_unseen(messages), latest_turn_start(messages)
    for group in group_calls(messages[turn:], turn):
        if any(pair.result_at is None or pair.result_at >= limit for pair in group):
            limit = min(limit, group[0].call_at)
    return max((cut for cut in view.cuts if cut <= limit), default=0)


def find_unsummarized(view: View, stop: int) -> list[tuple[int, int]]:
    """Return the runs of `messages[:stop]` that no summary covers, as (start, stop)."""
    runs = list[tuple[int, int]]()
    for item in view.iter_items():
        if item.stop > stop or any(summary_in(message) is not None for message in item.messages):
            continue
        if runs and runs[-1][1] == item.start:
            runs[-1] = (runs[-1][0], item.stop)
        else:
            runs.append((item.start, item.stop))
    return runs


class SourceSpan(NamedTuple):
    """Earlier summaries, and the messages that they do not cover."""

    earlier: tuple[str, ...]
    """Texts of earlier summaries, oldest first."""
    messages: tuple[tuple[int, Message], ...]
    """Original messages with their positions, without those that only carry a summary."""


def read_span(view: View, start: int, stop: int) -> SourceSpan:
    """Return what a model has to read of `messages[start:stop]`: the messages, and earlier
    summaries in place of those they cover. Summaries in a history that a caller sent back count
    too, alone or merged with the user's words."""
    transcript = view.transcript.messages
    begins = opening_length(transcript)
    earlier, own_messages = list[str](), list[tuple[int, Message]]()
    for item in view.iter_items():
        if item.start < start or item.stop > stop:
            continue
        shown = item.messages if item.edit else ()
        if covered := [text for text in map(summary_in, shown) if text is not None]:
            earlier += covered
            continue
        for at in range(item.start, item.stop):
            text = summary_in(transcript[at])
            earlier += [] if text is None else [text]
            if at >= begins and (rest := beside_summary(transcript, at)).parts:
                own_messages.append((at, rest))
    return SourceSpan(tuple(earlier), tuple(own_messages))
