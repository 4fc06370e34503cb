"""The rows of sessions and calls."""

import json

import pytest

from refold.gateway.exchange import Incoming
from refold.gateway.ledger.rows import project_of


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
