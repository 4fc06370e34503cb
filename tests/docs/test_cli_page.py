"""docs/cli.md: its examples work, and it names every command, option and key."""

import click
import pytest

from refold.cli.agents import AGENTS
from refold.cli.commands import refold
from refold.cli.run import run
from refold.summarizers.model import HEADINGS
from refold.testing.scripted_provider import ScriptedProvider
from tests.support.cli_lines import check_example, make_sessions, needs_shell, read_typed_lines
from tests.support.pages import ROOT

PAGE = ROOT / "docs" / "cli.md"
TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_every_example_works(tmp_path) -> None:
    directory, examples = make_sessions(tmp_path), read_typed_lines(PAGE)
    before = (directory / "session.json").read_bytes()
    summary = "\n".join(f"## {heading}\n- As it was agreed." for heading in HEADINGS)
    with ScriptedProvider(lambda _: summary) as server:
        fixed = {"URL": f"{server.url}/v1", "SUMMARY_KEY": "k-1", "EDITOR": "sed -i 1s/^/Amended./"}
        for line in examples:
            check_example(line, directory, fixed)
    assert (directory / "session.json").read_bytes() == before
    assert 5 <= sum(map(needs_shell, examples)) <= 8


@pytest.mark.parametrize("name", ["", *refold.commands])
def test_commands_and_options_are_on_the_page(name: str) -> None:
    command = refold.commands[name] if name else refold
    assert f"\n## refold {name}".rstrip() in TEXT
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            for option in parameter.opts:
                assert option in TEXT, f"refold {name} {option}"


def test_every_agent_that_run_knows_is_named() -> None:
    """Help and start.md once left out Copilot CLI."""
    start = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    sentence = start.partition("It knows ")[2].partition(" ([how]")[0].lower()
    assert sentence and run.help
    for agent in AGENTS:
        assert f"`{agent.name}`" in TEXT
        assert agent.name in sentence and agent.name in run.help
