"""Each entry section works by itself, and links lead to headings."""

import json
import os
import re
from pathlib import Path

import pytest

from refold.session_files import demo_session
from tests.support.cli_lines import follow_door, run_in_process
from tests.support.pages import ROOT, code_blocks, texts_by_door

DOORS = {
    (page, door): text
    for page in ("README.md", "docs/start.md")
    for door, text in texts_by_door(ROOT / page).items()
}


@pytest.mark.slow
@pytest.mark.parametrize(("page", "door"), DOORS)
def test_each_entry_section_of_a_page_works_without_the_others(
    page: str, door: str, tmp_path: Path
) -> None:
    """Blocks once shared a namespace and the tests' files, so nobody noticed imports from another
    section, or a file used before the block that writes it."""
    name = "258c7280-ae70-4798-800f-63464d01a85d"
    if page == "README.md":  # start.md writes a session, README uses the reader's own
        record_session(tmp_path / ".claude" / "projects" / "-srv-app" / f"{name}.jsonl")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "claude").write_text('#!/bin/sh\necho "$ANTHROPIC_BASE_URL"\n')
    (programs / "claude").chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    follow_door(DOORS[page, door], tmp_path, {"PATH": path})


def record_session(path: Path) -> None:
    """Write a session as Claude Code does."""
    path.parent.mkdir(parents=True)
    above = None
    with path.open("w", encoding="utf-8") as file:
        for at, entry in enumerate(demo_session(60)):
            line = {
                "type": entry["role"],
                "uuid": str(at),
                "parentUuid": above,
                "sessionId": path.stem,
                "cwd": "/srv/app",
                "timestamp": "2026-11-01T10:00:00.000Z",
                "message": entry,
            }
            file.write(json.dumps(line) + "\n")
            above = str(at)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (('store = "refold.db"', 'sotre = "refold.db"'), "sotre"),
        (('preset = "openai"', 'preset = "openia"'), "openia"),
        (("workers = 2", "workers = -2"), "workers"),
        (("workers = 2", "workers = "), "line 3"),
    ],
)
def test_serve_check_names_the_invalid_key_or_line_of_the_config_file(
    change: tuple[str, str], names: str, tmp_path: Path
) -> None:
    """As start.md says: the key, or the line if it is invalid TOML."""
    (toml,) = (code for _, code in code_blocks(ROOT / "docs" / "start.md", "toml"))
    assert change[0] in toml
    (tmp_path / "refold.toml").write_text(toml.replace(*change), encoding="utf-8")
    token = {"REFOLD_ADMIN_TOKEN": "at-least-sixteen-characters"}
    done = run_in_process("refold serve --config refold.toml --check", tmp_path, **token)
    assert done.code == 2 and names in done.err and "refold.toml" in done.err, done.err


def test_each_page_with_entry_sections_has_three() -> None:
    assert len(DOORS) == 3 * len({page for page, _ in DOORS})
    text = DOORS["docs/start.md", "I run a coding agent"]
    assert "git clone" in text and "## I run a team" not in text and "refold serve" not in text


def test_every_linked_heading_exists() -> None:
    """A link to a renamed heading silently leads to the top of a page."""
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
    """Return the anchors of *page*, as GitHub derives them from headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    names, seen = re.findall(r"^#+ (.*)$", text, re.MULTILINE), {}
    result = set()
    for name in names:
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", name).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        count = seen[slug] = seen.get(slug, -1) + 1
        result.add(f"{slug}-{count}" if count else slug)
    return result
