# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy", "splintr-rs"]
# ///
"""Fit the estimator's weights: `python benchmarks/fit_tokens.py TEXTS` writes `src/refold/tokens/weights.py`.

TEXTS holds one folder per kind of text (english, python, json, terminal, zh ...) with UTF-8 files.
Pieces of 300 to 6,000 characters are drawn from each kind, with a fixed seed, and counted with
o200k. Every kind weighs the same unless WEIGHT says otherwise. Patterns for ASCII are chosen
greedily out of CANDIDATES, those for other scripts are given; the weights are a ridge regression
of the relative error in which being short costs more than being over. What our TEXTS were is
written in docs/decisions/0005-estimator.md. The evaluation data are never used here.
"""

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
from splintr import Tokenizer

from refold.tokens.estimate import LEADS, views_of

OUT = Path(__file__).parent.parent / "src" / "refold" / "tokens" / "weights.py"
FINE, COARSE, GAPS, RAW = range(4)
PATTERNS = 40
"""How many patterns every text is searched for: each costs 1 to 3 ns a byte."""

PIECES = 600
SHORT = 1.1
"""How much dearer than an over-count an under-count of more than 5 % is."""
RIDGE = 2e-5
WEIGHT = {"runs": 0.35, "otherscript": 0.6, "cyrillic": 0.8, "table": 0.5, "hex": 0.7, "numbers": 0.7, "base64": 0.8}
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
    "names": 0.2,
}

MARGIN = {"zh": 1.02, "zhpure": 1.04}
"""Everyday Chinese has more tokens a character than manuals, of which our texts are made."""

Pattern = tuple[int, bytes]
GIVEN: list[Pattern] = [
    *((COARSE, p) for p in (b"aa", b"a-", b"-a-", b"-aa-", b"--", b"-" * 8, b"-" * 16)),
    *((FINE, p) for p in (b"d", b"dd", b"ddd", b"n", b"nn", b"t", b"vc", b"cu", b"du")),
    *((GAPS, p) for p in (b"wp", b"xw")),
]
CANDIDATES: list[Pattern] = [
    *((FINE, bytes([a, b])) for a in b"vczudwntqokhmp" for b in b"vczudwntqokhmp"),
    *((FINE, p) for p in (b"ccc", b"vv", b"cvc", b"wcvc", b"wvc", b"uuu", b"dddd", b"cvccv", b"vccv", b"vcv", b"nwww")),
    *((FINE, bytes([one])) for one in b"vczudwntqokhmp"),
    *(
        (FINE, p)
        for p in (b"ddd", b"www", b"w" * 8, b"w" * 16, b"nww", b"wvw", b"wcw", b"tt", b"kk", b"hhhh", b"h" * 16)
    ),
    *((COARSE, b"a" * n) for n in (2, 3, 4, 6, 8, 12, 16)),
    *((COARSE, b"-" * n) for n in (2, 3, 4, 8, 16, 32)),
    *(
        (COARSE, p)
        for p in (b"-a", b"a-", b"-d", b"d-", b"ad", b"da", b"-a-", b"-aa-", b"-aaa-", b"-aaaa-", b"-aaaaa-")
    ),
    *((GAPS, p) for p in (b"xp", b"px", b"nw", b"wn", b"pn", b"xn", b"pp", b"ppp", b"pppp")),
    *(
        (RAW, s)
        for s in (
            b"th",
            b"in",
            b"er",
            b"e ",
            b"s ",
            b"d ",
            b"tion",
            b"st",
            b" t",
            b" a",
            b"\\n",
            b" =",
            b"\n    ",
            b"    ",
        )
    ),
]
BEYOND: dict[str, list[Pattern]] = {
    "E": [(FINE, b"E"), (FINE, b"EE"), (COARSE, b"aE"), (FINE, b"uE"), (RAW, b"\xc2")],
    "Y": [(FINE, b"Y"), (COARSE, b"-Y"), (COARSE, b"YYYY")],
    "B": [(FINE, b"B"), (COARSE, b"-B"), (FINE, b"BB"), (COARSE, b"BBBB")],
    "I": [(FINE, b"I"), (COARSE, b"-I"), (FINE, b"II"), (COARSE, b"IIII")],
    "S": [
        (FINE, b"S"),
        (FINE, b"SS"),
        (FINE, b"SSSS"),
        (RAW, b"\xe2\x96"),
        (RAW, b"\xe2\x95"),
        (RAW, b"\xe2\x80"),
        (FINE, b"Sw"),
    ],
    "J": [
        (FINE, b"J"),
        (RAW, b"\xe3\x80"),
        (RAW, b"\xe3\x83"),
        (FINE, b"JJ"),
        (FINE, b"JJJ"),
        (FINE, b"JH"),
        (COARSE, b"-J"),
    ],
    "H": [(FINE, b"H"), (COARSE, b"H-"), (COARSE, b"-H"), (RAW, b"\xe4"), (RAW, b"\xe9"), (RAW, b"\xe7\x9a\x84")],
    "K": [
        (FINE, b"K"),
        (COARSE, b"-K"),
        (COARSE, b"KK-"),
        (FINE, b"KKK"),
        (FINE, b"KK"),
        *((RAW, one.encode()) for one in ("니다", "는", "을", "에", "이", "하")),
    ],
    "F": [(FINE, b"F"), (RAW, b"\xef\xbc"), (RAW, b"\xef\xb8\x8f")],
    "M": [(FINE, b"M"), (RAW, b"\xf0\x9f\x98"), (RAW, b"\xf0\x9f\x87")],
}


