"""The outcome of a command is its real result, not a word in its output or another command's exit
code."""

import pytest

from refold.messages import user
from refold.summarizers.heuristic.current_files import read_files
from refold.summarizers.heuristic.steps import read_steps
from refold.text.failures import find_error_line, looks_failed
from tests.support.messages import call
from tests.support.summaries import collect, states_of


def run(command, printed, *, is_error=False):
    """Return the state after one command."""
    return collect(call("bash", printed, command=command, is_error=is_error))


@pytest.mark.parametrize(("command", "printed"), [
    ("python -m pytest tests 2>&1 | tail -15", "/home/me/my app/bin/python: No module named pytest\n"),
    ("pnpm run --filter core test 2>&1 | tail", 'No projects matched the filters in "/src"'),
    ("pnpm run test -- --testPathPattern=a 2>&1 | tail",
     "No tests found, exiting with code 1\nRun with `--passWithNoTests` to exit with code 0\n  1411 files checked.\n"),
    ("pytest -k none", "collected 0 items\n\n==== no tests ran in 0.01s ====\n"),
    ("npm run lint:api | tail", 'npm error Missing script: "lint:api"\nnpm error To see a list, run:\nnpm error   npm run'),
    ("timeout 9 make test | tail", "(eval):1: command not found: timeout\n"),
    ("pytest -q | tail", "bash: pytest：未找到命令\n"), ("pytest -q | tail", "'pytest' 不是内部或外部命令，也不是可运行的程序\n"),
    ("pytest -q | tail", "bash: pytest: コマンドが見つかりません\n"), ("pytest -q | tail", "bash: pytest: 명령어를 찾을 수 없음\n"),
    ("pytest -q | tail", "bash: pytest: Kommando nicht gefunden.\n"), ("pytest -q | tail", "bash: pytest : commande introuvable\n"),
])  # fmt: skip
def test_a_check_that_found_nothing_to_run_has_tested_nothing(command, printed):
    edit = call("write", "Done.", path="a.py", content="a = 1")
    state = collect([*edit, *call("bash", printed, command=command)])
    [outcome] = state.checks.values()
    assert outcome.startswith("nothing ran: ")
    assert not state.files["a.py"].is_checked


@pytest.mark.parametrize("printed", [
    "ok  \tapp/a\t0.3s\n?   \tapp/b\t[no test files]\n",
    "E   ModuleNotFoundError: No module named 'app'\n3 passed, 1 failed in 2s",
    "@app/a: No tests found\n@app/b: Tests: 12 passed, 12 total",
])  # fmt: skip
def test_a_check_that_ran_in_part_counts_as_run(printed):
    [outcome] = run("make test | tail", printed).checks.values()
    assert not outcome.startswith("nothing ran")


def test_a_command_that_prints_source_has_not_failed():
    state = run("git show 404e:a.ts | head -80", "const a = 1;\nthrow new Error(`Invalid ${a}`);\n")
    assert not (state.failure.error or state.actions.failed)


def test_a_push_that_succeeded_is_done_despite_earlier_error_lines():
    noise = "error: non-monotonic index .git/objects/pack/._pack-23.idx\n"
    to = "To https://example.com/a.git\n"
    state = run(
        "git push origin main 2>&1 | tail -5",
        f"{noise}{to}{noise}   870a1b2..55cd8b9  main -> main\n",
    )
    assert not state.actions.failed
    refused = run(
        "git push 2>&1 | tail",
        f"{to} ! [rejected] main -> main (fetch first)\nerror: failed to push some refs\n",
    )
    assert refused.actions.failed


