"""The shape of the source: small files, short functions, cheap imports."""

import ast
import re
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FrameType

import httpx
import pytest

import refold
import refold.gateway
import refold.models
from refold.testing.scripted_gateway import Serving
from refold.testing.scripted_provider import Reply, ScriptedProvider
from tests.support.sources import FILES, SOURCE, pause_collector, syntax_nodes

TESTS = Path(__file__).parents[1]
BESIDE = ["adapters", "benchmarks", "clients", "deploy", "engines", "integrations", "release"]
"""Folders with code that is neither the package nor a test."""


MODULES = 250
"""Limits that may fall and not rise."""
SINGLE_IMPORTERS = 0.19
LONG_FILES = 74
"""Files of more than 300 lines: each is one subject (docs/decisions/0031-size.md)."""
IDLE_MODULES = 13
"""Number of modules that run in a turn without any compaction."""
IDLE_CALLS = 109
LIGHT_MODULES = 16
"""Number of the gateway's modules that a light request runs through, from its head to its last
byte."""
IMPORTED_BY_NAME = 11
"""Number of our modules that functions import by `import_module`: `refold hook` and a view's
reports are loaded on demand, stores because a package may be missing."""
PARTICIPLES = 1
VAGUE_VARIABLES = 0
VAGUE = frozenset(
    [
        "one",
        "said",
        "found",
        "made",
        "told",
        "known",
        "kept",
        "other",
        "others",
        "what",
        "few",
        "more",
        "left",
    ]
)
"""Variable names without meaning."""
IRREGULAR = frozenset(
    [
        "told",
        "kept",
        "held",
        "said",
        "made",
        "found",
        "sent",
        "given",
        "taken",
        "known",
        "left",
        "lost",
        "heard",
        "hidden",
        "shown",
        "seen",
        "written",
        "spoken",
        "gone",
        "done",
        "bound",
        "thought",
        "spent",
        "built",
        "begun",
        "chosen",
        "drawn",
        "driven",
        "fallen",
        "felt",
        "forgotten",
        "got",
        "grown",
        "meant",
        "met",
        "paid",
        "proved",
        "read_",
        "sealed",
        "sold",
        "stood",
        "struck",
        "sworn",
        "torn",
        "thrown",
        "understood",
        "worn",
        "won",
        "wound",
    ]
)
"""Participles that do not end in -ed."""


def is_participle(name: str) -> bool:
    """Return whether a function name is a past participle instead of a verb."""
    first = name.strip("_").split("_")[0]
    return first in IRREGULAR or (
        first.endswith("ed") and len(first) > 4 and first not in {"need", "embed", "feed", "seed"}
    )


def is_value(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function is read as a value, so that its name is a noun."""
    return any(
        re.fullmatch(r"(cached_)?property|pytest\.fixture.*", ast.unparse(decorator))
        for decorator in node.decorator_list
    )


@cache
@pause_collector()
def names_given() -> list[tuple[str, str, bool]]:
    """Return functions and variables of all code: place, name, and whether it is a function."""
    names = list[tuple[str, str, bool]]()
    for path, nodes in iter_code():
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_value(node):
                names.append((f"{path}:{node.lineno}", node.name, True))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.append((f"{path}:{node.lineno}", node.id, False))
    return names


def iter_code() -> Iterator[tuple[Path, Iterable[ast.AST]]]:
    """Yield each file of the package, the tests and the folders beside, with its syntax nodes."""
    yield from syntax_nodes().items()
    for folder in [TESTS, *BESIDE]:
        for path in (TESTS.parent / folder).rglob("*.py"):
            yield path, ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def functions():
    for nodes in syntax_nodes().values():
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines of code, without the docstring."""
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 1


def test_the_median_function_has_under_ten_lines() -> None:
    assert statistics.median(map(length, functions())) < 10


def test_no_function_is_longer_than_a_screen() -> None:
    assert {node.name: length(node) for node in functions() if length(node) > 50} == {}


def test_the_top_of_the_package_fits_on_a_screen() -> None:
    entries = [
        path for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    ]
    assert len(entries) <= 28, sorted(path.name for path in entries)


def test_the_number_of_modules_is_limited() -> None:
    assert len(FILES) <= MODULES


def test_most_modules_are_imported_by_more_than_one_other() -> None:
    """A module with one importer is usually a part of it."""
    importers: dict[str, set[Path]] = {}
    names = {
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts): path for path in FILES
    }
    for path, nodes in syntax_nodes().items():
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("refold"):
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    importers.setdefault(full if full in names else node.module, set()).add(path)
    single = sorted(
        name for name, path in names.items() if len(importers.get(name, set()) - {path}) == 1
    )
    assert len(single) <= SINGLE_IMPORTERS * len(FILES), single


