"""The command line: `tumira serve` and all that an operator types."""

from tumira.cli.main import main

__all__ = ["main"]
