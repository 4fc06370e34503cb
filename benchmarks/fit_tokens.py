# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy", "splintr-rs"]
# ///
"""Fit the estimator's weights: `python benchmarks/fit_tokens.py TEXTS` writes
`src/refold/tokens/weights.json`.

TEXTS holds one folder per kind of text (english, python, json, terminal, zh ...) with UTF-8 files.
Pieces of 300 to 6,000 characters are drawn from each kind, with a fixed seed, and counted with
o200k. Every kind has the same weight unless WEIGHT says otherwise. The weights of all pairs, fours
and patterns of scripts come from one ridge regression of the relative error, in which under-counts
cost more than over-counts. docs/decisions/0005-estimator.md describes our TEXTS. The evaluation
data are never used here.
"""

import json
import random
import sys
from pathlib import Path

import numpy as np
from splintr import Tokenizer

from refold.tokens.count import LEADS, LEFT_OUT, SCRIPT, fours_of, pairs_of

OUT = Path(__file__).parent.parent / "src" / "refold" / "tokens" / "weights.json"
PIECES = 600
SHORT = 1.1
"""Factor by which an under-count of more than 5 % costs more than an over-count."""
RIDGE = 1e-4
WEIGHT = {
    "runs": 0.35,
    "otherscript": 0.6,
    "cyrillic": 0.8,
    "table": 0.5,
    "hex": 0.7,
    "numbers": 0.7,
    "base64": 0.8,
}
WEIGHT |= {
    "emoji": 0.7,
    "zhpure": 2.5,
    "kopure": 2.5,
    "japure": 1.5,
    "ko": 1.0,
    "english2": 2.0,
    "terminal": 1.4,
    "markdown": 1.4,
    "crlf": 0.7,
    "names": 0.3,
}
MARGIN = {"zh": 1.01, "zhpure": 1.02, "ko": 0.98, "kopure": 0.98}
"""Everyday Chinese has more tokens per character than the manuals that our texts consist of; Korean
fewer."""

BEYOND: dict[str, tuple[list[bytes], list[bytes]]] = {
    "E": ([b"E", b"EE", b"aE", b"uE"], [b"\xc2"]),
    "Y": ([b"Y", b"-Y", b"YYYY"], []),
    "B": ([b"B", b"-B", b"BB", b"BBBB"], []),
    "I": ([b"I", b"-I", b"II", b"IIII"], []),
    "S": ([b"S", b"SS", b"SSSS", b"S-"], [b"\xe2\x96", b"\xe2\x95", b"\xe2\x80"]),
    "J": ([b"J", b"JJ", b"JJJ", b"JH", b"-J"], [b"\xe3\x80", b"\xe3\x83"]),
    "H": ([b"H", b"H-", b"-H"], [b"\xe4", b"\xe9", "的".encode()]),
    "K": (
        [b"K", b"-K", b"KK-", b"KKK", b"KK"],
        [ending.encode() for ending in ("니다", "는", "을", "에", "이", "하")],
    ),
    "F": ([b"F"], [b"\xef\xbc", b"\xef\xb8\x8f"]),
    "M": ([b"M"], [b"\xf0\x9f\x98", b"\xf0\x9f\x87"]),
}
"""By script: patterns in the letters of `SCRIPT`, and patterns in bytes."""


def main(texts: Path) -> None:
    kinds, pieces = draw(texts)
    encode = Tokenizer.from_pretrained("o200k_base").encode_ordinary
    exact = np.array(
        [
            MARGIN.get(kind, 1) * len(encode(piece))
            for kind, piece in zip(kinds, pieces, strict=True)
        ]
    )
    share = np.array([WEIGHT.get(kind, 1) / kinds.count(kind) ** 0.5 for kind in kinds]) / exact
    counts = np.array([count_patterns(piece.encode()) for piece in pieces])
    weights = ridge(counts, exact, share)
    report(kinds, counts @ weights, exact)
    write(weights)


