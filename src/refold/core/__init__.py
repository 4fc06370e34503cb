"""The model: strategies propose edits, a view is what a transcript shows under them."""
