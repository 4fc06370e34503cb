"""Messages that many tests make; a user's are made by `refold.messages.user`."""

from refold.messages import Message, Text


def assistant(text: str = "Done.") -> Message:
    """Return an answer of the model that is this text alone."""
    return Message("assistant", (Text(text),))