def test_a_turn_below_the_trigger_makes_few_calls() -> None:
    compact = refold.Compactor(refold.default_strategies(20_000), refold.Budget(60_000, 20_000))
    history = [
        message
        for n in range(10)
        for message in (
            {"role": "user", "content": f"please do step {n}"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": f"c{n}",
                        "type": "function",
                        "function": {"name": "read", "arguments": "{}"},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": f"c{n}", "content": f"line of output {n}\n" * 200},
        )
    ]
    compact(history)
    calls = list[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            calls.append(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        compact([*history, {"role": "user", "content": "go on"}])
    finally:
        sys.setprofile(before)
    assert len(set(calls)) <= IDLE_MODULES, sorted(set(calls))
    assert len(calls) <= IDLE_CALLS


def test_a_light_request_passes_through_few_modules() -> None:
    """The event loop of a process that has answered before runs them. The ledger entry follows a
    second later, in a thread of its own."""
    modules, is_on = set[str](), threading.Event()

    def note(frame: FrameType, event: str, _: object) -> None:
        if is_on.is_set() and event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            modules.add(frame.f_code.co_filename)

    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    with ScriptedProvider(lambda _: Reply("Hello.", usage=(10, 2, 0))) as provider:
        upstream = refold.gateway.Upstream(name="up", url=provider.url)
        config = refold.gateway.Config(upstreams=(upstream,), store=":memory:", salt=b"s")
        gateway = refold.gateway.create_gateway(config)
        threading.setprofile(note)  # applies to new threads: the server's
        with Serving(gateway) as served, httpx.Client(base_url=served.url) as client:
            client.get("/refold/health").raise_for_status()  # running now
            threading.setprofile(None)
            rounds = list[set[str]]()
            for is_warm in (False, False, *[True] * 6):
                modules.clear()
                if is_warm:
                    is_on.set()
                client.post("/v1/chat/completions", json=body).raise_for_status()
                is_on.clear()
                rounds += [set(modules)] if is_warm else []
    lightest = min(rounds, key=len)  # periodic work may fall into some rounds
    assert str(SOURCE / "gateway" / "relay.py") in lightest
    assert len(lightest) <= LIGHT_MODULES, " ".join(sorted(lightest))


def test_few_files_have_over_300_lines_and_none_over_550() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert sum(count > 300 for count in lines.values()) <= LONG_FILES
    assert [(str(path), count) for path, count in lines.items() if count > 550] == []


def test_docstrings_are_at_most_100_columns_wide() -> None:
    """The formatter enforces it for code. Texts that programs show, and patterns, may be wider."""
    wide = list[str]()
    for path, nodes in syntax_nodes().items():
        lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        numbers = {number for number, line in lines if len(line) > 100}
        for node in nodes if numbers else ():
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                inside = numbers.intersection(range(node.lineno, (node.end_lineno or 0) + 1))
                wide += [f"{path.relative_to(SOURCE)}:{number}" for number in inside]
    assert not wide, sorted(wide)


def test_the_http_client_has_at_most_450_lines() -> None:
    """docs/decisions/0018-gateway-client.md: a longer one would be replaced by aiohttp's."""
    client = SOURCE / "gateway" / "http" / "client.py"
    assert len(client.read_text(encoding="utf-8").splitlines()) <= 450


def test_few_functions_are_named_by_a_bare_participle() -> None:
    """No bare participle (`told`, `kept`): a function is a verb, a predicate begins with is or has,
    a value is a noun."""
    named = {
        f"{place} {name}"
        for place, name, is_function in names_given()
        if is_function and is_participle(name)
    }
    assert len(named) <= PARTICIPLES, sorted(named)


def test_few_variables_have_vague_names() -> None:
    vague = {
        f"{place} {name}"
        for place, name, is_function in names_given()
        if not is_function and name in VAGUE
    }
    assert len(vague) <= VAGUE_VARIABLES, sorted(vague)


def test_no_function_contains_an_import() -> None:
    inside = [
        f"{n.name}:{i.lineno}"
        for n in functions()
        for i in ast.walk(n)
        if isinstance(i, ast.Import | ast.ImportFrom)
    ]
    assert inside == []


def test_few_functions_import_our_modules_by_name() -> None:
    names = [
        f"{path.relative_to(SOURCE)}: {node.args[0].value}"
        for path, nodes in syntax_nodes().items()
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "import_module"
        and isinstance(node.args[0], ast.Constant)
        and node.args[0].value.startswith("refold.")
    ]
    assert len(names) <= IMPORTED_BY_NAME, names


def test_no_module_has_a_meaningless_name() -> None:
    assert not {path.stem for path in FILES} & {
        "utils",
        "util",
        "helpers",
        "helper",
        "common",
        "misc",
        "manager",
        "base",
    }


def test_a_public_function_and_a_module_never_share_a_name() -> None:
    modules = {path.stem for path in SOURCE.glob("*.py")} | {
        path.name for path in SOURCE.iterdir() if path.is_dir()
    }
    assert not modules & set(refold.__all__)


def test_everything_public_has_a_docstring() -> None:
    bare = [name for name in refold.__all__ if not getattr(refold, name).__doc__]
    assert bare == []


@pytest.mark.parametrize("package", [refold, refold.gateway, refold.models])
def test_the_stub_of_a_package_matches_its_lazily_imported_names(package) -> None:
    """Stub and table name the same objects of the same modules."""
    assert package.__file__
    stub = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    homes = {alias.asname: node.module for node in imports for alias in node.names if alias.asname}
    assert sorted(homes) == package.__all__
    assert set(package.__all__) <= set(dir(package))
    for name, module in homes.items():
        assert getattr(package, name) is getattr(import_module(str(module)), name)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        package.nothing  # noqa: B018 - reading it is the test


def test_importing_refold_imports_only_the_standard_library() -> None:
    code = (
        "import sys, refold; [getattr(refold, name) for name in refold.__all__]; "
        "print(sorted({m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names) - {'refold', '__main__'}))"
    )
    out = subprocess.run(
        [
            sys.executable,
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(SOURCE.parent)!r}); {code}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.strip() == "[]"


IMPORT_OF_TESTS = re.compile(r"^\s*from (tests\.[\w.]*\btest_\w+) import", re.MULTILINE)


def test_no_test_file_imports_another() -> None:
    """Shared code of test files is in `tests/support`."""
    imports = {
        f"{path.relative_to(TESTS)}: {module}"
        for path in TESTS.rglob("*.py")
        for module in IMPORT_OF_TESTS.findall(path.read_text(encoding="utf-8"))
    }
    assert imports == set()


POSIX = {"curses", "fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "termios", "tty"}
NOT_ON_WINDOWS = {"SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGKILL", "getuid", "killpg"}


def test_no_module_imports_a_package_that_windows_lacks() -> None:
    imports, names = set[str](), set[str]()
    for path, nodes in syntax_nodes().items():
        for node in nodes:
            if isinstance(node, ast.Import):
                imports |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imports.add((node.module or "").partition(".")[0])
            elif isinstance(node, ast.Attribute) and node.attr in NOT_ON_WINDOWS:
                names.add(f"{path.stem}: {node.attr}")
    assert "socket" in imports
    assert not imports & POSIX
    assert names <= {"serve: SIGHUP"}  # behind hasattr