@pytest.mark.parametrize("code", ["{}\n\nCommand exited with code 1", "Exit code 1\n{}", "{}"])
def test_a_grep_for_errors_that_finds_nothing_means_the_check_passed(code):
    command = 'npx tsc --noEmit 2>&1 | grep "error TS"'
    before = run(command, "a.ts(4,5): error TS23: no").checks
    assert list(before.values()) == ["failed: a.ts(4,5): error TS23: no"]
    after = run(command, code.format("(no output)"), is_error="code" in code).checks
    assert list(after.values()) == ["ok"]
    unknown = "npm run build && npm start & sleep 3; pkill node"
    assert run(unknown, code.format("(no output)"), is_error="code" in code).checks in (
        {},
        {"npm run build": "ok"},
    )


def test_a_failed_run_with_passing_tests_shows_its_error():
    printed = "Exit code 1\nTests: 7 passed, 7 total\n[Error: ENOTEMPTY: directory not empty]"
    [outcome] = run("pnpm jest a.spec.ts", printed, is_error=True).checks.values()
    assert outcome == "exit 1: Tests: 7 passed, 7 total; [Error: ENOTEMPTY: directory not empty]"


def test_the_error_of_a_call_is_not_taken_from_its_arguments():
    given = '{"name":"push","args":{"content":"throw new Error: no\\n404 not found"}}'
    answer = '[{"functionResponse":{"response":{"content":[{"type":"text","text":"409 Git is empty"}]}}}]'
    text = f"MCP tool 'push' reported tool error for function call: {given} with response: {answer}"
    state = collect(call("push", text, is_error=True, content="throw new Error: no"))
    assert state.failure.error == "409 Git is empty"
    assert [act.outcome for act in state.actions.failed.values()] == ["error: 409 Git is empty"]


@pytest.mark.parametrize("mark", ["; ", "\n"])
def test_the_exit_code_of_a_later_command_is_not_that_of_a_check(mark):
    assert run(f"pytest -q{mark}ls docs", "Exit code: 1\na.md\nb.md").checks == {}


def test_npm_run_test_is_a_check():
    assert run("npm run test", "12 passed").checks == {"npm run test": "ok: 12 passed"}


def test_an_echo_before_a_failing_command_is_not_part_of_its_label():
    command = 'echo "=== Merge ===" && gh pr merge 4 --merge'
    failed = run(command, "X Pull request is not mergeable", is_error=True).actions.failed
    assert list(failed) == ["gh pr merge 4 --merge"]


def test_files_removed_before_a_later_command_fails_are_deleted():
    write = call("write", "Done.", path="a.html", content="a")
    rm = "rm -f a.html; pkill -f server; ls *.html"
    missing = "ls: cannot access '*.html': No such file\n\nCommand exited with code 2"
    state = collect([*write, *call("bash", missing, command=rm, is_error=True)])
    assert states_of(state) == {"a.html": "deleted"}
    assert not state.actions.failed
    strict = call("bash", missing, command=f"set -e; {rm}", is_error=True)
    assert states_of(collect([*write, *strict])) == {"a.html": "created"}


@pytest.mark.parametrize("command", [
    "rm -rf .next && npx next build",
    r"Remove-Item -LiteralPath 'C:\a\.godot' -Recurse; $exe = 'C:\b\Godot.exe'; & $exe --import",
    "rm -rf .next",
])  # fmt: skip
def test_a_removed_build_folder_is_not_listed_as_deleted(command):
    assert states_of(run(command, "")) == {}


def test_a_deleted_file_that_a_script_reads_later_was_created_again():
    fetched = call("write", "Done.", path="data/prs.json", content="[]")
    removed = call("bash", "", command="rm -f data/prs.json")
    read = call(
        "bash", "Total: 1759", command="python -c \"print(len(open('data/prs.json').read()))\""
    )
    assert states_of(collect([*fetched, *removed]))["data/prs.json"] == "deleted"
    assert states_of(collect([*fetched, *removed, *read]))["data/prs.json"] == "created"


