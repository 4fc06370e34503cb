"""Forms of summaries: shapes to ask a model for, with typed values (docs/summaries.md)."""

from refold.summarizers.forms.facts import FactsForm
from refold.summarizers.forms.form import Form
from refold.summarizers.forms.sections import HANDOVER, TLDR, Heading, Sections, SectionsForm
from refold.summarizers.forms.snapshot import (
    File,
    Snapshot,
    SnapshotForm,
    Step,
    read_snapshot,
    write_snapshot,
)
from refold.summarizers.forms.state import (
    Change,
    Delta,
    Entry,
    State,
    StateForm,
    apply_delta,
    find_problems,
)

__all__ = [
    "HANDOVER",
    "TLDR",
    "Change",
    "Delta",
    "Entry",
    "FactsForm",
    "File",
    "Form",
    "Heading",
    "Sections",
    "SectionsForm",
    "Snapshot",
    "SnapshotForm",
    "State",
    "StateForm",
    "Step",
    "apply_delta",
    "find_problems",
    "read_snapshot",
    "write_snapshot",
]
