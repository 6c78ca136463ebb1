"""Papers: numbers, statements, files and mails."""
