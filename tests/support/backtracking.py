"""Count the steps of a regular expression. `re` does not report them and cannot be interrupted.

`Machine` runs the parse tree of a pattern by backtracking, as Python's `re` does, and counts steps.
`attacks` makes texts from the same tree on which the pattern may be slow.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from itertools import islice, product
from re import _constants as names
from re import _parser as parser
from typing import Any, NamedTuple

MANY = 8
"""Repeats with at least this maximum are expanded to long texts."""
ENDLESS = 10_000
"""Repeats with at least this maximum have none: it is longer than any text of `Attack.text` that is
asked for."""


class TooManySteps(Exception):  # noqa: N818 - it says what it is
    """A pattern needs more steps than allowed."""


class Machine:
    """A pattern that counts its steps. Raise `TooManySteps` if one text takes more than *most*."""

    def __init__(self, pattern: re.Pattern[Any], most: int = 10**9) -> None:
        self.pattern, self.most, self.steps = pattern, most, 0
        source = pattern.pattern
        self.text = source if isinstance(source, str) else source.decode("latin-1")
        self.flags = pattern.flags
        self.tree = parser.parse(source, pattern.flags)
        self.slots = 2 * self.tree.state.groups
        self.code: list[tuple[Any, ...]] = []
        self._emit(self.tree, self.flags)
        self.code.append(("end",))

    # --- the program -----------------------------------------------------------------------------

    def _emit(self, tree: Any, flags: int) -> None:
        for op, value in tree:
            self._emit_one(op, value, flags)

    def _emit_one(self, op: Any, value: Any, flags: int) -> None:
        code = self.code
        match op:
            case names.LITERAL | names.NOT_LITERAL | names.ANY | names.IN:
                code.append(("char", _accepts(op, _frozen(value), flags)))
            case names.BRANCH:
                ends = list[int]()
                for branch in value[1][:-1]:
                    split = len(code)
                    code.append(())
                    self._emit(branch, flags)
                    ends.append(len(code))
                    code.append(())
                    code[split] = ("split", split + 1, len(code))
                self._emit(value[1][-1], flags)
                for end in ends:
                    code[end] = ("jump", len(code))
            case names.SUBPATTERN:
                group, on, off, body = value
                if group is not None:
                    code.append(("save", 2 * group))
                self._emit(body, (flags | on) & ~off)
                if group is not None:
                    code.append(("save", 2 * group + 1))
            case names.MAX_REPEAT | names.MIN_REPEAT:
                self._repeat(*value, flags, greedy=op is names.MAX_REPEAT)
            case names.POSSESSIVE_REPEAT:
                self._inner("atomic", lambda: self._repeat(*value, flags, greedy=True))
            case names.ATOMIC_GROUP:
                self._inner("atomic", lambda: self._emit(value, flags))
            case names.ASSERT | names.ASSERT_NOT:
                direction, body = value
                kind = "look" if op is names.ASSERT else "look not"
                back = body.getwidth()[0] if direction < 0 else 0
                self._inner(kind, lambda: self._emit(body, flags), back)
            case names.AT:
                code.append(("at", value, bool(flags & re.MULTILINE)))
            case names.GROUPREF:
                code.append(("again", value, bool(flags & re.IGNORECASE)))
            case _:
                raise NotImplementedError(op)

    def _inner(self, kind: str, emit: Callable[[], None], back: int = 0) -> None:
        at = len(self.code)
        self.code.append(())
        emit()
        self.code.append(("end",))
        self.code[at] = (kind, at + 1, len(self.code), back)

    def _repeat(self, least: int, most: Any, body: Any, flags: int, *, greedy: bool) -> None:
        code = self.code
        for _ in range(least):
            self._emit(body, flags)
        if most is names.MAXREPEAT or most >= ENDLESS:
            mark = self.slots
            self.slots += 1
            split = len(code)
            code.append(())
            code.append(("save", mark))
            self._emit(body, flags)
            code.append(("moved", mark))  # an empty body is not repeated
            code.append(("jump", split))
            code[split] = (
                ("split", split + 1, len(code)) if greedy else ("split", len(code), split + 1)
            )
            return
        splits = list[int]()
        for _ in range(most - least):
            splits.append(len(code))
            code.append(())
            self._emit(body, flags)
        for at in splits:
            code[at] = ("split", at + 1, len(code)) if greedy else ("split", len(code), at + 1)

    # --- matching --------------------------------------------------------------------------------

    def match(self, text: str, at: int = 0, *, whole: bool = False) -> int | None:
        """Return the end of a match from *at*. With *whole* it must end with the text."""
        end = self._run(0, text, at, (-1,) * self.slots, whole=whole)
        return None if end is None else end[0]

    def findall(self, text: str) -> list[tuple[int, int]]:
        """Return where all matches begin and end."""
        at, spans = 0, list[tuple[int, int]]()
        while at <= len(text):
            end = self.match(text, at)
            if end is None:
                at += 1
                continue
            spans.append((at, end))
            at = end if end > at else at + 1
        return spans

    def _run(  # noqa: PLR0915 - one case an instruction
        self, pc: int, text: str, at: int, slots: tuple[int, ...], *, whole: bool = False
    ) -> tuple[int, tuple[int, ...]] | None:
        code, size = self.code, len(text)
        waiting: list[tuple[int, int, tuple[int, ...]]] = [(pc, at, slots)]
        while waiting:
            pc, at, slots = waiting.pop()
            while True:
                self.steps += 1
                if self.steps > self.most:
                    raise TooManySteps
                step = code[pc]
                match step[0]:
                    case "char":
                        if at == size or not step[1](text[at]):
                            break
                        at += 1
                        pc += 1
                    case "split":
                        waiting.append((step[2], at, slots))
                        pc = step[1]
                    case "jump":
                        pc = step[1]
                    case "save":
                        slots = (*slots[: step[1]], at, *slots[step[1] + 1 :])
                        pc += 1
                    case "moved":
                        if slots[step[1]] == at:
                            pc += 2
                        else:
                            pc += 1
                    case "at":
                        if not _stands(step[1], step[2], text, at):
                            break
                        pc += 1
                    case "again":
                        heard = text[slots[2 * step[1]] : slots[2 * step[1] + 1]]
                        now = text[at : at + len(heard)]
                        if slots[2 * step[1] + 1] < 0 or (
                            now.lower() != heard.lower() if step[2] else now != heard
                        ):
                            break
                        self.steps += len(heard)
                        at += len(heard)
                        pc += 1
                    case "end":
                        if whole and at < size:
                            break
                        return at, slots
                    case kind:
                        inner = (
                            self._run(step[1], text, at - step[3], slots) if at >= step[3] else None
                        )
                        if (inner is None) != (kind == "look not"):
                            break
                        if kind == "atomic" and inner:
                            at, slots = inner
                        elif kind == "look" and inner:
                            slots = inner[1]
                        pc = step[2]
        return None


def _stands(where: Any, multiline: bool, text: str, at: int) -> bool:
    size = len(text)
    match where:
        case names.AT_BEGINNING_STRING:
            return at == 0
        case names.AT_BEGINNING:
            return at == 0 or (multiline and text[at - 1] == "\n")
        case names.AT_END_STRING:
            return at == size
        case names.AT_END:
            return at == size or (text[at : at + 1] == "\n" and (multiline or at == size - 1))
        case names.AT_BOUNDARY | names.AT_NON_BOUNDARY:
            parted = (at > 0 and _is_word(text[at - 1])) != (at < size and _is_word(text[at]))
            return parted == (where is names.AT_BOUNDARY)
    raise NotImplementedError(where)


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


@cache
def _accepts(op: Any, value: Any, flags: int) -> Callable[[str], bool]:
    """Compile a test of one character with `re` itself."""
    tree = parser.SubPattern(
        parser.State(), [(op, list(value) if isinstance(value, tuple) else value)]
    )
    tree.state.flags = flags & (re.IGNORECASE | re.DOTALL | re.ASCII | re.UNICODE)
    tree.state.str = "."
    from_tree = re._compiler.compile(tree, tree.state.flags)  # type: ignore[attr-defined]
    return lru_cache(maxsize=None)(lambda char: from_tree.match(char) is not None)


# --- texts that are slow to match ----------------------------------------------------------------


class Attack(NamedTuple):
    """A text of any size: *before*, *pumped* repeated, and *behind*, which makes the match fail."""

    before: str
    pumped: str
    behind: str

    def text(self, size: int) -> str:
        """Return a text of about *size* characters."""
        return self.before + self.pumped * max(1, size // len(self.pumped)) + self.behind


FIXED = (" ", "\n", "\t", "a", "0", "_", "-", ".", "/", "a.", "a ", "a\n", "a. ", ". ", "\n ", "[", "(", "{", "{}", "<", "<a", "|", " |", '"', "\\", '\\"', "'", "`", "```", "“", "「", "中", "中。", "#", "# ", "*", "- ", ":", ", ", "0,", "A", "Aa")  # fmt: skip


def attacks(pattern: re.Pattern[Any], most: int = 400) -> Iterator[Attack]:
    """Make texts from the pattern, and from a fixed alphabet of hard shapes.

    They repeat texts that the pattern's parts match, alone and in pairs, after a prefix that the
    pattern accepts.
    """
    source = pattern.pattern
    tree = parser.parse(source, pattern.flags)
    seen = dict.fromkeys(_pumps(tree, ""))
    words = list(dict.fromkeys(word for _, word in seen if 0 < len(word) <= 60))
    texts = dict.fromkeys(Attack(before, word, "") for before, word in seen if word)
    texts |= dict.fromkeys(
        Attack("", a + b, "") for a, b in islice(product(words, words), 150) if a != b
    )
    texts |= dict.fromkeys(Attack("", word, "") for word in (*words, *FIXED))
    befores = dict.fromkeys(before for before, _ in seen if before)
    texts |= dict.fromkeys(
        Attack(before, word, "") for before in islice(befores, 6) for word in FIXED
    )
    for attack in islice(texts, most):
        yield from (attack._replace(behind=end) for end in ("\x00", "", "\\"))


def _pumps(tree: Any, before: str) -> Iterator[tuple[str, str]]:
    """Return a prefix of each part that may be long, and texts that the part matches."""
    for op, value in tree:
        match op:
            case names.BRANCH:
                for branch in value[1]:
                    yield from _pumps(branch, before)
            case names.SUBPATTERN:
                yield from _pumps(value[3], before)
            case names.MAX_REPEAT | names.MIN_REPEAT | names.POSSESSIVE_REPEAT:
                for sample in _samples(value[2]):
                    if value[1] is names.MAXREPEAT or value[1] >= MANY:
                        yield before, sample
                    yield "", sample
                yield from _pumps(value[2], before)
            case names.ATOMIC_GROUP:
                yield from _pumps(value, before)
            case names.ASSERT | names.ASSERT_NOT:
                yield from _pumps(value[1], before)
                continue
            case _:
                pass
        before += next(iter(_samples([(op, value)])), "")
    yield "", before


def _samples(tree: Any, most: int = 5) -> list[str]:
    """Return a few texts that a tree matches."""
    texts = [""]
    for op, value in tree:
        parts = _sample(op, value)
        texts = [beginning + part for part in parts for beginning in texts][:most]
    return texts


def _sample(op: Any, value: Any) -> list[str]:
    match op:
        case names.LITERAL:
            return [chr(value)]
        case names.NOT_LITERAL | names.ANY:
            return ["a", " "]
        case names.IN:
            accepts = _accepts(op, _frozen(value), 0)
            own = [chr(char) for kind, char in value if kind is names.LITERAL]
            return [
                char
                for char in dict.fromkeys((*"a0 \n_A-.\t/:", *own, "中", '"', "!"))
                if accepts(char)
            ][:4]
        case names.BRANCH:
            return [text for branch in value[1] for text in _samples(branch, 1)][:6]
        case names.SUBPATTERN:
            return _samples(value[3])
        case names.MAX_REPEAT | names.MIN_REPEAT | names.POSSESSIVE_REPEAT:
            least = max(value[0], min(1, value[1]))
            return [text * least for text in _samples(value[2])]
        case names.ATOMIC_GROUP:
            return _samples(value)
        case _:
            return [""]
