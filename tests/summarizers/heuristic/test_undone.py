"""A summary does not present as current what git undid or a command changed in an unknown way."""

import pytest

from refold.core.view import View
from refold.messages import user
from refold.models.driver import drive
from refold.presets.soft_hard_summary import notes_of
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.heuristic.current_files import read_files
from refold.summarizers.heuristic.layout import render_state
from refold.summarizers.heuristic.shell import file_effects
from refold.summarizers.heuristic.steps import read_steps
from tests.support.messages import call
from tests.support.summaries import collect, read_summary, states_of

SOURCE = [f"limit_{n} = compute_limit({n})" for n in range(1, 30)]
SHOWN = "\n".join(f"{n}\t{text}" for n, text in enumerate(SOURCE, 1))


def bash(command, result="", *, is_error=False):
    return call("bash", result, command=command, is_error=is_error)


def read(path="src/pool.py"):
    return call("read", SHOWN, path=path)


def edit(path="src/pool.py", number=3):
    old = SOURCE[number - 1]
    return call("edit", "Done.", path=path, oldText=old, newText=f"limit_{number} = undone_limit")


def files_of(*calls):
    return states_of(collect([message for step in calls for message in step]))


def text_of(*calls):
    """Return the known lines of the file, and whether they may differ."""
    steps = read_steps([user("Go."), *(message for step in calls for message in step)])
    file = read_files(steps).get("src/pool.py")
    return ([text for _, text in file.lines], file.is_stale) if file else ([], False)


@pytest.mark.parametrize(("command", "effects"), [
    ("git checkout -- src/a.py b.py", [("src/a.py", "restored"), ("b.py", "restored")]),
    ("git checkout src/a.py", [("src/a.py", "restored")]),
    ("git checkout HEAD -- \\\n  src/a.py \\\n  src/ui/", [("src/a.py", "restored"), ("src/ui/", "restored")]),
    ("git checkout .", [("*", "restored")]),
    ("git checkout HEAD src", [("src", "restored")]),
    ("git checkout src/", [("src/", "restored")]),
    ("(git checkout src/a.py)", [("src/a.py", "restored")]),
    ("cd web && git checkout -q . 2>/dev/null", [("web", "restored")]),
    ("git -C web checkout -- a.ts", [("web/a.ts", "restored")]),
    ("git checkout HEAD~2 -- a.py", [("a.py", "changed")]),
    ("git checkout --theirs package.json", [("package.json", "changed")]),
    ("git checkout -- 'src/*.py'", [("src", "changed")]),
    ("git checkout main", [("*", "changed")]),
    ("git checkout feat/new-pool", [("*", "changed")]),
    ("git switch -", [("*", "changed")]),
    ("git checkout -b fix/pool", []),
    ("git switch -c fix/pool dev", [("*", "changed")]),
    ("git restore src/a.py src/ui", [("src/a.py", "restored"), ("src/ui", "restored")]),
    ("git restore .", [("*", "restored")]),
    ("git restore --staged a.py", []),
    ("git restore --staged --worktree a.py", [("a.py", "restored")]),
    ("git restore --source=main a.py", [("a.py", "changed")]),
    ("git reset --hard", [("*", "restored")]),
    ("git reset --hard HEAD", [("*", "restored")]),
    ("git reset --hard origin/main", [("*", "restored"), ("*", "changed")]),
    ("git reset HEAD~1", []),
    ("git reset --soft HEAD~1", []),
    ("git stash", [("*", "stashed")]),
    ("git stash -u -m wip", [("*", "stashed")]),
    ("git stash push -m wip -- src/ui", [("src/ui", "stashed")]),
    ("git stash push src/a.py", [("src/a.py", "stashed")]),
    ("git stash push -m wip", [("*", "stashed")]),
    ("git stash save wip", [("*", "stashed")]),
    ("git stash pop --index", [("*", "unstashed")]),
    ("git stash list; git stash show -p", []),
    ("git pull --rebase && git merge dev", [("*", "changed"), ("*", "changed")]),
    ("git revert --no-edit HEAD", [("*", "changed")]),
    ("git log --oneline -- a.py; git status; git", []),
    ("cd /tmp/clone && git checkout v1.2", [("/tmp/clone", "changed")]),
])  # fmt: skip
def test_effects_of_git_commands_on_files_are_parsed(command, effects):
    assert list(file_effects(command)) == effects