@pytest.mark.parametrize("ignore", [
    call("write", "Done.", path=".gitignore", content="# data\ndata/raw/\n*.tmp"),
    call("write", "Done.", path=".gitignore", content="data/raw/*.json\nsrc/*.tmp"),
    call("bash", "", command="cat > .gitignore <<'EOF'\ndata/raw/\n*.tmp\nEOF"),
    call("bash", "", command="cat > .gitignore <<'EOF'\ndata/raw/\n*.tmp\nEOF", workdir="web"),
    call("apply_patch", "Success.", patch="*** Begin Patch\n*** Add File: .gitignore\n+data/raw/\n+*.tmp\n*** End Patch"),
])  # fmt: skip
def test_files_ignored_by_gitignore_are_not_committed(ignore):
    paths = ["src/a.py", "data/raw/prs.json", "src/a.tmp"]
    written = [
        message for path in paths for message in call("write", "Done.", path=path, content="1")
    ]
    git = call("bash", "[main 1234abc] All\n", command="git add -A && git commit -m All")
    files = collect([*ignore, *written, *git]).files
    assert [path for path in paths if files[path].is_committed] == ["src/a.py"]


def test_branches_are_no_files():
    assert states_of(run("git diff origin/dev origin/main --stat && git diff src/a.py", "")) == {
        "src/a.py": "read"
    }
    assert states_of(collect(call("read", "{}", path="web/package.json:raw"))) == {
        "web/package.json": "read"
    }


@pytest.mark.parametrize(("command", "deeds"), [
    ("Set-Location 'c:\\my work'; npm install", ["npm install"]),
    ("Set-Location 'c:\\my work'; npx vitest run", []),
    ('case "$st" in\n RUNNING|PENDING|"") sleep 45 ;;\n *) break ;;\nesac\nnpm ci', ["npm ci"]),
    ('_TEL=$([ -f ~/.x ] && echo yes); LAST=$(echo "$line" | cut -d: -f1)', []),
    ('cd "/my work" && npm ci', ["npm ci"]),
    (r'& "C:\Users\me\AppData\Local\Packages\Engine\Engine.exe" --import', ["Engine.exe --import"]),
])  # fmt: skip
def test_shell_control_flow_and_printing_are_not_actions(command, deeds):
    assert list(run(command, "").actions.done) == deeds


@pytest.mark.parametrize(("words", "is_tested"), [
    ("Great, it works now. Next the menu.", True), ("all works!", True), ("测试通过了，继续", True),
    ("it works, but only on Linux", False), ("How does it work?", False), ("Make sure that it works.", False),
    ("测试通过了吗？", False), ("現在可以用了，謝謝。", True), ("動いた、ありがとう。コミットして。", True), ("動きましたか？", False), ("이제 잘 돼, 고마워.", True),
    ("안 돼, 다시 해줘.", False), ("Ya funciona, gracias.", True), ("No funciona.", False), ("¿Ya funciona?", False), ("Jetzt funktioniert es, danke.", True),
    ("Es funktioniert noch nicht.", False), ("Ça marche maintenant, merci.", True), ("Ça ne marche pas.", False), ("Теперь работает, спасибо.", True),
    ("Теперь не работает.", False), ("Agora funciona, obrigado.", True), ("Não funciona.", False),
])  # fmt: skip
def test_a_user_message_that_it_works_marks_files_as_tested(words, is_tested):
    edit = call("write", "Done.", path="a.py", content="a = 1")
    assert collect([*edit, user(words)]).files["a.py"].is_checked == is_tested


def test_a_file_that_another_agent_reports_as_changed_is_modified():
    reads = [m for name in "abc" for m in call("read", "x = 1", path=f"/home/me/docs/{name}.md")]
    report = (
        "Added the brief to `/home/me/docs/a.md`.\n`docs/b.md` was not changed.\nSee docs/c.md."
    )
    states = states_of(collect([*reads, *call("Agent", report, description="Research cards")]))
    assert states == {
        "/home/me/docs/a.md": "modified",
        "/home/me/docs/b.md": "read",
        "/home/me/docs/c.md": "read",
    }


