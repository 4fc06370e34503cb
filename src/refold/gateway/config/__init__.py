"""Settings of the gateway, from `refold.toml` or the environment."""
