"""Where a view's tokens are, as rows to show."""

from collections.abc import Mapping
from typing import Any

from refold.cli.show import gist
from refold.messages import Content, Message, Part
from refold.tokens.breakdown import breakdown
from refold.view import View


def parts(view: View, largest: int) -> dict[str, Any]:
    """What of a view's tokens belongs to which role, tool and kind of part; its largest messages."""

    def count(part: Part | Content) -> int:
        return view.lens.count(Message("user", (part,))) - view.lens.count(Message("user"))

    whole = breakdown(view, part=count)
    shown = [(item.start, message) for item in view.each() for message in item.shown]
    counted = [(tokens, at, message) for tokens, (at, message) in zip(whole.messages, shown, strict=True)]
    top = sorted(counted, key=lambda row: (-row[0], row[1]))[:largest]
    return {
        "by_role": _rows(whole.roles),
        "by_tool": _rows({name: tokens for name, tokens in whole.names.items() if name}),
        "by_part": _rows(whole.kinds),
        "largest": [{"at": at, "role": m.role, "tokens": tokens, "begins": gist(m, 60)} for tokens, at, m in top],
    }


def _rows(named: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"name": name, "tokens": tokens} for name, tokens in named.items()]
