"""A summary lists an agent's actions: changes come before reads."""

import json

import pytest

from refold.core.view import View
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.models.driver import drive
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.heuristic.shell import file_effects, find_actions, find_checks
from tests.support.summaries import collect, drop_shown, states_of


def call(name, arguments, result=""):
    """Return a call and its result. Arguments given as text are a script."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return [
        Message("assistant", (ToolCall("c1", name, text),)),
        Message("tool", (ToolResult("c1", (Text(result),)),)),
    ]


def run(*commands):
    """Return the state after commands, each with its output."""
    return collect(
        [
            message
            for command, result in commands
            for message in call("bash", {"command": command}, result)
        ]
    )


@pytest.mark.parametrize(("command", "deeds"), [
    ("curl -s http://flags/api | jq .", ""),
    ("curl -s -X DELETE http://flags/api/7 | jq .", "curl -s -X DELETE http://flags/api/7"),
    ("curl -fsSL -o /dev/null -w '%{http_code}' http://flags", ""),
    ("curl -d '{}' http://flags", "curl -d '{}' http://flags"),
    ("gh api repos/a/b/pulls", ""),
    ('missing=(\n  "auto-kg" "brand"\n  "xiao"\n)\nls', ""),
    ("while read n; do helm uninstall $n; done < names.txt", "helm uninstall $n"),
    ("gh api repos/a/b/pulls/1/replies -f body=Thanks", "gh api repos/a/b/pulls/1/replies -f body=Thanks"),
    ("git for-each-ref refs/remotes && git branch -a && git remote -v && git config user.name", ""),
    ("git status && git push -f origin main && git log -3", "git push -f origin main"),
    ("git add -A && git commit -m x && git push", "git push"),
    ("git branch -D old", "git branch -D old"),
    ("git reset --hard HEAD~1", "git reset --hard HEAD~1"),
    ("git restore .", "git restore ."),
    ("sed -i s/a/b/ a.yaml && docker compose up -d", "docker compose up -d"),
    ("rm -rf build/*.log", "rm -rf build/*.log"),
    ("rm build/a.log && mv a.py b.py && cat > c.py", ""),
    ("cp a.json a.json.$(date +%F) && echo saved", "cp a.json a.json.$(date +%F)"),
    ("psql -c 'SELECT * FROM users'", ""),
    ('psql -c "DELETE FROM users WHERE id = 7"', 'psql -c "DELETE FROM users WHERE id = 7"'),
    ("ssh web 'docker ps'", ""),
    ("ssh web 'docker restart app'", "ssh web 'docker restart app'"),
    ('ssh web "cat > /etc/app.conf"', 'ssh web "cat > /etc/app.conf"'),
    ("kubectl exec app -- cat /etc/hosts", ""),
    ("kubectl exec app -- kill 1", "kubectl exec app -- kill 1"),
    ("helper browser start --help", ""),
    ("cat a.json | python3 -c 'import json, sys; print(json.load(sys.stdin))'", ""),
    ("for f in a b; do echo $f; done; while read line; do echo $line; done", ""),
    ("$p = 'a b.txt'; $c = Get-Content $p; if ($c -eq 'x') { Write-Output $c.Length }", ""),
    ("$r = Invoke-RestMethod -Uri http://flags -Method Post -Body '{}'", "$r = Invoke-RestMethod -Uri http://flags -Method Post -Body '{}'"),
    ("pytest -x && npm publish", "npm publish"),
])  # fmt: skip
def test_a_command_that_changes_more_than_files_is_an_action(command, deeds):
    assert find_actions(command).text == deeds


def test_actions_are_listed_before_commands_that_only_look_or_prepare():
    looks = [("mkdir -p out", ""), ("python3 -c 'print(1 + 1)'", "2"), ("curl -s http://a", "page")]
    state = run(("curl -X DELETE http://flags/api/7", '{"deleted": 7}'), *looks * 10)
    assert {call: action.rank for call, action in state.actions.done.items()} == {
        "curl -X DELETE http://flags/api/7": 2,
        "mkdir -p out": 1,
        "python3 -c 'print(1 + 1)'": 1,
    }
    messages = [
        user("Go."),
        *call("bash", {"command": "helm upgrade web ."}, "Release web upgraded"),
        *(message for n in range(30) for message in call("bash", {"command": f"mkdir -p out{n}"})),
        *call("bash", {"command": "touch a.py"}),
    ]
    text = drive(RuleSummary()(View.of(messages), 0, len(messages), 400)).text
    assert "- helm upgrade web . -> Release web upgraded" in text


def test_output_of_a_later_command_is_not_the_outcome_of_an_action():
    state = run(("systemctl restart web && sleep 1 && curl -s http://web", "<h1>Hello</h1>"))
    assert state.actions.done["systemctl restart web"].outcome == "ok"


def test_the_exit_code_after_a_semicolon_is_not_that_of_the_action_before():
    """A restore with a failure in its log was once listed as `ok`, the exit code of a search."""
    command = "dotnet restore app.sln > restore.log; rg -n error restore.log"
    (action,) = run((command, "12: error NU1301")).actions.done.values()
    assert action.outcome == "ran"
    (action,) = run(("docker restart app && docker ps", "CONTAINER ID")).actions.done.values()
    assert action.outcome == "ok"


def test_command_output_without_a_command_is_not_an_action():
    talk = [user("Go."), user("<local-command-stdout>No servers</local-command-stdout>")]
    assert not collect(talk).actions.done


def test_git_restore_reads_its_paths_after_the_source_option():
    assert list(file_effects("git restore --source HEAD -- a.py")) == [("a.py", "restored")]
    assert list(file_effects("git restore -s v1 a.py")) == [("a.py", "changed")]


@pytest.mark.parametrize(("command", "printed", "files"), [
    ("cat a.md 2>/dev/null || echo NO_FILE", "NO_FILE", {}),
    ("cat a.md 2>/dev/null || echo NO_FILE", "text", {"a.md": "read"}),
    ("tail a.log 2>/dev/null || tail b.log 2>/dev/null || echo NONE", "NONE", {}),
    ("head -5 a.md b.md", "head: cannot open 'a.md' for reading: No such file or directory\nx", {"b.md": "read"}),
    ("cp -r a.d/x.py /mnt/c/y.py", "cp: cannot create regular file '/mnt/c/y.py': No such file or directory", {}),
    ("Get-Content a.md; Get-Content b.md", "Get-Content : Cannot find path 'C:\\w\\a.md' because it does not exist.\nx", {"b.md": "read"}),
])  # fmt: skip
def test_a_file_that_a_command_did_not_find_is_not_listed_as_read(command, printed, files):
    assert states_of(run((command, printed))) == files


@pytest.mark.parametrize(("command", "files"), [
    (["pwsh", "-NoProfile", "-Command", "Get-Content a.md; Get-Content b.md"], {"a.md": "read", "b.md": "read"}),
    ("powershell -Command \"Get-Content -Raw a.md; Set-Content -Path 'b c.md' -Value x\"", {"a.md": "read", "b c.md": "created"}),
    ('cmd /c "type a.md && del b.md"', {"a.md": "read", "b.md": "deleted"}),
    ("cmd /c type docs\\a.md", {"docs/a.md": "read"}),
    ("Get-Content -Path 'Script\\Lin\\a.lua' -TotalCount 20 | Out-File -FilePath b.txt", {"Script/Lin/a.lua": "read", "b.txt": "created"}),
    ("$p='src\\a.lua'; $c=Get-Content -LiteralPath $p -Encoding UTF8", {"src/a.lua": "read"}),
    ('F=src/a.py; cat $F && rm "$F.bak"', {"src/a.py": "read", "src/a.py.bak": "deleted"}),
])  # fmt: skip
def test_every_command_passed_to_a_shell_is_parsed(command, files):
    assert states_of(collect(call("shell", {"command": command}))) == files


def test_a_shell_variable_that_is_assigned_twice_is_not_expanded():
    assert states_of(run(("F=a.py; cat $F; F=b.py; cat $F", "x"))) == {}


PATCH = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x = 'a'\n+x = \"b\"\n*** End Patch"


@pytest.mark.parametrize(("script", "files", "deeds"), [
    ('const r = await tools.exec_command({"cmd":"cat \'a.md\'; npm ci","workdir":"/w"}); text(r.output);', {"/w/a.md": "read"}, ["npm ci"]),
    ("// don't\ntext(await tools.exec_command({cmd: `rm a.md`, workdir: '/w'}));", {"/w/a.md": "deleted"}, []),
    (f"const r = await tools.apply_patch({json.dumps(PATCH)}); text(r);", {"src/a.py": "modified"}, []),
    ("const p = [" + ", ".join(map(json.dumps, PATCH.split("\n"))) + "].join('\\n'); await tools.apply_patch(p);", {"src/a.py": "modified"}, []),
    ('await Promise.all([tools.exec_command({cmd:"cat a.md"}), tools.exec_command({cmd:"cat b.md"})]);', {"a.md": "read", "b.md": "read"}, []),
    ('await tools.mcp__mail__send_message({to: "ann"});', {}, ["mcp__mail__send_message"]),
])  # fmt: skip
def test_tool_calls_inside_a_script_count_as_its_effects(script, files, deeds):
    answer = "Script completed\nWall time 0.2 seconds\nOutput:\n\nx"
    state = collect(call("exec", script, answer))
    assert states_of(state) == files
    assert list(state.actions.done) == deeds


def test_a_failed_script_changes_no_file_and_a_running_one_is_waited_for():
    failed = call(
        "exec",
        "await tools.apply_patch(" + json.dumps(PATCH) + ")",
        "Script failed\nWall time 0 seconds\nOutput:\nno such line",
    )
    assert states_of(collect(failed)) == {}
    started = call(
        "exec",
        'text(await tools.exec_command({cmd: "npm ci"}))',
        "Script running with cell ID 28\nWall time 10 seconds\nOutput:\n",
    )
    assert collect(started).actions.done["npm ci"].outcome == "running"
    ended = call(
        "wait",
        {"cell_id": "28"},
        "Script completed\nWall time 2 seconds\nOutput:\n\nadded 7 packages",
    )
    assert collect([*started, *ended]).actions.done["npm ci"].outcome == "added 7 packages"


@pytest.mark.parametrize("command", [
    'download a \\\n  --test yes \\\n  -o "/tmp/cookie_test"', "$f='C:\\a\\specs\\001\\spec.md'; Get-Content $f", "$short='fix-spec'", "Join-Path 'C:\\a\\fix-spec' 'b'",
    "rustc --version", "cargo build --help", "tsc -V", ".specify/scripts/check-prerequisites.sh --json", "python3 check_doc.py",
])  # fmt: skip
def test_commands_that_only_resemble_a_check_are_not_checks(command):
    assert find_checks(command).text == ""


@pytest.mark.parametrize(
    "command",
    ["pytest -v", "go test ./... -v", "./check.sh", "npm run check-types", "node verify_login.js"],
)
def test_commands_that_run_tests_or_checks_are_recognised(command):
    assert find_checks(command).text == command


@pytest.mark.parametrize(
    "command",
    [
        "bun test",
        "bun test src/a.test.ts",
        "deno test -A",
        "node --test",
        "node --import tsx --test a.ts",
    ],
)
def test_the_tests_of_a_runtime_are_checks(command):
    """`bun test` was once listed as an action, because `test` alone is the shell's."""
    assert find_checks(command).text == command and find_actions(command).rank == 0
    assert find_checks("test -f a.py").text == find_checks("bash -c 'test -f a'").text == ""
    assert find_checks("node app.js --test").text == find_checks("python --test").text == ""


