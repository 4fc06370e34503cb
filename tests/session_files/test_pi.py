"""pi: every documented kind of entry, in small files written here."""

import json

from refold import session_files as transcripts
from refold.session_files.reader import join_content

HEAD = {
    "type": "session",
    "version": 3,
    "id": "p1",
    "timestamp": "2026-01-01T00:00:00Z",
    "cwd": "/w",
}


def entry(id, parent, type="message", **fields):
    return {
        "type": type,
        "id": id,
        "parentId": parent,
        "timestamp": "2026-01-01T00:00:01Z",
        **fields,
    }


def user(id, parent, words):
    return entry(id, parent, message={"role": "user", "content": words})


def answer(id, parent, *blocks, **fields):
    return entry(
        id, parent, message={"role": "assistant", "content": list(blocks), "model": "m", **fields}
    )


def result(id, parent, call, words="done", **fields):
    content = [{"type": "text", "text": words}]
    return entry(
        id,
        parent,
        message={
            "role": "toolResult",
            "toolCallId": call,
            "toolName": "read",
            "content": content,
            **fields,
        },
    )


def text(words):
    return {"type": "text", "text": words}


def call(id):
    return {"type": "toolCall", "id": id, "name": "read", "arguments": {"path": id}}


def read(*records):
    return transcripts.read_bytes("\n".join(json.dumps(r) for r in records).encode(), "p1.jsonl")


def list_words(entries):
    return [entry["content"][0].get("text") or entry["content"][0]["type"] for entry in entries]


def test_messages_become_anthropic_blocks():
    picture = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    session = read(
        HEAD,
        user("1", None, "go"),
        answer(
            "2",
            "1",
            {"type": "thinking", "thinking": "hm", "thinkingSignature": "sig"},
            {"type": "thinking", "thinking": "", "thinkingSignature": "enc", "redacted": True},
            text("I read"),
            call("k1"),
            call("k2"),
            usage={"input": 3, "output": 1, "cacheRead": 0, "cacheWrite": 0},
        ),
        result("3", "2", "k1"),
        result("4", "3", "k2", "no such file", isError=True),
        entry("5", "4", message={"role": "user", "content": [picture, text("看")]}),
    )
    assert session.messages == [
        {"role": "user", "content": [text("go")]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "redacted_thinking", "data": "enc"},
                text("I read"),
                {"type": "tool_use", "id": "k1", "name": "read", "input": {"path": "k1"}},
                {"type": "tool_use", "id": "k2", "name": "read", "input": {"path": "k2"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "k1", "content": [text("done")]},
                {
                    "type": "tool_result",
                    "tool_use_id": "k2",
                    "content": [text("no such file")],
                    "is_error": True,
                },
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
                },
                text("看"),
            ],
        },
    ]
    assert [at for at, _ in session.usage] == [2]
    assert (session.client, session.id, session.cwd, session.body) == (
        "pi",
        "p1",
        "/w",
        {"model": "m"},
    )


def test_the_branch_of_the_last_entry_is_the_active_one():
    session = read(
        HEAD,
        user("1", None, "go"),
        user("2", "1", "left behind"),
        entry("3", "1", "branch_summary", fromId="2", summary="tried something"),
        user("4", "3", "more"),
    )
    assert [words.split("\n")[0] for words in list_words(session.messages)] == [
        "go",
        "The following is a summary of a branch that this conversation came back from:",
        "more",
    ]
    assert list_words(session.messages)[1].endswith("<summary>\ntried something</summary>")


def test_answers_on_other_branches_are_counted_without_openclaw_deliveries():
    session = read(
        HEAD,
        user("1", None, "go"),
        answer("2", "1", text("lost"), usage={"input": 5, "output": 2}),
        answer("3", "1", text("delivered"), usage={"input": 0, "output": 0}),
        answer("4", "1", text("kept"), usage={"input": 5, "output": 2}),
    )
    assert [str(problem) for problem in session.problems] == [
        "left out, as it is on other branches: answers of the model (1)"
    ]


def test_a_compaction_keeps_its_first_kept_entry_and_all_after_it():
    session = read(
        HEAD,
        user("1", None, "go"),
        answer("2", "1", text("one")),
        user("3", "2", "more"),
        entry(
            "4", "3", "compaction", summary="what happened", firstKeptEntryId="3", tokensBefore=90
        ),
        user("5", "4", "go on"),
    )
    (compaction,) = session.compactions
    assert (compaction.start, compaction.stop, compaction.meta) == (0, 2, {"tokensBefore": 90})
    assert list_words(session.messages) == ["go", "one", "more", "go on"]
    assert list_words(session.effective)[1:] == ["more", "go on"]
    assert "<summary>\nwhat happened\n</summary>" in list_words(session.effective)[0]


def test_files_of_the_first_version_without_ids_are_read():
    lines = [HEAD, user("1", None, "go"), answer("2", None, text("one")), user("3", None, "more")]
    bare = [
        {key: value for key, value in line.items() if key not in {"parentId", "version"}}
        for line in lines
    ]
    for line in bare[1:]:
        del line["id"]
    compaction = {
        "type": "compaction",
        "summary": "all",
        "firstKeptEntryIndex": 3,
        "tokensBefore": 9,
        "timestamp": "x",
    }
    session = read(*bare, compaction)
    assert list_words(session.messages) == ["go", "one", "more"]
    assert [(compaction.start, compaction.stop) for compaction in session.compactions] == [(0, 2)]


