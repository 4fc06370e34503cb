"""`refold mcp`, driven by the official client library over standard input and output."""

import asyncio
import json
import os
import sys

import click
import pytest

from refold import __version__ as refold_version
from refold.cli.mcp_server import preview, recall
from tests.support.command_line import edit_ids, refold
from tests.support.pages import ROOT


async def use(sdk, file, calls):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    server = sdk.StdioServerParameters(
        command=sys.executable, args=["-m", "refold", "mcp"], env=environment
    )
    async with sdk.stdio_client(server) as (read, write), sdk.ClientSession(read, write) as session:
        server_info = (await session.initialize()).server_info
        assert (server_info.name, server_info.version) == ("refold", refold_version)
        names = [tool.name for tool in (await session.list_tools()).tools]
        return names, [await session.call_tool(name, words) for name, words in calls]


def test_an_agent_searches_unfolds_and_previews(file) -> None:
    sdk = pytest.importorskip("mcp")  # it takes half a second to load
    assert refold("compact", file, "--to", "8k").code == 0
    edit = edit_ids(file)[-1]
    session = {"session": str(file)}
    before = sorted(path.name for path in file.parent.iterdir())
    names, (stats, hits, hidden, preview, wrong, impossible) = asyncio.run(
        use(
            sdk,
            file,
            [
                ("stats", session),
                ("recall", {**session, "query": "clock"}),
                ("unfold", {**session, "edit": edit}),
                ("preview", {**session, "to": 4_000}),
                ("unfold", {**session, "edit": "zz"}),
                ("stats", {"session": "a\0b"}),
            ],
        )
    )
    assert sorted(names) == ["preview", "recall", "stats", "unfold"]
    tokens = json.loads(stats.content[0].text)["tokens"]
    assert tokens["sent"] < tokens["unedited"]
    assert json.loads(hits.content[0].text)["hits"]
    assert json.loads(hidden.content[0].text)["entries"]
    after = json.loads(preview.content[0].text)["tokens"]["after"]
    assert after <= 1.05 * 4_000, "a long latest exchange leaves the summary a twentieth"
    assert wrong.is_error and "zz" in wrong.content[0].text
    assert impossible.is_error and "embedded null" in impossible.content[0].text
    assert sorted(path.name for path in file.parent.iterdir()) == before


def test_mcp_tools_return_the_same_json_as_the_command_line(file) -> None:
    assert refold("compact", file, "--to", "8k").code == 0
    for query in ("the clock of a test", "file", "nowhere-to-be-seen"):
        asked = refold("recall", file, query, "--json").json["sessions"]
        assert [json.loads(recall(query, str(file)))] == asked
    for to in ("4000", "900000"):  # less than what is kept already, and more than everything
        asked = refold("compact", file, "--to", to, "--dry-run", "--json").json["sessions"]
        assert [json.loads(preview(int(to), str(file)))] == asked
    with pytest.raises(click.ClickException, match="from 1 to"):
        preview(0, str(file))
    with pytest.raises(click.ClickException, match="standard input"):
        recall("clock", "-")  # the client would read it as protocol
