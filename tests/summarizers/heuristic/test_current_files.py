"""The current text of files that a shell shows and patches change, as in Codex."""

import json
import tracemalloc

import pytest

from refold.core.view import View
from refold.messages import ToolCall, user
from refold.models.driver import drive
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.heuristic.blocks import Block, Work, read_work
from refold.summarizers.heuristic.calls import Change, effect_of_call, effect_of_command
from refold.summarizers.heuristic.current_files import read_files, render_current
from refold.summarizers.heuristic.excerpts import Context, find_excerpts
from refold.summarizers.heuristic.shell_words import find_first_line
from refold.summarizers.heuristic.steps import read_steps
from tests.support.messages import assistant, call
from tests.support.summaries import collect, states_of

SOURCE = [f"    limit_{n} = compute_limit({n})" for n in range(1, 41)]
PATCH = """*** Begin Patch
*** Update File: src/pool.py
@@
     limit_2 = compute_limit(2)
-    limit_3 = compute_limit(3)
+    limit_3 = read_limit("three")
     limit_4 = compute_limit(4)
@@ def close():
-    limit_9 = compute_limit(9)
*** Add File: src/new.py
+def brand_new():
+    return 1
*** Delete File: src/gone.py
*** End Patch"""


def shell(command, result=""):
    """Return a command as Codex writes it."""
    return call("shell", result, command=["bash", "-lc", command])


def text_of(messages, path):
    """Return the known lines of a file with their numbers."""
    return read_files(read_steps(messages))[path].lines


@pytest.mark.parametrize(("command", "first"), [
    ("cat src/pool.py", 1),
    ("sed -n '20,60p' src/pool.py", 20),
    ("sed -n 20,60p src/pool.py", 20),
    ("sed -n '7p' src/pool.py", 7),
    ("sed -n '20,$p' src/pool.py", 20),
    ("cd /repo && sed -n '20,60p' src/pool.py", 20),
    ("cat src/pool.py | head -50", 1),
    ("cat src/pool.py | sed -n '5,9p'", 5),
    ("head -n 30 src/pool.py 2>/dev/null", 1),
    ("tail -n +12 src/pool.py", 12),
    ("tail -n 12 src/pool.py", 0),
    ("nl src/pool.py", 0),  # it numbers no blank lines
    ("cat -A src/pool.py", 0),
    ("head -c 90 src/pool.py", 0),
    ("sed -n '1,5p;9,12p' src/pool.py", 0),
    ("sed 's/a/b/' src/pool.py", 0),
    ("grep -n limit src/pool.py", 0),
    ("cat src/pool.py | grep limit", 0),
    ("cat src/pool.py && ls", 0),
    ("", 0),
])  # fmt: skip
def test_the_first_printed_line_number_is_read_from_the_command(command, first):
    assert find_first_line(command) == first


def test_a_patch_is_parsed_into_changes_per_file():
    for patching in (
        ToolCall("c1", "apply_patch", json.dumps({"input": PATCH})),
        ToolCall("c1", "apply_patch", PATCH),
        ToolCall("c1", "shell", json.dumps({"command": ["apply_patch", PATCH]})),
        ToolCall(
            "c1",
            "shell",
            json.dumps({"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}\nEOF"]}),
        ),
    ):
        assert effect_of_call(patching).changes == (
            Change(
                "src/pool.py",
                tuple(SOURCE[1:4]),
                (SOURCE[1], '    limit_3 = read_limit("three")', SOURCE[3]),
            ),
            Change("src/pool.py", (SOURCE[8],), (), "def close():"),
            Change("src/new.py", None, ("def brand_new():", "    return 1")),
        )


@pytest.mark.parametrize(("words", "is_everywhere"), [
    ({}, False), ({"replace_all": False}, False), ({"replace_all": True}, True), ({"replaceAll": "true"}, True),
    ({"allow_multiple": True}, True), ({"expected_replacements": 1}, False), ({"expected_replacements": 2}, True),
])  # fmt: skip
@pytest.mark.parametrize(("old", "new"), [
    ("a()\nb()", "c()"), ("a()\nb()", "c()\nd()\ne()"), ("a()", "if x:\n    a()"), ("b()\n", ""), ("a", "z"),
])  # fmt: skip
def test_an_edit_changes_every_occurrence_only_if_its_call_says_so(words, is_everywhere, old, new):
    """Of several occurrences of several lines only the first was once changed."""
    source = "import a\n\na()\nb()\nlast = 1\n\na()\nb()\nend = 2"
    text = source[source.index("a()") :]
    start = source.count("\n", 0, source.index(text)) + 1
    read = "\n".join(f"{at}\t{row}" for at, row in enumerate(text.split("\n"), start))
    fields = {"file_path": "m.py", "old_string": old, "new_string": new, **words}
    messages = [*call("Read", read, file_path="m.py"), *call("Edit", "Done.", **fields)]
    after = text.replace(old, new, -1 if is_everywhere else 1)
    assert text_of(messages, "m.py") == list(enumerate(after.split("\n"), start))
    edited = read_files(read_steps(messages))["m.py"].edited
    assert {row for row in edited if row not in text.split("\n")} <= set(after.split("\n"))


@pytest.mark.parametrize("text", [
    "", "*** Begin Patch", "*** Begin Patch\n*** Update File: a.py\n@@\n@@", "*** Begin Patch\n+a\n-b\n*** End Patch",
    "*** Begin Patch\n*** Delete File: a.py\n*** End Patch",
])  # fmt: skip
def test_a_patch_without_changes_has_no_effect(text):
    assert effect_of_command(text).changes == ()


