"""`refold serve` for its user: its output, its files, and the state after a failed start."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from refold import gateway
from refold.cli.gateway_commands import banner
from refold.cli.places import data_directory, find_store
from tests.support.command_line import refold, set_home


def serve_config(**settings) -> gateway.Config:
    upstreams = tuple(
        map(gateway.parse_upstream, ("anthropic", "openai", "mine=https://a.example"))
    )
    return gateway.Config(upstreams=upstreams, **settings)


def test_the_banner_shows_the_base_url_for_each_client(tmp_path, monkeypatch):
    set_home(monkeypatch, tmp_path)
    text = "\n".join(line.plain for line in banner(serve_config(store=str(tmp_path / "x.db"))))
    for words in (
        "listens on http://127.0.0.1:8484",
        "ANTHROPIC_BASE_URL=http://127.0.0.1:8484 claude",
        "OPENAI_BASE_URL=http://127.0.0.1:8484/v1",
        "OPENAI_BASE_URL=http://127.0.0.1:8484/mine/v1",
        "http://127.0.0.1:8484/refold/",
        "~/x.db",
        "Ctrl-C",
        "--record",
    ):
        assert words in text
    assert "GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:8484 gemini" not in text
    recording = "\n".join(
        line.plain for line in banner(serve_config(store=":memory:", record="7d"))
    )
    assert "memory: lost at exit" in recording
    assert "--record" not in recording


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_the_banner_shows_the_host_name_if_it_listens_on_all_interfaces(host) -> None:
    """0.0.0.0 is not reachable from other machines."""
    config = serve_config(store=":memory:", host=host, tenant="credential")
    first, *rest = (line.plain for line in banner(config))
    assert f"listens on http://{host}:8484" in first
    assert f"ANTHROPIC_BASE_URL=http://{socket.gethostname()}:8484 claude" in "\n".join(rest)
    assert host not in "\n".join(rest)


def test_session_files_are_listed_by_default_only_for_a_single_local_user(tmp_path, monkeypatch):
    monkeypatch.setenv("REFOLD_ADMIN_TOKEN", "correct horse battery")
    config = tmp_path / "refold.toml"
    upstream = '[[upstream]]\nurl = "https://a.example"\n'

    def lists_files(*options: str, text: str = "") -> bool:
        config.write_text(f"{text}\n{upstream}")
        run = refold("serve", "--config", str(config), "--check", *options)
        return run.json["files"]

    assert lists_files() and lists_files("--host", "::1")
    for host in ("::1", "[::1]"):
        shown = refold("serve", "--config", str(config), "--check", "--host", host)
        assert shown.json["listens"] == "[::1]:8484" and "http://[::1]:8484 ->" in shown.err
    assert not lists_files("--host", "0.0.0.0")
    assert not lists_files("--allow-host", "team.example")
    assert not lists_files(text='tenant = "header:x-user"')
    assert not lists_files("--no-files") and not lists_files(text="files = false")
    assert lists_files("--files", "--allow-host", "team.example"), "who says so knows"
    refused = refold("serve", "--config", str(config), "--files", "--host", "0.0.0.0")
    assert refused.code == 2 and "files" in refused.err


def test_the_default_store_is_in_the_data_directory_or_an_existing_refold_db(tmp_path, monkeypatch):
    set_home(monkeypatch, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REFOLD_STORE", raising=False)
    assert data_directory(tmp_path, {}, "linux") == tmp_path / ".local/share/refold"
    assert find_store() == str(data_directory(tmp_path, {}) / "refold.db")
    assert find_store({"REFOLD_STORE": "x.db"}) == "x.db"
    (tmp_path / "refold.db.ledger").touch()
    assert find_store() == "refold.db"
    assert find_store({"REFOLD_STORE": "x.db"}) == "x.db"


def test_a_start_that_fails_leaves_no_files(tmp_path, loggers):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = refold("serve", "--upstream", "openai", "--port", port, "--store", tmp_path / "a.db")
    assert done.code == 2
    assert "in use" in done.err
    broken = tmp_path / "b.db"
    broken.write_text("no database, but a text of some length\n" * 99)
    done = refold("serve", "--upstream", "openai", "--port", "0", "--store", broken)
    assert done.code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["b.db"]
    assert broken.read_text().startswith("no database")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
def test_serve_check_succeeds_even_if_its_log_cannot_be_written():
    """The log line with its address once ended the start: exit code 1 without a message."""
    command = [sys.executable, "-m", "refold", "serve", "--upstream", "openai", "--check"]
    with Path("/dev/full").open("w") as full:
        subprocess.run(command, stderr=full, stdout=subprocess.PIPE, check=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_an_upstream_that_is_the_gateway_itself_is_misuse(host: str):
    """Each request became a thousand, until none was answered."""
    command = ("serve", "--check", "--upstream", f"http://{host}:8484/v1")
    run = refold(*command)
    assert run.code == 2 and "is this gateway itself" in run.err
    assert refold(*command, "--port", "8485").code == 0


@pytest.mark.parametrize("options", [
    ("http://localhost/v1", "--port", "80"), ("http://0.0.0.0:8484/v1",), ("http://[::]:8484/v1",),
    ("http://10.0.0.5:8484/v1", "--host", "10.0.0.5"), ("http://127.0.0.1:8484/v1", "--host", "0.0.0.0"),
])  # fmt: skip
def test_another_address_of_the_gateway_itself_is_misuse(options: tuple[str, ...], monkeypatch):
    monkeypatch.setenv("REFOLD_ADMIN_TOKEN", "x" * 16)
    run = refold("serve", "--check", "--upstream", *options)
    assert run.code == 2 and "is this gateway itself" in run.err


def test_an_upstream_may_have_the_port_of_a_gateway_that_serves_elsewhere(monkeypatch):
    """A proxy on 127.0.0.1:4000 was refused behind a gateway on another address with that port."""
    monkeypatch.setenv("REFOLD_ADMIN_TOKEN", "x" * 16)
    options = ("--host", "10.0.0.5", "--port", "4000", "--upstream", "http://127.0.0.1:4000/v1")
    assert refold("serve", "--check", *options).code == 0
