"""The demo session: an agent fixes a bug in the imaginary project, part by part.

`session()` returns what a client would send to Anthropic's Messages API.
"""

import base64
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import shake_256
from typing import Any

from benchmarks.demo_session import lines
from benchmarks.demo_session.project import Thing, number, pick
from benchmarks.demo_session.world import NAIVE, PARSE, READ_TIME, World

Entry = dict[str, Any]
Call = tuple[str, dict[str, Any]]


def session() -> list[Entry]:
    """Return the whole session: 413 Anthropic messages, the same on every machine."""
    return list(_Teller().tell())


@dataclass(slots=True)
class _Teller:
    """Plays the agent on the project."""

    world: World = field(default_factory=World)
    step: int = 0
    calls: int = 0

    def tell(self) -> Iterator[Entry]:
        """Yield the whole session."""
        yield from self._opening()
        *parts, frozen = self._parts()
        for n, thing in enumerate(parts):
            yield from self._part(n, thing)
            if n in lines.USER:
                yield self._says(lines.report(n, thing, len(parts) - n))
                yield _user(lines.USER[n])
            if n in lines.ANSWERS:
                yield self._says(lines.ANSWERS[n])
                yield _user(lines.GO_ON[n])
        yield from self._closing(frozen)

    def _parts(self) -> list[Thing]:
        """Return the parts in the order of work; the last one is left out."""
        return sorted(self.world.things, key=lambda thing: thing.name == lines.FROZEN)

    # --- one entry or one step ----------------------------------------------------------------

    def _says(self, text: str, *calls: Call, thinking: str = "") -> Entry:
        """Return a message of the model, with signed thinking if it thinks."""
        self.step += 1
        blocks: list[Entry] = []
        if thinking:
            blocks.append(
                {"type": "thinking", "thinking": thinking, "signature": _signature(self.step)}
            )
        if text:
            blocks.append({"type": "text", "text": text})
        for name, given in calls:
            self.calls += 1
            blocks.append({"type": "tool_use", "id": _id(self.calls), "name": name, "input": given})
        return {"role": "assistant", "content": blocks}

    def _does(self, text: str, *calls: Call, thinking: str = "") -> Iterator[Entry]:
        """Yield a message of the model and the results of its tool calls."""
        first = self.calls + 1
        yield self._says(text, *calls, thinking=thinking)
        results = []
        for n, (name, given) in enumerate(calls, first):
            content, error = self.world.run(name, given)
            flag = {"is_error": True} if error else {}
            results.append(
                {"type": "tool_result", "tool_use_id": _id(n), "content": content, **flag}
            )
        yield {"role": "user", "content": results}

    # --- the acts -----------------------------------------------------------------------------

    def _opening(self) -> Iterator[Entry]:
        yield {"role": "user", "content": [{"type": "text", "text": lines.ISSUE}, _screenshot()]}
        yield from self._does(lines.LOOK, _bash("sqlite3 snapshots/2026-10-26.db < queries/sold_twice.sql"),
                              _bash("grep -h '' logs/worker-2026-10-25T02*.jsonl", "The night in question"), thinking=lines.THINK_FIRST)  # fmt: skip
        yield from self._does(
            lines.SEARCH,
            ("Grep", {"pattern": r"datetime\.now\("}),
            _read("harbor/clock.py"),
            _read("harbor/worker/jobs.py"),
        )
        yield from self._does(
            lines.TRY_FREEZE, _bash("pip install freezegun", "A clock that tests can stop")
        )
        yield from self._does(lines.OWN_FAKE, _read("tests/fakes.py"), thinking=lines.THINK_FREEZE)
        yield from self._does("", _todo(self.world.things, 0), thinking=lines.THINK_PLAN)
        yield from self._does(
            lines.RECORD, ("Write", {"file_path": "docs/adr/0012-time.md", "content": lines.ADR})
        )

    def _part(self, n: int, thing: Thing) -> Iterator[Entry]:
        """Yield one part of the project, from reading to green tests."""
        world, count = self.world, self.world.count(thing.service, NAIVE)
        yield from self._does(
            lines.start(n, thing, count),
            _read(thing.service),
            _read(thing.tests),
            thinking=lines.think(n, thing, count),
        )
        if n % 3 != 1:
            yield from self._does(pick(lines.RUN_FIRST, n), _pytest(thing))
        yield from self._does(
            pick(lines.EDIT_SERVICE, n),
            _edit(
                thing.service,
                "from harbor.events import",
                "from harbor import clock\nfrom harbor.events import",
            ),
            _edit(thing.service, NAIVE, "clock.now()", replace_all=True),
        )
        yield from self._does(pick(lines.RUN_AGAIN, n), _pytest(thing))
        if n % 3 == 2:
            yield from self._does(pick(lines.RECALL, n), _read(thing.tests))
        line = world.line(thing.store, READ_TIME)
        yield from self._does(
            lines.store(n, thing, line),
            _read(thing.store),
            thinking=lines.think_store(n, thing, line),
        )
        yield from self._does(
            pick(lines.EDIT_STORE, n),
            _edit(
                thing.store,
                "from harbor.db import",
                "from harbor import clock\nfrom harbor.db import",
            ),
            _edit(thing.store, READ_TIME, PARSE, replace_all=True),
        )
        yield from self._contract(n, thing)
        if n % 4 == 2:
            yield from self._does(
                pick(lines.REREAD, n), _read(thing.service), thinking=lines.think_reread(n, thing)
            )
        if n % 4 == 3:
            yield from self._does(
                pick(lines.DIFF, n),
                _bash(f"git diff {thing.plural}/"),
                _bash(f"ruff check {thing.service}"),
            )
        if n % 3 == 0:
            yield from self._does("", _todo(world.things, n + 1))

    def _contract(self, n: int, thing: Thing) -> Iterator[Entry]:
        """Yield the fix after the API's tests report that the JSON has changed."""
        name, time = thing.name, thing.fields[3]
        yield from self._does(pick(lines.RUN_AGAIN, n + 1), _pytest(thing), _read(thing.api))
        yield from self._does(
            lines.contract(n, thing),
            _edit(
                thing.api,
                "from harbor.errors import",
                "from harbor import clock\nfrom harbor.errors import",
            ),
            _edit(
                thing.api,
                f"{name}.{time}.isoformat(",
                f"clock.local({name}.{time}).replace(tzinfo=None).isoformat(",
            ),
            _edit(
                thing.tests,
                "datetime(2026, 6, 1, 12)",
                "datetime(2026, 6, 1, 10, tzinfo=UTC)",
                replace_all=True,
            ),
            _edit(
                thing.tests, "from datetime import datetime", "from datetime import UTC, datetime"
            ),
            thinking=lines.think_contract(n, thing),
        )
        yield from self._does(pick(lines.RUN_LAST, n), _pytest(thing))

    def _closing(self, frozen: Thing) -> Iterator[Entry]:
        yield from self._does(
            lines.WHOLE,
            _bash("pytest -q", "The whole suite, once, at the end"),
            _bash("git diff --stat"),
        )
        yield self._says(lines.frozen_fails(frozen), thinking=lines.THINK_FROZEN)
        yield _user(lines.CHANGELOG)
        yield from self._does(
            lines.LEFT,
            ("Grep", {"pattern": r"datetime\.now", "path": "harbor/"}),
            _read("CHANGELOG.md"),
        )
        yield from self._does(
            "", _edit("CHANGELOG.md", "# Changelog\n", "# Changelog\n" + lines.ENTRY)
        )
        yield self._says(lines.DONE)
        yield _user(lines.LAST)
        yield from self._does(
            lines.LOOK_JOBS,
            _read("harbor/worker/jobs.py"),
            ("Grep", {"pattern": "def sweep", "path": "harbor/"}),
        )