def main(texts: Path) -> None:
    kinds, pieces = draw(texts)
    encode = Tokenizer.from_pretrained("o200k_base").encode_ordinary
    exact = np.array([MARGIN.get(kind, 1) * len(encode(piece)) for kind, piece in zip(kinds, pieces, strict=True)])
    share = np.array([WEIGHT.get(kind, 1) / kinds.count(kind) ** 0.5 for kind in kinds]) / exact
    beyond = [pattern for patterns in BEYOND.values() for pattern in patterns]
    ascii_only = np.array([piece.isascii() for piece in pieces])
    wanted = list(dict.fromkeys([*GIVEN, *CANDIDATES]))
    counts = counted(wanted, pieces)
    chosen = choose(counts[ascii_only], exact[ascii_only], share[ascii_only])
    matrix = np.hstack([counts[:, chosen], counted(beyond, pieces)])
    weights = ridge(matrix, exact, share)
    report(kinds, matrix @ weights, exact)
    write([wanted[at] for at in chosen], weights)


def draw(texts: Path) -> tuple[list[str], list[str]]:
    """Pieces of every kind, longer files more often, lengths spread over the powers of ten."""
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


def counted(patterns: list[Pattern], pieces: list[str]) -> np.ndarray:
    views = (views_of(piece.encode()) for piece in pieces)
    return np.array([[of[view].count(text) for view, text in patterns] for of in views], float)


def choose(counts: np.ndarray, exact: np.ndarray, share: np.ndarray) -> list[int]:
    """Columns in the order in which each explains most of what is left, those in GIVEN first."""
    rest, error = counts * share[:, None], exact * share
    size = (rest**2).sum(0)
    common = (counts > 0).mean(0) > 0.06
    chosen: list[int] = []
    while len(chosen) < PATTERNS:
        left = (rest**2).sum(0)
        gain = np.where(common & (left > 1e-4 * size), (rest.T @ error) ** 2 / np.maximum(left, 1e-300), -1)
        best = len(chosen) if len(chosen) < len(GIVEN) else int(gain.argmax())
        chosen.append(best)
        axis = rest[:, best] / max(float(np.linalg.norm(rest[:, best])), 1e-300)
        rest = rest - np.outer(axis, axis @ rest)
        error = error - axis * (axis @ error)
    return chosen


def ridge(matrix: np.ndarray, exact: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Weights of least squared relative error; shortfalls weigh more, outliers less."""
    now = share
    for _ in range(8):
        rows = matrix * now[:, None]
        square = rows.T @ rows
        square += np.diag(RIDGE * np.diag(square) + 1e-9)
        weights = np.linalg.solve(square, rows.T @ (exact * now))
        error = matrix @ weights / exact - 1
        outlier = np.sqrt(0.25 / np.maximum(abs(error), 0.25))
        now = share * outlier * np.where(error < -0.05, SHORT**0.5, 1) * np.where(error < -0.12, 1.3, 1)
    return weights


def report(kinds: list[str], estimated: np.ndarray, exact: np.ndarray) -> None:
    names = np.array(kinds)
    print(f"{'kind':14}{'pieces':>8}{'bias':>9}{'error':>8}{'1st %':>8}{'worst':>8}")
    for kind in dict.fromkeys(kinds):
        of = names == kind
        error = estimated[of] / exact[of] - 1
        bias = estimated[of].sum() / exact[of].sum() - 1
        low = np.quantile(error, 0.01)
        print(f"{kind:14}{of.sum():8}{bias:+9.3f}{abs(error).mean():8.3f}{low:+8.3f}{error.min():+8.3f}")


def write(common: list[Pattern], weights: np.ndarray) -> None:
    lines = [
        '"""Weights of the estimator, written by benchmarks/fit_tokens.py: (view, pattern, tokens each)."""',
        "",
        "Weighted = tuple[int, bytes, float]",
        '"""View (0 fine, 1 coarse, 2 gaps, 3 bytes; see refold.tokens.estimate), pattern, tokens."""',
        "",
        "COMMON: tuple[Weighted, ...] = (",
        *(row(pattern, weight) for pattern, weight in zip(common, weights, strict=False)),
        ")",
        '"""What every text is searched for."""',
        "",
        "SCRIPTS: tuple[tuple[bytes, tuple[Weighted, ...]], ...] = (",
    ]
    at = len(common)
    for _, name in LEADS:
        lines += [
            f"    (b{name!r}, (",
            *(row(p, w) for p, w in zip(BEYOND[name], weights[at:], strict=False)),
            "    )),",
        ]
        at += len(BEYOND[name])
    lines += [")", '"""By class of character: what a text that has the class is searched for besides."""', ""]
    OUT.write_text("\n".join(lines), "utf-8")
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", str(OUT)], check=False)


def row(pattern: Pattern, weight: float) -> str:
    return f"    ({pattern[0]}, {pattern[1]!r}, {weight:.4f}),"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
