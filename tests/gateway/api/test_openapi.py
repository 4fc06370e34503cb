"""The table of operations: its document is valid JSON Schema, and arguments are checked exactly by
it."""

import json
from collections.abc import Iterator
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from refold.gateway.api import OPERATIONS, document
from refold.gateway.api.api_types import ConfigOverrides, ConversationArguments
from refold.gateway.api.app import check, read_arguments, read_query
from refold.gateway.api.context import Problem
from refold.gateway.exchange import APIS
from refold.presets.soft_hard import CompactionConfig

DOCUMENT = document(OPERATIONS)
SCHEMAS = DOCUMENT["components"]["schemas"]
BY_NAME = {operation.name: operation for operation in OPERATIONS}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2_000) | st.floats(allow_nan=False) | st.text(max_size=9) | st.just("0" * 32),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside, max_size=3),
    max_leaves=5,
)  # fmt: skip


def is_allowed(operation, value) -> bool:
    """Return whether the document allows *value* as arguments."""
    schema = {
        "$ref": f"#/components/schemas/{operation.arguments.__name__}",
        "components": DOCUMENT["components"],
    }
    return Draft202012Validator(schema).is_valid(value)


def mistake(operation, value) -> str:
    """Return the gateway's error message about *value*, or an empty string."""
    try:
        check(value, operation.arguments)
    except Problem as problem:
        return problem.message if (problem.status, problem.code) == (400, "bad_request") else ""
    return ""


def field_names(schema) -> Iterator[str]:
    """Return every field name of a schema, at any depth."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for inside in schema.values():
            yield from field_names(inside)
    if isinstance(schema, list):
        for inside in schema:
            yield from field_names(inside)


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_valid_json_schema(name) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])


@given(st.data())
def test_argument_checks_agree_with_a_json_schema_validator(data) -> None:
    """Our checks and a complete validator agree on values of all shapes, with and without valid
    field names."""
    operation = data.draw(st.sampled_from(OPERATIONS))
    keys = st.sampled_from(sorted(set(field_names(SCHEMAS[operation.arguments.__name__]))))
    nested = st.recursive(
        JSON,
        lambda inside: st.dictionaries(keys, inside, max_size=6) | st.lists(inside, max_size=2),
        max_leaves=9,
    )
    value = data.draw(nested)
    assert (not mistake(operation, value)) == is_allowed(operation, value), mistake(
        operation, value
    )


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
@given(data=st.data())
def test_argument_checks_and_json_schema_agree_on_slightly_wrong_examples(operation, data) -> None:
    """Each example of an operation has one random change."""
    value = json.loads(json.dumps(operation.example))
    names = sorted(SCHEMAS[operation.arguments.__name__]["properties"])
    value[data.draw(st.sampled_from([*names, "other"]))] = data.draw(JSON)
    if data.draw(st.booleans()):
        value.pop(data.draw(st.sampled_from(sorted(value))))
    assert (not mistake(operation, value)) == is_allowed(operation, value)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_the_openapi_document_matches_the_operation_table(operation) -> None:
    described = DOCUMENT["paths"][operation.path][operation.method.lower()]
    reference = {"$ref": f"#/components/schemas/{operation.arguments.__name__}"}
    answer = {"$ref": f"#/components/schemas/{operation.answer.__name__}"}
    assert described["operationId"] == operation.name
    assert described["responses"]["200"]["content"]["application/json"]["schema"] == answer
    if operation.method == "POST":
        assert described["requestBody"]["content"]["application/json"]["schema"] == reference
    else:
        names = [parameter["name"] for parameter in described["parameters"]]
        assert names == list(operation.arguments.__struct_encode_fields__)
    assert mistake(operation, operation.example) == "" and is_allowed(operation, operation.example)


def test_all_operations_are_documented_and_every_reference_resolves() -> None:
    commands = {
        "estimate_tokens",
        "estimate_messages_tokens",
        "check_threshold",
        "compact",
    }  # S2-33 to S2-36
    ours = {"preview", "accept", "revert", "sessions", "history", "edit_text", "recall"}
    ours.add("report_usage")
    page = {"overview", "file_rows", "events", "session", "messages", "text", "search"}
    page |= {"preview_parts", "restore", "pin", "unpin"}
    assert set(BY_NAME) == commands | ours | page
    assert len(DOCUMENT["paths"]) == len(OPERATIONS)
    for line in json.dumps(DOCUMENT).split('"$ref": "#/')[1:]:
        place = DOCUMENT
        for step in line.partition('"')[0].split("/"):
            place = place[step]


def test_every_field_of_an_answer_is_required() -> None:
    for operation in OPERATIONS:
        schema = SCHEMAS[operation.answer.__name__]
        assert schema["required"] == list(schema["properties"])


def test_argument_types_match_the_config_fields_and_api_names() -> None:
    """Their types repeat the preset's settings and the names of the four APIs."""
    assert ConfigOverrides.__struct_fields__ == tuple(
        field.name for field in fields(CompactionConfig)
    )
    assert SCHEMAS[ConversationArguments.__name__.replace("Conversation", "Preview")]["properties"][
        "api"
    ]["enum"] == sorted(APIS)