@pytest.mark.parametrize(
    "command",
    ["gci -Recurse src", "sls foo a.ts", "gc a.ts", "gc a.ts | select -First 5", "bat a.py"],
)
def test_short_names_of_commands_that_only_show_are_not_actions(command):
    assert find_actions(command).rank == 0


def test_powershell_lists_and_tables_are_not_actions():
    for command in ("$ids = 'T011','T012'; $ids", "[PSCustomObject]@{ Git=[bool]$git }"):
        assert find_actions(command).rank == 0


def test_a_check_in_a_subshell_or_substitution_is_found_whole():
    assert find_checks("cd a && (make test)").text == "make test"
    assert (
        find_checks("t=$(make test >/dev/null && echo 1 || echo 0)").text == "make test >/dev/null"
    )


def test_a_patch_passed_as_an_argument_is_not_parsed_as_shell_text():
    """Its lines were once read as redirections to files (`> 10k`) and as checks."""
    patch = "*** Begin Patch\n*** Add File: plan.md\n+it's > 10k rows\n+make lint\n+$a='b'\n*** End Patch"
    patched = call("shell", {"command": ["apply_patch", patch]}, "Success.")
    state = collect(patched)
    assert states_of(state) == {"plan.md": "created"}
    assert state.checks == {}
    listed = call("shell", {"command": ["rg", "a > b", "my dir"]}, "")
    assert states_of(collect(listed)) == {}


