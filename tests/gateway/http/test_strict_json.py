"""Bodies that Python can parse but a provider may refuse are sent unchanged (C22)."""

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold import FormatError, compact
from refold.gateway.pipeline.request_kind import is_strict_json
from refold.strategies import ClearToolResults
from tests.support.agent_requests import chat_request
from tests.support.pipeline_driver import Driver

WHOLE = chat_request(60)
NO_JSON = {
    "NaN": WHOLE[:-1] + b', "temperature": NaN}',
    "Infinity": WHOLE[:-1] + b', "temperature": -Infinity}',
    "NaN in an entry": WHOLE.replace(b'"role": "user"', b'"weight": NaN, "role": "user"', 1),
}
LOOSE = {
    "a byte order mark": b"\xef\xbb\xbf" + WHOLE,
    "bytes that are no UTF-8": WHOLE.replace(b"one two", b"\xff\xfe", 1),
    "half a character in bytes": WHOLE.replace(b"one two", b"\xed\xa0\x80", 1),
    "half a character, escaped": WHOLE.replace(b"one two", b"\\ud83d", 1),
    "a bare line break in a text": WHOLE.replace(b"one two", b"one\ntwo", 1),
    "a NUL": WHOLE.replace(b"one two", b"\0", 1),
}
STRICT = {
    "as it is": WHOLE,
    "indented": json.dumps(json.loads(WHOLE), indent=1).encode(),
    "words and pairs in texts": WHOLE.replace(
        b"one two", b"NaN \\ud83d\\ude00 \\\\ud83d Infinity", 1
    ),
    "Chinese": WHOLE.replace(b"one two", "不要修改".encode(), 1),
}


@pytest.mark.parametrize("name", LOOSE)
def test_c22_a_body_that_is_not_strict_json_is_sent_unchanged(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Bodies that are not strict JSON used to be edited."""
    with Driver() as driver, caplog.at_level(logging.WARNING):
        out = driver(LOOSE[name], "openai_chat")
        assert out.body is LOOSE[name]
        assert (out.outcome, out.reason, out.edits) == ("opaque", "unstrict", ())
        assert driver.count("requests", outcome="opaque", reason="unstrict") == 1
        assert any(
            getattr(record, "fields", {}).get("reason") == "unstrict" for record in caplog.records
        )


@pytest.mark.parametrize("name", NO_JSON)
def test_c22_a_body_with_nan_or_infinity_is_sent_unchanged_and_compact_refuses_it(
    name: str,
) -> None:
    """The library used to edit such texts."""
    with Driver() as driver:
        out = driver(NO_JSON[name], "openai_chat")
        assert out.body is NO_JSON[name]
        assert (out.outcome, out.reason, out.edits) == ("opaque", "unreadable", ())
    with pytest.raises(FormatError, match="is no JSON value"):
        compact(NO_JSON[name], to=3_000)


@pytest.mark.parametrize("name", STRICT)
def test_c22_a_strict_body_is_compacted(name: str) -> None:
    with Driver() as driver:
        assert driver(STRICT[name], "openai_chat").outcome == "edited"


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=9,
)


@given(VALUES, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_c22_law_output_of_json_dumps_without_nan_is_strict(
    value: object, escapes: bool, indent: object
) -> None:
    assert is_strict_json(
        json.dumps(value, ensure_ascii=escapes, indent=indent, allow_nan=False).encode()
    )


@pytest.mark.parametrize("number", ["1e999", "-1E400"])
def test_c22_a_number_too_large_for_python_is_sent_unchanged(number: str) -> None:
    """It is strict JSON, but an edit used to write it as `Infinity`, which is not."""
    body = WHOLE.replace(b'"role": "tool"', b'"role": "tool", "weight": ' + number.encode())
    with Driver(strategies=(ClearToolResults(keep=1),)) as driver:
        out = driver(body, "openai_chat")
        assert out.body is body
        assert (out.outcome, out.reason) == ("opaque", "unreadable")
    with pytest.raises(FormatError, match="larger than Python reads"):
        compact(body, to=3_000)
