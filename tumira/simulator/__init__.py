"""A small SMSC that speaks real SMPP, for a first look, for tests and for the benchmark."""