def test_a_file_read_from_another_repository_is_not_listed():
    state = collect(call("hub_read_file", {"repo_name": "cli/cli", "file_path": "flow.go"}, "x"))
    assert states_of(state) == {}


def test_printing_text_and_taking_a_snapshot_are_not_actions():
    command = "'DS'; $f = Get-Item a.log; if ($f) { 'FOUND' } else { 'NONE' }"
    assert find_actions(command).text == ""
    assert find_actions('"/opt/app/run" --serve').rank == 2
    assert not collect(call("browser", {"action": "snapshot"}, "a page")).actions.done


def test_a_background_command_gets_its_outcome_from_later_polls():
    started = call("bash", {"command": "npm ci"}, "Command running in background with ID: 16772f")
    waited = call(
        "BashOutput", {"bash_id": "16772f"}, "<status>running</status>\n<stdout></stdout>"
    )
    ended = call(
        "BashOutput",
        {"bash_id": "16772f"},
        "<status>completed</status>\n<stdout>\nadded 7\n</stdout>",
    )
    assert collect([*started, *waited]).actions.done["npm ci"].outcome == "running"
    state = collect([*started, *waited, *ended])
    assert (
        list(state.actions.done) == ["npm ci"]
        and state.actions.done["npm ci"].outcome == "… added 7"
    )
    assert state.actions.done["npm ci"].times == 1, "who asks how it goes does not run it again"
    polled = [
        *call(
            "exec",
            {"command": "npm ci"},
            "Command still running (session mild-fox, pid 7). Use process",
        ),
        *call(
            "process",
            {"action": "poll", "sessionId": "mild-fox"},
            "(no new output)\n\nProcess still running.",
        ),
    ]
    assert collect(polled).actions.done["npm ci"].outcome == "running"


