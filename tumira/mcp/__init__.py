"""A server for the Model Context Protocol: an assistant prices, sends and looks up messages."""
