"""The middleware in LangChain's own agent loop: the model is sent the view, the state keeps every message."""

import asyncio

import pytest

pytest.importorskip("langchain.agents", reason="could not import 'langchain'")

from langchain.agents import create_agent
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from refold import Budget, Compactor, SQLiteStore, check
from refold.adapters import langchain
from refold.adapters.langchain_agents import RefoldMiddleware

THREAD = {"configurable": {"thread_id": "1"}}


def length(messages):
    return sum(len(message.text) for message in messages)


class Model(GenericFakeChatModel):
    """A model that notes what it is sent, and refuses more than *most* characters."""

    sent: list
    most: int = 10**6

    def _generate(self, messages, *arguments, **options):
        self.sent.append(messages)
        if length(messages) > self.most:
            raise ContextOverflowError("prompt is too long")
        return super()._generate(messages, *arguments, **options)


def history(rounds: int):
    messages = [HumanMessage("Mend the build.")]
    for n in range(rounds):
        call = {"id": f"c{n}", "name": "make", "args": {"target": f"part{n}"}}
        messages.append(AIMessage("", tool_calls=[call]))
        messages.append(ToolMessage(f"line {n} of output\n" * 60, tool_call_id=f"c{n}"))
    return messages


def make_agent(place, model, saver, budget=None):
    store = SQLiteStore(place / "edits.db")
    compactor = Compactor(budget=budget or Budget(3_000, 1_500), store=store, format=langchain)
    middleware = [RefoldMiddleware(compactor)]
    return create_agent(
        model, [], system_prompt="Be brief.", middleware=middleware, checkpointer=saver
    )


def test_the_view_is_sent_and_the_state_keeps_all_messages_after_a_restart(tmp_path) -> None:
    saver, model = (
        InMemorySaver(),
        Model(messages=iter(map(AIMessage, ("Done.", "That too."))), sent=[]),
    )
    state = make_agent(tmp_path, model, saver).invoke({"messages": history(20)}, THREAD)
    assert len(state["messages"]) == 42
    (first,) = model.sent
    assert first[0].text == "Be brief." and len(first) < 12
    later = make_agent(tmp_path, model, saver)  # another process's: its edits are in the store
    question = {"messages": [HumanMessage("And now the last part.")]}
    state = asyncio.run(later.ainvoke(question, THREAD))
    assert len(state["messages"]) == 44
    assert model.sent[1][: len(first)] == first
    assert all(check(messages, langchain) == () for messages in model.sent)


def test_a_request_that_is_too_long_for_the_model_is_retried_with_a_smaller_view(tmp_path) -> None:
    model = Model(messages=iter([AIMessage("Done.")]), sent=[], most=15_000)
    agent = make_agent(tmp_path, model, InMemorySaver(), Budget(100_000, 50_000))
    state = agent.invoke({"messages": history(20)}, THREAD)
    assert [length(messages) > 15_000 for messages in model.sent] == [True, False]
    assert len(state["messages"]) == 42


def test_the_name_of_a_bedrock_model_gives_its_window_and_prices() -> None:
    class BedrockModel(Model):
        model_id: str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"

    model = BedrockModel(messages=iter([AIMessage("Done.")]), sent=[])
    agent = create_agent(model, [], middleware=[RefoldMiddleware()])
    agent.invoke({"messages": history(300)})
    assert len(model.sent[0]) < 600  # without a model's name nothing is compacted


@pytest.mark.parametrize("is_async", [False, True])
def test_a_model_that_cannot_be_read_does_not_stop_the_agent(caplog, is_async) -> None:
    class RenamedModel(Model):
        @property
        def model_id(self):
            raise RuntimeError("renamed to name")

    model = RenamedModel(messages=iter([AIMessage("Done.")]), sent=[])
    agent = create_agent(model, [], middleware=[RefoldMiddleware()])
    state = {"messages": history(3)}
    asyncio.run(agent.ainvoke(state)) if is_async else agent.invoke(state)
    assert len(model.sent[0]) == 7
    assert "the request is sent as it came: RuntimeError: renamed to name" in caplog.text
