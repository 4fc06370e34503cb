"""A command's working directory decides which file a path in it names."""

import json

import pytest

from refold.compactor.by_hand import find_losses
from refold.core.view import View
from refold.messages import ToolCall, user
from refold.models.driver import drive
from refold.scorers import Freshness
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.heuristic.calls import effect_of_call, effect_of_command
from refold.summarizers.heuristic.current_files import read_files
from refold.summarizers.heuristic.shell import file_effects, git_steps
from refold.summarizers.heuristic.shell_words import WorkingDir, iter_written
from refold.summarizers.heuristic.steps import read_steps
from refold.text.plain import expand_home
from refold.text.summary_wrapper import wrap_summary
from tests.support.messages import call
from tests.support.summaries import collect, states_of

CODEX = user(
    "<environment_context>\n  <cwd>/srv/shop</cwd>\n  <approval_policy>never</approval_policy>\n"
    "  <shell>zsh</shell>\n</environment_context>"
)
"""Codex's message about its working directory."""


def shell(command, result="", workdir="/srv/shop"):
    """Return a command as Codex writes it."""
    return call("shell", result, command=["bash", "-lc", command], workdir=workdir)


def patch(path, old, new):
    lines = ("*** Begin Patch", f"*** Update File: {path}", "@@", f"-{old}", f"+{new}")
    return call("apply_patch", "Success.", input="\n".join((*lines, "*** End Patch")))


@pytest.mark.parametrize(("command", "paths"), [
    ("cd frontend && cat src/app.ts", ["frontend/src/app.ts"]),
    ("cd /srv/shop/frontend && cat src/app.ts", ["/srv/shop/frontend/src/app.ts"]),
    ('cd "/Volumes/Ada\'s Disk/shop" && cat app.ts', ["/Volumes/Ada's Disk/shop/app.ts"]),
    ("cd frontend\ncat app.ts\ncd ..\ncat app.ts", ["frontend/app.ts", "app.ts"]),
    ("(cd frontend && cat app.ts) && cat app.ts", ["frontend/app.ts", "app.ts"]),
    ("(cd a; (cd b; cat x.ts); cat x.ts); cat x.ts", ["a/b/x.ts", "a/x.ts", "x.ts"]),
    ("pushd a > /dev/null; cat x.ts; popd; cat x.ts", ["a/x.ts", "…/x.ts"]),
    ("cd frontend 2>/dev/null || exit 1; cat app.ts", ["frontend/app.ts"]),
    ("cd $APP && cat app.ts && cd /a && cat app.ts", ["…/app.ts", "/a/app.ts"]),
    ("cd $(mktemp -d) && cat ../app.ts", ["…/app.ts"]),
    ('cd "$APP"/src && cat app.ts', ["…/app.ts"]),
    ("cd -; cat app.ts", ["…/app.ts"]),
    ("cd; cat notes.txt", ["~/notes.txt"]),
    ("for d in a b; do cd $d && cat app.ts; done", ["…/app.ts"]),
    ("V=$(cd frontend && cat app.ts) && cat app.ts", ["frontend/app.ts", "app.ts"]),
    ("git -C frontend rm app.ts && git rm app.ts", ["frontend/app.ts", "app.ts"]),
    ("cat ./src/../app.ts ../app.ts /a/../app.ts", ["app.ts", "../app.ts", "/app.ts"]),
    ("cd / && cat etc/hosts.deny", ["/etc/hosts.deny"]),
    ("cd frontend && echo x >> .env && cat > a.ts <<EOF\nx\nEOF", ["frontend/.env", "frontend/a.ts"]),
])  # fmt: skip
def test_paths_are_resolved_against_the_working_directory_of_their_command(command, paths):
    assert [path for path, _ in file_effects(command)] == paths


def test_files_of_the_same_name_in_two_folders_are_two_files():
    messages = [
        *call("bash", "name = 'web'", command="cd frontend && cat src/app.ts"),
        *call("bash", "name = 'api'", command="cat src/app.ts"),
        *call("bash", command="cd frontend && sed -i s/web.*/page/ src/app.ts"),
    ]
    assert states_of(collect(messages)) == {"src/app.ts": "read", "frontend/src/app.ts": "modified"}
    for is_sure in (False, True):  # a shell may stay where it was
        files = read_files(read_steps([CODEX, *messages] if is_sure else messages))
        assert files["src/app.ts"].lines == [(1, "name = 'api'")]
        assert files["src/app.ts"].is_stale != is_sure
        assert files["frontend/src/app.ts"].is_stale


