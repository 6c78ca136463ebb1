"""What tests share: real servers, accounts and helpers."""
