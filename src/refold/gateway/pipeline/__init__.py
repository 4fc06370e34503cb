"""What happens to a request of a conversation before and after it is sent."""
