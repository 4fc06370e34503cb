"""Windows and macOS: locations of files and spellings of paths, with the platform as a
parameter."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

import refold
from refold.cli.sessions import SessionEntry
from refold.cli.terminal import short_path
from refold.session_files import discover, read
from refold.strategies import Summarize
from refold.text.outline import outline_listing, outline_search
from refold.text.plain import is_absolute, split_path


class Platform(NamedTuple):
    """A platform and a user's working directory on it."""

    project: str
    separator: str

    def path(self, *names: str) -> str:
        return self.separator.join([self.project, *names])


LINUX = Platform("/home/mika/shop", "/")
MACOS = Platform("/Users/mika/shop", "/")
WINDOWS = Platform("C:\\Users\\mika\\shop", "\\")
PLATFORMS = pytest.mark.parametrize("platform", [LINUX, MACOS, WINDOWS])


# --- session files ---------------------------------------------------------------------------


def write_lines(path: Path, *records: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return path


def write_claude(home: Path, cwd: str) -> Path:
    folder = "".join(letter if letter.isalnum() else "-" for letter in cwd)
    message = {"role": "user", "content": "Mend the build."}
    line = {"type": "user", "uuid": "a", "parentUuid": None, "cwd": cwd, "message": message}
    name = "0a0b0c0d-aaaa-4aaa-8aaa-aaaaaaaaaaaa.jsonl"
    return write_lines(home / ".claude/projects" / folder / name, line)


def write_codex(home: Path, cwd: str) -> Path:
    name = "rollout-2026-05-11T13-28-45-019e1695-0522-7c83-8b39-0dd379793f80.jsonl"
    meta = {"type": "session_meta", "payload": {"id": "019e1695", "cwd": cwd}}
    content = [{"type": "input_text", "text": "Mend the build."}]
    item = {"type": "message", "role": "user", "content": content}
    line = {"type": "response_item", "payload": item}
    return write_lines(home / ".codex/sessions/2026/05/11" / name, meta, line)


def write_pi(home: Path, cwd: str) -> Path:
    folder = f"--{cwd.strip('/').replace('/', '-').replace(':', '-').replace(chr(92), '-')}--"
    session = {"type": "session", "id": "p1", "cwd": cwd, "timestamp": "2026-11-01T10:00:00Z"}
    message = {"role": "user", "content": "Mend the build."}
    line = {"type": "message", "id": "a", "parentId": None, "message": message}
    name = "2026-11-01T10-00-00-000Z_d703a1a9.jsonl"
    return write_lines(home / ".pi/agent/sessions" / folder / name, session, line)


@PLATFORMS
@pytest.mark.parametrize("write", [write_claude, write_codex, write_pi])
def test_a_clients_sessions_are_found_below_the_home_of_each_platform(
    platform: Platform, write, tmp_path: Path
) -> None:
    """Clients use the same folders of the user's home on all platforms, whatever else Windows
    offers."""
    path = write(tmp_path, platform.project)
    environment = {"LOCALAPPDATA": str(tmp_path / "AppData/Local"), "USERPROFILE": str(tmp_path)}
    (session,) = discover(tmp_path, environment)
    assert session.path == path
    assert read(path).cwd == platform.project
    if session.cwd:
        assert (session.cwd, SessionEntry(session).project) == (platform.project, "shop")


def test_opencode_sessions_are_found_in_the_xdg_data_directory(tmp_path: Path) -> None:
    info = {"id": "ses_1", "directory": WINDOWS.project, "title": "Mend the build."}
    for place, environment in (
        (tmp_path / ".local/share", {}),
        (tmp_path / "data", {"XDG_DATA_HOME": str(tmp_path / "data")}),
    ):
        write_lines(place / "opencode/storage/session/p/ses_1.json", info)
        (session,) = discover(tmp_path, environment)
        assert (session.id, SessionEntry(session).project) == ("ses_1", "shop")


# --- paths in texts --------------------------------------------------------------------------


@PLATFORMS
def test_a_path_is_split_at_the_separator_of_its_platform(platform: Platform) -> None:
    path = platform.path("src", "a.py")
    folder, name = split_path(path)
    assert (folder + name, name) == (path, "a.py")
    assert is_absolute(path) and not is_absolute(f"src{platform.separator}a.py")


@PLATFORMS
def test_the_home_directory_is_shortened_to_a_tilde(platform: Platform, monkeypatch) -> None:
    monkeypatch.setenv("HOME", platform.project.removesuffix(f"{platform.separator}shop"))
    assert short_path(platform.path("a.json")) == platform.separator.join(("~", "shop", "a.json"))


def make_session(platform: Platform) -> list[dict[str, object]]:
    history: list[dict[str, object]] = [{"role": "user", "content": "Mend the build."}]
    for n, name in enumerate(["a.py", "b.py", "c.py"] * 6):
        arguments = {"file_path": platform.path("src", name), "old_string": "x", "new_string": "y"}
        tool = "Edit" if name != "c.py" else "Read"
        use = {"type": "tool_use", "id": f"t{n}", "name": tool, "input": arguments}
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": "line of it\n" * 40}
        history += [
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [result]},
        ]
    return [*history, {"role": "assistant", "content": "Mended."}]


@PLATFORMS
def test_a_summary_lists_files_under_their_root_with_the_platforms_separator(
    platform: Platform,
) -> None:
    """In a session on Windows each path was once written in full, quoted, with doubled
    backslashes."""
    compact = refold.Compactor([Summarize(keep=4)], refold.Budget(2_000, 1_000))
    history = make_session(platform)
    text = compact(history).messages[0].text
    root = platform.path("src", "")
    assert f"root: {root}\n" in text
    assert "modified, not tested since: b.py a.py" in text and "read: c.py" in text
    again = [*history, {"role": "user", "content": "Go on."}, *make_session(platform)[1:]]
    text = compact(again).messages[0].text
    assert f"root: {root}\n" in text and "a.py" in text.partition("root:")[2]


@PLATFORMS
def test_an_outline_groups_names_by_folder(platform: Platform) -> None:
    paths = [platform.path(folder, f"{n}.py") for folder in ("src", "tests") for n in range(40)]
    listing = outline_listing("\n".join(paths), ())
    assert listing is not None
    assert next(line.text for line in listing.lines) == f"in {platform.path('')}:"
    matches = [f"{path}:{n}:def main():" for n, path in enumerate(paths, 1)]
    assert outline_search("\n".join(matches), ()) is not None