@pytest.mark.parametrize("argument", ["workdir", "cwd", "dir_path", "directory"])
def test_the_working_directory_is_read_from_an_argument_of_the_call(argument):
    at_root = call("run", command="cat src/app.ts", **{argument: "/srv/shop"})
    below = call("run", command="cat src/app.ts", **{argument: "/srv/shop/frontend"})
    both = [*at_root, *below]
    assert [*states_of(collect(both))] == [
        "/srv/shop/src/app.ts",
        "/srv/shop/frontend/src/app.ts",
    ]
    assert [*states_of(collect([CODEX, *both]))] == ["src/app.ts", "frontend/src/app.ts"]


def test_absolute_and_relative_paths_of_codex_are_one_file():
    messages = [
        CODEX,
        user("Rename it."),
        *shell("cat src/app.ts", "name = 'web'\nport = 1", "/srv/shop/frontend"),
        *patch("frontend/src/app.ts", "name = 'web'", "name = 'page'"),
        *shell("cat > frontend/src/a.ts <<'EOF'\nx\nEOF\ncd frontend && echo y > src/b.ts"),
        *shell("rm /srv/shop/frontend/src/old.ts"),
        *shell("cat app.ts", "name = 'page'\nport = 1", "frontend/src"),
    ]
    assert states_of(collect(messages)) == {
        "frontend/src/app.ts": "modified",
        "frontend/src/a.ts": "created",
        "frontend/src/b.ts": "created",
        "frontend/src/old.ts": "deleted",
    }
    app, written, *_ = read_files(read_steps(messages)).values()
    assert [text for _, text in app.lines] == ["name = 'page'", "port = 1"] and not app.is_stale
    assert written.lines == [(1, "x")]


def test_a_summary_names_files_relative_to_the_working_directory():
    shown = shell("cat src/app.ts", "\n".join(f"const limit_{n} = {n}" for n in range(40)))
    messages = [
        CODEX,
        user("Go."),
        *shown,
        *patch("src/app.ts", "const limit_3 = 3", "const x = 0"),
    ]
    for start in (0, 1):
        text = drive(RuleSummary()(View.of(messages), start, len(messages), 4_000)).text
        assert "modified, not tested since: src/app.ts" in text
        assert "### src/app.ts\n" in text and "const x = 0\nconst limit_4" in text


def test_paths_are_absolute_if_the_working_directory_of_the_session_changes():
    other_folder = user("<environment_context>\n  <cwd>/srv/blog</cwd>\n</environment_context>")
    assert [*states_of(collect([CODEX, *shell("cat a.ts"), other_folder]))] == ["/srv/shop/a.ts"]


def test_a_patch_in_a_command_is_applied_in_its_working_directory():
    body = "*** Begin Patch\n*** Add File: a.ts\n+x\n*** End Patch"
    messages = [CODEX, *shell(f"cd frontend && apply_patch <<'EOF'\n{body}\nEOF", "Success.")]
    assert states_of(collect(messages)) == {"frontend/a.ts": "created"}
    assert read_files(read_steps(messages))["frontend/a.ts"].lines == [(1, "x")]


def test_heredocs_are_written_to_files_of_the_current_directory():
    command = "cd web\ncat > a.ts <<'EOF'\nx\nEOF\ncd ..\ncat > a.ts <<'EOF'\ny\nEOF"
    assert list(iter_written(command)) == [("web/a.ts", "x"), ("a.ts", "y")]


def test_staged_paths_are_resolved_against_the_working_directory():
    assert list(git_steps("cd web && git add src/a.ts ../b.ts")) == [
        ("add", ["web/src/a.ts", "b.ts"])
    ]


def test_a_change_in_an_unknown_directory_makes_a_file_stale():
    messages = [
        *call("Read", "     1\tname = 1", file_path="/srv/shop/src/app.ts"),
        *call("bash", command="cd $ROOT && sed -i s/1/2/ src/app.ts"),
    ]
    assert read_files(read_steps(messages))["/srv/shop/src/app.ts"].is_stale


