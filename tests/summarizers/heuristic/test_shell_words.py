"""Commands are parsed as a shell does, so that no file counts as changed that is not, and no change
is missed."""

import pytest

from refold.summarizers.heuristic import shell
from refold.summarizers.heuristic.calls import effect_of_command
from refold.summarizers.heuristic.current_files import read_files
from refold.summarizers.heuristic.shell_words import UNKNOWN_SESSION_DIR, has_more, name_command
from refold.summarizers.heuristic.steps import read_steps
from tests.support.messages import call
from tests.support.summaries import collect, states_of


def bash(command, result=""):
    return call("bash", result, command=command)


def text_of(*commands):
    """Return the known lines of `a.py`, and whether they may differ."""
    steps = read_steps([message for command in commands for message in bash(command)])
    file = read_files(steps)["a.py"]
    return [text for _, text in file.lines], file.is_stale


WRITTEN = "cat > a.py <<'EOF'\nx = 1\ny = 2\nEOF"


@pytest.mark.parametrize(("command", "files"), [
    ("tee a.py <<'EOF'\nx\nEOF", [("a.py", "modified")]),
    ("tee -a a.py b.py < x.txt", [("a.py", "modified"), ("b.py", "modified")]),
    ("cat >>a.py<<EOF\nx\nEOF", [("a.py", "modified")]),
    ("rm a.py # not b.py", [("a.py", "deleted")]),
    ("# don't touch b.py > c.py\nrm a.py\necho 'done'", [("a.py", "deleted")]),
    ("cp a.py b.py lib/", [("a.py", "read"), ("b.py", "read"), ("lib/a.py", "created"), ("lib/b.py", "created")]),
    ("mv src/a.py lib/", [("src/a.py", "deleted"), ("lib/a.py", "created")]),
    ("truncate -s 0 a.py", [("a.py", "modified")]),
    ("cd src && rm a.py & rm b.py", [("src/a.py", "deleted"), ("src/b.py", "deleted")]),
    ("bc <<< 3\nrm a.py", [("a.py", "deleted")]),
    ("echo $((x << 2))\nrm a.py", [("a.py", "deleted")]),
    ("sed -i -e 's/a.x/b.y/' -e 's/c/d/' a.py", [("a.py", "modified")]),
    ("perl -pi -e 's/a.x/b/' -e 's/c/d.e/' a.py", [("a.py", "modified")]),
    ("sed -e 's/a/b.c/' -e '/d.e/d' a.py", [("a.py", "read")]),
    ('rm -rf ~/.agent/skills/"$name"', []),  # only some of them
    ("rm 'my file.py'", [("my file.py", "deleted")]),
    ("rm my\\ file.py", [("my file.py", "deleted")]),
    ('mv "a b.txt" c.txt', [("a b.txt", "deleted"), ("c.txt", "created")]),
    ("echo x > 'My File.txt'", [("My File.txt", "created")]),
    ("sed -i 's/a b/c d.e/' 'x y.py'", [("x y.py", "modified")]),
    ("cd 'my dir' && cat 'a b.txt' 'a b'", [("my dir/a b.txt", "read")]),
    ("f='a.py b.py'; rm $f", [("a.py", "deleted"), ("b.py", "deleted")]),
    ("f='a b.py'; rm \"$f\"", [("a b.py", "deleted")]),
    ("git commit -m 'a b.py'; echo 'see a.py now'; grep 'a b.py' c.py; rm 'a *.py' ' a'", []),
    ("python -c \"print('see a.py now'); open(x, 'w').write('see b.py now')\"", []),
    ("rm x\\>y.py z.py", [("z.py", "deleted")]),
    ("echo 5 \\> a.py", []),
    ("grep '>' a.py; cat '->' b.py", [("b.py", "read")]),
    ("cat x\\|y.py; rm b\\;c.py", []),
    ("cd C:\\a\\&& rm b.py", [("C:\\a\\b.py", "deleted")]),
    ("rm lib/'a.py' && cat Old\\ Notes/b.md", [("lib/a.py", "deleted"), ("Old Notes/b.md", "read")]),
])  # fmt: skip
def test_shell_words_operators_and_comments_are_parsed(command, files):
    assert list(effect_of_command(command).files) == files


def test_a_command_is_named_without_its_comments():
    for before in (
        *(". venv/bin/activate && ", "set -euo pipefail; ", "set -e\n", "pushd x && "),
        *("export A=b C='d e'; ", "cd x\n. env.sh\n"),
    ):
        assert name_command(f"{before}pytest -q") == "pytest -q"
    assert name_command("set PATH=x") == "set PATH=x"
    lines = 'rm a\n\nfor f in *; do\n  echo "x\ny"\ndone &&\nsort b \\\n  -u'
    assert name_command(lines) == 'rm a; for f in *; do echo "x y"; done && sort b -u'
    assert name_command("# Run them all.\npytest -q | tail -5  # again") == "pytest -q"
    assert has_more("sleep 5 & rm a.py") and not has_more("pytest 2>&1")


