"""What a summary holds of work that is not in source: browsers, data, clusters, mail."""

import json

import pytest

from refold.core.view_lines import call_gist
from refold.messages import Message, Text, ToolCall, user
from refold.summarizers.heuristic.blocks import read_work
from refold.summarizers.heuristic.identifiers import iter_identifiers
from refold.summarizers.heuristic.lexicon import without_handles
from refold.summarizers.heuristic.steps import read_steps
from refold.text.failures import is_markup
from refold.text.json_values import iter_json_lines, spell_cut
from tests.support.messages import call
from tests.support.summaries import section, summarize


def say(text, turn):
    """Return a call and its result with what the model says before it."""
    asked, *rest = turn
    return [Message("assistant", (Text(text), *asked.parts)), *rest]


def test_notes_between_calls_are_quoted_in_work_without_source_code():
    text = summarize(
        user("Complete all my quizzes."),
        say("Great! Quiz 1 completed (180/180). Continuing.", call("start_quiz", "ok", quiz=2)),
        say("The token of the environment does not work.", call("start_quiz", "ok", quiz=3)),
        say("Let me try the next one.", call("start_quiz", "ok", quiz=4)),
    )
    notes = "\n".join(
        section(
            text,
            "Excerpts from the conversation (single sentences; later ones may replace earlier ones)",
        )
    )
    assert "Quiz 1 completed (180/180)." in notes
    assert "The token of the environment does not work." in notes
    assert "next one" not in notes


def test_notes_that_name_nothing_are_not_quoted_in_work_on_source_code():
    text = summarize(
        user("Mend the pool."),
        say("It all looks quite fine here.", call("read", "class Pool: ...", path="/a/pool.py")),
        say("Now `take` waits.", call("read", "def take(): ...", path="/a/take.py")),
    )
    assert "quite fine" not in text


FLAGS = [f"has_{word}_door" for word in ("red", "blue", "gold", "grey", "pink", "teal")]


@pytest.mark.parametrize("end", ["", "\n, {"], ids=["whole", "cut by the tool"])
def test_json_values_and_not_keys_decide_what_is_quoted(end):
    flags = dict.fromkeys(FLAGS, False)
    owner = {"owner": "Ann_Lee", "flat": "the last one in the north wing of the house"}
    answers = [json.dumps(value, indent=1) + end for value in (owner, flags)]
    text = summarize(user("Go."), *(call("get_flat", answer) for answer in answers), room=104)
    assert "north wing" in text


def test_json_fields_that_are_null_are_left_out_unless_all_are():
    value = {"id": 7, "score": None, "title": "Algebra", "ends": None}
    assert [line.text for line in iter_json_lines(value)] == ["id: 7, title: Algebra"]
    assert [line.text for line in iter_json_lines({"score": None})] == ["score: null"]


def test_a_call_that_shows_a_ticket_is_a_task_and_one_that_answers_it_is_not():
    def kind_of(tool):
        messages = [user("Answer TK-7."), *call(tool, "Ticket TK-7: money back", ticket="TK-7")]
        return read_work(read_steps(messages)).blocks[-1].kind

    assert kind_of("get_ticket") == "task"
    assert kind_of("ticket_reply") == "read"


def test_plain_words_in_a_tools_listing_are_quoted():
    things = "Red Leather Sofa for three\nOak Dining Table with drawers"
    text = summarize(user("Go."), call("search_products", things))
    assert "Red Leather Sofa" in text


def test_the_outcome_of_a_call_is_a_line_below_the_headings_of_its_result():
    page = (
        "### Ran Playwright code\n```js\nawait page.goto('http://a.b');\n```\n"
        "### New console messages\n- [LOG] banner ready @ http://ads.example/x.js\n"
        "- [ERROR] blocked by client @ http://ads.example/y.js\n### Page state\n- Page URL: http://a.b/cart"
    )
    text = summarize(
        user("Go."),
        call("browser_navigate", page, url="http://a.b"),
        call("run_python", "=== STDOUT ===\nPrepared 8 rows\n", step="prepare"),
        call("browser_type", "### Ran Playwright code\n```js\nx()\n```", text="sofa"),
    )
    assert section(text, "Done") == [
        "- browser_navigate url: http://a.b -> - Page URL: http://a.b/cart",
        "- run_python step: prepare -> Prepared 8 rows",
        "- browser_type text: sofa -> ok",
    ]


