"""Routes: which carrier takes the messages to a network, and at what cost."""