def test_all_lines_are_known_of_a_file_read_in_parts_and_edited_as_in_cline():
    parts, rows = [(1, 6), (7, len(SOURCE))], [f"{at} | {row}" for at, row in enumerate(SOURCE, 1)]
    answers = [
        {"query": f"src/pool.py:{start}-{end}", "result": "\n".join(rows[start - 1 : end])}
        for start, end in parts
    ]
    files = [{"path": "src/pool.py", "start_line": start, "end_line": end} for start, end in parts]
    shown = call("read_files", json.dumps(answers), files=files)
    assert text_of(shown, "src/pool.py") == list(enumerate(SOURCE, 1))
    edit = call("editor", "Done.", path="src/pool.py", old_text=SOURCE[3], new_text="    pass")
    lines = [*SOURCE[:3], "    pass", *SOURCE[4:]]
    assert text_of([*shown, *edit], "src/pool.py") == list(enumerate(lines, 1))


@pytest.mark.parametrize(
    "arguments",
    [{"files": [{"path": "a.py"}, {"path": "b.py"}]}, {"paths": ["a.py", "b.py", "*.c"]}],
)
def test_a_call_that_reads_several_files_names_all(arguments):
    effect = effect_of_call(ToolCall("c1", "read_many_files", json.dumps(arguments)))
    assert effect.files == (("a.py", "read"), ("b.py", "read"))


def test_lines_that_a_shell_command_prints_are_known_of_its_file():
    shown = shell("sed -n '11,20p' src/pool.py", "\n".join(SOURCE[10:20]) + "\n")
    assert text_of(shown, "src/pool.py") == list(enumerate(SOURCE[10:20], 11))
    both = [*shell("cat src/pool.py", "\n".join(SOURCE[:10])), *shown]
    assert text_of(both, "src/pool.py") == list(enumerate(SOURCE[:20], 1))


def test_only_the_beginning_of_a_truncated_output_is_known_of_a_file():
    cut = "\n".join([*SOURCE[:5], "[... omitted 20 of 40 lines ...]", *SOURCE[35:]])
    assert text_of(shell("cat src/pool.py", cut), "src/pool.py") == list(enumerate(SOURCE[:5], 1))


def test_an_error_is_no_text_of_a_file():
    missing = shell("cat src/pool.py", "cat: src/pool.py: No such file or directory")
    assert text_of(missing, "src/pool.py") == []


@pytest.mark.parametrize("answer", [
    "<path>/src/app</path>\n<type>directory</type>\n<entries>\n\n(0 entries)\n</entries>",
    "Here's the files and directories up to 2 levels deep in /src/app, excluding hidden items:\n/src/app",
])  # fmt: skip
def test_a_folder_that_a_reading_tool_lists_is_no_file(answer):
    """OpenCode's and OpenHands' listings were once the current text of a file, for a long time."""
    assert text_of(call("read", answer, filePath="/src/app"), "/src/app") == []


def test_a_patch_changes_the_text_that_a_shell_showed():
    shown = shell("cat src/pool.py", "\n".join(SOURCE))
    patched = shell(f"apply_patch <<'EOF'\n{PATCH}\nEOF", "Success.")
    lines = [text for _, text in text_of([*shown, *patched], "src/pool.py")]
    assert lines[:4] == [*SOURCE[:2], '    limit_3 = read_limit("three")', SOURCE[3]]
    assert SOURCE[8] not in lines
    assert [text for _, text in text_of(patched, "src/new.py")] == [
        "def brand_new():",
        "    return 1",
    ]


def test_a_summary_shows_the_patched_text_and_quotes_no_removed_line():
    messages = [
        user("Read the limits from the settings."),
        *shell("cat src/pool.py", "\n".join(SOURCE)),
        *shell(f"apply_patch <<'EOF'\n{PATCH}\nEOF", "Success. Updated the following files:"),
        *shell("cat big.log", "nothing happened here " * 2_000),
    ]
    view = View.of(messages)
    text = drive(RuleSummary()(view, 0, len(messages), 3_000)).text
    current = text.split("## Current text of files")[1].split("## Excerpts")[0]
    assert '    limit_3 = read_limit("three")' in current
    assert "    limit_20 = compute_limit(20)" in current
    assert "compute_limit(3)" not in text
    assert "Begin Patch" not in text


def test_a_line_range_in_a_path_is_not_part_of_the_file_name():
    shown = call("read", "\n".join(SOURCE[19:25]), path="src/pool.py:20-25")
    assert text_of(shown, "src/pool.py") == list(enumerate(SOURCE[19:25], 20))
    checked = call("read", f"20ab|{SOURCE[19]}\n21cd|{SOURCE[20]}", path="src/pool.py:20-21")
    assert text_of(checked, "src/pool.py") == list(enumerate(SOURCE[19:21], 20))


SHOWN = "\n".join(SOURCE[19:25])
GEMINI = (
    "\nIMPORTANT: The file content has been truncated.\nStatus: Showing lines 20-25 of 40 total lines."
    "\nAction: To read more of the file, you can use the 'start_line' and 'end_line' parameters in a "
    "subsequent 'read_file' call. For example, to read the next section of the file, use start_line: 26."
    "\n\n--- FILE CONTENT (truncated) ---\n"
)


