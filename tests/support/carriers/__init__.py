"""The providers of carriers over HTTP as real servers, one module each."""