@pytest.mark.parametrize("report", [
    "已修改 `/src/a.py`。\n`/src/b.py` 没有修改。", "`/src/a.py` を修正しました。\n`/src/b.py` は修正していません。", "`/src/a.py`를 수정했습니다.\n`/src/b.py`는 수정하지 않았습니다.",
    "He modificado: `/src/a.py` actualizado.\n`/src/b.py` no está actualizado.", "`/src/a.py` geändert.\n`/src/b.py` wurde nicht geändert.",
    "`/src/a.py` modifié.\n`/src/b.py` n'est pas modifié.", "`/src/a.py` изменён.\n`/src/b.py` не изменён.", "`/src/a.py` alterado.\n`/src/b.py` não foi alterado.",
])  # fmt: skip
def test_reports_of_other_agents_are_parsed_in_many_languages(report):
    reads = [m for name in "ab" for m in call("read", "x = 1", path=f"/src/{name}.py")]
    states = states_of(collect([*reads, *call("Agent", report, description="Fix it")]))
    assert states == {"/src/a.py": "modified", "/src/b.py": "read"}


@pytest.mark.parametrize(("after", "is_stale"), [
    (call("Agent", "a.py line 3 is wrong.", description="Code review of a.py", prompt="Review a.py"), False),
    (call("Agent", "a.py line 3 was wrong.", description="Review and fix a.py", prompt="Mend a.py"), True),
    (call("bash", "Already up to date.\n", command="git pull"), False),
    (call("bash", "Fast-forward\n a.py | 2 +-", command="git pull"), True),
])  # fmt: skip
def test_a_review_or_an_empty_pull_does_not_make_a_file_stale(after, is_stale):
    shown = call("read", "\n".join(f"{n}\tx_{n} = {n}" for n in range(1, 9)), path="a.py")
    assert read_files(read_steps([user("Go."), *shown, *after]))["a.py"].is_stale == is_stale


def test_a_commit_whose_push_fails_shows_the_error():
    refused = " ! [rejected] main -> main\nerror: failed to push some refs\nhint: See the note."
    text = f"Exit code 1\n[main 1234abc] All\n{refused}"
    done = run("git commit -am All && git push", text, is_error=True).actions.done
    assert [act.outcome for act in done.values()] == ["exit 1: error: failed to push some refs"]


@pytest.mark.parametrize("warning", [
    "npm warn exec The following package was not found and will be installed: create-vite@9",
    "WARNING: The script f2py is not on PATH: not found.",
])  # fmt: skip
def test_a_warning_is_no_failure(warning):
    state = run(
        "npm create vite@latest app && cd app", f"{warning}\n\nScaffolding project in app\nDone.\n"
    )
    assert not (state.failure.error or state.actions.failed)


def test_output_that_ends_in_a_stack_trace_is_a_failure():
    """The last frame of a failed backup's stack trace was once listed as its result."""
    frames = "\n".join(f"    at run_{at} (node:internal/part:{at}:1{at})" for at in range(20))
    state = run("node -e 'backup()'", f"Start\nReferenceError: api is not defined\n{frames}\n")
    assert not state.actions.done and "ReferenceError: api" in str(state.actions.failed)


@pytest.mark.parametrize("row", [
    "ls: 无法访问 'a': 没有那个文件或目录", "cp: 无法创建普通文件'b': 权限不够", "系统找不到指定的路径。", "ls: 'a' にアクセスできません: そのようなファイルやディレクトリはありません",
    "致命的なエラー: 読み込めませんでした。", "ls: 'a'에 접근할 수 없음: 그런 파일이나 디렉터리가 없습니다", "치명적: 읽을 수 없습니다.", "make: *** [Makefile:2: all] Fehler 1",
    "ls: Zugriff auf 'a' nicht möglich: Datei oder Verzeichnis nicht gefunden", "ls: no se puede acceder a 'a': No existe el archivo o el directorio",
    "cp: impossible de créer 'b': Permission non accordée", "make: *** [Makefile:2 : all] Erreur 1", "ls: нет доступа к 'a': Нет такого файла или каталога",
    "cp: não foi possível criar 'b': Permissão negada",
])  # fmt: skip
def test_shell_errors_are_recognised_in_other_languages(row):
    """The last printed line was once taken for the reason."""
    assert find_error_line(f"Reading.\n{row}\nSee the log of the run.\n") == row
    assert looks_failed(row)


