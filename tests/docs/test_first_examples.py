"""The first examples of README and tutorial show settings that we recommend."""

from pathlib import Path

import pytest
from benchmarks.replay import Recording

from refold import Budget, Compactor
from refold.session_files import demo_session, read
from tests.support.examples import NIGHTLY
from tests.support.pages import ROOT, code_blocks

PAGES = {"README.md": 0, "docs/start.md": 2}
"""Pages with the number of Python blocks before the first that has a `Compactor`."""
MODEL = "claude-opus-5-5"
OPENED = Recording({"model": MODEL, "messages": demo_session()})


def of_page(page: str, place: Path, monkeypatch) -> Compactor:
    """Return the compactor of a page's first example."""
    monkeypatch.chdir(place)
    names: dict = {}
    for _, code in list(code_blocks(ROOT / page, "python"))[: PAGES[page] + 1]:
        exec(code, names)
    return names["compact"]


def bare(compactor: Compactor) -> Compactor:
    """Return the same settings without the store."""
    settings = compactor.settings
    return Compactor(
        None if settings.has_default_strategies else settings.strategies,
        None if settings.has_default_budget else settings.budget,
        model=settings.model,
    )


def test_f23_the_first_examples_keep_needed_facts_and_save_tokens(
    tmp_path: Path, monkeypatch
) -> None:
    """README's once clipped every result at 4,000 characters, the tutorial's saved nothing until
    the window was full."""
    unedited = OPENED.replay(Compactor([], Budget(10**9, 10**9)))
    compactors = [bare(of_page(page, tmp_path, monkeypatch)) for page in PAGES]
    for compactor in {repr(decides_by(compactor)): compactor for compactor in compactors}.values():
        replay = OPENED.replay(compactor)
        assert replay.recall >= 0.75  # 14 of 63 needed facts are in one early list of files
        assert replay.tokens < 0.3 * unedited.tokens


def decides_by(compactor: Compactor) -> tuple[object, ...]:
    """Return the settings that decide what a compactor does."""
    return compactor.settings.strategies, compactor.settings.budget, compactor.settings.model


@pytest.mark.parametrize("page", PAGES if NIGHTLY else ["README.md"])
@pytest.mark.slow
def test_f23_the_first_examples_keep_needed_facts_of_a_recorded_session(
    page: str, tmp_path: Path, monkeypatch, shared: Path
) -> None:
    path = (
        shared / "datasets" / "claude_code_spotter" / "258c7280-ae70-4798-800f-63464d01a85d.jsonl"
    )
    if not (paths := sorted((shared / "datasets").rglob(path.name))):
        pytest.skip(f"{path.name} is not among the recordings here")
    recording = Recording({**read(paths[0]).payload, "model": MODEL})
    assert recording.replay(bare(of_page(page, tmp_path, monkeypatch))).recall >= 0.93