def test_a_result_stays_fresh_if_only_a_file_in_another_folder_is_patched():
    read = [CODEX, user("Go."), *shell("cat src/app.ts", "x", "/srv/shop/frontend")]
    for path, score in (("src/app.ts", 1.0), ("frontend/src/app.ts", 0.3)):
        assert Freshness()(View.of([*read, *patch(path, "x", "y")]))[2] == score


def test_only_paths_that_messages_contain_are_reported_as_lost():
    messages = [
        user("Go."),
        *call("bash", command="cd web && cat src/app.ts old.ts"),
        user("Thanks."),
    ]
    before = View.of(messages)
    after = before.apply_valid([before.fold(0, max(before.cuts), user("Gone."), by="all")])
    losses = find_losses(before, after)
    assert {*losses.paths, *losses.identifiers} == {"src/app.ts", "old.ts"}


PATCH = """*** Begin Patch
*** Update File: src/a.py
@@
-x = 1
+self.tools.register(x)
*** End Patch"""


@pytest.mark.parametrize(("name", "arguments"), [
    ("apply_patch", PATCH), ("apply_patch", json.dumps({"input": PATCH})),
    ("edit_file", json.dumps({"path": "src/a.py", "code": "self.tools.register(x)"})),
])  # fmt: skip
def test_a_change_of_code_that_calls_tools_is_no_script(name, arguments):
    """Codex gives both scripts and patches as plain text."""
    effect = effect_of_call(ToolCall("c1", name, arguments))
    assert (effect.tool, effect.files) == (name, (("src/a.py", "modified"),))
    script = effect_of_call(ToolCall("c1", "exec", "await tools.shell({cmd: 'cat src/b.py'})"))
    assert (script.tool, script.files) == ("shell", (("src/b.py", "read"),))


def test_multiedit_changes_its_file():
    """OpenCode and Crush spell it as one word."""
    edit = {"oldString": "a = 1", "newString": "a = 2"}
    arguments = {"filePath": "src/a.py", "edits": [edit]}
    effect = effect_of_call(ToolCall("c1", "multiedit", json.dumps(arguments)))
    assert effect.files == (("src/a.py", "modified"),)
    assert [change.path for change in effect.changes] == ["src/a.py"]


@pytest.mark.parametrize(("beside", "files"), [
    ("repo", ()), ("repoName", ()), ("repository_id", ()),
    ("report", (("a.md", "created"),)), ("report_title", (("a.md", "created"),)),
])  # fmt: skip
def test_the_path_beside_a_repository_is_remote_but_not_beside_a_report(beside, files):
    arguments = json.dumps({"path": "a.md", "content": "x", beside: "weekly"})
    assert effect_of_call(ToolCall("c1", "create_file", arguments)).files == files


@pytest.mark.parametrize("arguments", [
    {"command": "git add ''"}, {"command": "cd ''; cat ''"}, {"command": "cd (; cat a.py)"}, {"command": ")) cd a"},
    {"command": "cat a.py", "workdir": 3}, {"command": "cat a.py", "cwd": " "}, {"command": "(" * 9_000 + "cd a" * 999},
])  # fmt: skip
def test_malformed_commands_do_not_raise(arguments):
    effect_of_call(ToolCall("c1", "bash", json.dumps(arguments)), "/srv")
    list(git_steps(arguments["command"]))


def test_a_very_long_chain_of_directory_changes_is_truncated():
    assert next(file_effects("cd a; " * 600 + "cat x.py"))[0].startswith("…/a/")
    assert WorkingDir("/a").enter("b" * 600) == WorkingDir("/a", "…")


V, B = "/repo/src/v.ts", "/repo/src/b.ts"
BOTH = [
    *call("Edit", "Done.", file_path=V, old_string="x", new_string="z"),
    *call("Read", "1\ty", file_path=B),
]


@pytest.mark.parametrize(("command", "states", "texts"), [
    ("rm src/v.ts", {V: "deleted", B: "read"}, [B]),
    ("cd src && rm ./v.ts b.ts", {V: "deleted", B: "deleted"}, []),
    ("git checkout src/", {V: "restored", B: "read"}, [V, B]),
    ("cat > src/b.ts <<'EOF'\nz\nEOF", {V: "modified", B: "modified"}, [V, B]),
    ("rm -r src", {"/repo/src": "deleted"}, []),
])  # fmt: skip
def test_a_file_has_one_name_if_tools_name_it_absolutely_and_commands_relatively(
    command, states, texts
):
    messages = [*BOTH, *call("Bash", command=command)]
    assert states_of(collect(messages)) == states
    files = read_files(read_steps(messages))
    assert sorted(files) == sorted(texts)


