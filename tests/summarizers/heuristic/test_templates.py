"""Demands of a command or a skill hold while the user's request for it is the current one."""

import pytest

from refold.core.view import View
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.models.driver import drive
from refold.speakers import has_person, segment_messages
from refold.summarizers.heuristic import RuleSummary, read_material
from refold.summarizers.heuristic.steps import read_source
from refold.text.summary_wrapper import wrap_summary
from tests.support.messages import assistant
from tests.support.summaries import collect, section, summarize

REVIEW = (
    "# Review\n\nReview the changes of this branch.\n\n## Rules\n"
    "- Never comment on formatting.\n- You must quote each line that you criticise.\n\n"
    + "Look at names, at errors, at tests, and at what others will read first. "
    * 60
)
REVIEW_ZH = (
    "# 代码评审\n\n评审当前分支的改动。\n\n要求：\n- 不要评论代码格式\n- 必须引用被批评的代码行\n\n"
    + "请关注命名、错误处理和测试。" * 200
)
MARK = "<command-message>{0} is running…</command-message>\n<command-name>/{0}</command-name>"
ARGUMENTS = "\n<command-args>only src/</command-args>"


def expand(template, way, arguments=""):
    """Return the messages in which clients send a command's text."""
    mark = MARK.format("review") + arguments
    match way:
        case "parts":
            return [Message("user", (Text(mark), Text(template)))]
        case "messages":
            return [user(mark), user(template)]
        case "spec kit":
            return [user(f"## User Input\n\n```text\n{arguments}\n```\n\n{template}")]
        case "skill prefix":
            return [
                user(
                    f"User activated the skill review\n<skill-loaded>\n{template}\n</skill-loaded>"
                )
            ]
        case _:
            call = Message("assistant", (ToolCall("s1", "Skill", '{"skill": "review"}'),))
            launched = ToolResult("s1", (Text("Launching skill: review"),))
            return [user("Review it, please."), call, Message("user", (launched,)), user(template)]


def looks(number):
    return [
        Message("assistant", (ToolCall(f"c{number}", "bash", '{"command": "git diff"}'),)),
        Message("tool", (ToolResult(f"c{number}", (Text("+x = 1"),)),)),
    ]


WAYS = ["parts", "messages", "spec kit", "skill prefix", "skill call"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("template", "rules"), [
    (REVIEW, ["Never comment on formatting.", "You must quote each line that you criticise."]),
    (REVIEW_ZH, ["不要评论代码格式", "必须引用被批评的代码行"]),
])  # fmt: skip
def test_rules_of_a_command_hold_until_something_else_is_asked(way, template, rules):
    def stand(messages):
        constraints = "\n".join(collect(messages).constraints)
        return [rule in constraints for rule in rules]

    before = [user("Never push to main. 不要推送。"), assistant("OK.")]
    running = [*before, *expand(template, way), *looks(1)]
    assert stand(running) == [True, True]
    assert stand([*running, user("Also look at docs/."), *looks(2)]) == [True, True]
    done = [*running, assistant("Three remarks.")]
    assert stand(done) == [True, True], "nothing newer is asked"
    later = [*done, user("Thanks. Now mend the first.")]
    assert stand(later) == [False, False]
    assert list(collect(later).constraints)[:2] == ["Never push to main.", "不要推送。"]
    again = [*later, assistant("Done."), *expand(template, way), *looks(3)]
    assert stand(again) == [True, True]


@pytest.mark.parametrize("way", WAYS)
def test_rules_of_a_command_that_is_done_are_not_in_a_later_summary(way):
    messages = [user("Never push to main."), assistant("OK."), *expand(REVIEW, way), *looks(1)]
    view = View.of([*messages, assistant("Three remarks."), user("Mend the first."), *looks(2)])
    for stop in (len(messages), len(messages) + 2):
        state = read_material(read_source(view, 0, stop)).state
        assert list(state.constraints) == ["Never push to main."]
    early = View.of([*messages, *looks(3)])
    summary = drive(RuleSummary()(early, 0, len(messages), 1_500)).text
    later = early.apply(early.fold(0, len(messages), wrap_summary(summary)))
    later = later.extend([assistant("Three remarks."), user("Mend the first."), *looks(4)])
    text = drive(RuleSummary()(later, 0, len(messages) + 4, 3_000)).text
    assert "\n## Rules" not in text and "\n## Notes" not in text


def test_a_rule_that_the_user_also_states_is_kept_when_the_command_is_done():
    rule = "Never comment on formatting."
    asked = expand(f"Review it. {rule} You must quote lines.", "parts")
    for order in ([user(rule), *asked], [*asked, user(rule)]):
        messages = [*order, assistant("Three remarks."), user("Mend the first.")]
        assert list(collect(messages).constraints) == [rule]


@pytest.mark.parametrize("way", ["parts", "messages"])
def test_a_commands_text_is_part_of_the_current_request(way):
    """It stays verbatim, like the text that the user typed after the command."""
    messages = expand(REVIEW, way, ARGUMENTS)
    assert all(map(has_person, segment_messages(messages)))
    assert list(collect(messages).requests) == ["/review only src/", REVIEW.strip()]


def test_a_finished_commands_text_is_named_by_its_first_words_not_by_a_tag():
    """`<objective> [… 10402 characters …]` once stood for a review of the security."""
    text = f"<objective>\n\nReview the code that was written.\n{'Read every file. ' * 30}"
    messages = [*expand(text, "messages", ARGUMENTS), assistant("I did."), user("Go on.")]
    [first, command, *_] = section(summarize(*messages), "Earlier requests")
    assert first == "- /review only src/"
    assert command.startswith("- Review the code that was written.")


@pytest.mark.parametrize("between", [
    [user("<local-command-stdout>Set model to opus</local-command-stdout>")],
    [assistant("I did.")],
])  # fmt: skip
def test_a_message_after_a_command_without_text_is_the_users(between):
    messages = [user(MARK.format("model")), *between, user("Never push to main."), assistant("OK.")]
    assert list(collect([*messages, user("Go on.")]).constraints) == ["Never push to main."]
    clear = "<command-name>/clear</command-name>\n<command-message>clear</command-message>"
    messages = [user(clear), user("Never push to main."), assistant("OK."), user("Go on.")]
    assert list(collect(messages).constraints) == ["Never push to main."]
