"""Print tables: `python -m benchmarks.evidence TABLE [tune|test] [sizes ...]`.

TABLE is `all` or a name in `COMMANDS`. Sizes are for a table that is named; all have their own.
"""

import sys

from benchmarks.evidence import (
    bill,
    canaries,
    chart,
    conformance,
    facts,
    first_sight,
    gallery,
    handover,
    names,
)

TABLES = {
    "names": names.print_tables,
    "facts": facts.print_tables,
    "handover": handover.print_tables,
    "canaries": canaries.print_tables,
    "bill": bill.print_tables,
    "conformance": conformance.print_tables,
    "chart": chart.print_tables,
    "first_sight": first_sight.print_tables,
}
"""Each prints its tables for a split, at the sizes that it was given or at its own."""
COMMANDS = {**TABLES, "gallery": gallery.print_gallery}


def main() -> None:
    """Print what the arguments ask for; all tables of the split for tuning by default."""
    words = sys.argv[1:]
    table = words.pop(0) if words[:1] and words[0] in {*COMMANDS, "all"} else "all"
    split = words.pop(0) if words[:1] and words[0] in {"tune", "test"} else "tune"
    for name in TABLES if table == "all" else [table]:
        COMMANDS[name](split, () if table == "all" else [int(word) for word in words])


if __name__ == "__main__":
    main()
