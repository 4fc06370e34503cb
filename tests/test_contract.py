"""What others store, send or import by name. It changes with a migration and a line in CHANGELOG only.

`python -m tests.test_contract` writes tests/contract.json anew: look at the difference before you commit it.
"""

import ast
import importlib
import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import pytest
from click.testing import CliRunner

from refold import corpus, strategies
from refold.cli.commands import refold as command_line
from refold.edits import Edit
from refold.gateway.api.app import document
from refold.gateway.api.operations import OPERATIONS
from refold.gateway.config import ENGINE_KEYS, Config
from refold.gateway.ledger.writer import open_ledger, open_transcripts
from refold.gateway.metrics import HELP
from refold.gateway.settings import Limits, Settings, Upstream
from refold.memory import SQLiteMemories
from refold.messages import user
from refold.retrieval import Index
from refold.session_files import demo_session
from refold.stores import SidecarStore, SQLiteStore, schema
from refold.stores.store import LedgerRow
from refold.tokens.model_table import EngineProfile, Rates
from tests.support.sources import syntax_trees

FILE = Path(__file__).with_name("contract.json")
PACKAGES = (
    "refold",
    "refold.adapters.langchain",
    "refold.corpus",
    "refold.gateway",
    "refold.memory",
    "refold.models",
    "refold.presets.cliff",
    "refold.presets.gemini",
    "refold.presets.koog",
    "refold.presets.prune_compact",
    "refold.presets.soft_hard",
    "refold.presets.soft_hard_commands",
    "refold.presets.two_layer",
    "refold.retrieval",
    "refold.scorers",
    "refold.session_files",
    "refold.stores",
    "refold.strategies",
    "refold.summarizers.forms",
    "refold.summarizers.model",
    "refold.testing",
)


def imports() -> dict[str, list[str]]:
    """The public names of each package."""
    return {path: sorted(importlib.import_module(path).__all__) for path in PACKAGES}


def commands() -> dict[str, list[str]]:
    """The options and arguments of each command."""
    return {
        name: sorted(word for parameter in command.params for word in words_of(parameter))
        for name, command in sorted(command_line.commands.items())
    }


def words_of(parameter: click.Parameter) -> list[str]:
    is_option = isinstance(parameter, click.Option)
    return [*parameter.opts, *parameter.secondary_opts] if is_option else [parameter.name.upper()]


def settings() -> dict[str, list[str]]:
    """The keys of refold.toml."""
    tables = {"": Config, "upstream": Upstream, "compaction": Settings, "limits": Limits}
    tables |= {"prices": Rates, "engines": EngineProfile}
    keys = {table: [field.name for field in fields(kind)] for table, kind in tables.items()}
    keys["engines"] += ENGINE_KEYS
    return {table: sorted(names) for table, names in keys.items()}


def variables_and_headers() -> dict[str, list[str]]:
    """Environment variables, and headers of answers."""
    texts = [text for tree in syntax_trees().values() for text in iter_strings(tree)]
    return {
        "variables": sorted({text for text in texts if re.fullmatch(r"REFOLD_[A-Z_]+", text)}),
        "headers": sorted(
            {text for text in texts if re.fullmatch(r"refold-(?:edits|tokens-\w+)", text)}
        ),
    }


def iter_strings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def metrics() -> list[str]:
    """What is counted and timed, without the prefix `refold_`."""
    calls = (
        node
        for tree in syntax_trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    )
    return sorted(
        set(HELP)
        | {
            call.args[0].value
            for call in calls
            if call.func.attr in {"add", "observe"}
            and "counters" in ast.unparse(call.func.value)
            and isinstance(call.args[0], ast.Constant)
        }
    )


def api() -> dict[str, Any]:
    """Operations, and the fields of what they take and answer."""
    schemas = document(OPERATIONS)["components"]["schemas"]
    return {
        "operations": sorted(f"{operation.method} {operation.path}" for operation in OPERATIONS),
        "fields": {
            name: sorted(schema.get("properties", {})) for name, schema in sorted(schemas.items())
        },
    }


