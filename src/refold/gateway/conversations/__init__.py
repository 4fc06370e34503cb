"""The conversations that the gateway knows, and how processes share them."""
