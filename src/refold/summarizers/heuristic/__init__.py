"""A summary without a model: deterministic, in any language, merged and never summarised again."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace

from refold.core.strategy import Answer, Ask, Summary
from refold.core.view import View
from refold.messages import user
from refold.summarizers.heuristic.chat import assistant_lines, chat_lines, rank_sentences
from refold.summarizers.heuristic.collect import SourceSpan, collect, read_span
from refold.summarizers.heuristic.digest import Digest, merge, merge_all, without_answered
from refold.summarizers.heuristic.layout import CHAT_SHARES, SHARES, render
from refold.summarizers.heuristic.parse import parse_summary
from refold.text.summary_wrapper import wrap_summary

MAX_TRIES = 12
"""How often a text that turned out too long is made again in less room, or one with talk in more."""
SLACK = 50
"""One part in so many of the cap may stay unused where there is more talk."""


@dataclass(frozen=True, slots=True)
class RuleSummary:
    """Summarises by rules. Asks no model; the same view gives the same text.

    Keeps the user's requests verbatim, standing constraints, decisions, open work, files with their
    last state, commands with their outcome, and an index of identifiers; see docs/summaries.md.
    """

    def __call__(
        self, view: View, start: int, stop: int, max_tokens: int
    ) -> Generator[Ask, Answer | None, Summary]:
        """The summary of `messages[start:stop]`, wrapped at most *max_tokens* tokens; empty if
        nothing useful fits. It reads what was said, not what the view shows of it, except where
        an earlier summary covers it: that one is merge_all.
        """
        yield from ()
        return Summary(
            fit_digest(digest_material(read_span(view, start, stop)), view, max_tokens) or ""
        )


def digest_material(span: SourceSpan) -> Digest:
    """What earlier summaries tell, joined with what was said since."""
    messages = [message for _, message in span.messages]
    collected = collect(messages)
    newest = replace(
        collected, talk=assistant_lines(messages) if collected.calls else chat_lines(messages)
    )
    joined = merge(merge_all([*map(parse_summary, span.earlier)]), newest)
    return without_answered(joined) if span.is_answered else joined


def fit_digest(
    digest: Digest, view: View, max_tokens: int, shares: Mapping[str, float] = SHARES
) -> str | None:
    """The text of *known*, as long as *max_tokens* for the wrapped message allows; None if nothing fits."""
    empty = view.profile.count(wrap_summary(""))
    costs: dict[str, int] = {}
    bare = view.profile.count(user(""))

    def cost(text: str) -> int:
        if text not in costs:
            costs[text] = max(0, view.profile.count(user(text)) - bare)
        return costs[text]

    if shares is SHARES and digest.talk and not digest.calls:
        shares = CHAT_SHARES
    best = rank_sentences(digest.talk) if shares["Talk"] else ()
    room, fitting = max_tokens - empty, ""
    for _ in range(MAX_TRIES):
        text = render(digest, room, cost, shares, best)
        over = view.profile.count(wrap_summary(text)) - max_tokens
        if over > 0 and fitting:
            break
        if over <= 0:
            fitting = text
            if shares is not CHAT_SHARES or -over <= max_tokens // SLACK:
                break
        room -= over if over <= 0 else max(over, room // 20) + 1
        if room <= 0:
            return None
    return (
        fitting
        if fitting and digest.messages and (fitting.count("## ") > 1 or not digest.requests)
        else None
    )
