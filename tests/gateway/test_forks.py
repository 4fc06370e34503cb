"""Forks through a whole gateway: tenant and history decide which edits apply, whatever the session
key (D6)."""

import json
import sqlite3
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold.gateway import Config, Gateway, Pipeline, Settings, Upstream
from refold.gateway.pipeline.turns import AGENT_HEADER, SESSION_HEADERS
from refold.stores import SQLiteStore
from refold.testing.scripted_gateway import Serving
from refold.testing.scripted_provider import Received, Reply, ScriptedProvider
from refold.tokens.model_table import Window
from tests.support.agent_requests import FORMATS, PATHS, entries

MODELS = ("claude-opus-5-5", "m", "g")
BODY_KEYS = {
    "anthropic": lambda key: {"metadata": {"user_id": key}},
    "openai_chat": lambda key: {"prompt_cache_key": key},
    "openai_responses": lambda key: {"prompt_cache_key": key},
    "gemini": lambda _: {},
}
KEYS = st.tuples(
    st.dictionaries(
        st.sampled_from((*SESSION_HEADERS, AGENT_HEADER)),
        st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1),
        max_size=3,
    ),
    st.text(st.characters(codec="ascii"), max_size=8),
)
"""Headers that name a session, and the session field of the body."""
NUMBERS = count()


class Place(NamedTuple):
    """A gateway, its model's requests and its store file."""

    client: httpx.Client
    received: list[Received]
    file: Path

    def send(self, api: str, body: bytes, headers: dict[str, str], tenant: str) -> bytes:
        """Send a request and return what the model received."""
        credentials = {"authorization": f"Bearer {tenant}"}
        answer = self.client.post(PATHS[api], content=body, headers={**headers, **credentials})
        assert answer.status_code == 200, answer.text
        return self.received[-1].body

    def edits(self) -> set[str]:
        """Return the ids of all stored edits."""
        connection = sqlite3.connect(self.file)
        try:
            return {id for (id,) in connection.execute("SELECT id FROM edits")}
        finally:
            connection.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    file = tmp_path_factory.mktemp("forks") / "edits.db"
    windows = dict.fromkeys(MODELS, Window(8_000))
    chosen = Settings(windows=windows, decide_timeout_seconds=60)
    with SQLiteStore(file) as store, ScriptedProvider(lambda _: Reply("Go on.")) as upstream:
        config = Config(
            upstreams=(Upstream(name="up", url=upstream.url),), settings=chosen, salt=b"s"
        )
        with (
            Serving(Gateway(config, Pipeline(chosen, store))) as gateway,
            httpx.Client(base_url=gateway.url, timeout=60) as client,
        ):
            yield Place(client, upstream.received, file)


def other_end(api: str, body: bytes) -> bytes:
    """Return the request with a different last message."""
    value = json.loads(body)
    words = "Try another way."
    entry = {"role": "user", "content": words}
    if api == "gemini":
        entry = {"role": "user", "parts": [{"text": words}]}
    next(value[name] for name in ("messages", "input", "contents") if name in value).append(entry)
    return json.dumps(value).encode()


@pytest.mark.parametrize("api", FORMATS)
@settings(max_examples=8, deadline=None)
@given(parent=KEYS, fork=KEYS, steps=st.integers(24, 32))
def test_d6_law_a_fork_is_sent_like_its_parent_and_tenants_share_no_edits(
    place: Place, api: str, parent, fork, steps: int
) -> None:
    tenant, number = f"key-{next(NUMBERS)}", BODY_KEYS[api]
    before = place.edits()
    first = place.send(api, FORMATS[api](steps, **number(parent[1])), parent[0], tenant)
    own = place.edits() - before
    assert own and len(first) < len(FORMATS[api](steps)), "it was compacted"
    body = other_end(api, FORMATS[api](steps, **number(fork[1])))
    forked = place.send(api, body, fork[0], tenant)
    assert entries(forked)[:-1] == entries(first), "what both share is what the cache has"
    assert place.edits() - before == own, "and nothing was decided anew"
    place.send(api, body, parent[0], f"{tenant}-of-another")
    assert len(place.edits() - before - own) >= 1, "what one tenant decided is no other's"
