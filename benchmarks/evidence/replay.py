"""Replay a session under a policy, call by call, and score every request."""

from collections import defaultdict
from typing import NamedTuple

from benchmarks.evidence.needs import Name, OldLines, find_edits, find_names, iter_blocks
from benchmarks.evidence.policies import MakePolicy
from benchmarks.evidence.sessions import Session
from benchmarks.evidence.visible import History, Request, Score, counted
from refold.messages import Message, user


class Needs(NamedTuple):
    """What the calls of a session need, by the position of the call."""

    names: dict[int, list[Name]]
    edits: dict[int, list[OldLines]]


def needs_by_call(session: Session) -> Needs:
    """Group what messages need by the model call that made them."""
    names, edits = defaultdict(list), defaultdict(list)
    for need in find_names(session.messages):
        names[call_of(session, need.at)].append(need)
    for edit in find_edits(session.messages):
        edits[call_of(session, edit.at)].append(edit)
    return Needs(names, edits)


def call_of(session: Session, at: int) -> int:
    """Return the position of the model call that made the message at *at*."""
    return max((call for call in session.calls if call <= at), default=-1)


def replay(session: Session, make: MakePolicy, window: int) -> Score:
    """Replay every request of *session* under the policy and add up the scores."""
    policy, needs, total = make(session, window), needs_by_call(session), Score(sessions=1)
    wanted = {need.text for each in needs.names.values() for need in each}
    blocks, by_name = set[str](), defaultdict[str, list[str]](list)
    grown, before = 0, tuple[Message, ...]()
    for at, body in session.requests():
        for message in session.messages[grown:at]:
            for block in iter_blocks(message):
                blocks.add(block)
                for name in wanted:
                    if name in block:
                        by_name[name].append(block)
        sent = tuple(policy(body, session.messages[:at]))
        total.add_request(before, sent, session.messages[:at], grown)
        grown, before = at, sent
        if needs.names.get(at) or needs.edits.get(at):
            history = History(frozenset(blocks), by_name)
            request = Request.of(sent, history)
            total.made_tokens += sum(counted(user(text)) for text in request.rewritten)
            total.add_names(needs.names.get(at, ()), request, history)
            total.add_edits(needs.edits.get(at, ()), request)
    return total


def count_sent(session: Session, make: MakePolicy, window: int) -> int:
    """Count the tokens that a policy sends."""
    policy = make(session, window)
    return sum(
        counted(message)
        for at, body in session.requests()
        for message in policy(body, session.messages[:at])
    )
