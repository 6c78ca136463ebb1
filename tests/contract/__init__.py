"""The API against its document, and each refusal provoked."""
