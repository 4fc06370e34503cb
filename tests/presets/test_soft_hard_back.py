"""Reverting in the seed's own flow (F9): a chat that continues with the compacted list, over JSON,
still has previews, a history and revert."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.presets.in_place import Conversations
from refold.presets.soft_hard import CompactionConfig, SoftHardCompactor
from refold.presets.soft_hard_commands import ChatStore, CommandError, CompactorClient, Dispatcher

SMALL = CompactionConfig(600, 1_200, 300, keep_recent_messages=4, summary_max_tokens=200)


def talk(pairs: int, start: int = 0, owner: str = "") -> list[dict]:
    return [
        message
        for n in range(start, start + pairs)
        for message in (
            {"role": "user", "content": f"{owner}第{n}步怎么做？" + "细节" * 20},
            {"role": "assistant", "content": f"建议执行方案{n}。" + "说明" * 30},
        )
    ]


def client(desk: SoftHardCompactor | None = None) -> CompactorClient:
    """Return a client over a transport of JSON alone."""
    dispatcher = Dispatcher(desk or SoftHardCompactor(SMALL))

    def carry(request: dict) -> dict:
        return json.loads(json.dumps(dispatcher.call(json.loads(json.dumps(request)))))

    return CompactorClient(carry)


async def fill(chat: ChatStore, messages: list[dict]) -> int:
    """Return how often adding *messages* compacted the chat."""
    return sum([await chat.add(message) is not None for message in messages])


def test_f9_a_compacted_chat_has_a_history_and_can_be_reverted():
    """S2-53: after `setMessages(result.compacted_messages)` the history used to be empty, and
    `revert` did nothing."""

    async def main() -> None:
        chat = ChatStore(client(), "agent")
        assert await fill(chat, talk(20)) >= 2
        assert len(chat.messages) < 15
        rows = await chat.history()
        assert [(row.action, row.outcome) for row in rows] == [("compact", "applied")] * len(rows)
        assert len(rows) >= 2
        assert rows[0].after < rows[0].before
        assert await chat.revert() == chat.messages == talk(20)
        assert {row.action for row in await chat.history()} == {"compact", "revert"}
        assert len((await chat.compact()).compacted_messages) < 15
        assert await chat.revert() == talk(20)

    asyncio.run(main())


def test_f9_the_latest_compaction_can_be_reverted_alone():
    """S2-53: messages hidden by an earlier one stay hidden."""

    async def main() -> None:
        chat = ChatStore(client(), "agent", messages=talk(12))
        await chat.compact()
        first = list(chat.messages)
        chat.messages += talk(8, start=12)
        await chat.compact()
        latest = (await chat.history())[-1]
        assert await chat.revert(latest.edit or "") == [*first, *talk(8, start=12)]

    asyncio.run(main())


def test_a_preview_can_still_be_accepted_after_a_summary_that_is_no_text():
    """S2-51: such a request used to raise, and the preview was gone."""
    dispatcher = Dispatcher(SoftHardCompactor(SMALL))

    def call(command: str, **arguments: object) -> dict:
        return dispatcher.call({"command": f"compactor_{command}", "arguments": arguments})

    preview = call("preview", messages=talk(12), agent_id="a")["result"]
    texts = dict.fromkeys(preview["summaries"], 5)
    refusal = call("accept", preview_id=preview["preview_id"], summaries=texts)
    assert refusal["error"]["code"] == "bad_arguments"
    accepted = call("accept", preview_id=preview["preview_id"])["result"]
    assert accepted["compacted_messages"] == preview["compacted_messages"]


def test_messages_added_between_two_compactions_at_a_time_are_not_lost():
    """The second one used to replace what had been added after the first."""
    dispatcher, requests = Dispatcher(SoftHardCompactor(SMALL)), []

    async def main() -> None:
        is_added = asyncio.Event()

        async def carry(request: dict) -> dict:
            requests.append(request)
            await (is_added.wait() if len(requests) == 2 else asyncio.sleep(0))
            return dispatcher.call(request)

        chat = ChatStore(CompactorClient(carry), "agent", messages=talk(12))
        first, second = asyncio.create_task(chat.compact()), asyncio.create_task(chat.compact())
        await first
        chat.messages += talk(1, start=12)
        is_added.set()
        await second
        assert await chat.revert() == talk(13)

    asyncio.run(main())


def test_f9_the_next_compaction_of_a_compacted_chat_can_be_previewed_and_edited():
    """S2-47 S2-51: the preview is of the compacted list, and what is accepted is exactly the
    preview with the user's edits."""

    async def main() -> None:
        chat = ChatStore(client(), "agent", messages=talk(12))
        await chat.compact()
        chat.messages += talk(8, start=12)
        before = list(chat.messages)
        preview = await chat.preview({"keep_recent_messages": 2})
        assert chat.messages == before
        assert preview.original_count == len(before)
        assert preview.tokens_after_compaction < preview.tokens_before_compaction
        ((edit, text),) = preview.summaries.items()
        late = {"role": "user", "content": "还有一件事。"}
        chat.messages.append(late)
        result = await chat.accept(preview, {edit: text + "\n端口: 8443"})
        assert result.summary.endswith("端口: 8443")
        assert chat.messages == [*result.compacted_messages, late]
        assert len(chat.messages) == 4
        with pytest.raises(CommandError, match="others than those"):
            await chat.accept(preview)
        assert await chat.revert() == [*talk(20), late]

    asyncio.run(main())


