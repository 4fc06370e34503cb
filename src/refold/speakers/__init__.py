"""Who speaks: the person, operators, the client about the surroundings, tools. Decided here, for everything else."""

from refold.speakers.segments import Segment, own_words, ran, segments, steering
from refold.speakers.staying import (
    Staying,
    current,
    has_person,
    heard,
    heard_in,
    is_request,
    request_of,
    staying,
    stays,
)

__all__ = [
    "Segment",
    "Staying",
    "current",
    "has_person",
    "heard",
    "heard_in",
    "is_request",
    "own_words",
    "ran",
    "request_of",
    "segments",
    "staying",
    "stays",
    "steering",
]
