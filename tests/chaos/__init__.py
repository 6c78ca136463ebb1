"""Kill, cut and repeat, then audit."""