@pytest.mark.parametrize(("tool", "fields", "before"), [
    ("read_file", {"start_line": 20, "end_line": 25}, GEMINI),
    ("read_file", {"offset": 19, "limit": 6}, GEMINI),
    ("read_file", {"offset": 19, "limit": 6}, "Showing lines 20-25 of at least 40 total lines.\n\n---\n\n"),
    ("read_file", {"offset": 19, "limit": 6}, ""),
    ("read", {"offset": 20, "limit": 6}, ""),
])  # fmt: skip
def test_clients_count_the_lines_of_a_file_from_0_or_from_1(tool, fields, before):
    shown = call(tool, before + SHOWN, file_path="/repo/pool.py", **fields)
    assert text_of(shown, "/repo/pool.py") == list(enumerate(SOURCE[19:25], 20))


def test_a_leading_blank_line_of_a_part_is_its_first_line():
    shown = call("read_file", f"{GEMINI}\n{SHOWN}", file_path="/repo/pool.py", start_line=20)
    assert text_of(shown, "/repo/pool.py")[:2] == [(20, ""), (21, SOURCE[19])]


VIEW = "Here's the result of running `cat -n` on {path}:\n{text}"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_indented_part_below_a_header_line_keeps_its_indentation(end):
    """A blank was once taken for the tool's, so the edit found no match, nor did it with the line
    endings of a terminal or of Windows."""
    rows = ["class Pool:", *(f"    size_{n} = {n}" for n in range(2, 9))]
    numbered = [f"{n:6}\t{row}" for n, row in enumerate(rows, 1)]
    views = [VIEW.format(path="a.py", text=end.join(lines)) for lines in (numbered, numbered[3:6])]
    edit = {"old_str": rows[4], "new_str": "    size_5 = 50"}
    messages = [
        *call("str_replace_editor", views[0], command="view", path="a.py"),
        *call("str_replace_editor", views[1], command="view", path="a.py", view_range=[4, 6]),
        *call("str_replace_editor", "The file a.py has been edited.", command="str_replace", path="a.py", **edit),
    ]  # fmt: skip
    file = read_files(read_steps(messages))["a.py"]
    assert not file.is_stale
    assert file.text.split("\n") == [*rows[:4], "    size_5 = 50", *rows[5:]]


def test_an_edit_in_an_unknown_form_makes_a_file_stale():
    shown = call("read", "\n".join(SOURCE), path="src/pool.py")
    edited = call("edit", "Done.", path="src/pool.py", input="=20ab\n    limit_20 = 1")
    assert not read_files(read_steps(shown))["src/pool.py"].is_stale
    assert read_files(read_steps([*shown, *edited]))["src/pool.py"].is_stale


def test_a_file_named_in_the_prompt_of_another_agent_is_stale():
    shown = [
        *call("read", "\n".join(SOURCE), path="src/pool.py"),
        *call("read", "\n".join(SOURCE), path="src/other.py"),
    ]
    task = call("Task", "I changed the limits.", prompt="Change the limits in src/pool.py.")
    files = read_files(read_steps([*shown, *task]))
    assert files["src/pool.py"].is_stale
    assert not files["src/other.py"].is_stale
    again = call("read", "\n".join(SOURCE), path="src/pool.py")
    assert not read_files(read_steps([*shown, *task, *again]))["src/pool.py"].is_stale


@pytest.mark.parametrize("stub", [
    "[Compacted history content evicted to durable cold storage]",
    "File unchanged since last read. The content from the earlier result is still current.",
    "<system-reminder-removed>",
])  # fmt: skip
def test_a_placeholder_for_omitted_text_is_not_the_text_of_a_file(stub):
    shown = call("read", "\n".join(SOURCE), path="src/pool.py")
    assert text_of([*shown, *call("read", stub, path="src/pool.py")], "src/pool.py") == list(
        enumerate(SOURCE, 1)
    )
    messages = [user("Go."), *call("read", stub, path="src/pool.py")]
    assert stub not in drive(RuleSummary()(View.of(messages), 0, 3, 2_000)).text


def test_a_url_is_not_a_file():
    files = read_files(read_steps(call("read", "\n".join(SOURCE), path="agent://3-Review")))
    assert not files


TWO = [
    "class A:",
    "    def f(self):",
    "        return 1",
    "class B:",
    "    def f(self):",
    "        return 1",
]


def patch(*lines, result="Success."):
    """Return a patch of `a.py` as Codex writes it."""
    body = "\n".join(("*** Begin Patch", "*** Update File: a.py", *lines, "*** End Patch"))
    return shell(f"apply_patch <<'EOF'\n{body}\nEOF", result)


@pytest.mark.parametrize(("before", "lines", "after"), [
    (TWO, ["@@ class B:", "-        return 1", "+        return 2"], [*TWO[:5], "        return 2"]),
    (TWO, ["@@ class B:", "+    slots = 4"], [*TWO[:4], "    slots = 4", *TWO[4:]]),
    (["x = 12", "x = 1", "max = 1"], ["@@", "-x = 1", "+x = 2"], ["x = 12", "x = 2", "max = 1"]),
    (list("abcd"), ["@@", " a", "-b", " c"], list("acd")),
    (list("abcd"), ["@@", "-a", "+x", "@@", "-d", "+y", "+z"], list("xbcyz")),
    (list("xx"), ["@@", "-x", "+w", "+x", "@@", "-x", "+z"], list("wxz")),
    (list("abc"), ["@@", "-c", "+C", "@@", "-a", "+A"], list("AbC")),
])  # fmt: skip
def test_a_patch_changes_whole_lines_behind_its_anchor(before, lines, after):
    files = read_files(read_steps([*shell("cat a.py", "\n".join(before)), *patch(*lines)]))
    assert files["a.py"].lines == list(enumerate(after, 1))
    assert not files["a.py"].is_stale


