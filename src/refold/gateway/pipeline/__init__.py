"""The handling of a conversation's requests, before and after they are sent."""