def test_relative_and_absolute_windows_paths_of_a_created_file_are_one_file():
    path = "C:\\Users\\ada\\cap\\notes.md"
    body = "*** Begin Patch\n*** Add File: notes.md\n+one\n+two\n*** End Patch"
    messages = [
        user("Go."),
        *call("write", "Done.", filePath="C:\\Users\\ada\\cap\\doc\\plan.md", content="x"),
        *call("apply_patch", "Success.", patchText=body),
        *patch(path, "one", "ONE"),
        *call("bash", "", command="git add doc notes.md && git commit -m a", workdir=path[:-9]),
    ]
    assert read_files(read_steps(messages))[path].lines == [(1, "ONE"), (2, "two")]
    files = collect(messages).files
    assert {name: file.is_committed for name, file in files.items()} == {
        path[:-8] + "doc\\plan.md": True,
        path: True,
    }
    text = drive(
        RuleSummary()(View.of([*messages, user("x " * 9_000)]), 0, len(messages), 4_000)
    ).text
    assert "root: C:\\Users\\ada\\cap\\\ncreated, committed: notes.md doc\\plan.md" in text


def test_the_root_is_the_folder_that_makes_the_listed_paths_shortest():
    """Most files are in `src`, but all are in the folder above it."""
    names = ["src/api.py", "src/app.py", "src/db.py", "src/main.py", "AGENTS.md", "setup.cfg"]
    writes = [
        part for n in names for part in call("Write", file_path=f"/srv/harbor/{n}", content="x")
    ]
    view = View.of([user("Go."), *writes])
    text = drive(RuleSummary()(view, 0, len(view.transcript), 900)).text
    assert "root: /srv/harbor/\n" in text


@pytest.mark.parametrize("reads", [
    call("Read", "1\ty", file_path="/repo/web/src/v.ts"),  # ambiguous: either may be meant
    [m for n in "abc" for m in call("Read", "1\ty", file_path=f"/srv/{n}.ts")],  # most are elsewhere
])  # fmt: skip
def test_an_ambiguous_relative_path_is_not_resolved(reads):
    states = states_of(collect([*BOTH, *reads, *call("Bash", command="rm src/v.ts")]))
    assert (states["src/v.ts"], states[V]) == ("deleted", "modified")


def test_a_file_read_in_another_copy_of_the_project_stays_a_separate_file():
    messages = [
        *call("Read", "1\told", file_path="/old/src/v.ts"),
        *call("Bash", command="rm src/v.ts"),
    ]
    assert states_of(collect(messages)) == {"/old/src/v.ts": "read", "src/v.ts": "deleted"}


def test_an_earlier_summary_and_later_calls_may_name_a_file_differently():
    earlier = wrap_summary("## Files\ncreated, not tested since: /repo/src/v.ts")
    messages = [earlier, *call("Bash", command="rm src/v.ts"), user("x " * 9_000)]
    assert "deleted" in (files := drive(RuleSummary()(View.of(messages), 0, 3, 2_000)).text)
    assert "created" not in files


def test_the_home_folder_is_inferred_if_paths_show_exactly_one() -> None:
    paths = ["~/a.py", "b.py", "~"]
    assert expand_home(["/home/ada/x.py", "/srv/y.py"], paths) == {"~/a.py": "/home/ada/a.py"}
    assert expand_home(["/home/ada/x.py", "/Users/bo/y.py"], paths) == {}
    assert expand_home(["/srv/y.py"], paths) == {}
    paths = ["~/a.py", "~\\src\\b.py"]
    expected = {"~/a.py": r"C:\Users\ada\a.py", "~\\src\\b.py": r"C:\Users\ada\src\b.py"}
    assert expand_home([r"C:\Users\ada\x.py", "C:/Users/ada/y.py"], paths) == expected


