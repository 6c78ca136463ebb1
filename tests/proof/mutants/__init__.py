"""Mutation testing: small faults are put into the money and engine code, and the nearest tests must fail."""
