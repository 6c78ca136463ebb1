"""Proofs that anyone can run."""
