"""What tests need that may be missing, what to say of those that were skipped for it, and when that is a failure."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple


class Component(NamedTuple):
    """Something that tests need and that may be missing."""

    name: str
    """In plain words, as `19 tests need ...` goes on."""
    reason: re.Pattern[str]
    """How the reason of a skip names it."""
    remedy: str
    """The one command that brings it, or what to do."""
    required: bool = True
    """Is it a failure where it is missing and everything is required (`REFOLD_REQUIRE=all`)?"""


PACKAGES = ".venv/bin/pip install --requirement requirements/dev.txt"
COMPONENTS = (
    Component(
        "a browser, Chromium with its chromedriver",
        re.compile("no browser"),
        "sudo apt-get install chromium chromium-driver (Debian; apt-get update before, if it finds none)",
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
    """What was missing where a test was skipped for *reason*; None where nothing can be installed for it."""
    return next((one for one in COMPONENTS if one.reason.search(reason)), None)


def is_failure(reason: str, environment: Mapping[str, str]) -> bool:
    """Must a skip for *reason* fail? Where everything is required and what is missing can be installed."""
    missing = component_of(reason)
    return environment.get("REFOLD_REQUIRE") == "all" and missing is not None and missing.required


def summary(reasons: Iterable[str]) -> Iterator[str]:
    """What was not run, why, and what brings it, one line or two a group, the largest first."""
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
