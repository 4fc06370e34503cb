"""Error of an anchored estimate: `python -m benchmarks.tokens_anchor [DATASETS]`.

For every recorded model call with reported usage, the expected input tokens are compared with the
reported ones. They are the report of the previous call, plus the estimate of what was added since,
times the ratio learned so far. Calls after which the context shrank (a compaction) are left out.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.recordings import blocks, jsonl
from refold.compactor.calibration import Anchor, Ratios
from refold.tokens.count import MESSAGE, estimate
from refold.tokens.usage import read_usage

ROOT = Path(__file__).parent.parent


def main(datasets: Path) -> None:
    print("| session | calls | mean error | 95 % below | learned ratios |")
    print("|---|---|---|---|---|")
    for path in [
        *sorted(datasets.glob("pi_sessions/*.jsonl")),
        *sorted(datasets.glob("claude_code_spotter/*.jsonl")),
    ]:
        errors, ratios = replay(messages(path))
        if len(errors) >= 20:
            errors.sort()
            learned = ", ".join(
                f"{model} {ratio:.2f}" for model, (ratio, _) in ratios.by_model.items()
            )
            mean, high = sum(errors) / len(errors), errors[int(len(errors) * 0.95)]
            print(f"| {path.stem} | {len(errors)} | {mean:.2%} | {high:.2%} | {learned} |")


def messages(path: Path) -> Iterator[dict[str, Any]]:
    for record in jsonl(path):
        if record.get("type") in {"message", "user", "assistant"} and not record.get("isSidechain"):
            yield record["message"]


def replay(entries_said: Iterator[dict[str, Any]]) -> tuple[list[float], Ratios]:
    """Return the relative errors of the expected input of each call, and the learned ratios."""
    ratios, errors, seen = Ratios(), list[float](), set[str]()
    estimated, last = 0, None
    for message in entries_said:
        usage, id = read_usage(message.get("usage")), message.get("id")
        if (
            message["role"] == "assistant"
            and usage
            and usage.input > 1_000
            and (id is None or id not in seen)
        ):
            seen.add(id or "")
            if last is not None and usage.input >= last.reported:
                model = message.get("model", "")
                errors.append(
                    abs(
                        Anchor(last.reported, last.estimated, ratios.of(model))(estimated)
                        / usage.input
                        - 1
                    )
                )
                if estimated - last.estimated > 50:
                    ratios = ratios.learn(
                        model, estimated - last.estimated, usage.input - last.reported
                    )
            last = Anchor(usage.input, estimated)
        estimated += sum(
            estimate(text) + MESSAGE for _, text in blocks(message["role"], message.get("content"))
        )
    return errors, ratios


if __name__ == "__main__":
    shared = Path(os.environ.get("REFOLD_SHARED", ROOT.parent / "shared")) / "datasets"
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else shared)
