"""Customer accounts: balance, ledger, API keys and rate limit."""
