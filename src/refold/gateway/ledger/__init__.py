"""The gateway's books: what calls were billed, what they would have been without us, and
transcripts where asked for."""
