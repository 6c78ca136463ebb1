"""Webhooks: endpoints, payloads, signed delivery, retries and replay."""
