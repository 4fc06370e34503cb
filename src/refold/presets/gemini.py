"""Gemini style: at 70 % of the window, all but the newest 30 % becomes an XML snapshot (S0).

The parts are Refold's own. This module says which, with their settings (docs/presets/gemini.md).
`Compressor`, `GoogleStyleCompressor`, `CompressionResult` and `get_compressor` need LangChain and
are imported on first use (extra `langchain`).
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from refold import lazy_names
from refold.budget.budget import Budget
from refold.budget.triggers import EveryN, Fraction, Trigger
from refold.codecs.codec import Codec
from refold.codecs.detect import open_payload
from refold.codecs.repair import repair
from refold.compactor.compactor import Compactor
from refold.core.strategy import End, Ending, Steps, Summarizer, advance
from refold.core.view import View
from refold.edits import Edit
from refold.errors import EditError
from refold.messages import Message, Text
from refold.models.driver import Asker
from refold.presets.measures import quarter
from refold.stores.store import Store
from refold.strategies.summarize import Summarize
from refold.summarizers.forms import SnapshotForm
from refold.summarizers.model import ModelSummary, Prompt, load_prompt
from refold.summarizers.tail import ends_in_answer, find_requests, find_share_start, find_tail_start
from refold.tokens.count import Counter, count_message

if TYPE_CHECKING:
    from refold.presets.gemini_compressor import (
        CompressionResult,
        Compressor,
        GoogleStyleCompressor,
        get_compressor,
    )

Split = Literal["request", "near"]
COMPRESSION_MODEL = "kimi-k2-instruct"
"""Default model for the snapshot (S0-30)."""
COMPRESSION_PROMPT = Prompt(
    "gemini",
    load_prompt("summary").text
    + "\n\nFirst go over the whole record in your mind: the goal, each thing the user asked for, what the tools "
    "returned, what is unresolved. If you write such notes down, put them into <scratchpad></scratchpad> before "
    "the snapshot; they are thrown away. Then write the snapshot. It is all that will be left of the record.",
)
"""The system prompt (S0-28). The form adds its description of `<state_snapshot>`."""
COMPRESSION_USER_INSTRUCTION = Prompt(
    "gemini-instruction",
    "Write the <state_snapshot> of the record above now, in at most {tokens} tokens. Answer with the snapshot alone.",
)
"""The last user message of the request (S0-29)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings under the names of the original system. Raises ValueError for invalid shares.

    `compress_threshold` is a share of the window, `preserve_threshold` one of the history. They are
    independent (C0-5).
    """

    max_tokens: int
    """Window of the conversation's model, in tokens."""
    compress_threshold: float = 0.7
    """Share of the window from which a compression is due (S0-17, C0-4)."""
    preserve_threshold: float = 0.3
    """Share of the history, counted from its end, that stays unchanged (S0-18)."""
    compression_model: str = COMPRESSION_MODEL
    """Name of the model for the snapshot, as *url* knows it."""
    url: str = field(default="", repr=False)
    """Chat Completions endpoint for `compression_model`."""
    key: str = field(default="", repr=False)
    model: Any = field(default=None, repr=False)
    """LangChain chat model, or anything else that answers an `Ask`, instead of the endpoint."""
    compression_window: int = 100_000
    """Window of that model, in tokens. A longer history is summarised in parts."""
    summary_tokens: int = 2_000
    """Tokens reserved for the snapshot. The record beside it takes at most as many again."""
    min_saving: float = 0.05
    """Minimum saving as a share of the request. A snapshot that saves less is discarded (C0-7)."""
    every: int | None = None
    """Number of model steps after which another snapshot is taken (S0-49). None: never."""
    split: Split = "request"
    """Rule for the start of the kept part (`recent`)."""
    prompt: Prompt | str = COMPRESSION_PROMPT
    instruction: Prompt | str = COMPRESSION_USER_INSTRUCTION
    record: bool = True
    """Whether to keep requests, constraints, open items and files verbatim beside the snapshot."""
    fallback: Summarizer | None = None
    """Summarizer for when the model's answers are invalid, such as `RuleSummary()`. With None the
    history then stays unchanged."""
    count: Counter = count_message
    """Token counter of one message. The default handles Chinese. `counter(quarter)` counts as
    LangChain does (C0-6)."""

    def __post_init__(self) -> None:
        if not (
            0 < self.compress_threshold <= 1
            and 0 < self.preserve_threshold < 1
            and 0 <= self.min_saving < 1
        ):
            raise ValueError(
                "compress_threshold is above 0 and at most 1, preserve_threshold between 0 and 1, min_saving from 0 "
                f"to below 1, not {self.compress_threshold}, {self.preserve_threshold}, {self.min_saving}"
            )
        if self.split not in get_args(Split):
            raise ValueError(f"split is one of {', '.join(get_args(Split))}, not {self.split!r}")

    @property
    def fraction(self) -> float:
        """Share of the history that is compressed (S0-33)."""
        return 1 - self.preserve_threshold


