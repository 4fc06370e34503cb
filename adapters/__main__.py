"""Run all frameworks, or some: `python -m adapters langchain google-adk`. Exit code 1 on failure.

`python -m adapters timings`, with or without names, only measures the duration of a call. The
environments are in .adapters or the directory in REFOLD_ADAPTERS.
"""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.arguments import read_names
from benchmarks.table import table

from adapters.environments import UnavailableError, create_environment, run_worker
from adapters.pages import PAGE, names_in
from adapters.session import Model
from adapters.verdict import Verdict, judge
from adapters.worker import LENGTHS
from refold.testing.scripted_provider import ScriptedProvider
from refold.tokens.count import exact

FRAMEWORKS = {
    "openai-agents": "openai-agents",
    "langchain": "langchain",
    "deepagents": "langchain",
    "strands": "strands",
    "pydantic-ai": "pydantic-ai",
    "pydantic-ai-harness": "pydantic-ai",
    "agent-framework": "agent-framework",
    "haystack": "haystack",
    "haystack-compactor": "haystack",
    "openhands": "openhands",
    "google-adk": "google-adk",
    "litellm": "litellm",
    "litellm-messages": "litellm",
    "litellm-responses": "litellm",
    "litellm-proxy": "litellm",
    "smolagents": "smolagents",
    "crewai": "crewai",
    "autogen": "autogen",
    "llamaindex": "llamaindex",
    "agno": "agno",
}
"""Frameworks with their environments. Those of one family share an environment."""
BY_HAND = frozenset({"smolagents", "crewai", "autogen", "llamaindex", "agno"})
"""Frameworks without an adapter, for which no conversation is held: the docs show what to write."""
WITHIN = frozenset({"haystack-compactor", "pydantic-ai-harness"})
"""Frameworks in which Refold works inside the framework's own compaction, which deletes hidden
messages from the history."""
NOT_REPORTING = frozenset({"haystack-compactor"})
"""Frameworks that count from the provider's usage and give Refold a target for the rest."""
PARTS = ((0, 1), (2,))
"""Turns of each process."""


def main(wanted: Sequence[str]) -> int:
    """Run the *wanted* frameworks, or all, and print the tables. `timings` only measures."""
    root = Path(os.environ.get("REFOLD_ADAPTERS", ".adapters")).absolute()
    talks, regressions, timings = list[list[str]](), list[list[str]](), list[list[str]]()
    failures = list[str]()
    only_timings = "timings" in wanted
    for name in [name for name in wanted if name != "timings"] or FRAMEWORKS:
        try:
            python = create_environment(FRAMEWORKS[name], root)
        except UnavailableError as reason:
            print(f"{name} is skipped: {reason}", file=sys.stderr)
            continue
        try:
            for row in run_task(python, name, "timings")["rows"]:
                timings.append([name, row[0], *(f"{ms:.1f}" for ms in row[1:])])
            if only_timings:
                continue
            if name not in BY_HAND:
                version, verdict = hold_conversation(python, name)
                talks.append(_talk_cells(name, version, verdict))
                failures += [] if verdict.is_fine else [f"{name}: {verdict}"]
            cases = run_task(python, name, "regressions")
            version = cases["version"]
            for row in cases["rows"]:
                regressions.append(_regression_cells(name, version, row))
                if row["own"] != row["broken"] or row["ours"]:
                    failures.append(f"{name}: {row}")
            if name in names_in(PAGE):
                run_task(python, name, "docs", page=str(PAGE))
        except RuntimeError as error:
            failures.append(str(error))
        print(
            f"{name}: {'FAILED' if any(f.startswith(name) for f in failures) else 'as it should'}",
            file=sys.stderr,
        )
    _print_tables(talks, regressions, timings)
    for failure in failures:
        print(f"\nFAILED: {failure}")
    return int(bool(failures))


def hold_conversation(python: Path, name: str) -> tuple[str, Verdict]:
    """Hold the whole conversation, each part in its own process."""
    model = Model(exact("o200k_base"))
    with tempfile.TemporaryDirectory() as place, ScriptedProvider(model) as provider:
        results = []
        for turns in PARTS:
            task = {"task": "talk", "url": provider.url, "place": place, "turns": turns}
            result = json.loads(run_worker(python, name, json.dumps(task), Path(place)))
            results.append({**result, "turns": turns})
        keeps, reporting = name not in WITHIN, name not in NOT_REPORTING
        verdict = judge(model, Path(place), results, keeps=keeps, reporting=reporting)
        return results[0]["version"], verdict


def run_task(python: Path, name: str, task: str, **rest: str) -> dict[str, Any]:
    """Run a task that needs no model."""
    with tempfile.TemporaryDirectory() as place:
        text = run_worker(python, name, json.dumps({"task": task, **rest}), Path(place))
    result: dict[str, Any] = json.loads(text)
    return result


def _talk_cells(name: str, version: str, verdict: Verdict) -> list[str]:
    counts = (
        verdict.answers,
        verdict.compactions,
        verdict.rewritten,
        verdict.forgetful,
        verdict.refused,
        verdict.invalid,
        verdict.missing,
    )
    streamed, reported = ("yes" if sign else "no" for sign in (verdict.streamed, verdict.reports))
    return [name, version, verdict.api, *map(str, counts), streamed, reported]


def _regression_cells(name: str, version: str, row: dict[str, Any]) -> list[str]:
    of = f"of {row['settings']}"
    return [name, version, row["case"], row["thread"], f"{row['own']} {of}", f"{row['ours']} {of}"]


TALK_HEAD = (
    "framework",
    "version",
    "API",
    "answers",
    "compactions",
    "rewritten",
    "edits forgotten",
    "too long",
    "invalid",
    "lost from the history",
    "streamed as it was",
    "usage reported",
)
REGRESSION_HEAD = ("framework", "version", "case", "thread", "its own: broken", "Refold: broken")
TIMING_HEAD = (
    "framework",
    "before each call",
    *(f"ms at {length:,} messages" for length in LENGTHS),
)


def _print_tables(*rows: Sequence[Sequence[str]]) -> None:
    for head, lines in zip((TALK_HEAD, REGRESSION_HEAD, TIMING_HEAD), rows, strict=True):
        if lines:
            print(f"\n{table(head, lines)}")


if __name__ == "__main__":
    sys.exit(main(read_names("adapters", __doc__, (*FRAMEWORKS, "timings"))))
