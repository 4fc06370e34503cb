"""Tokens of messages and their parts."""

from refold.messages import Message


def count_message(message: Message) -> int:
    return len(repr(message.parts)) // 4 + 4
