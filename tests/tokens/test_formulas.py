"""The seeds' token formulas, on the seeds' own numbers and on those that were wrong."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refold.messages import user
from refold.presets.measures import chinese_and_ascii, quarter, rather_over, two_ratios
from refold.tokens.count import counter

ALL = (quarter, two_ratios, rather_over, chinese_and_ascii)
HAN = st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF))
ASCII = st.text(st.characters(codec="ascii"))


@pytest.mark.parametrize("count", ALL)
def test_empty_text_has_no_tokens_and_any_other_text_has_at_least_one(count):
    """S1-14 S4-17 C1-12 C4-1: empty text counts 0, and no other text is rounded down to 0."""
    assert count("") == 0
    assert all(count(text) >= 1 for text in ("a", "你", "ab", "!", "\n", "é", "😀"))


def test_quarter_counts_four_characters_as_one_token():
    """S0-34: the count that splits the history."""
    assert [quarter("a" * n) for n in (4, 5, 8, 400)] == [1, 2, 2, 100]


@given(HAN, ASCII)
@example("你" * 30, "a" * 40)
def test_two_ratios_counts_chinese_and_ascii_at_different_ratios(chinese, english):
    """S1-14 S1-15 S1-16: 1.5 Chinese characters per token, 4 of ASCII, without a library."""
    assert two_ratios(chinese + english) == math.ceil(len(chinese) / 1.5 + len(english) / 4)


def test_rather_over_follows_the_table_of_the_soft_hard_compactor():
    """S2-24: each row of the table, and the rounded-up sum; 0.3 tokens per letter is rather too
    much (C2-2)."""
    assert rather_over("你好") == 3
    assert rather_over("㐀㐁") == 3
    assert rather_over("、。") == 2
    assert rather_over("    \n\n\t\t") == 2
    assert rather_over("a" * 10) == 3
    assert rather_over("abcd") == 2
    assert rather_over("你好, world\n") == math.ceil(3 + 6 * 0.3 + 2 * 0.25)


def test_rather_over_does_not_undercount_other_scripts_and_punctuation():
    """S2-25 C2-1: characters that the seed's code counts as 0.3 tokens get their real count."""
    assert rather_over("，！？；：") >= 5
    assert rather_over("안녕하세요") >= 5
    assert rather_over("😀😀😀") >= 6
    assert rather_over("𠀀𠀁") >= 3
    assert rather_over("“”‘’…—") >= 6
    assert rather_over("a\rb") == 1


@given(HAN, ASCII)
@example("你" * 10, "a" * 40)
def test_chinese_and_ascii_follows_the_formula_of_the_seed(chinese, english):
    """S4-17: 1.5 tokens per Chinese character, a quarter per ASCII character."""
    assert chinese_and_ascii(chinese + english) == math.ceil(1.5 * len(chinese) + len(english) / 4)


def test_chinese_and_ascii_does_not_count_kana_hangul_or_emoji_as_ascii():
    """C4-1: kana, Hangul and emoji are not ASCII."""
    assert chinese_and_ascii("こんにちは世界") >= 10
    assert chinese_and_ascii("안녕하세요") >= 7
    assert chinese_and_ascii("😀😀😀") == 6


@pytest.mark.parametrize("count", ALL)
@given(text=st.text(st.characters(codec=None)))
def test_any_text_is_counted(count, text):
    assert 0 <= count(text) <= 2 * len(text) + 1


@pytest.mark.parametrize("count", ALL)
def test_every_formula_can_be_used_to_count_messages(count):
    """S1-16 X-1: any formula can count messages."""
    assert counter(count)(user("你好, world")) == 4 + count("你好, world")