@pytest.mark.parametrize("lines", [["@@", "-nowhere", "+x"], ["@@", "+x"], ["@@ class C:", "+x"]])
def test_a_patch_whose_place_is_not_found_makes_a_file_stale(lines):
    files = read_files(read_steps([*shell("cat a.py", "\n".join(TWO)), *patch(*lines)]))
    assert [text for _, text in files["a.py"].lines] == TWO
    assert files["a.py"].is_stale


@pytest.mark.parametrize("code", ["Exit code: 1\nOutput:\n", ""])
def test_a_patch_that_was_refused_changes_nothing(code):
    refused = f"{code}apply_patch verification failed: Failed to find expected lines"
    messages = [
        *shell("cat a.py", "\n".join(TWO)),
        *patch("@@", "-class A:", "+class C:", result=refused),
    ]
    files = read_files(read_steps(messages))
    assert files["a.py"].lines == list(enumerate(TWO, 1)) and not files["a.py"].is_stale


TEN = [f"line {n}" for n in range(1, 11)]


@pytest.mark.parametrize(("commands", "at", "lines"), [
    (["sed -i '3,4c\\\nx = 1\\\n  y = 2\\\nz = 3' a.py"], 2, ["x = 1", "  y = 2", "z = 3", "line 5"]),
    (["sed -i '2,3d' a.py", "sed -i '3i\\    new' a.py"], 1, ["line 4", "    new", "line 5"]),
    (["sed -i '' '9a one\\ntwo' a.py"], 8, ["line 9", "one", "two", "line 10"]),
    (["sed -i 's/line 7/row 7/' a.py\nsed -i 's/row/[&]/g' a.py"], 6, ["[row] 7", "line 8"]),
    (["cat a.py && \\\n  sed -i -e \"8s|line|'\\$HOME/&'|\" a.py"], 7, ["'$HOME/line' 8", "line 9"]),
])  # fmt: skip
def test_simple_sed_edits_are_applied_to_the_known_text(commands, at, lines):
    """mini-swe-agent edits like this: the old text was once shown as the current one."""
    steps = [*shell("cat a.py", "\n".join(TEN)), *(m for c in commands for m in shell(c))]
    file = read_files(read_steps(steps))["a.py"]
    assert [text for _, text in file.lines][at : at + len(lines)] == lines
    assert list(file.numbers) == list(range(1, len(file.numbers) + 1)) and not file.is_stale


@pytest.mark.parametrize("command", [
    "sed -i 's/^line/x/' a.py", "sed -i 's/line [1-3]/x/' a.py", r"sed -i 's/\(l\)ine/\1/' a.py",
    "sed -i -E 's/(l)ine/x/' a.py", "sed -i '/line 3/d' a.py", "sed -i '1d;3d' a.py", "sed -i '3s/row/x/' a.py",
    "sed -i '1d' a.py; sed -i '/line 3/d' a.py",
])  # fmt: skip
def test_other_sed_edits_make_a_file_stale(command):
    steps = [*shell("cat a.py", "\n".join(TEN)), *shell(command)]
    assert read_files(read_steps(steps))["a.py"].is_stale


@pytest.mark.parametrize("edit", [
    call("edit", "Done.", path="a.py", oldText="a", newText="b" * 20_000), shell(f"sed -i 's/a/{'b' * 19_000}/' a.py"),
    shell(f"sed -i '1s/a/{'b' * 19_000}/' a.py"), shell(f"sed -i 's/{'a' * 9_000}/{'&' * 9_000}/' a.py"),
])  # fmt: skip
def test_an_edit_that_would_multiply_a_text_does_not_grow_it(edit):
    """20 kB would become 400 MB after two edits."""
    steps = [*call("write", "Done.", path="a.py", content="a" * 20_000), *edit]
    assert len(read_files(read_steps(steps))["a.py"].text) <= 20_000


def test_the_text_of_a_file_whose_lines_were_edited_too_often_is_forgotten():
    """Its text after the last edit that was followed used to be shown as the current one."""
    steps = call("write", "Done.", path="a.py", content="\n".join(map(str, range(8_000))))
    for _ in range(150):
        steps += shell("sed -i '3d' a.py")
    read = read_steps(steps)
    assert read_files(read[:22])["a.py"].lines[1:3] == [(2, "1"), (3, "12")]
    assert not read_files(read)["a.py"].lines
    steps += shell("cat a.py", "last = 1")
    assert read_files(read_steps(steps))["a.py"].lines == [(1, "last = 1")]


def test_truncated_lines_and_truncation_marks_are_not_text_of_a_file():
    head = "<returncode>0</returncode>\n<warning>\nToo long.\n</warning><output_head>\nx = 1\ny = compu"
    cut = f"{head}\n</output_head>\n<elided_chars>\n99 characters elided\n</elided_chars>\n<output_tail>\nte(z)\nlast = fit_last_one(9)\n</output_tail>"
    steps = list(read_steps(shell("cat a.py", cut)))
    assert read_files(steps)["a.py"].lines == [(1, "x = 1")]
    shown = [line.text for block in read_work(steps).blocks for line in block.iter_lines()]
    assert "last = fit_last_one(9)" in shown
    assert not [row for row in shown if "elided" in row or "output_" in row or "te(z)" in row]


