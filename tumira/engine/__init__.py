"""The worker: loops that run beside the web faces."""
