"""Tumira: a prepaid SMS gateway for Zimbabwe and South Africa."""

from typing import Final

VERSION: Final = "0.1.0"
