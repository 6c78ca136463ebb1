"""Pages in a real Chromium, as customers see and use them."""
