"""Systems that others have built, as compositions of Refold's parts: a module each
(docs/presets)."""
