"""Secrets in the forms that people and programs write them, and what only looks like one."""

import pytest

from refold import Message, Text, View
from refold.memory import ModelExtractor, redact


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ('my password is "correct horse battery"', 'my password is "[redacted]"'),
        ("passphrase: 'correct horse' # new", "passphrase: '[redacted]' # new"),
        ('{"password": "x y, z", "user": "bob"}', '{"password": "[redacted]", "user": "bob"}'),
        ("postgres://app:p@ss@word@db/x", "postgres://app:[redacted]@db/x"),
        ("dbPassword=hunter22", "dbPassword=[redacted]"),
        ("pin: 4096, password: 128000", "pin: [redacted], password: [redacted]"),
        ("your token: 123456", "your token: [redacted]"),
        ("MAX_TOKEN=hunter22secret", "MAX_TOKEN=[redacted]"),
        ('{"userToken": "abc123"}', '{"userToken": "[redacted]"}'),
    ],
)
def test_nothing_of_a_secret_is_left(text: str, clean: str) -> None:
    assert redact(text) == clean
    assert redact(clean) == clean


@pytest.mark.parametrize(
    "text",
    [
        "Use Basic authentication for the API.",
        "Bearer authentication, not cookies",
        "drop pk_user_id_foreign_key_constraint",
        "pip install sk-learn-contrib-imbalanced",
        "The passport office",
        "max_token: 4096",
        '{"maxToken":128000}',
    ],
)
def test_names_and_words_are_not_redacted(text: str) -> None:
    assert redact(text) == text


def test_no_piece_is_longer_than_its_limit_though_angle_brackets_are_escaped() -> None:
    messages = [Message("user", (Text("<p>" * 2_000),)) for _ in range(3)]
    steps = ModelExtractor(piece_chars=1_000)(View.of(messages), [0, 1, 2])
    ask, records = next(steps), list[str]()
    try:
        while True:
            records.append(ask.prompt.partition("<record>\n")[2].partition("\n</record>")[0])
            ask = steps.send(None)
    except StopIteration:
        pass
    assert len(records) == 3
    assert max(map(len, records)) <= 1_000