def tables() -> dict[str, list[str]]:
    """The tables that are written, as they are created."""
    with TemporaryDirectory() as folder:
        path = Path(folder)
        SQLiteStore(path / "edits.db").close()
        SQLiteMemories(path / "memories.db").close()
        Index(path / "index.db").close()
        open_ledger(str(path / "refold.db")).close()
        open_transcripts(str(path / "refold.db"), 60.0, time.time).close()
        schemas = {
            file.name: list(schema_of(file))
            for file in sorted(path.glob("*.db*"))
            if is_database(file)
        }
    return {**schemas, "postgresql": statements_of(schema.__file__)}


def is_database(file: Path) -> bool:
    return file.read_bytes().startswith(b"SQLite format 3")


def schema_of(file: Path) -> Iterator[str]:
    with closing(sqlite3.connect(file)) as database:
        rows = database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY sql")
        for (sql,) in rows:
            if not sql.startswith("CREATE TABLE '"):  # of SQLite's full-text search
                yield " ".join(sql.split())


def statements_of(path: str) -> list[str]:
    created = (" ".join(text.split()) for text in iter_strings(syntax_trees()[Path(path)]))
    return sorted(text for text in created if re.match("CREATE TABLE .*?refold_", text))


def lines() -> dict[str, Any]:
    """An edit and a ledger row in a file beside a session, and what names a strategy in them."""
    with TemporaryDirectory() as folder:
        store = SidecarStore(Path(folder) / "x.refold")
        store.save([Edit(0, 1, (user("short"),), "t", "by")])
        store.record([LedgerRow(when=1.0, outcome="applied", edit="e")])
        written = [
            json.loads(line) for line in (Path(folder) / "x.refold").read_text("utf-8").splitlines()
        ]
    named = {
        name: repr(getattr(strategies, name)())
        for name in strategies.__all__
        if name not in {"KeepImportant", "RetrieveFacts"}
    }
    return {"written": written, "strategies": named}


def documents() -> dict[str, list[str]]:
    """The keys that commands print with `--json`."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "session.json"
        file.write_text(json.dumps(demo_session(30)), "utf-8")
        runs = {
            "stats": ["stats"],
            "compact": ["compact", "--to", "8k"],
            "view": ["view"],
            "history": ["history"],
            "check": ["check"],
            "recall": ["recall"],
            "preview": ["compact", "--to", "4k", "--preview"],
            "discard": ["discard"],
            "revert": ["revert"],
        }
        answers = {}
        for name, (command, *options) in runs.items():
            query = ["clock"] if name == "recall" else []
            words = [command, str(file), *query, *options, "--json"]
            answers[name] = json.loads(CliRunner().invoke(command_line, words).output)
    return {name: sorted(set(iter_keys(answer))) for name, answer in answers.items()}


def iter_keys(value: Any, path: str = "") -> Iterator[str]:
    """Yield the path of every key; what a session itself holds is not ours."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"{path}{key}"
            if key not in {"entries", "shown"}:
                yield from iter_keys(item, f"{path}{key}.")
    elif isinstance(value, list):
        for item in value:
            yield from iter_keys(item, path)


def corpus_columns() -> dict[str, dict[str, str]]:
    """The columns of what is made of a corpus, in order, with their types."""
    return {name: dict(schema) for name, schema in corpus.SCHEMAS.items()}


PARTS: dict[str, Callable[[], Any]] = {
    "imports": imports,
    "commands": commands,
    "settings": settings,
    "variables and headers": variables_and_headers,
    "metrics": metrics,
    "api": api,
    "tables": tables,
    "lines": lines,
    "documents": documents,
    "corpus": corpus_columns,
}


def test_each_counter_and_timing_has_a_help_text() -> None:
    assert metrics() == sorted(HELP)


@pytest.mark.parametrize("part", PARTS)
def test_public_names_options_and_schemas_match_contract_json(part: str) -> None:
    assert PARTS[part]() == json.loads(FILE.read_text("utf-8"))[part]


if __name__ == "__main__":
    text = json.dumps({part: make() for part, make in PARTS.items()}, indent=1, ensure_ascii=False)
    FILE.write_text(text + "\n", encoding="utf-8")
