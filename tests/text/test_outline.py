"""Outlines: what carries meaning survives wherever it stands, and nothing is longer than its room."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.text.outline import KINDS, outline
from refold.text.plain import terms

LINES = st.sampled_from(
    [
        "def main():", "    return compute(x);", "}", "", "src/a/b.py", "src/a/c.py:12: x = 1", "src/a/c.py-13- y", "a,b,c", "1,2,3", "x\ty\tz",
        "+added", "-gone", " same", "@@ -1,2 +1,2 @@", "diff --git a/x b/x", "+++ b/x", "2026-11-02 08:00:01 INFO ok 17", "2026-11-02 ERROR no 18",
        "第3行 正常", "第4行 失败", "Traceback (most recent call last):", "<html>", "<p>said</p>", "<script>", '{"a": 1}', '{"a": [1, {"b": null}]}', "中" * 500, "a" * 2_000,
    ]
)  # fmt: skip
TEXTS = st.lists(LINES, max_size=120).map("\n".join)


def show_outline(text: str, room: int = 1_000, asked: str = "") -> tuple[str, str]:
    outlined = outline(text, frozenset(terms(asked)))
    assert outlined is not None
    kind, lines = outlined
    assert len(lines.show(room)) <= room
    return kind, lines.show(room)


def count_omitted(outlined: str) -> int:
    """How many entries the marks of an outline count."""
    counts = re.findall(r"^\[… ([\d,]+) \w+\]$", outlined, re.MULTILINE)
    return sum(int(count.replace(",", "")) for count in counts)


@given(TEXTS, st.integers(100, 3_000), st.sampled_from(["", "compute x", "失败"]))
def test_every_kind_of_outline_fits_its_room_and_is_deterministic(
    text: str, room: int, asked: str
) -> None:
    wanted = frozenset(terms(asked))
    for weigh in KINDS.values():
        if outlined := weigh(text, wanted):
            shown = outlined.show(room)
            assert len(shown) <= room
            again = weigh(text, frozenset(sorted(wanted, reverse=True)))
            assert again and again.show(room) == shown


@given(TEXTS)
def test_lines_that_an_outline_leaves_out_are_counted(text: str) -> None:
    for kind in ("code", "diff", "table"):
        if weighed := KINDS[kind](text, frozenset()):
            outlined = weighed.show(500)
            lines = outlined.split("\n")
            marks = sum(line.startswith("[… ") for line in lines)
            assert len(lines) - marks + count_omitted(outlined) == len(text.split("\n"))


@pytest.mark.parametrize("text", ["", "a word", "\n" * 500, "A paragraph of prose. " * 300])
def test_a_text_without_a_known_structure_has_no_outline(text: str) -> None:
    assert outline(text, frozenset()) is None


# --- logs and tests --------------------------------------------------------------------------------


@given(
    st.integers(0, 799), st.sampled_from(["ERROR: disk is full", "[错误] 用户登录失败：密码过期"])
)
def test_a_failure_survives_anywhere_in_a_log(at: int, failure: str) -> None:
    lines = [f"2026-11-02 08:{n % 60:02d} 请求 {n} served in {n % 7} ms" for n in range(800)]
    kind, text = show_outline("\n".join([*lines[:at], f"2026-11-02 {failure}", *lines[at:]]))
    assert kind == "log"
    assert failure in text
    assert "  (×800)" in text


@given(st.permutations(["connected to db", "cache is cold", "reading config", "job queue is up"]))
def test_the_first_line_of_each_kind_survives(news: list[str]) -> None:
    noise = "\n".join(f"worker {n} took task 0x{n:08x}" for n in range(100))
    kind, text = show_outline("\n".join(f"{noise}\n{line}" for line in news))
    assert kind == "log"
    assert all(line in text for line in news)


def test_failures_and_totals_of_a_test_run_are_kept() -> None:
    passes = "\n".join(f"tests/test_{n}.py::test_it PASSED" for n in range(300))
    failure = "____ test_pay ____\n    def test_pay():\n>       assert pay(3) == 4\nE       AssertionError: assert 5 == 4\ntests/test_pay.py:9: AssertionError"
    figures = "==== 1 failed, 300 passed in 2.31s ===="
    kind, text = show_outline(f"{passes}\n{failure}\n{passes}\n{figures}\nexit code 1")
    assert kind == "log"
    assert all(line in text for line in (*failure.split("\n")[2:], figures))


# --- code ------------------------------------------------------------------------------------------

CODE = "import os\n" + "\n".join(
    f"def part_{n}(value):\n    total = value + {n}\n    for each in range(total):\n"
    f"        print(each, total);\n    return total  # end of {n}"
    for n in range(60)
)  # fmt: skip


@given(st.integers(0, 59), st.sampled_from(["{}", "{:4d}→", "{:4d}\t"]))
def test_code_that_the_request_mentions_is_kept(part: int, number: str) -> None:
    lines = CODE.split("\n")
    text = "\n".join(
        f"{number.format(n) if number != '{}' else ''}{line}" for n, line in enumerate(lines)
    )
    kind, outlined = show_outline(text, 1_500, f"the end of {part}")
    assert kind == "code"
    assert f"return total  # end of {part}\n" in f"{outlined}\n"


def test_an_outline_of_code_keeps_block_openers_and_both_ends() -> None:
    _, outlined = show_outline(CODE, 1_500)
    assert outlined.startswith("import os\n")
    assert outlined.endswith("# end of 59")
    assert len(re.findall(r"^def part_\d+", outlined, re.MULTILINE)) > 10


# --- listings and searches -------------------------------------------------------------------------


@given(st.lists(st.integers(1, 30), min_size=2, max_size=12))
def test_a_list_of_paths_shows_every_folder(sizes: list[int]) -> None:
    paths = [
        f"/home/me/app/src/dir{n}/file_{k}.py"
        for n, size in enumerate([*sizes, 20])
        for k in range(size)
    ]
    kind, text = show_outline("\n".join(paths), 2_000)
    assert kind == "listing"
    assert text.startswith("in /home/me/app/src/:\n")
    names = [
        word
        for line in text.split("\n")
        if "…" not in line
        for word in line.split()
        if word.endswith(".py")
    ]
    assert len(names) + count_omitted(text) == len(paths)
    assert all(f"dir{n}/ " in text for n in range(len(sizes)))


def test_a_recursive_listing_is_grouped_by_its_own_folders() -> None:
    text = "".join(
        f"./lib/part{n}:\n" + "".join(f"file{k}.ex\n" for k in range(40)) + "\n" for n in range(8)
    )
    kind, outlined = show_outline(text)
    assert kind == "listing"
    assert all(f"part{n}/ " in outlined for n in range(8))


def test_a_search_outline_shows_the_first_match_of_every_file() -> None:
    text = "\n".join(
        f"src/f{n}.py:{k}:    call(thing_{n}_{k})" for n in range(12) for k in range(1, 30)
    )
    kind, outlined = show_outline(text)
    assert kind == "search"
    assert all(f"src/f{n}.py:1:" in outlined for n in range(12))
    assert count_omitted(outlined) > 200
    shown = re.findall(r"^(?:src/f(\d+)\.py:|  )(\d+):    call\((.*)\)$", outlined, re.MULTILINE)
    assert len(shown) + count_omitted(outlined) == 12 * 29
    file = ""
    for path, at, name in shown:
        file = path or file
        assert name == f"thing_{file}_{at}"


# --- JSON ------------------------------------------------------------------------------------------


@given(st.integers(0, 199), st.booleans())
def test_the_unusual_entry_of_a_json_array_is_kept(at: int, is_lines: bool) -> None:
    entries = [
        {
            "id": n,
            "state": "failed" if n == at else "ok",
            "note": f"entry {n} " * 20,
            "tags": ["a", "b"],
        }
        for n in range(200)
    ]
    text = (
        "\n".join(map(json.dumps, entries))
        if is_lines
        else json.dumps({"total": 200, "entries": entries}, indent=2)
    )
    kind, outlined = show_outline(text)
    assert kind == "json"
    assert f'"id":{at},"state":"failed"' in outlined
    assert "200 × {id, state, note, tags}" in outlined
    assert outlined.count('- {"id"') + count_omitted(outlined) == 200


def test_widely_indented_json_is_shown_in_full_if_it_fits_when_compact() -> None:
    value = {"name": "refold", "versions": [{"number": n, "ok": True} for n in range(20)]}
    text = json.dumps(value, indent=8)
    assert len(text) > 1_200
    _, outlined = show_outline(text)
    assert all(f'{{"number":{n},"ok":true}}' in outlined for n in range(20))
    assert not count_omitted(outlined)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 50_000, "{", "[1, 2", '"text"', "12", '{"a": 1} {']
)
def test_text_that_is_not_a_json_container_has_no_json_outline(text: str) -> None:
    assert KINDS["json"](text, frozenset()) is None


# --- others ----------------------------------------------------------------------------------------


def test_a_diff_outline_shows_every_file_and_its_first_change() -> None:
    body = "@@ -1,40 +1,40 @@\n" + "".join(f" kept {n}\n-old {n}\n+new {n}\n" for n in range(40))
    text = "".join(
        f"diff --git a/f{n}.py b/f{n}.py\n--- a/f{n}.py\n+++ b/f{n}.py\n{body}" for n in range(6)
    )
    kind, outlined = show_outline(text)
    assert kind == "diff"
    assert outlined.count("diff --git") == 6
    assert outlined.count("+new 0\n") == 6


@given(st.integers(1, 299), st.sampled_from([",", "\t", " | "]))
def test_a_table_outline_keeps_the_header_and_the_unusual_row(at: int, mark: str) -> None:
    rows = [
        ["id", "城市", "status"],
        *([str(n), ["上海", "北京"][n % 2], "ok"] for n in range(300)),
    ]
    rows[at][2] = "lost"
    kind, outlined = show_outline("\n".join(map(mark.join, rows)))
    assert kind == "table"
    assert outlined.startswith(mark.join(rows[0]) + "\n")
    assert mark.join(rows[at]) in outlined.split("\n")


def test_a_page_outline_keeps_headings_and_requested_text_but_no_scripts() -> None:
    parts = "".join(
        f"<h2>Part {n}</h2><p>On part {n} <a href='/p{n}'>more</a>. {'Words. ' * 30}</p>"
        for n in range(30)
    )
    page = f"<!DOCTYPE html><html><head><style>p {{}}</style><script>alert('<h1>no</h1>')</script></head><!-- <h1>no</h1> --><body>{parts}<p>The port is 8081 &amp; free.</p></body></html>"
    kind, outlined = show_outline(page, 2_000, "which port")
    assert kind == "html"
    assert all(f"## Part {n}\n" in f"{outlined}\n" for n in range(30))
    assert "The port is 8081 & free." in outlined
    links = re.findall(r"On part (\d+) more \(/p(\d+)\)\.", outlined)
    assert 0 < len(links) == outlined.count("On part ")
    assert all(n == target for n, target in links)
    assert "no</h1>" not in outlined and "alert" not in outlined
