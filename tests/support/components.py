"""Optional components for tests: how to install them, and when a skip is a failure."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple


class Component(NamedTuple):
    """A component that tests need and that may be missing."""

    name: str
    """Words that continue `19 tests were not run: they need ...`."""
    reason: re.Pattern[str]
    """Pattern of the skip reason."""
    remedy: str
    """Command that installs it, or another instruction."""
    required: bool = True
    """Whether its absence is a failure if everything is required (`REFOLD_REQUIRE=all`)."""


PACKAGES = ".venv/bin/pip install --requirement requirements/dev.txt"
COMPONENTS = (
    Component(
        "a browser, Chromium with its chromedriver",
        re.compile("no browser"),
        "sudo apt-get install chromium chromium-driver "
        "(Debian; apt-get update before, if it finds none)",
    ),
    Component("a PostgreSQL that starts", re.compile("PostgreSQL"), PACKAGES),
    Component(
        "recordings of real sessions, which are no part of the project",
        re.compile("recordings"),
        "set REFOLD_SHARED to the directory that has them",
        required=False,
    ),
    Component(
        "a Python package", re.compile("could not import|no module for|is not installed"), PACKAGES
    ),
)


def component_of(reason: str) -> Component | None:
    """Return the component that a test skipped for *reason* needs, or None if nothing can be
    installed."""
    return next((part for part in COMPONENTS if part.reason.search(reason)), None)


def is_failure(reason: str, environment: Mapping[str, str]) -> bool:
    """Return whether everything is required and the missing component is too."""
    missing = component_of(reason)
    return environment.get("REFOLD_REQUIRE") == "all" and missing is not None and missing.required


def summarize_skips(reasons: Iterable[str]) -> Iterator[str]:
    """Describe the tests that were not run, the reasons and the install commands, largest group
    first."""
    groups = dict[Component | str, Counter[str]]()
    for reason in reasons:
        groups.setdefault(component_of(reason) or reason, Counter())[reason] += 1
    for missing, counted in sorted(groups.items(), key=lambda group: -group[1].total()):
        count = counted.total()
        tests = f"{count} test{'s' * (count > 1)} {'were' if count > 1 else 'was'} not run"
        if isinstance(missing, Component):
            yield f"{tests}: they need {missing.name} ({'; '.join(sorted(counted))})"
            yield f"    {missing.remedy}"
        else:
            yield f"{tests}: {missing}"
