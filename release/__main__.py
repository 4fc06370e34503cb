"""`make release`: build, check, and print the checks. Exit code 1 if something is wrong.

`python -m release cli gateway` tries only these extras, `python -m release container` only the
Containerfile.
"""

import sys
from collections.abc import Sequence

from benchmarks.arguments import read_names
from benchmarks.table import table

from release.container import check_compose, check_container
from release.environments import PLACE, CheckError
from release.packages import (
    EXTRAS,
    PROJECT,
    build,
    check_contents,
    check_extra,
    check_runners,
    has_packages,
)


def main(wanted: Sequence[str]) -> int:
    """Run the *wanted* checks, or all."""
    PLACE.mkdir(parents=True, exist_ok=True)
    failures = list[str]()
    extras = [name for name in wanted if name != "container"] or ["", *EXTRAS]
    if set(EXTRAS) != set(PROJECT["optional-dependencies"]):
        print(f"the extras are {', '.join(PROJECT['optional-dependencies'])}", file=sys.stderr)
        return 2
    try:
        if list(wanted) != ["container"]:
            failures += check_packages(extras, is_whole=not wanted)
        if not wanted or "container" in wanted:
            print(f"\n{check_compose()}")
            print(f"\n{table(('of the Containerfile', 'what was seen'), check_container())}")
    except CheckError as error:
        failures.append(str(error))
    for failure in failures:
        print(f"\nFAILED: {failure}")
    return int(bool(failures))


def check_packages(extras: Sequence[str], *, is_whole: bool) -> list[str]:
    """Build, install each of the *extras*, and return what went wrong. Raises `CheckError`."""
    sdist, wheel = build()
    print(f"{check_contents(sdist, wheel)}; twine check --strict: passed")
    rows, failures = list[tuple[str, ...]](), list[str]()
    for extra in extras:
        if extra and not has_packages(extra):
            print(f"{extra} is skipped: there is nothing of it for this Python", file=sys.stderr)
            continue
        try:
            code, packages, size = check_extra(wheel, extra)
            rows.append((extra or "none", f"{packages}", f"{size:.0f}", f"`{code}`"))
        except CheckError as error:
            failures.append(f"{extra or 'no extra'}: {error}")
        print(f"{extra or 'no extra'} was tried", file=sys.stderr)
    print(f"\n{table(('extra', 'packages', 'MB', 'works'), rows)}")
    if is_whole:
        print(f"\n{table(('command', 'says'), check_runners(wheel))}")
    return failures


if __name__ == "__main__":
    sys.exit(main(read_names("release", __doc__, (*EXTRAS, "container"))))
