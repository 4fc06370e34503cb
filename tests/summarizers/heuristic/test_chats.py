"""Quotes in a chat's summary keep their meaning: a retraction is quoted with what it retracts."""

import re

import pytest

from refold.codecs.detect import open_payload
from refold.core.profile import Profile
from refold.core.view import View
from refold.messages import user
from refold.models.driver import drive
from refold.speakers import segment_messages
from refold.summarizers.heuristic import RuleSummary
from refold.summarizers.heuristic.answers import find_retraction
from refold.summarizers.heuristic.blocks import Block, Work
from refold.summarizers.heuristic.excerpts import Excerpt, Selection
from refold.text.clip import split_line
from tests.support.messages import assistant
from tests.support.summaries import collect, rate_words

LABEL = re.compile(r"^\[[^\]\n]*\] ", re.MULTILINE)


def _summarize(messages, tokens):
    """Return a summary of *messages* with a budget in tokens of four bytes."""
    count = Profile(count=lambda message: len(message.text.encode()) // 4 + 1)
    view = View.of(messages, profile=count)
    return drive(RuleSummary()(view, 0, len(messages), tokens)).text


FILLER = [
    (f"And what about item {name}?", f"Item {name} is in stock, {at}7 of them, in hall {name}.")
    for at, name in enumerate(("oak", "elm", "fir", "ash", "yew", "box", "may", "bay"), 1)
]


def talk(*rows):
    """Return a chat of these rows, alternating user and model, followed by filler."""
    rows = (*rows, *(text for pair in FILLER for text in pair))
    return [(assistant if at % 2 else user)(text) for at, text in enumerate(rows)]


RETRACTED = {
    "the next words": (
        ("When does the boiler engineer come?", "Thursday between nine and noon suits Mr Abelard."),
        ("No wait, make it Friday. I am at the dentist.", "Friday it is."),
        "Thursday between nine",
        "No wait, make it Friday.",
    ),
    "a figure that is denied": (
        ("Send the parcel to Aachener Str. 112, Cologne.", "Noted: Aachener Str. 112, Cologne."),
        ("sorry, typo. it's 121 not 112", "Corrected."),
        "Noted: Aachener Str. 112",
        "it's 121 not 112",
    ),
    "Chinese": (
        ("洗衣机什么时候送到？", "洗衣机预计周三上午九点送达文三路。"),
        ("啊不行，周三我出差，改成周六吧", "好的。"),
        "洗衣机预计周三上午",
        "啊不行，周三我出差，改成周六吧",
    ),
}


@pytest.mark.parametrize(("first", "second", "before", "after"), RETRACTED.values(), ids=RETRACTED)
def test_a_statement_that_the_user_took_back_is_quoted_only_with_the_retraction(
    first, second, before, after
):
    """`Thursday works` was once quoted without `No wait, make it Friday`."""
    messages, shown = talk(*first, *second), 0
    for tokens in range(120, 420, 20):
        text = LABEL.sub("", _summarize(messages, tokens))
        assert before not in text or after in text
        shown += before in text
    assert shown


def test_sentences_that_take_nothing_back_are_not_retractions():
    for text in ("I have no idea.", "Could you do that instead?", "Thanks, that is all.", ""):
        assert not find_retraction(text)
    assert find_retraction("Actually, blue. And wrap it.") == "Actually, blue. And wrap it."
    head = "やっぱり12時半にしてください。"
    assert find_retraction(f"{head}弟が間に合わないので。") == head


def test_only_the_sentences_that_take_something_back_are_marked_as_retractions():
    text = "No wait, I meant Friday.\n\nThe room is B12. The projector works again since Monday."
    lines = Block(1, "asked", "", text, is_in_clauses=True).iter_lines()
    assert [line.retracts for line in lines] == [True, False, False]


def test_exchanges_are_listed_in_their_original_order():
    """Two on one subject were once joined at the position of the first, so that their order was
    lost."""
    rows = [("boat", "It costs 410 euros."), ("shed", "It costs 5 euros."), ("boat", "Or 630.")]
    blocks = [
        Block(at, "said", label, words, is_in_clauses=True)
        for at, (label, words) in enumerate(rows)
    ]
    lines = [next(iter(block.iter_lines())) for block in blocks]
    excerpts = [Excerpt(at, line, (), 1.0, 1.0, 1) for at, line in enumerate(lines)]
    selection = Selection(excerpts, Work(blocks), ())
    selection.chosen += range(3)
    text, _ = selection.render()
    assert text.index("410") < text.index("5 euros") < text.index("630")


def test_a_brief_message_is_quoted_as_a_whole():
    """`€260` was once quoted alone, or `no, he has football` without the day that it led to."""
    words = "yes. Saturday morning. no, he has football then. Sunday"
    block = Block(0, "asked", "", words, is_in_clauses=True)
    assert [line.text for line in block.iter_lines()] == [words]


def test_questions_and_courtesies_are_not_labels_of_exchanges():
    """`[Is there anything else]` once labelled an exchange about a voucher."""
    clauses = ["Is there anything else I can do for you today?", "Ah, even better then."]
    thanks = ["Have a really wonderful trip!", "祝您和家人旅行愉快！", "祝您和家人旅行愉快。"]
    thanks += [
        "很高兴今天能为您服务。",
        "どうもありがとうございました。",
        "도움이 되어 정말 기쁩니다.",
    ]
    statement = "The lid is made of elm wood."
    assert rate_words([[*clauses, *thanks, statement]]).find_statement(0) == statement[:-1]


def test_a_label_begins_with_a_whole_word():
    """`[ll ask them about nuts]`"""
    things = ("oak", "elm", "fir", "ash", "yew", "box", "may", "bay", "ivy", "rue")
    asked = [f"I want {thing}" for thing in things] + ["Who'll ask them about walnuts?"]
    answers = [f"I have {thing}" for thing in things] + ["I'll ask them about walnuts."]
    turns = [[text] for pair in zip(asked, answers, strict=True) for text in pair]
    assert rate_words(turns).find_label(len(turns) - 1).startswith("I'll ask")


@pytest.mark.parametrize(
    ("request_", "answer", "label"),
    [
        (
            "你有没有看过哪些画家的作品",
            "文艺复兴时期的一些画家的作品很好",
            "你有没有看过哪些画家的作品",
        ),
        (
            "口コミサイトを見てみますね。",
            "口コミサイトを見てみると便利です。",
            "口コミサイトを見てみますね",
        ),
        (
            "你有没有看过欧洲文艺复兴时期的哪些画家的作品",
            "文艺复兴时期的一些画家的作品很好",
            "你有没有看过欧洲文艺复兴时期的哪些画家的作品",
        ),
        ("나는 고등학교를 가르치고 싶어.", "중등학교를 가르치면 좋아.", "고등학교를 가르치고"),
    ],
)
def test_a_label_in_a_script_without_spaces_is_a_whole_clause_or_word(request_, answer, label):
    """`[些画家的作品]`, `[口コミサイトを見てみま]`, `[등학교를 가르치]`: labels began and ended in words."""
    filler = [[f"第{at}个句子是别的内容"] for at in range(40)]
    assert rate_words([*filler, [request_], [answer]]).find_label(40) == label


def test_what_both_sides_say_far_apart_is_no_label():
    """`[谢谢你的建议]` labelled exchanges, because each side said it of another matter."""
    courtesy = "谢谢你的建议"
    filler = [[f"第{at}个句子是别的内容"] for at in range(40)]
    turns = [["这是你的建议吗"], ["是的"], *filler, [courtesy], ["不客气"]]
    assert not rate_words(turns).find_label(len(turns) - 2)


def test_a_label_lies_within_a_line():
    """`[random.akerud.se the]` once was the topic of a page."""
    things = ("oak", "elm", "fir", "ash", "yew", "box", "may", "bay", "ivy", "rue")
    asked = [f"I want {thing}" for thing in things]
    rows = ["It is hosted at random.akerud.se", "the goal is a wheel"]
    answers = [f"I have {thing}" for thing in things] + ["At random.akerud.se the goal is a wheel."]
    label = rate_words([asked, rows, answers]).find_label(1)
    assert label and "\n" not in label


def test_a_statement_that_labels_an_exchange_continues_no_clause():
    """`[ as well as the lid of elm]`"""
    clauses = [" as well as the lid made of elm", "The box is made of old oak."]
    assert rate_words([clauses]).find_statement(0) == "The box is made of old oak"


def test_a_title_before_a_name_ends_no_sentence():
    """`Never email Dr. Smith.` was the rule `Never email Dr.`, and the topic of a talk `Gallen`."""
    line = "Never email Dr. Smith. Go with plan B. Prof. Lee may know. Mrs. Jones, too."
    assert [*split_line(line)] == [
        "Never email Dr. Smith.",
        "Go with plan B.",
        "Prof. Lee may know.",
        "Mrs. Jones, too.",
    ]
    asked, answers = ["I met Dr. Miller in St. Gallen."], ["Dr. Miller of St. Gallen is a surgeon."]
    assert rate_words([asked, answers]).find_label(0) == "St. Gallen"


def test_a_stop_before_a_closing_quote_ends_no_sentence():
    """`”然后走了。` and `！` once were sentences."""
    line = "他说：“不要改。”然后走了。真的吗？！「消さないで。」と言われた。次へ。"
    assert [*split_line(line)] == [
        "他说：“不要改。”然后走了。",
        "真的吗？！",
        "「消さないで。」と言われた。",
        "次へ。",
    ]


def test_a_sentence_does_not_end_before_the_number_of_a_street():
    assert [*split_line("Aachener Str. 112, Cologne. See No. 5 there.")] == [
        "Aachener Str. 112, Cologne.",
        "See No. 5 there.",
    ]


GROUP = [
    "Anna: shall we plan the trip?", "Ben: I can do 12-16 May", "Anna: don't be a baby",
    "Carla: never book a night train, please, I cannot sleep there", "Ben: ok",
]  # fmt: skip


@pytest.mark.parametrize("is_field", [True, False])
def test_group_senders_are_read_from_name_prefixes_or_the_name_field(is_field):
    """From the names before the words, or `name` of Chat Completions. Banter was once a rule."""
    rows = [row.partition(": ") for row in (*GROUP, *GROUP)]
    payload = [
        {"role": "user", "name": name, "content": words}
        if is_field
        else {"role": "user", "content": f"{name}: {words}"}
        for name, _, words in rows
    ]
    messages = open_payload(payload).decode()
    assert [own[0].sender for own in segment_messages(messages)] == [name for name, *_ in rows]
    answers = [words for message in messages for words in (message, assistant("Noted."))]
    state = collect(answers)
    assert "[from Ben] I can do 12-16 May" in state.requests
    rule = "[from Carla] never book a night train, please, I cannot sleep there"
    assert [*state.constraints] == [rule]


def test_line_labels_in_one_persons_messages_are_not_senders():
    texts = ["Note: it fails", "Question: why?", "Note: still", "Go on."]
    assert not any(own[0].sender for own in segment_messages([*map(user, texts)]))


def test_a_no_reply_marker_of_the_model_is_not_quoted():
    text = _summarize(talk("I did not mean you.", "NO_REPLY", "ok", "Sure."), 500)
    assert "NO_REPLY" not in text


def test_a_statement_about_the_past_with_never_is_not_a_rule():
    assert not collect([user("I gave everything. never called in sick.")]).constraints
    assert collect([user("Never embed a font in it.")]).constraints