@pytest.mark.parametrize(("command", "text", "lines"), [
    ("cat a.py", "<returncode>0</returncode>\n<output>\nx = 1\n</output>", [(1, "x = 1")]),
    ("cat a.py", "x = 1\ny = compute(…123 tokens truncated…2)\nz = 3", [(1, "x = 1")]),
    ("cat a.py b.py", "x = 1\ny = 2", []),
    ("cat a.py > b.py", "", []),
    ("cat a.yaml", "codes:\n  404: not found", [(1, "codes:"), (2, "  404: not found")]),
    ("cat ids.tsv", "1\tx\n9999999\ty", []),
    (f"tail -n +{'9' * 5_000} a.py", "x = 1", []),
])  # fmt: skip
def test_only_lines_that_certainly_come_from_the_file_are_known(command, text, lines):
    files = read_files(read_steps(shell(command, text)))
    assert next(iter(files.values())).lines == lines if files else not lines


def test_a_change_under_another_spelling_of_a_path_makes_a_file_stale():
    shown = shell("cat /repo/src/pool.py", "\n".join(SOURCE))
    edited = call("edit", "Done.", path="src/pool.py", oldText=SOURCE[3], newText="x")
    assert read_files(read_steps([*shown, *edited]))["/repo/src/pool.py"].is_stale


def test_a_second_change_by_one_command_makes_a_file_stale():
    command = "cat > a.py <<'EOF'\nx = 1\nEOF\nsed -i s/1/2/ a.py"
    assert read_files(read_steps(shell(command)))["a.py"].is_stale


def test_an_edit_that_is_made_again_and_again_does_not_grow_without_end():
    messages = call("Write", "Done.", file_path="/a.py", content="a")
    fields = {"old_string": "a", "new_string": "aa", "replace_all": True}
    for _ in range(40):
        messages += call("Edit", "Done.", file_path="/a.py", **fields)
    assert not text_of(messages, "/a.py")


def test_a_task_list_call_is_not_another_agent():
    messages = [
        *call("read", "\n".join(SOURCE), path="src/pool.py"),
        *call("TaskUpdate", "Updated.", subject="Look at src/pool.py"),
    ]
    assert not read_files(read_steps(messages))["src/pool.py"].is_stale


def test_the_files_of_a_deleted_folder_have_no_text():
    shown = shell("cat src/pool.py", "\n".join(SOURCE))
    assert not read_files(read_steps([user("Go."), *shown, *shell("rm -rf src/")]))
    written = shell("cat > src/pool.py <<'EOF'\nx = 1\nEOF")
    again = read_files(read_steps([user("Go."), *shown, *shell("rm -rf src"), *written]))
    assert again["src/pool.py"].lines == [(1, "x = 1")]


def test_an_edit_that_is_only_partly_in_the_known_text_makes_a_file_stale():
    shown = shell("head -n 4 src/pool.py", "\n".join(SOURCE[:4]))
    for old, is_stale in ((f"{SOURCE[3]}\n{SOURCE[4]}", True), (SOURCE[8], False)):
        edited = call("edit", "Done.", path="src/pool.py", oldText=old, newText="x = 1")
        assert read_files(read_steps([*shown, *edited]))["src/pool.py"].is_stale == is_stale


def test_text_after_a_patch_in_a_command_is_not_part_of_it():
    patched = f"apply_patch <<'EOF'\n{PATCH}\nEOF\ncat > n.diff <<'X'\n+other = 2\nX"
    assert "other = 2" not in [text for _, text in text_of(shell(patched), "src/new.py")]
    last = PATCH.replace("*** Delete File: src/gone.py\n", "")
    patched = f"apply_patch <<'EOF'\n{last}\nEOF\ncat > n.diff <<'X'\n+other = 2\nX"
    assert "other = 2" not in [text for _, text in text_of(shell(patched), "src/new.py")]


def test_a_result_that_only_refers_to_an_earlier_one_is_not_quoted():
    stub = "File unchanged since last read: load_rows and load_cols stand above."
    messages = [user("Go."), *call("read", stub, path="src/pool.py")]
    assert "load_cols" not in drive(RuleSummary()(View.of(messages), 0, 3, 2_000)).text


@pytest.mark.parametrize(("path", "is_task"), [
    ("specs/1/tasks.md", True), (".specify/templates/tasks-template.md", False), ("src/tasks.py", False),
])  # fmt: skip
def test_a_task_template_or_a_source_file_is_not_the_task(path, is_task):
    read = call("read", "- [ ] T001 Create load_rows in the pool", path=path)
    assert [block.kind == "task" for block in read_work(read_steps(read)).blocks] == [is_task]


def test_source_that_was_read_is_worth_more_than_data_and_what_the_model_wrote():
    kinds = ("source", "docs", "read", "run", "written")
    work = Work([Block(0, kind, kind, f"the name load_{kind} is there") for kind in kinds])
    excerpts = find_excerpts(work, Context([0.0], frozenset(), False, ""), 240)
    source, docs, *data, written = [excerpt.worth for excerpt in excerpts]
    assert source > docs > 2 * max(data) and min(data) > 2 * written


def read_at(first, rows):
    """Return a read of a part of a file from line *first* on."""
    return shell(f"sed -n '{first},{first + len(rows) - 1}p' src/pool.py", "\n".join(rows))


