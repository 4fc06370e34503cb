"""A scripted provider's answers, whatever the script holds."""

import httpx
import pytest

from refold.stores.store import MemoryStore
from refold.testing import check_store
from refold.testing.scripted_provider import Reply, ScriptedProvider

STREAM = {"model": "m", "messages": [], "stream": True}


def ask(reply: Reply, path: str = "/v1/chat/completions", body: object = None) -> str:
    with ScriptedProvider([reply]) as provider:
        answer = httpx.post(f"{provider.url}{path}", json=body or STREAM)
    return answer.text


def test_a_streamed_text_keeps_the_spaces_that_it_begins_with() -> None:
    text = ask(Reply("    return 1"), "/v1beta/models/m:streamGenerateContent?alt=sse")
    assert '"    "' in text
    assert '"    "' in ask(Reply("    return 1"))


def test_the_reasoning_of_a_chat_completion_is_streamed() -> None:
    text = ask(Reply("Done.", reasoning="Hm, so"))
    assert text.index('"reasoning_content": "so"') < text.index('"content": "Done."')


def test_an_empty_chunk_does_not_end_a_body() -> None:
    assert ask(Reply(body=[b"a", b"", b"b"])) == "ab"


def test_a_stream_of_an_unknown_api_is_an_empty_object() -> None:
    assert ask(Reply("hi"), "/v1/completions") == "{}"


def test_an_error_of_a_store_in_a_thread_reaches_the_author() -> None:
    class Store(MemoryStore):
        def save(self, edits):
            edits = list(edits)
            if len(edits) == 3 and edits[0].tip == "7":  # as the check for threads saves it
                raise LookupError("no room")
            super().save(edits)

    with pytest.raises(LookupError, match="no room"):
        check_store(Store)