@pytest.mark.parametrize("command", [
    "grep -rl x src | xargs sed -i 's/x/z/g'", "find . -name '*.py' -exec sed -i 's/x/z/' {} +", "sed -i 's/x/z/' *.py",
    "for f in *.py; do sed -i 's/x/z/' \"$f\"; done", "git ls-files | xargs perl -pi -e 's/x/z/'",
    "sed -i 's/x/z/' $(git ls-files)",
])  # fmt: skip
def test_files_are_stale_after_an_edit_of_files_that_are_not_named(command):
    assert text_of(WRITTEN) == (["x = 1", "y = 2"], False)
    assert text_of(WRITTEN, command) == (["x = 1", "y = 2"], True)
    assert text_of(WRITTEN, "sed -i 's/x/z/' lib/b.py") == (["x = 1", "y = 2"], False)


@pytest.mark.parametrize("command", [
    "cat > a.py <<EOF\nx = $HOME\nEOF",  # the shell substitutes another text
    "cat <<'EOF' | sed 's/x/y/' > a.py\nx = 1\nEOF",
    "python - <<'EOF' > a.py\nprint('x = 1')\nEOF",
])  # fmt: skip
def test_a_heredoc_is_the_text_of_a_file_only_if_it_is_written_unchanged(command):
    assert text_of(command) == ([], True)
    assert text_of("cat > a.py <<EOF\nx = 1\nEOF") == (["x = 1"], False)


def test_a_heredoc_is_written_to_the_file_of_its_own_command():
    command = "echo 1 > b.py && cat > a.py <<'EOF'\nx = 1\nEOF"
    assert text_of(command) == (["x = 1"], False)


@pytest.mark.parametrize(("command", "checks", "effects"), [
    ('nix-shell --run "pytest -q && pylint ."', "pytest -q && pylint .", []),
    ("cd web && bash -lc 'npm run build; rm old.ts' && rm b.ts", "npm run build", [("web/old.ts", "deleted"), ("web/b.ts", "deleted")]),
    ("sudo su - ada -c 'cd a && touch x.py'; rm y.py", "", [("a/x.py", "created"), ("y.py", "deleted")]),
    ('docker exec -it web sh -c "cd app && pytest; rm a.py"', "pytest", [("…/app/a.py", "deleted")]),
    ("""bash -c "sh -c 'rm a.py' && echo \\"x\\" > b.py" """, "", [("a.py", "deleted"), ("b.py", "created")]),
    ("timeout 9 bash -c \"cat > a.py <<'EOF'\nrm no.py\nEOF\nmypy .\"", "mypy .", [("a.py", "created")]),
    ("python -c 'rm a.py'; git commit -m 'bash -c x'; echo bash -c", "", []),
    ("bash -c '' && sh -c \"", "", []),
])  # fmt: skip
def test_commands_passed_to_a_shell_as_one_argument_are_parsed(command, checks, effects):
    assert shell.find_checks(command).text == checks
    assert list(shell.file_effects(command)) == effects
    trimmed = shell.find_checks(f"bash -c '{checks} 2>&1' | tail -5")
    assert not checks or trimmed.has_own_error


def test_a_commit_in_the_argument_of_a_shell_is_parsed():
    assert list(shell.git_steps("bash -lc 'cd a && git add b.py && git commit -m c'")) == [
        ("add", ["a/b.py"]), ("commit", []),
    ]  # fmt: skip


@pytest.mark.parametrize("home", ["~", "$HOME", "${HOME}", "$env:USERPROFILE"])
def test_paths_in_the_home_folder_are_recognised_by_tilde_or_variable(home):
    assert list(shell.file_effects(f'rm -rf "{home}/.a/b"')) == [("~/.a/b", "deleted")]
    assert not list(shell.file_effects('rm -rf "$HOMES/.a/b"'))


def test_programs_of_windows_delete_and_move_files() -> None:
    command = "Remove-Item -Path src\\b.py -Force -ErrorAction SilentlyContinue"
    assert list(shell.file_effects(command)) == [("src/b.py", "deleted")]
    command = "Move-Item -Path src\\b.py -Destination c.py"
    assert list(shell.file_effects(command)) == [("src/b.py", "deleted"), ("c.py", "created")]
    command = "Remove-Item -LiteralPath 'C:\\work\\a.py' -Recurse"
    assert list(shell.file_effects(command)) == [("C:\\work\\a.py", "deleted")]