def test_a_read_that_contradicts_the_known_text_replaces_all_of_it():
    """A script removed five lines without a trace, so the known line numbers after them were
    wrong."""
    messages = [*read_at(1, SOURCE), *shell("python fix_lines.py"), *read_at(10, SOURCE[14:19])]
    assert text_of(messages, "src/pool.py") == [*enumerate(map(str.rstrip, SOURCE[14:19]), 10)]


def test_lines_after_a_read_are_renumbered_if_lines_in_it_moved():
    messages = [
        *read_at(1, SOURCE),
        *shell("python fix_lines.py"),
        *read_at(5, [*SOURCE[4:9], *SOURCE[14:30]]),
    ]
    rest = [*SOURCE[:9], *SOURCE[14:]]
    assert text_of(messages, "src/pool.py") == [*enumerate(map(str.rstrip, rest), 1)]


def test_a_read_of_other_lines_keeps_the_known_ones():
    messages = [*read_at(1, SOURCE[:9]), *read_at(20, SOURCE[19:29]), *read_at(10, SOURCE[9:19])]
    assert text_of(messages, "src/pool.py") == [*enumerate(map(str.rstrip, SOURCE[:29]), 1)]


def test_rereading_a_part_does_not_change_whether_the_rest_is_stale():
    whole = shell("cat src/pool.py", "\n".join(SOURCE))
    part = shell("sed -n '1,3p' src/pool.py", "\n".join(SOURCE[:3]))
    changed = shell("sed -i s/30$/31/ src/pool.py")
    for messages, is_stale in (
        ([*whole, *part], False),
        ([*whole, *changed, *part], True),
        ([*whole, *changed, *part, *whole], False),
        ([*changed, *part], False),
    ):
        assert read_files(read_steps(messages))["src/pool.py"].is_stale == is_stale


def test_an_edit_that_begins_in_an_unknown_line_makes_a_file_stale():
    read = shell("sed -n '4,7p' src/pool.py", "\n".join(SOURCE[3:7]))
    old = "compute_limit(3)\n    limit_4 = "
    edit = call("edit", "Done.", path="src/pool.py", old_string=old, new_string="4 + ")
    assert read_files(read_steps([*read, *edit]))["src/pool.py"].is_stale
    unrelated = call("edit", "Done.", path="src/pool.py", old_string="x\n    y", new_string="z")
    assert not read_files(read_steps([*read, *unrelated]))["src/pool.py"].is_stale


def test_smaller_parts_are_shown_first_if_parts_matter_equally():
    parts = [
        f"def read_{name}(path):\n" + "".join(f"    {name}_{n} = load({n})\n" for n in range(size))
        for name, size in (("users", 18), ("orders", 5), ("invoices", 5))
    ]
    messages = [user("Mend the store."), *call("Read", "\n".join(parts), file_path="src/store.py")]
    files = read_files(read_steps(messages))
    text = render_current(files, [], Context([0.5] * len(messages), frozenset(), False, ""), 240)
    assert "def read_orders" in text
    assert "def read_invoices" in text
    assert "def read_users" not in text


def test_a_part_that_the_newest_messages_mention_is_shown_before_a_fresh_edit():
    """Recently edited lines are rarely edited again."""
    edited = "def close_pool(path):\n" + "".join(f"    pool_{n} = shut({n})\n" for n in range(6))
    wanted = "def drain_queue(queue):\n" + "    queue.drain(queue)\n" * 6
    messages = [
        user("Mend the store."),
        *call("Read", f"{edited}\n{wanted}", file_path="src/store.py"),
        *call("Edit", "ok", file_path="src/store.py", old_string="shut(0)", new_string="close(0)"),
    ]
    context = Context([0.5] * len(messages), frozenset(), False, "")
    newest = ["Now the queue: def drain_queue(queue) must drain the queue."]
    text = render_current(read_files(read_steps(messages)), newest, context, 90)
    assert "queue.drain" in text
    assert "shut(1)" not in text


@pytest.mark.parametrize("change", [
    {"oldString": SOURCE[3], "newString": "x"}, {"edit": {"old": SOURCE[3], "new": "x"}},
    {"edits": [{"old": SOURCE[3], "new": "x"}]},
])  # fmt: skip
def test_an_edit_is_applied_whatever_the_client_names_its_arguments(change):
    shown = call("read", "\n".join(f"{n}: {text}" for n, text in enumerate(SOURCE, 1)), path="a.py")
    file = read_files(read_steps([*shown, *call("edit", "Done.", path="a.py", **change)]))["a.py"]
    assert [text for _, text in file.lines] == [*SOURCE[:3], "x", *SOURCE[4:]] and not file.is_stale


@pytest.mark.parametrize("where", [{"start": 2, "end": 3}, {"mode": "append"}])
def test_content_for_a_line_range_or_an_append_does_not_replace_the_file(where):
    shown = call("read", "1\tfirst\n2\tsecond", path="a.py")
    edited = call("edit_file", "Done.", path="a.py", content="third", **where)
    file = read_files(read_steps([*shown, *edited]))["a.py"]
    assert file.lines == [(1, "first"), (2, "second")] and file.is_stale


@pytest.mark.parametrize("mark", [": ", "| "])
def test_the_separator_after_a_line_number_is_not_part_of_the_line(mark):
    rows = ["def f():", "    return 1", "", "## End"]
    shown = call("read", "\n".join(f"{n}{mark}{text}" for n, text in enumerate(rows, 7)), path="a")
    assert text_of(shown, "a") == list(enumerate(rows, 7))


