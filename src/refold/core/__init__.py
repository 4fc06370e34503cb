"""The model of the library: strategies propose edits, and a view shows a transcript with its
edits."""