@pytest.mark.parametrize("command", [
    "git checkout -- src/pool.py", "git checkout src/pool.py", "git restore src/pool.py", "git checkout -- src/", "git restore .",
    "git reset --hard", "cd src && git checkout pool.py && cd .. && python -m pytest -q",
])  # fmt: skip
def test_an_edit_that_git_undid_is_listed_as_restored(command):
    undone = bash(command, "Updated 1 path from the index")
    assert files_of(read(), edit(), undone) == {"src/pool.py": "restored"}
    lines, is_stale = text_of(read(), edit(), undone)
    assert is_stale or not any("undone_limit" in line for line in lines)
    assert text_of(read(), edit(), undone, read()) == (SOURCE, False)
    messages = [user("Go."), *read(), *edit(), *undone, *bash("cat big.log", "row " * 9_000)]
    text = drive(RuleSummary()(View.of(messages), 0, len(messages), 3_000)).text
    assert "restored: src/pool.py" in text and "modified" not in text
    assert "undone_limit" not in text.replace("newText: limit_3 = undone_limit", "") or is_stale


def test_a_restored_file_that_is_edited_again_is_modified():
    again = bash("git checkout src/pool.py && sed -i s/1/2/ src/pool.py")
    assert files_of(read(), edit(), again) == {"src/pool.py": "modified"}
    assert text_of(read(), edit(), again) == ([], False)


def test_a_stash_makes_a_file_stale_that_was_changed_before_it_was_read():
    changed = bash("sed -i s/1/2/ src/pool.py")
    assert text_of(read(), changed, read(), bash("git stash"))[1]


def test_git_checkout_restores_the_committed_state():
    commit = bash("git add -A && git commit -m x", "[main 1234567] x\n 1 file changed")
    messages = [*read(), *edit(), *commit, *edit(number=4), *bash("git checkout -- src/pool.py")]
    file = collect(messages).files["src/pool.py"]
    assert (file.state, file.is_committed) == ("modified", True)


@pytest.mark.parametrize("command", ["git checkout .", "git restore src", "git reset --hard"])
def test_git_leaves_new_files_alone(command):
    new = call("write", "Created.", path="src/new.py", content="x = 1")
    assert files_of(new, bash(command)) == {"src/new.py": "created"}
    assert files_of(new, bash("git checkout src/new.py")) == {"src/new.py": "restored"}


def test_a_failed_git_checkout_changes_nothing():
    refused = bash("git checkout -- src/pool.py", "error: pathspec 'src/pool.py'", is_error=True)
    assert files_of(read(), edit(), refused) == {"src/pool.py": "modified"}
    assert text_of(read(), edit(), refused)[0] and not text_of(read(), edit(), refused)[1]


def test_a_checkout_before_a_failing_test_takes_effect():
    failed = bash("git checkout -- src/pool.py && pytest", "Exit code 1\n1 failed", is_error=True)
    assert files_of(read(), edit(), failed) == {"src/pool.py": "restored"}


def test_files_changed_before_a_command_failed_are_stale():
    for command in ("sed -i s/1/2/ src/pool.py && ./run", "git pull && ./run", "git stash; ./run"):
        failed = bash(command, "Exit code 2\nno such file", is_error=True)
        assert text_of(read(), edit(), failed)[1]
        assert not text_of(read(), edit(), bash(command, "Not allowed.", is_error=True))[1]


def test_git_restore_commands_leave_unchanged_files_fresh():
    for command in ("git stash", "git checkout .", "git reset --hard"):
        assert text_of(read(), bash(command)) == (SOURCE, False)


def test_a_file_that_was_created_and_deleted_is_not_stashed():
    steps = bash("echo x > src/probe.py"), bash("rm src/probe.py"), bash("git stash")
    assert files_of(*steps) == {"src/probe.py": "deleted"}
    assert files_of(bash("rm src/pool.py"), steps[2]) == {"src/pool.py": "stashed"}


