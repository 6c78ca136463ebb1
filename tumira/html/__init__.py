"""What the pages that people look at share."""
