"""Tests of scheduled sends."""
