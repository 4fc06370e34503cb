"""A quiz gives each reader the same number of tokens, under neutral letters, and counts the
points."""

import json

from benchmarks.evidence import quiz
from benchmarks.evidence.policies import REFERENCE

from refold.session_files import demo_session


def test_a_quiz_is_written_in_two_steps_and_scored(tmp_path, capsys):
    body = {"model": "claude-haiku-4-5", "max_tokens": 10, "messages": demo_session(60)}
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "ferry.json").write_text(json.dumps(body), "utf-8")
    place = tmp_path / "out" / "ferry"

    quiz.main(["write", str(tmp_path / "sessions"), str(tmp_path / "out")])
    history = (place / "history.txt").read_text("utf-8")
    before, _, behind = history.partition(quiz.FOLLOWS)
    assert "Seats are sold twice" in before and len(before) > len(behind) > 0
    assert sorted(json.loads((place / "letters.json").read_text("utf-8"))) == ["A", "B"]

    (place / "summary.txt").write_text("Twelve seats, 双倍小时.", "utf-8")
    quiz.main(["write", str(tmp_path / "sessions"), str(tmp_path / "out")])
    letters = json.loads((place / "letters.json").read_text("utf-8"))
    texts = {name: (place / f"{letter}.txt").read_text("utf-8") for letter, name in letters.items()}
    assert set(texts) == set(quiz.POLICIES)
    assert "Never touch anything under migrations/" in texts[REFERENCE]
    assert "Never touch" not in texts["tail"] and before.rstrip().endswith(
        texts["tail"][-200:].strip()
    )
    assert texts["model"].startswith("[summary]\nTwelve seats, 双倍小时.")
    sizes = [len(text) for text in texts.values()]
    assert max(sizes) < 1.25 * min(sizes)

    points = {
        letter: [1, 0.5] if name == REFERENCE else [0, 0.5] for letter, name in letters.items()
    }
    (place / "scores.json").write_text(json.dumps(points), "utf-8")
    quiz.main(["score", str(tmp_path / "out")])
    rows = [line.split("|")[1:3] for line in capsys.readouterr().out.splitlines()[2:]]
    assert [share.strip() for _, share in rows] == ["75.0", "25.0", "25.0"]