def compactor(
    settings: Settings,
    ask: Asker | None = None,
    store: Store | None = None,
    *,
    format: str | Codec | None = None,
    also: Trigger | None = None,
) -> Compactor:
    """Return the whole preset as a `Compactor` for histories in any format. *also* is a second
    condition for snapshots at intervals (`every`)."""
    due: Trigger = Fraction(settings.compress_threshold)
    if settings.every is not None:
        due = due | (EveryN(settings.every) if also is None else EveryN(settings.every) & also)
    strategy = Compress(
        settings.preserve_threshold,
        settings.summary_tokens * (1 + settings.record),
        settings.min_saving,
        snapshot_summary(settings),
        settings.split,
    )
    # Target 0: the split decides how much is folded, not the budget (S0-33).
    budget = Budget(due, 0, window=settings.max_tokens)
    return Compactor([strategy], budget, store, ask=ask, format=format, count=settings.count)


def snapshot_summary(settings: Settings) -> ModelSummary:
    """Return the summarizer: a model writes a `<state_snapshot>` and merges the one before (S0-14,
    C0-9)."""
    return ModelSummary(
        prompt=settings.prompt,
        closing=settings.instruction,
        form=SnapshotForm(),
        window=settings.compression_window,
        fallback=settings.fallback,
        record=settings.record,
    )


@dataclass(frozen=True, slots=True)
class Compress:
    """Folds the older part into a snapshot in a user message, acknowledged by the assistant
    (S0-31), if that saves enough. Its system messages stay behind it. Retrospective; one edit."""

    preserve_threshold: float
    summary_tokens: int
    min_saving: float
    summarizer: Summarizer
    split: Split = "request"

    def __call__(self, view: View) -> Steps:
        """Propose the edit of `Summarize`, or end with the reason why not."""
        keep = recent(view, self.preserve_threshold, self.split)
        whole = Summarize(keep, self.summary_tokens, self.summarizer, "acknowledged")
        run = whole(view)
        step = advance(run)
        while not isinstance(step, End):
            if isinstance(step, Edit) and (gain := _gain(view, step)) < self.min_saving:
                return Ending(
                    "rejected", f"the snapshot saves {gain:.1%}, less than {self.min_saving:.1%}"
                )
            step = advance(run, (yield step))
        return step.value


def _gain(view: View, edit: Edit) -> float:
    """Return the share of the request that an edit saves, or 1 if it is refused anyway."""
    try:
        return 1 - view.apply(edit).tokens / view.tokens
    except EditError:
        return 1.0


def recent(view: View, preserve: float, split: Split = "request") -> float:
    """Return what `Summarize` should keep: a number of messages, or the share.

    `request`, the original rule, keeps what follows the target from the next user request on
    (S0-35), however little. Without one, a conversation that ends in an answer keeps its last turn,
    however long (S0-36, C0-2). `near` starts inside a turn if the request would leave less than
    half of the share, or far more than it. In an unfinished turn both go back to its request, or to
    a place between its tool groups if that is too far back
    (`refold.summarizers.tail.find_tail_start`).

    A conversation that could be folded whole still keeps its last turn (S0-20). If that is
    everything, nothing is folded.
    """
    end, turns = len(view.transcript), [at for at in find_requests(view) if at]
    if split == "request" and turns:
        later = [at for at in turns if at >= find_share_start(view, preserve)]
        if later or ends_in_answer(view):
            return end - (later or turns[-1:])[0]
    if find_tail_start(view, preserve) < end:
        return preserve
    return end - max(turns, default=0)


def clean_history(payload: Any, format: str | Codec | None = None) -> Any:
    """Return *payload* without empty messages, and with every tool call and result paired (S0-11).

    User messages always stay (S0-39). An assistant message stays if it has text, thinking or calls
    (S0-40, C0-1), a tool message if it answers a call (S0-41). Entries that stay are the same
    objects. Raises `FormatError`.
    """
    opened = open_payload(payload, format)
    messages = opened.decode()
    positions = [
        at
        for at, message in enumerate(messages)
        if message.role == "user" or _says_anything(message)
    ]
    if len(positions) < len(messages):
        payload = opened.join(slice(at, at + 1) for at in positions)
    return repair(payload, opened.codec).payload


def _says_anything(message: Message) -> bool:
    if message.role == "tool" and not all(message.results):
        return False
    return any(not isinstance(part, Text) or part.text.strip() for part in message.parts)


__getattr__ = lazy_names(
    __name__,
    {
        "gemini_compressor": (
            "CompressionResult",
            "Compressor",
            "GoogleStyleCompressor",
            "get_compressor",
        )
    },
    "refold.presets",
)[1]

__all__ = [
    "COMPRESSION_MODEL",
    "COMPRESSION_PROMPT",
    "COMPRESSION_USER_INSTRUCTION",
    "Compress",
    "CompressionResult",
    "Compressor",
    "GoogleStyleCompressor",
    "Settings",
    "clean_history",
    "compactor",
    "get_compressor",
    "quarter",
    "recent",
    "snapshot_summary",
]
