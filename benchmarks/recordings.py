"""Texts of real recorded conversations for benchmarks, by dataset and kind. The data are not in the
repository."""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class Recorded(NamedTuple):
    """The texts of one conversation, in order."""

    dataset: str
    name: str
    texts: list[tuple[str, str]]
    """Pairs of kind and text; the kinds are `text`, `arguments` and `result`."""


def read_conversations(root: Path) -> Iterator[Recorded]:
    """Yield every conversation under *root*, a folder of datasets."""
    for reader in (
        _pi,
        _claude_code,
        _codex,
        _tau,
        _tau2,
        _mini_swe,
        _crosswoz,
        _memorybank,
        _realmem,
    ):
        yield from (conversation for conversation in reader(root) if conversation.texts)


def jsonl(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def blocks(role: str, content: Any) -> Iterator[tuple[str, str]]:
    """Yield the texts of a message whose content is a string or a list of parts, in any format."""
    if isinstance(content, str):
        yield "result" if role in {"tool", "toolResult", "bashExecution"} else "text", content
    for part in content if isinstance(content, list) else []:
        match part.get("type"):
            case "text" | "input_text" | "output_text":
                yield from blocks(role, part["text"])
            case "thinking":
                yield "text", part.get("thinking") or ""
            case "tool_use":
                yield "arguments", json.dumps(part["input"], ensure_ascii=False)
            case "toolCall":
                yield "arguments", json.dumps(part["arguments"], ensure_ascii=False)
            case "tool_result":
                yield from blocks("tool", part.get("content"))


def _pi(root: Path) -> Iterator[Recorded]:
    for path in sorted(root.glob("pi_sessions/*.jsonl")):
        messages = [record["message"] for record in jsonl(path) if record.get("type") == "message"]
        yield Recorded(
            "pi", path.stem, [t for m in messages for t in blocks(m["role"], m.get("content"))]
        )


def _claude_code(root: Path) -> Iterator[Recorded]:
    for path in sorted(root.glob("claude_code_spotter/**/*.jsonl")):
        messages = [
            record["message"]
            for record in jsonl(path)
            if record.get("type") in {"user", "assistant"}
        ]
        yield Recorded(
            "claude code",
            path.stem,
            [t for m in messages for t in blocks(m["role"], m.get("content"))],
        )


def _codex(root: Path) -> Iterator[Recorded]:
    for path in sorted(root.glob("codemie_multi_cli/*codex*.jsonl")):
        items = [
            record["payload"] for record in jsonl(path) if record.get("type") == "response_item"
        ]
        yield Recorded("codex", path.stem, [t for item in items for t in _codex_item(item)])


def _codex_item(item: dict[str, Any]) -> Iterator[tuple[str, str]]:
    match item.get("type"):
        case "message":
            yield from blocks(item["role"], item["content"])
        case "function_call":
            yield "arguments", item["arguments"]
        case "function_call_output":
            output = item["output"]
            yield "result", output if isinstance(output, str) else json.dumps(output)


def _chat(message: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from blocks(message["role"], message.get("content"))
    for call in message.get("tool_calls") or []:
        arguments = call.get("function", call).get("arguments", "")
        yield "arguments", arguments if isinstance(arguments, str) else json.dumps(arguments)


def _tau(root: Path) -> Iterator[Recorded]:
    for path in sorted(root.glob("tau_bench/*.json")):
        for at, run in enumerate(json.loads(path.read_text(encoding="utf-8"))):
            yield Recorded(
                "tau-bench", f"{path.stem} {at}", [t for m in run["traj"] for t in _chat(m)]
            )


def _tau2(root: Path) -> Iterator[Recorded]:
    for path in sorted(root.glob("tau2_bench/*.json")):
        for at, run in enumerate(json.loads(path.read_text(encoding="utf-8"))["simulations"]):
            yield Recorded(
                "tau2-bench", f"{path.stem} {at}", [t for m in run["messages"] for t in _chat(m)]
            )


def _mini_swe(root: Path) -> Iterator[Recorded]:
    for path in sorted(root.glob("miniswe_gemini3/trajs/*.json")):
        messages = json.loads(path.read_text(encoding="utf-8"))["messages"]
        yield Recorded("mini-swe", path.stem, [t for m in messages for t in _chat(m)])


def _crosswoz(root: Path) -> Iterator[Recorded]:
    for path in sorted(root.glob("crosswoz_zh/*.zip")):
        with zipfile.ZipFile(path) as archive:
            dialogues = json.loads(archive.read(archive.namelist()[0]))
        for name, dialogue in dialogues.items():
            yield Recorded(
                "crosswoz zh", name, [("text", m["content"]) for m in dialogue["messages"]]
            )


def _memorybank(root: Path) -> Iterator[Recorded]:
    for path in sorted(root.glob("memorybank/*memory_bank_*.json")):
        language = "zh" if "_cn" in path.stem else "en"
        for name, person in json.loads(path.read_text(encoding="utf-8")).items():
            turns = [turn for day in person["history"].values() for turn in day]
            texts = [("text", text) for turn in turns for text in (turn["query"], turn["response"])]
            yield Recorded(f"memorybank {language}", name, texts)


def _realmem(root: Path) -> Iterator[Recorded]:
    for path in sorted(root.glob("realmem/*.json")):
        for at, dialogue in enumerate(json.loads(path.read_text(encoding="utf-8"))["dialogues"]):
            yield Recorded(
                "realmem",
                f"{path.stem} {at}",
                [("text", t["content"]) for t in dialogue["dialogue_turns"]],
            )