def test_scripts_are_labelled_by_the_comment_that_describes_them():
    def script(does):
        return f"import json\nfrom os import path\n\n# {does}\nprint(json.dumps(path.sep))\n"

    text = summarize(
        user("Go."),
        call("run_python", "27 courses", code=script("Plan the courses"), timeout=60),
        call("run_python", "8 mails", code=script("Write the mails"), timeout=60),
    )
    assert section(text, "Done") == [
        "- run_python timeout: 60, # Plan the courses -> 27 courses",
        "- run_python timeout: 60, # Write the mails -> 8 mails",
    ]
    gist = call_gist(ToolCall("c1", "run_python", json.dumps({"code": script("Plan them")})))
    assert gist.startswith("# Plan them")


def test_a_line_with_only_an_exit_code_is_not_an_outcome():
    assert is_markup("Command completed with return code: 0")
    assert not is_markup("Upload completed with 3 warnings")


def test_an_error_is_not_quoted_as_the_text_of_the_requested_file():
    answer = "Error: ENOENT: no such file or directory, open '/w/stock_sheet.txt'"
    text = summarize(user("Go."), call("read_file", answer, path="/w/stock_sheet.txt"))
    assert "Current text of files" not in text
    assert not section(text, "Files")


LONG = "/work/space/of/the/customer/k8s_configs/cluster-redis.yaml"


def test_a_long_option_does_not_hide_what_a_command_does():
    command = f"kubectl --kubeconfig={LONG} delete pod redis-replicas-1 -n shared-services"
    text = summarize(user("Go."), call("bash", 'pod "redis-replicas-1" deleted', command=command))
    [line] = section(text, "Done")
    assert line.startswith(
        "- kubectl --kubeconfig=cluster-redis.yaml delete pod redis-replicas-1 -n shared-services"
    )


def test_output_of_a_long_command_is_replaced_when_it_runs_again():
    command = f"kubectl --kubeconfig={LONG} get pods -n shared-services -o wide --show-labels=true"
    assert len(command) > 110
    text = summarize(
        user("Go."),
        call("bash", "redis-replicas-1 0/1 ErrImagePull old-node", command=command),
        call("bash", "redis-replicas-1 1/1 Running new-node", command=command),
    )
    assert "ErrImagePull" not in text
    assert "new-node" in text


def test_a_truncated_json_string_is_split_into_its_lines():
    cut = '{"text":"{' + r"\n  \"title\": \"stock\",\n  \"red\": 1" * 8
    assert spell_cut(cut).splitlines()[1] == '  "title": "stock",'
    code = 'print("a\\n")\n' * 4
    assert spell_cut(code) == code


def test_element_handles_own_links_and_long_urls_of_a_page_are_left_out():
    page = (
        '- link "Cart" [ref=e3] [cursor=pointer]:\n  - /url: /gp/cart?ref_=nav_cart\n'
        "  - /url: https://shop.example/cart?" + "k=" + "x" * 150 + "\n"
        "- [WARNING] slow script @ http://ads.example/x.js\n- text: " + "QmFzZTY0" * 40
    )
    assert without_handles(page) == (
        '- link "Cart":\n\n  - /url: https://shop.example/cart…\n\n- text: …'
    )


@pytest.mark.parametrize(
    "piece", ["a?", "/a", "- [", "  - /url: ", "x" * 199 + " ", r"\n", "- [ERROR] "]
)
def test_long_repetitive_texts_are_summarised_briefly(piece):
    text = piece * (100_000 // len(piece))
    summary = summarize(user("Go."), call("browser_snapshot", text), call("wait", text, code=text))
    assert "- Go." in summary and len(summary) < 5_000


def test_lines_of_a_page_that_differ_only_in_digits_are_collapsed_and_counted():
    text = summarize(
        user("Go."),
        call(
            "fetch",
            "\n".join(f"TimeOfSlot[{at}] = {at * 900};  // a slot" for at in range(10, 310)),
        ),
    )
    assert "(… 297 more such lines …)" in text
    assert text.count("TimeOfSlot") == 3


def test_a_url_path_with_its_query_is_a_name_and_a_truncated_url_is_not():
    names = dict(iter_identifiers("see /watch?v=abc_1&t=a_x on http://ads.example/x_y/..."))
    assert [*names] == ["/watch?v=abc_1&t=a_x"]


@pytest.mark.parametrize(("path", "kind"), [
    ("src/a.py", "source"), ("guide/a.md", "docs"), ("README", "docs"), ("CHANGELOG.old", "docs"), ("notes.TXT", "docs"),
])  # fmt: skip
@pytest.mark.parametrize("folder", ["", "docs/", "/home/ada/docs/app/", "C:\\docs\\README\\"])
def test_the_kind_of_a_text_does_not_depend_on_the_folder_of_its_project(path, kind, folder):
    """All files of a project below a folder `docs` were once documents."""
    work = read_work(read_steps(call("Read", "1\tx = one and two", file_path=folder + path)))
    assert [block.kind for block in work.blocks] == [kind]
