"""What the documentation says works, and everything public is in it."""

import re
from pathlib import Path

import pytest

import refold
from pages import PAGES, ROOT, blocks
from refold import strategies


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python blocks of a page run in order, in one namespace, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "docs"}
    for line, code in blocks(page, "python"):
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


PROSE = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


@pytest.mark.parametrize("name", [*refold.__all__, *strategies.__all__])
def test_public_names_are_documented(name: str) -> None:
    assert re.search(rf"\b{name}\b", PROSE), f"{name} is in no page of the documentation"


def test_every_page_is_linked_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for page in PAGES[1:]:
        if page.parent.name == "docs":
            assert f"docs/{page.name}" in readme, f"README.md does not link docs/{page.name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tests_and_sources_that_are_named_are_there(page: Path) -> None:
    named = re.findall(
        r"`((?:tests|src/refold|benchmarks)/[a-z0-9_/]+\.(?:py|toml|json))`", page.read_text(encoding="utf-8")
    )
    assert [one for one in named if not (ROOT / one).exists()] == []
