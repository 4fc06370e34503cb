"""The plugin inside the real Claude Code: `python -m clients.plugin`. It is installed as its
documentation says. The scripted model runs tools, and reads what the hook left out through the
plugin's own MCP server. The model's later requests are judged."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from clients import claude_code, task
from clients.model import is_for_an_answer
from clients.outside import refuse_way_out
from clients.run import bare_environment, program_path
from refold import check
from refold.testing.scripted_provider import Call, Received, Reply, ScriptedProvider

PLUGIN = Path(__file__).parents[1] / "integrations/claude-code"
CLIENT = claude_code.CLIENTS[1]
WORDS = ("-p", "--model", CLIENT.model, "--dangerously-skip-permissions")
LONG = "cat part-01.log part-02.log part-03.log"
HIDDEN = task.note("part-02.log", task.code("part-02.log"))
"""Text in the middle of that output."""
SERVER = "mcp__plugin_refold_refold__"
STEPS: Sequence[tuple[str, dict[str, Any]]] = (
    ("Bash", {"command": LONG}),
    ("Bash", {"command": "cat part-04.log"}),
    ("Bash", {"command": "cat part-04.log", "description": "Once more"}),
    (f"{SERVER}recall", {"query": "part-02 code"}),
    (f"{SERVER}unfold", {"edit": "toolu_0001"}),
    ("Read", {"file_path": "part-05.log"}),
)
"""Tool calls of the model with their arguments."""
SEARCHES = 20
"""Maximum number of searches for a tool of a server that is not connected yet."""


def main() -> int:
    """Print what is wrong, and return 1 if anything is."""
    install = Path(os.environ.get("REFOLD_CLIENTS", ".clients")).absolute()
    troubles = list(try_plugin(install))
    for trouble in troubles:
        print(f"the plugin of {CLIENT.name}: {trouble}")
    if not troubles:
        print(f"the plugin of {CLIENT.name}: what the hook changes, recalls and keeps is there")
    return int(bool(troubles))


class Model:
    """A model that calls one tool after another, then says that it is done. It searches for tools
    of servers first."""

    def __init__(self) -> None:
        self.requests = list[Received]()
        self.step = self.searches = 0

    def __call__(self, received: Received) -> Reply:
        """Take the next step of a conversation, or answer a request outside it."""
        tools = [tool["name"] for tool in received.json.get("tools") or ()]
        if not is_for_an_answer(received) or not tools:
            return Reply("A title.")
        self.requests.append(received)
        if self.step >= len(STEPS):
            return Reply("All is read.", id=f"{len(self.requests):04}")
        name, arguments = STEPS[self.step]
        if name.startswith(SERVER) and name not in tools and self.searches < SEARCHES:
            self.searches += 1
            time.sleep(0.5)
            call = Call("ToolSearch", {"query": f"select:{name}"}, id=f"search_{self.searches:04}")
        else:
            self.step += 1
            call = Call(name, arguments, id=f"toolu_{self.step:04}")
        return Reply("Next.", calls=(call,), id=f"{len(self.requests):04}")


def try_plugin(install: Path) -> Iterator[str]:
    """Yield what is wrong."""
    model = Model()
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        home, work = root / "home", root / "work"
        home.mkdir()
        work.mkdir()
        task.lay_out(work)
        upstream = stack.enter_context(ScriptedProvider(model))
        way_out = stack.enter_context(refuse_way_out())
        command = CLIENT.configure(home, upstream.url)
        environment = (
            bare_environment(home, install) | way_out.environment | dict(command.environment)
        )
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")

        def run(*words: str) -> None:
            done = subprocess.run(
                [program_path(CLIENT, install), *words], cwd=work, env=environment, capture_output=True,
                text=True, stdin=subprocess.DEVNULL, timeout=120, check=False,
            )  # fmt: skip
            if done.returncode:
                raise RuntimeError(f"{words}: {done.stdout[-500:]}{done.stderr[-500:]}")

        run("plugin", "marketplace", "add", str(PLUGIN))
        run("plugin", "install", "refold@refold")
        run(*WORDS, "Read the logs.")
        yield from _judge(model.requests, upstream.received)
        run(*WORDS, "/refold:report")
        asked = json.dumps(model.requests[-1].json["messages"])
        if "largest" not in asked or "Bash" not in asked:
            yield f"/refold:report says nothing: {asked[-500:]}"
        run(*WORDS, "/refold:preview --to 5k")
        asked = json.dumps(model.requests[-1].json["messages"])
        if "5,000" not in asked or "nothing was written (--dry-run)" not in asked:
            yield f"/refold:preview says nothing: {asked[-500:]}"
        run(*WORDS, "--continue", "/compact")
        copies = list((home / ".local/share/refold/sessions").glob("*"))
        if not copies:
            yield "no session was kept before the compaction"


def _judge(requests: Sequence[Received], received: Sequence[Received]) -> Iterator[str]:
    """Yield what is wrong with the requests of the session."""
    results = {
        block["tool_use_id"]: json.dumps(block["content"])
        for entry in requests[-1].json["messages"]
        for block in entry["content"]
        if isinstance(block, dict) and block.get("type") == "tool_result"
    }
    if faults := [
        fault
        for each in received
        if is_for_an_answer(each)
        for fault in check(each.json, "anthropic")
    ]:
        yield f"invalid: {faults[:3]}"
    cut = results["toolu_0001"]
    if "characters left out (edit toolu_0001)" not in cut or HIDDEN in cut:
        yield f"a long result is not cut: {cut[:200]} ... {cut[-200:]}"
    if "the same result as before (call toolu_0002, edit toolu_0003)" not in results["toolu_0003"]:
        yield f"a result that comes again is shown again: {results['toolu_0003'][:200]}"
    for at in (4, 5):
        if HIDDEN not in results[f"toolu_{at:04}"]:
            yield f"{STEPS[at - 1][0]} does not find what was left out: {results[f'toolu_{at:04}'][:500]}"


if __name__ == "__main__":
    sys.exit(main())
