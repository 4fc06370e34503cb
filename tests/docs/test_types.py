"""A user's own parts, as docs/extend.md has them, under `mypy --strict`."""

import os
from pathlib import Path

from mypy import api

import refold
from tests.support.examples import nightly

PROGRAM = """
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from refold import Answer, Ask, Budget, Compactor, Edit, View
from refold.core.strategy import Asking, Edits, Summary
from refold.strategies import Summarize
from refold.testing import check_store


@dataclass(frozen=True)
class HideFirst:
    def __call__(self, view: View) -> Edits:
        yield view.fold(0, 1, by=repr(self))


@dataclass(frozen=True)
class ByModel:
    def __call__(self, view: View, start: int, stop: int, max_tokens: int) -> Asking[Summary]:
        answer = yield Ask("Summarise.", max_tokens)
        return Summary(answer.text if answer else "")


class NoStore:
    url = "none"

    def load(self, tips: Sequence[str]) -> Sequence[Edit]:
        return ()

    def save(self, edits: Iterable[Edit]) -> None: ...

    def remove(self, ids: Iterable[str]) -> None: ...

    def version(self) -> int:
        return 0


async def answer(ask: Ask) -> Answer:
    return Answer("Done.")


check_store(NoStore, again=lambda store: NoStore() if store.url else store)
summarize = Summarize(summarizer=ByModel())
compact = Compactor([HideFirst(), summarize], Budget(9, 5), NoStore(), ask=answer)
"""


@nightly
def test_parts_of_a_users_own_have_the_types_that_are_asked_for(tmp_path, monkeypatch):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    monkeypatch.setenv("MYPYPATH", os.fspath(Path(refold.__file__).parents[1]))
    cache = f"--cache-dir={tmp_path / 'cache'}"
    report, errors, _ = api.run(["--strict", "--config-file=", cache, os.fspath(program)])
    assert (report, errors) == ("Success: no issues found in 1 source file\n", "")
