"""Write docs/reference.md: every public name with its signature and the first sentence about it.

python docs/reference.py > docs/reference.md
"""

import ast
import importlib
import inspect
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any, TypeVar

from refold.codecs.codec import Codec

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise it uses the network

PARTS = {
    "Compacting": ["refold"],
    "Strategies": ["refold.strategies", "refold.scorers", "refold.core.strategy"],
    "Summaries": ["refold.summarizers.model", "refold.summarizers.forms"],
    "When it runs": [
        "refold.budget.triggers",
        "refold.compactor.hooks",
        "refold.tokens.model_table",
    ],
    "Models": ["refold.models"],
    "Formats and rules": ["refold.codecs.codec", "refold.rules.rule"],
    "Stores": ["refold.stores", "refold.stores.store"],
    "Search and memory": ["refold.retrieval", "refold.memory"],
    "Session files": ["refold.session_files"],
    "Corpora": ["refold.corpus"],
    "Frameworks": [
        "refold.adapters.langchain",
        "refold.adapters.langgraph",
        "refold.adapters.opentelemetry",
    ],
    "Gateway": ["refold.gateway"],
    "Tests of your own": [
        "refold.testing",
        "refold.testing.store_laws",
        "refold.testing.scripted_provider",
    ],
    "Errors": ["refold.errors"],
}
HEAD = """# Reference

The library's public names, with the first sentence of each docstring; `help(name)` says units,
shapes and errors. Presets and most [adapters](frameworks.md) have pages of their own. `make
reference` writes this page.

In docstrings `AN-`, `OA-`, `GE-` and `DS-` with a number are [rules of
providers](formats.md#rules-what-providers-refuse). Other codes are for whoever changes Refold
([CONTRIBUTING](../CONTRIBUTING.md#how-we-write)).

| environment variable | meaning |
|---|---|
| `REFOLD_ADMIN_TOKEN`, `REFOLD_SALT`, `REFOLD_STORE`, `REFOLD_CONFIG`, `REFOLD_UPSTREAMS` | of the [gateway](gateway.md#environment-variables) |
| `REFOLD_SHARED` | where tests and benchmarks find recordings of real clients (default: `shared` beside the repository) |
| `HYPOTHESIS_PROFILE` | how many examples the property tests draw: `dev`, `ci`, `nightly` |
| `NO_COLOR`, `TERM=dumb` | no colours on the command line |
"""


CODEC = frozenset(name for name in dir(Codec) if not name.startswith("_"))
IS_CODEC = (
    "The module is a codec: pass it as `format=`. `refold.codecs.codec.Codec` says what it has."
)


def is_codec(module: ModuleType) -> bool:
    return set(dir(module)) >= CODEC


def public_names(module: ModuleType) -> list[str]:
    """Return the names in a module's `__all__`, or its names without an underscore. For a codec,
    leave out the names that every codec has."""
    names = getattr(module, "__all__", None)
    if names is not None:
        return [name for name in names if not (is_codec(module) and name in CODEC)]
    tree = ast.parse(inspect.getsource(module))
    defined = (
        [node.name]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        else [target.id for target in targets(node) if isinstance(target, ast.Name)]
        for node in tree.body
    )
    return [
        name
        for names in defined
        for name in names
        if not name.startswith("_") and not isinstance(getattr(module, name), TypeVar)
    ]


def targets(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) else []


def describe(module: ModuleType, name: str) -> str:
    """Return the first sentence of the string below a value's assignment, or of its docstring."""
    value, below = getattr(module, name), text_below(module, name)
    has_own = isinstance(value, ModuleType) or inspect.isclass(value) or inspect.isroutine(value)
    return first_sentence(below or (inspect.getdoc(value) or "" if has_own else ""))


def text_below(module: ModuleType, name: str) -> str:
    """Return the string below a value's assignment, in its module or where it is imported from."""
    homes = [
        module.__name__,
        *re.findall(
            rf"from ([\w.]+) import (?:\([^)]*|[^\n(]*)\b{name}\b", inspect.getsource(module)
        ),
    ]
    for home in homes:
        body = ast.parse(inspect.getsource(importlib.import_module(home))).body
        for node, after in itertools.pairwise(body):
            assigned = [target.id for target in targets(node) if isinstance(target, ast.Name)]
            if (
                name in assigned
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                return str(after.value.value)
    return ""


def first_sentence(text: str) -> str:
    """Return the first sentence, without the ids of seed rows."""
    paragraph = " ".join(text.split("\n\n", maxsplit=1)[0].split())
    paragraph = re.sub(r" \((?:[SCX]\d?-\d+[,; ]*)+\)", "", paragraph)
    sentence = re.match(r".*?[.:?](?= [A-Z*`]|$)", paragraph)
    return (sentence[0] if sentence else paragraph).rstrip(":").replace("|", "\\|")


def signature(value: object, name: str) -> str:
    """Return the signature that creates or calls *value*, without annotations."""
    is_plain = inspect.isclass(value) or inspect.isroutine(value)
    if not is_plain or value is Any or getattr(value, "_is_protocol", False):
        return name
    if inspect.isclass(value) and issubclass(value, Exception):
        return name
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return name
    return f"{name}({', '.join(spell_parameters(parameters))})"


def spell_parameters(parameters: Iterable[inspect.Parameter]) -> Iterator[str]:
    keyword = False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword:
            keyword = True
            yield "*"
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        keyword = keyword or stars == "*"
        default = (
            "" if parameter.default is parameter.empty else f"={spell_default(parameter.default)}"
        )
        yield f"{stars}{parameter.name}{default}"


def spell_default(value: object) -> str:
    """Return the default as Python code, or `...` if that is long."""
    text = repr(value)
    return text if len(text) <= 20 and "<" not in text else "..."


def write() -> str:
    """Return the whole page."""
    lines = [HEAD]
    for title, modules in PARTS.items():
        lines.append(f"## {title}\n")
        for path in modules:
            module = importlib.import_module(path)
            lines.append(f"`{path}`\n")
            lines += [f"{IS_CODEC}\n"] if is_codec(module) else []
            lines += ["| name | |", "|---|---|"]
            for name in public_names(module):
                call = signature(getattr(module, name), name).replace("|", "\\|")
                lines.append(f"| `{call}` | {describe(module, name)} |")
            lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(write(), end="")
