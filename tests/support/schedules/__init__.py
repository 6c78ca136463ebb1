"""Support for tests of scheduled sends."""
