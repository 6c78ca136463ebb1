"""The audit: promises that are checked, and the runs that check them."""
