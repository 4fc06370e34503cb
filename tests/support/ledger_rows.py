"""Rows of a store's ledger with unusual values."""

from refold.stores.store import LedgerRow
from refold.testing.store_laws import ODD_TIPS


def rows_of_odd_tips():
    """Build rows with every kind of tip, and with texts that look like a tip.

    A file of schema 3 may contain them.
    """
    rows = [LedgerRow(when=float(n), outcome="noop", tip=tip) for n, tip in enumerate(ODD_TIPS)]
    rows += [LedgerRow(when=50.0, outcome="noop", tip=f"{n:032x}") for n in (1, 2, 1)]
    return [
        *rows,
        LedgerRow(
            when=60.0, outcome="failed", reason='"tip":"a","tip":', by='{"tip":"a"}', tip="b"
        ),
    ]