@pytest.mark.parametrize("row", [
    "0 个错误", "エラーハンドリングの方針", "| シェルのレビュー（重複・エラーハンドリング） |", "오류 처리 방침", "Fehlerbehandlung", "問題は見つかりませんでした。", "Keine Fehler gefunden.", "Fehler: 0", "Aucune erreur trouvée.", "Ошибок не найдено.", "Ningún error encontrado.",
])  # fmt: skip
def test_reports_of_no_errors_are_not_failures_in_any_language(row):
    assert not looks_failed(row)


MAVEN = """\
[ERROR] Failed to execute goal org.a:gen-plugin:5.4:generate: The parameter 'spec' is missing -> [Help 1]
[ERROR]
[ERROR] To see the full stack trace of the errors, re-run Maven with the -e switch.
[ERROR] Re-run Maven using the -X switch to enable full debug logging.
[ERROR]
[ERROR] For more information about the errors and possible solutions, please read the following articles:
[ERROR] [Help 1] http://cwiki.apache.org/confluence/display/MAVEN/PluginParameterException
"""


def test_the_error_of_maven_is_no_link_to_its_help():
    error = f"failed: {MAVEN.partition(chr(10))[0]}"
    assert run("mvn test 2>&1 | tail -20", MAVEN).checks == {"mvn test": error}


def test_a_build_that_maven_cannot_read_has_failed():
    """`mvn test -> ok: [ERROR] The project … has 1 e…` once stood in a summary."""
    name = (
        "org.example:records-of-a-very-long-name:2.1.0-SNAPSHOT (/home/build/work/records/pom.xml)"
    )
    rows = f"[ERROR] The build could not read 1 project -> [Help 1]\n[ERROR]   The project {name} has 1 error\n"
    printed = f"Downloading a.\n{rows}" + MAVEN.partition("\n")[2]
    [outcome] = run("mvn test 2>&1 | tail -20", printed).checks.values()
    assert outcome.startswith("failed: ")


def test_a_link_to_more_information_is_no_error():
    rows = "1 validation error for list\nrecursive\n  Field required [type=missing]\n"
    link = "    For further information visit https://errors.pydantic.dev/2.12/v/missing"
    assert find_error_line(rows + link) == "Field required [type=missing]"


def test_the_figures_of_cargo_are_those_of_tests_that_ran():
    rows = "test result: ok. 35 passed; 0 failed\n\n   Doc-tests a\n\nrunning 1 test\n"
    state = run(
        "cargo test",
        f"{rows}test a (line 16) ... ignored\n\ntest result: ok. 0 passed; 1 ignored\n",
    )
    assert state.checks == {"cargo test": "ok: test result: ok. 35 passed; 0 failed"}


def test_a_check_that_the_person_refused_has_tested_nothing():
    edit = call("write", "Done.", path="a.py", content="a = 1")
    refused = call(
        "bash", "[Operation Cancelled] Reason: denied.", command="make test", is_error=True
    )
    state = collect([*edit, *refused])
    assert not (state.checks or state.files["a.py"].is_checked)
    assert [*state.actions.failed] == ["make test"]


@pytest.mark.parametrize(
    "printed", ["(empty)", "(no output)", "<shellId: 6 completed with exit code 0>"]
)
def test_what_a_client_prints_for_no_output_is_none(printed):
    [action] = run("git tag v1", printed).actions.done.values()
    assert action.outcome == "ok"
