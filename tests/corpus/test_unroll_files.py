"""`refold unroll`: files in, one file out, whatever happens in between."""

import gzip
import json
import multiprocessing
import resource
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from refold import corpus, session_files
from refold.cli.commands import run
from refold.corpus.inputs import Chunk, list_inputs, read_chunks, read_list
from refold.corpus.output import lock
from refold.corpus.run import Workers, unroll_files
from refold.corpus.segments import UnrollSettings
from refold.errors import FormatError, RefoldError
from refold.strategies import ClearToolResults
from tests.support import dying_worker
from tests.support.command_line import refold

SETTINGS = UnrollSettings(1_200, strategies=("ClearToolResults(keep=1)",))
OUTPUT = "line of the output\n" * 90


def record(number: int, steps: int = 3) -> dict:
    messages = [{"role": "user", "content": f"Do task {number}."}]
    for step in range(steps):
        call = {
            "id": f"c{step}",
            "type": "function",
            "function": {"name": "run", "arguments": "{}"},
        }
        messages += [
            {"role": "assistant", "content": f"{number}.{step}", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{step}", "content": f"{step} {OUTPUT}"},
        ]
    return {"id": f"r{number}", "messages": [*messages, {"role": "assistant", "content": "Done."}]}


RECORDS = [record(number, steps=3 if number % 25 == 0 else 0) for number in range(180)]


def lines(records) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in records)


def unroll_in_process(records) -> bytes:
    return b"".join(
        json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        for each in records
        for row in corpus.unroll(each, to=1_200, strategies=SETTINGS.strategies)
    )


@pytest.fixture(scope="module")
def whole() -> bytes:
    return unroll_in_process(RECORDS)


def unroll(source, out: Path, **settings):
    return unroll_files([source] if isinstance(source, Path) else source, out, SETTINGS, **settings)


def bad_rows(out: Path) -> list[tuple[int, str]]:
    rows = Path(f"{out}.bad.jsonl").read_text("utf-8").splitlines()
    return [(row["line"], row["reason"]) for row in map(json.loads, rows)]


# --- the same bytes ----------------------------------------------------------------------------


def test_the_output_is_the_same_for_any_number_of_processes(tmp_path, whole):
    source = tmp_path / "in.jsonl"
    source.write_bytes(lines(RECORDS))
    assert len(list(read_chunks(source))) >= 3
    for jobs in (1, 2):
        unroll(source, tmp_path / f"{jobs}.jsonl", jobs=jobs)
        assert (tmp_path / f"{jobs}.jsonl").read_bytes() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.jsonl", "2.jsonl", "in.jsonl"]


@pytest.mark.parametrize("name", ["in.jsonl.gz", "in.jsonl.zst", "list.json", "pretty.json.gz"])
def test_compression_does_not_change_the_rows(tmp_path, name):
    records, source = RECORDS[:4], tmp_path / name
    plain = (
        lines(records)
        if "jsonl" in name
        else json.dumps(records, indent=2 * ("pretty" in name)).encode()
    )
    pack = {".gz": gzip.compress, ".zst": zstandard.compress}.get(source.suffix, bytes)
    source.write_bytes(pack(plain))
    for suffix, unpack in (("", bytes), (".gz", gzip.decompress)):
        out = tmp_path / f"out.jsonl{suffix}"
        unroll(source, out)
        assert unpack(out.read_bytes()) == unroll_in_process(records)
    out = tmp_path / "out.jsonl.zst"
    unroll(source, out)
    with out.open("rb") as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        assert stream.read() == unroll_in_process(records)


