"""One file a page of the console."""
