"""Top-ups: Paynow, vouchers and USDT."""
