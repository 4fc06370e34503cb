"""The gateway's ledger: what calls were billed and would have been billed without edits, the table
of sessions, and recorded transcripts."""
