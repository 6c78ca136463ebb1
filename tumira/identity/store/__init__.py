"""SQL for identities."""
