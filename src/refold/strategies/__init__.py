"""Strategies: one file each, none of them knows another."""

from refold.strategies.clear_thinking import ClearThinking
from refold.strategies.clear_tool_inputs import ClearToolInputs
from refold.strategies.clear_tool_results import ClearToolResults
from refold.strategies.clip_results import ClipResults
from refold.strategies.drop_duplicates import DropDuplicates
from refold.strategies.summarize import Summarize

__all__ = ["ClearThinking", "ClearToolInputs", "ClearToolResults", "ClipResults", "DropDuplicates", "Summarize"]
