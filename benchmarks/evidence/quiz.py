"""A quiz: what a large language model knows that continues from what a policy shows.

It needs a model, or people, for three steps. Between them this program writes files and counts:

1. `python -m benchmarks.evidence.quiz write FOLDER OUT` writes `OUT/NAME/history.txt` for each
   session in FOLDER: its history up to a point, and what really followed.
2. A reader of that file writes nine questions. A successor needs their answers at the point and
   finds them in the history before it. They go to `OUT/NAME/questions.json`, a list of
   `{"question": .., "answer": ..}`. Someone else, who has read the history only, may write a
   summary of it, `OUT/NAME/summary.txt`, as an agent's own compaction does.
3. `write` again writes what each policy shows at the point, with equally many tokens, under a
   letter: `OUT/NAME/A.txt` and so on. Readers answer the questions from one letter's file alone.
4. Someone who does not know the letters compares the answers: `OUT/NAME/scores.json`, for each
   letter a list of 1 (right), 0.5 (half) and 0. `.. quiz score OUT` prints the table.
"""

import json
import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from benchmarks.evidence.bits import spell_each
from benchmarks.evidence.policies import REFERENCE, down_to
from benchmarks.evidence.sessions import Session, load_sessions
from benchmarks.evidence.visible import counted
from benchmarks.table import table
from refold.messages import Message, user

TARGET = 10_000
"""Tokens that are shown."""
LEAST, MOST = 40_000, 85_000
"""Minimum tokens of a session, and maximum tokens of the history before its point."""
BEHIND = 12
"""Minimum number of messages after the point, which show what was needed."""
FOLLOWS = "=== the point; what really followed: ==="
POLICIES = {
    REFERENCE: "the default strategies, without a model",
    "tail": "the newest messages",
    "model": "a summary that a model wrote, and the newest messages",
}
"""The compared policies and what each shows."""


def find_point(session: Session) -> int:
    """Return the last call that has at most `MOST` tokens before it and enough messages after
    it."""
    before, point = 0, 0
    for at, message in enumerate(session.messages[:-BEHIND]):
        if at in session.calls and before <= MOST:
            point = at
        before += counted(message)
    return point


def take_tail(messages: Sequence[Message], tokens: int) -> str:
    """Return the newest messages in *tokens* tokens; the oldest of them loses its beginning."""
    texts = list[str]()
    for message in reversed(messages):
        text, size = spell_each([message]), counted(message)
        if size > tokens:
            texts.append(text[-int(len(text) * tokens / size) :] if tokens > 0 else "")
            break
        texts.append(text)
        tokens -= size
    return "".join(reversed(texts))


def show_all(session: Session, at: int, summary: str) -> dict[str, str]:
    """Return what each policy shows of a session at a point; "model" only if there is a summary."""
    body = next(body for position, body in session.requests() if position == at)
    history = session.messages[:at]
    view = down_to(0.5)(session, 2 * TARGET)(body, history)
    room = sum(map(counted, view))
    shown = {REFERENCE: spell_each(view), "tail": take_tail(history, room)}
    if summary:
        rest = take_tail(history, room - counted(user(summary)))
        shown["model"] = f"[summary]\n{summary}\n\n{rest}"
    return shown


def write(folder: str, out: Path) -> None:
    """Write the histories and what each policy shows, under letters that do not reveal the
    policy."""
    for session in load_sessions(folder, at_least=LEAST):
        place, at = out / session.name, find_point(session)
        place.mkdir(parents=True, exist_ok=True)
        parts = (session.messages[:at], session.messages[at : at + 3 * BEHIND])
        (place / "history.txt").write_text(f"\n{FOLLOWS}\n\n".join(map(spell_each, parts)), "utf-8")
        given = place / "summary.txt"
        shown = show_all(session, at, given.read_text("utf-8") if given.exists() else "")
        names = list(shown)
        random.Random(session.name).shuffle(names)
        letters = dict(zip("ABC", names, strict=False))
        (place / "letters.json").write_text(json.dumps(letters, indent=1), "utf-8")
        for letter, name in letters.items():
            (place / f"{letter}.txt").write_text(shown[name], "utf-8")


def score(out: Path) -> None:
    """Print the share of questions that were answered, by policy."""
    shares = defaultdict[str, list[float]](list)
    for path in sorted(out.glob("*/scores.json")):
        letters = json.loads((path.parent / "letters.json").read_text("utf-8"))
        for letter, points in json.loads(path.read_text("utf-8")).items():
            shares[letters[letter]].append(fmean(points))
    rows = [
        [description, f"{100 * fmean(shares[name]):.1f}", str(len(shares[name]))]
        for name, description in POLICIES.items()
        if shares[name]
    ]
    print(table(["what is shown", "answered, %", "sessions"], rows))


def main(words: Sequence[str]) -> None:
    """Write the files of a quiz or count its scores."""
    match list(words):
        case ["write", folder, out]:
            write(folder, Path(out))
        case ["score", out]:
            score(Path(out))
        case _:
            sys.exit("usage: python -m benchmarks.evidence.quiz write FOLDER OUT | score OUT")


if __name__ == "__main__":
    main(sys.argv[1:])