def test_replaced_lines_are_dropped_even_if_the_edit_does_not_match_the_known_text():
    shown = call("read", "1\tlimit_a = 1\n2\tlimit_b = 2\n3\tlimit_c = 3", path="a.py")
    changed = call("bash", command="sed -i s/^limit_c/limit_d/ a.py")
    old, new = "limit_b = 2\nlimit_d = 3", "limit_b = 2\nlimit_d = 4"
    for edited in (
        call("edit", "Done.", path="a.py", oldText=f"limit_a = 1\n{old}", newText=new),
        patch("@@", "-limit_a = 1", " limit_b = 2", "-limit_d = 3", "+limit_d = 4"),
    ):
        file = read_files(read_steps([*shown, *changed, *edited]))["a.py"]
        assert file.lines == [(2, "limit_b = 2"), (3, "limit_c = 3")] and file.is_stale


@pytest.mark.parametrize(
    "answer",
    [
        'Edit at index 0: string not found in file: "x"',
        "No replacement was performed, old_str `x` did not appear verbatim in a.py.",
        "Could not find the text to replace.",
    ],
)
def test_an_edit_whose_text_was_not_found_changes_nothing(answer):
    """Its lines were once forgotten, so the next edit found no match in the rest of the file."""
    change = {"file_path": "a.py", "old_string": "# ...\ny = 2\nz", "new_string": "w = 3"}
    messages = [*call("Read", "x = 1\ny = 2", file_path="a.py"), *call("Edit", answer, **change)]
    assert text_of(messages, "a.py") == [(1, "x = 1"), (2, "y = 2")]
    assert states_of(collect(messages)) == {"a.py": "read"}


def test_the_known_text_of_many_files_takes_hardly_more_memory_than_the_text():
    """A million tokens of reads once took four times their size."""
    rows = "\n".join(SOURCE)
    steps = read_steps([m for n in range(200) for m in shell(f"cat src/pool_{n}.py", rows)])
    read_files(steps)  # cached paths and commands count once
    tracemalloc.start()
    try:
        files = read_files(steps)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 2 * len(rows) * len(files)


def test_an_edit_whose_text_ends_in_a_blank_does_not_fill_the_memory():
    """Without the blank it is found in each letter: 50 kB and an edit of 20 kB made 1 GB."""
    change = {"file_path": "a.py", "old_string": "a ", "new_string": "b" * 20_000}
    messages = [
        *call("Write", "Done.", file_path="a.py", content="a" * 50_000),
        *call("Edit", "Done.", **change, replace_all=True),
    ]
    assert sum(len(text) for _, text in text_of(messages, "a.py")) < 2_000_000


def test_a_read_with_a_huge_offset_does_not_fail():
    (line,) = text_of(call("read", "x = 1", path="a.py", offset=10**30), "a.py")
    assert line[1] == "x = 1"


def test_line_numbers_after_a_truncation_notice_are_not_trusted():
    """OpenHands counts on from the notice: line 1431 was once read as line 372."""
    notice = "<response clipped><NOTE>Due to the max output limit, only part is shown.</NOTE>"
    rows = [*SOURCE[:5], f"    limit_5{notice}limit_90 = 1", *SOURCE[20:25]]
    shown = "\n".join(f"{number:6d}\t{row}" for number, row in enumerate(rows, 1))
    messages = [user("Go."), *call("view", shown, path="/a/pool.py")]
    [file] = read_files(read_steps(messages)).values()
    assert file.lines == list(enumerate(SOURCE[:5], 1))
    lines = list(read_work(read_steps(messages)).blocks[-1].iter_lines())
    assert [line.number for line in lines] == [1, 2, 3, 4, 5, 0, 0, 0, 0, 0]
    assert not any("response clipped" in line.text for line in lines)


def test_the_tools_note_after_a_part_of_a_file_is_not_its_text():
    part = "\n".join(SOURCE[:3]) + "\n\n[37 more lines in file. Use offset=4 to continue.]"
    [file] = read_files(read_steps([user("Go."), *call("read", part, path="/a/b.py")])).values()
    assert [text for _, text in file.lines] == SOURCE[:3]


def test_output_masked_by_a_client_is_not_text_of_a_file():
    """Gemini CLI replaces it by an excerpt as JSON and the path of the whole output."""
    rows = json.dumps("\n".join(SOURCE[:3]))
    masked = f'<tool_output_masked>\n{{"output": {rows}\n... [TRUNCATED] ...\n</tool_output_masked>'
    messages = [user("Go."), *call("read_file", masked, file_path="/a/b.py")]
    [file] = read_files(read_steps(messages)).values()
    assert not file.lines and not read_work(read_steps(messages)).blocks[1:]


def test_line_numbers_with_a_dot_are_not_part_of_the_text():
    """The `view` of Copilot CLI writes them. A list without empty items may look the same."""
    shown = call("view", "7. # The pool\n8. \n9. It has 1. a wall", path="/w/a.md")
    assert text_of([user("Go."), *shown], "/w/a.md") == [
        (7, "# The pool"),
        (8, ""),
        (9, "It has 1. a wall"),
    ]
    listed = "1. the pool\n2. the wall"
    shown = call("view", listed, path="/w/b.md")
    assert [text for _, text in text_of([user("Go."), *shown], "/w/b.md")] == listed.split("\n")


