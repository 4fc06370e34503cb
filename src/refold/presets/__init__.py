"""Published systems as compositions of Refold's parts (docs/presets)."""
