"""A history as a question without tools: calls and results as text (S3-23)."""

from collections.abc import Sequence

from refold.messages import Message, Text, user
from refold.strategy import Ask
from refold.summarizers.model.record import DETAILS, elements
from refold.summary import CONTINUE


def as_ask(messages: Sequence[Message], head: int, max_tokens: int) -> Ask:
    """The question that *messages* are, of which the first *head* are the system prompt: the last one is
    the prompt if it is a user's, else the user asks to go on."""
    system = "\n\n".join(message.text for message in messages[:head])
    turns = [as_text(message) for message in messages[head:]]
    turns = [message for message in turns if message.text.strip()]
    last = turns.pop() if turns and turns[-1].role == "user" else user(CONTINUE)
    return Ask(last.text, max_tokens, "request", system, tuple(turns))


def as_text(message: Message) -> Message:
    """A message as text alone, in the role of the user or the assistant."""
    if not message.calls and not message.results and message.role in ("user", "assistant"):
        return Message(message.role, (Text(message.text),))
    told = "\n".join(element.render() for element in elements([(0, message)], DETAILS[0]))
    return Message("assistant" if message.role == "assistant" else "user", (Text(told),))
