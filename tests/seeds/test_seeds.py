"""docs/seeds.md: every requirement of the five seed systems, with the name to use and the test that proves it."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

import pytest

ROOT = Path(__file__).parents[2]
ROWS = {"S0": 49, "S1": 40, "S2": 55, "S3": 29, "S4": 24}
"""How many requirements each seed states."""
CONTRADICTIONS = {"C0": 13, "C1": 14, "C2": 15, "C3": 8, "C4": 14, "X": 6}
"""Where they contradict themselves or one another."""
ID = re.compile(r"\b(?:S[0-4]-\d\d|(?:C[0-4]|X)-\d+)\b")
RANGE = re.compile(r"\b(S[0-4])-(\d\d)(?:\.\.| to )(?:S[0-4]-)?(\d\d)\b")
LINE = re.compile(
    r"^\| (S[0-4]-\d\d|(?:C[0-4]|X)-\d+) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE
)
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


def list_rows() -> list[str]:
    return [f"{seed}-{number:02}" for seed, count in ROWS.items() for number in range(1, count + 1)]


def contradictions() -> list[str]:
    return [
        f"{kind}-{number}"
        for kind, count in CONTRADICTIONS.items()
        for number in range(1, count + 1)
    ]


def page() -> dict[str, tuple[str, str, str]]:
    text = (ROOT / "docs" / "seeds.md").read_text("utf-8")
    return {id: (requirement, name, proof) for id, requirement, name, proof in LINE.findall(text)}


@cache
def proofs() -> dict[tuple[str, str], set[str]]:
    """The rows that each test's docstring names, by file and function."""
    rows = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        text = file.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if ID.search(text) else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
                "test_"
            ):
                rows[file.relative_to(ROOT / "tests").as_posix(), node.name] = set(
                    rows_in(ast.get_docstring(node) or "")
                )
    return rows


def rows_in(text: str) -> Iterator[str]:
    yield from ID.findall(text)
    for seed, first, last in RANGE.findall(text):
        yield from (f"{seed}-{number:02}" for number in range(int(first), int(last) + 1))


def test_every_row_of_the_seeds_and_every_contradiction_is_on_the_page():
    assert list(page()) == list_rows() + contradictions()


@pytest.mark.parametrize("seed", [*ROWS, *CONTRADICTIONS])
def test_every_row_names_a_test_that_proves_it(seed):
    rows, wrong = proofs(), []
    for id, (_, name, proof) in page().items():
        named = TEST.findall(proof)
        if id.startswith(f"{seed}-") and not (
            named and all(id in rows.get(proof_named, ()) for proof_named in named) and "`" in name
        ):
            wrong.append(id)
    assert wrong == []


def test_every_name_and_contradiction_that_a_row_mentions_exists():
    source = "\n".join(file.read_text("utf-8") for file in (ROOT / "src" / "refold").rglob("*.py"))
    words = {
        *re.findall(r"\w+", source),
        "make",
        "bench",
        *(file.stem for file in (ROOT / "src").rglob("*")),
    }
    lost = []
    for id, (_, name, _) in page().items():
        named = {
            word
            for code in re.findall(r"`([^`]+)`", name)
            for word in re.findall(r"\b[A-Za-z]\w+", code)
        }
        lost += [(id, word) for word in sorted(named - words - {"MyCompressor"})]
        for dotted in re.findall(r"`(refold(?:\.\w+)+)", name):
            assert resolve_name(dotted) is not None
        lost += [(id, row) for row in rows_in(name) if row not in contradictions()]
    assert lost == []
