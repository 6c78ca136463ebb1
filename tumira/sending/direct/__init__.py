"""Claims that are made with the accept, for a worker on the same machine."""
