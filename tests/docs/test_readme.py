"""The console lines of docs/start.md work, and links lead to headings."""

import re
from pathlib import Path

import pytest

from tests.support.cli_lines import check_example, make_sessions, typed_lines
from tests.support.pages import ROOT, code_blocks

START = ROOT / "docs" / "start.md"


@pytest.mark.slow
def test_the_lines_of_start_work(tmp_path: Path) -> None:
    directory = make_sessions(tmp_path)
    (toml,) = (code for _, code in code_blocks(START, "toml"))
    (directory / "refold.toml").write_text(toml, encoding="utf-8")
    for line in typed_lines(START):
        name, _, command = line.rpartition(" refold ")
        env = dict([name.split("=", 1)]) if "=" in name else {}
        check_example(f"refold {command}" if env else line, directory, env)


def test_every_heading_that_a_link_names_is_there() -> None:
    """A link to a heading that was renamed leads to the top of a page, and nobody notices."""
    wrong = []
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    anchors = {page: headings(page) for page in pages}
    for page in pages:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text("utf-8")):
            there = (page.parent / target).resolve() if target else page
            if "://" not in target and anchor not in anchors.get(there, ()):
                wrong.append(f"{page.name}: {target}#{anchor}")
    assert wrong == []


def headings(page: Path) -> set[str]:
    """The anchors of *page*, as GitHub makes them of its headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    names, seen = re.findall(r"^#+ (.*)$", text, re.MULTILINE), {}
    result = set()
    for name in names:
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", name).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        count = seen[slug] = seen.get(slug, -1) + 1
        result.add(f"{slug}-{count}" if count else slug)
    return result