# --- wire form -------------------------------------------------------------------------------


def _user(text: str) -> Entry:
    return {"role": "user", "content": text}


def _read(path: str) -> Call:
    return "Read", {"file_path": path}


def _bash(command: str, description: str = "") -> Call:
    return "Bash", {"command": command, "description": description or command.split(maxsplit=1)[0]}


def _pytest(thing: Thing) -> Call:
    return _bash(f"pytest -x {thing.tests}", f"Tests of {thing.plural}")


def _edit(path: str, old: str, new: str, **options: bool) -> Call:
    return "Edit", {"file_path": path, "old_string": old, "new_string": new, **options}


def _todo(things: Sequence[Thing], done: int) -> Call:
    state = ("completed", "in_progress", "pending")
    rows = [
        {"content": f"Put {thing.plural} on the clock: service, store, API", "status": state[(n >= done) + (n > done)], "activeForm": f"Working on {thing.plural}"}
        for n, thing in enumerate(things)
        if thing.name != lines.FROZEN or done < 8
    ]  # fmt: skip
    return "TodoWrite", {"todos": rows}


def _id(n: int) -> str:
    letters = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz123456789"
    return "toolu_01" + "".join(letters[number(len(letters), "id", n, k)] for k in range(22))


def _signature(n: int) -> str:
    """Return a signature as long and as unreadable as a real one."""
    return base64.b64encode(
        shake_256(f"signature {n}".encode()).digest(180 + number(300, "signature", n))
    ).decode()


def _screenshot() -> Entry:
    """Return the dashboard's chart of that night, drawn pixel by pixel: 240 x 136, four greys.

    Not compressed, since zlib versions compress differently.
    """
    width, height = 240, 136
    bars = [20 + number(60, "bar", n) for n in range(24)]
    bars[2], bars[3] = 120, 6
    rows = (
        bytes(_four_pixels(bars, x, height - y) for x in range(0, width, 4)) for y in range(height)
    )
    raw = zlib.compress(b"".join(b"\0" + row for row in rows), 0)
    header = struct.pack(">IIBBBBB", width, height, 2, 0, 0, 0, 0)
    png = (
        b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", raw) + _chunk(b"IEND", b"")
    )
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(png).decode()}
    return {"type": "image", "source": source}


def _four_pixels(bars: Sequence[int], x: int, y: int) -> int:
    greys = [
        (1 if at // 10 != 2 else 0)
        if at % 10 < 7 and y < bars[at // 10]
        else 2
        if y % 25 == 0
        else 3
        for at in range(x, x + 4)
    ]
    return sum(grey << shift for grey, shift in zip(greys, (6, 4, 2, 0), strict=True))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