def test_line_numbers_with_a_checksum_are_not_part_of_the_text():
    """Lines were once shown twice, once with the checksums of a fork of pi."""
    rows = [
        f"{n}{'lw' if n % 2 else 'ot'}|  .board-head-{n} {{ margin: {n}rem; }}"
        for n in range(100, 140)
    ]
    shown = call("read", "\n".join(rows), path="Layout.css")
    view = View.of([user("Go."), *shown, user("Go on."), assistant("On it.")])
    summary = drive(RuleSummary()(view, 0, 3, 4_000)).text
    assert ".board-head-107 {" in summary and "lw|" not in summary
    assert summary.count(".board-head-107 {") == 1


def test_a_call_that_writes_several_files_does_not_mix_their_texts():
    rows = [{"path": "a.py", "content": "a = 1"}, {"path": "b.py", "content": "b = 2"}]
    files = read_files(read_steps(call("write_files", "Done.", files=rows)))
    assert "b = 2" not in files["a.py"].text
    assert files["a.py"].is_stale


def test_known_lines_are_not_doubled_by_a_read_that_finds_them_further_down():
    """Lines that a formatter had moved apart were once shown twice."""
    messages = [
        *read_at(1, SOURCE),
        *shell("python fix_lines.py"),
        *read_at(13, SOURCE[9:19]),
    ]
    numbered = text_of(messages, "src/pool.py")
    assert [text for _, text in numbered] == [row.rstrip() for row in SOURCE]
    assert numbered[8:10] == [(9, SOURCE[8].rstrip()), (13, SOURCE[9].rstrip())]
    up = [*read_at(1, SOURCE), *shell("python fix_lines.py"), *read_at(13, SOURCE[15:30])]
    numbers, texts = zip(*text_of(up, "src/pool.py"), strict=True)
    assert [*texts] == [row.rstrip() for row in SOURCE[3:]] and [*numbers] == [*range(1, 38)]


def test_a_formatter_makes_files_of_a_folder_stale_even_if_the_folder_was_listed():
    listed = call("read", "<type>directory</type>\npool.py", filePath="/repo/src")
    shown = call("read", "\n".join(SOURCE), filePath="/repo/src/pool.py")
    formatted = call("bash", "", command="cargo fmt", workdir="/repo/src")
    assert read_files(read_steps([*listed, *shown, *formatted]))["/repo/src/pool.py"].is_stale
    assert "/repo/src" not in states_of(collect([*listed, *shown]))


def test_a_read_that_failed_only_by_its_exit_code_adds_no_file():
    """Codex marks no result as an error."""
    missing = "Exit code: 1\nWall time: 0.3 seconds\nOutput:\ncat: src/gone.py: ?"
    steps = read_steps(call("shell_command", missing, command="cat src/gone.py"))
    assert not steps[-1].has_effect and not states_of(
        collect(call("shell", missing, command="cat src/gone.py > src/b.py"))
    )


@pytest.mark.parametrize(
    ("paths", "shown"),
    [
        (("/home/ada/build/app/src/pool.py", "/home/ada/build/app/b.py"), True),
        ((r"C:\build\app\src\pool.py",), True),
        (("/home/ada/app/build/pool.py", "/home/ada/app/src/b.py"), False),
        (("build/pool.py",), False),
    ],
)
def test_files_of_a_project_in_a_folder_called_build_are_shown(paths, shown):
    """Third-party and generated files are not shown, but a project may be in such a folder."""
    reads = (call("Read", "\n".join(SOURCE), file_path=path) for path in paths)
    files = read_files(read_steps([message for pair in reads for message in pair]))
    text = render_current(files, (), Context([0.0] * 9, frozenset(), 0.0, ""), 4_000)
    assert (f"### {paths[0]}" in text) == shown


@pytest.mark.parametrize("change", [
    {"old_string": "1\n", "new_string": "", "replace_all": True},  # the end of the last line
    {"old_string": "  ", "new_string": "\t", "replace_all": True},
    {"old_string": "b = ", "new_string": "", "replace_all": True},  # blanks at ends are unknown
])  # fmt: skip
def test_an_edit_that_known_lines_cannot_place_makes_a_file_stale(change):
    """What it changed was still shown as current."""
    read = call("Read", "1\ta = 1\n2\tif a:\n3\t  b = 2\n4\tb = 1", file_path="a.py")
    messages = [*read, *call("Edit", "Done.", file_path="a.py", **change)]
    assert read_files(read_steps(messages))["a.py"].is_stale


def test_an_old_text_that_ends_in_a_blank_matches_no_word_without_it():
    """`y = ` was taken for `y =`, so that its blank stayed."""
    change = {"file_path": "a.py", "old_string": "x = 1 \ny = ", "new_string": "y ="}
    messages = [
        *call("Read", "1\tx = 1 \n2\ty = 2", file_path="a.py"),
        *call("Edit", "Done.", **change),
    ]
    assert [text for _, text in text_of(messages, "a.py")] == ["y =2"]


def test_sed_changes_the_first_match_of_a_line_unless_told_otherwise():
    """Every match was changed."""
    read = shell("cat a.py", "x = x\nx = 1")
    for script, first in (("1s/x/y/", "y = x"), ("1s/x/y/g", "y = y"), ("s/x/y/g", "y = y")):
        messages = [*read, *shell(f"sed -i '{script}' a.py")]
        assert text_of(messages, "a.py")[0] == (1, first)
    [file] = read_files(read_steps([*read, *shell("sed -i 's/x/y/' a.py")])).values()
    assert file.is_stale


def test_sed_changes_no_line_behind_the_known_end():
    messages = [*shell("cat a.py", "x = 1"), *shell("sed -i '6c\\\\z' a.py")]
    assert text_of(messages, "a.py") == [(1, "x = 1")]
