"""Tools for tests of code that uses or extends Refold: random transcripts, a scripted model, and
the laws of strategies, codecs and stores.

`transcripts` needs `hypothesis` (the extra `testing`) and is imported on first use. The rest needs
only Refold.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from refold import lazy_names
from refold.budget.budget import Budget
from refold.codecs.codec import Codec, Wire
from refold.codecs.detect import open_payload
from refold.compactor.loading import make_local_edits
from refold.compactor.run import compact_if_due
from refold.core.profile import Profile
from refold.core.strategy import Answer, Ask, Steps, Strategy, change_edits, is_local
from refold.core.view import View
from refold.edits import Edit
from refold.errors import EditError, FormatError
from refold.messages import Message, Part, Text, ToolCall, ToolResult
from refold.models.driver import drive
from refold.rules.rule import Rules
from refold.testing.store_laws import check_store

if TYPE_CHECKING:
    from refold.testing.random_transcripts import transcripts


@dataclass
class ScriptedModel:
    """A model that answers from a list, for tests: `ask=ScriptedModel(["a summary"])`.

    After the end of the list it returns None, which means that nobody can answer. `asked` holds the
    questions.
    """

    answers: Sequence[str | Answer] = ()
    asked: list[Ask] = field(default_factory=list)

    def __call__(self, ask: Ask) -> Answer | None:
        """Return the next answer, or None after the last."""
        self.asked.append(ask)
        if len(self.asked) > len(self.answers):
            return None
        answer = self.answers[len(self.asked) - 1]
        return Answer(answer) if isinstance(answer, str) else answer


def proposals(
    view: View, strategy: Strategy, ask: Callable[[Ask], Answer | None] | None = None
) -> View:
    """Return *view* with all proposals of *strategy* applied, whatever the budget."""
    if is_local(strategy):
        return view.apply_valid(make_local_edits(view, [strategy]))
    return drive(compact_if_due(view, [strategy], Budget(0, 0)), ask).view


def check_strategy(
    strategy: Strategy, rules: Rules | None = None, *, examples: Iterable[tuple[Message, ...]]
) -> None:
    """Check that *strategy* keeps the laws on *examples*, drawn from `transcripts()`.

    A model answers up to nine questions with "A summary.". Raises AssertionError with the name of
    the broken law: validity (no new violation, also by each edit alone), progress (never more
    tokens than before), determinism (a second run on the same history gives the same view),
    reversibility, effect (if no example was edited: not every edit of an ordinary history is
    refused) and, for local strategies, memorylessness.
    """
    has_effect = False
    for messages in examples:
        bare = View.of(messages, profile=Profile(rules=rules or Rules()))
        view = proposals(bare, strategy, ScriptedModel(["A summary."] * 9))
        _valid(bare, view)
        assert view.estimate <= bare.estimate, f"progress: {view.estimate} > {bare.estimate} tokens"
        assert proposals(bare, strategy, ScriptedModel(["A summary."] * 9)) == view, "determinism"
        assert view.revert().messages == tuple(messages), "reversibility"
        for edit in view.edits:
            _valid(bare, bare.apply_valid([edit]))
        if is_local(strategy):
            _memoryless(bare, view, strategy)
        has_effect = has_effect or bool(view.edits)
    if not has_effect:
        ordinary = View.of(_ORDINARY, profile=Profile(rules=rules or Rules()))
        refusal = _find_refusal(ordinary, strategy)
        assert not refusal, f"effect: every edit is refused: {refusal}"


def check_codec(codec: Codec, *, examples: Iterable[Sequence[Wire]]) -> None:
    """Check that *codec* keeps the laws on *examples*, each a list of entries; together they should
    hold every kind of entry and two neighbours of each role.

    Raises AssertionError with the name of the broken law: identity (an entry is patched with its
    own message to itself), purity (no entry is changed), edits (an edited entry reads as it was
    edited, and keeps unknown fields), summaries (an encoded text of each side is read back),
    merging (two entries of one role are merged without loss, or `FormatError` is raised) and
    pairing (no legal cut separates a call from its result).
    """
    for role in ("user", "assistant"):
        summary = Message(role, (Text("A summary."),))
        assert codec.decode(codec.encode(summary), ()) == summary, f"summaries: {role}"
    for entries in examples:
        payload, original = open_payload(list(entries), codec), repr(entries)
        messages = payload.decode()
        items = list(payload.iter_entries())
        for at, (item, message) in enumerate(zip(items, messages, strict=True)):
            _check_patch(codec, item, message, messages[:at])
        for (first, before), (second, after) in pairwise(zip(items, messages, strict=True)):
            if before.role == after.role:
                _check_merge(codec, first, second, (before, after))
        assert repr(entries) == original, "purity: an entry was changed"
        cuts = codec.rules(payload.body).cuts(messages)
        calls = {id: at for at, message in enumerate(messages) for id in message.calls}
        for at, message in enumerate(messages):
            for id in calls.keys() & set(message.results):
                apart = cuts.intersection(range(calls[id] + 1, at + 1))
                assert not apart, f"pairing: a cut at {min(apart)} separates {id!r} from its result"


def _check_patch(codec: Codec, item: Wire, message: Message, prior: Sequence[Message]) -> None:
    assert codec.patch(item, message) == item, f"identity: {item!r:.200}"
    edited = replace(message, parts=tuple(map(_edit_part, message.parts)))
    assert codec.decode(codec.patch(item, edited), prior) == edited, f"edits: {item!r:.200}"
    if isinstance(item, dict):
        patched = codec.patch({**item, "unknown": 1}, edited)
        assert patched.get("unknown") == 1, f"edits: an unknown field is lost of {item!r:.200}"


def _edit_part(part: Part) -> Part:
    match part:
        case Text():
            return Text("Edited.")
        case ToolCall():
            return replace(part, arguments='{"edited":true}')
        case ToolResult():
            return replace(part, content=(Text("Edited."),))
    return part


def _check_merge(codec: Codec, first: Wire, second: Wire, pair: Sequence[Message]) -> None:
    try:
        merged = codec.decode(codec.merge(first, second), ())
    except FormatError:
        return
    assert merged.calls == pair[0].calls + pair[1].calls, f"merging: calls of {first!r:.200}"
    assert merged.results == pair[0].results + pair[1].results, f"merging: results {first!r:.200}"
    assert all(message.text in merged.text for message in pair), f"merging: texts {first!r:.200}"


def _valid(bare: View, view: View) -> None:
    rules = bare.profile.rules
    before = {(v.rule, v.subject) for v in rules.check(bare.messages)}
    after = {(v.rule, v.subject) for v in rules.check(view.messages)}
    assert after <= before, f"validity: {sorted(after - before)} by {[e.by for e in view.edits]}"


_ORDINARY = tuple(
    message
    for at in range(9)
    for message in (
        Message("user", (Text(f"Mend part {at} of the pool. " * 20),)),
        Message("assistant", (ToolCall(f"c{at}", "read", f'{{"path":"part_{at}.py"}}'),)),
        Message("user", (ToolResult(f"c{at}", (Text(f"part = {at}\n" * 200),)),)),
        Message("assistant", (Text(f"Part {at} holds a lock. " * 20),)),
    )
)
"""A history of which any strategy that proposes edits can have some accepted."""


def _find_refusal(view: View, strategy: Strategy) -> str:
    """Return why every edit of *strategy* is refused; empty if it proposes none or has an
    effect."""
    edits = make_local_edits(view, [strategy]) if is_local(strategy) else list[Edit]()
    if is_local(strategy):
        try:
            view.apply(*edits[:1])
        except EditError as error:
            return "" if view.apply_valid(edits).edits else str(error)
        return ""

    def note(edit: Edit) -> Edit:
        edits.append(edit)
        return edit

    def run(view: View) -> Steps:
        return (yield from change_edits(strategy(view), note))

    model = ScriptedModel(["A summary."] * 9)
    (attempt,) = drive(compact_if_due(view, [run], Budget(0, 0)), model).attempts
    return attempt.reason if edits and not attempt.edits_applied else ""


def _memoryless(bare: View, at_once: View, strategy: Strategy) -> None:
    grown = View.of((), profile=bare.profile)
    for message in bare.transcript.messages:
        grown = grown.extend([message])
        grown = grown.apply_valid(
            make_local_edits(grown.revert(), [strategy], len(grown.transcript) - 1)
        )
    assert grown.messages == at_once.messages, "memorylessness: turn by turn is not at once"


__getattr__ = lazy_names(__name__, {"random_transcripts": ("transcripts",)})[1]

__all__ = [
    "ScriptedModel",
    "check_codec",
    "check_store",
    "check_strategy",
    "proposals",
    "transcripts",
]