def test_integers_may_be_written_with_a_decimal_point() -> None:
    """JSON Schema accepts 7.0 as an integer."""
    body = b'{"messages": [], "config": {"reserve_tokens": 7.0}}'
    assert read_arguments(body, BY_NAME["check_threshold"].arguments).config.reserve_tokens == 7
    body = b'{"request": {"temperature": 1.0}, "to": 5.0}'
    arguments = read_arguments(body, BY_NAME["preview"].arguments)
    assert arguments.to == 5 and repr(arguments.request) == "{'temperature': 1.0}"
    assert mistake(BY_NAME["preview"], {"request": {}, "to": 7.5})


def test_mistakes_name_the_field_and_what_to_write_instead() -> None:
    preview = {"session": "0" * 32}
    assert mistake(BY_NAME["preview"], preview | {"to": "x"}) == "to: Expected `int`, got `str`"
    assert mistake(BY_NAME["preview"], preview | {"to": -1}) == "to: Expected `int` >= 0"
    assert mistake(BY_NAME["preview"], {}) == "session or request is missing"
    unknown = mistake(BY_NAME["accept"], {"preview": "0" * 32, "x": 1})
    assert unknown == "Object contains unknown field `x`; there are preview, amend, edits, actor"
    edits = mistake(BY_NAME["revert"], preview | {"edits": ["abcd", 5]})
    assert edits == "edits[1]: Expected `str`, got `int`"


@pytest.mark.parametrize(("query", "limit"), [(b"", 100), (b"limit=7", 7), (b"limit=1000", 1_000)])
def test_numbers_in_a_query_string_are_parsed(query: bytes, limit: int) -> None:
    assert read_query(query, BY_NAME["sessions"].arguments).limit == limit


@pytest.mark.parametrize("query", [b"limit=x", b"limit=", b"limit=0", b"limit=1001", b"limit=7.5", b"limit=null", b"limit=true", b"scope=x", b"limit=1&limit=1", b"\xff"])  # fmt: skip
def test_an_invalid_query_string_is_refused(query: bytes) -> None:
    with pytest.raises(Problem):
        read_query(query, BY_NAME["sessions"].arguments)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (rb'{"messages": "\ud83d"}', "half a surrogate"),
        (rb'{"\ud83d": 1}', "half a surrogate"),
        (b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too deep"),
    ],
)
def test_a_body_that_cannot_be_parsed_is_answered_with_400(body: bytes, words: str) -> None:
    with pytest.raises(Problem, match=words) as raised:
        read_arguments(body, BY_NAME["compact"].arguments)
    assert raised.value.status == 400


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"to": 9, "summary": "model"}', "summary: .* there are default, rules"),
        (b'{"to": 9, "strategies": ["x"]}', "there are thinking, results, summary"),
        (b'{"to": 9, "api": "x"}', "there are anthropic, openai_chat"),
    ],
)
def test_an_unknown_enum_value_is_refused_with_the_allowed_values(body: bytes, words: str) -> None:
    with pytest.raises(Problem, match=words):
        read_arguments(body, BY_NAME["preview"].arguments)


def test_lone_surrogates_in_text_are_accepted() -> None:
    """Programs cut texts in the middle of a character, and clients send the result on."""
    assert (
        read_arguments(rb'{"text": "\ud83d"}', BY_NAME["estimate_tokens"].arguments).text
        == "\ud83d"
    )
