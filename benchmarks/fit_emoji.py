# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy", "splintr-rs"]
# ///
"""Fit the estimator's weights of emoji: `python benchmarks/fit_emoji.py` prints those of the
patterns below.

Recorded conversations hold too few emoji for a fit, so the texts are generated here with a fixed
seed: flags, frequent and rare emoji, skin tones, key caps, families, and symbols with a variation
selector, alone with and without separators, in English and Chinese sentences, in lists and under
headings. The fit covers what all other weights leave.
"""

import random
import unicodedata

import numpy as np
from splintr import Tokenizer

from refold.tokens.count import LEFT_OUT, SCRIPT, SCRIPTS, estimate

LETTERS = (b"M", b"MM", b"-M", b"M-", b"M-M", b"HM", b"MH")
"""Patterns in the letters of `SCRIPT`, M for emoji and H for Han."""
SELECTED = (
    b"\xef\xb8\x8f",
    b"\xef\xb8\x8f ",
    b"\xef\xb8\x8f\n",
    b"\xef\xb8\x8f\xe2",
    b"\xe2\x83\xa3",
)
"""The variation selector with what follows it, and a key cap. In letters it would count as a
full-width character."""
SINGLE = tuple(emoji.encode() for emoji in "😀😂😊👍🤣😍🙏🔥👏😭")
"""Emoji that are one token."""
EMOJI = (
    *(
        b"\xf0\x9f" + bytes([block])
        for block in (0x87, 0x90, 0x95, 0x96, 0x97, 0x98, 0xA5, 0xA6, 0xA7)
    ),
    *(b"\xe2\x80\x8d", b" \xf0\x9f", b"\n\xf0\x9f"),
    *SINGLE,
)
BYTES = (*EMOJI, *SELECTED)
PIECES = 400
WEIGHT = {"frequent": 2.0, "repeated": 0.3}

FLAGS = [
    "DE",
    "FR",
    "JP",
    "KR",
    "CN",
    "IN",
    "BR",
    "US",
    "GB",
    "CA",
    "ES",
    "IT",
    "RU",
    "AU",
    "MX",
    "NL",
    "SE",
    "CH",
    "AT",
    "PL",
    "TR",
    "UA",
    "GR",
    "PT",
    "BE",
    "DK",
    "NO",
    "FI",
    "IE",
    "NZ",
    "ZA",
    "AR",
    "EG",
    "SG",
    "HK",
]
FREQUENT = (
    "😀😂🤣😊😍👍🙏🔥✨🎉✅❌💡📦🐛🎨⚡🔒📝🚀👀💪🤔😅🙌💯📌🔧🧪🌟👏😎😭💰📊📈🎯🏆🔍💬📅🕐🌍🍕☕"
)
SYMBOLS = "❤⚠☀✈✔☑✂☎♻⚙⏱☁✏▶ℹ❄☠⚔🛠🗑🏷🖥🗂"
FAMILIES = (
    "👨\u200d👩\u200d👧",
    "👩\u200d💻",
    "👨\u200d💻",
    "🧑\u200d🚀",
    "👩\u200d🔬",
    "🏳\ufe0f\u200d🌈",
)
EN = [
    "the",
    "build",
    "passes",
    "now",
    "and",
    "all",
    "tests",
    "are",
    "green",
    "we",
    "shipped",
    "it",
    "to",
    "staging",
    "please",
    "have",
    "a",
    "look",
    "at",
    "the",
    "logs",
    "before",
]
ZH = "今天天气不错我们去公园散步吧测试已经通过可以发布新版本了请检查日志"
RANGES = ((0x1F300, 0x1F650), (0x1F680, 0x1F6FD), (0x1F900, 0x1FA00))
NAMED = [
    chr(code)
    for start, stop in RANGES
    for code in range(start, stop)
    if unicodedata.name(chr(code), "")
]

KINDS = {
    "flags": lambda chance: "".join(chr(0x1F1A5 + ord(letter)) for letter in chance.choice(FLAGS)),
    "frequent": lambda chance: chance.choices(
        FREQUENT, [1 / (3 + at) for at in range(len(FREQUENT))]
    )[0],
    "rare": lambda chance: chance.choice(NAMED),
    "skin tones": lambda chance: (
        chance.choice("👍👋🙏👏💪🙌✋👌🤝👊") + chr(0x1F3FB + chance.randrange(5))
    ),
    "key caps": lambda chance: chance.choice("0123456789") + "\ufe0f\u20e3",
    "families": lambda chance: chance.choice(FAMILIES),
    "symbols": lambda chance: chance.choice(SYMBOLS) + "\ufe0f",
}