def test_parquet_tables_hold_the_same_rows(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    source, table, again = tmp_path / "in.jsonl", tmp_path / "out.parquet", tmp_path / "again.jsonl"
    source.write_bytes(lines(RECORDS[:3]))
    unroll(source, table)
    written = parquet.read_table(table)
    assert written.column_names == list(corpus.SCHEMAS["unroll"])
    rows = [
        {
            name: json.loads(value) if corpus.SCHEMAS["unroll"][name] == "json" else value
            for name, value in row.items()
        }
        for row in written.to_pylist()
    ]
    assert lines(rows) == lines(map(json.loads, unroll_in_process(RECORDS[:3]).splitlines()))
    unroll(table, again)  # its rows are records
    assert len(again.read_bytes().splitlines()) >= len(rows)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(table.read_bytes()[:-20])
    out = tmp_path / "rest.jsonl"
    unroll([cut, source], out)
    assert out.read_bytes() == unroll_in_process(RECORDS[:3])
    assert [line for line, why in bad_rows(out) if "no Parquet that can be read" in why] == [0]


def test_files_of_different_formats_are_read_in_one_run(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    turns = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yes"}]
    steps = [
        {"class_": "text_observation", "source": "user", "content": "hi"},
        {"class_": "code_action", "language": "bash", "content": "ls", "description": "I look."},
        {"class_": "text_observation", "source": "environment", "content": "a.py"},
        {"class_": "message_action", "content": "Done."},
    ]
    events = [
        {"source": "user", "action": "message", "args": {"content": "hi"}},
        {"source": "agent", "action": "run", "args": {"command": "ls", "thought": "I look."}},
        {"source": "agent", "observation": "run", "content": "a.py", "cause": 1},
    ]
    anthropic = {"system": "Be brief.", "max_tokens": 9, "messages": record(0)["messages"][:1]}
    anthropic["messages"] += [{"role": "assistant", "content": [{"type": "text", "text": "yes"}]}]
    mixed = [{"conversations": turns}, {"id": "adp", "content": steps}, {"history": events}]
    (folder / "mixed.jsonl").write_bytes(lines([*mixed, anthropic]))
    (folder / "messages.json").write_text(json.dumps(record(1)["messages"]))
    (folder / "events.json").write_text(json.dumps(events, indent=1))
    (folder / "request.json").write_text(json.dumps(record(2), indent=1))
    (folder / "session.jsonl").write_bytes(lines(session_files.demo_session(3)))
    (folder / "notes.txt").write_text("not data")
    out = tmp_path / "out.jsonl"
    done = unroll(list_inputs([str(folder), str(folder / "req*.json")]), out)
    rows = list(map(json.loads, out.read_bytes().splitlines()))
    assert done.tally["sessions"] == 8  # request.json once
    assert not done.tally["bad"]
    assert [row["format"] for row in rows].count("anthropic") >= 2
    adp = next(row for row in rows if row["session"] == "adp")
    assert [entry["role"] for entry in adp["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert adp["messages"][1]["tool_calls"][0]["id"] == adp["messages"][2]["tool_call_id"]


def test_a_folder_of_events_is_one_session(tmp_path):
    """OpenHands keeps each event in a file, beside files of its own."""
    events = [
        {"source": "user", "action": "message", "args": {"content": "hi"}},
        {"source": "agent", "action": "message", "args": {"content": "no"}},
        {"source": "agent", "action": "message", "args": {"content": "yes"}, "parent_id": "e0"},
    ]
    for home, name in (("old", "{}.json"), ("new", "event-{:05}-4efc4066-f334.json")):
        folder = tmp_path / home / "events"
        folder.mkdir(parents=True)
        (tmp_path / home / "base_state.json").write_text('{"agent": {}}')
        for at, event in [*enumerate(events), (10, events[1] | {"id": "last"})]:
            text = json.dumps({"id": f"e{at}", **event}, indent=at)
            (folder / name.format(at)).write_text(text)
    numbers = tmp_path / "other" / "events"
    numbers.mkdir(parents=True)
    (numbers / "1.json").write_text(json.dumps(RECORDS[1]))
    out = tmp_path / "out.jsonl"
    done = unroll(list_inputs([str(tmp_path)]), out)
    rows = {
        row["session"]: row["messages"] for row in map(json.loads, out.read_bytes().splitlines())
    }
    texts = [[entry["content"] for entry in rows[name]] for name in ("old", "new")]
    assert texts == [["hi", "yes", "no"]] * 2  # by number; what was undone is not there
    assert (set(rows), done.tally["bad"]) == ({"old", "new", "r1"}, 0)


@given(
    items=st.lists(
        st.one_of(st.dictionaries(st.text(max_size=3), st.text(max_size=9)), st.integers())
    ),
    indent=st.sampled_from([None, 1]),
    sizes=st.lists(st.integers(1, 9), min_size=1),
)
def test_a_json_list_is_read_from_blocks_of_any_size(items, indent, sizes):
    data, blocks = json.dumps(items, indent=indent, ensure_ascii=False).encode(), list[bytes]()
    while data:
        size = sizes[len(blocks) % len(sizes)]
        blocks.append(data[:size])
        data = data[size:]
    assert [json.loads(text) for text in read_list(blocks)] == items
    with pytest.raises(FormatError, match="cut off or broken"):
        list(read_list(blocks[:-1] if blocks[-1].strip() == b"]" else [b"[1, 2"]))


# --- bad input -----------------------------------------------------------------------------------


def test_bad_rows_are_written_to_a_file_with_line_and_reason(tmp_path):
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    good = [json.dumps(each).encode() for each in RECORDS[:2]]
    rest = [
        b"",
        b"{broken",
        b'{"text": "no conversation"}',
        b'{"messages": []}',
        b"\xff\xfe",
        b"[[]]",
    ]
    deep = b'{"messages": ' + b"[" * 100_000
    source.write_bytes(
        b"\xef\xbb\xbf" + b"\n".join([rest[1], good[0], *rest, deep, good[1][:-9], good[1]])
    )
    seen = list[str]()
    done = unroll(source, out, note=seen.append)
    assert out.read_bytes() == unroll_in_process(RECORDS[:2])
    assert [line for line, _ in bad_rows(out)] == [1, 4, 5, 6, 7, 8, 9, 10]
    assert all(0 < len(why) < 250 for _, why in bad_rows(out))
    assert (done.tally["sessions"], done.tally["bad"]) == (2, 8)


def test_a_truncated_file_gives_its_complete_records(tmp_path):
    cut, empty, out = tmp_path / "cut.jsonl", tmp_path / "empty.jsonl", tmp_path / "out.jsonl"
    halves = [zstandard.compress(lines(part)) for part in (RECORDS[:3], RECORDS[3:5])]
    cut.write_bytes(halves[0] + halves[1][:-9])  # between two lines, as far as can be read
    empty.touch()
    unroll([cut, empty, tmp_path / "away.jsonl"], out)
    assert out.read_bytes() == unroll_in_process(RECORDS[:3])
    whys = [why for _, why in bad_rows(out)]
    assert len(whys) == 3
    assert "cut off" in whys[0]
    assert whys[1:] == ["the file is empty", "No such file or directory"]
    cut.write_bytes(gzip.compress(lines(RECORDS[:9]))[:-8])
    unroll(cut, out, overwrite=True)
    assert out.read_bytes() == unroll_in_process(RECORDS[:9])
    assert "cut off" in bad_rows(out)[0][1]


def test_an_existing_output_is_not_overwritten_by_default(tmp_path):
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(lines(RECORDS[:1]))
    out.write_text("mine")
    with pytest.raises(RefoldError, match="is there already"):
        unroll(source, out)
    assert out.read_text() == "mine"
    unroll(source, out, overwrite=True)
    assert out.read_bytes() == unroll_in_process(RECORDS[:1])
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(RefoldError, match="is there already"):
        unroll(source, tmp_path / "folder.jsonl", overwrite=True)


def test_a_second_run_for_the_same_output_is_refused(tmp_path):
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(lines(RECORDS[:1]))
    with lock(out), pytest.raises(RefoldError, match=r"out.jsonl: another run writes it now"):
        unroll(source, out)
    unroll(source, out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_a_run_that_filled_the_disk_leaves_no_output_and_can_be_resumed(tmp_path, whole):
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(lines(RECORDS))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) // 2, hard))
    try:
        with pytest.raises(RefoldError, match=r"out.jsonl.part: .*goes on from there"):
            unroll(source, out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not out.exists()
    done = unroll(source, out)
    assert 0 < done.passed < len(list(read_chunks(source)))
    assert out.read_bytes() == whole
    assert done.tally["sessions"] == len(RECORDS)


def test_a_killed_run_is_resumed(tmp_path, whole):
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(lines(RECORDS))
    words = ["unroll", str(source), "-o", str(out), "--to", "1200", "--jobs", "1"]
    words += ["--strategy", "ClearToolResults(keep=1)"]
    journal = Path(f"{out}.journal")
    with subprocess.Popen([sys.executable, "-m", "refold", *words]) as child:
        while not (journal.exists() and journal.read_bytes().count(b"\n") > 1):
            assert child.poll() is None
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
    assert not out.exists()
    with Path(f"{out}.part").open("ab") as part:
        part.write(b'{"half": ')
    changed = RECORDS[:-1]
    source.write_bytes(lines(changed))  # what was done holds as far as its input is the same
    done = unroll_files([source], out, UnrollSettings(1_200, strategies=SETTINGS.strategies))
    assert done.passed
    assert out.read_bytes() == unroll_in_process(changed)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_work_of_a_worker_that_died_is_retried_once_and_then_left_out(tmp_path):
    rows = [[b"a", b"die once"], [b"die", b"b"]]
    chunks = [
        Chunk(str(tmp_path), tuple(enumerate(texts, 1)), str(at), 0)
        for at, texts in enumerate(rows)
    ]
    deaths = list[str]()
    workers = Workers(dying_worker.work, 2, dying_worker.join, dying_worker.give_up, deaths.append)
    results = [result for _, result in workers.map(chunks)]
    assert results == [["a", "die once"], ["1 died", "b"]]
    assert any("done again" in line for line in deaths)
    assert any("left out" in line for line in deaths)


def test_closing_the_results_does_not_wait_for_work_under_way(tmp_path):
    chunks = [Chunk(str(tmp_path), ((1, text),), "", 0) for text in [b"a", *[b"wait"] * 3]]
    workers = Workers(dying_worker.work, 2, dying_worker.join, dying_worker.give_up, str)
    results = workers.map(iter([*chunks, *[chunks[0]] * 9]))
    assert next(results)[1] == ["a"]
    results.close()
    deadline = time.monotonic() + 300
    while multiprocessing.active_children():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- rows leave as they are made -----------------------------------------------------------------


def test_the_rows_of_a_session_are_not_all_held_in_memory(tmp_path):
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    long = record(0, steps=12)
    long["system"] = ["rules of the house " * 10_000]  # in the body of each row
    source.write_bytes(lines([long]))
    tracemalloc.start()
    try:
        unroll(source, out)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(out.read_bytes().splitlines()) > 10
    assert peak < out.stat().st_size


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_session_that_fails_midway_leaves_no_row(tmp_path, suffix):
    source, out = tmp_path / "in.jsonl", tmp_path / f"out.jsonl{suffix}"
    records = [record(0), record(1, steps=5), record(2, steps=0)]
    source.write_bytes(lines(records))

    def break_down(view):
        if len(view.transcript) > len(records[0]["messages"]):
            raise LookupError("no more")
        yield from ClearToolResults(keep=1)(view)

    done = unroll_files([source], out, UnrollSettings(1_200, strategies=(break_down,)))
    written = out.read_bytes()
    written = gzip.decompress(written) if suffix else written
    names = [json.loads(line)["session"] for line in written.splitlines()]
    assert set(names) == {"r0", "r2"}
    assert bad_rows(out) == [(2, "LookupError: no more")]
    assert (done.tally["segments"], done.tally["sessions"]) == (len(names), 2)


def test_temporary_rows_of_an_earlier_run_are_deleted(tmp_path):
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(lines(RECORDS[:1]))
    (tmp_path / "out.jsonl.rows").mkdir()
    (tmp_path / "out.jsonl.rows" / "half").write_text("{")
    unroll(source, out)
    assert out.read_bytes() == unroll_in_process(RECORDS[:1])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_invalid_json_or_utf8_in_a_file_is_reported_as_a_bad_row(tmp_path):
    """They were passed over without a word, and bytes that are no UTF-8 replaced."""
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    asked, answered = (
        {"type": role, "sessionId": "s", "uuid": role, "message": {"role": role, "content": "hi"}}
        for role in ("user", "assistant")
    )
    source.write_bytes(lines([asked]) + b'{"type":"assistant","mess\n' + lines([answered]))
    unroll(source, out)
    assert len(out.read_text().splitlines()) == 1
    ((line, reason),) = bad_rows(out)
    assert line == 0 and reason.startswith("line 2: no JSON")
    source.write_bytes(b'{"messages":[{"role":"assistant","content":"f\xfcr"}]}')
    unroll(source, out, overwrite=True)
    assert bad_rows(out) == [(0, "bytes that are no UTF-8, at byte 45; replaced")]


def test_a_record_over_many_lines_keeps_its_own_id(tmp_path):
    """It was called by a hash, whatever its `id`."""
    source, out = tmp_path / "in.json", tmp_path / "out.jsonl"
    record = {"id": "a", "messages": [{"role": "assistant", "content": "hi"}]}
    source.write_text(json.dumps(record, indent=2))
    unroll(source, out)
    assert json.loads(out.read_text())["session"] == "a"


# --- the command ---------------------------------------------------------------------------------


def test_the_command_prints_its_counts_and_refuses_invalid_arguments(tmp_path, capsys, monkeypatch):
    source, out, page = tmp_path / "in.jsonl", tmp_path / "out.jsonl", tmp_path / "page.html"
    source.write_bytes(lines(RECORDS[:2]) + b"{}\n")
    words = ["unroll", str(source), "--to", "1200", "--strategy", "ClearToolResults(keep=1)", "-o"]
    assert run([*words, str(out), "--report", str(page)]) == 0
    printed = capsys.readouterr().out
    segments = len(unroll_in_process(RECORDS[:2]).splitlines())
    assert f"2         {segments}    1" in printed
    assert "ClearToolResults" in printed
    assert "1 record could not be read" in printed
    assert page.read_text("utf-8").count("<svg") == 3
    assert run([*words, str(out), "--json"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert run([*words, str(out), "--overwrite", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["sessions"], answer["segments"], answer["bad"]) == (2, segments, 1)
    assert answer["bad_rows"] == f"{out}.bad.jsonl"
    for misuse in (["--target", "2000"], ["--reserve", "1200"], ["--strategy", "Nothing()"]):
        assert run([*words, str(tmp_path / "no.jsonl"), *misuse]) == 2
    assert run(["unroll", str(tmp_path / "none*"), "-o", str(tmp_path / "no.jsonl")]) == 2
    assert run(["unroll", str(out), "-o", str(out), "--overwrite"]) == 2
    assert not (tmp_path / "no.jsonl").exists()
    capsys.readouterr()
    for name in ("no.txt", "no.json", "no.parquet.gz", "no", "no.jsonl.bz2"):
        assert run([*words, str(tmp_path / name)]) == 2
        assert ".jsonl.zst or .parquet" in capsys.readouterr().err
    assert not list(tmp_path.glob("no*"))
    assert run([*words, str(tmp_path / "none/out.jsonl")]) == 2
    assert "there is no directory" in capsys.readouterr().err


def test_standard_input_is_read(tmp_path):
    out, words = tmp_path / "out.jsonl", ["--strategy", "ClearToolResults(keep=1)", "--json"]
    done = refold("unroll", "-", "-o", out, "--to", 1200, *words, stdin=lines(RECORDS[:2]))
    assert done.json["sessions"] == 2
    assert out.read_bytes() == unroll_in_process(RECORDS[:2])
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_signed_thinking_in_a_session_without_a_model_causes_no_warning(tmp_path):
    """Python's warning, with a line of Refold's code, stood on the terminal."""
    steps = [{"role": "user", "content": "Count."}]
    for n in range(8):
        thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
        call = {"type": "tool_use", "id": f"c{n}", "name": "count", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": f"line {n}\n" * 200}
        steps.append({"role": "assistant", "content": [thinking, call]})
        steps.append({"role": "user", "content": [result]})
    steps.append({"role": "assistant", "content": "Done."})
    done = refold("unroll", "-", "-o", tmp_path / "out.jsonl", "--to", 1200, stdin=lines([steps]))
    assert (done.code, done.err) == (0, "")
