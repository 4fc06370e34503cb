"""Paths and line numbers in what calls and results say."""

import json

from refold.messages import ToolCall
from refold.text.plain import path_of


def test_the_path_of_a_call_is_in_the_first_argument_that_is_not_empty():
    arguments = {"file_path": "", "path": "a.py", "filePath": 3}
    assert path_of(ToolCall("c1", "read", json.dumps(arguments))) == "a.py"
    assert path_of(ToolCall("c1", "read", '{"file_path": "", "path": null}')) == ""