def test_f9_a_preview_can_be_accepted_once_and_only_with_valid_edits():
    """S2-51: after an invalid edit the preview is still pending."""

    async def main() -> None:
        compactor = client()
        preview = await compactor.preview(talk(12), "agent", "talk")
        with pytest.raises(CommandError, match="no edit of this view"):
            await compactor.accept(preview.preview_id, {"0000": "?"})
        assert (await compactor.accept(preview.preview_id)).summary
        with pytest.raises(CommandError, match="no preview"):
            await compactor.accept(preview.preview_id)

    asyncio.run(main())


def test_f9_reverting_an_unknown_compaction_raises_a_command_error():
    """S2-53: after a restart, without a conversation id, under another one, and if nothing was
    compacted."""

    async def main() -> None:
        compactor = client()
        shown = (await compactor.compact(talk(12), "agent", "talk")).compacted_messages
        assert await compactor.revert(shown, agent_id="agent", conversation_id="talk") == talk(12)
        shown = (await compactor.compact(talk(12), "agent", "talk")).compacted_messages
        for caller, agent, name in (
            (client(), "agent", "talk"),
            (compactor, "agent", None),
            (compactor, "b", "talk"),
        ):
            with pytest.raises(CommandError, match="no compaction of these messages is known"):
                await caller.revert(shown, agent_id=agent, conversation_id=name)
        with pytest.raises(CommandError, match="no compaction of these messages is known"):
            await ChatStore(compactor, "agent", messages=talk(2)).revert()

    asyncio.run(main())


def test_f9_the_least_recently_compacted_conversation_is_forgotten_first():
    """Reverting it raises an error that says so. A finished conversation can be forgotten
    explicitly."""

    async def main() -> None:
        conversations = Conversations(most=2)
        compactor = client(SoftHardCompactor(SMALL, conversations=conversations))
        shown = [
            (await compactor.compact(talk(12), "agent", name)).compacted_messages for name in "abc"
        ]
        with pytest.raises(CommandError, match="no compaction of these messages is known"):
            await compactor.revert(shown[0], agent_id="agent", conversation_id="a")
        assert await compactor.revert(shown[1], agent_id="agent", conversation_id="b") == talk(12)
        conversations.forget(("agent", "c"))
        with pytest.raises(CommandError, match="no compaction of these messages is known"):
            await compactor.revert(shown[2], agent_id="agent", conversation_id="c")

    asyncio.run(main())


def test_f9_a_message_added_during_a_compaction_is_kept():
    """Its answer arrives while the compaction runs elsewhere."""

    async def main() -> None:
        dispatcher, late = (
            Dispatcher(SoftHardCompactor(SMALL)),
            {"role": "user", "content": "等一下。"},
        )

        async def slow(request: dict) -> dict:
            if request["command"] == "compactor_compact":
                chat.messages.append(late)
            return dispatcher.call(request)

        chat = ChatStore(CompactorClient(slow), "agent", messages=talk(12))
        await chat.compact()
        assert chat.messages[-1] == late
        assert await chat.revert() == [*talk(12), late]

    asyncio.run(main())


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["say", "compact", "revert", "pop"])),
        max_size=24,
    )
)
def test_f9_chats_never_mix_whatever_they_have_in_common(steps):
    """Law (F2): chats of one agent with equal beginnings and ends are reverted separately."""

    async def main() -> None:
        compactor = client()
        chats = [ChatStore(compactor, "agent") for _ in range(4)]
        originals: list[list[dict]] = [[] for _ in chats]
        for n, (owner, action) in enumerate(steps):
            chat = chats[owner]
            if action == "say":
                new = [*talk(3), *talk(2, owner=f"owner {owner}, "), *talk(3, start=n % 3)]
                chat.messages += new
                originals[owner] += new
            elif action == "compact":
                await chat.compact({"keep_recent_messages": 2})
            elif action == "revert" and chat.messages != originals[owner]:
                assert await chat.revert() == originals[owner]
            elif (
                action == "revert" and await chat.history()
            ):  # everything is restored: nothing is left to revert
                with pytest.raises(CommandError, match="no compaction of these messages is known"):
                    await chat.revert()
            elif action == "pop" and chat.messages == originals[owner] and originals[owner]:
                del chat.messages[-1], originals[owner][-1]
            assert not any(
                f"owner {stranger}," in str(chat.messages)
                for stranger in range(4)
                if stranger != owner
            )
        for chat, all_of_it in zip(chats, originals, strict=True):
            if len(chat.messages) < len(all_of_it):
                assert await chat.revert() == all_of_it

    asyncio.run(main())


def test_f26_a_request_kept_after_the_summary_counts_as_retained():
    """S2-18: a request that moves behind the summary was not counted, so the count was one too
    low."""
    call = {"id": "c", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    history = [*talk(6), {"role": "user", "content": "列出文件，" * 30}]
    for n in range(6):
        history.append(
            {"role": "assistant", "content": None, "tool_calls": [call | {"id": f"c{n}"}]}
        )
        history.append({"role": "tool", "tool_call_id": f"c{n}", "content": "a.py " * 60})
    result = SoftHardCompactor(SMALL).compact(history, config={"keep_recent_messages": 3})
    retained = [message for message in result.compacted_messages if message in history]
    assert history[12] in retained
    assert result.retained_count == len(retained)