def test_a_background_command_that_fails_is_no_longer_running():
    """`-> running` was once listed three times though nothing ran."""
    started = call(
        "exec_command", {"cmd": "./walk"}, "Process running with session ID 7\nOutput:\n"
    )
    ended = call(
        "write_stdin",
        {"session_id": 7},
        "Process exited with code 254\nOutput:\nError: no socket",
    )
    assert collect(started).actions.done["./walk"].outcome == "running"
    state = collect([*started, *ended])
    assert not state.actions.done
    assert state.actions.failed["./walk"].outcome == "exit 254: Error: no socket"


def test_forward_and_backward_slashes_name_the_same_file():
    state = collect(
        [
            *call("write", {"file_path": "C:\\w\\a.sol", "content": "x"}),
            *call("read", {"file_path": "C:/w/a.sol"}, "x"),
        ]
    )
    assert states_of(state) == {"C:\\w\\a.sol": "created"}


def test_absolute_and_relative_paths_of_a_file_that_is_read_are_one_file():
    state = collect(
        [
            *call("read", {"file_path": "/w/src/a.py"}, "x"),
            *call("bash", {"command": "tail -3 src/a.py"}, "x"),
        ]
    )
    assert states_of(state) == {"/w/src/a.py": "read"}


def test_a_line_that_introduces_the_next_is_not_the_outcome_of_a_call():
    state = collect(call("Task", {"description": "Move"}, "---\nHere is what I did:\nMoved a.kt"))
    assert [action.outcome for action in state.actions.done.values()] == ["Moved a.kt"]


