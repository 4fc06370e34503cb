"""Print tables: `python -m benchmarks.evidence TABLE [tune|test|FOLDER] [sizes ...]`.

FOLDER holds session files of any client that Refold reads. TABLE is `all`, `bits` or a name in
`COMMANDS`. Sizes replace the default sizes of a single table. `bits --model PATH.gguf [--results
FILE]` asks a real model, takes an hour and resumes from the results in its file.
"""

import argparse
from pathlib import Path

from benchmarks.evidence import (
    bill,
    bits,
    bounds,
    canaries,
    chart,
    conformance,
    facts,
    first_sight,
    gallery,
    handover,
    lifetimes,
    names,
    reading,
)

TABLES = {
    "names": names.print_tables,
    "around": names.print_around,
    "depths": names.print_depths,
    "facts": facts.print_tables,
    "handover": handover.print_tables,
    "canaries": canaries.print_tables,
    "bill": bill.print_tables,
    "bounds": bounds.print_tables,
    "lifetimes": lifetimes.print_tables,
    "conformance": conformance.print_tables,
    "chart": chart.print_tables,
    "first_sight": first_sight.print_tables,
    "reading": reading.print_tables,
}
"""Functions that print the tables of a split, at the given sizes or at their default sizes."""
COMMANDS = {**TABLES, "gallery": gallery.print_gallery}


def main() -> None:
    """Print the tables that the arguments name, by default all tables of the tuning split."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--results", type=Path, default=Path("bits.jsonl"))
    given = parser.parse_args()
    words = given.words
    table = words.pop(0) if words[:1] and words[0] in {*COMMANDS, "all", "bits"} else "all"
    is_split = bool(words) and (words[0] in {"tune", "test", "demo"} or Path(words[0]).is_dir())
    split = words.pop(0) if is_split else "tune"
    if wrong := [word for word in words if not word.isdigit()]:
        parser.error(f"{wrong[0]!r} is no table, no split, no folder and no size")
    sizes = list(map(int, words))
    if table == "bits":
        if given.model is None:
            parser.error("bits needs --model PATH.gguf")
        bits.print_tables(split, sizes, given.model, given.results)
        return
    for name in TABLES if table == "all" else [table]:
        COMMANDS[name](split, () if table == "all" else sizes)


if __name__ == "__main__":
    main()
