"""The engine on a seeded event loop with virtual time, a simulated network and a real PostgreSQL."""
