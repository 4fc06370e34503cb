"""A session as test data."""

import json

import pytest

from refold.session_files import demo_session


@pytest.fixture(scope="module")
def history():
    return demo_session(26)


@pytest.fixture
def file(tmp_path, history):
    path = tmp_path / "session.json"
    path.write_text(json.dumps(history, ensure_ascii=False), "utf-8")
    return path
