"""What a summary holds of work that is not in source: browsers, data, clusters, mail."""

import json

from refold.core.view import View
from refold.messages import Message, Text, ToolCall, user
from refold.models.driver import drive
from refold.summarizers.heuristic import RuleSummary
from refold.text.failures import is_markup
from refold.text.plain import call_gist
from tests.support.messages import call


def summarize(*turns, room=2_000):
    """Return the summary of all messages."""
    messages = [
        message for turn in turns for message in (turn if isinstance(turn, list) else [turn])
    ]
    return drive(RuleSummary()(View.of(messages), 0, len(messages), room)).text


def section(text, title):
    """Return the lines of one section."""
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0].splitlines()


def say(text, turn):
    """Return a call and its result with what the model says before it."""
    asked, *rest = turn
    return [Message("assistant", (Text(text), *asked.parts)), *rest]


def test_an_answer_is_told_by_what_stands_below_its_headings():
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


def test_scripts_are_told_apart_by_what_they_do():
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


def test_a_line_that_says_an_exit_code_alone_is_no_outcome():
    assert is_markup("Command completed with return code: 0")
    assert not is_markup("Upload completed with 3 warnings")


def test_an_error_is_no_text_of_the_file_that_was_asked_for():
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
