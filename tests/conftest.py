"""Fixtures that all tests share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from real_postgresql import Server, started

settings.register_profile("dev", max_examples=15, deadline=None)
settings.register_profile("ci", max_examples=15, deadline=None, derandomize=True, print_blob=True)
settings.register_profile("nightly", max_examples=2_000, deadline=None, suppress_health_check=list(HealthCheck))
FIND = (Phase.explicit, Phase.generate)
"""Without making what fails small: a mutant is killed by the first example, and nobody reads it."""
settings.register_profile("mutants", max_examples=8, deadline=None, derandomize=True, database=None, phases=FIND)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real recordings, which are no part of the repository: REFOLD_SHARED, or `shared` beside it."""
    path = Path(os.environ.get("REFOLD_SHARED", ROOT.parent / "shared"))
    if not path.is_dir():
        pytest.skip(f"real recordings are not at {path} (set REFOLD_SHARED)")
    return path


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A real PostgreSQL server for one file of tests."""
    server = started()
    yield server
    server.remove()


@pytest.fixture
def url(server: Server) -> str:
    """The address of a new, empty database there."""
    return server.database()
