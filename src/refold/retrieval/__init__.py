"""Search in hidden messages, also as tools for the agent itself."""

from refold.retrieval.search import Hit, Index, recall
from refold.retrieval.tools import answer_call, recall_tools

__all__ = ["Hit", "Index", "answer_call", "recall", "recall_tools"]
