"""The customers' dashboard, and the public pages."""
