"""LangChain's messages as its users and its packages for providers write them."""

import pytest
from langchain_core.messages import AIMessage

from refold import Budget, Compactor
from refold.adapters import langchain
from refold.adapters.langchain import usage_of
from refold.strategies import Summarize
from refold.tokens.usage import Usage


@pytest.mark.parametrize("head", [("system", "Be brief."), {"role": "system", "content": "."}])
def test_a_leading_system_message_stays_first_as_a_pair_or_dict_too(head):
    history = [head, *(("human", "words " * 90), ("ai", "words " * 90)) * 20, ("human", "And?")]
    view = Compactor([Summarize(keep=4)], Budget(3_000, 1_500), format=langchain)(history)
    assert len(view.payload) < 20
    assert view.payload[0] is head


COUNTS = {"input_tokens": 1_010, "output_tokens": 5, "total_tokens": 1_015}


def test_tokens_written_to_a_cache_are_counted_by_duration_as_anthropics_package_reports_them():
    details = {
        "cache_read": 100,
        "cache_creation": 0,
        "ephemeral_5m_input_tokens": 700,
        "ephemeral_1h_input_tokens": 200,
    }
    answer = AIMessage("", usage_metadata={**COUNTS, "input_token_details": details})
    assert usage_of(answer) == Usage(1_010, 5, cached=100, written=900, hour=200)
    answer = AIMessage("", usage_metadata={**COUNTS, "input_token_details": {"cache_creation": 9}})
    assert usage_of(answer) == Usage(1_010, 5, written=9)
