"""Runs one task from a JSON file in a framework's environment and writes the result to another."""

import importlib
import json
import logging
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from adapters.framework import Framework, Job, Regression, Timing
from adapters.pages import code_of
from adapters.session import TURNS

LENGTHS = (100, 1_000)
"""Lengths in messages of the timed histories."""
CALLS = 15
"""Number of timed calls at each length."""


def main(name: str, task: Path, result: Path) -> None:
    """Run a task of the framework *name*."""
    given = json.loads(task.read_text(encoding="utf-8"))
    framework: Any = importlib.import_module(f"adapters.{name.replace('-', '_')}")
    answer = {"version": version(framework.PACKAGE), **_do(framework, name, given)}
    result.write_text(json.dumps(answer, default=str), encoding="utf-8")


def _do(framework: Framework, name: str, given: dict[str, Any]) -> dict[str, Any]:
    match given["task"]:
        case "talk":
            turns = tuple(TURNS[at] for at in given["turns"])
            logged = collect_errors()
            talk = framework.talk(Job(given["url"], Path(given["place"]), turns))
            texts = list(iter_texts(talk.history))
            return {
                "texts": texts,
                "deltas": list(talk.deltas),
                "reports": talk.reports,
                "errors": logged,
            }
        case "regressions":
            for check in getattr(framework, "CHECKS", ()):
                check()
            return {"rows": [_compare(case) for case in framework.REGRESSIONS]}
        case "timings":
            return {"rows": [[each.name, *_time(each)] for each in framework.TIMINGS]}
        case "docs":
            code = code_of(Path(given["page"]), name)
            exec(compile(code, given["page"], "exec"), {"__name__": "docs"})
            return {"lines": len(code.splitlines())}
    raise ValueError(given["task"])


def collect_errors() -> list[str]:
    """Return a list that collects the errors that Refold only logs."""
    errors = list[str]()

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            errors.append(record.getMessage())

    logging.getLogger("refold").addHandler(Collect(logging.WARNING))
    return errors


def _compare(case: Regression) -> dict[str, Any]:
    own, ours = (
        [bool(case.find_fault(compact(setting))) for setting in case.settings]
        for compact in (case.own, case.ours)
    )
    return {
        "case": case.case,
        "thread": case.thread,
        "settings": len(own),
        "own": sum(own),
        "ours": sum(ours),
        "broken": case.broken,
    }


def _time(timing: Timing) -> Iterator[float]:
    """Yield the CPU milliseconds of a call at each length: the median while the history grows."""
    for length in LENGTHS:
        history = timing.history(length + 2 * CALLS)
        timing.run(history[:length])
        seconds = []
        for grown in range(length + 2, length + 2 * CALLS + 1, 2):
            start = time.process_time()
            timing.run(history[:grown])
            seconds.append(time.process_time() - start)
        yield 1_000 * statistics.median(seconds)


def iter_texts(value: Any, seen: set[int] | None = None) -> Iterator[str]:
    """Yield every string in values and objects of any kind."""
    seen = set() if seen is None else seen
    if isinstance(value, str):
        yield value
        return
    if id(value) in seen or isinstance(value, int | float | bytes | type | None):
        return
    seen.add(id(value))
    if isinstance(value, Mapping):
        inner: Any = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        inner = value
    else:
        inner = [getattr(value, name, None) for name in _fields(value)]
    for each in inner:
        yield from iter_texts(each, seen)


def _fields(value: Any) -> list[str]:
    fields = getattr(type(value), "model_fields", None) or getattr(
        value, "__dataclass_fields__", None
    )
    return list(fields if fields is not None else getattr(value, "__dict__", ()))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
