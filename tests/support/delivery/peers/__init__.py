"""Programs of others that tests speak to, with what they need to be started."""
