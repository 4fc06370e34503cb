"""The examples of the documentation work, and it covers everything public."""

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import refold
from refold import strategies
from refold.gateway import Config, Limits, Settings
from tests.support.page_environments import code_by_extras, create_environment, run_code
from tests.support.pages import PAGES, ROOT, code_blocks, read_blocks
from tests.support.sources import SOURCE, syntax_trees


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(code_blocks(page, "python"))], ids=name_of
)
def test_f22_code_blocks_run_with_the_extras_that_the_page_names(
    page: Path, tmp_path_factory
) -> None:
    """The Python blocks of a page run from top to bottom in an empty directory, with only Refold
    and the extras named above them, and print the documented output. Preset pages once needed a
    package of no extra, and the summary in docs/summaries.md was months old."""
    environments, printed = tmp_path_factory.getbasetemp() / "environments", ""
    for extras, code in code_by_extras(page):
        python = create_environment(extras, environments)
        done = run_code(python, code, page, tmp_path_factory.mktemp("reader"))
        assert done.returncode == 0, f"with {sorted(extras) or 'no extra'}:\n{done.stderr}"
        printed += done.stdout
    assert [text for text in iter_outputs(page) if text not in printed] == []


def iter_outputs(page: Path) -> Iterator[str]:
    """Yield the output of the Python blocks of *page*, which is in the blocks after them. `...` is
    a gap."""
    blocks = read_blocks(page.read_text(encoding="utf-8"))
    for (_, language, code), (_, shown, text) in pairwise(blocks):
        if (language, shown) == ("python", "text") and "print(" in code:
            yield from text.split("\n...\n")


def test_f22_an_environment_has_only_the_packages_of_its_extras(tmp_path: Path) -> None:
    """The tests' environment has hypothesis, a reader's only if the page names its extra."""
    code = "from refold.testing import ScriptedModel, check_strategy, transcripts"
    bare = run_code(create_environment(frozenset(), tmp_path), code, ROOT / "README.md", tmp_path)
    assert (
        "random transcripts need hypothesis: install Refold with its extra 'testing'" in bare.stderr
    )
    named = run_code(
        create_environment(frozenset(["testing"]), tmp_path), code, ROOT / "README.md", tmp_path
    )
    assert (named.returncode, named.stderr) == (0, "")


def test_pages_that_install_from_a_clone_explain_how_to_clone() -> None:
    """Pages once said "in a clone" without saying how to get one."""
    (address,) = set(re.findall(r"^git clone (.+) refold$", PROSE, re.MULTILINE))
    assert address == "<address of this repository>"  # until it is public
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if re.search(r"pip install '\.\[", text):
            assert "git clone" in text or "start.md#get-it)" in text, name_of(page)


def test_messages_refer_neither_to_docs_nor_to_an_unspecified_ledger() -> None:
    """An installation has no `docs`, and the commands have two ledgers, so a message must name
    one."""
    wrong = [
        f"{path.relative_to(SOURCE)}: {text}"
        for path, tree in syntax_trees().items()
        for text in messages_of(tree)
        if "docs/" in text
        or ({"cli", "gateway"} & {*path.relative_to(SOURCE).parts} and says_ledger(text))
    ]
    assert wrong == []


def messages_of(tree: ast.Module) -> list[str]:
    """Return the strings of a file except docstrings. Docstrings of commands are included, because
    they are help texts."""
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
    ]
    commands = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any("click.command" in ast.unparse(each) for each in node.decorator_list)
    ]
    return [*texts, *(ast.get_docstring(command) or "" for command in commands)]


def says_ledger(text: str) -> bool:
    """Return whether a text mentions a ledger without naming which."""
    return " " in text and bool(re.search(r"(?<!net )(?<!\.)\bledger\b(?! WHERE)", text))


def test_relative_links_lead_to_existing_files() -> None:
    links = [
        (page, target)
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if "://" not in target
    ]
    lost = [
        f"{page.name}: {target}" for page, target in links if not (page.parent / target).exists()
    ]
    assert links and lost == []


