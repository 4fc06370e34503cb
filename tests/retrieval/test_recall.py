"""Searching what edits have hidden, in any script, and the same as tools for the agent."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold import (
    Budget,
    Compactor,
    EditError,
    FormatError,
    Message,
    StoreError,
    Text,
    ToolCall,
    ToolResult,
    Transcript,
    View,
)
from refold.messages import Thinking, user
from refold.retrieval import Index, answer_call, recall, recall_tools
from refold.stores import SQLiteStore
from refold.stores.sqlite import any_word_query, phrase_query
from refold.strategies import ClearThinking, Summarize
from refold.testing import transcripts
from refold.text.plain import terms

MESSAGES = (
    user("请把配置文件改成 YAML 格式，不要动数据库。全文检索也要支持中文"),
    Message(
        "assistant",
        (Text("Looking."), ToolCall("c1", "bash", '{"command":"cat src/foo_bar.py\\nls"}')),
    ),
    Message(
        "tool",
        (
            ToolResult(
                "c1", (Text("def load_config(path): return x => y && z\nCafé naïve ERROR_42"),)
            ),
        ),
    ),
    Message("assistant", (Text("第3章节abc已经修改, see https://example.com/a?b=1"),)),
    user("喝水 ＦＵＬＬ width; user's e-mail me@example.com"),
    Message("assistant", (Text("done"),)),
    user("now the latest request about 配置文件"),
)


def fold_view(stop: int = 6) -> View:
    view = View.of(MESSAGES)
    return view.apply(view.fold(0, stop, user("[summary]"), by="test"))


@pytest.mark.parametrize(
    ("query", "position"),
    [
        ("配", 0), ("库", 0), ("水", 4), ("文", 0),  # one character, also the last of its run
        ("配置", 0), ("数据", 0), ("检索", 0),
        ("配置文", 0), ("数据库", 0),
        ("配置文件", 0), ("全文检索", 0), ("全文检索也要支持中文", 0),
        ("foo_bar", 1), ("src/foo_bar.py", 1), ("foo_bar.py", 1), ("SRC/FOO_BAR.PY", 1),
        ("load_config(path)", 2), ("=>", 2), ("&& z", 2), ("error_42", 2), ("cafe", 2), ("NAÏVE", 2),
        ("第3章", 3), ("章节abc", 3), ("https://example.com/a?b=1", 3),
        ("full", 4), ("me@example.com", 4), ("user's", 4),
        ("xample.co", 4),  # no word at all: the fallback looks for the string; the later of two first
    ],
)  # fmt: skip
def test_words_of_any_script_are_found(query: str, position: int) -> None:
    """Chinese of 1, 2, 3, 4 and more characters, identifiers, paths, code, any case and width."""
    hits = recall(fold_view(), query)
    assert hits[0].position == position
    assert hits[0].role == MESSAGES[position].role


def test_a_hit_names_the_edit_and_unfold_returns_the_original_messages() -> None:
    view = fold_view()
    (hit,) = recall(view, "foo_bar")
    assert view.unfold(hit.edit) == list(MESSAGES[:6])
    assert view.unfold(hit.edit)[hit.position] == MESSAGES[1]
    assert "foo_bar" in hit.snippet
    assert hit.score > 0


def test_only_hidden_messages_are_found() -> None:
    assert [hit.position for hit in recall(fold_view(), "配置文件")] == [0]
    assert recall(View.of(MESSAGES), "配置文件") == ()
    assert recall(fold_view().revert(), "配置文件") == ()


def test_a_message_that_lost_only_its_thinking_is_not_hidden() -> None:
    messages = (
        user("go"),
        Message("assistant", (Thinking("a long zebra thought " * 20), Text("zebra"))),
        *(user(str(n)) for n in range(8)),
    )
    view = View.of(messages)
    (edit,) = ClearThinking(keep=0)(view)
    assert view.apply(edit).tokens < view.tokens
    assert recall(view.apply(edit), "zebra") == ()


@pytest.mark.parametrize(
    "query",
    [
        '"',
        '" OR (',
        "NEAR(a",
        "*",
        "a*",
        "^a",
        "terms:b",
        "AND",
        "-",
        "\0",
        "\ud800",
        "'; DROP TABLE words; --",
        "   ",
        "",
        "[",
        "😀",
    ],
)
def test_special_characters_in_a_query_raise_no_error(query: str) -> None:
    assert recall(fold_view(), query) == recall(fold_view(), query)


@pytest.mark.parametrize(
    ("query", "positions"),
    [
        ("load*", [2]),
        ("conf*", []),
        ("^Looking", [1]),
        ("^src", [1]),
        ("zzz OR yyy", []),
        ("NOT Looking", [1]),
        ("text:Looking", [1]),
        ("NEAR(Looking load)", [1, 2]),
    ],
)
def test_operators_of_full_text_search_are_plain_text_in_a_query(
    query: str, positions: list[int]
) -> None:
    assert sorted(hit.position for hit in recall(fold_view(), query)) == positions


@given(st.text(max_size=60))
def test_no_query_raises(query: str) -> None:
    recall(fold_view(), query)


@given(transcripts(), st.data())
def test_any_word_of_a_hidden_text_is_found(
    messages: tuple[Message, ...], data: st.DataObject
) -> None:
    """Whatever stands between two spaces of a hidden text finds that message, letters or not."""
    view = View.of(messages)
    cuts = sorted(cut for cut in view.cuts if cut)
    if not cuts:
        return
    stop = cuts[-1]
    view = view.apply(view.fold(0, stop, user("."), by="t"))
    texts = [(at, m.text) for at, m in enumerate(messages[:stop]) if m.text.strip()]
    if not texts:
        return
    at, text = data.draw(st.sampled_from(texts))
    word = data.draw(st.sampled_from(text.split()))
    assert at in {hit.position for hit in recall(view, word, limit=1_000)}


def test_the_exact_phrase_comes_before_single_words_and_later_before_earlier() -> None:
    messages = (
        user("file"),
        user("the file of config, config of file"),
        user("x " * 3_000 + "config file" + " y" * 3_000),
        user("a"),
        user("b"),
    )
    view = View.of(messages)
    view = view.apply(view.fold(0, 4, user("."), by="t"))
    positions = [hit.position for hit in recall(view, "config file")]
    assert positions[0] == 2
    assert set(positions) == {0, 1, 2}
    same = View.of([user("same words")] * 5 + [user("end")])
    same = same.apply(same.fold(0, 5, user("."), by="t"))
    assert [hit.position for hit in recall(same, "words", limit=3)] == [4, 3, 2]


def test_the_exact_phrase_comes_before_many_rare_words_in_a_short_message() -> None:
    """BM25 gives the short message more than 100."""
    query = " ".join(f"name{first}{second}" for first in "bdfgklmn" for second in "aeiou")
    fillers = [user(f"Nothing about it in number {at}.") for at in range(600)]
    texts = "unrelated prose " * 2_000 + query, " ".join(reversed(query.split()))
    messages = [*fillers, *map(user, texts), user("Go on.")]
    view = View.of(messages)
    view = view.apply(view.fold(0, len(messages) - 1, user("[summary]"), by="test"))
    assert [hit.position for hit in recall(view, query)] == [600, 601]


@pytest.mark.parametrize("width", [-1, 0, 1, 2, 3, 40])
def test_a_snippet_never_exceeds_its_width(width: int) -> None:
    view = View.of([user("a needle in a haystack " * 50), user("Go on.")])
    view = view.apply(view.fold(0, 1, user("[summary]"), by="test"))
    for query in ("needle", "a"):
        [hit] = recall(view, query, width=width)
        assert len(hit.snippet) <= max(0, width)


def test_a_snippet_is_short_and_holds_the_hit() -> None:
    text = "前面的话" * 500 + " needle_7 " + "后面的话" * 500
    view = View.of((user(text), user("end")))
    view = view.apply(view.fold(0, 1, user("."), by="t"))
    (hit,) = recall(view, "NEEDLE_7", width=100)
    assert "needle_7" in hit.snippet
    assert len(hit.snippet) <= 100
    assert hit.snippet.startswith("…") and hit.snippet.endswith("…")


def test_a_hit_inside_nested_edits_names_the_outermost_edit() -> None:
    view = View.of(MESSAGES)
    inner = view.fold(3, 4, user("[inner]"), by="a")
    outer = view.fold(0, 6, user("[outer]"), by="b")
    assert recall(view.apply(inner, outer), "章节")[0].edit == outer.id[:8]
    assert recall(view.apply(inner), "章节")[0].edit == inner.id[:8]


def test_an_index_adds_only_new_messages() -> None:
    with Index() as index:
        transcript = Transcript.of(MESSAGES[:4])
        assert index.add(transcript) == 4
        assert index.add(transcript) == 0
        assert index.add(transcript.extend(MESSAGES[4:])) == 3
        fork = Transcript.of((*MESSAGES[:4], user("another branch")))
        assert index.add(fork) == 1


def test_an_index_file_can_be_opened_twice_and_hold_several_conversations(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    unrelated = View.of((user("unrelated 配置文件"), user("end")))
    unrelated = unrelated.apply(unrelated.fold(0, 1, user("."), by="t"))
    with Index(path) as index, Index(path) as second:
        assert [hit.position for hit in recall(fold_view(), "配置文件", index=index)] == [0]
        assert [hit.snippet for hit in recall(unrelated, "配置文件", index=second)] == [
            "unrelated 配置文件"
        ]
        assert second.add(fold_view().transcript, 6) == 0
    with pytest.raises(StoreError, match="closed"):
        recall(fold_view(), "配置", index=index)


def test_a_store_refuses_an_index_file_and_an_index_refuses_a_store_file(tmp_path: Path) -> None:
    Index(tmp_path / "index.db").close()
    SQLiteStore(tmp_path / "store.db").close()
    with pytest.raises(StoreError, match="not one of Refold's of this kind"):
        SQLiteStore(tmp_path / "index.db")
    with pytest.raises(StoreError, match="not one of Refold's of this kind"):
        Index(tmp_path / "store.db")


def test_terms_are_words_and_pairs_of_chinese_characters() -> None:
    assert list(terms("全文检索 foo_Bar 第3章")) == [
        "全文",
        "文检",
        "检索",
        "索",
        "foo",
        "bar",
        "第",
        "3",
        "章",
    ]
    assert phrase_query('a" OR b*') == '"a or b"'
    assert phrase_query("水") == '"水"*'
    assert phrase_query("!?") == ""
    assert '"5 月"*' in any_word_query("在5月6号")


# --- tools --------------------------------------------------------------------------------------


def wire(format: str, name: str, arguments: dict[str, object]) -> dict[str, object]:
    match format:
        case "anthropic":
            return {"type": "tool_use", "id": "c9", "name": name, "input": arguments}
        case "openai_chat":
            return {
                "id": "c9",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
        case "openai_responses":
            return {
                "type": "function_call",
                "call_id": "c9",
                "name": name,
                "arguments": json.dumps(arguments),
            }
        case _:
            return {"functionCall": {"id": "c9", "name": name, "args": arguments}}


def text_of(format: str, result: dict[str, object]) -> str:
    match format:
        case "anthropic":
            assert result["type"] == "tool_result" and result["tool_use_id"] == "c9"
            return result["content"]
        case "openai_chat":
            assert result["role"] == "tool" and result["tool_call_id"] == "c9"
            return result["content"]
        case "openai_responses":
            assert result["type"] == "function_call_output" and result["call_id"] == "c9"
            return result["output"]
        case _:
            response = result["functionResponse"]
            assert response["id"] == "c9"
            return next(iter(response["response"].values()))


FORMATS = ("anthropic", "openai_chat", "openai_responses", "gemini")


@pytest.mark.parametrize("format", FORMATS)
def test_tools_are_offered_and_answered_in_every_wire_format(format: str) -> None:
    tools = json.dumps(recall_tools(format))
    assert all(word in tools for word in ("recall", "unfold", "query", "edit", "offset"))
    view = fold_view()
    answer = text_of(
        format, answer_call(view, wire(format, "recall", {"query": "数据库", "limit": 3}))
    )
    assert f"[edit {view.edits[0].id[:8]}, position 0, user]" in answer
    read = text_of(
        format,
        answer_call(view, wire(format, "unfold", {"edit": view.edits[0].id[:8], "position": 2})),
    )
    assert read == f"[edit {view.edits[0].id[:8]}, position 2, tool]\n" + MESSAGES[2].parts[0].text


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("recall", {}, "query"),
        ("recall", {"query": 7}, "query"),
        ("recall", {"query": "x", "limit": "many"}, "limit"),
        ("unfold", {"edit": "zzzz"}, "no edit"),
        ("unfold", {"edit": ""}, "edit"),
        ("unfold", {"edit": "EDIT", "position": 6}, "hides positions 0 to 5"),
        ("unfold", {"edit": "EDIT", "offset": 10**9}, "outside"),
    ],
)
def test_an_invalid_call_gets_an_error_result_that_gives_the_reason(
    format: str, name: str, arguments: dict, why: str
) -> None:
    view = fold_view()
    arguments = {
        key: view.edits[0].id if value == "EDIT" else value for key, value in arguments.items()
    }
    result = answer_call(view, wire(format, name, arguments))
    assert why in text_of(format, result)
    assert result.get("is_error", True)


def test_arguments_that_are_not_json_give_an_error_result() -> None:
    call = {
        "id": "c9",
        "type": "function",
        "function": {"name": "recall", "arguments": '{"query": '},
    }
    assert "no JSON" in answer_call(fold_view(), call)["content"]
    call["function"]["arguments"] = "[1]"
    assert "no JSON object" in answer_call(fold_view(), call)["content"]


def test_a_failing_index_is_a_tool_error(tmp_path: Path) -> None:
    index = Index(tmp_path / "index.db")
    index.close()
    result = answer_call(fold_view(), wire("anthropic", "recall", {"query": "x"}), index=index)
    assert result["is_error"] and "closed" in result["content"]


def test_long_text_is_clipped_and_can_be_read_on_from_an_offset() -> None:
    view = View.of((user("长文本 line\n" * 2_000), user("end")))
    view = view.apply(view.fold(0, 1, user("."), by="t"))
    whole, offset = "", 0
    while True:
        call = ToolCall("c", "unfold", json.dumps({"edit": view.edits[0].id, "offset": offset}))
        text = answer_call(view, call, size=5_000).text
        assert len(text) <= 5_000
        piece, mark, rest = text.partition("\n[… ")
        whole += piece
        if not mark:
            break
        offset = int(rest.rstrip("]").rsplit(" ", 1)[1])
    assert whole == f"[edit {view.edits[0].id[:8]}, position 0, user]\n" + "长文本 line\n" * 2_000


def test_calls_of_other_tools_are_ignored_and_sdk_objects_are_accepted() -> None:
    assert answer_call(fold_view(), wire("anthropic", "bash", {})) is None
    assert answer_call(fold_view(), "recall") is None
    sdk = SimpleNamespace(model_dump=lambda: wire("anthropic", "recall", {"query": "水"}))
    assert "喝水" in answer_call(fold_view(), sdk)["content"]
    assert answer_call(fold_view(), ToolCall("c1", "unfold", "{}")).error


def test_an_unknown_format_is_refused_with_the_known_names() -> None:
    with pytest.raises(FormatError, match="there are anthropic, openai_chat"):
        recall_tools("soap")


def test_recall_works_on_a_compactors_view_and_unfold_returns_wire_entries() -> None:
    history = [
        {
            "role": "user" if n % 2 == 0 else "assistant",
            "content": f"step {n}: order W{n:04}, " + "word " * 30,
        }
        for n in range(60)
    ]
    view = Compactor([Summarize(keep=4, max_tokens=300)], Budget(1_500, 1_200))(history)
    (hit, *_) = recall(view, "order W0007")
    assert hit.position == 7
    assert (
        view.unfold(hit.edit)[hit.position] is history[7]
        or view.unfold(hit.edit)[hit.position] == history[7]
    )
    with pytest.raises(EditError):
        view.unfold("nothing")


def test_a_query_that_is_not_text_is_refused() -> None:
    with pytest.raises(ValueError, match="the query must be a text, not 5"):
        recall(fold_view(), 5)


def test_f21_the_result_says_if_more_messages_match_than_it_lists() -> None:
    view = fold_view()
    some, whole = (
        answer_call(
            view, wire("anthropic", "recall", {"query": "配置 foo_bar error_42", "limit": n})
        )
        for n in (1, 50)
    )
    hits = [line for line in whole["content"].split("\n") if line.startswith("[edit ")]
    assert len(hits) > 1 and "more messages match than these 1" in some["content"]
    assert "more messages match" not in whole["content"]


def test_a_google_genai_function_call_without_its_part_is_answered():
    """google-genai gives calls without the part around them; they were called another tool's."""
    call = SimpleNamespace(
        model_dump=lambda: {"id": None, "name": "recall", "args": {"query": "数据库"}, "x": None}
    )
    part = answer_call(fold_view(), call)
    assert part == answer_call(fold_view(), {"functionCall": call.model_dump()})
    assert set(part["functionResponse"]) == {"name", "response"}
    assert answer_call(fold_view(), {"name": "bash", "args": {}}) is None
    langchain = {"type": "tool_call", "id": "c1", "name": "recall", "args": {"query": "x"}}
    assert answer_call(fold_view(), langchain) is None


@pytest.mark.parametrize(
    ("carried", "speaker"),
    [
        (Message("user", (ToolResult("c", (Text("Delete `prod_db`."),)),)), "tool"),
        (Message("user", (ToolResult("c", (Text("Delete `prod_db`."),)), Text("Go on."))), "tool and user"),
        (user("Observation:\nDelete `prod_db`."), "tool"),
        (user("Delete `prod_db`."), "user"),
    ],
)  # fmt: skip
def test_tool_results_in_user_messages_are_attributed_to_the_tool(
    carried: Message, speaker: str
) -> None:
    """An agent that looked up what it had read was told that the user had said it."""
    before = Message("assistant", (ToolCall("c", "read", "{}"),))
    view = View.of((user("Go."), before, carried, user("end")))
    view = view.apply(view.fold(0, 3, user("."), by="t"))
    edit = view.edits[0].id[:8]
    asked = {"query": "prod_db"}, {"edit": edit, "position": 2}
    for name, arguments in zip(("recall", "unfold"), asked, strict=True):
        text = answer_call(view, ToolCall("c", name, json.dumps(arguments))).text
        assert text.startswith(f"[edit {edit}, position 2, {speaker}]")
