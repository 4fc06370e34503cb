"""A gateway between agents and model providers: one base URL, nothing else to change."""
