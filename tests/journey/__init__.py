"""Real processes, from a command to its result."""
