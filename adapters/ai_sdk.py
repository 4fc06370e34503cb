"""The Vercel AI SDK through `integrations/ai-sdk`: `python -m adapters.ai_sdk`. To measure the
delay of a call: `python -m adapters.ai_sdk 7 timings`.

Uses the SDK's own loop on Node.js, a gateway in a separate process, and the conversation and model
of `adapters.session`. Packages are installed in .adapters/ai-sdk. Exit code 1 if something
failed.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from adapters.environments import ROOT
from adapters.session import BROKEN, SCRIPT, TRIGGER, TURNS, Model, ToolError, check_part, read_part
from adapters.verdict import Verdict, judge
from refold.testing.scripted_provider import ScriptedProvider
from refold.tokens.count import exact

SOURCE = ROOT / "integrations" / "ai-sdk"
RELEASES = {"7": {}, "6": {"ai": "6.0.326", "@ai-sdk/openai-compatible": "2.0.91"}}
"""Major releases of the SDK, and the packages installed for each instead of those that package.json
pins. Release 7 needs Node.js 22, whose path REFOLD_NODE can give."""
STEP_END = {"7": "onStepEnd", "6": "onStepFinish"}
"""Name of the SDK's callback for the end of a step."""
PRUNED = {"settings": 18, "own": 18, "ours": 0}
"""Number of settings at which signed thinking follows a removed part: with the SDK's
`pruneMessages` (another number means that it was fixed), and with Refold."""
PARTS = ((0, 1), (2,))
PORT = 18_473


def main() -> int:
    """Run every release in both ways, and print the results."""
    if not (shutil.which("npm") and shutil.which(_node())):
        print("the AI SDK is skipped: it needs Node.js 22 and npm", file=sys.stderr)
        return 0
    root = Path(os.environ.get("REFOLD_ADAPTERS", ".adapters")).absolute() / "ai-sdk"
    failed = False
    for release in [name for name in sys.argv[1:] if name != "timings"] or RELEASES:
        home = _install(root / release, RELEASES[release])
        if "timings" in sys.argv:
            for name, *times in _ask_gateway(home, "timings"):
                print(f"ai {release} | {name} | {' | '.join(f'{ms:.1f}' for ms in times)}")
            continue
        subprocess.run([_node(), str(home / "test" / "unreachable.mjs")], check=True)
        pruned = _ask_gateway(home, "prune")
        failed |= pruned != PRUNED
        print(f"ai {release}, pruneMessages: {pruned}; expected: {PRUNED}")
        for mode in ("middleware", "prepareStep"):
            verdict = _hold(home, mode, STEP_END[release])
            is_fine = verdict.is_fine and verdict.reports == len(SCRIPT)
            failed |= not is_fine
            print(f"ai {release}, {mode}: {'as it should' if is_fine else 'FAILED'}: {verdict}")
    return int(failed)


def _install(home: Path, pins: dict[str, str]) -> Path:
    """Return the folder with the built package and its SDK."""
    package = json.loads((SOURCE / "package.json").read_text("utf-8"))
    package["devDependencies"] |= pins
    home.mkdir(parents=True, exist_ok=True)
    for name in ("src", "test", "tsconfig.json"):
        source = SOURCE / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, home / name, **({"dirs_exist_ok": True} if source.is_dir() else {}))
    (home / "package.json").write_text(json.dumps(package), encoding="utf-8")
    install = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"]
    for command in (install, ["npx", "tsc"]):
        subprocess.run(command, cwd=home, check=True, stdout=subprocess.DEVNULL)
    return home


def _node() -> str:
    """Return the path of Node.js: REFOLD_NODE, or the installed one."""
    return os.environ.get("REFOLD_NODE", "node")


def _ask_gateway(home: Path, name: str) -> Any:
    """Return the output of a script of the package's tests that asks no model."""
    with (
        tempfile.TemporaryDirectory() as folder,
        _gateway(Path(folder), "http://127.0.0.1:9") as gateway,
    ):
        command = [_node(), str(home / "test" / f"{name}.mjs"), gateway]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def _hold(home: Path, mode: str, step_end: str) -> Verdict:
    model = Model(exact("o200k_base"))
    with (
        tempfile.TemporaryDirectory() as folder,
        ScriptedProvider(model) as provider,
        _gateway(Path(folder), provider.url) as gateway,
    ):
        place, results = Path(folder), list[dict[str, Any]]()
        for turns in PARTS:
            way = {"mode": mode, "onStepEnd": step_end}
            job = {"url": provider.url, "gateway": gateway, **way, **_script(turns, place)}
            given, result = place / "job.json", place / "result.json"
            given.write_text(json.dumps(job), encoding="utf-8")
            command = [_node(), str(home / "test" / "agent.mjs"), str(given), str(result)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
            if done.returncode:
                raise RuntimeError(done.stderr[-3_000:])
            answer = json.loads(result.read_text("utf-8"))
            results.append({**answer, "turns": turns})
        booked = _wait_for_calls(gateway)
        return judge(model, place, [{**result, "reports": booked} for result in results])


def _wait_for_calls(gateway: str) -> int:
    """Return the number of calls recorded with usage, once all are there or after 5 seconds."""
    calls = 0
    for _ in range(50):
        with urlopen(f"{gateway}/refold/api/overview", timeout=30) as answer:
            totals = json.load(answer)["totals"]
        calls = totals["calls"] if totals["original"] > totals["sent"] > 0 else 0
        if calls >= len(SCRIPT):
            break
        sleep(0.1)
    return calls


def _script(turns: tuple[int, ...], place: Path) -> dict[str, Any]:
    parts = [f"part-{n:02}" for n in range(100)]
    checks = {}
    for part in parts:
        try:
            checks[part] = check_part(part)
        except ToolError as error:
            checks[part] = str(error)
    images = (base64.b64encode(TURNS[at].image).decode() for at in turns)
    return {
        "trigger": TRIGGER,
        "broken": BROKEN,
        "logs": {part: read_part(part) for part in parts},
        "checks": checks,
        "file": str(place / "messages.json"),
        "turns": [
            {"text": TURNS[at].text, "streams": TURNS[at].streams, "image": image}
            for at, image in zip(turns, images, strict=True)
        ],
    }


@contextmanager
def _gateway(place: Path, upstream: str) -> Iterator[str]:
    """Run a gateway in a separate process."""
    command = [sys.executable, "-m", "refold", "serve", "--upstream", upstream]
    command += ["--port", str(PORT), "--store", str(place / "refold.db")]
    with (place / "gateway.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(command, cwd=place, stdout=log, stderr=log)
        address = f"http://127.0.0.1:{PORT}"
        try:
            _wait(f"{address}/refold/api/openapi.json", process)
            yield address
        finally:
            process.terminate()
            process.wait(30)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        try:
            with urlopen(url, timeout=2):
                return
        except (URLError, OSError):
            if process.poll() is not None:
                break
            sleep(0.1)
    raise RuntimeError("the gateway does not start")


if __name__ == "__main__":
    sys.exit(main())
