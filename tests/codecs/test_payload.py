"""Payloads are parsed and reassembled without losing a byte (issue 2, section 3)."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold import Budget, Compactor
from refold.codecs.codec import Payload, split_payload
from refold.codecs.detect import open_payload
from refold.codecs.json_text import dump
from refold.errors import FormatError
from refold.messages import Text
from refold.strategies import Summarize

ITEM = '{"role":"user","content":"hi"}'

ODD = {
    "big numbers": f'{{"seed":123456789012345678901234567890,"messages":[{ITEM[:-1]},"n":18446744073709551616123}}]}}',
    "duplicate keys": '{"a":1,"a":2,"messages":[{"role":"user","role":"user","content":"x","content":"y"}]}',
    "float spelling": '{"temperature":1.00,"top_p":1E-2,"messages":[{"role":"user","content":"x","w":0.10e+1}]}',
    "key order": '{"z":1,"messages":[{"content":"x","role":"user"}],"a":2}',
    "escapes": r'{"messages":[{"role":"user","content":"\u0041\/\ud83d\ude00\u00e9"}]}',
    "lone surrogate": r'[{"role":"user","content":"\ud800 alone"}]',
    "odd whitespace": ' \r\n\t{ "messages" :\n[ {"role" : "user" ,\t"content":"x"}\n ,\r\n{"role":"assistant","content":"y"} ] \n} \n',
    "byte order mark": f"\ufeff[{ITEM}]",
    "control characters": '[{"role":"user","content":"a\x01\tb"}]',
    "no entries": '{"messages":[ ]}',
    "no entries, bare": "[ \n]",
    "two conversations": f'{{"input":[1.0],"messages":[{ITEM}],"contents":"c"}}',
    "the field twice": f'{{"messages":[],"messages":[{ITEM}]}}',
}


def whole(envelope: Payload) -> list[slice]:
    return [slice(0, len(envelope))]


@pytest.mark.parametrize("name", ODD)
def test_a_payload_without_changes_is_written_back_byte_for_byte(name: str):
    text = ODD[name]
    envelope = open_payload(text)
    assert envelope.join(whole(envelope)) == text
    binary = text.encode()
    assert open_payload(binary).join(whole(envelope)) == binary
    assert open_payload(bytearray(binary)).join(whole(envelope)) == binary


def test_bytes_that_are_not_utf8_are_kept():
    payload = b'[{"role":"user","content":"caf\xe9 \xff\xfe"},{"role":"assistant","content":"ok"}]'
    envelope = open_payload(payload)
    assert envelope.join(whole(envelope)) == payload
    assert envelope.join([slice(0, 1)]) == payload[: payload.index(b',{"role":"assistant"')] + b"]"
    assert len(envelope.decode()) == 2


def test_an_entry_with_bytes_that_are_not_utf8_can_be_rewritten():
    envelope = open_payload(b'[{"role":"user","content":"\xff"}]')
    sealed = envelope.join([envelope.entry(0)])
    assert json.loads(sealed) == [{"role": "user", "content": "\udcff"}]


@pytest.mark.parametrize("name", ODD)
def test_unchanged_entries_beside_a_new_one_keep_their_bytes(name: str):
    text = ODD[name]
    envelope = open_payload(text)
    new = {"role": "user", "content": "新"}
    sealed = envelope.join([*whole(envelope), new])
    assert sealed.count(dump(new)) == 1
    assert all(wire.spelling in sealed for wire in envelope.raw_entries)
    again = open_payload(sealed)
    assert list(again.iter_entries())[:-1] == list(envelope.iter_entries())
    assert again.body == envelope.body


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize(
    "text", ['[{"role":"user","content":"x","n":%s}]', '{"top_p":%s,"messages":[]}', "[%s]"]
)
def test_c22_nan_and_infinity_are_refused_with_a_clear_error(text: str, constant: str):
    """They were once read and written again: edited entries were sent as invalid JSON, which
    providers refuse."""
    for source in (text % constant, (text % constant).encode(), "\ufeff" + text % constant):
        with pytest.raises(FormatError, match=f"{constant} is no JSON value"):
            open_payload(source)


def test_c22_a_text_may_contain_the_words_nan_and_infinity():
    text = '[{"role":"user","content":"NaN, Infinity"}]'
    assert open_payload(text).entry(0) == {"role": "user", "content": "NaN, Infinity"}


def test_whitespace_between_adjacent_entries_is_kept():
    text = '[ {"role":"user","content":"a"}  ,\n {"role":"assistant","content":"b"} , {"role":"user","content":"c"} ]'
    sealed = open_payload(text).join([slice(0, 2)])
    assert sealed == '[{"role":"user","content":"a"}  ,\n {"role":"assistant","content":"b"}]'


def test_unchanged_entries_stay_the_same_python_objects():
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    sealed = open_payload(messages).join([slice(0, 2)])
    assert all(entry is message for entry, message in zip(sealed, messages, strict=True))
    body = {"model": "m", "messages": messages, "x": {"y": 1}}
    out = open_payload(body).join([slice(0, 1)])
    assert out == {**body, "messages": messages[:1]}
    assert list(out) == list(body)
    assert out["messages"][0] is messages[0]
    assert out["x"] is body["x"]


@pytest.mark.parametrize("payload", ['{"input": "hi", "model":"m"}', {"input": "hi", "model": "m"}])
def test_a_responses_input_that_is_a_string_is_a_conversation(payload: object):
    envelope = open_payload(payload)
    assert envelope.codec.NAME == "openai_responses"
    assert envelope.decode()[0].parts == (Text("hi"),)
    assert envelope.join([slice(0, 1)]) == payload
    longer = envelope.join([slice(0, 1), {"role": "user", "content": "x"}])
    body = json.loads(longer) if isinstance(longer, str) else longer
    assert body["input"] == ["hi", {"role": "user", "content": "x"}]


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "nonsense", "{", "[", "[}", "{]", '{"messages"', '{"messages":', '{"messages":[', '{"messages":[1', "[1 2]",
        '{"messages":[],}', "[{},]", '{"messages":[]} x', '{"messages" []}', "{1:2}", '{"messages":[]', '"text"', "3", "null",
        "[" * 100_000, '{"messages":[' + '{"a":' * 100_000, "[" + "9" * 5_000 + "]",
    ],
)  # fmt: skip
def test_malformed_json_is_reported_as_such(text: str):
    with pytest.raises(FormatError, match=r"malformed JSON|a payload is|a number|null"):
        open_payload(text)


@pytest.mark.parametrize(
    "payload",
    [None, 3, object(), {}, {"prompt": "x"}, {"messages": 3}, {"messages": None}, '{"input":{}}'],
)
def test_a_payload_without_a_conversation_is_refused(payload: object):
    with pytest.raises(FormatError):
        split_payload(payload)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
SPACE = st.text(" \n\r\t", max_size=3)


@given(
    st.lists(JSON, max_size=6),
    st.booleans(),
    SPACE,
    SPACE,
    st.sampled_from(["", "messages", "contents", "input"]),
)
def test_any_json_is_split_and_joined_without_loss(
    items: list, ascii_only: bool, before: str, after: str, field: str
):
    entries = (after + "," + before).join(
        json.dumps(item, ensure_ascii=ascii_only) for item in items
    )
    array = f"[{before}{entries}{after}]"
    text = (
        before
        + (f'{{"a":[1.50,{{}}],"{field}"{after}:{array},"b":1e3}}' if field else array)
        + after
    )
    payload = split_payload(text)
    count = len(payload)
    assert payload.rebuild([slice(at, at + 1) for at in range(count)]) == text
    assert [entry.load() for entry in payload.raw_entries] == json.loads(json.dumps(items))
    shorter = split_payload(payload.rebuild([slice(1, count)] if count else []))
    assert list(shorter.raw_entries) == payload.raw_entries[1:]


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_round_trip_or_are_refused(junk: bytes):
    for payload in (
        junk,
        b"[" + junk,
        b'{"messages":[' + junk,
        b'{"messages":[{"role":"user","content":"' + junk + b'"}]}',
    ):
        try:
            envelope = open_payload(payload)
        except FormatError:
            continue
        assert envelope.join(whole(envelope)) == payload


class CountedReads(Sequence[Any]):
    """A list that counts the reads of each entry."""

    def __init__(self, entries: list[Any]) -> None:
        self.entries, self.reads = entries, Counter[int]()

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: Any) -> Any:
        self.reads[index] += 1
        return self.entries[index]


def test_entries_of_a_named_format_are_read_only_once_to_decode_them() -> None:
    """Issue 11, section 3: entries are read only to decode them, not to detect the format. The
    first is also read to see whether it is a system prompt."""
    entries = CountedReads([{"role": "user", "content": f"{n}"} for n in range(50)])
    assert len(open_payload(entries, "anthropic").decode()) == 50
    assert entries.reads == Counter({0: 2, **dict.fromkeys(range(1, 50), 1)})


CALLS = [
    {"role": "user", "parts": [{"text": "look"}]},
    {"role": "model", "parts": [{"functionCall": {"name": "a", "args": {}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "a", "response": {}}}]},
    {"role": "model", "parts": [{"functionCall": {"name": n, "args": {}}} for n in ("a", "b")]},
    {"role": "user", "parts": [{"functionResponse": {"name": "b", "response": {}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "a", "response": {}}}]},
]
"""Calls without ids: the messages before a result tell which call it answers."""


class Uncopied(Sequence[Any]):
    """A sequence that can be read from its end but not iterated."""

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: Any) -> Any:
        return self._items[index]

    def __iter__(self) -> Any:
        raise AssertionError("all of it was gone through")


@pytest.mark.parametrize("start", range(len(CALLS) + 1))
def test_added_entries_are_decoded_without_copying_the_earlier_messages(start: int):
    payload = open_payload(CALLS)
    messages = payload.decode()
    assert payload.decode(start, Uncopied(messages[:start])) == messages[start:]


def test_a_codec_is_given_all_earlier_messages_as_one_sequence():
    payload, seen = open_payload(CALLS), list[Sequence[Any]]()

    class Codec:
        NAME, FIELD = "mine", "contents"

        def decode(self, item: Any, prior: Sequence[Any]) -> Any:
            seen.append([list(prior), prior[-1], prior[-3:-1], prior[1:], len(prior)])
            with pytest.raises(IndexError):
                prior[len(prior)]
            return payload.codec.decode(item, prior)

    messages = payload.decode()
    payload.read_by(Codec(), 0).decode(3, messages[:3])  # type: ignore[arg-type]
    wanted = [messages[:n] for n in range(3, len(messages))]
    assert seen == [[m, m[-1], m[-3:-1], m[1:], len(m)] for m in wanted]


@pytest.mark.parametrize("reasoning", ["Hm.", None])
@pytest.mark.parametrize("as_text", [False, True])
def test_ds_1_turns_written_by_refold_have_a_reasoning_field_if_the_models_have(
    reasoning: str | None, *, as_text: bool
):
    """DeepSeek once refused the answer beside a summary, and *Understood*, because they had no
    reasoning."""
    own = {} if reasoning is None else {"reasoning_content": reasoning}
    history: list[Any] = []
    for n in range(20):
        history += [
            {"role": "user", "content": f"Part {n}? " + "Why so? " * 60},
            {"role": "assistant", "content": f"Part {n} is sound. " + "Because. " * 60, **own},
        ]
    history.append({"role": "user", "content": "Go on."})
    sent = json.dumps(history) if as_text else history
    strategies = [Summarize(keep=1, place="acknowledged")]
    compact = Compactor(strategies, Budget(1_000, 500), model="deepseek-v4")
    shown = compact(sent).payload
    turns = [m for m in (json.loads(shown) if as_text else shown) if m["role"] == "assistant"]
    assert [turn.get("reasoning_content") for turn in turns] == [reasoning and ""]
