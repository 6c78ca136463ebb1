"""Installation: the package, its pins, and the Pythons and platforms that it runs on."""
