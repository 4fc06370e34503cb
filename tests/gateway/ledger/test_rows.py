"""The rows of sessions and calls."""

import json
from contextlib import closing

import pytest

from refold.gateway.exchange import Incoming
from refold.gateway.ledger.calls import ADD, CallLog, Filters
from refold.gateway.ledger.rows import CallRow, project_of
from refold.gateway.ledger.writer import open_ledger


@pytest.mark.parametrize("is_ascii", [True, False])
@pytest.mark.parametrize(
    ("directory", "project"),
    [
        ("/home/mira/spotter", "spotter"),
        ("/home/mira/проект", "проект"),
        (r"C:\Users\nina\repo", "repo"),
        (r"C:\Users\mira\new-app", "new-app"),
        ("C:\\Users\\mira\\spotter\\", "spotter"),
        ("/home/mira/\ud83d", "?"),
    ],
)
def test_a_project_is_the_last_part_of_a_directory_on_any_platform_in_any_script(
    directory: str, project: str, is_ascii: bool
) -> None:
    prompt = f"You are an agent.\nWorking directory: {directory}\nPlatform: any"
    body = json.dumps({"system": prompt}, ensure_ascii=is_ascii).encode("utf-8", "replace")
    assert project_of(Incoming("anthropic", "up", "/", (), body)) == project


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_of_more_calls_than_a_chart_takes_the_latest_are_listed(store, tmp_path, request) -> None:
    """At 5,000 calls a day the chart stopped at noon."""
    address = str(tmp_path / "a") if store == "sqlite" else request.getfixturevalue("url")
    with closing(open_ledger(address)) as ledger:
        for at in (1.0, 2.0, 3.0):
            row = CallRow("s", "t", at, "m", 9, 9, 0, 9, 0, 0, 0, 0)
            ledger.add({}, rows=[(ADD[CallRow], row)])
        calls = CallLog(ledger._database).list_calls(0.0, Filters(), 2)
        assert [call.at for call in calls] == [2.0, 3.0]
