"""Bringing back what edits have hidden: search, and tools for the agent itself (docs/recall.md)."""

from refold.retrieval.index import Index
from refold.retrieval.search import Hit, recall
from refold.retrieval.tools import answer_call, recall_tools

__all__ = ["Hit", "Index", "answer_call", "recall", "recall_tools"]
