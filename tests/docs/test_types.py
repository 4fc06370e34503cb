"""A user's own components, as in docs/extend.md, under `mypy --strict`."""

import os
import re
from pathlib import Path

from mypy import api

import refold
from tests.support.examples import nightly

SUCCESS = "Success: no issues found in 1 source file\n"
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
def test_custom_parts_pass_strict_type_checking(tmp_path, monkeypatch):
    assert type_check(PROGRAM, tmp_path, monkeypatch) == (SUCCESS, "")


@nightly
def test_the_first_strategy_of_the_extension_page_passes_type_checking(tmp_path, monkeypatch):
    """mypy once reported a missing return: `Steps` is for a strategy that returns how it ended."""
    page = (Path(__file__).parents[2] / "docs" / "extend.md").read_text(encoding="utf-8")
    program = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[:2])
    assert "-> Edits:" in program
    assert type_check(program, tmp_path, monkeypatch) == (SUCCESS, "")


def type_check(program: str, folder: Path, monkeypatch) -> tuple[str, str]:
    """Return the report of `mypy --strict` on a program, and its errors."""
    path = folder / "program.py"
    path.write_text(program, encoding="utf-8")
    monkeypatch.setenv("MYPYPATH", os.fspath(Path(refold.__file__).parents[1]))
    cache = f"--cache-dir={folder / 'cache'}"
    report, errors, _ = api.run(["--strict", "--config-file=", cache, os.fspath(path)])
    return report, errors
