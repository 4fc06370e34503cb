"""Detection of speakers: the person, operators, the client about the environment, tools."""

from refold.speakers.carriers import read_ran_command
from refold.speakers.request import (
    Verbatim,
    current_request,
    dialogue_share,
    find_folder,
    find_verbatim,
    first_request,
    has_person,
    is_report,
    is_request,
    request_text,
    segment_messages,
    view_dialogue_share,
    view_segments,
)
from refold.speakers.segments import Segment, iter_requests, own_words, segments, steering_texts

__all__ = [
    "Segment",
    "Verbatim",
    "current_request",
    "dialogue_share",
    "find_folder",
    "find_verbatim",
    "first_request",
    "has_person",
    "is_report",
    "is_request",
    "iter_requests",
    "own_words",
    "read_ran_command",
    "request_text",
    "segment_messages",
    "segments",
    "steering_texts",
    "view_dialogue_share",
    "view_segments",
]
