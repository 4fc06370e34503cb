"""Counts of `python -m benchmarks.evidence first_sight`."""

import json

from benchmarks.evidence.first_sight import WAYS, Remainder, add, iter_long
from benchmarks.evidence.first_sight_units import Output, share
from benchmarks.evidence.sessions import Session

from refold.strategies import ClipResults, OutlineResults

LOG = [f"08:00 request {n} took {n} ms" for n in range(400)]
LOG[200] = "08:00 pool load_pool lost its lock_table: fatal"


def session(*commands: str, result: str) -> Session:
    """Return a command with a long result, and commands after it."""
    messages = [{"role": "user", "content": "Find out why it hangs."}]
    for n, command in enumerate(("make", *commands)):
        call = {"name": "bash", "arguments": json.dumps({"command": command})}
        messages += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{n}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"c{n}", "content": "ok" if n else result},
        ]
    return Session("s", "c", {"model": "m", "messages": messages})


def test_a_name_that_a_later_call_needs_counts_if_its_line_is_kept() -> None:
    (result,) = iter_long(session("grep load_pool src", result="\n".join(LOG)), 1_000)
    by_way = {way: Remainder() for way in WAYS}
    for way, text in zip(WAYS, result.shown, strict=True):
        add(by_way[way], result, text)
    assert (result.kind, result.names) == ("log", ["load_pool"])
    assert by_way["outline"].tied == 1
    assert 0 < by_way["outline"].tokens <= by_way["head and tail"].tokens


def test_results_under_the_limit_are_not_counted() -> None:
    assert not list(iter_long(session(result="short"), 1_000))


def test_units_count_only_if_they_can_be_read_in_the_output() -> None:
    paths = "\n".join(f"lib/part{n % 5}/file{n}.py" for n in range(200))
    output = Output("listing", "folders", paths, tuple(f"part{n}/" for n in range(6)))
    assert share(output, OutlineResults, 1_000) == 5
    assert share(output._replace(units=("file0.py", "file100.py")), ClipResults, 500) == 1
