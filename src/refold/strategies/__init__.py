"""Strategies. Each proposes edits that make a view smaller."""

from refold.strategies.clear import ClearThinking, ClearToolInputs, ClearToolResults
from refold.strategies.first_sight import ClipResults, DropDuplicates, OutlineResults
from refold.strategies.summarize import KeepImportant, Summarize, SummarizeTo
from refold.strategies.whole_history import Chunked, FromLastN, RetrieveFacts, WholeHistory

__all__ = [
    "Chunked",
    "ClearThinking",
    "ClearToolInputs",
    "ClearToolResults",
    "ClipResults",
    "DropDuplicates",
    "FromLastN",
    "KeepImportant",
    "OutlineResults",
    "RetrieveFacts",
    "Summarize",
    "SummarizeTo",
    "WholeHistory",
]
