"""What can write the text of a summary."""
