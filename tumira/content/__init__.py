"""The content check: which texts are promotional and refused."""
