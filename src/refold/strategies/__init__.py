"""Strategies, each of which proposes edits that make a view smaller."""

from refold.strategies.clear_thinking import ClearThinking
from refold.strategies.clear_tool_inputs import ClearToolInputs
from refold.strategies.clear_tool_results import ClearToolResults
from refold.strategies.clip_results import ClipResults, OutlineResults
from refold.strategies.drop_duplicates import DropDuplicates
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
