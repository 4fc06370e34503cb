"""Contents of a commit, as far as its command and git's output tell."""

import json

import pytest

from refold.messages import Message, Text, ToolCall, ToolResult
from refold.summarizers.heuristic.shell import git_steps
from tests.support.messages import call
from tests.support.summaries import collect


def bash(command, result=""):
    return call("bash", result, command=command)


def write(*paths):
    return [message for path in paths for message in call("Write", path=path, content="x")]


def edit(*paths):
    return [
        message
        for path in paths
        for message in call("Edit", path=path, old_string="a", new_string="b")
    ]


def commit(command, files=None, *lines):
    """Return a commit and git's output."""
    counted = f" {files} file{'s' * (files != 1)} changed, 9 insertions(+)" if files else ""
    return bash(command, "\n".join(("[main 1234567] A subject", counted, *lines)))


def list_committed(*calls):
    files = collect([message for step in calls for message in step]).files
    return {path for path, file in files.items() if file.is_committed}


@pytest.mark.parametrize(("command", "steps"), [
    ("git add -A", [("add", [])]),
    ("git add .", [("add", [])]),
    ("cd web && git add .", [("add", ["web"])]),
    ("cd /srv/shop && git add .", [("add", [])]),
    ("cd web && git add -A", [("add", [])]),
    ("git add docs/ src/*.py -f 2>&1", [("add", ["docs", "src/*.py"])]),
    ("git add -u && git add -u src", [("update", []), ("update", ["src"])]),
    ("git -C web add -- a.ts", [("add", ["web/a.ts"])]),
    ("git rm old.py && git mv a.py b.py", [("add", ["old.py"]), ("add", ["a.py", "b.py"])]),
    ("git rm --cached a.pyc", [("unstage", ["a.pyc"])]),
    ("git restore --staged a.py && git reset HEAD b.py && git reset", [("unstage", ["a.py"]), ("unstage", ["b.py"]), ("unstage", [])]),
    ("git reset --hard && git reset --soft HEAD~1", []),
    ("git commit -am x", [("update", ()), ("commit", [])]),
    ("git commit -m 'add -A' -- a.py", [("commit", ["a.py"])]),
    ("git commit --dry-run", []),
    ("git status && git log -- a.py", []),
])  # fmt: skip
def test_changes_of_the_git_index_are_parsed_from_commands(command, steps):
    assert [(verb, names) for verb, names in git_steps(command)] == steps


def test_a_commit_covers_files_added_by_a_glob_pattern():
    changed = edit(
        "opk/slicers/cura.py", "opk/slicers/deep/x.py", "opk/core/bundle.py", "docs/a.md"
    )
    by_pattern = commit("git add opk/slicers/*.py docs/a.md && git commit -m x")
    assert list_committed(changed, by_pattern) == {"opk/slicers/cura.py", "docs/a.md"}
    absolute = edit("/srv/opk/slicers/cura.py", "/srv/opk/core/bundle.py")
    assert list_committed(absolute, by_pattern) == {"/srv/opk/slicers/cura.py"}


def test_a_commit_covers_no_edited_file_if_only_others_were_added():
    of_other_files = commit("git commit -m 'Lock the dependencies'", 1)
    assert not list_committed(edit("src/a.ts"), bash("git add package-lock.json"), of_other_files)
    later = commit("git commit -m x", 1)
    assert list_committed(
        edit("src/a.ts"), bash("git add package-lock.json"), of_other_files, later
    ) == {"src/a.ts"}


def test_unstaged_files_are_not_committed():
    out, last = bash("git restore --staged README.md"), commit("git commit -m x", 1)
    assert list_committed(edit("a.py", "README.md"), bash("git add -A"), out, last) == {"a.py"}
    assert list_committed(edit("a.py", "README.md"), out, last) == {"a.py"}
    assert not list_committed(edit("a.py"), bash("git add a.py"), bash("git reset"), last)


def test_commit_with_option_a_does_not_cover_new_files():
    steps = write("new.py"), edit("a.py"), commit("git commit -am x", 1)
    assert list_committed(*steps) == {"a.py"}
    named = commit("git add new.py && git commit -m y", 1, " create mode 100644 new.py")
    assert list_committed(*steps, edit("new.py"), named) == {"a.py", "new.py"}


@pytest.mark.parametrize("path", [
    ".env", "node_modules/x/index.js", "web/dist/app.js", "run.log", "src/__pycache__/a.pyc", "/tmp/probe.py",
    "/home/ada/.claude/plans/plan.md", "~/notes.md",
])  # fmt: skip
def test_usually_ignored_files_are_not_covered_by_git_add_all(path):
    changed = edit("src/a.py", path)
    for files in (None, 1, 9):
        assert list_committed(changed, commit("git add -A && git commit -m x", files)) == {
            "src/a.py"
        }
    if "/" not in path:
        named = commit(f"git add -f {path} && git commit -m x")
        assert list_committed(changed, named) == {path}


def test_a_project_in_a_folder_called_build_is_not_ignored():
    folder = "/home/ada/build/app"
    changed = edit(f"{folder}/src/a.py", f"{folder}/src/b.py"), edit("/home/ada/notes.md")
    assert list_committed(*changed, commit("git add -A && git commit -m x")) >= {
        f"{folder}/src/a.py",
        f"{folder}/src/b.py",
    }


