from collections.abc import Callable, Iterable, Mapping
from typing import Any

from refold.budget.budget import Budget as Budget
from refold.budget.budget import Check as Check
from refold.codecs.repair import RepairResult as RepairResult
from refold.codecs.repair import check as check
from refold.codecs.repair import repair as repair
from refold.compactor.by_hand import Preview as Preview
from refold.compactor.compactor import Compactor as Compactor
from refold.compactor.compactor import compact as compact
from refold.compactor.conversations import Session as Session
from refold.compactor.settings import default_strategies as default_strategies
from refold.core.profile import Profile as Profile
from refold.core.strategy import Answer as Answer
from refold.core.strategy import Ask as Ask
from refold.core.strategy import Strategy as Strategy
from refold.core.view import View as View
from refold.edits import Attempt as Attempt
from refold.edits import Edit as Edit
from refold.errors import (
    EditError as EditError,
)
from refold.errors import (
    FormatError as FormatError,
)
from refold.errors import (
    RefoldError as RefoldError,
)
from refold.errors import (
    StoreError as StoreError,
)
from refold.messages import (
    Media as Media,
)
from refold.messages import (
    Message as Message,
)
from refold.messages import (
    Opaque as Opaque,
)
from refold.messages import (
    Text as Text,
)
from refold.messages import (
    Thinking as Thinking,
)
from refold.messages import (
    ToolCall as ToolCall,
)
from refold.messages import (
    ToolResult as ToolResult,
)
from refold.retrieval import (
    Hit as Hit,
)
from refold.retrieval import (
    Index as Index,
)
from refold.retrieval import (
    answer_call as answer_call,
)
from refold.retrieval import (
    recall as recall,
)
from refold.retrieval import (
    recall_tools as recall_tools,
)
from refold.rules.rule import Repair as Repair
from refold.rules.rule import Violation as Violation
from refold.stores import (
    MemoryStore as MemoryStore,
)
from refold.stores import (
    SidecarStore as SidecarStore,
)
from refold.stores import (
    SQLiteStore as SQLiteStore,
)
from refold.stores.store import Store as Store
from refold.transcript import Transcript as Transcript

__version__: str

def lazy_names(
    module: str, homes: Mapping[str, Iterable[str]], package: str = ""
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]: ...