@pytest.mark.parametrize("command", [
    "git clean -fdq", "git apply fix.patch", "find . -name '*.md' -exec sed -i s/a/b/ {} +", "ls | xargs sed -i s/a/b/",
])  # fmt: skip
def test_a_command_that_may_change_any_file_makes_known_files_stale(command):
    messages = [*bash("sed -i s/a/b/ c.md && git checkout c.md"), *bash("cat c.md", "x")]
    assert states_of(collect(messages)) == {"c.md": "restored"}
    messages += bash(command)
    assert states_of(collect(messages)) == {}
    assert read_files(read_steps(messages))["c.md"].is_stale
    for harmless in ("black --version", "ffmpeg -i a.ogg b.wav"):
        assert list(shell.file_effects(harmless)) == []
    in_place = "sed -i '' s/a/b/ c.md"  # as on a Mac
    assert list(shell.file_effects(in_place)) == [("c.md", "modified")]


@pytest.mark.parametrize(
    ("command", "files"),
    [
        (
            "if [ -d old ]; then git rm -r old && git commit -m x; else echo none; fi; rm a.py",
            ["a.py"],
        ),
        ("if ! true; then rm b.py; elif rm c.py; then rm d.py; fi && rm a.py", ["c.py", "a.py"]),
        ("if x; then if y; then rm b.py; fi; rm c.py; fi; rm a.py", ["a.py"]),
        ("for f in 1 2; do rm a.py; done; then rm b.py; fi; rm c.py", ["a.py", "b.py", "c.py"]),
    ],
)
def test_commands_in_the_branches_of_an_if_are_not_counted(command, files):
    """A folder that never existed was once listed as deleted and committed."""
    assert [path for path, _ in shell.file_effects(command, UNKNOWN_SESSION_DIR)] == files
    assert "commit" not in [verb for verb, _ in shell.git_steps(command, UNKNOWN_SESSION_DIR)]


def test_a_folder_name_in_parentheses_is_part_of_the_path():
    """Next.js has such folders: files deleted in one were once listed as modified."""
    for path in ("'app/(main)/x.tsx'", r"app/\(main\)/x.tsx"):
        assert effect_of_command(f"rm {path}").files == (("app/(main)/x.tsx", "deleted"),)
    assert not effect_of_command("rm 'f(x).py' 'a (b)/c'").files


@pytest.mark.parametrize("before", [
    "python -c 'x = 1 << n'", 'echo "cout << x"', "python -c '\nx = 1 << n\n'", "echo $((1 << n))", "(( x = 1 << n ))",
    "# don't: x << n", 'echo "it\'s $(dirname "$0") << x"', "cat <<EOF > b.txt\ndon't << X\nEOF",
])  # fmt: skip
def test_only_an_unquoted_mark_outside_of_a_sum_begins_a_heredoc(before):
    """The rest of the command was once taken for the text of a heredoc."""
    assert shell.find_checks(f"{before}\npytest -q").text == "pytest -q"


@pytest.mark.parametrize("command", [
    "git commit -m \"$(cat <<'EOF'\nIt's \"so\"\npytest\nEOF\n)\" && mypy .", 'cat > "$(dirname "$0")/a" <<EOF\npytest "\nEOF\nmypy .',
    "bash -c 'cat > a.sh <<EOF\npytest\nEOF\nmypy .'", "echo 'a' <<EOF 'b'\npytest\nEOF\nmypy .", "echo $(cat <<-X\npytest\nX\n); mypy .",
    "case $x in a) cat <<E;; esac\npytest\nE\nmypy .",
])  # fmt: skip
def test_a_heredoc_in_a_substitution_or_beside_quotes_is_not_read_as_commands(command):
    assert shell.find_checks(command).text == "mypy ."
    assert shell.find_checks("cat <<EOF\npytest\nmypy .").text == ""  # cut off


def test_each_heredoc_of_a_line_is_read_up_to_its_delimiter():
    """The second one's text was once read as commands."""
    command = "cat > a.py <<'A' && cat > b.py <<'B'\nx = 1\nA\nrm c.py\nB\nrm d.py"
    assert list(shell.file_effects(command)) == [
        ("a.py", "created"),
        ("b.py", "created"),
        ("d.py", "deleted"),
    ]
    assert text_of(command) == ([], True)


@pytest.mark.parametrize(
    "word", ["it\\'s", 'C:\\"a && b"', 'a\\\\"b && c"', '\\"a\\"', "a\\'", '{\\"a\\":1}']
)
def test_an_escaped_quote_opens_no_quoted_word(word):
    """All commands up to the next quote were once a part of it."""
    command = f"echo {word} && rm a.py # it's over\nrm b.py"
    assert [path for path, _ in shell.file_effects(command)] == ["a.py", "b.py"]
