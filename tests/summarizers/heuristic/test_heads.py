"""List items are not quoted without the words above the list that negate or limit them."""

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refold.core.profile import Profile
from refold.core.view import View
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.models.driver import drive
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.heuristic.answers import cut_middle
from refold.summarizers.heuristic.blocks import Block
from refold.summarizers.heuristic.earlier import read_earlier_summaries
from refold.summarizers.heuristic.layout import render_state
from refold.summarizers.heuristic.lexicon import find_conclusions, find_constraints, find_leads
from refold.summarizers.heuristic.state import Request, State
from tests.support.messages import assistant, call
from tests.support.summaries import collect


def summarize(messages, tokens):
    """Return a summary of *messages* with a budget in tokens of four bytes."""
    count = Profile(count=lambda message: len(message.text.encode("utf-8", "replace")) // 4 + 1)
    view = View.of(messages, profile=count)
    return drive(RuleSummary()(view, 0, len(messages), tokens)).text


RULES = {
    "a bare head": (
        "Have a look at the importer. Do NOT:\n- touch the production database\n- run migrations without a backup\n\nThanks. Always answer in English.",
        [
            "Do NOT: touch the production database",
            "Do NOT: run migrations without a backup",
            "Always answer in English.",
        ],
    ),
    "a bare head, Chinese": (
        "帮我看一下导入脚本。禁止：\n- 修改 tests/ 下的文件\n- 只用 mock 而不测真实接口\n\n谢谢，请用中文回答。",
        ["禁止：修改 tests/ 下的文件", "禁止：只用 mock 而不测真实接口", "谢谢，请用中文回答。"],
    ),
    "numbers": (
        "Never:\n1. push to main\n2. rebase a branch of others, only because it looks nicer\nNow go.",
        ["Never: push to main", "Never: rebase a branch of others, only because it looks nicer"],
    ),
    "numbers without blanks": (
        "请不要：\n1、改动数据库结构\n2、升级依赖，除非我要求\n3.删除日志",
        ["请不要：改动数据库结构", "请不要：升级依赖，除非我要求", "请不要：删除日志"],
    ),
    "numbers in one line": (
        "Do NOT: 1. touch the schema 2. run it without a backup. Look at the log.",
        ["Do NOT: 1. touch the schema 2. run it without a backup."],
    ),
    "clauses in one line": (
        "不要：改 tests；只测一半；用 any 类型。请看日志。",
        ["不要：改 tests；只测一半；用 any 类型。"],
    ),
    "no colon": (
        "Please avoid\n- recursion in the parser\n- global state\nThen run it.",
        ["Please avoid: recursion in the parser", "Please avoid: global state"],
    ),
    "no marks": ("禁止：\n修改订单表\n只改一半就提交\n\n先看日志。", ["禁止：修改订单表", "禁止：只改一半就提交"]),
    "bold": (
        "**Don't**\n\n* deploy on Fridays. Only mondays are fine.\n* skip CI\n\nThe log is below.",
        ["Don't: deploy on Fridays. Only mondays are fine.", "Don't: skip CI"],
    ),
    "headings": (
        "# The importer\n\n## Do\n- run only `make smoke`\n\n## Don't\n\n### Database\n- drop tables without asking\n- rename columns\n\n### Code\nAdd types only later.\n\n## Open\n- the port must be free",
        [
            "Do: run only `make smoke`",
            "Don't: Database: drop tables without asking",
            "Don't: Database: rename columns",
            "Don't: Code: Add types only later.",
            "Open: the port must be free",
        ],
    ),
    "headings, Chinese": (
        "## 可以做\n- 只读生产库\n\n## 禁止事项\n- 直接改生产库\n- 只跑一半测试就提交",
        ["可以做：只读生产库", "禁止事项：直接改生产库", "禁止事项：只跑一半测试就提交"],
    ),
    "a line drawn under a heading": (
        "Never\n-----\n* keep only a part of the log\n",
        ["Never: keep only a part of the log"],
    ),
    "nested": (
        "- Please avoid:\n  - in the parser:\n    - recursion\n  - global state\n- Keep `make lint` green",
        [
            "Please avoid: in the parser: recursion",
            "Please avoid: global state",
            "Keep `make lint` green",
        ],
    ),
    "bullets below numbers": (
        "1. Never:\n- push to main\n- test only half of it\n2. Make only small commits",
        [
            "Never: push to main",
            "Never: test only half of it",
            "Make only small commits",
        ],
    ),
    "a list whose marks are escaped, and a stop in a sentence": (
        "不要：\n\\-  动生产库\n\nNever weigh pool vs. pond by size, cf. page 2.",
        ["不要：动生产库", "Never weigh pool vs. pond by size, cf. page 2."],
    ),
    "a list that lost its depth": (
        "- 不要：\n- 动生产库\n- 只测一半\n\n看完告诉我。",
        ["不要：动生产库", "不要：只测一半"],
    ),
    "a table": (
        "| Area | Do | Don't |\n|---|---|---|\n| deploys | on Mondays | only at night |\n\nGo.",
        ["Area | Do | Don't: deploys | on Mondays | only at night"],
    ),
    "a table, Chinese": (
        "| 推荐 | 不要 |\n| --- | --- |\n| 用 pnpm | 只用 npm |",
        ["推荐 | 不要：用 pnpm | 只用 npm"],
    ),
    "a head that binds nobody": (
        "Rejected so far:\n- keep only ten lines\n- a cache",
        ["Rejected so far: keep only ten lines"],
    ),
    "what was pasted behind a head": (
        "Never run this command:\n```\nrm -rf build\n```\nUse only `make clean`.",
        ["Never run this command:", "Use only `make clean`."],
    ),
    "a heading ends at its list": (
        "## Don't\n- touch the schema\n\nAs always, answer only in English.",
        ["Don't: touch the schema", "As always, answer only in English."],
    ),
    "a heading that is a rule": (
        "## Never push to main\n\nThe branch is shared.\n\n## Then\n- write the log",
        ["Never push to main"],
    ),
    "a list of others in a section": (
        "## Don't\n- touch the schema\n\nStart with these:\n- the login page\n- the form",
        ["Don't: touch the schema"],
    ),
    "a head with a list of no rules": (
        "Each report must name:\n- the author\n- the pool\n\n## 输出\n每份结果必须分为：\n1. 数据\n2. 建议",
        ["Each report must name: the author; the pool", "每份结果必须分为：数据; 建议"],
    ),
    "a head with a list of rules, or with nothing": (
        "The pool must work as follows:\n- never wait\n\nThe form must be so:",
        ["The pool must work as follows: never wait"],
    ),
    "a rule above a list": (
        "Never restart the database.\n- look at the log\n- fix it",
        ["Never restart the database."],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RULES)
def test_a_rule_is_quoted_with_the_lines_that_introduce_it(case):
    text, rules = RULES[case]
    assert list(find_constraints(text)) == rules
    assert list(collect([user(text), assistant("Noted.")]).constraints) == rules


@pytest.mark.parametrize(("head", "item"), [
    ("Do NOT:", "- touch the table orders_archive_{}"),
    ("## Out of scope\n", "- support for `windows_arm64_{}`"),
    ("不要：", "1、改动 src/订单/服务_{}.py 的接口"),
    ("| Do | Don't |\n|---|---|", "| read `table_{0}` | write to `table_{0}` |"),
])  # fmt: skip
@pytest.mark.parametrize("room", [60, 90, 140])
def test_the_end_of_a_cut_request_keeps_the_heading_of_its_list(head, item, room):
    items = [item.format(number) for number in range(60)]
    asked = "\n".join(["Import the orders of last year. " * 20, "", head, *items])
    text = render_state(State({asked: Request()}), room * 3)
    mark, end = text.partition(" characters …] ")[1:]
    lead = head.split("\n")[0].strip("#| ：:")
    lines = [line for line in end.partition("\n##")[0].split("\n") if line.strip()]
    assert mark and lines and all(line.strip().startswith(lead) for line in lines)


@pytest.mark.parametrize("asked", [
    "Load it. " * 200 + "\nNever touch the table orders_archive.\nWrite a log.\n" * 3,
    "Load it. Write a log. Never touch the table orders_archive. " * 40,
    "导入去年的订单。写日志。不要动 orders_archive 这张表。" * 40,
])  # fmt: skip
@pytest.mark.parametrize("room", range(150, 250, 17))
def test_the_end_of_a_cut_request_begins_with_a_sentence(asked, room):
    text = render_state(State({asked.strip(): Request()}), room)
    assert re.search(r"characters …\] (?:Load|Never|Write|导入|写|不要)", text)


GUIDE = "\n".join(
    [
        "# How we work on the warehouse",
        *(f"Part {n} of the text tells how shelf_{n} is filled." for n in range(60)),
        "## Do not",
        "- write to `orders_archive` from a test",
        "- call `drop_partition` without a backup",
        "## Names",
        "- tables are named like `orders_archive_2`",
    ]
)
GUIDE_ZH = "\n".join(
    [
        "# 仓库系统约定",
        *(f"第 {n} 节说明货架 shelf_{n} 的装填方式和盘点周期。" for n in range(60)),
        "禁止：",
        "- 在测试里写入 `orders_archive`",
        "- 没有备份就调用 `drop_partition`",
    ]
)


LINES = st.text(st.sampled_from("ab: ：.-、x\t"), max_size=12).filter(str.strip)
ROWS = st.one_of(
    LINES,
    st.builds(
        "{}{}".format,
        st.sampled_from(["No: ", "No:", "禁止：", "a: b: ", "No: a: ", "No: a: b: c: d: "]),
        LINES,
    ),
)


@given(st.lists(ROWS.map(str.strip), unique=True))
@example(["禁止：:", "禁止： :"])
@example(["No:  x", "No: x", "No: - y"])
def test_rules_are_grouped_under_their_introduction_and_read_back(rules):
    """The introduction of a list was once repeated before each of its items."""
    text = render_state(State(constraints=dict.fromkeys(rules)), 9_000)
    assert list(read_earlier_summaries([text]).state.constraints) == rules


def test_the_introduction_of_a_list_of_rules_is_written_once():
    rules = [
        "Ask first.",
        "Never: push",
        "Never: merge",
        "禁止：推送",
        "禁止：合并",
        "Run it: If it fails: say so",
        "Run it: If it fails: say why",
        "Run it: twice",
        "Note: it is at 10:30",
    ]
    text = render_state(State(constraints=dict.fromkeys(rules)), 500)
    assert text == (
        "## Rules\n- Ask first.\n- Never:\n  - push\n  - merge\n- 禁止：\n  - 推送\n  - 合并\n"
        "- Run it:\n  - If it fails:\n    - say so\n    - say why\n  - twice\n- Note: it is at 10:30"
    )


@pytest.mark.parametrize("kind", ["given", "task", "docs", "read"])
@pytest.mark.parametrize(("guide", "led"), [
    (GUIDE, [
        "Do not: write to `orders_archive` from a test",
        "Do not: call `drop_partition` without a backup",
    ]),
    (GUIDE_ZH, ["禁止：在测试里写入 `orders_archive`", "禁止：没有备份就调用 `drop_partition`"]),
])  # fmt: skip
def test_lines_of_documents_are_quoted_with_the_headings_of_their_lists(guide, led, kind):
    numbered = "\n".join(f"{n:>6}\t{line}" for n, line in enumerate(guide.split("\n"), 1))
    for text in (guide, numbered):
        lines = list(Block(0, kind, "the guide", text).iter_lines())
        assert [line.words for line in lines if line.lead] == led


@pytest.mark.parametrize(("guide", "lead"), [(GUIDE, "Do not: "), (GUIDE_ZH, "禁止：")])
@pytest.mark.parametrize("is_given", [True, False])
def test_a_summary_quotes_document_items_with_the_headings_of_their_lists(guide, lead, is_given):
    call = Message("assistant", (ToolCall("c1", "get_issue", '{"number": 7}'),))
    shown = [call, Message("tool", (ToolResult("c1", (Text(guide),)),))]
    start = [user(guide)] if is_given else [user("Look at issue 7."), *shown]
    text = summarize([*start, assistant("Read."), user("Go on. " * 500), assistant("Done.")], 1_800)
    quoted = re.findall(r"(.*)call `drop_partition`|(.*)没有备份就调用 `drop_partition`", text)
    before = [line.rpartition("…] ")[2].strip(" -") for line in map("".join, quoted)]
    rules = f"\n- {lead.strip()}\n  - "
    assert before and all(words == lead.strip() for words in before if words or rules not in text)


def test_a_document_title_is_repeated_before_lines_only_if_it_negates():
    """`Prefer a to b` was once repeated before each line of a plan with that title."""
    plan = "# Prefer `br co` to `--plan`\n\n## Do NOT touch\n\n- the pool\n\n## Parts\n\n- the door"
    assert find_leads(plan.split("\n")) == {4: "Do NOT touch: "}
    assert find_leads(["# Do NOT touch", "", "- the pool"]) == {2: "Do NOT touch: "}


def test_items_of_an_answer_are_quoted_with_the_heading_that_negates_them():
    """Items of a list of what an agent cannot do once looked like its actions."""
    text = "What I can NOT do:\n- change my own `core_rules`\n- send `mail_drafts` alone"
    _, *items = Block(0, "said", "", text).iter_lines()
    assert [item.words for item in items] == [
        "What I can NOT do: change my own `core_rules`",
        "What I can NOT do: send `mail_drafts` alone",
    ]


def test_a_comment_in_code_is_not_a_heading_of_a_document():
    text = "Set it up:\n```\n# Never run this in production:\nmake seed for all\n```\n- tables have names"
    lines = list(Block(0, "docs", "setup.md", text).iter_lines())
    assert not any(line.lead for line in lines)


@pytest.mark.parametrize(("text", "lines"), [
    (
        "For the dinner please avoid:\n- peanuts, roasted or not\n- milk. Only goats are fine.\n\nOK?",
        [
            "For the dinner please avoid: peanuts, roasted or not",
            "For the dinner please avoid: milk. Only goats are fine.",
            "OK?",
        ],
    ),
    (
        "王教授的晚宴，请不要：\n- 准备花生，或者芝麻酱\n- 上羊奶酪\n谢谢，就这样。",
        [
            "王教授的晚宴，请不要：准备花生，或者芝麻酱",
            "王教授的晚宴，请不要：上羊奶酪",
            "谢谢，",
            "就这样。",
        ],
    ),
])  # fmt: skip
def test_clauses_of_a_chat_are_quoted_with_the_headings_of_their_lists(text, lines):
    block = Block(0, "asked", "", text, is_in_clauses=True)
    assert [line.words for line in block.iter_lines()] == lines


def test_a_sentence_is_quoted_whole_outside_chats():
    """Chinese answers were once quoted as half sentences, `若没有 activeChatId，`."""
    block = Block(0, "said", "", "若没有 `chat_id`，会直接跳过发送。防抖 3 秒，去重 1 分钟。")
    lines = ["若没有 `chat_id`，会直接跳过发送。", "防抖 3 秒，去重 1 分钟。"]
    assert [line.words for line in block.iter_lines()] == lines


def test_a_users_clause_is_not_split_from_the_words_that_negate_it():
    talk = [user("你好，你知道些什么？"), assistant("很多。请问吧。")] * 20
    talk[20:22] = [user("给王教授的晚宴千万不要准备花生，或者芝麻酱。"), assistant("好的。")]
    text = summarize(talk, 600)
    assert "不要准备花生，或者芝麻酱" in text


def test_the_heading_of_a_chat_clause_is_not_repeated_right_after_it():
    """A heading was once repeated three times before the first item below it."""
    head = "No cambia nada en la muestra de Hatemedia"
    reasons = f"## {head}\n\nLa diferencia puede deberse al CSV:\n\n1. El CSV es una adaptación."
    talk = [user("Hola, ¿me ayudas con el CSV?"), assistant("Claro, dime.")] * 20
    talk[20:22] = [user("¿Es representativa la muestra de Hatemedia?"), assistant(reasons)]
    text = summarize(talk, 600)
    assert f"{head} La diferencia puede deberse al CSV: El CSV es una adaptación." in text


def test_items_of_a_chat_answer_are_quoted_with_the_heading_above_them():
    """A travel plan was once quoted as `Drive: about 5.5 hours`, without day and place."""
    text = "Here it is:\n\n## 5. Punakaiki to **Kaikoura**\n\n- Drive: 5.5 hours.\n- Dinner: 19:45."
    lines = [*Block(0, "said", "", text, is_in_clauses=True).iter_lines()]
    assert [(line.lead, line.text) for line in lines[1:]] == [
        ("", "Punakaiki to **Kaikoura**"),
        ("5. Punakaiki to Kaikoura: ", "Drive: 5.5 hours."),
        ("5. Punakaiki to Kaikoura: ", "Dinner: 19:45."),
    ]
    talk = [user("Hello, what do you know?"), assistant("A lot. What is it?")] * 20
    talk[20:22] = [user("Plan the next day, please."), assistant(text)]
    assert "Drive: 5.5 hours. Dinner: 19:45." in summarize(talk, 600)


PEOPLE = {
    "aunt Ida": "Oslo", "uncle Joe": "Turin", "cousin Kay": "Lagos", "niece Lea": "Quito",
    "nephew Max": "Hanoi", "sister Nan": "Perth", "brother Oz": "Accra", "father Pit": "Lima",
}  # fmt: skip
WEEK = ["January", "March", "Easter", "Monday", "Friday", "August", "October", "Christmas"]


@pytest.mark.parametrize(("is_person_asked", "least"), [(True, 5), (False, 7)])
def test_statements_of_whoever_answers_the_questions_in_a_chat_are_quoted(is_person_asked, least):
    """In a counselling chat the counsellor's words were once quoted and hardly any of the client's.
    A user who asks the model questions says less."""
    talk = list[Message]()
    for at, (name, place) in enumerate(PEOPLE.items()):
        tells = f"My {name} in {place} has not called since {1990 + at}."
        pair = tells, f"How did your friend {chr(at + 65)}. feel about it, and since {WEEK[at]}?"
        first, second = pair if is_person_asked else pair[::-1]
        talk += [user(first), assistant(second)]
    text = summarize(talk, 200)
    quoted = [name for name, place in PEOPLE.items() if f"{name} in {place} has not" in text]
    assert len(quoted) >= least


def test_a_rejected_option_is_a_decision_only_with_its_negating_heading():
    text = "We will not do this:\n- move to Redis, because `queue.py` is fast\n\nWe chose a list."
    assert [sentence for _, sentence in find_conclusions(text, final=True)] == [
        "We will not do this: move to Redis, because `queue.py` is fast",
        "We chose a list.",
    ]


# --- the law -------------------------------------------------------------------------------------

TURNING = ["Do NOT", "Never", "Please avoid", "禁止", "不要", "请勿"]
PLAIN = ["Steps", "Notes on it", "Please do", "步骤", "请做以下事情"]
ITEMS = [
    "run item_{} only when the importer is idle",
    "drop item_{} without a backup",
    "先备份再调用 item_{}，必须是全量",
    "read item_{} and say what it holds",
]


@st.composite
def outlines(draw, depth=0):
    """Return headings with what is below them: `(head, is_turning, [outline or item])`."""
    is_turning = draw(st.booleans())
    head = draw(st.sampled_from(TURNING if is_turning else PLAIN))
    item = st.sampled_from(ITEMS)
    below = item if depth == 2 else st.one_of(item, item, outlines(depth + 1))
    return head, is_turning, draw(st.lists(below, min_size=1, max_size=4))


def write_outline(outline, style, numbers, depth=0, above=()):
    """Yield the lines of an outline, and for each item its name with its headings."""
    head, is_turning, below = outline
    number = next(numbers)
    head, pad = f"{head} part_{number}", "  " * depth
    if style == "headings":
        yield f"{'#' * (depth + 2)} {head}", None
    elif depth:
        yield f"{pad}{style} {head}:", None
    else:
        yield f"{head}:", None
    inside = (*above, f"part_{number}") if is_turning or above else ()
    # in Markdown, text after a subsection belongs to that subsection
    for part in sorted(below, key=lambda part: not isinstance(part, str)):
        if isinstance(part, str):
            name = next(numbers)
            mark, indent = ("-", "") if style == "headings" else (style, f"{pad}  ")
            yield f"{indent}{mark} {part.format(name)}", (f"item_{name}", inside)
        else:
            yield from write_outline(part, style, numbers, depth + 1, inside)


WORK = [
    message
    for number in range(4)
    for message in (
        Message("assistant", (ToolCall(f"c{number}", "bash", '{"command": "ls"}'),)),
        Message("tool", (ToolResult(f"c{number}", (Text("importer.py"),)),)),
    )
]
"""A user who answers each turn is summarised differently."""


@given(
    st.lists(outlines(), min_size=1, max_size=3),
    st.sampled_from(["-", "*", "1.", "headings"]),
    st.integers(80, 1_200),
    st.sampled_from(["", "Look at the importer. " * 120 + "\n\n"]),
)
def test_no_item_is_quoted_without_the_headings_that_negate_it(parts, style, tokens, before):
    """If a summary shows an item, its line has the headings that negate it. A request is shown in
    its own lines, so there they are above it, after the mark of what is left out, and above a list
    of rules."""
    numbers = iter(range(10_000))
    rows = [row for part in parts for row in (*write_outline(part, style, numbers), ("", None))]
    asked = before + "\n".join(line for line, _ in rows)
    text = summarize(
        [user(asked), *WORK, assistant("Read."), user("Go on. " * 60), assistant("Done.")], tokens
    )
    for name, heads in filter(None, (item for _, item in rows)):
        for match in re.finditer(rf"{name}\b", text):
            above = text[: match.start()].rpartition("\n## ")[2]
            is_request = re.match(r"(?:## )?[A-Z]\w+ requests?\n", above)
            begins = "\n- " if above.startswith(("Rules\n", "## Rules\n")) else "\n"
            shown = above.rpartition(" characters …] " if is_request else begins)[2]
            assert all(re.search(rf"{head}\b", shown) for head in heads), (match, heads, text)


def test_an_excerpt_of_a_documents_current_text_names_its_negating_heading():
    """An agent copies its lines to edit the file, so they stay unchanged."""
    parts = [f"Part {n} of the text tells how shelf_{n} is filled.\n" * 9 for n in range(30)]
    items = [f"- touch shelf_{n} " + "while it is filled " * 9 for n in range(9)]
    part = "\n- `drop_partition` in the importer\n- `orders_archive` in tests\n"
    guide = "\n".join(["# Shelves", *parts, "## Do not\n", *items, part])
    call = Message("assistant", (ToolCall("c1", "Read", '{"file_path": "/srv/AGENTS.md"}'),))
    numbered = "\n".join(f"{n:>6}→{line}" for n, line in enumerate(guide.split("\n"), 1))
    result = Message("tool", (ToolResult("c1", (Text(numbered),)),))
    text = summarize(
        [user("Go."), call, result, assistant("`drop_partition` in the importer?")], 2_100
    )
    current = text.partition("## Current text of files")[2].partition("## Excerpts")[0]
    assert f", under Do not{part}" in current


PARTNERS = """Here is what I found:

- **Avici** (avici.money) is confirmed. It is self-custodial and has a card for `USDC`.
- **Rain** (rain.xyz) has the best `issuing_api`. It is the realistic path after `hackathon_week`.

```diff
- await provider.recordSuccess(results_v1)
+ await provider.recordOnce(results_v2)
```

The duplicate of `record_call` is gone, because `get_rate` writes it already."""


def work_that_ends_in(answer):
    looks = [message for n in range(8) for message in call("look", f"Partner {n}.")]
    return [user("Find partners."), *looks, assistant(answer), user("Go on. " * 900), *looks]


def test_a_sentence_of_a_list_item_is_quoted_with_the_items_beginning():
    text = summarize(work_that_ends_in(PARTNERS), 600)
    assert "realistic path after `hackathon_week`" in text
    for line in text.splitlines():
        if "hackathon_week" in line or "has a card" in line:
            assert "**Rain**" in line or "**Avici**" in line


def test_code_in_an_answer_is_not_quoted_as_a_statement():
    text = summarize(work_that_ends_in(PARTNERS), 2_000)
    assert "`get_rate` writes it already" in text
    assert "results_v1" not in text and "results_v2" not in text


def test_sentences_of_a_long_item_are_quoted_as_far_as_they_fit():
    reasons = " ".join(f"Box {n} has `part_{n}`, which is of use to `team_{n}`." for n in range(60))
    text = summarize(work_that_ends_in(f"I found:\n\n- **Rain** is best. {reasons}\n"), 500)
    assert 0 < text.count("has `part_") < 60


def test_keys_of_json_rows_are_written_once_and_count_once():
    names = [a + b for a in "abcdef" for b in "uvwxyz"]
    orders = [
        {"order_number": f"HB-{name}", "destination_name": f"{name}land", "passenger_count": 3}
        for name in names
    ]
    shown = call("list_orders", json.dumps({"orders": orders}))
    text = summarize([user("List them."), *shown, user("Go on. " * 900), assistant("Done.")], 300)
    assert text.count("passenger_count") == 1
    assert text.count("land | 3") > 24  # 20 would fit if their keys were counted each time


def test_the_words_above_a_list_do_not_stand_alone_where_its_end_is_cut_off():
    text = f"Do NOT:\n- {'touch it ' * 30}\n- {'x' * 600}"
    cut = cut_middle(text, 200, find_leads(text.split("\n")))
    assert cut.startswith("Do NOT:\n- touch it") and cut.endswith("] …")
