"""Exact counters, offline. Needs the extra `exact`."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.errors import RefoldError
from refold.messages import user
from refold.tokens import count as module
from refold.tokens.count import CHUNK, MESSAGE, counter, exact

pytest.importorskip("splintr")
O200K = exact()


def test_o200k_counts_of_known_texts_are_exact():
    assert O200K("") == 0
    assert O200K("hello world") == 2
    assert O200K("你好，世界") == 3


@pytest.mark.parametrize(
    "vocabulary", ["o200k_base", "cl100k_base", "llama3", "qwen3", "deepseek_v3"]
)
def test_several_vocabularies_give_plausible_counts(vocabulary):
    assert 5 <= exact(vocabulary)("The quick brown fox jumps over it.") <= 12


def test_special_tokens_in_a_text_are_counted_as_text():
    assert O200K("<|endoftext|>") > 1


@given(st.text(st.characters(codec=None)))
def test_any_text_is_counted(text):
    assert O200K(text) <= 3 * len(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("unit", [" ", "a", "\n", "=", "\ud800", "好", "😀"])
def test_a_million_repeated_characters_can_be_counted(unit):
    assert 0 < O200K(unit * 1_000_000) <= 3_000_000


def test_splitting_a_long_text_does_not_change_its_count():
    line = "def handler(request, *args):\n    return 42  # 你好\n\n"
    text = line * (3 * CHUNK // len(line))
    whole = module._splintr("o200k_base")(text)
    assert O200K(text) == len(whole)


def test_an_unknown_vocabulary_is_named_with_the_extra_to_install():
    with pytest.raises(RefoldError, match=r"(?s)'klingon'.*'\.\[exact\]'"):
        exact("klingon")


def test_without_the_extra_the_error_names_it():
    code = (
        "import sys; sys.modules.update(splintr=None, tiktoken=None)\n"
        "from refold.tokens.count import exact\n"
        "from refold import RefoldError\n"
        "try: exact()\n"
        "except RefoldError as error: print(error)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert "splintr is not installed; tiktoken is not installed" in out
    assert "pip install '.[exact]'" in out


def test_an_exact_counter_of_texts_can_count_messages():
    assert counter(O200K)(user("hello world")) == MESSAGE + 2