def test_a_windows_drive_and_its_posix_form_name_the_same_file():
    state = collect(
        [
            *call("write", {"file_path": "C:/w/a.sol", "content": "x"}),
            *call("bash", {"command": "cd /c/w && sed -i s/x/y/ a.sol"}),
        ]
    )
    assert states_of(state) == {"C:/w/a.sol": "created"}
    assert states_of(run(("touch /c/w/a.sol", ""))) == {"/c/w/a.sol": "created"}


def test_a_check_that_reports_failed_tests_is_not_ok():
    output = "  1 passing (3s)\n  2 failing\n" + "    at Context.<anonymous> (test/a.js:7:9)\n" * 40
    state = run(("npx hardhat test 2>&1 | head -60", output))
    assert state.checks == {"npx hardhat test": "failed: 2 failing"}


def test_a_json_result_with_an_error_marks_its_call_as_failed():
    state = collect(
        [
            *call("message", {"action": "send", "to": "ann"}, '{"id": 7}'),
            *call(
                "make_doc",
                {"title": "Plan"},
                '{\n  "error": "Request failed with status code 400"\n}',
            ),
        ]
    )
    assert list(state.actions.done) == ["message action: send, to: ann"]
    assert list(state.actions.failed) == ["make_doc title: Plan"]
    listed = call("symbols", {"path": "log.go"}, "Error (Function) func(msg string) - Line 24")
    assert not collect(listed).actions.failed


def test_a_result_whose_error_field_is_null_marks_its_call_as_done():
    state = collect(call("mail", {"step": "SENDING"}, '{"error": null, "log_id": "a7"}'))
    assert [action.rank for action in state.actions.done.values()] == [2]


def test_a_script_piped_into_its_interpreter_changes_the_file_it_writes():
    script = "DB = '/w/users.json'\nwith open(DB) as f:\n    db = f.read()\nwith open(DB, 'w') as f:\n    f.write(db)"
    state = run((f"mkdir -p out && cat << 'PY' | python3\n{script}\nPY", "ok"))
    assert states_of(state) == {"/w/users.json": "modified"}
    assert not state.actions.done


def test_running_a_script_marks_only_that_script_as_tested():
    """Other scripts were once listed as not tested beside their own output."""
    written = [
        message
        for name in ("scrape.js", "page.js")
        for message in call("Write", {"file_path": f"/w/{name}", "content": "run()"}, "Created.")
    ]
    run = call("bash", {"command": "cd /w && node --trace scrape.js"}, "346 of 346")
    files = collect([*written, *run]).files
    assert [file.is_checked for file in files.values()] == [True, False]
    alone = collect([*written, *call("bash", {"command": "/w/page.js"}, "ok")]).files
    assert [file.is_checked for file in alone.values()] == [False, True]


@pytest.mark.parametrize(("command", "result", "deeds"), [
    ("git init && git add -A && git commit -m x", "Author identity unknown", {}),
    ("npm install && npm test", "2 failing", {}),
    ("npm test && git push", "2 failing", {}),
    ("npm test && git push", "2 passing\n! [rejected]", {"git push": "exit 1: ! [rejected]"}),
])  # fmt: skip
def test_the_exit_code_of_a_check_is_not_that_of_the_commands_around_it(command, result, deeds):
    """`npm install` and `git push` were once listed as failed. The first had worked, the second had
    not run."""
    state = run((command, f"{result}\n\nCommand exited with code 1"))
    assert {call: act.outcome for call, act in state.actions.done.items()} == deeds


CRASH = 'Traceback (most recent call last):\n  File "run.py", line 2, in <module>\nKeyError: "a"'


def test_a_command_that_fails_later_is_listed_as_failed_and_not_as_done():
    """It was once listed as done, and the next command cleared the failure, because the tool gives
    no exit code."""
    runs = [("python run.py", "dtype: object"), *[("python run.py", f"dtype: object\n{CRASH}")] * 2]
    actions = run(*runs).actions
    assert not actions.done
    assert actions.failed["python run.py"].outcome == 'failed: KeyError: "a"'
    assert actions.failed["python run.py"].times == 2
    state = run(*runs[:2])
    drop_shown(state, call("bash", {"command": runs[2][0]}, runs[2][1]))
    assert "python run.py" in state.actions.failed
    actions = run(*runs, ("python run.py", "dtype: category")).actions
    assert not actions.failed
    assert "category" in actions.done["python run.py"].outcome