def draw(texts: Path) -> tuple[list[str], list[str]]:
    """Draw pieces of every kind, longer files more often, with lengths spread logarithmically."""
    chance, kinds, pieces = random.Random(7), list[str](), list[str]()
    for folder in sorted(path for path in texts.iterdir() if path.is_dir()):
        files = [file.read_text("utf-8") for file in sorted(folder.iterdir())]
        files = [text for text in files if text]
        for _ in range(min(PIECES, max(60, sum(map(len, files)) // 600))):
            text = chance.choices(files, [len(text) ** 0.7 for text in files])[0]
            length = int(300 * 20 ** chance.random())
            start = chance.randint(0, max(0, len(text) - length))
            kinds.append(folder.name)
            pieces.append(text[start : start + length])
    return kinds, pieces


def count_patterns(raw: bytes) -> np.ndarray:
    """Count the occurrences of each pair, each four and each pattern of a script."""
    heads = raw.translate(None, LEFT_OUT)
    grams = [
        np.bincount(np.frombuffer(of(heads), np.uint8), minlength=256)
        for of in (pairs_of, fours_of)
    ]
    letters = raw.translate(SCRIPT, LEFT_OUT)
    patterns = [
        text.count(pattern)
        for in_letters, in_bytes in BEYOND.values()
        for text, group in ((letters, in_letters), (raw, in_bytes))
        for pattern in group
    ]
    return np.array([*grams[0], *grams[1], *patterns], float)


def ridge(matrix: np.ndarray, exact: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return weights of least squared relative error; under-counts weigh more, outliers less."""
    now = share
    for _ in range(8):
        rows = matrix * now[:, None]
        square = rows.T @ rows
        size = np.diag(square)
        rare = np.where(
            np.arange(len(size)) < 512, size.mean() / 10, 0
        )  # rare patterns stay near 0
        square += np.diag(RIDGE * (size + rare) + 1e-12)
        weights = np.linalg.solve(square, rows.T @ (exact * now))
        error = matrix @ weights / exact - 1
        outlier = np.sqrt(0.25 / np.maximum(abs(error), 0.25))
        now = (
            share
            * outlier
            * np.where(error < -0.05, SHORT**0.5, 1)
            * np.where(error < -0.12, 1.3, 1)
        )
    return weights


def report(kinds: list[str], estimated: np.ndarray, exact: np.ndarray) -> None:
    names = np.array(kinds)
    print(f"{'kind':14}{'pieces':>8}{'bias':>9}{'error':>8}{'1st %':>8}{'worst':>8}")
    for kind in dict.fromkeys(kinds):
        of = names == kind
        error = estimated[of] / exact[of] - 1
        bias = estimated[of].sum() / exact[of].sum() - 1
        low = np.quantile(error, 0.01)
        print(
            f"{kind:14}{of.sum():8}{bias:+9.3f}{abs(error).mean():8.3f}{low:+8.3f}{error.min():+8.3f}"
        )


def write(weights: np.ndarray) -> None:
    """Write the weights. Pairs and fours take one byte each, in hexadecimal, in units of STEP."""
    grams, rest = weights[:512], iter(weights[512:])
    low, high = min(0.0, grams.min()), max(0.0, grams.max())
    step = (high - low) / 254
    zero = round(-low / step)
    # both tables share the zero of a character: its pair and its four each have half of it
    table = np.clip(np.round(grams / step) + zero, 0, 255).astype(np.uint8)
    rows = [table[at : at + 32].tobytes().hex() for at in range(0, 512, 32)]
    scripts = {
        name: {
            "letters": {pattern.decode(): round(float(next(rest)), 4) for pattern in letters},
            "bytes": {pattern.hex(): round(float(next(rest)), 4) for pattern in in_bytes},
        }
        for (_, name), (letters, in_bytes) in zip(LEADS, BEYOND.values(), strict=True)
    }
    data = {"step": round(step, 6), "zero": 2 * zero, "pairs": rows[:8], "fours": rows[8:]}
    OUT.write_text(json.dumps({**data, "scripts": scripts}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