def test_prose_is_at_most_100_columns_wide() -> None:
    """Tables, links on a line of their own and program output may be wider."""
    code = re.compile(
        r"^ *```.*?^ *```$|^<!--.*?-->$|^[#|!].*?$|^ *\|.*?$|^`[^`\n]+`\S?$",
        re.MULTILINE | re.DOTALL,
    )
    pages = [page for page in PAGES if page.name not in ("reference.md", "gallery.md", "seeds.md")]
    wide = {
        f"{name_of(page)}: {line}"
        for page in [*pages, *(ROOT / "docs" / "decisions").glob("*.md"), ROOT / "CHANGELOG.md"]
        for line in code.sub("", page.read_text(encoding="utf-8")).splitlines()
        if len(line) > 100
    }
    assert wide == set()


def test_no_page_has_merge_conflict_markers() -> None:
    marks = re.compile(r"^(<{7} .*|={7}|>{7} .*)$", re.MULTILINE)
    assert marks.search("a\n<<<<<<< HEAD\nb")
    assert not [
        f"{path.name}: {mark[0]}"
        for path in [*PAGES, ROOT / "CHANGELOG.md"]
        for mark in marks.finditer(path.read_text(encoding="utf-8"))
    ]


def test_the_glossary_has_at_most_fifteen_words() -> None:
    _, _, glossary = (
        (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8").partition("## Glossary")
    )
    words = re.findall(r"\*\*(.+?)\*\*", glossary)
    assert "tip" in words and len(words) <= 15


PROSE = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def test_public_names_are_documented() -> None:
    names = [*refold.__all__, *strategies.__all__]
    assert names and [name for name in names if not re.search(rf"\b{name}\b", PROSE)] == []


def test_every_page_is_linked_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for page in PAGES[1:]:
        if page.parent.name == "docs":
            assert f"docs/{page.name}" in readme, f"README.md does not link docs/{page.name}"


def test_test_and_source_files_named_on_pages_exist() -> None:
    named = re.findall(r"`((?:tests|src/refold|benchmarks)/[a-z0-9_/]+\.(?:py|toml|json))`", PROSE)
    assert named and [path for path in named if not (ROOT / path).exists()] == []


def test_the_diagram_of_the_floors_matches_the_import_linter() -> None:
    """docs/concepts.md shows the same rooms in the same order as the check by `lint-imports`."""
    page = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    picture = page.partition("## Floors")[2].split("```")[1].strip("\n").splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    assert layers[0] == "__main__"
    assert [set(line[:40].split()) for line in picture] == [
        set(layer.split(" | ")) for layer in layers[1:]
    ]


def test_the_settings_on_the_gateways_page_are_the_defaults() -> None:
    """Copying the refold.toml of docs/gateway.md changes nothing."""
    blocks = [code for _, code in code_blocks(ROOT / "docs" / "gateway.md", "toml")]
    table = tomllib.loads(next(code for code in blocks if "[limits]" in code))
    compaction = table["compaction"] | {"refuse": frozenset(table["compaction"]["refuse"])}
    assert replace(Settings(), **compaction) == Settings()
    assert Limits(**table["limits"]) == Limits()
    config = Config(upstreams=())
    single = {name: value for name, value in table.items() if not isinstance(value, dict | list)}
    assert single == {name: getattr(config, name) for name in single}


def test_every_name_of_the_reference_is_described() -> None:
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(.+)` \|(.*)\|$", text, re.MULTILINE)
    assert len(rows) > 200
    assert [name for name, description in rows if not description.strip()] == []


def test_the_reference_lists_the_public_api_and_no_helpers() -> None:
    """It once listed validation functions, strings of our tests and internals of codecs."""
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    names = set(re.findall(r"^\| `(\w+)", text, re.MULTILINE))
    assert {"Compactor", "StoreError", "check_store", "LAWS", "Codec", "ChatModel"} <= names
    helpers = {
        "require_int",
        "is_number",
        "as_names",
        "PARTS",
        "ODD",
        "decode",
        "patch",
        "build_rows",
    }
    assert names & helpers == set()
    assert re.search(r"\b[SC][0-4]-", text) is None
