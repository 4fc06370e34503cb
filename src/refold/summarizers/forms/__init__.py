"""Forms of summaries: a shape to ask a model for, with typed values behind it (docs/forms.md)."""

from refold.summarizers.forms.form import Form
from refold.summarizers.forms.snapshot import File, Snapshot, SnapshotForm, Step, read_snapshot, write_snapshot

__all__ = ["File", "Form", "Snapshot", "SnapshotForm", "Step", "read_snapshot", "write_snapshot"]
