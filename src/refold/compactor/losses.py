"""What a compaction would take out of sight: names, paths, constraints and requests that stand
nowhere in what would be sent."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from refold.core.view import View
from refold.messages import Message
from refold.summarizers.heuristic.collect import collect
from refold.summarizers.heuristic.digest import Digest, merge, merge_all
from refold.summarizers.heuristic.parse import parse_summary
from refold.text.plain import readable_text
from refold.text.summary_wrapper import summary_in, without_summary


@dataclass(frozen=True, slots=True)
class Losses:
    """What no longer appears, each list in the order of the conversation or by weight. What appears
    in other words counts as lost: only the words can be looked for."""

    requests: tuple[str, ...] = ()
    """What the user asked for, whole; line breaks and spaces make no difference."""
    constraints: tuple[str, ...] = ()
    """Sentences of the user that say what must or must not be done."""
    paths: tuple[str, ...] = ()
    """Files that were read, written or listed."""
    identifiers: tuple[str, ...] = ()
    """Other names and values out of calls and results, the most likely to be needed first."""

    def __bool__(self) -> bool:
        return bool(self.requests or self.constraints or self.paths or self.identifiers)


def find_losses(before: View, after: View) -> Losses:
    """Return what *before* shows and *after*, a view of the same conversation, shows nowhere:
    neither in its messages nor in system prompt or tools. It is found by the rules of
    `refold.summarizers.heuristic.RuleSummary`."""
    digest = _digest(before, after)
    sent = _plain("\n".join(_texts_to_send(after)))
    summary_names = _names_in_summaries(after)
    listed = [
        entry
        for entry in digest.index
        if entry.text not in sent and entry.text not in summary_names
    ]
    paths = [path for path in digest.files if path not in sent and path not in summary_names]
    paths += [entry.text for entry in listed if entry.kind == "path"]
    return Losses(
        requests=tuple(text for text in digest.requests if _plain(text) not in sent),
        constraints=tuple(text for text in digest.constraints if _plain(text) not in sent),
        paths=tuple(dict.fromkeys(paths)),
        identifiers=tuple(
            dict.fromkeys(e.text for e in listed if e.kind != "path" and e.text not in paths)
        ),
    )


def _digest(before: View, after: View) -> Digest:
    """Return what the rules find in the messages that are gone; of earlier summaries, what they
    say. Words of ours, such as a stub with its edit's id, were never said and are not in it
    (F18)."""
    remaining = set(after.messages)
    earlier, shown, originals = list[str](), list[Message](), list[Message]()
    for item in before.iter_items():
        gone = [message for message in item.messages if message not in remaining]
        earlier += [text for text in map(summary_in, gone) if text is not None]
        rest = [message for message in map(without_summary, gone) if message.parts]
        shown += rest
        if item.edit and rest:
            originals += before.transcript.messages[item.start : item.stop]
        else:
            originals += rest
    names = {edit.id[:size] for edit in before.edits for size in (8, None)}
    own = collect(shown)
    if shown != originals:
        own = _restrict_to(own, collect(originals), names)
    return merge(merge_all([*map(parse_summary, earlier)]), own)


def _restrict_to(shown: Digest, originals: Digest, ids: Collection[str]) -> Digest:
    """Return what both *shown* and *originals* have, without the *ids* of edits."""
    names = {*originals.files, *(entry.text for entry in originals.index)}.difference(ids)
    return replace(
        shown,
        requests=tuple(text for text in shown.requests if text in originals.requests),
        constraints=tuple(text for text in shown.constraints if text in originals.constraints),
        files={path: state for path, state in shown.files.items() if path in names},
        index=tuple(entry for entry in shown.index if entry.text in names),
    )


def _names_in_summaries(view: View) -> set[str]:
    """Return the names that summaries tell in fewer characters, such as `src/{app,main}.py`."""
    digests = [parse_summary(text) for text in map(summary_in, view.messages) if text is not None]
    return {
        name
        for digest in digests
        for name in (*digest.files, *(entry.text for entry in digest.index))
    }


def _plain(text: str) -> str:
    return " ".join(text.split())


def _texts_to_send(view: View) -> Iterator[str]:
    if view.source is not None:
        yield readable_text(Message("system", view.source.system))
        yield from view.source.tools
    yield from map(readable_text, view.messages)
