"""Search what edits have hidden, also as tools for the agent itself."""

from refold.retrieval.index import Index
from refold.retrieval.search import Hit, recall
from refold.retrieval.tools import answer_call, recall_tools

__all__ = ["Hit", "Index", "answer_call", "recall", "recall_tools"]