def test_a_commit_of_fewer_files_covers_only_those_that_git_names():
    changed = (*write("src/new.py"), *edit("src/a.py", "src/b.py"), *bash("rm src/old.py"))
    named = " create mode 100644 src/new.py", " delete mode 100644 src/old.py"
    everything = {"src/new.py", "src/a.py", "src/b.py", "src/old.py"}
    command = "git add -A && git commit -m x"
    assert list_committed(changed, commit(command, 4, *named)) == everything
    assert list_committed(changed, commit(command, 3, *named)) == {"src/new.py", "src/old.py"}
    assert list_committed(changed, commit(command, 2)) == {"src/a.py", "src/b.py"}
    assert list_committed(changed, commit(command)) == everything
    moved = commit(command, 4, " rename src/{old.py => new.py} (100%)")
    assert list_committed(changed, moved) == everything
    twice = bash(f"{command}; git pull", "[main 1] x\n 1 file changed\n 2 files changed")
    assert list_committed(changed, twice) == everything


def test_paths_that_a_commit_prints_are_relative_to_the_repository_root():
    changed = write("/srv/shop/src/new.py", "/srv/blog/src/draft.md")
    of_all = commit("git add -A && git commit -m x", 7, " create mode 100644 src/new.py")
    assert list_committed(changed, of_all) == {"/srv/shop/src/new.py"}


def test_a_commit_with_paths_covers_only_these():
    of_paths = commit("git commit -m x -- src", 1)
    assert list_committed(edit("src/a.py", "b.py"), of_paths) == {"src/a.py"}


def test_git_add_in_a_directory_covers_only_its_files():
    changed = edit("web/a.ts", "a.ts")
    assert list_committed(changed, commit("cd web && git add . && git commit -m x")) == {"web/a.ts"}
    assert list_committed(changed, commit("git add a.ts && git commit -m x")) == {"a.ts"}


def test_a_known_path_may_be_a_suffix_of_the_path_that_git_prints():
    of_deletion = commit(
        "git add -A && git commit -m x", 7, " delete mode 100644 agents/config/a.yaml"
    )
    assert list_committed(bash("rm config/a.yaml"), of_deletion) == {"config/a.yaml"}
    assert list_committed(bash("rm -r agents/config"), of_deletion) == {"agents/config"}


def test_git_rm_cached_does_not_delete_the_file():
    assert not collect(bash("git rm --cached a.pyc")).files


def test_a_deleted_file_that_no_commit_names_is_not_stashed():
    of_all = commit("git add -A && git commit -m x", 1)
    files = collect([*bash("rm graph.json"), *edit("a.py"), *of_all, *bash("git stash")]).files
    assert files["graph.json"].state == "deleted" and not files["graph.json"].is_committed


@pytest.mark.parametrize("output", [
    'On branch main\nChanges not staged for commit:\n\tmodified:   a.py\n\nno changes added to commit (use "git add")',
    "On branch main\nnothing to commit, working tree clean",
    "nothing added to commit but untracked files present",
    "位于分支 main\n无文件要提交，干净的工作区", "ブランチ main\nコミットするものがありません", "Auf Branch main\nnichts zu committen, Arbeitsverzeichnis unverändert",
])  # fmt: skip
def test_a_commit_that_git_reports_as_empty_commits_nothing(output):
    """A pipe hides git's exit code."""
    state = collect([*edit("a.py"), *bash("git commit -m x 2>&1 | tail -3", output)])
    assert not state.files["a.py"].is_committed and not state.checks
    status = bash("git commit -m x && git status", f"[main 1234567] x\n 1 file changed\n{output}")
    assert list_committed(edit("a.py"), status) == {"a.py"}
    assert list_committed(edit("a.py"), bash("git commit -qm x; git status", output)) == {"a.py"}


@pytest.mark.parametrize("options", ["--amend --no-edit", "--allow-empty -m x"])
def test_an_amended_or_empty_commit_covers_only_staged_files(options):
    assert not list_committed(edit("a.py"), bash(f"git commit {options}"))
    assert list_committed(edit("a.py"), bash(f"git add -A && git commit {options}")) == {"a.py"}
    assert list_committed(edit("a.py"), bash(f"git commit -a {options}")) == {"a.py"}


def test_a_commit_counts_even_if_the_push_after_it_fails():
    push = "git add . && git commit -m 'Add it' && git push"
    call = Message("assistant", (ToolCall("c1", "Bash", json.dumps({"command": push})),))
    printed = (
        "Exit code 128\n[main 1234567] Add it\n 1 file changed\n create mode 100644 a.py\nfatal: no"
    )
    failed = [call, Message("tool", (ToolResult("c1", (Text(printed),), True),))]
    state = collect([*write("a.py"), *failed])
    assert state.files["a.py"].is_committed
    assert state.checks == {"git commit": "[main 1234567] Add it"}
    assert state.failure.error == "fatal: no"


def test_text_that_mentions_git_commit_is_not_a_commit():
    """A script with the argument `+git commit` was once listed as a successful commit."""
    for command in ('sh done.sh "7 handlers, git commit"', "echo 'git commit' # git commit"):
        assert not collect(bash(command)).checks
    for command in ("git -c user.name=A commit -m x", "bash -c 'cd a && git commit -m x'"):
        assert list(collect(bash(command)).checks) == ["git commit"]


def test_git_quotes_the_names_of_files_in_other_scripts():
    """A new file with a Chinese name was once never committed."""
    listed = ' create mode 100644 "docs/\\346\\212\\245 \\\\ \\345\\221\\212.md"'
    added = commit("git add -A && git commit -m x", 1, listed)
    assert list_committed(write("docs/报 \\ 告.md", "b.md"), added) == {"docs/报 \\ 告.md"}
    raw = commit("git add -A && git commit -m x", 1, ' create mode 100644 "报\\".md"')
    assert list_committed(write('报".md', "b.md"), raw) == {'报".md'}  # core.quotePath=false
    for name in ("\\346\\x", "\\q", "\\777", "\\"):
        broken = commit("git add -A && git commit -m x", 1, f' create mode 100644 "{name}"')
        assert not list_committed(write("a.md", "b.md"), broken)
