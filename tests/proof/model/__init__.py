"""Models of the engine and of the accept path, explored whole."""
