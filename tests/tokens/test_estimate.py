"""The estimator: bounds, any text, and how far it is off on texts of every kind."""

import string
from base64 import b64encode
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.tokens.count import (
    LEFT_OUT,
    PAIR_CLASSES,
    QUAD_CLASSES,
    estimate,
    fours_of,
    pairs_of,
    total,
)

ANY = st.text(st.characters(codec=None))
"""Lone surrogates included."""


def test_empty_text_has_no_tokens():
    assert estimate("") == 0


@given(ANY)
def test_any_text_has_from_one_token_per_128_bytes_to_one_per_byte(text):
    size = len(text.encode("utf-8", "surrogatepass"))
    assert -(-size // 128) <= estimate(text) <= size


@given(st.binary(max_size=2_000), st.integers(0, 255))
def test_total_returns_the_sum_of_the_bytes(data, byte):
    assert total(data) == sum(data)
    assert total(bytes([byte]) * 700) == 700 * byte


@given(st.binary(max_size=200))
def test_pairs_of_and_fours_of_pack_the_classes_of_neighbouring_bytes(raw):
    raw = raw.translate(None, LEFT_OUT)
    classes = [*raw.translate(PAIR_CLASSES), 0]
    assert list(pairs_of(raw)) == [
        left_class << 4 | right_class for left_class, right_class in pairwise(classes)
    ]
    shapes = [*raw.translate(QUAD_CLASSES), 0, 0, 0]
    fours = zip(shapes, shapes[1:], shapes[2:], shapes[3:], strict=False)
    assert list(fours_of(raw)) == [a << 6 | b << 4 | c << 2 | d for a, b, c, d in fours]


@given(ANY, st.integers(2, 50))
def test_a_repeated_text_has_about_its_tokens_times_the_repetitions(text, times):
    """Only what happens at the seams differs."""
    block = text + "\n"
    assert (
        abs(estimate(block * times) - times * estimate(block))
        <= 6 * times + len(block) * times / 50
    )


@pytest.mark.parametrize(
    "unit",
    [" ", "a", "\n", "\t", "=", "0", "AbC9/+", "deadbeef", "好", "😀", "\ud800", "\r", "─", "한"],
)
def test_a_million_repeated_characters_have_at_most_one_token_per_byte(unit):
    text = unit * (1_000_000 // len(unit))
    tokens = estimate(text)
    assert 0 < tokens <= len(text.encode("utf-8", "surrogatepass"))


def test_carriage_returns_share_a_token_with_their_line_feed():
    lines = "A line of text that ends here.\n" * 100
    assert estimate(lines.replace("\n", "\r\n")) == pytest.approx(estimate(lines), rel=0.15)


KINDS = {
    "english": "The committee met on Thursday to review the budget. Most members agreed that the proposal "
    "needed another round of comments before it could go to the board, and the chair asked for written notes.\n",
    "markdown": "## Next steps\n\n1. **Run the tests** again with `pytest -x`.\n2. Update the [changelog](docs/log.md) "
    "and mention the new flag.\n\n- The cache is now optional.\n- Errors name the file they come from.\n",
    "python": "def load(path: str, *, strict: bool = False) -> dict[str, int]:\n    with open(path) as lines:\n"
    "        for number, line in enumerate(lines, start=1):\n            if not line.strip():\n                continue\n",
    "json": '{"order_id": 48213, "customer": {"name": "Maria Lopez", "email": "maria@example.com"}, '
    '"items": [{"sku": "AX-204", "quantity": 2, "price": 19.99}], "paid": true, "created_at": "2026-03-14T09:26:53Z"}\n',
    "terminal": "drwxr-xr-x  5 root root  4096 Mar  3 11:42 src\n-rw-r--r--  1 root root 18231 Mar  3 11:40 setup.cfg\n"
    "tests/test_api.py::test_create_user PASSED                               [ 12%]\nE   AssertionError: 404 != 200\n",
    "chinese": "明天上午我们要开会讨论新的项目计划，请大家提前准备好相关的材料。如果有什么问题，可以先在群里提出来。"
    "天气预报说周末会下雨，所以我们决定把活动改到下个星期。\n",
    "japanese": "明日の午前中に新しいプロジェクトについて話し合う予定です。資料は事前に準備しておいてください。"
    "何か質問があれば、チャットで気軽に聞いてくださいね。\n",
    "korean": "내일 오전에 새로운 프로젝트에 대해 이야기할 예정입니다. 관련 자료를 미리 준비해 주세요. "
    "궁금한 점이 있으면 언제든지 채팅방에 남겨 주시기 바랍니다.\n",
    "flags": "🇩🇪 Germany, 🇫🇷 France, 🇯🇵 Japan, 🇰🇷 Korea, 🇧🇷 Brazil: 🇺🇸🇬🇧🇨🇦\n",
    "flags alone": "🇩🇪, 🇫🇷, 🇯🇵, 🇰🇷, 🇨🇳, 🇮🇳, 🇧🇷, 🇺🇸, 🇬🇧, 🇨🇦, ",
    "symbols": "⚠️ careful ❤️ thanks ✔️ done ⚙️ settings ☀️ sun ▶️ play ℹ️ info\n",
    "key caps": "1️⃣ first 2️⃣ second 3️⃣ third\n",
    "families": "👨‍👩‍👧 family, 👩‍💻 coder, 🧑‍🚀 pilot, 👍🏽 yes\n",
    "emoji": "Great job team! 🎉🎉 We shipped it 🚀 and the tests pass ✅ 😀 see you tomorrow 👋🏽 ❤️\n",
}
O200K = {
    "english": 37,
    "markdown": 52,
    "python": 49,
    "json": 76,
    "terminal": 77,
    "chinese": 50,
    "japanese": 49,
    "korean": 43,
    "flags": 43,
    "flags alone": 51,
    "symbols": 25,
    "key caps": 12,
    "families": 30,
    "emoji": 28,
}
"""Tokens of each text by o200k_base (splintr-rs 0.22)."""


@pytest.mark.parametrize("kind", KINDS)
def test_common_kinds_of_text_are_estimated_within_25_percent_of_o200k(kind):
    assert estimate(KINDS[kind] * 20) == pytest.approx(O200K[kind] * 20, rel=0.25)


def test_base64_has_more_than_one_token_per_four_characters():
    base64 = (string.ascii_letters + string.digits + "+/") * 100
    assert estimate(base64) > len(base64) / 4


def test_random_base64_and_hex_have_about_the_tokens_of_o200k():
    """0.68 and 0.56 tokens per character by o200k_base (splintr-rs 0.22)."""
    data = Random(1).randbytes(3_000)
    assert estimate(b64encode(data).decode()) == pytest.approx(4_000 * 0.68, rel=0.1)
    assert estimate(data.hex()) == pytest.approx(6_000 * 0.56, rel=0.1)
