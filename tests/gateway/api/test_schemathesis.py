"""schemathesis sends a real gateway valid requests of its API document, and many invalid ones."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from refold.gateway.api import OPERATIONS
from tests.support.api_gateway import TOKEN, chat_request, serve_api
from tests.support.examples import NIGHTLY, examples_at_night

CONFIG = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", 404, 409, 422]  # no such session; contradicts what is there; holds no conversation
[checks.negative_data_rejection]
expected-statuses = [400, 404, 405, 415]
"""


@pytest.mark.slow
def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    """All checks, operations and phases, with existing sessions, requests and previews among the
    invented ones."""
    pytest.importorskip("schemathesis")
    (tmp_path / "schemathesis.toml").write_text(CONFIG, encoding="utf-8")
    with serve_api() as at:
        at.say(chat_request(40))
        at.say(chat_request(3), **{"x-session-id": "another"})
        sessions = [session["id"] for session in at.get("sessions").json()["sessions"]]
        drafts = [
            at.post("preview", session=session, to=100).json()["preview"] for session in sessions
        ]
        previews = [draft for draft in drafts if draft]
        edits = [
            [edit["id"]] for s in sessions for edit in at.get("history", session=s).json()["edits"]
        ]
        assert previews and edits
        real = {
            "session": sessions,
            "preview": previews,
            "edits": edits,
            "request": [chat_request(5), chat_request(30)],
        }
        run = [
            sys.executable,
            "-m",
            "schemathesis.cli",
            "--config-file",
            str(tmp_path / "schemathesis.toml"),
            "run",
        ]
        options = [
            "-H",
            f"Authorization: Bearer {TOKEN}",
            "--max-examples",
            str(examples_at_night(2, 50)),
            "--request-timeout",
            "120",  # also on a busy machine
            *([] if NIGHTLY else ["--phases", "examples,fuzzing"]),
            "--seed",
            "1",
            "--no-color",
        ]
        environment = {
            **os.environ,
            "SCHEMATHESIS_HOOKS": "api_hooks",
            "PYTHONPATH": str(Path(__file__).parents[2] / "support"),
            "REFOLD_TEST_REAL": json.dumps(real),
        }
        done = subprocess.run(
            [*run, f"{at.served.url}/refold/api/openapi.json", *options],
            capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=600, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
    tested = re.search(r"Tested: (\d+)", done.stdout)
    assert tested and int(tested[1]) == len(OPERATIONS), done.stdout
    generated = re.search(r"(\d+) generated", done.stdout)
    assert generated and int(generated[1]) > examples_at_night(80, 2_000), done.stdout
