"""Runs the command line as `python -m tumira`."""

from tumira.cli import main

main()
