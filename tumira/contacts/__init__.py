"""Contact lists and saved texts: what an account sends to often, and what it sends."""
