"""Startup time of `refold run`: until the first byte of its command, compared with the command
alone.

Wall time is that of an otherwise idle machine. Processor time is what `refold` itself used until
then.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.table import table

RUNS = 15
CLIENT = ("sh", "-c", "read -r line < /proc/$PPID/stat; echo $line")
"""Prints the processor time that its parent process has used so far."""
GOAL = 400


def main() -> None:
    """Print the table."""
    started = {
        "the command alone": CLIENT,
        "refold run": (sys.executable, "-m", "refold", "run", *CLIENT),
    }
    rows = []
    with tempfile.TemporaryDirectory() as home:
        for name, command in started.items():
            figures = [measure(command, home) for _ in range(RUNS)]
            walls, used = zip(*figures, strict=True)
            cells = [f"{statistics.median(walls):.0f}", f"{min(walls):.0f}"]
            rows.append(
                [
                    name,
                    *cells,
                    f"{statistics.median(used):.0f}" if name != "the command alone" else "",
                ]
            )
    print(table(["", "median ms", "least ms", "of the processor, ms"], rows))
    print(
        f"\nThe goal is {GOAL} ms. Load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores."
    )


def measure(command: tuple[str, ...], home: str) -> tuple[float, float]:
    """Return the milliseconds until the first byte, and the processor time of the command's
    parent."""
    environment = {**os.environ, "HOME": home, "XDG_DATA_HOME": home}
    start = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        assert process.stdout
        line = process.stdout.readline()
        wall = time.perf_counter() - start
    ticks = sum(map(int, line.rpartition(b")")[2].split()[11:13]))
    return 1_000 * wall, 1_000 * ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
