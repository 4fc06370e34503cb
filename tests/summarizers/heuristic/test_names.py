"""Names, paths and identifiers in any script: which words of a text are names."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import refold
from refold.core.profile import Profile
from refold.core.view import View
from refold.messages import Message, Text, ToolCall, ToolResult, user
from refold.models.driver import drive
from refold.strategies import Summarize
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.heuristic.identifiers import candidate_names, find_names, split_words
from refold.text.clip import MAX_SCANNED, clip_scanned
from refold.text.failures import failure_lines, find_error_line, is_failure, read_exit_code
from refold.text.plain import plain_text, terms, without_escapes
from tests.support.examples import examples_at_night
from tests.support.summaries import collect, states_of


def names(text: str) -> set[str]:
    return set(find_names(text))


@pytest.mark.parametrize(("text", "expected"), [
    ("请修改src/订单/订单服务.py，然后运行测试", {"src/订单/订单服务.py"}),
    ("把src/甲乙.py改成src/丙丁.py吧", {"src/甲乙.py", "src/丙丁.py"}),
    ("請修改src/訂單/服務.py裡的函式", {"src/訂單/服務.py"}),
    ("见“src/订单/服务.py”。", {"src/订单/服务.py"}),
    ("`订单v2/服务.py` 里", {"订单v2/服务.py"}),
    ("「文档/说明.md」を見て", {"文档/说明.md"}),
    ("请看./src/订单/服务.py里", {"src/订单/服务.py"}),
    ("在~/项目/订单.py中", {"~/项目/订单.py"}),
    ("数据在src/订单/里", {"src/订单"}),
    ("查看 src/订单/服务/模型 目录", {"src/订单/服务/模型"}),
    ("用order_id查src/订单.py", {"order_id", "src/订单.py"}),
    ("修改order_service函数", {"order_service"}),
    ("字段 订单_编号 是空的", {"订单_编号"}),
    ("请看https://example.com/docs，然后", {"https://example.com/docs"}),
    ("src/注文/サービス.pyを修正して", {"src/注文/サービス.py"}),
    ("src/주문/서비스.py를 고쳐 주세요", {"src/주문/서비스.py"}),
    ("Ouvre src/données/été_1.py, s'il te plaît", {"src/données/été_1.py"}),
    ("Ouvre e\u0301te\u0301/donne\u0301es.py", {"e\u0301te\u0301/donne\u0301es.py"}),
    ("Ошибка в src/заказы/сервис.py: нет поля код_заказа", {"src/заказы/сервис.py", "код_заказа"}),
    ("Öffne src/aufträge/Prüfung.java und größeÄndern", {"src/aufträge/Prüfung.java", "größeÄndern"}),
    ("ｓｒｃ/ｏｒｄｅｒ_ｉｄ", {"ｓｒｃ/ｏｒｄｅｒ_ｉｄ"}),
    ("src/आदेश/सेवा.py खोलो", {"src/आदेश/सेवा.py"}),
])  # fmt: skip
def test_names_in_any_script_are_found_with_exact_boundaries(text: str, expected: set[str]) -> None:
    assert names(text) == expected


@pytest.mark.parametrize("text", [
    "输入/输出和iOS/安卓的CPU/内存占用", "增/删/改/查都要支持", "共有12个文件，版本2024年，第3章节", "服务器返回500错误。请重试",
    "这是一个很长的句子没有任何标点但是里面有一个斜杠/然后继续往下写", "今日は会議で10時から12時まで話しました。", "오늘은 회의가 있습니다. 내일 봐요.",
    "L'été dernier, nous étions déjà là.", "Вчера всё работало, а сегодня нет.", "El niño comió más de 20 piñas.",
    "“共12个文件”和「第3章」",
])  # fmt: skip
def test_prose_holds_no_names(text: str) -> None:
    assert names(text) == set()


@pytest.mark.parametrize(
    "unit",
    ["单/", "单.", "单.py", "单_a", "/单a", "`单/`", "https://单", "é/", "a.单", "单" * 50 + "/"],
)
def test_a_line_of_very_many_characters_is_read_in_one_pass(unit: str) -> None:
    """Each line would take minutes if a pattern backtracked over it."""
    line = unit * (examples_at_night(200_000, 1_000_000) // len(unit))
    assert all(len(word) <= len(line) for word in candidate_names(line))


# --- a session in another script keeps as much --------------------------------------------------

TWINS = [
    {"orders": "订单", "order": "订单", "service": "服务", "unit": "单元"},
    {"orders": "заказы", "order": "заказ", "service": "сервис", "unit": "блок"},
    {"orders": "données", "order": "été", "service": "général", "unit": "unité"},
    {"orders": "注文", "order": "注文", "service": "サービス", "unit": "ユニット"},
    {"orders": "주문들", "order": "주문", "service": "서비스", "unit": "단위"},
]
FORMS = [
    "src/orders/order_service_{}.py",
    "src/orders/unit_{}.py",
    "orders/order_{}/service.ts",
    "order_{}_service",
]


def session(form: str, many: int = 30) -> list[Message]:
    messages = [user("Look at everything.")]
    for at in range(many):
        listed = "\n".join(form.format(number) for number in range(3 * at, 3 * at + 3))
        call = ToolCall(f"c{at}", "bash", '{"command":"ls"}')
        messages += [
            Message("assistant", (call,)),
            Message("tool", (ToolResult(f"c{at}", (Text(listed),)),)),
        ]
    return messages


def list_results(form: str, many: int) -> str:
    """Return all tool results of a session."""
    return "\n".join(plain_text(message) for message in session(form, many) if message.results)


def translate(form: str, words: dict[str, str]) -> str:
    for word, translation in words.items():
        form = form.replace(word, translation)
    return form


@given(st.sampled_from(FORMS), st.sampled_from(TWINS), st.integers(1, 30))
def test_the_same_names_are_found_in_every_script(
    form: str, words: dict[str, str], many: int
) -> None:
    ours, theirs = list_results(form, many), list_results(translate(form, words), many)
    assert {translate(name, words) for name in names(ours)} == names(theirs)


def visible(form: str) -> int:
    """Return how many of 90 names are visible in 1,500 tokens."""
    body: list[dict] = [{"role": "user", "content": "Look at everything."}]
    for part in (part for message in session(form)[1:] for part in message.parts):
        if isinstance(part, ToolCall):
            call = {
                "id": part.id,
                "type": "function",
                "function": {"name": part.name, "arguments": part.arguments},
            }
            body.append({"role": "assistant", "tool_calls": [call]})
        elif isinstance(part, ToolResult):
            body.append({"role": "tool", "tool_call_id": part.id, "content": part.text})
    text = json.dumps(refold.compact(body, to=1_500).payload, ensure_ascii=False)
    return sum(form.format(number).rpartition("/")[2] in text for number in range(90))


def cost(form: str) -> int:
    return Profile().count(
        user(" ".join(form.format(number).rpartition("/")[2] for number in range(90)))
    )


@pytest.mark.parametrize("words", TWINS)
@pytest.mark.parametrize("form", FORMS[:2])
def test_other_scripts_keep_as_many_names_as_their_token_cost_allows(
    form: str, words: dict[str, str]
) -> None:
    translation = translate(form, words)
    assert (
        visible(translation) >= 0.9 * visible(form) * min(1.0, cost(form) / cost(translation)) > 20
    )


def test_lost_paths_are_reported_in_any_script() -> None:
    def count_vanished(form: str) -> int:
        body = [{"role": message.role, "content": message.text} for message in session("x")[:1]]
        body += [{"role": "assistant", "content": "Look: " + form.format(at)} for at in range(200)]
        compactor = refold.Compactor([Summarize(2, 200)], refold.Budget(0, 0))
        losses = compactor.preview(body).losses
        return len(losses.paths)

    assert count_vanished("src/订单/单元_{}.py") >= count_vanished("src/orders/unit_{}.py") > 50


def test_f18_edit_ids_in_stubs_are_not_names() -> None:
    """If compacted messages came back as history, the ids of our stubs were once in each later
    summary."""
    stub = "[read(src/m1.py): result of 2,504 characters cleared (edit 1a2b3c4d)]"
    text = f"{stub}\n[… 99 characters left out (edit 5e6f7a8b), among them:\nKeyError: order_id"
    assert names(text) == {"src/m1.py", "order_id", "KeyError"}


# --- F3: words keep their first letter -------------------------------------------------------------


@pytest.mark.parametrize(("text", "expected"), [
    ("<exit_code>1</exit_code>", {"exit_code"}),
    ("async run(): Promise<BashResult> {", {"BashResult"}),
    ("<UserCard onSelect={pickUser} />", {"UserCard", "onSelect", "pickUser"}),
    ("see <https://example.com/a_b>", {"https://example.com/a_b"}),
    (r"first\nfoo_bar\tbaz_qux\r\n", {"foo_bar", "baz_qux"}),
    (r"in C:\Users\new_dir\test_one.py", {"new_dir", "test_one.py"}),
    (r"in C:\\repo\\new_dir\\test_one.py", {"new_dir", "test_one.py"}),
    (r"\home_dir", {"home_dir"}),
    (r"\u4e2d\u6587 word_x", {"word_x"}),
    ("\x1b[31mbadName\x1b[0m", {"badName"}),
    (r"\u001b[1;31mbadName\u001b[0m", {"badName"}),
    ("[31mbadName[0m", {"badName"}),
    ("修改<订单服务.py>吧", {"订单服务.py"}),
    ("改\x1b[32m「订单服务.py」\x1b[0m吧", {"订单服务.py"}),
])  # fmt: skip
def test_f3_names_keep_their_first_letter_after_tags_and_escapes(
    text: str, expected: set[str]
) -> None:
    """A summary lists `exit_code` and `BashResult`, not `xit_code`, `ashResult` or `31mError`."""
    assert names(text) == expected


def test_f3_a_long_text_is_cut_between_words() -> None:
    """The rest of a result of a million characters has only whole names."""
    text = " ".join(f"name_number_{at}" for at in range(60_000))
    assert set(clip_scanned(text).split()) <= set(text.split())
    assert len(clip_scanned(text)) > 0.99 * MAX_SCANNED
    assert len(clip_scanned("x" * 10 * MAX_SCANNED)) == MAX_SCANNED + 1


def test_f3_escape_sequences_with_a_one_character_introducer_are_removed() -> None:
    r"""`\x9b31m`, which starts a colour with one character, once left the name `31mbar_baz`."""
    assert without_escapes("\x9b31mbar_baz\x9b0m is \x9b2Kred") == "bar_baz is red"
    assert names("\x9b31mbar_baz\x9b0m") == {"bar_baz"}


def test_f3_colour_codes_are_removed_from_error_lines_exit_codes_and_terms() -> None:
    """`last error:` has words only, `exit code: 31` is not an exit code, and a search for `Error`
    finds a red one."""
    red = "\x1b[31mError: no such file\x1b[0m\nexit code: \x1b[31m1\x1b[0m"
    assert find_error_line(red) == "Error: no such file"
    assert read_exit_code(red) == 1
    assert "error" in terms(red)
    assert is_failure("\x1b[31mError: no such file")
    assert (
        without_escapes("rate(errors[5m]) \x1b(B\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\")
        == "rate(errors[5m]) link"
    )


def test_f3_colour_codes_are_removed_from_summaries_and_failure_lines() -> None:
    r"""Checks, excerpts and error lines were once quoted with `\x1b[31m`. Code that writes colours
    keeps them."""
    red = "\x1b[1;31m{}\x1b[0m".format
    outputs = {
        "cargo test": f"{red('FAILED')} a::b\n{red('1 failed')}, 3 passed\nexit code: 1",
        "cat app.log": f"{red('warn')} port 5433 is taken",
        "cat colours.py": 'RED = "\\x1b[31m"  # the colour of errors',
    }
    messages = [user("Find out.")]
    for name, output in outputs.items():
        call = ToolCall(name, "bash", json.dumps({"command": name}))
        messages.append(Message("assistant", (Text(f"We use {red('tokio')} for the pool."), call)))
        messages.append(Message("user", (ToolResult(name, (Text(output),)),)))
    summary = drive(RuleSummary()(View.of(messages), 1, len(messages), 2_000)).text
    assert "\x1b" not in summary
    for words in ("1 failed, 3 passed", "port 5433", "We use tokio", 'RED = "\\x1b[31m"'):
        assert words in summary
    assert failure_lines(outputs["cargo test"], 500)[0] == "FAILED a::b"


def test_a_path_with_a_tilde_and_its_absolute_path_are_one_file():
    """It was once listed as modified under `~` and as read under `/home/ann`."""
    call = ToolCall("c1", "Read", json.dumps({"file_path": "/home/ann/.config/bar.json"}))
    edit = ToolCall("c2", "Bash", json.dumps({"command": "sed -i s/a/b/ ~/.config/bar.json"}))
    done = [ToolResult(id, (Text("x"),)) for id in ("c1", "c2")]
    messages = [
        user("Go."),
        *(Message("assistant", (call,)), Message("tool", (done[0],))),
        *(Message("assistant", (edit,)), Message("tool", (done[1],))),
    ]
    assert states_of(collect(messages)) == {"/home/ann/.config/bar.json": "modified"}


def test_a_capitalised_word_of_three_letters_is_a_word():
    """`get` and `GET` were words, `Get` was not."""
    assert split_words("Get GET getFooBar v2Api It") == {"get", "foo", "bar", "api"}
