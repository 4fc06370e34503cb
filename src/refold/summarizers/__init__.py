"""Writers of the text of a summary."""