def test_stashed_edits_are_listed_as_stashed_until_they_are_popped():
    away, back = bash("git stash", "Saved working directory"), bash("git stash pop")
    assert files_of(read(), edit(), away) == {"src/pool.py": "stashed"}
    assert "\nstashed: src/pool.py" in render_state(collect([*read(), *edit(), *away]), 500)
    assert files_of(read(), edit(), away, back) == {"src/pool.py": "modified"}
    assert files_of(read(), edit(), bash("git stash && pytest; git stash pop")) == {
        "src/pool.py": "modified"
    }
    for stashing in ((away,), (away, back)):
        lines, is_stale = text_of(read(), edit(), *stashing)
        assert lines[2] == "limit_3 = undone_limit" and is_stale


def test_switching_branches_or_pulling_makes_known_text_stale():
    assert text_of(read(), bash("git checkout main")) == (SOURCE, True)
    assert text_of(read(), bash("git checkout main"), read()) == (SOURCE, False)
    assert text_of(read(), bash("git checkout -b fix")) == (SOURCE, False)
    lines, is_stale = text_of(read(), bash("git pull"), edit())
    assert lines[2] == "limit_3 = undone_limit" and is_stale
    written = call("write", "Updated.", path="src/pool.py", content="x = 1")
    assert text_of(read(), bash("git pull"), written) == (["x = 1"], False)


def test_a_path_given_to_git_may_be_a_suffix_of_an_absolute_path():
    steps = (read("/work/src/pool.py"), edit("/work/src/pool.py"), bash("git checkout src/pool.py"))
    assert files_of(*steps) == {"/work/src/pool.py": "restored"}
    twin = edit("/work/old/src/pool.py")
    assert set(files_of(*steps[:2], twin, steps[2]).values()) == {"modified"}  # ambiguous
    inside = bash("sed -i s/1/2/ src/pool.py && cd /work && git checkout src/pool.py")
    assert files_of(inside) == {"src/pool.py": "restored"}
    beside = bash("sed -i s/1/2/ old/src/pool.py && git checkout src/pool.py")
    assert files_of(beside) == {"old/src/pool.py": "modified", "src/pool.py": "restored"}


def test_edits_listed_in_an_earlier_summary_can_be_undone_later():
    old = read_summary("## Files\nmodified: src/pool.py src/a.py")
    state = collect(bash("git checkout src/pool.py"), old)
    assert states_of(state) == {"src/a.py": "modified", "src/pool.py": "restored"}


def test_an_undone_edit_is_neither_noted_nor_committed():
    messages = [user("Go."), *read(), *edit(), *bash("git checkout src/pool.py")]
    assert not [text for text in notes_of(messages).sections["context"] if "pool.py" in text]
    commit = bash("git add -A && git commit -m x", "[main 1234567] x")
    assert not collect([*messages, *commit]).files["src/pool.py"].is_committed


@pytest.mark.parametrize(("command", "paths"), [
    ("npx prettier --write src/a.ts src/ui", ["src/a.ts", "src/ui"]),
    ("npx eslint --fix 'src/**/*.ts'", ["src"]),
    ("ruff check --fix src/ && ruff format .", ["*", "*"]),
    ("black -q a.py tests/b.py", ["a.py", "tests/b.py"]),
    ("python -m black a.py", ["a.py"]),
    ("gofmt -w cmd/main.go && goimports -w cmd/main.go", ["cmd/main.go", "cmd/main.go"]),
    ("cargo fmt --manifest-path kernel/Cargo.toml", ["*"]),
    ("clang-format -i src/a.cpp", ["src/a.cpp"]),
    ("cd web && pnpm run format 2>&1 | tail", ["web"]),
    ("npm run lint:fix; just fmt; make format; terraform fmt", ["*", "*", "*", "*"]),
    ("cd /tmp/clone && cargo fmt", ["/tmp/clone"]),
    ("prettier --check . && ruff format --check && black --diff a.py && gofmt -l . && terraform fmt -check", []),
    ("npm run format:check && cargo fmt -- --check", []),
    ("git log --format=%h && grep -w fmt a.go && rg --fixed-strings -i fix a.py && docker run -i img", []),
    ("git checkout -b fix && python fix_v2.py && cat format.py && npm run build && pytest --fixtures", []),
    ("sudo bash /tmp/fix-dns.sh && ./format.sh && git checkout -q release-1.x -- && git checkout a2.py", ["*"]),
    ("", []),
])  # fmt: skip
def test_files_that_formatters_may_change_are_parsed_from_commands(command, paths):
    assert [path for path, state in file_effects(command) if state == "changed"] == paths


