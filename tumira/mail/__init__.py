"""E-mail: the outbox, the SMTP client and the worker that sends."""
