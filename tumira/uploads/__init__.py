"""CSV uploads: parsing, checking and sending a file."""
