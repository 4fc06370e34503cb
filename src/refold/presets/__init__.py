"""Systems that others have built, as compositions of Refold's parts (docs/presets)."""
