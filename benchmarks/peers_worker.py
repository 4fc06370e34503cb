"""Runs in the peers' environment and prints the overhead of one turn, in milliseconds, as JSON.

.bench/bin/python benchmarks/peers_worker.py 100 1000 10000
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain.agents.middleware import (
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    SummarizationMiddleware,
)
from langchain.agents.middleware.types import ModelRequest
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately, trim_messages
from langmem.short_term import SummarizationNode
from splintr import Tokenizer

sys.path.insert(0, str(Path(__file__).parent))
from synthetic import turns

NEVER = 10**9
STEPS = 10
"""Turns measured at each size."""
MODEL = FakeListChatModel(responses=["summary"])
O200K = Tokenizer.from_pretrained("o200k_base")


def exact(messages: Any) -> int:
    """Return the tokens by the o200k vocabulary, as `tiktoken` would count them."""
    return sum(len(O200K.encode(str(message.content))) + 4 for message in messages)


def langchain_messages(count: int) -> list[AnyMessage]:
    """Return the same session in LangChain's classes."""
    out: list[AnyMessage] = []
    for number, (kind, f) in enumerate(turns(count)):
        if kind == "user":
            out.append(HumanMessage(f["text"], id=str(number)))
        elif kind == "call":
            call = {"id": f["id"], "name": f["name"], "args": f["arguments"]}
            out.append(AIMessage(f["text"], tool_calls=[call], id=str(number)))
        elif kind == "result":
            out.append(ToolMessage(f["text"], tool_call_id=f["id"], id=str(number)))
        else:
            out.append(AIMessage(f["text"], id=str(number)))
    return out


def peers() -> dict[str, Callable[[list[AnyMessage]], Any]]:
    """Return each peer as a function of the history, configured so that it has nothing to do."""
    approximate = SummarizationMiddleware(
        MODEL, trigger=("tokens", NEVER), token_counter=count_tokens_approximately
    )
    counted = SummarizationMiddleware(MODEL, trigger=("tokens", NEVER), token_counter=exact)
    editing = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=NEVER)])
    node = SummarizationNode(model=MODEL, max_tokens=NEVER)

    def edit(messages: list[AnyMessage]) -> Any:
        request = ModelRequest(
            model=MODEL, messages=messages, tools=[], state={"messages": messages}, runtime=None
        )
        return editing.wrap_model_call(request, lambda r: r.messages)

    def trim(counter: Any) -> Callable[[list[AnyMessage]], Any]:
        return lambda messages: trim_messages(
            messages, max_tokens=NEVER, token_counter=counter, strategy="last"
        )

    return {
        "LangChain SummarizationMiddleware, approximate": lambda m: approximate.before_model(
            {"messages": m}, None
        ),
        "LangChain SummarizationMiddleware, exact": lambda m: counted.before_model(
            {"messages": m}, None
        ),
        "LangChain ContextEditingMiddleware": edit,
        "LangChain trim_messages, approximate": trim(count_tokens_approximately),
        "LangChain trim_messages, exact": trim(exact),
        "LangMem SummarizationNode": lambda m: node.invoke({"messages": m, "context": {}}),
    }


def milliseconds(
    run: Callable[[list[AnyMessage]], Any], messages: list[AnyMessage], size: int
) -> float:
    """Return the median over a session that grows by 3 messages per call, three times over: at
    least 3 calls, in about 3 seconds."""
    times, until = [], time.perf_counter() + 3
    for stop in [*range(size + 3, len(messages) + 1, 3)] * 3:
        if len(times) >= 3 and time.perf_counter() > until:
            break
        given = messages[:stop]
        start = time.perf_counter()
        run(given)
        times.append((time.perf_counter() - start) * 1_000)
    return statistics.median(times)


def main() -> None:
    """Print {peer: {size: milliseconds}}."""
    sizes = [int(arg) for arg in sys.argv[1:]]
    table: dict[str, dict[int, float]] = {name: {} for name in peers()}
    for size in sizes:
        messages = langchain_messages(size + 3 * STEPS)
        for name, run in peers().items():
            table[name][size] = milliseconds(run, messages, size)
    json.dump(table, sys.stdout)


if __name__ == "__main__":
    main()