def main() -> None:
    chance, encode = random.Random(3), Tokenizer.from_pretrained("o200k_base").encode_ordinary
    kinds = [kind for kind in (*KINDS, "repeated") for _ in range(PIECES)]
    texts = [write_text(kind, chance) for kind in kinds]
    exact = np.array([len(encode(text)) for text in texts], float)
    counts, now = (
        np.array([count_patterns(text) for text in texts], float),
        np.array([estimate(text) for text in texts]),
    )
    rest = exact - (now - counts @ np.array(list(read_worth())))
    share = np.array([WEIGHT.get(kind, 1.0) for kind in kinds]) ** 0.5 / exact
    weights = fit(counts, rest, exact, share)
    report(kinds, now / exact - 1, (exact - rest + counts @ weights) / exact - 1)
    for pattern, weight in zip((*LETTERS, *BYTES), weights, strict=True):
        print(f"{pattern!r}: {weight:.4f}")


def write_text(kind: str, chance: random.Random) -> str:
    """Return one text of a kind, with 20 to 150 emoji or a few sentences around some."""
    if kind == "repeated":
        return chance.choice(FREQUENT) * chance.randint(3, 40)
    emoji = [KINDS[kind](chance) for _ in range(chance.randint(20, 150))]
    some = emoji[: len(emoji) // 2]
    match chance.randrange(9):
        case 0 | 1 | 2 as at:
            return " ,\n"[at].join(emoji)
        case 3:
            return "".join(emoji)
        case 4:
            return "".join(
                ZH[(at := chance.randrange(20)) : at + chance.randint(4, 12)] + sign
                for sign in some
            )
        case 5:
            return "\n".join(f"- {sign} {' '.join(chance.sample(EN, 5))}" for sign in some)
        case 6:
            return "\n".join(
                f"## {sign} {chance.choice(EN).title()}\n{' '.join(chance.sample(EN, 9))}."
                for sign in some
            )
        case _:
            return " ".join(
                f"{' '.join(chance.sample(EN, chance.randint(3, 9)))} {sign}" for sign in some
            )


def count_patterns(text: str) -> list[int]:
    """Count the occurrences of each pattern."""
    raw = text.encode()
    letters = raw.translate(SCRIPT, LEFT_OUT)
    return [*map(letters.count, LETTERS), *map(raw.count, BYTES)]


def read_worth() -> list[float]:
    """Return the current weights of the patterns."""
    rows = [
        row
        for _, letters, of_letters, in_bytes, of_bytes in SCRIPTS
        for row in ((letters, of_letters), (in_bytes, of_bytes))
    ]
    worth = {
        pattern: weight
        for patterns, weights in rows
        for pattern, weight in zip(patterns, weights, strict=True)
    }
    return [worth.get(pattern, 0.0) for pattern in (*LETTERS, *BYTES)]


def fit(matrix: np.ndarray, rest: np.ndarray, exact: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return weights of least squared relative error; under-counts weigh more, outliers less."""
    now = share
    for _ in range(10):
        rows = matrix * now[:, None]
        square = rows.T @ rows
        weights = np.linalg.solve(
            square + np.diag(1e-3 * np.diag(square) + 1e-9), rows.T @ (rest * now)
        )
        error = (matrix @ weights - rest) / exact
        short = np.where(error < -0.05, 1.2, 1) * np.where(error < -0.12, 1.5, 1)
        now = share * short * np.sqrt(0.25 / np.maximum(abs(error), 0.25))
    return weights


def report(kinds: list[str], before: np.ndarray, after: np.ndarray) -> None:
    names = np.array(kinds)
    print(f"{'kind':12}{'error':>8}{'bias':>8}{'worst':>8}{'  before':>10}{'bias':>8}{'worst':>8}")
    for kind in dict.fromkeys(kinds):
        rows = [
            f(error[names == kind])
            for error in (after, before)
            for f in (lambda e: abs(e).mean(), np.mean, np.min)
        ]
        print(f"{kind:12}" + "".join(f"{value:+8.1%}" for value in rows))


if __name__ == "__main__":
    main()
