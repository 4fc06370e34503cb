"""A request's way through the gateway, changed or not."""
