"""What Amazon Bedrock's Converse API refuses (BR-1 to BR-8), and the rules of Claude's thinking."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise

from refold.messages import Media, Opaque, Text, ToolCall, ToolResult
from refold.rules import anthropic, anthropic_continuity
from refold.rules.request import Fault, Request, find_role_faults
from refold.rules.rule import (
    BrokenRequest,
    ContinuityRule,
    Note,
    RepairedEntries,
    RepairedEntry,
    Rule,
    join,
)
from refold.text.json_values import object_at

_ROLES = frozenset({"user", "assistant", "system"})
_SPEAKERS = frozenset({"user", "assistant"})


# --- BR-4: roles -------------------------------------------------------------------------------


def find_wrong_roles(request: Request) -> Iterator[Fault]:
    """Report a first message of the assistant, neighbours of one role, unknown roles and misplaced
    system messages (BR-4)."""
    yield from find_role_faults(request, _ROLES)
    yield from anthropic.find_misplaced_system(request, request.body.get("modelId"))
    for at, (before, message) in enumerate(pairwise(request.messages), 1):
        if before.role == message.role and message.role in _SPEAKERS:
            text = f"two messages of the {message.role} follow one another"
            yield Fault(at, text, f"two {message.role}")


def join_neighbours(broken: BrokenRequest) -> RepairedEntries:
    """Merge neighbours of one role (BR-4)."""
    out, notes = list[RepairedEntry](), list[Note]()
    for entry in broken.entries:
        role = entry.message.role
        if out and role in _SPEAKERS and out[-1].message.role == role:
            out[-1] = replace(join(out[-1], entry), is_untouched=False)
            notes.append(Note(entry.near, f"joined with the {role}'s message before it"))
        else:
            out.append(entry)
    return out, notes


# --- BR-6 to BR-8: missing content and tools ---------------------------------------------------


def find_empty_results(request: Request) -> Iterator[Fault]:
    """Report results with a blank text, and failed ones without content (BR-6)."""
    for at, message in enumerate(request.messages):
        for part in message.parts:
            if not isinstance(part, ToolResult):
                continue
            if any(isinstance(inner, Text) and not inner.text.strip() for inner in part.content):
                yield Fault(at, f"a text of result {part.id!r} is empty or blank", part.id)
            elif part.error and not part.content:
                yield Fault(at, f"result {part.id!r} has failed and says nothing", part.id)


def find_missing_tools(request: Request) -> Iterator[Fault]:
    """Report calls or results in a request without `toolConfig` (BR-7).

    Requests without `modelId` are not checked: they may be incomplete.
    """
    body = request.body
    if "modelId" not in body or body.get("toolConfig"):
        return
    parts = (part for message in request.messages for part in message.parts)
    if any(isinstance(part, ToolCall | ToolResult) for part in parts):
        yield Fault(0, "tools were called, and toolConfig is missing", "toolConfig")


def find_lone_documents(request: Request) -> Iterator[Fault]:
    """Report messages with a document and no text (BR-8)."""
    for at, message in enumerate(request.messages):
        kinds = {part.kind for part in message.parts if isinstance(part, Media | Opaque)}
        if "document" in kinds and not message.text:
            yield Fault(at, "a document stands in a message without a text", "document")


_OF_MESSAGES = {rule.id: rule for rule in anthropic.RULES}
"""Rules of the Messages API by id. Some apply to Converse under other ids."""

RULES: tuple[Rule, ...] = (
    replace(_OF_MESSAGES["AN-1"], id="BR-1"),
    replace(_OF_MESSAGES["AN-2"], id="BR-2"),
    replace(_OF_MESSAGES["AN-3"], id="BR-3"),
    Rule(
        "BR-4",
        "the user speaks first, and user and assistant take turns",
        find_wrong_roles,
        anthropic.join_system,
        (anthropic.place_system, join_neighbours),
        "a user's message would have to be invented, or what another role said be removed or "
        "said by the user",
    ),
    replace(_OF_MESSAGES["AN-5"], id="BR-5"),
    Rule(
        "BR-6",
        "results have no blank text, and failed ones say something",
        find_empty_results,
        limit="what the tool said would have to be invented",
    ),
    Rule(
        "BR-7",
        "where tools were called, toolConfig is sent",
        find_missing_tools,
        limit="the tools would have to be invented",
    ),
    Rule(
        "BR-8",
        "a document has a text beside it",
        find_lone_documents,
        limit="a user's words would have to be invented",
    ),
)
"""All rules of this API for a single request."""


# --- AN-6, AN-7, AN-10: Claude's thinking ------------------------------------------------------

Judge = Callable[[Request, Request], Iterable[Fault]]


def _as_claude(request: Request) -> Request:
    """Return a request with its body fields where the Messages API has them."""
    fields = object_at(request.body, "additionalModelRequestFields")
    return replace(request, body={**fields, "model": request.body.get("modelId")})


def _behind_converse(judge: Judge, before: Request, after: Request) -> Iterable[Fault]:
    return judge(_as_claude(before), _as_claude(after))


CONTINUITY: tuple[ContinuityRule, ...] = tuple(
    replace(rule, find_faults=partial(_behind_converse, rule.find_faults))
    for rule in anthropic_continuity.CONTINUITY
)
"""All rules of this API about what a request must keep of the previous one: those of Claude."""
