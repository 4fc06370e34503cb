"""Fixtures that all tests share."""

import asyncio
import gc
import logging
import os
from collections.abc import Generator, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import certifi
import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.support.components import is_failure, summarize_skips
from tests.support.real_postgresql import PostgreSQLServer, start_server
from tests.support.sdks import LazyModule

settings.register_profile("dev", max_examples=8, deadline=None)
settings.register_profile("ci", max_examples=8, deadline=None, derandomize=True, print_blob=True)
settings.register_profile(
    "nightly", max_examples=2_000, deadline=None, suppress_health_check=list(HealthCheck)
)
FIND = (Phase.explicit, Phase.generate)
"""Without making what fails small: a mutant is killed by the first example, and nobody reads it."""
settings.register_profile(
    "mutants", max_examples=8, deadline=None, derandomize=True, database=None, phases=FIND
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

ROOT = Path(__file__).parent.parent
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else its import waits for the network


def pytest_sessionstart() -> None:
    """A library that asks for an event loop where none runs (LiteLLM does) gets an error that it knows, as after any
    `asyncio.run`: else it makes a loop that nothing closes, and whatever test collects it fails."""
    asyncio.set_event_loop(None)


def pytest_xdist_auto_num_workers() -> int:
    """Two workers more than there are cores: many tests wait for a process, a browser or a database."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """What is made until the first test stays until the last: the garbage collector need not look through it, which took
    a fifth of the time of all tests. What tests make is collected as ever."""
    gc.disable()
    _rewrite_share(session.config)
    result = yield
    gc.freeze()
    gc.enable()
    return result


def _rewrite_share(config: pytest.Config) -> None:
    """pytest rewrites the assertions of each file once and keeps the result: in a fresh checkout each worker begins with
    files of its own and reads what the others wrote, or each would do the work of all."""
    if not hasattr(config, "workerinput"):
        return
    number, workers = int(config.workerinput["workerid"][2:]), config.workerinput["workercount"]
    places = (config.rootpath / argument.partition("::")[0] for argument in config.args)
    files = sorted(file for place in places for file in place.rglob("test_*.py"))
    for file in files[number::workers]:
        with suppress(Exception, pytest.skip.Exception):  # pytest's own import says what is wrong
            import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The first worker begins with the files that use an SDK, which takes seconds to import: the others rarely do. Then
    come the files that have slow tests: none of these runs alone at the end."""
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: (not _has_lazy_modules(item), item.path not in slow))


def _has_lazy_modules(item: pytest.Item) -> bool:
    """Return whether the file of a test uses modules that are imported late."""
    values = vars(item.module).values() if isinstance(item, pytest.Function) else ()
    return any(isinstance(value, LazyModule) for value in values)


@pytest.fixture(scope="session", autouse=True)
def _few_authorities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests speak to servers of this machine: an HTTP client reads the certificate of one authority, where reading all of
    them took longer than its requests."""
    file = tmp_path_factory.mktemp("authorities") / "one.pem"
    first, end, _ = certifi.contents().partition("-----END CERTIFICATE-----\n")
    file.write_text(first + end, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(file))
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real recordings, which are no part of the repository: REFOLD_SHARED, or `shared` beside it."""
    path = Path(os.environ.get("REFOLD_SHARED", ROOT.parent / "shared"))
    if not path.is_dir():
        pytest.skip(f"real recordings are not at {path} (set REFOLD_SHARED)")
    return path


@pytest.fixture(scope="session")
def server() -> Iterator[PostgreSQLServer]:
    """A real PostgreSQL server, in which each test has a database of its own."""
    server = start_server()
    yield server
    server.remove()


@pytest.fixture
def url(server: PostgreSQLServer) -> str:
    """The address of a new, empty database there."""
    server.start()  # a test that failed may have left it stopped
    return server.database()


@pytest.fixture
def loggers() -> Iterator[None]:
    """The gateway's logging, put back afterwards."""
    names = ("refold", "uvicorn.error")
    before = [(logging.getLogger(name), list(logging.getLogger(name).handlers)) for name in names]
    yield
    for logger, handlers in before:
        logger.handlers, logger.propagate = handlers, True
        logger.setLevel(logging.NOTSET)


# --- what was skipped -------------------------------------------------------------------------


def _reason(report: Any) -> str:
    """Why a test, or a whole file of tests, was skipped."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")


def _judge(report: Any) -> Any:
    """The report; of a skip for what is required, as a failure."""
    if report.skipped and is_failure(reason := _reason(report), os.environ):
        report.outcome, report.longrepr = (
            "failed",
            f"REFOLD_REQUIRE=all, and this is missing: {reason}",
        )
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """A skip for a component that is missing fails where all of them are required."""
    return _judge((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    """Likewise, of a whole file."""
    return _judge((yield))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say at the end what was not run, why, and what brings it."""
    if skipped := [_reason(report) for report in terminalreporter.stats.get("skipped", ())]:
        terminalreporter.section("not run")
        for line in summarize_skips(skipped):
            terminalreporter.write_line(line)
