"""The table of operations: what its document says is JSON Schema, and what is checked is what it says."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from refold.gateway.api import OPERATIONS
from refold.gateway.api.json_schema import mistake, plain
from refold.gateway.api.openapi import ERROR, document

DOCUMENT = document(OPERATIONS)
SCHEMAS = [schema for one in OPERATIONS for schema in (one.takes, one.gives)] + [ERROR]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2_000) | st.floats(allow_nan=False) | st.text(max_size=9) | st.just("0" * 32),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside, max_size=3),
    max_leaves=5,
)  # fmt: skip


def names(schema) -> Iterator[str]:
    """Every field that a schema knows, at any depth."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for inside in schema.values():
            yield from names(inside)
    if isinstance(schema, list):
        for inside in schema:
            yield from names(inside)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_schema_is_one(schema) -> None:
    Draft202012Validator.check_schema(schema)


@given(st.data())
def test_what_is_checked_is_what_json_schema_means(data) -> None:
    """Our checks and a whole validator agree on values of all shapes, fields of the right names among them."""
    schema = data.draw(st.sampled_from(SCHEMAS))
    known = sorted(set(names(schema)))
    keys = st.sampled_from(known) if known else st.text(max_size=3)
    nested = st.recursive(
        JSON, lambda inside: st.dictionaries(keys, inside, max_size=6) | st.lists(inside, max_size=2), max_leaves=9
    )
    value = data.draw(nested)
    assert (not mistake(schema, value)) == Draft202012Validator(schema).is_valid(value), mistake(schema, value)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
@given(data=st.data())
def test_near_misses_are_judged_alike(operation, data) -> None:
    """The example of an operation with one thing changed, somewhere."""
    value = json.loads(json.dumps(dict(operation.example)))
    names = sorted(operation.takes["properties"])
    value[data.draw(st.sampled_from([*names, "other"]))] = data.draw(JSON)
    if data.draw(st.booleans()):
        value.pop(data.draw(st.sampled_from(sorted(value))))
    assert (not mistake(operation.takes, value)) == Draft202012Validator(operation.takes).is_valid(value)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_the_document_says_of_each_operation_what_the_table_says(operation) -> None:
    found = DOCUMENT["paths"][operation.path][operation.method.lower()]
    assert found["operationId"] == operation.name
    assert found["responses"]["200"]["content"]["application/json"]["schema"] == operation.gives
    if operation.method == "POST":
        assert found["requestBody"]["content"]["application/json"]["schema"] == operation.takes
    else:
        assert [one["name"] for one in found["parameters"]] == list(operation.takes["properties"])
    assert mistake(operation.takes, dict(operation.example)) == ""


def test_there_are_twelve_operations_and_every_reference_leads_somewhere() -> None:
    commands = {"estimate_tokens", "estimate_messages_tokens", "check_threshold", "compact"}  # S2-33 to S2-36
    ours = {"preview", "accept", "revert", "sessions", "totals", "history", "words", "recall"}
    assert {one.name for one in OPERATIONS} == commands | ours
    assert len(DOCUMENT["paths"]) == len(OPERATIONS)
    for line in json.dumps(DOCUMENT).split('"$ref": "#/')[1:]:
        place = DOCUMENT
        for step in line.partition('"')[0].split("/"):
            place = place[step]


def test_whole_numbers_may_be_spelt_with_a_point() -> None:
    schema = {"type": "object", "properties": {"limit": {"type": "integer"}, "x": {"type": "number"}}}
    assert mistake(schema, {"limit": 7.0, "x": 1.0}) == "" and mistake(schema, {"limit": 7.5}) != ""
    assert repr(plain(schema, {"limit": 7.0, "x": 1.0, "other": 2.0})) == "{'limit': 7, 'x': 1.0, 'other': 2.0}"


def test_a_keyword_that_nobody_checks_is_no_keyword() -> None:
    with pytest.raises(KeyError):
        mistake({"multipleOf": 2}, 3)
