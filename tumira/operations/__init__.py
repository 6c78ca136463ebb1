"""Running the service: maintenance, audit, retention, metrics, erasure and backup."""