def test_shell_commands_of_the_user_are_described_in_pis_wording():
    ran = {"role": "bashExecution", "command": "ls", "output": "a.py", "exitCode": 2}
    session = read(
        HEAD,
        entry("1", None, message=ran),
        entry("2", "1", message={**ran, "output": "", "exitCode": 0, "cancelled": True}),
        entry("3", "2", message={**ran, "exitCode": 0, "truncated": True, "fullOutputPath": "/o"}),
        entry("4", "3", message={**ran, "excludeFromContext": True}),
    )
    assert list_words(session.messages) == [
        "Ran `ls`\n```\na.py\n```\n\nCommand exited with code 2",
        "Ran `ls`\n(no output)\n\n(command cancelled)",
        "Ran `ls`\n```\na.py\n```\n\n[Output truncated. Full output: /o]",
    ]


def test_entries_that_were_never_sent_to_the_model_are_left_out():
    session = read(
        HEAD,
        user("1", None, "go"),
        entry("2", "1", "model_change", provider="x", modelId="y"),
        entry("3", "2", "thinking_level_change", thinkingLevel="high"),
        entry("4", "3", "custom", customType="state", data={}),
        answer("5", "4", stopReason="aborted"),
        entry("6", "5", "custom_message", customType="note", content="from an extension"),
        entry("7", "6", "session_info", name="a title"),
        answer("8", "7", text("\n\n"), call("open")),
    )
    assert list_words(session.messages) == ["go", "from an extension", "tool_use"]
    assert session.title == "a title"


def test_the_request_has_the_prompt_and_tools_that_system_messages_declare_and_change():
    """pi 1.6: they were left out, with a warning that Refold did not know them."""

    def system(id, parent, **fields):
        return entry(id, parent, message={"role": "system", "content": "", **fields})

    def tool(name):
        return {"name": name, "description": f"{name}s", "parameters": {"type": "object"}}

    session = read(
        HEAD,
        system(
            "s", None, sections={"preamble": "You are.", "cwd": "/w"}, toolsAdded=[tool("read")]
        ),
        user("a", "s", "Go."),
        answer("b", "a", text("Gone.")),
        system(
            *("t", "b"),
            content="Mind the gap.",
            sections={"cwd": None, "skills": "Dig."},
            toolsAdded=[tool("write")],
            toolsRemoved=[{"name": "read"}],
        ),
        user("c", "t", "On."),
        entry("u", "c", "usage", kind="cache_warm", usage={"input": 1}),
    )
    assert session.problems == () and len(session.messages) == 3
    assert session.body["system"] == "Mind the gap.\n\nYou are.\n\nDig."
    (written,) = session.body["tools"]
    assert written == {
        "name": "write",
        "description": "writes",
        "input_schema": {"type": "object"},
    }
    checkpoint = {"role": "system", "content": "Anew.", "toolsAdded": [tool("edit")]}
    again = read(
        HEAD,
        system("s", None, sections={"cwd": "/w"}, toolsAdded=[tool("read")]),
        user("a", "s", "Go."),
        answer("b", "a", text("Gone.")),
        entry(
            *("c", "b", "compaction"),
            summary="We went.",
            firstKeptEntryId="b",
            systemMessage=checkpoint,
        ),
        user("d", "c", "On."),
    )
    assert again.body["system"] == "Anew." and again.body["tools"][0]["name"] == "edit"


def test_what_a_context_edit_shows_or_leaves_out_is_an_edit_of_pi():

    def contents(messages):
        results = [block["content"] for block in messages[2]["content"]]
        words = [join_content(content) for content in results]
        return [words, list_words(messages)[4]]

    session = read(
        HEAD,
        user("a", None, "Read both."),
        answer("b", "a", text("Yes."), call("k1"), call("k2")),
        result("c", "b", "k1", "long"),
        result("d", "c", "k2", "longer"),
        answer("e", "d", text("Read.")),
        user("f", "e", "Secret."),
        answer("g", "f", text("Hm.")),
        entry("h", "g", "context_edit", targetId="c", replacement={"content": "short"}),
        entry("i", "h", "context_edit", targetId="c", replacement={"content": "shorter"}),
        entry("j", "i", "context_edit", targetId="d", replacement=None),
        entry("k", "j", "context_edit", targetId="f", replacement={"content": "***"}),
        entry("l", "k", "context_edit", targetId="gone", replacement=None),
        user("m", "l", "Next."),
    )
    assert session.problems == ()
    assert contents(session.messages) == [["long", "longer"], "Secret."]
    assert contents(session.effective) == [["shorter", ""], "***"]
    omitted = read(
        HEAD,
        user("a", None, "Go."),
        user("b", "a", "Forget it."),
        answer("c", "b", text("Gone.")),
        entry("d", "c", "context_edit", targetId="b", replacement=None),
    )
    assert list_words(omitted.effective) == ["Go.", "Gone."]
    assert list_words(omitted.messages) == ["Go.", "Forget it.", "Gone."]


def test_a_context_edit_of_the_only_message_that_a_summary_hides_is_hidden_with_it():
    session = read(
        HEAD,
        user("a", None, "Secret."),
        answer("b", "a", text("Hm.")),
        entry("c", "b", "context_edit", targetId="a", replacement={"content": "***"}),
        entry("d", "c", "compaction", summary="We met.", firstKeptEntryId="b"),
        user("e", "d", "Next."),
    )
    shown, *rest = list_words(session.effective)
    assert "We met." in shown and rest == ["Hm.", "Next."]


def test_a_tool_that_is_declared_without_a_name_is_none():
    nameless = {"role": "system", "content": "", "toolsAdded": [{"description": "Read."}]}
    session = read(HEAD, entry("s", None, message=nameless), user("a", "s", "Go."))
    assert "tools" not in session.body
