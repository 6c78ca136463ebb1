"""Routes: which carrier takes the messages to a network, at what cost, and with what margin."""