@pytest.mark.parametrize(
    ("command", "effects"),
    [
        (r"ren src\a.py b.py", [("src/a.py", "deleted"), ("src/b.py", "created")]),
        (
            r"Rename-Item -Path src\a.py -NewName b.py",
            [("src/a.py", "deleted"), ("src/b.py", "created")],
        ),
        (r'cd "C:\x\" && del a.py', [(r"C:\x\a.py", "deleted")]),
        (r'copy a.py "C:\x\"', [("a.py", "read"), (r"C:\x\a.py", "created")]),
        (r"del %USERPROFILE%\a.py", [("~/a.py", "deleted")]),
        (r'git commit -m "x:\"a\" b" && rm y.py', [("y.py", "deleted")]),
    ],
)
def test_commands_of_windows_name_the_files_that_they_change(
    command: str, effects: list[tuple[str, str]]
) -> None:
    r"""A new name stands in the folder of the old one, and `\"` ends a path, but no other text."""
    assert list(file_effects(command)) == effects


def test_a_script_piped_into_powershell_is_parsed_as_the_command():
    """Files read this way were once missed, and `@'` was a program."""
    script = "$i=1; Get-Content src/a.py | ForEach-Object { '{0,4}: {1}' -f $i, $_; $i++ }"
    piped = f"@'\n{script}\n'@ | powershell -NoProfile -Command -"
    effect = effect_of_call(ToolCall("c1", "shell_command", json.dumps({"command": piped})))
    assert (effect.command, effect.files) == (script, (("src/a.py", "read"),))


@pytest.mark.parametrize("folder", [
    "/home/ada/shop", "/home/ada/my shop", "/home/ada/项目", "C:\\Users\\ada\\shop", "C:\\Users\\ada\\my shop",
])  # fmt: skip
@pytest.mark.parametrize("form", ["double", "single", "escaped", "slashes", "drive"])
def test_a_session_is_read_alike_whatever_letters_are_in_the_path_of_its_folder(folder, form):
    """Of a folder with a blank `cd` was once a part of each command, and no commit counted; of one
    on Windows commands changed no file."""
    mark, slashed = folder[8 if folder[1] == ":" else 0], folder.replace("\\", "/")
    source, test = mark.join((folder, "src", "a.py")), mark.join((folder, "test_a.py"))
    place = {
        "double": f'"{folder}"',
        "single": f"'{folder}'",
        "escaped": slashed.replace(" ", "\\ "),
        "slashes": f'"{slashed}"',
        "drive": f'"{slashed.replace("C:", "/c")}"',
    }[form]
    edited = f"{place[:-1]}/src/a.py{place[-1]}" if form != "escaped" else f"{place}/src/a.py"
    edited = edited.replace("/", "\\") if form in {"double", "single"} and mark == "\\" else edited
    messages = [
        user("Go."),
        *call("Read", "1\tx = 1", file_path=source),
        *call("Write", "Done.", file_path=test, content="import a"),
        *call("Bash", command=f"sed -i 's/x = 1/x = 2/' {edited}"),
        *call("Bash", "2 passed", command=f"export A='b c' && cd {place} && pytest -q"),
        *call("Bash", command=f"git -C {place} add src/a.py test_a.py"),
        *call("Bash", "[main 1234567] A", command=f"git -C {place} commit -m A"),
        *call("Bash", "Exit code 1\nE: no", command=f"cd {place}; deploy --now"),
        *call("Bash", command=f"cd {place} && rm -f test_a.py"),
    ]
    state = collect(messages)
    assert states_of(state) == {source: "modified", test: "deleted"}
    assert state.files[source].is_committed and list(state.checks) == ["pytest -q", "git commit"]
    assert list(state.actions.failed) == ["deploy --now"]
    assert read_files(read_steps(messages))[source].lines == [(1, "x = 2")]


@pytest.mark.parametrize(("command", "files"), [
    ("cd /d C:\\shop && del src\\old.py", [("C:\\shop\\src\\old.py", "deleted")]),
    ("(Get-Content src\\a.py) -replace 'a', 'b' | Set-Content src\\a.py", [("src/a.py", "read"), ("src/a.py", "created")]),
    ("python make.py > out\\a.txt; git checkout -- src\\a.py", [("out/a.txt", "created"), ("src/a.py", "restored")]),
    ("cd /d && rm a.py", [("/d/a.py", "deleted")]),
    ("cd C:\\'My Shop' && del src\\old.py", [("C:\\My Shop\\src\\old.py", "deleted")]),
    ("cat src/a\\*.py; rm '\\d+.py'", []),
])  # fmt: skip
def test_relative_paths_of_windows_are_spelled_with_slashes(command, files):
    assert list(effect_of_command(command).files) == files
    assert list(git_steps("git add src\\a.py")) == [("add", ["src/a.py"])]