@pytest.mark.parametrize(
    "command", ["black src/pool.py", "ruff format", "npm run format", "npx prettier --write src"]
)
def test_known_text_is_stale_after_a_formatter_ran(command):
    lines, is_stale = text_of(read(), edit(), bash(command))
    assert lines[2] == "limit_3 = undone_limit" and is_stale
    assert files_of(read(), bash(command)) == {"src/pool.py": "read"}
    assert text_of(read(), bash(command), read()) == (SOURCE, False)


PYTHON = "from pathlib import Path\np = Path('src/pool.py')\np.write_text(p.read_text().replace('1', '2'))"
NODE = "const fs = require('fs');\nconst f = 'src/pool.py';\nfs.writeFileSync(f, fs.readFileSync(f, 'utf8') + 'x');"
LOOP = "import os\nfor name in ['pool.py', 'src/pool.py']:\n    open(os.path.join('.', name), 'w').write('x')"


@pytest.mark.parametrize("command", [
    f"python3 - <<'PY'\n{PYTHON}\nPY",
    f"cd src && cd .. && python3 <<PY && pytest -q\n{PYTHON}\nPY",
    f"node - <<'JS'\n{NODE}\nJS",
    "python -c \"open('src/pool.py', 'a').write('read')\"",
    "python - <<E\npath = \"src/pool.py\"; text = open(path).read()\nopen(path, 'w').write(text)\nE",
    "python - <<E\nwith open('src/pool.py', mode='w') as f:\n    f.write(read())\nE",
    f"cat > /tmp/fix.py <<'EOF'\n{PYTHON}\nEOF\npython3 /tmp/fix.py",
])  # fmt: skip
def test_a_file_that_a_script_writes_is_modified(command):
    assert files_of(read(), bash(command))["src/pool.py"] == "modified"
    assert text_of(read(), bash(command)) == (SOURCE, True)


@pytest.mark.parametrize("command", [
    f"python3 - <<'PY'\n{LOOP}\nPY", f"cat > fix.py <<'EOF'\n{PYTHON}\nEOF", f"cat > fix.py <<'EOF'\n{LOOP}\nEOF",
])  # fmt: skip
def test_a_file_that_a_script_may_write_is_stale(command):
    assert files_of(read(), bash(command))["src/pool.py"] == "read"
    assert text_of(read(), bash(command)) == (SOURCE, True)


def test_a_file_that_a_script_only_reads_stays_fresh():
    for script in (
        "print(open('src/pool.py').read())",
        "import sys; sys.stdout.write('src/pool.py')",
    ):
        assert text_of(read(), bash(f"python - <<E\n{script}\nE")) == (SOURCE, False)


def test_a_new_file_that_a_script_writes_is_created():
    command = "cd src && python - <<E\nopen('new.py', 'w').write('x')\nE"
    assert files_of(bash(command)) == {"src/new.py": "created"}
    command = "node -e \"fs.writeFileSync('a.json', f(JSON.parse(load('a.json'))))\""
    assert files_of(bash(command)) == {"a.json": "modified"}


def test_files_that_the_client_reports_as_changed_are_stale():
    note = "[This command modified 2 files you've previously read: src/a.ts, src/pool.py. Call Read before editing.]"
    assert text_of(read(), bash("./codegen", f"done\n{note}")) == (SOURCE, True)
    refused = call("Edit", "File has been modified since read, either by the user or by a linter.",
                   file_path="src/pool.py", old_string="a", new_string="b", is_error=True)  # fmt: skip
    assert text_of(read(), refused) == (SOURCE, True)
