"""USDT deposits on an EVM chain."""
