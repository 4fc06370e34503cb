"""The settings of the two-layer preset, under the names of the system that it follows."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

from refold.scorers.scorer import Scorer
from refold.summarizers.forms import Form
from refold.tokens.windows import Window, Windows, find_window

DEFAULT_TOKEN_THRESHOLD = 60_000
DEFAULT_KEEP_RECENT_TOOLS = 4
DEFAULT_MAX_TOOL_LENGTH = 200
BUILTIN_PROTECTED_TOOLS = frozenset({"Skill"})
"""Always protected, whatever else is."""


@dataclass(frozen=True)
class ContextPolicy:
    """When to compact and what to leave (S1-06 to S1-12). The first four fields are the system's own; the
    others say what it leaves open. Raises ValueError for negative figures."""

    token_threshold: int = DEFAULT_TOKEN_THRESHOLD
    """Tokens of a request beyond which old messages are summarised: strictly more than these (S1-19)."""
    keep_recent_tools: int = DEFAULT_KEEP_RECENT_TOOLS
    """Newest tool groups left alone. A group is one message of the model with all its calls and their
    results, so both sides of a call are cut at the same place (C1-5)."""
    max_tool_length: int = DEFAULT_MAX_TOOL_LENGTH
    """Characters of an older result, or of one string among older arguments, that are left alone."""
    protected_tools: Collection[str] = BUILTIN_PROTECTED_TOOLS
    """Tools whose calls and results the first layer never touches; `Skill` is always one of them."""
    keep_recent_turns: int = 2
    """Newest requests of the user that stay with all that followed, as long as that is at most half of
    the tokens shown (C1-7)."""
    summary_max_tokens: int = 2_000
    """Cap of the summary, in tokens."""
    placeholder: Literal["text", "json"] = "text"
    """`[truncated: 5000 chars]`, or a JSON object for models that take only JSON as a result (C1-1)."""
    summary_role: Literal["user", "system"] = "user"
    """In whose voice the summary stands. `system` where the provider allows it there (C1-8)."""
    max_text_length: int | None = None
    """Characters of a text of the assistant, older than the kept groups, that are left alone. None: all,
    since step 6 of the system would cut what it has to answer (C1-3)."""
    incremental: bool = False
    """Whether each turn gets a summary of its own, a chain, before all of them are joined (S1-36)."""
    form: Form[Any] | None = None
    """A form with typed values: `StateForm()` for a JSON object of topics, entities and action items (S1-37)."""
    scorer: Scorer | None = None
    """What matters and stays word for word beside the summary: a scorer of `refold.scorers` (S1-38)."""

    def __post_init__(self) -> None:
        names = (
            (self.protected_tools,)
            if isinstance(self.protected_tools, str)
            else self.protected_tools
        )
        object.__setattr__(self, "protected_tools", BUILTIN_PROTECTED_TOOLS.union(names))
        figures = (
            self.token_threshold,
            self.keep_recent_tools,
            self.max_tool_length,
            self.keep_recent_turns,
        )
        if min(*figures, self.summary_max_tokens, self.max_text_length or 0) < 0:
            raise ValueError(f"no figure of a policy may be negative: {self}")

    @classmethod
    def defaults(cls) -> "ContextPolicy":
        """60,000 tokens, 4 groups, 200 characters, `Skill`."""
        return cls()

    @classmethod
    def builder(cls) -> "PolicyBuilder":
        """To say the settings one by one."""
        return PolicyBuilder()

    @classmethod
    def for_model(
        cls,
        model: str,
        share: float = 0.6,
        window: int | Window | Windows | None = None,
        **settings: Any,
    ) -> "ContextPolicy":
        """A threshold that is a *share* of what *model* can take (S1-39): by `refold.tokens.windows`, or by *window*.
        Raises ValueError for a model whose window nobody knows, and for a share that is none."""
        size = find_window(model, window)
        if size.window is None or not 0 < share <= 1:
            raise ValueError(
                size.reason if size.window is None else f"{share} is no share of a window"
            )
        return cls(token_threshold=int(size.window.room * share), **settings)


@dataclass(frozen=True)
class PolicyBuilder:
    """`ContextPolicy.builder().token_threshold(80_000).protected_tools("Skill", "bash").build()` (S1-13).
    Each call gives another builder."""

    policy: ContextPolicy = ContextPolicy()

    def token_threshold(self, tokens: int) -> "PolicyBuilder":
        """Tokens beyond which old messages are summarised."""
        return self.also(token_threshold=tokens)

    def keep_recent_tools(self, groups: int) -> "PolicyBuilder":
        """Newest tool groups left alone."""
        return self.also(keep_recent_tools=groups)

    def max_tool_length(self, characters: int) -> "PolicyBuilder":
        """Characters of a result or argument that are left alone."""
        return self.also(max_tool_length=characters)

    def protected_tools(self, *names: str) -> "PolicyBuilder":
        """Tools that are left alone, `Skill` in any case."""
        return self.also(protected_tools=names)

    def also(self, **settings: Any) -> "PolicyBuilder":
        """Any other setting of `ContextPolicy`. Raises TypeError for one that it has not."""
        return PolicyBuilder(replace(self.policy, **settings))

    def build(self) -> ContextPolicy:
        """The policy."""
        return self.policy
