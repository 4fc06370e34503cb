"""Output caps in a request: read, lowered and written in place."""

import pytest

from refold.gateway.pipeline.request_kind import Cap, lower_caps, read_cap, write_caps


def test_max_tokens_is_lowered_in_its_own_field_and_nowhere_else():
    source = b'\xef\xbb\xbf{ "max_tokens" : 5, "m": {"max_tokens": 7}, "max_tokens":32000 ,"x":"\xc3\xa9\\"max_tokens\\": 1"}'
    assert write_caps(source, [Cap(("max_tokens",), 99)]) == source.replace(b"32000", b"99")
    nested = b'{"generationConfig":{"a":[1,2],"maxOutputTokens":8000},"contents":[]}'
    assert write_caps(nested, [Cap(("generationConfig", "maxOutputTokens"), 99)]) == nested.replace(
        b"8000", b"99"
    )
    with pytest.raises(ValueError, match="no field"):
        write_caps(b'{"a": 1}', [Cap(("max_tokens",), 99)])


def test_max_tokens_that_fits_or_cannot_be_made_to_fit_is_left_unchanged():
    body = {"max_tokens": 1_500}
    assert lower_caps("anthropic", body, 5_000) == ()
    assert lower_caps("anthropic", body, 500) == ()  # too few tokens for an answer
    assert lower_caps("anthropic", body, 1_100) == (Cap(("max_tokens",), 1_100),)
    thinking = {"max_tokens": 9_000, "thinking": {"type": "enabled", "budget_tokens": 4_000}}
    assert lower_caps("anthropic", thinking, 6_000) == (Cap(("max_tokens",), 6_000),)
    assert lower_caps("anthropic", thinking, 4_000) == ()  # fewer than the thinking budget


@pytest.mark.parametrize("value", [None, True, "8", -1, 1.5, {}])
def test_max_tokens_that_is_not_a_positive_integer_is_ignored(value: object):
    assert read_cap("anthropic", {"max_tokens": value}) is None
    assert read_cap("gemini", {"generationConfig": value}) is None
    assert read_cap("", {"max_tokens": 5}) is None
