"""Builds the wheel and the sdist, checks their contents, and installs them with each extra."""

import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

from packaging.requirements import Requirement

from release.environments import (
    PLACE,
    ROOT,
    TOOLS,
    CheckError,
    create_environment,
    megabytes,
    run,
)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
DIST = ROOT / "dist"
MOST_WHEEL_MEGABYTES = 2.0
EXTRAS = {
    "agent-framework": "import refold.adapters.agent_framework",
    "anthropic": "from refold.models import AnthropicModel as M; M.make_client(api_key='none')",
    "cli": "import refold.cli.commands",
    "corpus": "import pyarrow.parquet, refold.corpus.output",
    "exact": "from refold.tokens.count import exact; assert exact('o200k_base')('two words') == 2",
    "gateway": "from refold import gateway as g; "
    "g.create_gateway(g.Config(store=':memory:', upstreams=(g.parse_upstream('openai'),)))",
    "google-adk": "import refold.adapters.google_adk",
    "haystack": "import refold.adapters.haystack",
    "langchain": "import refold.adapters.langchain, refold.adapters.langgraph",
    "langchain-agents": "import refold.adapters.langchain_agents",
    "litellm": "import refold.adapters.litellm, refold.models as m; m.LiteLLMModel(model='m')",
    "mcp": "import refold.cli.mcp_server",
    "openai": "from refold.models import OpenAIModel as M; M.make_client(api_key='none')",
    "openai-agents": "import refold.adapters.openai_agents",
    "openhands": "import refold.adapters.openhands",
    "otel": "from refold.adapters.opentelemetry import spans; spans()",
    "postgresql": "import refold.stores.postgresql",
    "pydantic-ai": "import refold.adapters.pydantic_ai",
    "strands": "import refold.adapters.strands",
    "testing": "from refold.testing import transcripts; transcripts()",
    "zst": "import zstandard, refold.session_files",
}
"""What a user can do with each extra, and not without it."""
LIBRARY = """
import refold
from refold.session_files import demo_session
view = refold.compact(demo_session(), to=50_000)
assert view.edits and view.tokens <= 50_000, view
"""
"""What works without extras."""


def build() -> tuple[Path, Path]:
    """Build the sdist from the files in git, and the wheel from the sdist. Raises `CheckError`."""
    shutil.rmtree(DIST, ignore_errors=True)
    words = [TOOLS / "uv", "build", "--no-build-isolation", "--python", TOOLS / "python"]
    run([*words, "--out-dir", DIST, ROOT], PLACE)
    (sdist,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    run([TOOLS / "twine", "check", "--strict", sdist, wheel], PLACE)
    return sdist, wheel


def check_contents(sdist: Path, wheel: Path) -> str:
    """Return a line on the contents of both. Raises `CheckError` if the wheel has anything but the
    package, or the sdist anything but the files in git."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    tracked = set(subprocess.check_output(listed, cwd=ROOT, text=True).splitlines())
    tracked = {name for name in tracked if (ROOT / name).exists()}
    with tarfile.open(sdist) as archive:
        sources = {
            member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()
        }
    with zipfile.ZipFile(wheel) as package:
        names = set(package.namelist())
    info = f"refold-{PROJECT['version']}.dist-info"
    wanted = {name.removeprefix("src/") for name in tracked if name.startswith("src/refold/")}
    surplus = {name for name in names if not name.startswith(f"{info}/")} ^ wanted
    surplus |= sources ^ (tracked | {"PKG-INFO"})
    needed = {"refold/py.typed", f"{info}/licenses/LICENSE", f"{info}/entry_points.txt"}
    if surplus or needed - names:
        raise CheckError(f"surplus or missing: {sorted(surplus)[:9]} {sorted(needed - names)}")
    if wheel.stat().st_size > MOST_WHEEL_MEGABYTES * 1e6:
        raise CheckError(f"the wheel has {wheel.stat().st_size / 1e6:.1f} MB")
    sizes = [f"{path.name} {path.stat().st_size / 1e6:.2f} MB" for path in (wheel, sdist)]
    return f"{sizes[0]}, {len(names)} files; {sizes[1]}, {len(sources)} files"


def has_packages(extra: str) -> bool:
    """Return whether the extra has packages for this Python. OpenHands needs 3.12 or later."""
    markers = (Requirement(line).marker for line in PROJECT["optional-dependencies"][extra])
    return any(marker is None or marker.evaluate() for marker in markers)


def check_extra(wheel: Path, extra: str) -> tuple[str, int, float]:
    """Install the wheel with an extra, or none if it is empty, into a clean environment and use it
    there. Return what works, packages and megabytes. Raises `CheckError`."""
    home = PLACE / "extra"
    python = create_environment(home)
    before = megabytes(home)
    pip = [TOOLS / "pip", "--python", python]
    install = [*pip, "install", "--quiet", "--no-compile", "--only-binary", ":all:"]
    run([*install, f"{wheel}[{extra}]" if extra else wheel], PLACE)
    run([*pip, "check"], PLACE)
    code = EXTRAS.get(extra, LIBRARY)
    run([python, "-P", "-c", code], PLACE, {"LITELLM_LOCAL_MODEL_COST_MAP": "True"})
    has_command = extra in {"cli", "gateway", "mcp"}
    for words in ([python, "-P", "-m", "refold"], [home / "bin" / "refold"]):
        text = run(
            [*words, "--version"], PLACE, expected=0 if has_command else _code_without(python)
        )
        if PROJECT["version"] not in text and "install Refold with its extra 'cli'" not in text:
            raise CheckError(f"{words[-1]} --version: {text}")
    listed = run([*pip, "list", "--format", "freeze"], PLACE).splitlines()
    return code.strip().splitlines()[-1], len(listed) - 1, megabytes(home) - before


def _code_without(python: Path) -> int:
    """Return the command line's exit code without its extra. Other extras bring click too."""
    code = "import sys; from importlib.util import find_spec as f; "
    code += "sys.exit(0 if f('click') and f('rich') else 2)"
    return subprocess.run([python, "-c", code], check=False).returncode


def check_runners(wheel: Path) -> list[tuple[str, str]]:
    """Run the command from the wheel with uvx and pipx, and return the commands and their output.
    Raises `CheckError`."""
    package = f"{wheel}[cli,gateway]"
    place = PLACE / "runners"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    own = {f"PIPX_{name}": str(place / name.lower()) for name in ("HOME", "BIN_DIR", "MAN_DIR")}
    own |= {"UV_CACHE_DIR": str(place / "uv"), "UV_PYTHON": sys.executable, "UV_SYSTEM_CERTS": "1"}
    lines = list[tuple[str, str]]()
    for title, words in (
        (f"uvx --from '{wheel.name}[cli,gateway]' refold", ["uvx", "--from", package, "refold"]),
        (
            f"pipx run --spec '{wheel.name}[cli,gateway]' refold",
            ["pipx", "run", "--spec", package, "refold"],
        ),
    ):
        call = [TOOLS / words[0], *words[1:]]
        version = f"refold {PROJECT['version']}"
        if version not in run([*call, "--version"], place, own).splitlines():
            raise CheckError(f"{title} --version does not say {version}")
        run([*call, "demo", "--turns", "5"], place, own)
        run([*call, "serve", "--upstream", "openai", "--check"], place, own)
        lines.append((title, version))
    return lines
